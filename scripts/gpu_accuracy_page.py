"""The page docs/validation/gpu-accuracy.md (demands, misses, refusals) and its table of traces."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from gpu_checks import DEMANDS, Row, findings, passed_counts

__all__ = ["page", "traces_csv"]

_PARTS = ("compute", "exposed_comm", "exposed_copy", "idle", "overlap")

_INTRODUCTION = """
Written by `scripts/gpu_accuracy.py`; do not edit. Public Kineto traces of GPUs are converted with
`--step all` and replayed (`--backend replay`). What `summary` then says of the rank is compared with
plain sums of the intervals in the file, with [HTA](https://github.com/facebookresearch/HolisticTraceAnalysis)
0.5 (`HTA_DISABLE_NS_ROUNDING=1`), and with the tables that
[TraceLens](https://github.com/AMD-AGI/TraceLens) publishes with the traces of its tests.
"""
_READING = """
A device counts from its first work to its last, in the own time of the converted steps. Work that no
converted step issued is left out, for HTA too; TraceLens's tables hold the whole file. Computation counts
first, then communication, then copies: the rest of a later kind is *exposed*. HTA counts `cuda_sync`
records and HIP calls that name a stream as kernels, and only NCCL's kernels as communication; where its
figures differ for that, the sums decide. HTA gives each `cudaEventQuery` an edge from the work before the
event, although a query returns at once; here only queries in a loop wait, which leaves out two edges of
`cuda_event_sync_multi_stream`.
"""


_REFUSED = ("| trace | device work | without a launch | message |", "|---|---|---|---|")


def page(rows: Sequence[Row], absent: Sequence[str], *, with_hta: bool) -> str:
    """Return the page as Markdown. *absent* says which folders were not there."""
    left_out = [*absent, *([] if with_hta else ["HTA: no Python with it was given"])]
    sections = [
        "# GPU traces, compared with HTA and TraceLens",
        _prose(_INTRODUCTION),
        *(_prose("Not compared here: " + "; ".join(left_out) + ".") for _ in left_out[:1]),
        "\n".join(_summary(rows)),
        _prose(_READING),
        "## Trace by trace",
        _prose(
            "[gpu-accuracy.csv](gpu-accuracy.csv) has a row for each trace: our times and plain sums (ms), "
            "the relative error of the worst replayed step, and the number of misses."
        ),
        "## What differs",
        "\n".join(_misses(rows)),
    ]
    refused = [*_refusals(rows)]
    if refused:
        sections += ["## What is refused", "\n".join([*_REFUSED, *refused])]
    return "\n\n".join(sections) + "\n"


def _prose(text: str) -> str:
    """Return *text* in lines of at most 100 columns."""
    return textwrap.fill(" ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False)


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    yield "| demand | traces that meet it | figures |"
    yield "|---|---|---|"
    for demand, check in DEMANDS.items():
        passed, total, figures, every = passed_counts(rows, check)
        yield f"| {demand} | {passed} of {total} | {figures:,} of {every:,} |"


def traces_csv(rows: Iterable[Row]) -> str:
    """Return a row per trace that converts, as CSV; times in ms."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    names = [f"{side}_{part}_ms" for part in _PARTS for side in ("our", "plain")]
    table.writerow(["trace", "work", "span_ms", *names, "replay_error", "misses"])
    for row in rows:
        answer, plain = row.ours.answer, row.plain
        if answer is None:
            continue
        times = [_ms(getattr(each, f"{part}_ns")) for part in _PARTS for each in (answer, plain)]
        worst = max((replay.error for replay in row.ours.replays), key=abs)
        misses = sum(not finding.passed for finding in findings(row))
        table.writerow([row.name, plain.count, _ms(plain.span_ns), *times, f"{worst:+.3f}", misses])
    return text.getvalue()


def _misses(rows: Iterable[Row]) -> Iterator[str]:
    yield "| trace | compared with | figure | ours | theirs |"
    yield "|---|---|---|---|---|"
    for row in rows:
        for finding in findings(row):
            if not finding.passed and finding.demand != "converts":
                cells = (finding.demand, _escaped(finding.figure), finding.ours, finding.theirs)
                yield f"| {_code(row.name)} | {' | '.join(cells)} |"


def _refusals(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        outcome = row.ours.refused or row.ours.crashed
        if outcome:
            yield f"| {_code(row.name)} | {row.whole.count:,} | {row.unlinked:,} | {_escaped(outcome)} |"


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.2f}"


def _code(name: str) -> str:
    return f"`{name}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
