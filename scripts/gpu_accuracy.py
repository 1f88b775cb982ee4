"""Write docs/validation/gpu-accuracy.md: public GPU traces, compared with HTA and TraceLens.

``python scripts/gpu_accuracy.py --traces TraceLens=FOLDER --traces HTA=FOLDER ... [--hta-python PYTHON]``
converts, replays and explains every Kineto trace in the folders. The script compares the figures with plain
sums of the intervals, with HTA (``HolisticTraceAnalysis`` 0.5, in a separate Python environment), and with
the tables that TraceLens publishes with its traces. ``--only TEXT`` selects traces with TEXT in their names,
``--json FILE`` stores the figures, and ``--hta-kept FILE`` stores the figures of HTA, which take longest.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpu_checks import DEMANDS, Row, findings, passed_counts
from gpu_intervals import DeviceEvents, device_events, read_trace, times_of, trimmed
from gpu_ours import Ours, measure
from gpu_peers import agreements, compare_edges, expected_of, modelled_shares

__all__ = ["page", "traces_csv"]

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Read the command line, measure every trace and write page and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--traces", action="append", default=[], metavar="SOURCE=FOLDER", required=True)
    parser.add_argument("--hta-python", metavar="PYTHON", help="Python that has HTA")
    parser.add_argument(
        "--hta-kept", type=Path, metavar="FILE", help="store HTA's results in FILE, or reuse those in it"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only traces whose name contains TEXT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "docs" / "validation", help="folder to write"
    )
    given = parser.parse_args()
    rows, absent = [], []
    if given.hta_python is not None:
        _refuse_without_hta(given.hta_python)
    hta = Hta(given.hta_python, given.hta_kept)
    for text in given.traces:
        source, _, folder = text.partition("=")
        if not Path(folder or source).is_dir():
            absent.append(f"{source}: there is no folder {folder or source}")
            print(absent[-1], file=sys.stderr)
            continue
        rows += rows_of(source, Path(folder or source), given.only, hta)
    if not rows:
        sys.exit(
            "No trace was read. Next: give --traces SOURCE=FOLDER with Kineto traces (*.json, *.json.gz)."
        )
    if given.json:
        given.json.write_text(json.dumps([figures(row) for row in rows], indent=1), encoding="utf-8")
    text = page(rows, absent, with_hta=given.hta_python is not None)
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "gpu-accuracy.md").write_text(text, encoding="utf-8")
    (given.output / "gpu-accuracy.csv").write_text(traces_csv(rows), encoding="utf-8")


def _refuse_without_hta(python: str) -> None:
    """Exit with a message if *python* cannot import HTA, because all rows of HTA would be empty."""
    command = [python, "-c", "import hta.trace_analysis"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        why = (tried.stderr.strip().splitlines() or ["no output"])[-1]
        sys.exit(f"{python} cannot import HTA: {why}. Next: install HolisticTraceAnalysis==0.5.0 there.")


def rows_of(source: str, folder: Path, only: str, hta: Hta) -> Iterator[Row]:
    """Yield a row for each Kineto trace in *folder* that contains device work."""
    for path in trace_files(folder):
        name = f"{source}: {path.relative_to(folder)}"
        if only not in name:
            continue
        try:
            trace = read_trace(path)
        except (ValueError, OSError):
            continue
        if trace is None or not len((events := device_events(trace)).start):
            continue
        print(name, file=sys.stderr, flush=True)
        yield row_of(name, path, trace, events, hta)


def trace_files(folder: Path) -> list[Path]:
    """Return the files in *folder* that may be traces, sorted by name."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if path.name.endswith((".json", ".json.gz")))


def row_of(name: str, path: Path, trace: Mapping[str, Any], events: DeviceEvents, hta: Hta) -> Row:
    """Return the row of one trace."""
    ours = measure(path)
    converted = events.of(in_steps(events, trace, ours))
    dropped = set(events.rows.tolist()) - set(converted.rows.tolist())
    theirs = hta.figures(path, trace, dropped)
    edges = None
    if theirs and theirs.get("edges") and ours.workload is not None:
        edges = compare_edges(theirs["edges"], trace, converted, ours.workload)
    own = converted.within(*ours.own) if ours.own else converted
    return Row(
        name=name,
        whole=times_of(events.start, events.end, events.kind),
        converted=times_of(converted.start, converted.end, converted.kind),
        plain=times_of(own.start, own.end, own.kind),
        unlinked=int((events.launched < 0).sum()),
        graph_kernels=int(events.graph.sum()),
        has_capture=(path.parent / "capture_traces").is_dir(),
        ours=replace(ours, workload=None),
        hta=theirs,
        expected=expected_of(path),
        edges=edges,
        operators=agreements(ours.workload.metadata, path) if ours.workload is not None else (),
        modelled=modelled_shares(ours.workload.metadata, path) if ours.workload is not None else None,
    )


def in_steps(events: DeviceEvents, trace: Mapping[str, Any], ours: Ours) -> Any:
    """Return a mask of the *events* that were launched in the converted steps.

    If no steps are marked, all events with a launch are selected. The marks are those of the profiler, or the
    annotations that name the steps.
    """
    launched = events.launched >= 0
    marks = [
        _marks(trace, {f"ProfilerStep#{step}" for step in ours.steps}),
        _marks(trace, set(ours.step_names)),
    ]
    chosen = next((found for found in marks if len(found) >= max(1, len(ours.steps))), marks[0] or marks[1])
    if not chosen:
        return launched
    begin, end = min(mark[0] for mark in chosen), max(mark[1] for mark in chosen)
    return launched & (events.launched >= begin) & (events.launched <= end)


def _marks(trace: Mapping[str, Any], names: set[str]) -> list[tuple[float, float]]:
    """Return the intervals, in ns, of the host's annotations with one of these names."""
    return [
        (event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000)
        for event in trace["traceEvents"]
        if event.get("ph") == "X"
        and event.get("name") in names
        and not str(event.get("cat")).startswith("gpu")
    ]


class Hta:
    """HTA in another Python environment; the file *kept* caches its answers."""

    def __init__(self, python: str | None, kept: Path | None) -> None:
        self._python, self._file = python, kept
        self._kept = json.loads(kept.read_text("utf-8")) if kept is not None and kept.is_file() else {}

    def figures(
        self, path: Path, trace: Mapping[str, Any], dropped: Collection[int]
    ) -> Mapping[str, Any] | None:
        """Return HTA's figures for the trace without *dropped*, the events outside the converted steps."""
        if self._python is None:
            return None
        key = f"{path.resolve()} {path.stat().st_size} {len(dropped)} {sum(dropped)}"
        if key not in self._kept:
            self._kept[key] = self._ask(self._python, path, trace, dropped)
            if self._file is not None:
                self._file.write_text(json.dumps(self._kept), "utf-8")
        return dict(self._kept[key])

    def _ask(
        self, python: str, path: Path, trace: Mapping[str, Any], dropped: Collection[int]
    ) -> Mapping[str, Any]:
        edges = ["--edges"] if "critical_path" in str(path) else []
        with tempfile.TemporaryDirectory() as folder:
            file = path
            if dropped:
                file = Path(folder) / "trace.json"
                file.write_text(json.dumps(trimmed(trace, dropped)), encoding="utf-8")
            command = [python, str(ROOT / "scripts" / "hta_figures.py"), *edges, str(file)]
            setting = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
            done = subprocess.run(command, env=setting, capture_output=True, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        if not lines:
            return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
        return dict(json.loads(lines[-1]))


def figures(row: Row) -> dict[str, Any]:
    """Return *row* as plain JSON."""
    return asdict(row)


_PARTS = ("compute", "exposed_comm", "exposed_copy", "idle", "overlap")
_INTRODUCTION = """
`scripts/gpu_accuracy.py`, which writes this page, converts public Kineto traces of GPUs, replays them, and
compares the times in `summary` with plain sums of the intervals in the trace, with
[HTA](https://github.com/facebookresearch/HolisticTraceAnalysis) 0.5 (`HTA_DISABLE_NS_ROUNDING=1`) and with
the tables that [TraceLens](https://github.com/AMD-AGI/TraceLens) publishes with the traces of its tests.
"""
_READING = """
The compared times cover each device from its first to its last work, without work that no converted step
issued. TraceLens's tables cover the whole trace. Overlap counts first as computation, then as
communication; the remaining time of communication and copies is *exposed*. HTA counts `cuda_sync` records
and HIP calls that name a stream as kernels, and only NCCL's kernels as communication. HTA gives each
`cudaEventQuery` an edge from the work before the event, although a query returns at once. Chakrascope makes
edges only for event queries in a loop. For operators, TraceLens omits memsets and the bytes of bool copies,
includes operators that group norms and `cumsum` call, and assumes the wider type for results of mixed types.
"""
_REFUSED = ("| trace | device work | without a launch | message |", "|---|---|---|---|")


def page(rows: Sequence[Row], absent: Sequence[str], *, with_hta: bool) -> str:
    """Return the page as Markdown; *absent* lists the missing folders."""
    left_out = [*absent, *([] if with_hta else ["HTA: no Python with it was given"])]
    sections = [
        "# GPU traces, compared with HTA and TraceLens",
        _prose(_INTRODUCTION),
        *(_prose("These sources were not compared: " + "; ".join(left_out) + ".") for _ in left_out[:1]),
        "\n".join(_summary(rows)),
        _prose(_READING),
        "## Trace by trace",
        _prose(
            "The file [gpu-accuracy.csv](gpu-accuracy.csv) has one row per trace, with the times of "
            "Chakrascope and of plain sums (ms), the largest relative error of a replayed step, and "
            "the number of failed checks."
        ),
        "## Failed checks",
        "\n".join(_misses(rows)),
    ]
    refused = [*_refusals(rows)]
    if refused:
        sections += ["## Refused traces", "\n".join([*_REFUSED, *refused])]
    return "\n\n".join(sections) + "\n"


def _prose(text: str) -> str:
    """Return *text* in lines of at most 100 columns."""
    return textwrap.fill(" ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False)


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    yield "| check | traces that pass | values that pass |"
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
    yield "| trace | compared with | value | Chakrascope | other tool |"
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


if __name__ == "__main__":
    main()
