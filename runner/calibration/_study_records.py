"""The measurements for a calibration in a study or in logs."""

from __future__ import annotations

from collections.abc import Sequence

from ...converter import convert, match_logs, read_logs
from ...converter.linking import MatchedLogs
from ...converter.readers.logs import UNKNOWN
from ...errors import ConfigError
from ...support import count_text
from ...tracer import TraceSet
from ..study import Study
from ._records import MUTUAL, Call, Records, Transfer
from ._workload_records import workload_records

__all__ = ["log_records", "records_of_logs", "records_of_study"]


def records_of_study(study: Study, workload: str | None = None) -> Records:
    """Return the transfers of the newest trace set of *study*, all its steps, or else of its newest workload.

    *workload* selects one instead, with only its step. Raises `ConfigError` for a study with neither, and the
    errors of reading.
    """
    if workload is None and study.trace_sets():
        folder = study.latest_trace_set()
        entries = TraceSet.load(folder).ranks
        hosts = {entry.rank: entry.hostname for entry in entries if entry.hostname}
        return workload_records(convert(folder, step="all"), f"the capture {folder.name}", hosts)
    names = study.workloads()
    if not names:
        raise ConfigError(
            f"The study {study.path} holds nothing measured; capture a job with 'chakrascope trace -o "
            f"{study.path}', or give production logs instead of a study."
        )
    chosen = workload or names[-1]
    return workload_records(study.workload(chosen), f"the workload {chosen}")


def records_of_logs(targets: Sequence[str]) -> Records:
    """Return the transfers in production logs: files, folders or archives; raises the errors of reading."""
    return log_records(match_logs(read_logs(targets)))


def log_records(matched: MatchedLogs) -> Records:
    """Return the transfers of *matched*: the duration of each collective on the last rank to arrive.

    That rank has the shortest duration, so no clocks are needed. Collectives without durations, and those in
    which ranks do not wait for each other, are omitted.
    """
    transfers, silent, rooted = [], 0, 0
    for found in matched.agreed():
        took = [op.duration_ns for op in found.ops.values()]
        kind = found.first.collective
        if kind is None or kind not in MUTUAL or found.first.rooted:
            rooted += 1
        elif UNKNOWN in took or len(took) < 2:
            silent += 1
        else:
            members = matched.logs.groups[found.group]
            call = Call(kind.name.lower(), found.first.size_bytes)
            transfers.append(Transfer(members, (call,), min(took), max(took) - min(took)))
    logs = matched.logs
    left_out = []
    if silent:
        left_out.append(
            f"{count_text(silent, 'collective')} whose logs do not have how long it took on all ranks"
        )
    if rooted:
        left_out.append(f"{count_text(rooted, 'collective')} in which ranks do not wait for each other")
    hosts = {rank: log.host for rank, log in logs.ranks.items() if log.host}
    return Records(tuple(transfers), logs.world_size, f"{logs.kind} logs", hosts, left_out=tuple(left_out))
