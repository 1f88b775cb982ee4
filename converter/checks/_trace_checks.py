"""Check that trace sets and production logs can be converted, and that their files belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import ChakrascopeError, TraceError, TraceFormatError
from ...tracer import MANIFEST_NAME, RankEntry, StepRange, TraceSet
from ..building import (
    Doubt,
    Identity,
    annotated_steps,
    convert_logs,
    doubts_of_pair,
    doubts_of_ranks,
    worked_apart,
)
from ..linking import MatchedLogs, match_logs, troubles_of
from ..readers import (
    DeviceTrace,
    RankTraces,
    read_device_trace,
    read_flight_record,
    read_host_trace,
)
from ..readers.logs import ranks_text, read_logs
from ._findings import Finding, worst_first
from ._workload_checks import check_workload

TIMES_ALONE = "It holds the times of all steps, and no traces (--steps 0)."
_CAPTURE_AGAIN = "Capture again."
_FOR_CALIBRATION = (
    "'chakrascope diagnose' tabulates how long they took, by size: that calibrates a network. A workload of "
    "collectives alone is made by 'convert --back-to-back'."
)


@dataclass(frozen=True)
class _Rank:
    """The data of one rank's traces for comparison between ranks."""

    rank: int
    steps: tuple[StepRange, ...]
    identity: Identity | None


def check_trace_set(folder: Path) -> tuple[list[Finding], list[Finding]]:
    """Return the problems of the trace set in *folder*, and missing or unreadable traces of its ranks.

    Other ranks may replace the ranks with missing traces. Each file is read only once.
    """
    path = folder / MANIFEST_NAME
    try:
        trace_set = TraceSet.load(folder, need_files=False)
    except TraceError as error:
        return [Finding("error", str(path), error.message)], []
    findings, lacking = list(_check_capture(trace_set, path)), list(_absent(trace_set, path))
    ranks = []
    for entry in trace_set.ranks:
        rank, found, lost = _check_rank(entry, folder)
        findings += found
        lacking += lost
        if rank is not None:
            ranks.append(rank)
    identities = [rank.identity for rank in ranks if rank.identity is not None]
    findings += as_findings(doubts_of_ranks(identities, 0 if trace_set.fake_world else trace_set.world_size))
    findings += _compare_ranks(ranks, folder)
    return findings, lacking


def _absent(trace_set: TraceSet, path: Path) -> Iterator[Finding]:
    """Check that the trace set contains every rank."""
    absent = trace_set.world_size - len(trace_set.ranks)
    if absent > 0 and not trace_set.fake_world:
        yield Finding(
            "error",
            str(path),
            f"{absent} of the job's {trace_set.world_size} ranks left nothing.",
            "Collect the folders of all hosts into one, or capture again if ranks died.",
        )


def _check_capture(trace_set: TraceSet, path: Path) -> Iterator[Finding]:
    """Check that the capture ended normally."""
    if trace_set.partial:
        yield Finding(
            "warning", str(path), f"The capture is partial: {trace_set.why_partial}.", _CAPTURE_AGAIN
        )
    if any(_has_times_alone(entry) for entry in trace_set.ranks):
        yield Finding(
            "note",
            str(path),
            TIMES_ALONE,
            f"Find stragglers with `chakrascope diagnose {trace_set.path}`.",
        )


def _has_times_alone(entry: RankEntry) -> bool:
    """Return whether the capture was requested to record only the step times of a rank."""
    return entry.step_times is not None and not (entry.host_trace or entry.device_trace)


def _check_rank(entry: RankEntry, folder: Path) -> tuple[_Rank | None, list[Finding], list[Finding]]:
    """Check the files of one rank; return missing or unreadable files separately from other findings."""
    findings: list[Finding] = []
    lacking: list[Finding] = []
    if _has_times_alone(entry):
        return None, findings, lacking
    host = device = None
    for name, kind in ((entry.host_trace, "host"), (entry.device_trace, "device")):
        place = f"{folder / name}" if name else f"{folder}, rank {entry.rank}"
        if not name:
            lacking.append(Finding("error", place, f"There is no {kind} trace.", _CAPTURE_AGAIN))
            continue
        try:
            if kind == "host":
                host = read_host_trace(folder / name)
            else:
                device = read_device_trace(folder / name)
        except TraceFormatError as error:
            lacking.append(Finding("error", place, error.message, _CAPTURE_AGAIN))
        except ChakrascopeError as error:
            findings.append(Finding("error", place, error.message, _CAPTURE_AGAIN))
    if entry.flight_record is not None:
        try:
            read_flight_record(folder / entry.flight_record)
        except ChakrascopeError as error:
            cause = f"{error.message} Groups of gloo collectives may be unknown."
            findings.append(Finding("warning", str(folder / entry.flight_record), cause, _CAPTURE_AGAIN))
    if device is None:
        return None, findings, lacking
    steps = tuple(entry.steps or annotated_steps(device).steps)
    findings += check_device(entry, device, steps, f"{folder / str(entry.device_trace)}")
    if host is None:
        return _Rank(entry.rank, steps, None), findings, lacking
    covered = () if entry.structure_step is None else (entry.structure_step,)
    findings += as_findings(doubts_of_pair(host, device, covered, f"{folder}, rank {entry.rank}"))
    traces = RankTraces(
        entry.rank, folder / str(entry.host_trace), folder / str(entry.device_trace), process=entry.pid
    )
    return _Rank(entry.rank, steps, Identity.of(traces, device, host)), findings, lacking


def check_device(
    entry: RankEntry, device: DeviceTrace, steps: Sequence[StepRange], place: str
) -> Iterator[Finding]:
    """Check that the device trace of a rank is complete."""
    if device.left_out:
        yield Finding("warning", place, f"{device.left_out[0].upper()}{device.left_out[1:]}.", _CAPTURE_AGAIN)
    if not steps:
        yield Finding(
            "warning",
            place,
            "No step is marked: a step ends with the optimizer or is a repetition, or all of it is one step.",
            "Capture with 'chakrascope trace', or call the profiler's step() after each step.",
        )
    for step in steps:
        starts = device.events.start_ns[device.events.is_operator]
        if not ((starts >= step.start_ns) & (starts < step.end_ns)).any():
            yield Finding(
                "error",
                f"{place}, step {step.index}",
                "No operator ran in it by the trace's clock, so the clocks of manifest and trace disagree.",
                _CAPTURE_AGAIN,
            )
    if not len(device.works) and (len(device.calls) or entry.device not in ("", "cpu")):
        yield Finding(
            "error",
            place,
            f"The rank computed on {entry.device or 'a device'}, but no kernel was recorded.",
            "Capture again with device activities on, and with no other profiler attached.",
        )


def as_findings(doubts: Iterable[Doubt]) -> list[Finding]:
    """Return *doubts* about whether traces belong together as findings."""
    return [
        Finding("error" if doubt.certain else "warning", doubt.place, doubt.cause, doubt.remedy)
        for doubt in doubts
    ]


def _compare_ranks(ranks: Sequence[_Rank], folder: Path) -> Iterator[Finding]:
    """Check that the ranks have common steps, and execute these steps at the same time."""
    if len(ranks) < 2 or not all(rank.steps for rank in ranks):
        return
    common = set.intersection(*({step.index for step in rank.steps} for rank in ranks))
    if not common:
        yield Finding(
            "error",
            str(folder),
            "The ranks have no captured step in common.",
            "Capture more steps, all ranks in one job.",
        )
        return
    index = min(common)
    spans = {rank.rank: next(step for step in rank.steps if step.index == index) for rank in ranks}
    yield from as_findings(worked_apart(spans, str(folder)))


def check_logs(targets: Sequence[str | Path]) -> list[Finding]:
    """Return the problems of the logs at *targets* and of the logs' workload, worst first."""
    place = str(targets[0])
    try:
        matched = match_logs(read_logs(targets))
        findings = check_matched(matched)
        if all(finding.severity != "error" for finding in findings) and matched.logs.has_times:
            workload = convert_logs(targets)
            findings += check_workload(workload, place)
            findings += [Finding("note", place, _sentence(note)) for note in workload.metadata["assumptions"]]
    except ChakrascopeError as error:
        return [Finding("error", place, error.message)]
    return worst_first(findings)


def check_matched(matched: MatchedLogs) -> list[Finding]:
    """Return the problems in the logs of a job, worst first."""
    logs = matched.logs
    findings = [Finding("error", logs.place, found.cause, found.remedy) for found in troubles_of(matched)]
    absent = sorted(set(range(logs.world_size)) - logs.ranks.keys())
    if absent:
        findings.append(
            Finding(
                "warning", logs.place, f"There is no log of {ranks_text(absent)}.", "Add the missing logs."
            )
        )
    if matched.clocks.known_from == "nothing" and len(logs.ranks) > 1 and logs.has_times:
        findings.append(
            Finding(
                "note", logs.place, "The offsets of the ranks' clocks are unknown.",
                "Times of different ranks are not compared; the durations of a collective still show "
                "which rank came last.",
            )
        )  # fmt: skip
    if not logs.has_times:
        findings.append(
            Finding("note", logs.place, "The logs have no times of the collectives.", _FOR_CALIBRATION)
        )
        findings += [Finding("note", logs.place, _sentence(note)) for note in logs.notes]
    return worst_first(findings)


def _sentence(note: str) -> str:
    return f"{note[0].upper()}{note[1:]}."
