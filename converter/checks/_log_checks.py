"""Checks on production logs: failures in them, and missing information."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import ChakrascopeError
from ..building import convert_logs, has_times, troubles_of
from ..linking import MatchedLogs, match_logs
from ..readers.logs import ranks_text, read_logs
from ._findings import Finding, worst_first
from ._workload_checks import check_workload

__all__ = ["check_logs", "check_matched"]

_FOR_CALIBRATION = (
    "'chakrascope diagnose' tabulates how long they took, by size: that calibrates a network. A workload of "
    "collectives alone is made by 'convert --back-to-back'."
)


def check_logs(targets: Sequence[str | Path]) -> list[Finding]:
    """Return the problems of the logs at *targets* and of their workload, worst first."""
    place = str(targets[0])
    try:
        matched = match_logs(read_logs(targets))
        findings = check_matched(matched)
        if all(finding.severity != "error" for finding in findings) and has_times(matched.logs):
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
    if matched.clocks.known_from == "nothing" and len(logs.ranks) > 1 and has_times(logs):
        findings.append(
            Finding(
                "note", logs.place, "The logs do not tell how far the ranks' clocks are apart.",
                "Times of different ranks are not compared; how long a collective took on each still tells "
                "who came last.",
            )
        )  # fmt: skip
    if not has_times(logs):
        findings.append(
            Finding("note", logs.place, "The logs do not tell when the collectives ran.", _FOR_CALIBRATION)
        )
        findings += [Finding("note", logs.place, _sentence(note)) for note in logs.notes]
    return worst_first(findings)


def _sentence(note: str) -> str:
    return f"{note[0].upper()}{note[1:]}."
