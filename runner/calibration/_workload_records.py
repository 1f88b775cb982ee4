"""Read the measurements for a calibration from captured workloads, studies and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ...converter import CollectiveType, Graph, NodeType, Workload, convert, match_logs, read_logs, replay
from ...converter.building import is_captured
from ...converter.linking import MatchedLogs
from ...converter.readers.logs import UNKNOWN
from ...errors import ConfigError
from ...support import count_text, duration_text
from ...tracer import TraceSet
from ..study import Study
from ._records import MESSAGE, MUTUAL, ROOTED, Call, Records, Transfer

DEVICE_LANES = 1000
"""The first lane of device streams, on which each operation has its measured interval."""
_LEAST = 3  # smallest number of messages per direction, so that the fastest message probably did not wait
_COLUMNS = [
    "comm_src",
    "comm_dst",
    "comm_tag",
    "comm_size_bytes",
    "group",
    "stream",
    "measured_start_ns",
    "duration_ns",
]
_KEY = ["source", "target", "comm_tag", "comm_size_bytes", "group"]


def message_transfers(workload: Workload, captured_ranks: int) -> tuple[list[Transfer], list[str]]:
    """Return the transfers of messages between the *captured_ranks*, and sentences on omitted messages.

    On a device, the shorter of a message's send and receive began last, and did not wait. On a host, the
    duration of a receive starts at the request. The fastest messages of one size in each direction between
    two ranks did not wait. Clock offsets cancel in the average of both directions.
    """
    messages = _messages(workload, captured_ranks)
    on_device = (messages["stream_sent"] >= DEVICE_LANES) & (messages["stream_received"] >= DEVICE_LANES)
    transfers = [
        _transfer(
            int(row.source), int(row.target), int(row.comm_size_bytes), min(took), abs(took[0] - took[1])
        )
        for row in messages[on_device].itertuples()
        if min(took := (int(row.duration_ns_sent), int(row.duration_ns_received))) > 1
    ]
    complete = messages["measured_start_ns_sent"].ge(0) & messages["measured_start_ns_received"].ge(0)
    hosts = messages[~on_device & complete]
    round_trips = list(_round_trips(hosts))
    used = sum(count for _, count in round_trips)
    lost = len(messages) - len(transfers) - used
    left_out = [
        f"{count_text(lost, 'message')} of unknown transfer time: fewer than {_LEAST} of a size in each "
        "direction"
    ]
    return [*transfers, *(one for one, _ in round_trips)], left_out if lost else []


def _messages(workload: Workload, ranks: int) -> pd.DataFrame:
    """Return all messages with a send and a receive; the k-th send of a kind matches the k-th receive."""
    tables: dict[NodeType, list[pd.DataFrame]] = {NodeType.COMM_SEND: [], NodeType.COMM_RECV: []}
    for rank in range(ranks):
        nodes = workload.graphs[int(workload.program_of_rank[rank])].nodes
        for kind, own, peer in (
            (NodeType.COMM_SEND, "source", "comm_dst"),
            (NodeType.COMM_RECV, "target", "comm_src"),
        ):
            part = nodes.loc[nodes["type"] == kind, _COLUMNS]
            other = "target" if own == "source" else "source"
            ends = part.assign(**{own: rank, other: part[peer]})
            tables[kind].append(ends.assign(turn=ends.groupby(_KEY).cumcount()))
    sends, receives = (pd.concat(tables[kind], ignore_index=True) for kind in tables)
    table: pd.DataFrame = sends.merge(receives, on=[*_KEY, "turn"], suffixes=("_sent", "_received"))
    return table


def _round_trips(messages: pd.DataFrame) -> Iterator[tuple[Transfer, int]]:
    """Yield a transfer for each pair of ranks and message size, with its number of messages."""
    apart = messages.assign(
        took=messages["measured_start_ns_received"]
        + messages["duration_ns_received"]
        - messages["measured_start_ns_sent"],
        low=messages[["source", "target"]].min(axis=1),
        high=messages[["source", "target"]].max(axis=1),
    )
    for key, part in apart.groupby(["low", "high", "comm_size_bytes"], sort=True):
        low, high, size = (int(value) for value in np.asarray(key))
        ways = [np.sort(part.loc[part["source"] == rank, "took"].to_numpy(np.int64)) for rank in (low, high)]
        if min(map(len, ways)) < _LEAST:
            continue
        fastest, median = (sum(int(way[place * len(way) // 4]) for way in ways) // 2 for place in (0, 2))
        if fastest > 0:
            yield _transfer(low, high, size, fastest, median - fastest), len(part)


def _transfer(source: int, target: int, size: int, took: int, wait: int) -> Transfer:
    return Transfer((source, target), (Call(MESSAGE, size),), took, wait)


_FEWEST = 3  # smallest number of collectives for an estimate of clock offsets
_CLEAR = 4  # the least ratio of a transfer's duration to the clock error
# Chakra files store these collectives under the types of other collectives, but the operator names the
# collective of gloo or NCCL.
_WRITTEN_AS_OTHERS = {"c10d::gather_": CollectiveType.GATHER, "c10d::scatter_": CollectiveType.SCATTER}


def rooted_transfers(
    calls: pd.DataFrame,
    rooted: pd.Series[bool],
    groups: Mapping[int, Sequence[int]],
    everyone: tuple[int, ...],
) -> tuple[list[Transfer], list[str]]:
    """Return the transfers of the *rooted* collectives among *calls*, and sentences on omitted collectives.

    A transfer begins at the arrival of the last rank and ends when the last rank leaves. The clock offset
    between ranks is the median difference of the ends of other collectives, because these collectives end on
    all ranks at about the same time.
    """
    calls = calls.assign(
        end=calls["measured_start_ns"] + calls["duration_ns"],
        rooted=rooted,
        known=calls["measured_start_ns"].ge(0),
    )
    transfers: list[Transfer] = []
    blind = unclear = 0
    worst = 0.0
    for group, own in calls.groupby("group", sort=True):
        part = own[own["rooted"]]
        if part.empty:
            continue
        members = tuple(groups.get(int(str(group))) or everyone)
        clocks = _clocks(own[~own["rooted"] & own["known"]], members)
        tables = _tables(part[part["known"]], members)
        lost = len(part) - len(tables) * len(members)
        if clocks is None:
            blind += len(part)
            continue
        blind += lost
        ahead, spread = clocks
        for call, table in tables:
            starts, ends = table["measured_start_ns"].to_numpy() - ahead, table["end"].to_numpy() - ahead
            took = int(ends.max() - starts.max())
            if took < _CLEAR * spread or took <= 0:
                unclear += 1
                worst = max(worst, spread)
                continue
            transfers.append(Transfer(members, (call,), took, int(starts.max() - starts.min())))
    return transfers, _left_out(blind, unclear, worst)


def _clocks(mutual: pd.DataFrame, members: tuple[int, ...]) -> tuple[np.ndarray, float] | None:
    """Return each member's clock offset to the first member, and the error of the offsets, in ns.

    An offset that is smaller than its interquartile range counts as 0, because the members may share one
    clock.
    """
    tables = _tables(mutual, members)
    if len(tables) < _FEWEST:
        return None
    ends = np.stack([table["end"].to_numpy(np.int64) for _, table in tables])
    offsets = ends - ends[:, :1]
    low, ahead, high = np.quantile(offsets, (0.25, 0.5, 0.75), axis=0)
    error = (high - low) / np.sqrt(len(tables))
    certain = np.where(np.abs(ahead) > high - low, ahead, 0.0)
    return certain.round().astype(np.int64), float(error.max())


def _tables(calls: pd.DataFrame, members: tuple[int, ...]) -> list[tuple[Call, pd.DataFrame]]:
    """Return each collective that all *members* have, with its rows in order of the members."""
    tables = []
    for (_, kind, _), table in calls.groupby(["operator", "comm_type", "turn"], sort=True):
        if tuple(sorted(table["rank"])) != tuple(sorted(members)) or table["comm_size_bytes"].nunique() != 1:
            continue
        ordered = table.set_index("rank").loc[list(members)]
        named = _WRITTEN_AS_OTHERS.get(str(ordered["operator"].iloc[0]), CollectiveType(int(str(kind))))
        tables.append((Call(named.name.lower(), int(ordered["comm_size_bytes"].iloc[0])), ordered))
    return tables


def _left_out(blind: int, unclear: int, spread: float) -> list[str]:
    sentences = []
    if blind:
        sentences.append(
            f"{count_text(blind, 'record')} of broadcasts and other collectives with a root: fewer than "
            f"{_FEWEST} all-reduces or similar collectives of the same ranks show the offsets of their "
            f"clocks, or some rank lacks them"
        )
    if unclear:
        sentences.append(
            f"{count_text(unclear, 'collective')} with a root, shorter than {_CLEAR} times the clock error "
            f"({duration_text(spread)})"
        )
    return sentences


_TURN = ["group", "comm_type", "turn"]


def workload_records(workload: Workload, source: str, hosts: Mapping[int, str] | None = None) -> Records:
    """Return the transfers of the captured *workload*.

    The rank with the shortest duration of a collective arrived last and did not wait, so no clocks are
    needed. Collectives of one lane count as one transfer if each collective was requested before the previous
    collective had ended on some rank. Collectives with a root need synchronised clocks, and other collectives
    provide the clock offsets. A workload that was not captured raises `ConfigError`.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload does not come from a measurement, so it has no collective times; capture the "
            "job with 'chakrascope trace', or give production logs."
        )
    calls = _calls(workload)
    everyone = tuple(range(workload.num_ranks))
    # In a collective with a root, a rank may leave before another rank has arrived.
    rooted = calls["comm_type"].isin(ROOTED) | calls["operator"].isin(_WRITTEN_AS_OTHERS)
    transfers, left_out = rooted_transfers(calls, rooted, workload.groups, everyone)
    calls["mutual"] = calls["comm_type"].isin(MUTUAL) & ~rooted
    incomplete = 0
    for _, part in calls.groupby(["group", "stream"], sort=True):
        group, lane = (int(part.iloc[0][name]) for name in ("group", "stream"))
        members = tuple(workload.groups.get(group) or everyone)
        found, lost = _transfers(part, members, serial=lane >= DEVICE_LANES)
        transfers += found
        incomplete += lost
    messages, unclear = message_transfers(workload, _captured_ranks(workload))
    transfers += messages
    left_out += unclear
    if incomplete:
        left_out.append(f"{count_text(incomplete, 'collective')} that not all ranks have")
    return Records(tuple(transfers), workload.num_ranks, source, hosts or {}, left_out=tuple(left_out))


def _captured_ranks(workload: Workload) -> int:
    return int(workload.metadata.get("scaled_from_ranks", workload.num_ranks))


def _calls(workload: Workload) -> pd.DataFrame:
    """Return every collective of every captured rank, with its request, start and end in ns."""
    tables = []
    for rank in range(_captured_ranks(workload)):
        graph = workload.graphs[int(workload.program_of_rank[rank])]
        tables.append(_rank_calls(graph).assign(rank=rank))
    table: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return table


def _rank_calls(graph: Graph) -> pd.DataFrame:
    times = replay(graph)
    nodes = graph.nodes
    chosen = (nodes["type"] == NodeType.COMM_COLL).to_numpy()
    columns = ["node_id", "operator", "comm_type", "comm_size_bytes", "group", "stream"]
    columns += ["measured_start_ns", "duration_ns"]
    calls = nodes.loc[chosen, columns].assign(
        start_ns=times.start_ns[chosen],
        end_ns=times.end_ns[chosen],
        request_ns=_request_ns(graph, times.end_ns)[chosen],
    )
    calls["turn"] = calls.groupby(["group", "comm_type"]).cumcount()
    table: pd.DataFrame = calls
    return table


def _request_ns(graph: Graph, end_ns: np.ndarray) -> np.ndarray:
    """Return the end of each node's last dependency, except predecessors in the node's lane."""
    nodes, edges = graph.node_columns, graph.edge_columns
    sources, targets = (np.searchsorted(nodes["node_id"], edges[end]) for end in ("src", "dst"))
    other = nodes["stream"][sources] != nodes["stream"][targets]
    asked = np.zeros(len(end_ns), dtype=np.int64)
    np.maximum.at(asked, targets[other], end_ns[sources[other]])
    return asked


def _transfers(calls: pd.DataFrame, members: tuple[int, ...], *, serial: bool) -> tuple[list[Transfer], int]:
    """Return the transfers of one group's lane, and the number of collectives that some ranks lack.

    If the lane is *serial*, its collectives never overlap.
    """
    calls = calls.assign(number=calls.groupby(_TURN, sort=False).ngroup())
    numbers = calls.groupby("number")
    whole = (numbers["rank"].transform("size") == len(members)) & (
        numbers["comm_size_bytes"].transform("min") == numbers["comm_size_bytes"].transform("max")
    )
    lost = int(calls.loc[~whole, "number"].nunique())
    ordered = calls[whole].sort_values(["number", "rank"])
    starts, ends, asked, sizes, kinds, mutual = (
        ordered[name].to_numpy(np.int64).reshape(-1, len(members))
        for name in ("start_ns", "end_ns", "request_ns", "comm_size_bytes", "comm_type", "mutual")
    )
    # A collective does not overlap with the previous one if some rank requested it after the previous one
    # had ended. A collective without duration in its lane ran at the same time as the previous collective.
    anew = np.ones(len(starts), dtype=bool)
    if not serial:
        anew[1:] = (asked[1:] >= ends[:-1]).any(axis=1) & (ends[1:] - starts[1:] > 1).all(axis=1)
    named = [
        Call(CollectiveType(kind).name.lower(), size)
        for kind, size in zip(kinds[:, 0].tolist(), sizes[:, 0].tolist(), strict=True)
    ]
    useful = mutual[:, 0].astype(bool)
    transfers = []
    firsts = np.flatnonzero(anew).tolist()
    for first, after in zip(firsts, [*firsts[1:], len(starts)], strict=True):
        if useful[first:after].all():
            took = ends[after - 1] - starts[first]
            shortest, longest = int(took.min()), int(took.max())
            transfers.append(Transfer(members, tuple(named[first:after]), shortest, longest - shortest))
    return transfers, lost


def records_of_study(study: Study, workload: str | None = None) -> Records:
    """Return the transfers of *study*: from its newest trace set with all steps, or its newest workload.

    If *workload* is given, the transfers come from the step of this workload. Raises `ConfigError` if the
    study contains neither trace sets nor workloads, and the errors of reading the study.
    """
    if workload is None and study.trace_sets():
        folder = study.latest_trace_set()
        entries = TraceSet.load(folder).ranks
        hosts = {entry.rank: entry.hostname for entry in entries if entry.hostname}
        return workload_records(convert(folder, step="all"), f"the capture {folder.name}", hosts)
    names = study.workloads()
    if not names:
        raise ConfigError(
            f"The study {study.path} contains no measurements. Next: capture a job with `chakrascope trace "
            f"-o {study.path}`, or give production logs instead of a study."
        )
    chosen = workload or names[-1]
    return workload_records(study.workload(chosen), f"the workload {chosen}")


def records_of_logs(targets: Sequence[str]) -> Records:
    """Return the transfers in production logs (files, folders or archives), or raise reading errors."""
    return log_records(match_logs(read_logs(targets)))


def log_records(matched: MatchedLogs) -> Records:
    """Return the transfers of *matched* logs, with durations on the last rank to arrive.

    The last rank to arrive has the shortest duration, so no clocks are needed. Collectives without durations,
    and collectives in which ranks do not wait for each other, are omitted.
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
        left_out.append(f"{count_text(silent, 'collective')} without a duration on all ranks")
    if rooted:
        left_out.append(f"{count_text(rooted, 'collective')} in which ranks do not wait for each other")
    hosts = {rank: log.host for rank, log in logs.ranks.items() if log.host}
    return Records(tuple(transfers), logs.world_size, f"{logs.kind} logs", hosts, left_out=tuple(left_out))
