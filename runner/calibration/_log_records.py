"""The transfers in production logs."""

from __future__ import annotations

from ...converter.linking import MatchedLogs
from ...converter.readers.logs import UNKNOWN
from ...support import count_text
from ._records import MUTUAL, Call, Records, Transfer

__all__ = ["log_records"]


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
