"""``chakrascope diff``: compare two captures, steps or runs, and check limits on the differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..runner.analysis import DIFF_TABLES, PARTS
from ..support import bytes_text, change_text, count_text, duration_text, parse_number
from ._junit import Case, junit_option, write_junit
from ._options import Choice
from ._output import (
    console,
    counter,
    error_console,
    format_option,
    print_frame,
    print_json,
    print_other_views,
    print_rows,
    records,
    stage,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import StepDiff
    from ..runner.analysis import Judgement, Side

LIMIT_PASSED, UNDECIDED = 70, 71
_STARTS = 4  # minimum number of starts per side to estimate the noise between starts

_VERDICT = ["verdict", "change"]
# Columns of each table that fit on a terminal.
_SHOWN = {
    "waterfall": ["key", "base_ns", "other_ns", "delta_ns", *_VERDICT],
    "classes": ["key", "base_ns", "other_ns", "delta_ns", *_VERDICT],
    "operators": ["key", "base_ns", "other_ns", "delta_ns", *_VERDICT],
    "modules": ["key", "kind", "base_ns", "other_ns", "delta_ns", *_VERDICT],
    "collectives": ["key", "base_ns", "other_ns", "wait_base_ns", "wait_other_ns", *_VERDICT],
    "paths": ["part", "base_ns", "other_ns", "delta_ns", "change"],
}  # fmt: skip
_SEPARATE = "each value is a separate median over the steps, so the values do not add up"
_OF_MEDIAN = "mean over the ranks in the median step; the differences add up"
_TITLES = {
    "waterfall": "Critical path of the median step; the differences add up",
    "classes": f"Device time by class of operators, {_OF_MEDIAN}",
    "operators": f"Device time by operator, {_OF_MEDIAN}",
    "modules": f"Modules, mean over the ranks; {_SEPARATE}",
    "collectives": f"Collectives by size and group; {_SEPARATE}",
    "paths": "Where the critical paths differ most",
}
_KEYS = {"classes": "class", "operators": "operator", "modules": "module", "collectives": "collective"}
_SUMS = ("waterfall", "classes", "operators", "paths")
_ROWS = 12
# Tables that fit on one screen together; --view prints any other.
_FIRST = ("waterfall", "figures")


def _share(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(parse_number(text.removesuffix("%")) / 100)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is not a percentage, such as 5%.") from error


@click.command("diff")
@click.argument("base", metavar="STUDY_A[@WHAT]")
@click.argument("other", metavar="STUDY_B[@WHAT]")
@click.option(
    "--view",
    type=Choice(DIFF_TABLES),
    help="Table of the difference to print. [default: waterfall and figures; JSON: all]",
)
@click.option(
    "--by",
    type=Choice(PARTS),
    default="part",
    show_default=True,
    help="How the waterfall table breaks down the difference in step time.",
)
@click.option(
    "--between-starts",
    metavar="PERCENT",
    callback=_share,
    help=(
        "Relative variation of the step time between starts of the job; used for a side with fewer than "
        "four starts."
    ),
)
@click.option(
    "--fail-if",
    "limits",
    metavar="LIMIT",
    multiple=True,
    help=f"Limit, such as 'step > +3%': exit with {LIMIT_PASSED} if the limit is exceeded, and with "
    f"{UNDECIDED} if noise leaves the limit undecided. Repeatable.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also fail if a limit is exceeded by less than the noise, or if the noise is unknown.",
)
@junit_option
@format_option
def diff_command(
    *,
    base: str,
    other: str,
    view: str | None,
    by: str,
    between_starts: float | None,
    limits: tuple[str, ...],
    strict: bool,
    junit_file: Path | None,
    output_format: str,
) -> int:
    """Compare two captures, traces, steps or runs: STUDY_A before a change with STUDY_B after the change.

    Either side may be a trace, for example to compare traces of one model on two chips. WHAT is a capture
    (with all its steps), CAPTURE/STEP, a workload, the first letters of a run's id, a comma-separated list
    of these, or `all` for all captures. Without WHAT, `diff` uses the newest capture, or else the newest run.
    Operators, modules and collectives are matched by name, so the steps may have different nodes.

    In CI, start and capture the job four times before and four times after the change, and compare
    BEFORE@all with AFTER@all and --fail-if.
    """
    from ..runner import diff_steps, read_side
    from ..runner.analysis import check_side, judge, parse_limit

    asked = [parse_limit(text) for text in limits]
    if not asked and (strict or junit_file is not None):
        raise UsageError("--strict and --junit require a limit. Next: add --fail-if 'step > +3%'.")
    for text in (base, other):
        check_side(text)
    sides = []
    for text in (base, other):
        with stage(f"read {text}") as status:
            sides.append(read_side(text, counter(status, "steps")))
    if asked and between_starts is None:
        _print_too_few_starts(sides)
    found = diff_steps(*sides, between_starts=between_starts)
    judgements = judge(found, asked)
    if output_format == "json" and view is None:
        print_json(_document(found, by, judgements, strict=strict))
    elif output_format != "table":
        print_frame(found.table(view or "waterfall", by), output_format)
    else:
        _print(found, view, by)
        _print_judgements(judgements, strict=strict)
    if junit_file is not None:
        write_junit(junit_file, f"diff {base} {other}", [_case(one, strict=strict) for one in judgements])
    if any(_fails(one, strict=strict) for one in judgements):
        return LIMIT_PASSED
    return UNDECIDED if any(one.outcome == "undecided" for one in judgements) else 0


def _print_too_few_starts(sides: Sequence[Side]) -> None:
    """Warn that limits may stay undecided, because a side has too few starts to estimate the noise."""
    few = [side for side in sides if len(side.starts) < _STARTS and len(side.steps) > 1]
    if few:
        starts = " and ".join(f"{side.name} has {count_text(len(side.starts), 'start')}" for side in few)
        error_console.print_text(
            f"Note: {starts} of the job. With fewer than {_STARTS} starts on each side, a "
            f"limit can stay undecided (exit code {UNDECIDED}). Next: capture more starts, or add "
            "--between-starts PERCENT.",
            "yellow",
        )


def _document(found: StepDiff, by: str, judgements: Sequence[Judgement], *, strict: bool) -> dict[str, Any]:
    tables = {name: records(found.table(name, by)) for name in DIFF_TABLES}
    limits = [one.to_dict() | {"fails": _fails(one, strict=strict)} for one in judgements]
    return found.to_json() | {"limits": limits} | tables


def _print(found: StepDiff, view: str | None, by: str) -> None:
    for note in (*found.base.notes, *found.other.notes):
        console.print_text(f"Note: {note}", "yellow")
    console.print_text(f"\n{found.headline}", "bold")
    console.print_text(found.noise)
    for name in (view,) if view else _FIRST:
        table = found.table(name, by)
        if name == "figures":
            _print_figures(table)
            continue
        if name == "paths":
            table = table.iloc[(-table["delta_ns"].abs()).argsort(kind="stable")]
        shown = [column for column in _SHOWN[name] if column != "verdict" or found.layout.decides]
        table = table[shown].rename(columns={"key": _KEYS.get(name, by)})
        print_frame(
            _with_total(table, found) if name in _SUMS else table, "table", title=_TITLES[name], limit=_ROWS
        )
    if view is None:
        print_other_views(DIFF_TABLES, _FIRST)


def _with_total(table: pd.DataFrame, found: StepDiff) -> pd.DataFrame:
    """Return the first rows of *table*, one row for all others, and the total."""
    import pandas as pd

    times = ["base_ns", "other_ns", "delta_ns"]
    total = (found.base.median.makespan_ns, found.other.median.makespan_ns, found.delta_ns)
    changed = table[table["delta_ns"] != 0]
    first = (changed if len(changed) else table).head(_ROWS - 2)
    rest = [whole - int(first[name].sum()) for whole, name in zip(total, times, strict=True)]
    others = count_text(len(table) - len(first), "other")
    rows = [(f"({others})", *rest)] * (len(table) > len(first)) + [("the step", *total)]
    ends = pd.DataFrame(rows, columns=[table.columns[0], *times])
    summed: pd.DataFrame = pd.concat([first, ends], ignore_index=True).fillna("")
    frame: pd.DataFrame = summed.astype(dict.fromkeys(times, "int64"))
    return frame


def _print_figures(table: pd.DataFrame) -> None:
    """Print the compared figures with their units."""
    texts = {"ns": duration_text, "bytes": bytes_text, "count": "{:,}".format}
    rows = []
    for row in table[(table["base"] != 0) | (table["other"] != 0)].to_dict("records"):
        text = texts[row["unit"]]
        share = "" if row["relative"] != row["relative"] else change_text(row["relative"])
        is_unknown = row["verdict"] == "undecided" and row["low"] == row["high"]
        low, high = ("unknown", "") if is_unknown else (text(row["low"]), text(row["high"]))
        rows.append(
            {"quantity": row["quantity"], "base": text(row["base"]), "other": text(row["other"])}
            | {"change": share, "from": low, "to": high, "verdict": row["verdict"]}
        )
    print_rows(
        rows, title="Quantities: times other than the step are means over the ranks; medians over the steps"
    )
    idle = (
        " idle: time of a rank without work or communication; the idle time of the critical path is only "
        "that which delays the step."
    ) * any(row["quantity"] == "idle" for row in rows)
    console.print_text(f"from, to: interval of the change.{idle} {_SEPARATE.capitalize()}.", "dim")


def _print_judgements(judgements: Sequence[Judgement], *, strict: bool) -> None:
    for one in judgements:
        fails = _fails(one, strict=strict)
        mark, style = ("passed", "green") if one.outcome == "kept" else (one.outcome, "yellow")
        if fails:
            mark, style = "failed", "bold red"
        console.print_marked(mark, style, f"{one.limit}: {one.text}")
    fails = any(_fails(one, strict=strict) for one in judgements)
    if not fails and any(one.outcome == "undecided" for one in judgements):
        console.print_text(
            f"An undecided limit ends with exit code {UNDECIDED}. Next: capture more starts of the job, or "
            "add --strict to fail.",
            "dim",
        )


def _fails(one: Judgement, *, strict: bool) -> bool:
    return one.outcome == "failed" or (strict and one.outcome != "kept")


def _case(one: Judgement, *, strict: bool) -> Case:
    if _fails(one, strict=strict):
        return Case(one.limit, "failed", one.text)
    return Case(one.limit, "skipped" if one.outcome == "undecided" else "passed", one.text)
