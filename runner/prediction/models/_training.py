"""Generate the Chakra graphs of a training step, for one rank of each kind or for all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....converter.chakra import NODE_COLUMNS, Column, EdgeKind, Graph, NodeType, TextColumn, Workload
from ....errors import UsageError
from ._blocks import Block, GroupKey, Prices, Stage
from ._passes import Passes
from ._plan import Plan
from ._transformer import Transformer

_NODES_PER_LAYER = 50  # approximate number for a forward and a backward pass
_MOST_NODES = 10_000_000


class Turn(NamedTuple):
    """One pass of a stage, of *kind* ``F`` (forward), ``B`` (backward), or its halves ``I`` and ``W``."""

    kind: str
    chunk: int
    micro_batch: int


def schedule(plan: Plan, stage: int) -> list[Turn]:
    """Return the passes of *stage* in the order of the plan's schedule."""
    if plan.schedule == "zero-bubble" and plan.pp > 1:
        return _zero_bubble(plan.pp, stage, plan.micro_batches)
    if plan.schedule == "interleaved" and plan.pp > 1:
        return _interleaved(plan, stage)
    first = min(plan.pp - stage - 1, plan.micro_batches)
    forward = [Turn("F", 0, number) for number in range(plan.micro_batches)]
    backward = [Turn("B", 0, number) for number in range(plan.micro_batches)]
    return _merged(forward, backward, first)


def _merged(forward: list[Turn], backward: list[Turn], first: int) -> list[Turn]:
    """Return *first* forward passes, then alternating passes, and then the remaining backward passes."""
    turns = forward[:first]
    for place, turn in enumerate(forward[first:]):
        turns += [turn, backward[place]]
    return turns + backward[len(forward) - first :]


def _interleaved(plan: Plan, stage: int) -> list[Turn]:
    """Return Megatron-LM's interleaved order: rounds of *pp* micro-batches through each of the chunks."""
    turns = plan.micro_batches * plan.chunks
    forward, backward = [], []
    for number in range(turns):
        round_, place = divmod(number, plan.pp * plan.chunks)
        chunk, within = divmod(place, plan.pp)
        micro_batch = round_ * plan.pp + within
        forward.append(Turn("F", chunk, micro_batch))
        backward.append(Turn("B", plan.chunks - 1 - chunk, micro_batch))
    first = min(turns, (plan.pp - stage - 1) * 2 + (plan.chunks - 1) * plan.pp)
    return _merged(forward, backward, first)


def _zero_bubble(stages: int, stage: int, micro_batches: int) -> list[Turn]:
    """Return the order of ZB-H1, which is 1F1B with weight gradients postponed until the stage would wait."""
    behind = stages - stage - 1
    first = min(behind, micro_batches)
    turns = [Turn("F", 0, number) for number in range(first)]
    for number in range(micro_batches):
        if first + number < micro_batches:
            turns.append(Turn("F", 0, first + number))
        turns.append(Turn("I", 0, number))
        if number >= stage:
            turns.append(Turn("W", 0, number - stage))
    return turns + [Turn("W", 0, number) for number in range(max(0, micro_batches - stage), micro_batches)]


def training_step(
    model: Transformer, plan: Plan, prices: Prices, node_size: int, *, every_rank: bool = False
) -> Workload:
    """Return the graphs of a step of *model* by *plan*, with *node_size* ranks per node, at *prices*.

    Ranks of a pipeline stage have the same program, so one graph represents all ranks of a stage unless
    *every_rank* is set. The function raises `UsageError` for a plan that the model does not allow.
    """
    plan.check(model)
    layers = max(1, plan.longest_part(model.layers)) * plan.chunks
    nodes = plan.micro_batches * layers * _NODES_PER_LAYER
    if nodes > _MOST_NODES:
        raise UsageError(
            f"A step of {plan.micro_batches:,} micro-batches makes about {nodes:,} nodes on each rank, and "
            f"at most {_MOST_NODES:,} are simulated. Next: reduce --global-batch, or increase --micro-batch "
            "or --dp."
        )
    programs = [_program(model, Stage(plan, prices, node_size, stage)) for stage in range(plan.pp)]
    groups = _Groups(plan, node_size)
    stage_of = np.array([plan.position(rank, "pp") for rank in range(plan.world)], dtype=np.int32)
    first = [stage * plan.strides["pp"] for stage in range(plan.pp)]
    ranks = range(plan.world) if every_rank else first
    graphs = tuple(programs[stage_of[rank]].graph(rank, plan, groups) for rank in ranks)
    metadata = {"source": f"training step of {model.name}", "lanes": "streams"}
    if every_rank:
        return Workload(graphs, np.arange(plan.world, dtype=np.int32), groups.members, metadata)
    return Workload(graphs, stage_of, groups.members, metadata, np.array(first, dtype=np.int32)[stage_of])


class Span(NamedTuple):
    """The nodes of a pass (*turn*): *length* nodes, starting with node *first*."""

    turn: Turn
    first: int
    length: int


def turn_spans(model: Transformer, stage: Stage) -> tuple[Span, ...]:
    """Return the nodes of each pass of a rank of *stage*, in order."""
    return _program(model, stage).spans


class _Groups:
    """The process groups that ranks use, numbered in order of first use."""

    def __init__(self, plan: Plan, node_size: int) -> None:
        self.plan, self.node_size = plan, node_size
        self.members: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def number(self, rank: int, key: GroupKey) -> int:
        """Return the number of the group of *rank* with *key*."""
        axes, level = key
        members = self.plan.group(rank, *axes)
        node = rank // self.node_size
        if level == "within":
            members = tuple(other for other in members if other // self.node_size == node)
        elif level == "across":
            place = [other for other in members if other // self.node_size == node].index(rank)
            nodes: dict[int, list[int]] = {}
            for other in members:
                nodes.setdefault(other // self.node_size, []).append(other)
            members = tuple(inside[place] for inside in nodes.values())
        if members not in self._numbers:
            self._numbers[members] = len(self._numbers) + 1
            self.members[self._numbers[members]] = members
        return self._numbers[members]


@dataclass(frozen=True)
class _Program:
    """A stage's program for any rank: keys stand for groups, and distances between stages stand for peers."""

    columns: Mapping[str, Column]
    edges: np.ndarray
    keys: tuple[GroupKey, ...]
    peer: np.ndarray
    spans: tuple[Span, ...]

    def graph(self, rank: int, plan: Plan, groups: _Groups) -> Graph:
        """Return the program as the graph of *rank*."""
        numbers = np.array([0, *(groups.number(rank, key) for key in self.keys)], dtype=np.int64)
        stride, place = plan.strides["pp"], plan.position(rank, "pp")
        stage = (place + self.peer) % plan.pp
        other = rank + (stage - place) * stride
        kind = np.asarray(self.columns["type"])
        ends = {
            "comm_dst": np.where(kind == NodeType.COMM_SEND, other, -1),
            "comm_src": np.where(kind == NodeType.COMM_RECV, other, -1),
            "group": numbers[np.asarray(self.columns["group"])],
        }
        return Graph.of_columns(rank, {**self.columns, **ends}, self.edges)


class _Assembly:
    """Concatenates the passes of a stage: copies of blocks, with edges between consecutive passes."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.edges: list[np.ndarray] = []
        self.tags: list[np.ndarray] = []
        self.receive_tags: list[np.ndarray] = []
        self.between: list[tuple[int, int, int]] = []
        self.open: list[int] = []
        self.count = 0
        self.spans: list[Span] = []
        self._last, self._late, self._begin, self._exchanged = -1, -1, -1, -1
        self._launched, self._synced = -1, -1

    def append(self, block: Block, start: int, edges: np.ndarray, tags: tuple[int, int] = (0, 0)) -> None:
        """Append a copy of *block*, which has its nodes at *start* of the pool.

        *tags* are the tags of the block's sent and received messages.
        """
        base, length = self.count, len(block.nodes)
        self.rows.append(np.arange(start, start + length))
        self.edges.append(edges + np.array([base, base, 0]))
        self.tags.append(np.full(length, tags[0], dtype=np.int64))
        self.receive_tags.append(np.full(length, tags[1], dtype=np.int64))
        stream = int(EdgeKind.STREAM_ORDER)
        if block.first >= 0 and self._last >= 0:
            self.between.append((self._last, base + block.first, stream))
        if block.receive >= 0:
            if block.first >= 0:
                self.between.append((base + block.receive, base + block.first, int(EdgeKind.DATA)))
            if self._begin >= 0:
                self.between.append((self._begin, base + block.receive, int(EdgeKind.COMM_ISSUE)))
        if self._late >= 0:
            self.between += [(self._late, base + node, int(EdgeKind.COMM_ISSUE)) for node in block.early]
        if block.launched:
            launch = base + block.launched[0]
            self.between += [(node, launch, stream) for node in (self._launched, self._synced) if node >= 0]
            self._launched = base + block.launched[-1]
            self._synced = base + block.synced if block.synced >= 0 else -1
        if self._exchanged >= 0 and block.last >= 0:
            self.between.append((self._exchanged, base + block.last, int(EdgeKind.COMM_WAIT)))
        self._exchanged = base + block.exchanged if block.exchanged >= 0 else -1
        self.open += [base + node for node in (*block.open, block.exchanged) if node >= 0]
        if block.last >= 0:
            self._last, self._begin = base + block.last, base + block.first
            self._late = base + max(block.late, block.first)
        self.count += length

    def wait_for_open(self, node: int) -> None:
        """Make *node* wait for all collectives that must end before the end of the step."""
        self.between += [(other, node, int(EdgeKind.COMM_WAIT)) for other in self.open]


def _program(model: Transformer, stage: Stage) -> _Program:
    passes = Passes(model, stage)
    pool, assembly = _Pool(), _Assembly()
    turns = schedule(stage.plan, stage.stage)
    last = {turn.chunk: place for place, turn in enumerate(turns) if turn.kind in "BW"}
    for place, turn in enumerate(turns):
        is_end = place == last.get(turn.chunk) or (turn.kind == "F" and turn.micro_batch == 0)
        key = (turn.kind, turn.chunk, is_end)
        if key not in pool.blocks:
            pool.add(key, _block(passes, turn, is_end=is_end))
        assembly.spans.append(Span(turn, assembly.count, len(pool.blocks[key][0].nodes)))
        assembly.append(*pool.blocks[key], tags=_tags(stage, turn))
    pool.add("end", passes.end())
    end = assembly.count
    assembly.append(*pool.blocks["end"])
    assembly.wait_for_open(end + pool.blocks["end"][0].first)
    return pool.program(assembly)


def _block(passes: Passes, turn: Turn, *, is_end: bool) -> Block:
    """Return the block of the pass *turn*; *is_end* marks the first forward and the last backward pass."""
    if turn.kind == "F":
        return passes.forward(turn.chunk, is_first=is_end)
    return passes.backward(turn.chunk, half=turn.kind, reduces=is_end)


class _Pool:
    """The nodes of all distinct blocks of a stage, from which the program is copied."""

    def __init__(self) -> None:
        self.blocks: dict[Any, tuple[Block, int, np.ndarray]] = {}
        self.nodes: list[dict[str, Any]] = []

    def add(self, key: Any, block: Block) -> None:
        """Add the nodes of *block* under *key*."""
        edges = np.array(block.edges, dtype=np.int64).reshape(-1, 3)
        self.blocks[key] = (block, len(self.nodes), edges)
        self.nodes += block.nodes

    def program(self, assembly: _Assembly) -> _Program:
        """Return the program of the copies in *assembly*."""
        keys = tuple(dict.fromkeys(node["group"] for node in self.nodes if "group" in node))
        number = {key: place for place, key in enumerate(keys, start=1)}
        rows = np.concatenate(assembly.rows)
        columns: dict[str, Column] = {"node_id": np.arange(len(rows), dtype=np.int64)}
        for name, (dtype, default) in NODE_COLUMNS.items():
            if name in ("node_id", "comm_src", "comm_dst", "comm_tag"):
                continue
            if name == "group":
                values: list[Any] = [number[node["group"]] if "group" in node else 0 for node in self.nodes]
            else:
                values = [node.get(name, default) for node in self.nodes]
            if dtype == "str":
                columns[name] = TextColumn.of(values)[rows]
            else:
                columns[name] = _numbers(values, dtype)[rows]
        peer = np.array([node.get("peer", 0) for node in self.nodes], dtype=np.int64)[rows]
        sends = np.asarray(columns["type"]) == NodeType.COMM_SEND
        tags = np.where(sends, np.concatenate(assembly.tags), np.concatenate(assembly.receive_tags))
        columns["comm_tag"] = np.where(peer != 0, tags, -1)
        columns["step"] = np.zeros(len(rows), dtype=np.int64)
        between = np.array(assembly.between, dtype=np.int64).reshape(-1, 3)
        edges = np.concatenate([*assembly.edges, between])
        return _Program(columns, edges, keys, peer, tuple(assembly.spans))


def _numbers(values: list[Any], dtype: str) -> np.ndarray:
    """Return *values* as an array, or raise `UsageError` for a value beyond 63 bits."""
    try:
        return np.array(values, dtype=dtype)
    except OverflowError as error:
        raise UsageError(
            "An operator of the step has more operations or bytes than a node of a graph can hold (2^63). "
            "Next: reduce --sequence or --micro-batch."
        ) from error


def _tags(stage: Stage, turn: Turn) -> tuple[int, int]:
    """Return the tags of a pass's messages, which encode the boundary between stages and the direction."""
    parts = stage.plan.pp * stage.plan.chunks
    part = turn.chunk * stage.plan.pp + stage.stage
    behind, front = (turn.micro_batch * (parts + 1) + border for border in (part + 1, part))
    return (2 * behind, 2 * front) if turn.kind == "F" else (2 * front + 1, 2 * behind + 1)
