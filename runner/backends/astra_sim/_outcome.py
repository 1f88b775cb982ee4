"""Turn the files of an ASTRA-sim run into a result, or into an error that lists unfinished ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ....converter import NodeType, Workload
from ....errors import BackendError, SimulationStalled
from ..._experiment import Experiment
from ..._result import COLUMNS, Result, empty_table
from ..._traits import DEFAULT_BACKEND
from ...config import Fabric
from .._base import Progress
from .._engine import EngineBackend
from .._outcome import collective_table, common_provenance, completion_times, more_provenance
from ._inputs import OUTPUTS, parallel_warning
from ._log import AstraSimLog, RankReport, Trace

Intervals = Mapping[tuple[int, int], tuple[int, int]]


_INFERRED = "ASTRA-sim's log does not record why a node started: the causes are inferred from its times."


def _rank_row(rank: int, report: RankReport) -> dict[str, int]:
    return {
        "rank": rank,
        "finish_ns": report.finish_ns,
        "exposed_comm_ns": report.exposed_comm_ns,
        "compute_ns": report.compute_ns or 0,
        "comm_ns": report.comm_ns or 0,
        "overlap_ns": report.overlap_ns or 0,
        "copy_ns": 0,
        "exposed_copy_ns": 0,
    }


def _node_table(intervals: Intervals) -> pd.DataFrame:
    keys = np.array(sorted(intervals), dtype=np.int64).reshape(-1, 2)
    times = np.array([intervals[rank, node] for rank, node in keys.tolist()], dtype=np.int64).reshape(-1, 2)
    table: pd.DataFrame = pd.DataFrame(
        {"rank": keys[:, 0], "node_id": keys[:, 1], "start_ns": times[:, 0], "end_ns": times[:, 1]}
    )
    return table


def infer_causes(nodes: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Add the cause and origin of each node to *nodes* (rank, node_id, start_ns, end_ns).

    The log has no causes, so they are inferred: a node's cause is a dependency that ended as it
    started, or another node of the rank that freed the resource at that time. The origin of a
    collective is the last member to arrive. The origin of a receive is the matching send, if that
    started later.
    """
    facts = _facts(nodes, workload)
    causes = _causes(facts, workload)
    table = facts.merge(causes, on=["rank", "node_id"], how="left")
    table["cause_node"] = table["cause_node"].fillna(-1).astype("int64")
    table["cause_is_dependency"] = table["cause_is_dependency"].eq(True)
    table = _origins(table)
    frame: pd.DataFrame = (
        table[list(COLUMNS["nodes"])]
        .astype(COLUMNS["nodes"])
        .sort_values(["rank", "node_id"], ignore_index=True)
    )
    return frame


_FACTS = ("node_id", "type", "comm_type", "group", "comm_size_bytes", "comm_src", "comm_dst", "comm_tag")


def _facts(nodes: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Add the workload's attributes to the table *nodes*."""
    programs = [
        graph.nodes[list(_FACTS)].assign(program=index) for index, graph in enumerate(workload.graphs)
    ]
    facts = pd.concat(programs, ignore_index=True)
    owner = np.asarray(workload.program_of_rank, dtype=np.int64)
    if len(nodes) and int(nodes["rank"].max()) >= len(owner):
        raise BackendError("ASTRA-sim's log names a rank that the workload does not have.")
    merged = nodes.assign(program=owner[nodes["rank"].to_numpy()]).merge(facts, on=["program", "node_id"])
    if len(merged) != len(nodes):
        raise BackendError("ASTRA-sim's log names nodes that the workload does not have.")
    # The node's own rank is one end of its message, even where the attribute is missing.
    own_source = (merged["type"] == NodeType.COMM_SEND) & (merged["comm_src"] < 0)
    own_target = (merged["type"] == NodeType.COMM_RECV) & (merged["comm_dst"] < 0)
    merged.loc[own_source, "comm_src"] = merged["rank"]
    merged.loc[own_target, "comm_dst"] = merged["rank"]
    table: pd.DataFrame = merged
    return table


def _causes(facts: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Return ``rank, node_id, cause_node, cause_is_dependency`` for each node that starts after time 0."""
    late = facts.loc[facts["start_ns"] > 0, ["rank", "node_id", "program", "start_ns"]]
    edges = pd.concat(
        [graph.edges[["src", "dst"]].assign(program=index) for index, graph in enumerate(workload.graphs)],
        ignore_index=True,
    ).drop_duplicates()
    ended = facts[["rank", "node_id", "start_ns", "end_ns"]].rename(
        columns={"node_id": "cause_node", "start_ns": "cause_start_ns", "end_ns": "time"}
    )
    named = late.rename(columns={"start_ns": "time"})
    parents = named.merge(edges, left_on=["program", "node_id"], right_on=["program", "dst"])
    parents = parents.rename(columns={"src": "cause_node"}).merge(ended, on=["rank", "cause_node", "time"])
    # A node of zero duration frees no resource, and could close a cycle of causes within one
    # instant.
    freeing = ended[ended["cause_start_ns"] < ended["time"]]
    slots = named.merge(freeing, on=["rank", "time"])
    candidates = pd.concat(
        [parents.assign(cause_is_dependency=True), slots.assign(cause_is_dependency=False)]
    )
    first = candidates.sort_values(
        ["rank", "node_id", "cause_is_dependency", "cause_node"], ascending=[True, True, False, True]
    )
    table: pd.DataFrame = first.drop_duplicates(["rank", "node_id"])[
        ["rank", "node_id", "cause_node", "cause_is_dependency"]
    ]
    return table


def _origins(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns ``origin_rank`` and ``origin_node`` to *table*."""
    table = table.sort_values(["rank", "node_id"], ignore_index=True)
    table["origin_rank"], table["origin_node"] = table["rank"], table["node_id"]
    collectives = table[table["type"] == NodeType.COMM_COLL]
    if len(collectives):
        key = ["group", "comm_type", "turn"]
        turns = collectives.assign(
            turn=collectives.groupby(["rank", "group", "comm_type"]).cumcount(),
            row=collectives.index,
        )
        last = turns.sort_values("start_ns", kind="stable").drop_duplicates(key, keep="last")
        _adopt(
            table, turns.merge(last[[*key, "rank", "node_id", "start_ns"]], on=key, suffixes=("", "_peer"))
        )
    messages = table[table["type"].isin((NodeType.COMM_SEND, NodeType.COMM_RECV))]
    if len(messages):
        key = ["comm_src", "comm_dst", "comm_tag", "comm_size_bytes", "turn"]
        turns = messages.assign(turn=messages.groupby(["type", *key[:-1]]).cumcount(), row=messages.index)
        sends = turns[turns["type"] == NodeType.COMM_SEND]
        receives = turns[turns["type"] == NodeType.COMM_RECV]
        _adopt(
            table,
            receives.merge(sends[[*key, "rank", "node_id", "start_ns"]], on=key, suffixes=("", "_peer")),
        )
    return table


def _adopt(table: pd.DataFrame, pairs: pd.DataFrame) -> None:
    """Make a node's peer its origin if the peer started while the node was running."""
    later = pairs[(pairs["start_ns_peer"] > pairs["start_ns"]) & (pairs["start_ns_peer"] <= pairs["end_ns"])]
    table.loc[later["row"], "origin_rank"] = later["rank_peer"].to_numpy()
    table.loc[later["row"], "origin_node"] = later["node_id_peer"].to_numpy()


SHOWN_LINES = 4


def count_nodes(experiment: Experiment) -> int:
    """Return the number of nodes of all ranks together."""
    model = experiment.workload.model
    sizes = [len(graph.nodes) for graph in model.graphs]
    return sum(sizes[program] for program in model.program_of_rank)


def conclude(
    experiment: Experiment,
    log: AstraSimLog,
    trace: Trace | None,
    tail: list[str],
    *,
    who: str,
    versions: Mapping[str, str],
    warnings: list[str],
) -> Result:
    """Return the result of a successful run from its *log*; *trace* is None without node times.

    *tail* is the end of the output, and *who* names the program or service in error messages. Raises
    `SimulationStalled` if ranks never finished, and `BackendError` if the output is not
    ASTRA-sim's.
    """
    if len(log.ranks) < log.num_ranks:
        raise _stalled(experiment, log, trace.stuck if trace else [], tail, who)
    total = count_nodes(experiment)
    executed = len(trace.intervals) if trace else total
    complete = trace is not None and executed == total
    warnings = [*experiment.system.warnings, *_lost(experiment), *warnings]
    if not complete:
        warnings.append(
            f"The times of some nodes are missing: ASTRA-sim's log contains {executed} of {total} nodes."
            if trace
            else f"Node times were not requested, because {total} nodes do not fit into ASTRA-sim's log."
        )
    workload = experiment.workload.model
    nodes = empty_table("nodes")
    if trace is not None and complete:
        nodes = infer_causes(_node_table(trace.intervals), workload)
    ranks = pd.DataFrame([_rank_row(rank, log.ranks[rank]) for rank in range(log.num_ranks)])
    counts = {"nodes_total": total, "nodes_executed": executed}
    return Result(
        backend=experiment.backend,
        makespan_ns=max(report.finish_ns for report in log.ranks.values()),
        ranks=ranks.astype(COLUMNS["ranks"]),
        nodes=nodes,
        collectives=collective_table(nodes, workload) if len(nodes) else empty_table("collectives"),
        provenance=common_provenance(experiment, versions, warnings, [_INFERRED]) | counts,
    )


def _stalled(
    experiment: Experiment, log: AstraSimLog, stuck: list[tuple[int, int]], tail: list[str], who: str
) -> BackendError:
    """Return the error for a run that ended before every rank had finished."""
    missing = [rank for rank in range(log.num_ranks) if rank not in log.ranks]
    if not log.ranks and not stuck and not log.failures:
        shown = f" Its last output: {' | '.join(tail[-SHOWN_LINES:])}." if tail else " It printed nothing."
        return BackendError(
            f"{who} ended without reporting a single rank, so nothing was simulated.{shown} Next: check that "
            "the program is ASTRA-sim 2."
        )
    waits = [_wait(experiment, rank, node) for rank, node in stuck]
    named = "; ".join(
        f"rank {w['rank']} is in '{w['node_name']}' (node {w['node_id']})" for w in waits[:SHOWN_LINES]
    )
    more = f"; and {len(waits) - SHOWN_LINES} more" if len(waits) > SHOWN_LINES else ""
    quote = f" Its last output: {' | '.join(log.failures)}." if log.failures else ""
    return SimulationStalled(
        f"ASTRA-sim stalled: {len(missing)} of {log.num_ranks} ranks never finished (the first is rank "
        f"{missing[0]}), and no event was left. {named}{more}{'.' if named else ''}{quote} Check that every "
        "send has a receive of the same size and tag, and that all members of a group issue its collectives "
        "in the same order; the backend 'analytical-unaware' names the ranks and operations that wait for "
        "each other.",
        waits,
    )


def _wait(experiment: Experiment, rank: int, node: int) -> dict[str, Any]:
    model = experiment.workload.model
    name = ""
    if rank < len(model.program_of_rank):
        table = model.graphs[int(model.program_of_rank[rank])].nodes
        names = table.loc[table["node_id"] == node, "name"]
        name = str(names.iloc[0]) if len(names) else ""
    return {"rank": rank, "node_id": node, "node_name": name, "operation": "", "waits_for": ""}


def _lost(experiment: Experiment) -> list[str]:
    """Return a note for each part of the experiment that ASTRA-sim ignores."""
    system = experiment.system
    policies = (
        ("intra-dimension-policy", system.intra_dimension_policy, "FIFO"),
        ("inter-dimension-policy", system.inter_dimension_policy, "ascending"),
    )
    lost = [
        f"'{key}' has no effect: ASTRA-sim knows only '{only}'."
        for key, value, only in policies
        if value not in (None, only)
    ]
    if experiment.semantics == "trace":
        lost.append(
            "ASTRA-sim runs one CPU operation, one computation and one communication per rank at a time and "
            "rounds durations to microseconds; the lanes of the captured trace, and durations below a "
            "microsecond, are ignored."
        )
    return lost


_PAUSE = "1"


def refuse_endless(experiment: Experiment, progress: Progress | None = None) -> None:
    """Raise `SimulationStalled` if the workload deadlocks, because ASTRA-sim's ns-3 would run forever."""
    plain = replace(experiment, backend=DEFAULT_BACKEND)
    EngineBackend().simulate(plain, lambda now, done: progress is None or progress(0, 0))


def with_packets(result: Result, fabric: Fabric, log: AstraSimLog, folder: Path) -> Result:
    """Add the messages and pauses in ns-3's output files in *folder* to *result*."""
    flows = read_flows(folder, len(fabric.hosts))
    frames, paused_ns = read_pauses(folder)
    facts = {"pause_frames": frames, "paused_ns": paused_ns, "drops": log.drops} | completion_times(flows)
    lost = [f"{log.drops} packets were lost in full switches."] if log.drops else []
    warnings = [*fabric.warnings(), *parallel_warning(fabric), *lost]
    provenance = more_provenance(result.provenance, {"packets": facts}, warnings=warnings)
    return replace(result, flows=flows, provenance=provenance)


_AGAIN = "Next: run again with a supported version of ASTRA-sim."


def read_flows(folder: Path, hosts: int) -> pd.DataFrame:
    """Read the table ``flows``, the messages between *hosts*, from ``fct.txt`` in *folder*.

    A line holds the source and destination address (hexadecimal), the ports, the bytes, the start
    and duration in ns, and the duration without other traffic. Raises `BackendError` for an invalid
    line.
    """
    rows = []
    for place, words in _lines(folder / OUTPUTS["FCT_OUTPUT_FILE"]):
        try:
            source, destination = (_host(word, hosts) for word in words[:2])
            size, start, duration = (_count(word) for word in words[4:7])
        except ValueError as error:
            raise BackendError(
                f"{place} is not a message of this network: '{' '.join(words)[:100]}'. {_AGAIN}"
            ) from error
        rows.append((source, destination, size, start, start + duration))
    if not rows:
        return empty_table("flows")
    table: pd.DataFrame = pd.DataFrame(rows, columns=list(COLUMNS["flows"])).astype(COLUMNS["flows"])
    return table


def read_pauses(folder: Path) -> tuple[int, int]:
    """Return the number of pause frames in ``pfc.txt`` and the total time in ns that ports were paused.

    A line holds the time in ns, the node, its kind, the port, and 1 for a pause or 0 for its end.
    """
    frames = paused_ns = 0
    since: dict[tuple[str, str], int] = {}
    for place, words in _lines(folder / OUTPUTS["PFC_OUTPUT_FILE"]):
        try:
            time, port, kind = _count(words[0]), (words[1], words[3]), words[4]
        except (IndexError, ValueError) as error:
            raise BackendError(
                f"{place} is not a pause frame: '{' '.join(words)[:100]}'. {_AGAIN}"
            ) from error
        if kind == _PAUSE:
            frames += 1
            since.setdefault(port, time)
        elif port in since:
            paused_ns += time - since.pop(port)
    return frames, paused_ns


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the position and the words of each complete line of *path*; nothing if the file is missing."""
    if not path.is_file():
        return
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and line.endswith("\n"):
                    yield f"Line {number} of ASTRA-sim's {path.name}", line[:1000].split()
    except OSError as error:
        raise BackendError(f"ASTRA-sim's {path.name} cannot be read ({error.strerror}).") from error


def _host(address: str, hosts: int) -> int:
    """Return the host number encoded in the hexadecimal *address* 11.high.low.1."""
    host = (int(address, 16) >> 8) & 0xFFFF
    if host >= hosts:
        raise ValueError(address)
    return host


def _count(word: str) -> int:
    value = int(word)
    if not 0 <= value < 1 << 62:
        raise ValueError(word)
    return value
