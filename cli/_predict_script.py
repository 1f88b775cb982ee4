"""Predict a step of the user's own script (``predict --script``), run on fake tensors."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..support import bytes_text, duration_text, share_text
from ._output import clock, console, print_json, print_next, print_remarks, stage

if TYPE_CHECKING:
    from ..runner import NetworkConfig
    from ..runner.chips import Chip
    from ..runner.prediction import PredictedStep

_SIZE = re.compile(r"[1-9][0-9]{0,17}")


def predict_script(
    command: Sequence[str],
    chip: Chip,
    network: NetworkConfig,
    *,
    world: int | None,
    mesh: str,
    every_rank: bool,
    software: str | None,
    precision: str | None,
    backend: str,
    study_folder: Path | None,
    output_format: str,
) -> None:
    """Record the script in *command*, simulate its step, print the prediction, and store it in the study.

    Without *world*, the network gives the number of ranks.
    """
    from ..runner import Study, script_workload
    from ..runner.prediction import check_recorded, predict_recorded
    from ..runner.study import safe_name
    from ..tracer import record_script

    world, dimensions = world or network.num_ranks, _mesh(mesh)
    software = software or _software_of(chip)
    check_recorded(world, chip, network, software=software, precision=precision, backend=backend)
    study = None if study_folder is None else Study.create(study_folder)
    script = safe_name(Path(command[0]).stem, "script")
    with stage(f"ran {command[0]} as ranks of {world}"):
        if study is not None:
            folder = study.recording_dir(script)
            recordings = record_script(command, folder, world=world, every_rank=every_rank)
        else:
            with tempfile.TemporaryDirectory() as temporary:
                recordings = record_script(command, temporary, world=world, every_rank=every_rank)
        workload = script_workload(recordings, dimensions)
    with stage(f"simulated {world} ranks on {network.name}") as status:
        prediction = predict_recorded(
            workload,
            chip,
            network,
            software=software,
            precision=precision,
            backend=backend,
            progress=clock(status, world),
        )
    run_id = None
    if study is not None:
        prefix = study.add_workload(prediction.workload, script)
        run_id = study.add_run(prediction.experiment, prediction.run_result(), workload=prefix.parent.name)
    if output_format == "json":
        print_json(prediction.to_json())
        return
    print_step(prediction, prediction.precision)
    print_remarks("Assumed", prediction.assumptions)
    if study_folder is not None and run_id is not None:
        print_next("summary", study_folder, "--run", run_id)


def _software_of(chip: Chip) -> str:
    """Return the software stack of *chip* that best models PyTorch's own operators."""
    return next((name for name in ("fsdp", "default") if name in chip.costs), next(iter(chip.costs)))


def _mesh(text: str) -> dict[str, int]:
    """Parse the sizes of mesh dimensions in *text*, such as ``dp=32,tp=8``."""
    sizes: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, size = part.partition("=")
        if not (name and equals and _SIZE.fullmatch(size)):
            raise UsageError(f"'{part}' in --mesh is not a dimension. Write it as dp=32,tp=8,pp=2.")
        sizes[name.strip()] = int(size)
    return sizes


def print_step(found: PredictedStep, precision: str, *rows: tuple[str, str]) -> None:
    """Print the figures of a prediction; *rows* follow the step time."""
    low, high = found.range_ns
    verdict = "fits" if found.fits else "does NOT fit"
    held, room = bytes_text(found.memory_bytes), bytes_text(found.chip.usable_bytes)
    interval = f"90 % interval: {duration_text(low)} to {duration_text(high)}"
    print_figures(
        ("step", f"{duration_text(found.step_ns)} ({interval})"),
        *rows,
        ("utilisation", f"{share_text(found.utilisation)} of {precision} peak"),
        ("bound by", found.bound_by),
        ("memory", f"{held} of {room} usable per rank: {verdict}"),
        ("step by FLOPs", f"{duration_text(found.constant_utilisation_ns)} at a constant utilisation"),
    )


def print_figures(*rows: tuple[str, str]) -> None:
    """Print names and texts in two columns."""
    for name, text in rows:
        console.print_text(text, lead=f"{name:>14}  ")
