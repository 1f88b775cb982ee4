"""Read a captured pipeline stage: its place in the pipeline, and its passes, which are cut into layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ....converter.chakra import EdgeKind, Graph, NodeType, Workload
from ....errors import WorkloadError
from ._periods import Label, Layers, does_something, messages_of, parts_of, period_of

# The number of the group for messages between all ranks, which no capture uses.
NO_GROUP = -1
# The advice in errors about a pipeline that cannot be divided into other stages.
INSTEAD = "Capture the job with the stages you want, or record its script with its own option for them."


@dataclass(frozen=True)
class Layout:
    """A layout of *world* ranks in pipelines of *stages* stages; neighbours are *stride* ranks apart."""

    world: int
    stages: int
    stride: int

    @classmethod
    def of(cls, workload: Workload) -> Layout:
        """Find the pipelines of *workload*, or raise `WorkloadError` if their layout is uneven."""
        peers = {
            rank: {peer for _, peer in messages_of(workload.graph_of(rank))}
            for rank in range(workload.num_ranks)
        }
        if not any(peers.values()):
            return cls(workload.num_ranks, 1, workload.num_ranks)
        strides = {abs(rank - other) for rank, near in peers.items() for other in near}
        stride = min(strides)
        ends = [rank for rank, near in peers.items() if len(near) == 1]
        stages = 2 * workload.num_ranks // max(1, len(ends))
        turns = cls(workload.num_ranks, stages, stride)
        if len(strides) != 1 or any(turns.neighbours(rank) != near for rank, near in peers.items()):
            raise WorkloadError(
                "The ranks of the workload do not form pipelines in which each stage exchanges messages "
                f"with the next, so they cannot be divided into other stages. {INSTEAD}"
            )
        return turns

    def with_stages(self, stages: int) -> Layout:
        """Return the layout with another number of stages."""
        return Layout(self.world // self.stages * stages, stages, self.stride)

    def place(self, rank: int) -> tuple[tuple[int, int], int]:
        """Return the pipeline and the stage of *rank*."""
        block, rest = divmod(rank, self.stages * self.stride)
        stage, inner = divmod(rest, self.stride)
        return (block, inner), stage

    def rank(self, pipeline: tuple[int, int], stage: int) -> int:
        """Return the rank of *stage* of *pipeline*."""
        return pipeline[0] * self.stages * self.stride + stage * self.stride + pipeline[1]

    def neighbours(self, rank: int) -> set[int]:
        """Return the ranks of the stages before and after the stage of *rank*."""
        pipeline, stage = self.place(rank)
        near = {stage - 1, stage + 1} & set(range(self.stages))
        return {self.rank(pipeline, other) for other in near}


def regrouped(
    workload: Workload, layout: Layout, new: Layout
) -> tuple[dict[int, tuple[int, ...]], list[dict[int, int]]]:
    """Return the groups of the *new* layout, and, for each new stage, the new number of each old group.

    A group within one stage becomes a group of each new stage. A group of whole pipelines becomes a group of
    the new pipelines. A group of only some stages raises `WorkloadError` if it is used.
    """
    used = {int(key) for graph in workload.graphs for key in np.unique(_groups_used(graph)).tolist()}
    members: dict[tuple[int, int], tuple[int, ...]] = {}  # keyed by (old group, new stage)
    everyone = tuple(range(workload.num_ranks))
    for key, ranks in {0: everyone, **workload.groups}.items():
        if key == 0 and layout.stages > 1:
            continue
        stages = {layout.place(rank)[1] for rank in ranks}
        pipelines = {layout.place(rank)[0] for rank in ranks}
        whole = len(stages) == layout.stages and len(ranks) == len(stages) * len(pipelines)
        if len(stages) > 1 and not whole:
            if key in used:
                raise WorkloadError(
                    f"Group {key} of the workload joins some stages of a pipeline and not others (as tied "
                    f"embeddings do), so the ones that it would join after the change are unknown. {INSTEAD}"
                )
            continue
        for stage in range(new.stages):
            chosen = range(new.stages) if len(stages) > 1 else [stage]
            members[key, stage] = tuple(sorted(new.rank(one, each) for one in pipelines for each in chosen))
    alone = layout.world == 1
    ordered = sorted({ranks for ranks in members.values() if len(ranks) > 1 or not alone})
    groups = {number: ranks for number, ranks in enumerate(ordered, 1) if len(ranks) < new.world}
    numbers: Mapping[tuple[int, ...], int] = {ranks: number for number, ranks in groups.items()}
    renamed: list[dict[int, int]] = []
    for stage in range(new.stages):
        own = {key: numbers.get(ranks, 0) for (key, each), ranks in members.items() if each == stage}
        renamed.append({0: 0, **own, NO_GROUP: 0})
    return groups, renamed


def _groups_used(graph: Graph) -> np.ndarray:
    nodes = graph.node_columns
    groups: np.ndarray = nodes["group"][nodes["type"] == NodeType.COMM_COLL]
    return groups


FORWARD, BACKWARD = "F", "B"
# In addition to its layers, which are numbered from 0, a pass has a part before and a part after the layers.
BEFORE, BEHIND = "before", "behind"
Key = tuple[str, int, "int | str"]  # (pass, micro-batch, layer or BEFORE or BEHIND)
START: Key = ("start", 0, BEFORE)
END: Key = ("end", 0, BEHIND)
Turn = tuple[str, int]


def orders(schedule: str, stage: int, stages: int, micro_batches: int) -> list[Turn]:
    """Return the passes of *stage* in the order of *schedule*, ``1f1b`` or ``gpipe``."""
    early = micro_batches if schedule == "gpipe" else min(micro_batches, stages - stage)
    turns = [(FORWARD, number) for number in range(early)]
    for number in range(micro_batches):
        turns.append((BACKWARD, number))
        if early + number < micro_batches:
            turns.append((FORWARD, early + number))
    return turns


@dataclass(frozen=True)
class Stage:
    """A captured stage: the rows ``[begin, end)`` of each block of its passes, and the order of passes."""

    graph: Graph
    layers: Layers
    blocks: dict[Key, tuple[int, int]]
    turns: tuple[Turn, ...]
    depth: int
    _labels: dict[Key, tuple[Label, ...]] = field(default_factory=dict)
    _places: dict[Key, dict[Label, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> Stage:
        """Read the stage in *graph*, or raise `WorkloadError` if its passes differ in their layers."""
        nodes = graph.node_columns
        computes = nodes["type"] == NodeType.COMP
        if len(np.unique(nodes["stream"][computes])) != 1:
            raise WorkloadError(
                f"Rank {graph.rank} computes on several streams, as on a GPU, where the passes of two micro-"
                f"batches may overlap, so it cannot be divided into other stages. {INSTEAD}"
            )
        layers = Layers.of(graph)
        return _Reader(graph, layers).stage()

    @classmethod
    def of_message(cls, graph: Graph, key: Key) -> Stage:
        """Return a stage with the single block *key*, made of the rows of the message *graph*."""
        none = Layers(graph, np.full(graph.num_nodes, -1), "")
        labels: tuple[Label, ...] = tuple(("message", row) for row in range(graph.num_nodes))
        return cls(graph, none, {key: (0, graph.num_nodes)}, (), 0, {key: labels})

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches."""
        return len(self.turns) // 2

    def labels(self, key: Key) -> tuple[Label, ...]:
        """Return labels that distinguish the rows of a block, and that are equal in every layer."""
        if key not in self._labels:
            begin, end = self.blocks[key]
            self._labels[key] = period_of(begin, end, self._does, self._name_of).labels
        return self._labels[key]

    def places(self, key: Key) -> dict[Label, int]:
        """Return the first row with each label in the block *key*."""
        if key not in self._places:
            labels = self.labels(key)
            self._places[key] = {label: at for at, label in reversed(list(enumerate(labels)))}
        return self._places[key]

    def signature(self, key: Key) -> list[Label]:
        """Return the operations of the block *key*, without gaps and times."""
        begin, end = self.blocks[key]
        return parts_of(period_of(begin, end, self._does, self._name_of))

    def key_of_row(self, row: int) -> Key:
        """Return the key of the block that contains *row*."""
        return self._keys[int(self._owners[row])]

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the source rows, target rows and kinds of the edges, sorted by target."""
        ids, edges = self.graph.node_columns["node_id"], self.graph.edge_columns
        sources, targets = np.searchsorted(ids, edges["src"]), np.searchsorted(ids, edges["dst"])
        order = np.lexsort((sources, targets))
        return sources[order], targets[order], edges["kind"][order]

    @cached_property
    def _does(self) -> np.ndarray:
        return does_something(self.graph)

    @cached_property
    def _name_of(self) -> Callable[[int], object]:
        """Return a function from a row to its operation, with ``add_`` and ``add`` as one operation."""
        plain, operator = self.layers.name_of(), self.graph.node_columns["operator"]
        texts = [text.rstrip("_") for text in operator.texts]
        return lambda row: (texts[operator.numbers[row]], *plain(row)[1:])  # type: ignore[index]

    @cached_property
    def _keys(self) -> list[Key]:
        return list(self.blocks)

    @cached_property
    def _owners(self) -> np.ndarray:
        owners = np.full(self.graph.num_nodes, -1, dtype=np.int64)
        for number, (begin, end) in enumerate(self.blocks.values()):
            owners[begin:end] = number
        return owners


@dataclass(frozen=True)
class _Pass:
    """One pass through the layers: the first row of each layer in order, and the end of the last layer."""

    kind: str
    layers: tuple[int, ...]
    begins: tuple[int, ...]
    end: int


class _Reader:
    """Cuts *graph* into the blocks of a `Stage`."""

    def __init__(self, graph: Graph, layers: Layers) -> None:
        nodes = graph.node_columns
        phase, module, kind = nodes["phase"], nodes["module"], nodes["kind"]
        self.graph, self.layers = graph, layers
        self.forward = phase == "forward"
        self.backward = phase == "backward"
        self.gap = (kind == "host") & (nodes["operator"] == "")
        self.named = module != ""
        self.sends = nodes["type"] == NodeType.COMM_SEND
        self.receives = nodes["type"] == NodeType.COMM_RECV

    def stage(self) -> Stage:
        """Return the stage with its blocks."""
        passes = list(self._passes())
        blocks: dict[Key, tuple[int, int]] = {}
        turns: list[Turn] = []
        counts = {FORWARD: 0, BACKWARD: 0}
        cut = self._first_cut(passes[0].begins[0])
        blocks[START] = (0, cut)
        for place, one in enumerate(passes):
            number = counts[one.kind]
            counts[one.kind] += 1
            turns.append((one.kind, number))
            blocks[one.kind, number, BEFORE] = (cut, one.begins[0])
            for layer, begin, end in zip(one.layers, one.begins, (*one.begins[1:], one.end), strict=True):
                blocks[one.kind, number, layer] = (begin, end)
            after = passes[place + 1] if place + 1 < len(passes) else None
            cut = self._last_cut(one.end) if after is None else self._cut(one, after)
            blocks[one.kind, number, BEHIND] = (one.end, cut)
        blocks[END] = (cut, self.graph.num_nodes)
        if counts[FORWARD] != counts[BACKWARD]:
            raise self._refusal(f"has {counts[FORWARD]} forward and {counts[BACKWARD]} backward passes")
        return Stage(self.graph, self.layers, blocks, tuple(turns), self.layers.count)

    def _passes(self) -> Iterator[_Pass]:
        """Yield the passes in order; each pass runs through all layers in ascending or descending order."""
        of_row, depth = self.layers.of_row, self.layers.count
        rows = np.flatnonzero((of_row >= 0) & (self.forward | self.backward))
        place = {number: index for index, number in enumerate(np.unique(of_row[rows]).tolist())}
        runs: list[tuple[bool, int, int, int]] = []  # (is forward, layer, first row, last row)
        for row in rows.tolist():
            what = (bool(self.forward[row]), place[int(of_row[row])])
            if runs and runs[-1][:2] == what and (depth > 1 or not self._is_interrupted(runs[-1][3], row)):
                runs[-1] = (*what, runs[-1][2], row)
            else:
                runs.append((*what, row, row))
        for first in range(0, len(runs), depth):
            chunk = runs[first : first + depth]
            forward = chunk[0][0]
            wanted = list(range(depth)) if forward else list(range(depth))[::-1]
            if [run[1] for run in chunk] != wanted or any(run[0] != forward for run in chunk):
                raise self._refusal("does not go through all its layers, one after the other, in every pass")
            end = chunk[-1][3] + 1 if forward else self._with_gradients(chunk[-1][3] + 1)
            yield _Pass(FORWARD if forward else BACKWARD, tuple(wanted), tuple(run[2] for run in chunk), end)

    def _is_interrupted(self, one: int, other: int) -> bool:
        """Return whether other work lies between two rows of the only layer, so that their passes differ."""
        between = slice(one + 1, other)
        elsewhere = self.named[between] & (self.layers.of_row[between] < 0)
        return bool(elsewhere.any() or self.sends[between].any() or self.receives[between].any())

    def _with_gradients(self, row: int) -> int:
        """Return where a layer's backward pass ends, including gradient accumulation after its modules."""
        types = self.graph.node_columns["type"]
        while row < self.graph.num_nodes and self.backward[row] and not self.named[row]:
            row += 1
            while row < self.graph.num_nodes and types[row] == NodeType.COMM_COLL:
                row += 1
        return row

    def _first_cut(self, first: int) -> int:
        """Return the start of the first pass, which is its receive or its first module."""
        received = np.flatnonzero(self.receives[:first])
        if len(received):
            return self._beginning_of(int(received[0]), 0)
        modules = np.flatnonzero(self.named[:first])
        return int(modules[0]) if len(modules) else first

    def _last_cut(self, end: int) -> int:
        """Return the end of the last pass, which is its send or its last backward operator."""
        last = np.flatnonzero(self.sends[end:])
        last = last if len(last) else np.flatnonzero(self.backward[end:])
        return end + int(last[-1]) + 1 if len(last) else end

    def _cut(self, one: _Pass, other: _Pass) -> int:
        """Return the row at which pass *other* begins after pass *one*."""
        low, high = one.end, other.begins[0]
        sent = low + np.flatnonzero(self.sends[low:high])
        received = low + np.flatnonzero(self.receives[low:high])
        if len(sent) and len(received) and sent[-1] > received[0]:
            raise self._refusal("receives for a pass before it sends the result of the previous pass")
        if len(sent):
            return int(sent[-1]) + 1
        if len(received):
            return self._beginning_of(int(received[0]), low)
        turns = np.flatnonzero(self.backward[low:high])
        if one.kind == FORWARD and other.kind == BACKWARD:
            return low + int(turns[0]) if len(turns) else high
        return self._with_waits(one, low + int(turns[-1]) + 1 if len(turns) else low, high)

    def _with_waits(self, one: _Pass, cut: int, high: int) -> int:
        """Return *cut*, moved after the rows before *high* that wait for the collectives of pass *one*."""
        ids, edges = self.graph.node_columns["node_id"], self.graph.edge_columns
        waits = edges["kind"] == EdgeKind.COMM_WAIT
        sources, targets = (np.searchsorted(ids, edges[name][waits]) for name in ("src", "dst"))
        own = (one.begins[0] <= sources) & (sources < cut) & (cut <= targets) & (targets < high)
        return int(targets[own].max()) + 1 if own.any() else cut

    def _beginning_of(self, row: int, low: int) -> int:
        """Return the first row of the work that issues the message *row*."""
        edges, ids = self.graph.edge_columns, self.graph.node_columns["node_id"]
        issues = edges["src"][(edges["dst"] == ids[row]) & (edges["kind"] == EdgeKind.COMM_ISSUE)]
        begin = int(np.searchsorted(ids, issues[0])) if len(issues) else row
        while begin > low and self.gap[begin - 1]:
            begin -= 1
        return begin

    def _refusal(self, what: str) -> WorkloadError:
        return WorkloadError(
            f"Rank {self.graph.rank} {what}, so the work of other stages is unknown. {INSTEAD}"
        )
