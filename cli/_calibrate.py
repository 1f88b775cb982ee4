"""``chakrascope calibrate``: fit a network file to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ConfigError, UsageError
from ..support import (
    duration_text,
    new_file,
    parse_bandwidth,
    parse_duration,
    parse_size,
    writing,
)
from ._options import quantity
from ._output import console, format_option, print_frame, print_json, print_next, stage
from ._studies import are_logs

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import Study
    from ..runner.calibration import Calibration, Records
    from ..runner.config import SystemConfig

_MIN_LARGEST = 1024
_SHOWN = ["operation", "size_bytes", "count", "measured_ns", "model_ns", "error", "efficiency"]
_PLAIN = {"error": "relative", "efficiency": "share"}


def _share(text: str) -> float:
    """Parse a fraction such as ``0.9415`` or ``1448/1538``."""
    try:
        value = float(Fraction(text.replace(" ", "")))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"'{text[:40]}' is not a fraction, such as 0.9415 or 1448/1538") from error
    if not 0 < value <= 1:
        raise ValueError(f"'{text[:40]}' must be above 0 and at most 1")
    return value


@click.command("calibrate")
@click.argument("sources", metavar="[STUDY|LOGS...]", nargs=-1)
@click.option(
    "--hosts",
    "place",
    metavar="FILE",
    help="Measure messages between these hosts: a hosts file of `emulate`, or namespaces=2,link=100Mbit.",
)
@click.option(
    "--largest",
    callback=quantity(parse_size),
    default="2MiB",
    show_default=True,
    help="Size of the largest message to measure.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Network file to write. A plot of the fit is saved next to it.",
)
@click.option(
    "--workload",
    help="Fit the collectives of this workload of STUDY. [default: all steps of the newest capture]",
)
@click.option("--system", default="default", show_default=True, help="System JSON file or preset.")
@click.option(
    "--bandwidth",
    callback=quantity(lambda text: float(parse_bandwidth(text))),
    help="Set the link bandwidth, such as 10Gb/s, instead of fitting it; the remaining time of collectives "
    "counts as library overhead.",
)
@click.option(
    "--latency",
    callback=quantity(lambda text: float(parse_duration(text))),
    help="Set the link latency, such as 5us, instead of fitting it.",
)
@click.option(
    "--wire",
    callback=quantity(_share),
    default="1",
    show_default=True,
    help="Payload bytes per byte on the wire, such as 1448/1538 for TCP over Ethernet.",
)
@click.option(
    "--chip",
    help=(
        "Fit the operator costs of this chip to STUDY instead of fitting a network; -o then names a chip "
        "file."
    ),
)
@click.option(
    "--compute-from",
    metavar="STUDY",
    help="Study captured on another chip, to which the compute times of STUDY are scaled.",
)
@format_option
def calibrate_command(
    *,
    sources: tuple[str, ...],
    place: str | None,
    largest: float,
    output: Path | None,
    workload: str | None,
    system: str,
    bandwidth: float | None,
    latency: float | None,
    wire: float,
    chip: str | None,
    compute_from: str | None,
    output_format: str,
) -> None:
    """Fit a network to the collectives of a capture (STUDY) or of LOGS, or to messages between --hosts.

    The time that a collective waits for the last rank does not count as transfer time. Bandwidth and latency
    are printed with 95 % intervals, and the library's overhead by collective and size. Quantities that the
    measurements do not determine are listed. With -o, `calibrate` writes a network file for --network, and a
    plot of the fit.
    """
    from ..runner import Study
    from ..runner.calibration import calibrate_records, calibration_facts, calibration_points

    if output is not None and output.suffix not in (".yml", ".yaml"):
        raise UsageError(f"{output} must be a network YAML. Next: choose a name for -o that ends in .yml.")
    if chip is not None or compute_from is not None:
        if place is not None or len(sources) != 1 or (chip is not None and compute_from is not None):
            raise UsageError(
                "--chip and --compute-from each need one STUDY, and cannot be combined with each other or "
                "with --hosts."
            )
        study = Study.open(sources[0])
        if chip is not None:
            fit_chip(study, workload, chip, output, output_format)
        elif compute_from is not None:
            carry_over(study, workload, compute_from)
        return
    loaded = _system(system)
    if (place is None) == (not sources):
        raise UsageError("Give a STUDY, LOGS or --hosts.")
    records = _records(sources, workload) if place is None else _measured(place, loaded, int(largest))
    found = calibrate_records(
        records, loaded, wire=wire, bandwidth_bytes_per_ns=bandwidth, latency_ns=latency
    )
    if output is not None:
        _write(found, output)
    points = calibration_points(found)
    if output_format == "json":
        print_json(calibration_facts(found))
    elif output_format == "csv":
        print_frame(points, "csv")
    else:
        _print(found, points, output)


def _measured(place: str, system: SystemConfig, largest_bytes: int) -> Records:
    from ..runner.calibration import measure_network

    if largest_bytes < _MIN_LARGEST:
        raise UsageError("--largest must be 1KiB or more: smaller messages do not determine the bandwidth.")
    with stage(f"measuring over {place}"):
        return measure_network(place, system, largest_bytes=largest_bytes)


def _records(sources: Sequence[str], workload: str | None) -> Records:
    from ..runner import Study
    from ..runner.calibration import are_gloo_records, gloo_records, records_of_logs, records_of_study

    if len(sources) == 1 and Study.is_study(sources[0]):
        with stage("reading measurements"):
            return records_of_study(Study.open(sources[0]), workload)
    if len(sources) == 1 and are_gloo_records(sources[0]):
        return gloo_records(sources[0])
    if workload is not None:
        raise UsageError(
            "--workload names a workload of a STUDY; logs have none. Leave it out, or give a study."
        )
    if len(sources) == 1 and not are_logs(sources):
        Study.open(sources[0])  # a missing or damaged study must fail before any measurement
    return records_of_logs(sources)


def _system(name: str) -> SystemConfig:
    from ..runner.config import SystemConfig, is_preset

    return SystemConfig.preset(name, 1) if is_preset("system", name) else SystemConfig.load(name)


def _write(found: Calibration, output: Path) -> None:
    from ..runner.calibration import calibrated_network, picture

    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    plot = output.with_suffix(".svg")
    # The plot gets its name after the network file is written, so that both exist or neither.
    with writing(plot, ConfigError), new_file(plot, parents=True) as temporary:
        temporary.write_text(picture(found), encoding="utf-8")
        with writing(output, ConfigError):
            calibrated_network(found, output.stem, when).save(output)


def _print(found: Calibration, points: pd.DataFrame, output: Path | None) -> None:
    print_frame(_dimensions(found), "table", title=f"Network, fitted to {found.records.source}")
    telling = [name for name in ("dimension", "ranks") if points[name].nunique() > 1]
    shown = points[[*telling, *_SHOWN]].rename(columns=_PLAIN)
    print_frame(shown, "table", title="Collectives", limit=40)
    console.print_text(
        "share: share of a collective's time that its messages take; the rest is library overhead.", "dim"
    )
    if found.message_cost_ns is not None:
        figures = (found.message_cost_ns.value, found.message_cost_ns.low, found.message_cost_ns.high)
        value, low, high = map(duration_text, figures)
        console.print_text(f"A message keeps its sender busy for {value} ({low} to {high}).")
    for text in found.undetermined:
        console.print_text(f"Not determined: {text}")
    for text in found.records.left_out:
        console.print_text(f"Left out: {text}.", "dim")
    if output is not None:
        console.print_text(f"Written: {output}, {output.with_suffix('.svg')}")
        print_next("run", "STUDY", "--network", str(output))


def _dimensions(found: Calibration) -> pd.DataFrame:
    import pandas as pd

    from ..runner.calibration import rate_text

    rows = []
    for dimension in found.dimensions:
        pace, latency = dimension.fit.ns_per_byte, dimension.fit.latency_ns
        rates = [rate_text(value * found.efficiency.wire) for value in (pace.value, pace.high, pace.low)]
        delays = [duration_text(value) for value in (latency.value, latency.low, latency.high)]
        rows.append(
            {
                "dimension": dimension.name,
                "ranks": dimension.count,
                "transfers": dimension.fitted_on,
                "bandwidth": rates[0],
                "interval": f"{rates[1]} to {rates[2]}" if pace.known == "fitted" else pace.known,
                "latency": delays[0],
                "of it": f"{delays[1]} to {delays[2]}" if latency.known == "fitted" else latency.known,
            }
        )
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def fit_chip(study: Study, workload: str | None, name: str, output: Path | None, output_format: str) -> None:
    """Fit the chip *name* to the operators of *study*, print the fit, and write a chip file to *output*."""
    import pandas as pd

    from ..runner.calibration import calibrated_chip, compute_fits, operator_table
    from ..runner.chips import find_chip, save_chip

    chosen = study.workload_prefix(workload).parent.name
    fits = compute_fits(operator_table(study.workload(chosen)))
    chip, notes = calibrated_chip(find_chip(name), fits, f"the workload {chosen}")
    if output is not None:
        with writing(output, ConfigError):
            save_chip(chip, output)
    measured = chip.costs["measured"]
    shares = {"gemm": measured.gemm, "attention": measured.attention, "pointwise": measured.pointwise}
    rows = [
        {
            "class": kind,
            "operators": fit.count,
            "different": fit.sizes,
            "start_ns": fit.fit.latency_ns.value,
            "share": _plain(shares[kind]),
            "median_error": pd.Series(fit.errors).abs().median(),
        }
        for kind, fit in fits.items()
    ]
    print_frame(pd.DataFrame(rows), output_format, title=f"{chip.title}, fitted to {chosen}")
    if output_format == "table":
        for text in notes:
            console.print_text(f"Not determined: {text}.")
        if output is not None:
            console.print_text(f"Written: {output}")


def _plain(share: object) -> float:
    return float(share["default"]) if isinstance(share, dict) else float(str(share))


def carry_over(study: Study, workload: str | None, other_folder: str) -> None:
    """Add a workload to *study* with compute times scaled to the operators of another study."""
    from ..runner import Study
    from ..runner.calibration import rescaled
    from ..runner.study import safe_name

    if Path(other_folder).resolve() == study.path.resolve():
        raise UsageError("--compute-from must name another study, captured on the target chip.")
    chosen = study.workload_prefix(workload).parent.name
    other = Study.open(other_folder)
    changed, assumption = rescaled(study.workload(chosen), other.workload(), other.path.name)
    prefix = study.add_workload(changed, safe_name(f"{chosen}-on-{other.path.name}", "job"))
    console.print_text(f"{assumption}.")
    print_next("run", study.path, "--workload", prefix.parent.name, "--network", "PRESET")
