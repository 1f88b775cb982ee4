"""Assemble a new pipeline stage from parts of captured pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....converter.chakra import MESSAGES, Column, EdgeKind, Graph, NodeType, TextColumn
from ....errors import WorkloadError
from ._turns import BEFORE, BEHIND, END, FORWARD, START, Key, Stage, orders

_CHAINS = (EdgeKind.PROGRAM_ORDER, EdgeKind.STREAM_ORDER)


@dataclass(frozen=True)
class Shape:
    """A pipeline of *stages* that share *layers*, with passes over *micro_batches* in a *schedule*."""

    stages: int
    micro_batches: int
    schedule: str
    layers: int


@dataclass(frozen=True)
class Piece:
    """A block of a captured *stage* in a new stage, with the new number of its *layer* (-1: none)."""

    stage: Stage
    key: Key
    layer: int = -1


@dataclass(frozen=True)
class Reduction:
    """The change of a stage's total gradients from *bytes_before* to *bytes_now*."""

    bytes_before: int
    bytes_now: int

    @property
    def factor(self) -> float:
        """The ratio of the new to the captured size of the gradients."""
        return self.bytes_now / max(1, self.bytes_before)


@dataclass
class NewStage:
    """The new stage *number* of *shape* on *rank*, with the ranks *previous* and *following* as neighbours.

    *pieces* are the parts of the new stage by their new key, in order. *reduction* scales the work after the
    last pass, and the collective that reduces the gradients of the whole stage.
    """

    rank: int
    number: int
    shape: Shape
    pieces: dict[Key, Piece]
    previous: int
    following: int
    reduction: Reduction
    group_of: Mapping[int, int]
    offsets: dict[Key, int] = field(default_factory=dict)

    def graph(self) -> Graph:
        """Return the graph of the new stage."""
        sources = list({id(piece.stage.graph): piece.stage.graph for piece in self.pieces.values()}.values())
        self._lay_out()
        of_row, rows = self._rows(sources)
        columns = {
            name: _gathered([graph.node_columns[name] for graph in sources], of_row, rows)
            for name in sources[0].node_columns
        }
        columns["node_id"] = np.arange(len(rows), dtype=np.int64)
        columns["measured_start_ns"] = np.full(len(rows), -1, dtype=np.int64)
        columns["module"] = self._modules(columns["module"])
        self._scale(columns)
        self._address(columns)
        edges = [*self._chains(columns, sources), *self._waits(columns), *self._others()]
        extra = {
            new: kept
            for new, (graph, row) in enumerate(zip(of_row.tolist(), rows.tolist(), strict=True))
            if (kept := sources[graph].extra.get(int(sources[graph].node_columns["node_id"][row])))
        }
        return Graph.of_columns(self.rank, columns, edges, extra)

    def _lay_out(self) -> None:
        at = 0
        for key, piece in self.pieces.items():
            self.offsets[key] = at
            begin, end = piece.stage.blocks[piece.key]
            at += end - begin

    def _rows(self, sources: Sequence[Graph]) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the source graph and the source row of each new row."""
        numbers = {id(graph): number for number, graph in enumerate(sources)}
        spans = [
            (numbers[id(piece.stage.graph)], *piece.stage.blocks[piece.key]) for piece in self.pieces.values()
        ]
        of_row = np.concatenate([np.full(end - begin, number) for number, begin, end in spans])
        return of_row, np.concatenate([np.arange(begin, end) for _, begin, end in spans])

    def _span(self, key: Key) -> tuple[int, int]:
        begin, end = self.pieces[key].stage.blocks[self.pieces[key].key]
        return self.offsets[key], self.offsets[key] + end - begin

    def _modules(self, column: Column) -> TextColumn:
        """Return the module paths with the new numbers of their layers."""
        assert isinstance(column, TextColumn)
        numbers, texts = column.numbers.copy(), list(column.texts)
        number_of_name: dict[tuple[int, int, str], int] = {}
        for key, piece in self.pieces.items():
            if piece.layer < 0:
                continue
            layers = piece.stage.layers
            for row in range(*self._span(key)):
                module = column.texts[column.numbers[row]]
                if not module.startswith(layers.prefix):
                    continue
                number, dot, rest = module.removeprefix(layers.prefix).partition(".")
                if not number.isdigit():
                    continue
                name = (int(column.numbers[row]), piece.layer, layers.prefix)
                if name not in number_of_name:
                    number_of_name[name] = len(texts)
                    texts.append(f"{layers.prefix}{piece.layer}{dot}{rest}")
                numbers[row] = number_of_name[name]
        return TextColumn(numbers, texts)

    def _scale(self, columns: dict[str, Column]) -> None:
        """Scale the work on all weights of the stage, such as the optimizer, as its gradients grow."""
        behind = np.arange(len(columns["node_id"])) >= self.offsets[END]
        behind &= np.asarray(columns["type"]) == NodeType.COMP
        for name in ("duration_ns", "num_ops", "tensor_size_bytes"):
            values = np.asarray(columns[name])
            scaled = np.rint(values * self.reduction.factor).astype(np.int64)
            columns[name] = np.where(behind & (values > 1), np.maximum(scaled, 1), values)
        sizes = np.asarray(columns["comm_size_bytes"])
        whole = np.asarray(columns["type"]) == NodeType.COMM_COLL
        whole &= (sizes == self.reduction.bytes_before) & (sizes > 0)
        columns["comm_size_bytes"] = np.where(whole, self.reduction.bytes_now, sizes)

    def _address(self, columns: dict[str, Column]) -> None:
        """Address messages to the new neighbours, with one stream per direction, and set the new groups."""
        kinds, streams = np.asarray(columns["type"]), np.asarray(columns["stream"]).copy()
        source, target = np.asarray(columns["comm_src"]).copy(), np.asarray(columns["comm_dst"]).copy()
        peers = np.isin(kinds, MESSAGES)
        first = int(streams[peers].min()) if peers.any() else 0
        taken: dict[tuple[int, int], int] = {}
        for key in self.pieces:
            # A forward pass receives from the previous stage and sends to the following stage.
            near = self.previous if (key[0] == FORWARD) == (key[2] == BEFORE) else self.following
            for row in range(*self._span(key)):
                if not peers[row]:
                    continue
                (source if kinds[row] == NodeType.COMM_RECV else target)[row] = near
                streams[row] = first + taken.setdefault((int(kinds[row]), near), len(taken))
        groups = np.asarray(columns["group"])
        columns["group"] = np.array([self.group_of[key] for key in groups.tolist()], dtype=np.int64)
        columns["stream"], columns["comm_src"], columns["comm_dst"] = streams, source, target

    def _chains(self, columns: dict[str, Column], sources: Sequence[Graph]) -> Iterator[tuple[int, int, int]]:
        """Yield the edges that order each stream, for node types that captured graphs order by edges."""
        kinds, streams = np.asarray(columns["type"]), np.asarray(columns["stream"])
        chained = _chained(sources)
        latest: dict[int, int] = {}
        for row, (kind, stream) in enumerate(zip(kinds.tolist(), streams.tolist(), strict=True)):
            before = latest.get(stream)
            latest[stream] = row
            if before is not None and kind in chained:
                yield before, row, chained[kind]

    def _waits(self, columns: dict[str, Column]) -> Iterator[tuple[int, int, int]]:
        """Yield the waits for messages, as in the schedules of torch.distributed.pipelining.

        A pass waits for its receive. In 1F1B, the stage waits for a send together with the paired receive, or
        before the next send. In GPipe, the stage waits for sends after the last pass of their direction.
        """
        kinds = np.asarray(columns["type"])
        turns = orders(self.shape.schedule, self.number, self.shape.stages, self.shape.micro_batches)
        for place, (kind, number) in enumerate(turns):
            for row in range(*self._span((kind, number, BEFORE))):
                if kinds[row] == NodeType.COMM_RECV:
                    yield row, self._span((kind, number, BEFORE))[1], EdgeKind.COMM_WAIT
            waiting = self._row_after_send(turns, place)
            for row in range(*self._span((kind, number, BEHIND))):
                if kinds[row] == NodeType.COMM_SEND:
                    yield row, waiting, EdgeKind.COMM_WAIT

    def _row_after_send(self, turns: Sequence[tuple[str, int]], place: int) -> int:
        kind = turns[place][0]
        if self.shape.schedule == "gpipe":
            last = max(number for number, turn in enumerate(turns) if turn[0] == kind)
            return self._span((*turns[last], BEHIND))[1]
        if place + 1 == len(turns):
            return self._span((*turns[place], BEHIND))[1]
        following = turns[place + 1]
        if following[0] != kind:  # the send and the receive are one batched operation
            return self._span((*following, BEFORE))[1]
        return self._span((*following, BEHIND))[0]

    def _others(self) -> Iterator[tuple[int, int, int]]:
        """Yield all other edges, each from the row that corresponds to the captured source row."""
        for key, piece in self.pieces.items():
            begin, end = piece.stage.blocks[piece.key]
            shift = self.offsets[key] - begin
            for source, target, kind in _edges_into(piece.stage, begin, end):
                if begin <= source < end:
                    yield source + shift, target + shift, kind
                    continue
                other = self._counterpart(key, piece, source)
                if other is not None and other < target + shift:
                    yield other, target + shift, kind
                elif not _same_stream(piece.stage.graph, source, target):
                    name = piece.stage.graph.node_columns["operator"]
                    raise WorkloadError(
                        f"Rank {piece.stage.graph.rank}: nodes that depend on "
                        f"{name.texts[name.numbers[source]]} in another layer have no counterpart in the new "
                        "pipeline stages. Capture a job that already uses these stages, or record its script "
                        "with its own option for stages."
                    )

    def _counterpart(self, key: Key, piece: Piece, row: int) -> int | None:
        """Return the new row of block *key* that corresponds to the captured *row* of *piece*'s block."""
        stage = piece.stage
        other = stage.key_of_row(row)
        wanted = self._related(key, piece, other)
        if wanted is None or wanted not in self.pieces:
            return None
        counterpart = self.pieces[wanted]
        label = stage.labels(other)[row - stage.blocks[other][0]]
        at = counterpart.stage.places(counterpart.key).get(label)
        return None if at is None else self.offsets[wanted] + at

    def _related(self, key: Key, piece: Piece, other: Key) -> Key | None:
        if other in (START, END):
            return other
        if key == END:  # taken from the last pass, which ends with the first layer
            return other[0], other[1] + self.shape.micro_batches - piece.stage.micro_batches, other[2]
        if key == START:
            return None
        kind, number, part = key
        _, old_number, old_part = piece.key
        other_kind, other_number, other_part = other
        new_part = other_part
        if isinstance(other_part, int):
            if isinstance(part, int) and isinstance(old_part, int):
                new_part = part + other_part - old_part
            elif (part == BEHIND) == (kind == FORWARD):  # this part is next to the last layer
                new_part = self._depth - piece.stage.depth + other_part
            if not 0 <= int(new_part) < self._depth:
                return None
        return other_kind, number + other_number - old_number, new_part

    @property
    def _depth(self) -> int:
        return self.shape.layers // self.shape.stages


def _chained(sources: Sequence[Graph]) -> dict[int, int]:
    """Return, by node type, the kind of edge that orders nodes on their stream in captured graphs."""
    kinds = {
        int(NodeType.COMP): int(EdgeKind.PROGRAM_ORDER),
        int(NodeType.COMM_SEND): int(EdgeKind.STREAM_ORDER),
    }
    for graph in sources:
        nodes, edges = graph.node_columns, graph.edge_columns
        orders_stream = edges["kind"] == EdgeKind.STREAM_ORDER
        rows = np.searchsorted(nodes["node_id"], edges["dst"][orders_stream])
        kinds.update(dict.fromkeys(np.unique(nodes["type"][rows]).tolist(), int(EdgeKind.STREAM_ORDER)))
    return kinds


def _edges_into(stage: Stage, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the edges into rows ``[begin, end)``, except stream order and waits for messages."""
    sources, targets, kinds = stage.edges
    nodes = stage.graph.node_columns
    for place in range(*np.searchsorted(targets, [begin, end]).tolist()):
        source, target, kind = int(sources[place]), int(targets[place]), int(kinds[place])
        if kind in _CHAINS and _same_stream(stage.graph, source, target):
            continue
        if kind == EdgeKind.COMM_WAIT and nodes["type"][source] in MESSAGES:
            continue
        yield source, target, kind


def _same_stream(graph: Graph, one: int, other: int) -> bool:
    streams = graph.node_columns["stream"]
    return bool(streams[one] == streams[other])


def _gathered(columns: Sequence[Column], of_row: np.ndarray, rows: np.ndarray) -> Column:
    """Return a column for *rows*; *of_row* states which source column each row comes from."""
    if isinstance(columns[0], TextColumn):
        texts: list[str] = []
        numbers = np.empty(len(rows), dtype=np.int32)
        for place, column in enumerate(columns):
            assert isinstance(column, TextColumn)
            own = of_row == place
            numbers[own] = column.numbers[rows[own]] + len(texts)
            texts += column.texts
        return TextColumn(numbers, texts)
    values = np.empty(len(rows), dtype=columns[0].dtype)
    for place, column in enumerate(columns):
        own = of_row == place
        values[own] = np.asarray(column)[rows[own]]
    return values
