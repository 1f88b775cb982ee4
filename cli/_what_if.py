"""``chakrascope what-if``: simulate the step with parts of it faster, slower or removed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ..support import duration_text, parse_number
from ._options import quantity
from ._output import console, error_console, format_option, print_frame, print_json, records, stage
from ._studies import of_a_run, open_run

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import Study
    from ..runner.analysis import Target

_WITHOUT_NUMBER = ("edge", "skew")


@click.command("what-if")
@of_a_run
@click.option(
    "--faster",
    "faster",
    multiple=True,
    metavar="WHAT:NAME=TIMES",
    help="Part of the step to speed up, and a factor: operator:aten::mm=2 doubles the speed of an operator. "
    "Other parts to speed up are module:, kind:, kernel:, copy:, collective:, bandwidth:0 and latency:0 (of "
    "network dimension 0), link:0-8, cause:, stall:, sync:, place:, host:, fusion:, precision:, repeated:, "
    "loops:, skew:RANK and, for runs on the backend gpu, machine:. "
    "A factor below 1 slows the part down, and inf removes the part.",
)
@click.option(
    "--drop",
    "edges",
    multiple=True,
    metavar="RANK/FROM-TO",
    help=("Dependency to remove: RANK/FROM-TO, with the ids of two nodes."),
)
@click.option(
    "--each",
    "times",
    metavar="FLOAT",
    callback=quantity(lambda text: float(parse_number(text))),
    default="1.1",
    show_default=True,
    help=(
        "Without --faster and --drop, factor by which to speed up each of the largest contributors, one at a "
        "time."
    ),
)
@format_option
def what_if_command(
    *,
    study_folder: Path,
    run_id: str | None,
    faster: tuple[str, ...],
    edges: tuple[str, ...],
    times: float,
    output_format: str,
) -> None:
    """Simulate a run of STUDY with the given changes, and print the new step time.

    The whole step is simulated again, so the result accounts for other work that becomes critical. Without
    changes, `what-if` makes each of the largest contributors 10 % faster, one at a time.
    """
    from ..runner.analysis import Target

    changes = [*map(_faster, faster), *((Target.parse(f"edge:{edge}"), 1.0) for edge in edges)]
    run = open_run(study_folder, run_id, output_format)
    study, info = run.study, run.info
    with stage(f"simulated run {info.id} with changes"):
        table = _answer(study, info.id, changes) if changes else run.each_faster(times)
    qualifiers = run.summary.qualifiers
    if output_format == "json":
        print_json([row | {"qualifiers": qualifiers} for row in records(table)])
        return
    for line in qualifiers:
        error_console.print_text(f"Note: {line}", "yellow")
    title = "With this change" if changes else f"Each contributor {times:g} times as fast, one at a time"
    print_frame(table if output_format != "table" else table.drop(columns="key"), output_format, title=title)
    if output_format == "table":
        if any(target.what == "bandwidth" for target, _ in changes):
            console.print_text(
                "Network latencies are unchanged. --faster latency:0=2 shortens them, and --faster "
                "kind:communication=inf removes all communication.",
                "dim",
            )
        console.print_text(f"Compared with run {info.id}: its step takes {duration_text(info.makespan_ns)}.")


def _faster(text: str) -> tuple[Target, float]:
    from ..runner.analysis import Target

    if text.startswith("skew:") and "=" not in text:
        return Target.parse(text), math.inf
    key, equals, number = text.rpartition("=")
    if not equals:
        raise UsageError(f"'{text}' has no speed-up factor. Next: write {text}=2.")
    try:
        return Target.parse(key), math.inf if number == "inf" else float(parse_number(number))
    except ValueError as error:
        raise UsageError(f"'{text}' is not a valid change. Next: write it operator:aten::mm=2.") from error


def _times(times: float) -> str:
    return "removed" if times == math.inf else f"{times:g} times"


def _answer(study: Study, run_id: str, changes: list[tuple[Target, float]]) -> pd.DataFrame:
    import pandas as pd

    from ..runner.analysis import what_if

    before = study.run_info(run_id).makespan_ns
    after = what_if(study.experiment(run_id), changes).makespan_ns
    words = [
        target.label if target.what in _WITHOUT_NUMBER else f"{target.label}, {_times(times)}"
        for target, times in changes
    ]
    keys = [
        target.key if target.what in _WITHOUT_NUMBER else f"{target.key}={times:g}"
        for target, times in changes
    ]
    row: dict[str, object] = {"target": "; ".join(words), "key": " ".join(keys), "makespan_ns": after}
    row |= {"delta_ns": after - before, "relative": (after - before) / max(1, before)}
    table: pd.DataFrame = pd.DataFrame([row])
    return table
