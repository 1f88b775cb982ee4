"""Write programs as Chakra graphs or MSCCL XML, and replace a workload's collectives by messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...converter import EdgeKind, Graph, NodeType, Workload
from ...errors import ConfigError
from ._choice import Demand
from ._lower import Lowered, Message
from ._model import MAX_COUNT, MESSAGE_OPS, Op, Program, RankProgram, Region, ThreadBlock
from .readers import COLLECTIVES

if TYPE_CHECKING:
    import pandas as pd


_TYPES = {"send": NodeType.COMM_SEND, "receive": NodeType.COMM_RECV, "local": NodeType.COMP}


def graphs_of(lowered: Lowered, memory_bytes_per_ns: float = 0.0) -> list[Graph]:
    """Return a graph per rank; local work moves *memory_bytes_per_ns*, or takes no time if that is 0."""
    return [graph_of_messages(lowered, rank, memory_bytes_per_ns) for rank in range(len(lowered.ranks))]


def workload_of(lowered: Lowered, memory_bytes_per_ns: float = 0.0) -> Workload:
    """Return the workload whose graphs are the program's messages; see `graphs_of`."""
    graphs = graphs_of(lowered, memory_bytes_per_ns)
    program = lowered.program
    metadata = {
        "source": f"collective program {program.name}",
        "collective": program.collective,
        "size_bytes": lowered.size_bytes,
    }
    return Workload(tuple(graphs), np.arange(len(graphs), dtype=np.int32), {}, metadata)


def graph_of_messages(lowered: Lowered, rank: int, speed: float) -> Graph:
    """Return the graph of one rank; local work moves *speed* bytes per ns."""
    nodes = lowered.ranks[rank]
    rows = [_row(rank, number, node, speed) for number, node in enumerate(nodes)]
    edges = [
        (before, number, int(EdgeKind.DATA)) for number, node in enumerate(nodes) for before in node.after
    ]
    return Graph.build(rank, rows, edges)


def _row(rank: int, number: int, node: Message, speed: float) -> dict[str, Any]:
    place = f"thread block {node.place[0]}, op {node.place[1]}"
    # Each message has its own lane, because any number of them may be in flight at once.
    row: dict[str, Any] = {"node_id": number, "type": _TYPES[node.kind], "stream": number}
    if node.kind == "local":
        # Every pass over the data is rounded to whole ns by itself, as in the engine's built-in reductions.
        once = int(node.size_bytes / speed) if speed else 0
        return row | {"name": f"local work ({place})", "duration_ns": node.passes * once}
    row |= {"comm_size_bytes": node.size_bytes, "comm_tag": node.tag, "kind": "communication"}
    if node.kind == "send":
        return row | {"name": f"send to {node.peer} ({place})", "comm_src": rank, "comm_dst": node.peer}
    return row | {"name": f"receive from {node.peer} ({place})", "comm_src": node.peer, "comm_dst": rank}


def demands_of(workload: Workload) -> set[Demand]:
    """Return the collectives of *workload* that programs could run."""
    demands: set[Demand] = set()
    for graph in workload.graphs:
        for kind, group, size in {each[1:] for each in _collectives(graph.nodes)}:
            demand = _demand(workload, kind, group, size)
            demands |= {demand} if demand is not None else set()
    return demands


def expand_workload(
    workload: Workload, messages: Mapping[Demand, Lowered], memory_bytes_per_ns: float = 0.0
) -> Workload:
    """Return *workload* with each collective in *messages* replaced by its program's messages.

    The collective's node becomes a compute node without duration that depends on the messages, so
    that its dependents still wait for the collective. Local work moves *memory_bytes_per_ns* bytes
    per ns, or takes no time if that is 0.
    """
    tags = _Tags(1 + max((int(graph.nodes["comm_tag"].max()) for graph in workload.graphs), default=0))
    graphs = [
        _expanded(workload, rank, messages, memory_bytes_per_ns, tags) for rank in range(workload.num_ranks)
    ]
    programs = np.arange(workload.num_ranks, dtype=np.int32)
    return Workload(tuple(graphs), programs, dict(workload.groups), dict(workload.metadata))


@dataclass
class _Tags:
    """Message tags: the same on all ranks of a collective, and distinct between collectives."""

    free: int
    of: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def first(self, collective: tuple[int, int, int], count: int) -> int:
        """Return the first of *count* consecutive tags of a collective."""
        if collective not in self.of:
            self.of[collective] = self.free
            self.free += count
        return self.of[collective]


def _collectives(nodes: pd.DataFrame) -> list[tuple[int, int, int, int]]:
    """Return the node id, kind, group and bytes of each collective, in order of node ids."""
    rows = nodes[nodes["type"] == NodeType.COMM_COLL].sort_values("node_id")
    columns = (rows[name].tolist() for name in ("node_id", "comm_type", "group", "comm_size_bytes"))
    return list(zip(*columns, strict=True))


def _members(workload: Workload, group: int) -> Sequence[int]:
    return workload.groups.get(group) or range(workload.num_ranks)


def _demand(workload: Workload, kind: int, group: int, size: int) -> Demand | None:
    return Demand.of(kind, len(_members(workload, group)), size)


def _expanded(
    workload: Workload, rank: int, messages: Mapping[Demand, Lowered], speed: float, tags: _Tags
) -> Graph:
    import pandas as pd  # noqa: PLC0415 - slow to import

    graph = workload.graph_of(rank)
    nodes, edges = graph.nodes, graph.edges
    fresh = int(nodes["node_id"].max()) + 1 if len(nodes) else 0
    lane = int(nodes["stream"].max()) + 1 if len(nodes) else 0
    parents = edges.groupby("dst")["src"].apply(list).to_dict()
    turns: Counter[tuple[int, int]] = Counter()
    new_nodes: list[pd.DataFrame] = []
    new_edges: list[pd.DataFrame] = []
    replaced: list[int] = []
    for node_id, kind, group, size in _collectives(nodes):
        turn = turns[kind, group]
        turns[kind, group] += 1
        demand = _demand(workload, kind, group, size)
        if demand is None or demand not in messages:
            continue
        lowered = messages[demand]
        members = _members(workload, group)
        part = graph_of_messages(lowered, list(members).index(rank), speed)
        first = tags.first((kind, group, turn), _tag_count(lowered))
        added = _placed(part.nodes, fresh, lane, first, members)
        inner = part.edges.assign(src=part.edges["src"] + fresh, dst=part.edges["dst"] + fresh)
        ids = set(added["node_id"])
        begins = sorted(ids - set(inner["dst"]))
        ends = sorted(ids - set(inner["src"]))
        outer = [(before, begin) for before in parents.get(node_id, ()) for begin in begins]
        outer += [(end, node_id) for end in ends]
        new_nodes.append(added)
        new_edges += [inner, pd.DataFrame(outer, columns=["src", "dst"]).assign(kind=int(EdgeKind.DATA))]
        replaced.append(node_id)
        fresh += len(added)
        lane += len(added)
    if not replaced:
        return graph.as_rank(rank)
    there = nodes["node_id"].isin(replaced)
    nodes = nodes.copy()
    nodes.loc[there, ["type", "duration_ns"]] = [int(NodeType.COMP), 0]
    nodes.loc[there, ["comm_type", "comm_size_bytes"]] = [-1, -1]
    every = pd.concat([nodes, *new_nodes], ignore_index=True).astype(nodes.dtypes.to_dict())
    return Graph.of_tables(rank, every, pd.concat([edges, *new_edges], ignore_index=True))


def _tag_count(lowered: Lowered) -> int:
    return 1 + max((node.tag for nodes in lowered.ranks for node in nodes), default=0)


def _placed(nodes: pd.DataFrame, fresh: int, lane: int, tag: int, members: Sequence[int]) -> pd.DataFrame:
    """Return the *nodes* of a program for the ranks *members*, with new ids, lanes and tags."""
    moved: pd.DataFrame = nodes.copy()
    moved["node_id"] += fresh
    moved["stream"] += lane
    talks = moved["type"] != NodeType.COMP
    moved.loc[talks, "comm_tag"] += tag
    for side in ("comm_src", "comm_dst"):
        has_peer = moved[side] >= 0
        moved.loc[has_peer, side] = [members[peer] for peer in moved.loc[has_peer, side]]
    return moved


# Limits of MSCCL's public interpreter.
_MAX_CHANNELS = 32
_MAX_STEPS = 256
_MAX_BLOCKS_OF_CHANNEL = 32


def write_msccl(program: Program) -> str:
    """Return *program* as MSCCL XML; raises `ConfigError` if no interpreter could run it."""
    if program.language != "msccl":
        raise ConfigError(
            f"{program.source}: it is an MSCCL++ plan, and MSCCL XML has no steps for its puts and signals."
        )
    names = {ours: theirs for theirs, ours in COLLECTIVES.items()}
    channels = 1 + max((b.channel for rank in program.ranks for b in rank.thread_blocks), default=0)
    _check_room(program, channels)
    head = {
        "name": program.name,
        "proto": program.protocol,
        "nchannels": channels,
        "nchunksperloop": program.chunks,
        "ngpus": program.num_ranks,
        "coll": names[program.collective],
        "inplace": int(program.in_place),
        "outofplace": int(not program.in_place),
        "minBytes": program.least_bytes,
        "maxBytes": program.most_bytes or 0,
    }
    lines = [f"<algo {_attributes(head)}>"]
    for rank in program.ranks:
        lines += _rank_lines(rank)
    return "\n".join([*lines, "</algo>", ""])


def _check_room(program: Program, channels: int) -> None:
    if channels > _MAX_CHANNELS:
        raise ConfigError(f"{program.source}: it has {channels} channels; the limit is {_MAX_CHANNELS}.")
    for rank in program.ranks:
        crowded = Counter(block.channel for block in rank.thread_blocks).most_common(1)
        if crowded and crowded[0][1] > _MAX_BLOCKS_OF_CHANNEL:
            raise ConfigError(
                f"{program.where(rank.rank)}: channel {crowded[0][0]} has {crowded[0][1]} thread blocks; "
                f"the limit is {_MAX_BLOCKS_OF_CHANNEL}."
            )
        for block in rank.thread_blocks:
            if len(block.ops) > _MAX_STEPS:
                raise ConfigError(
                    f"{program.where(rank.rank, block.id)}: it has {len(block.ops)} steps; the limit is "
                    f"{_MAX_STEPS}."
                )
            for op in block.ops:
                if any(region.count > MAX_COUNT for region in (*op.sources, *op.destinations)):
                    raise ConfigError(
                        f"{program.where(rank.rank, block.id, op)}: it moves more than {MAX_COUNT} chunks, "
                        "the maximum."
                    )


def _attributes(values: Mapping[str, object]) -> str:
    from xml.sax.saxutils import quoteattr  # noqa: PLC0415 - imports urllib

    return " ".join(f"{key}={quoteattr(str(value))}" for key, value in values.items())


def _rank_lines(rank: RankProgram) -> list[str]:
    awaited = {op.after for block in rank.thread_blocks for op in block.ops if op.after is not None}
    head = {
        "id": rank.rank,
        "i_chunks": rank.input_chunks,
        "o_chunks": rank.output_chunks,
        "s_chunks": rank.scratch_chunks,
    }
    lines = [f"  <gpu {_attributes(head)}>"]
    for block in rank.thread_blocks:
        place = {"id": block.id, "send": block.send, "recv": block.receive, "chan": block.channel}
        lines.append(f"    <tb {_attributes(place)}>")
        lines += [f"      <step {_attributes(_step(block, op, awaited))}/>" for op in block.ops]
        lines.append("    </tb>")
    return [*lines, "  </gpu>"]


def _step(block: ThreadBlock, op: Op, awaited: set[tuple[int, int]]) -> dict[str, object]:
    number = op.path[0]
    source, target = _ends(op)
    after = op.after or (-1, -1)
    return {
        "s": number,
        "type": op.name,
        "srcbuf": source.buffer.value if source else "i",
        "srcoff": source.index if source else -1,
        "dstbuf": target.buffer.value if target else "o",
        "dstoff": target.index if target else -1,
        "cnt": source.count if source else 0,
        "depid": after[0],
        "deps": after[1],
        "hasdep": int((block.id, number) in awaited),
    }


def _ends(op: Op) -> tuple[Region | None, Region | None]:
    """Return the source and destination regions of a step; a message has the same region at both ends."""
    if op.name == "re":
        return op.sources[1], op.destinations[0]
    places = [*op.sources[:1], *op.destinations[:1]]
    if not places or (op.name not in MESSAGE_OPS and op.name != "cpy"):
        return None, None
    return places[0], places[-1]
