"""``chakrascope demo``: convert, simulate and explain a captured job that ships with the package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from ..errors import UsageError
from ..support import new_folder
from ._convert import convert_latest, print_accounting
from ._output import print_next
from ._run import print_runs, simulate_study
from ._summary import print_headline
from ._target import Target
from ._view import serve_study

# Two ranks of examples/ddp_transformer, captured on the CPU.
_CAPTURE = Path(__file__).with_name("demo_capture")
_NETWORK = "cpu-cluster-16"


@click.command("demo")
@click.option(
    "-o",
    "--output",
    "study_folder",
    type=click.Path(path_type=Path),
    default=Path("demo-study"),
    show_default=True,
    help="Folder of the study to create.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8050,
    show_default=True,
    help="Port of the viewer; 0 picks a free port.",
)
@click.option("--no-view", is_flag=True, help="Print the answer without opening the viewer.")
def demo_command(study_folder: Path, port: int, no_view: bool) -> None:
    """Convert, simulate and explain a captured job that ships with the package.

    The traces of two ranks of a transformer with DistributedDataParallel are converted to Chakra graphs,
    which are simulated on a cluster of sixteen ranks with two network models. `demo` needs no torch, no
    compiler and no network.
    """
    from ..runner import AWARE, DEFAULT_BACKEND, Study
    from ..runner.analysis import analyse_run

    if study_folder.exists():
        raise UsageError(
            f"{study_folder} exists already. Next: chakrascope view {study_folder}, or -o with another name."
        )
    study = Study.create(study_folder)
    with new_folder(study.trace_dir("capture-1")) as folder:
        for file in _CAPTURE.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    workload, _ = convert_latest(study, "median")
    print_accounting(workload)
    target = Target(system="default", network=_NETWORK, memory=None, backends=(DEFAULT_BACKEND, AWARE))
    runs = simulate_study(study, target)
    print_runs(runs, remarks=False)
    run_id, _ = runs[-1]
    print_headline(analyse_run(study, run_id).summary.to_json())
    if no_view or find_spec("dash") is None:
        print_next("view", study_folder)
    else:
        serve_study(study, "127.0.0.1", port, run_id=run_id)
