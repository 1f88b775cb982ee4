"""``chakrascope rescale``: change the degrees, batches, depth or chips of a captured job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError, did_you_mean
from ..support import count_text, parse_size
from ._options import quantity
from ._output import console, print_next, print_remarks

if TYPE_CHECKING:
    from ..converter import Workload

_CHIPS = "roofline-"
_TERAOPS_PER_NS, _GIGABYTES_PER_NS = 1e3, 1.0


@click.command("rescale")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option("--workload", "name", metavar="NAME", help="Workload to scale. [default: the newest workload]")
@click.option("--dp", type=click.IntRange(1), help="Number of data-parallel replicas.")
@click.option(
    "--pp",
    type=click.IntRange(1),
    help="Number of pipeline stages; the captured layers are distributed over them.",
)
@click.option("--micro-batches", type=click.IntRange(1), help="Number of micro-batches of a pipeline.")
@click.option("--layers", type=click.IntRange(1), help="Number of layers of the model.")
@click.option("--chip", metavar="NAME", help="Chip of the new workload, such as h100.")
@click.option(
    "--activation",
    metavar="SIZE",
    default="0",
    callback=quantity(parse_size),
    help="Bytes of activations that a pipeline stage sends per micro-batch, such as 16MiB; --pp needs this "
    "size if the capture does not show it.",
)
@click.option(
    "--tp",
    type=click.IntRange(1),
    help=(
        "Not supported: tensor parallelism of a capture cannot be changed; the error message names "
        "alternatives."
    ),
)
@click.option(
    "--name",
    "new_name",
    help="Name of the new workload. [default: the name of the old workload and the changes]",
)
def rescale_command(
    *,
    study_folder: Path,
    name: str | None,
    dp: int | None,
    micro_batches: int | None,
    layers: int | None,
    chip: str | None,
    pp: int | None,
    activation: int,
    tp: int | None,
    new_name: str | None,
) -> None:
    """Scale a captured workload of STUDY to a larger job, and store it as a new workload.

    The options change the number of replicas, pipeline stages, micro-batches or identical layers, or the
    chip.
    """
    from ..runner import Study
    from ..runner.prediction.rescaling import (
        with_data_parallelism,
        with_layers,
        with_micro_batches,
        with_stages,
    )
    from ..runner.study import safe_name

    _refuse(tp)
    study = Study.open(study_folder)
    if new_name is not None:
        study.check_new_workload(new_name)
    prefix = study.workload_prefix(name)
    workload = study.workload(name)
    changes = {"layers": layers, "pp": pp, "micro-batches": micro_batches, "chip": chip, "dp": dp}
    suffix = "-".join(f"{option}-{value}" for option, value in changes.items() if value is not None)
    if not suffix:
        raise UsageError("No change is given. Next: add --dp, --pp, --micro-batches, --layers or --chip.")
    if layers is not None and pp is None:
        workload = with_layers(workload, layers)
    if pp is not None:
        workload = with_stages(workload, pp, micro_batches, layers=layers, activation_bytes=activation)
    elif micro_batches is not None:
        workload = with_micro_batches(workload, micro_batches)
    if chip is not None:
        workload = _on_chip(workload, chip)
    if dp is not None:
        workload = with_data_parallelism(workload, dp)
    new_name = new_name or safe_name(f"{prefix.parent.name}-{suffix}", "job")
    made = study.add_workload(workload, new_name).parent.name
    print_remarks("Assumed", workload.metadata.get("assumptions", []))
    nodes = f"{workload.summary()['nodes']:,}"
    console.print_text(
        f"The workload '{made}' has {count_text(workload.num_ranks, 'rank')} and {nodes} nodes."
    )
    print_next("run", study_folder, "--workload", made, then="--network PRESET")


def _refuse(tp: int | None) -> None:
    """Raise `UsageError` for a tensor-parallel degree, which a capture cannot change."""
    if tp is not None:
        raise UsageError(
            "--tp would change the shape of every operator, and the capture contains no operators with the "
            "new shapes. Next: capture the job with that degree, or predict its script with `chakrascope "
            "predict --script`."
        )


def _on_chip(workload: Workload, chip: str) -> Workload:
    from ..runner.config import SystemConfig, list_presets
    from ..runner.prediction.rescaling import with_chip

    chips = {preset.removeprefix(_CHIPS): preset for preset in list_presets("system") if _CHIPS in preset}
    if chip not in chips:
        raise UsageError(f"There is no chip '{chip}'{did_you_mean(chip, chips)}")
    peaks = SystemConfig.preset(chips[chip])
    return with_chip(
        workload,
        float(peaks.peak_perf or 0) * _TERAOPS_PER_NS,
        float(peaks.local_mem_bw or 0) * _GIGABYTES_PER_NS,
        chip,
    )
