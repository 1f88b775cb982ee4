"""Distribute captured layers over other numbers of pipeline stages and micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ....converter.chakra import MESSAGE_LANE, MESSAGES, CollectiveType, EdgeKind, Graph, NodeType, Workload
from ....errors import UsageError, WorkloadError
from ....support import bytes_text, count_text
from ._periods import metadata_with
from ._recut import NewStage, Piece, Reduction, Shape
from ._turns import (
    BACKWARD,
    BEFORE,
    BEHIND,
    END,
    FORWARD,
    INSTEAD,
    NO_GROUP,
    START,
    Key,
    Layout,
    Stage,
    orders,
    regrouped,
)

_REDUCTIONS = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
_TENSORS = 3  # tensors that an addition reads and writes
_SMALL = 0.01  # a reduction of a smaller share of all gradients is a norm or a loss
_INSTEAD = (
    "Shard the layers one by one (FSDP), or let DistributedDataParallel reduce all gradients at once "
    "(bucket_cap_mb above their size), and capture again; or capture the stages you want."
)


def weights_of(stage: Stage, part: int | str | None = None) -> float:
    """Return the bytes of gradients that *part* of a backward pass, or the whole pass, accumulates.

    A capture of one micro-batch accumulates no gradients, so the operations of its forward pass are used
    instead.
    """
    parts: list[int | str] = [*range(stage.depth), BEFORE, BEHIND] if part is None else [part]
    if stage.micro_batches > 1:
        return float(sum(_added_up(stage, (BACKWARD, 1, one)) for one in parts))
    nodes = stage.graph.node_columns
    spans = [stage.blocks[FORWARD, 0, one] for one in parts]
    return float(sum(np.maximum(nodes["num_ops"][begin:end], 0).sum() for begin, end in spans))


def _added_up(stage: Stage, key: Key) -> int:
    """Return the bytes that a block adds to gradients, from its additions outside modules."""
    begin, end = stage.blocks[key]
    nodes = stage.graph.node_columns
    operator, module = nodes["operator"], nodes["module"]
    adds = operator[begin:end] == "aten::add_"
    plain = module[begin:end] == ""
    moved = nodes["tensor_size_bytes"][begin:end][adds & plain & (nodes["num_ops"][begin:end] > 1)]
    return int(moved.sum()) // _TENSORS


def has_reductions(stages: Iterable[Stage]) -> bool:
    """Return whether the *stages* reduce gradients during or after their passes."""
    return any(_reductions(stage) for stage in stages)


def check_reductions(stage: Stage, *, alone: bool) -> None:
    """Refuse gradients that are reduced neither layer by layer nor in one collective.

    The function also refuses a single stage (*alone*) that reduces all gradients in one collective, because
    its capture does not show the time at which other stages would reduce their gradients.
    """
    whole = round(weights_of(stage))
    if alone and any(size == whole for _, size in _reductions(stage)):
        raise WorkloadError(
            f"Rank {stage.graph.rank} reduces all gradients at once, so the capture does not show when each "
            "stage would reduce its own. Capture the job with two stages."
        )
    ordinary = sorted(size for _, size in _reductions(stage, stage.depth - 1))
    for key, size in _reductions(stage):
        if size == whole or size < _SMALL * whole:
            continue
        part = key[2]
        inside = isinstance(part, int) and key[0] in (FORWARD, BACKWARD)
        if inside and sorted(other for _, other in _reductions(stage, part)) == ordinary:
            continue
        if key != END and part in (BEFORE, BEHIND) and size <= weights_of(stage, part):
            continue
        raise WorkloadError(
            f"Rank {stage.graph.rank} reduces the gradients of several layers together, in buckets that "
            "other stages would fill differently, or those of tied embeddings, which other stages would not "
            f"share. {_INSTEAD}"
        )


def _reductions(stage: Stage, part: int | str | None = None) -> list[tuple[Key, int]]:
    """Return the block and the bytes of each gradient reduction during and after backward passes."""
    nodes = stage.graph.node_columns
    reduces = (nodes["type"] == NodeType.COMM_COLL) & np.isin(nodes["comm_type"], _REDUCTIONS)
    rows = np.flatnonzero(reduces).tolist()
    reductions = [(stage.key_of_row(row), int(nodes["comm_size_bytes"][row])) for row in rows]
    return [
        (key, size)
        for key, size in reductions
        if key[0] != FORWARD and (part is None or (key[2] == part and key != END))
    ]


def with_stages(
    workload: Workload,
    stages: int | None = None,
    micro_batches: int | None = None,
    *,
    layers: int | None = None,
    activation_bytes: int = 0,
) -> Workload:
    """Return *workload* with the given numbers of pipeline stages, micro-batches (of equal size) and layers.

    Layers are equal modules with a number in their path. The schedule (1F1B or GPipe) is unchanged. A job
    without a pipeline gets the schedule 1F1B. The stages send *activation_bytes* per micro-batch, unless the
    capture shows this size. Stages that do not divide the layers raise `UsageError`. The function raises
    `WorkloadError` if passes, schedule, groups or gradients do not determine the work of other stages.
    """
    layout = Layout.of(workload)
    stages = stages or layout.stages
    new = layout.with_stages(stages)
    pipelines = sorted({layout.place(rank)[0] for rank in range(workload.num_ranks)})
    captured = [
        _Pipeline(tuple(Stage.of(workload.graph_of(layout.rank(one, at))) for at in range(layout.stages)))
        for one in pipelines
    ]
    first = captured[0]
    shape = Shape(stages, micro_batches or first.micro_batches, first.schedule, layers or len(first.places))
    if shape == Shape(layout.stages, first.micro_batches, first.schedule, len(first.places)):
        return workload
    for pipeline in captured:
        pipeline.check(shape)
    if layout.stages > 1:
        _check_captured(workload, layout, pipelines, captured)
    message_bytes = activation_bytes
    if layout.stages == 1 < stages and not message_bytes:
        message_bytes = passed_bytes(captured[0].stages[0])
    groups, renamed = regrouped(workload, layout, new)
    graphs: list[Graph | None] = [None] * new.world
    for name, pipeline in zip(pipelines, captured, strict=True):
        for number in range(stages):
            made = pipeline.recut(shape, number, [new.rank(name, at) for at in range(stages)], message_bytes)
            made.group_of = renamed[number]
            graphs[made.rank] = made.graph()
    kept = tuple(graph for graph in graphs if graph is not None)
    assumptions = _assumptions(captured[0], shape, new, message_bytes)
    return replace(
        workload,
        graphs=kept,
        program_of_rank=np.arange(new.world, dtype=np.int32),
        groups=groups,
        metadata=metadata_with(workload, *assumptions, stale=("accounting", "group_names")),
    )


@dataclass(frozen=True)
class _Pipeline:
    """The captured stages of one pipeline, in order."""

    stages: tuple[Stage, ...]

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches per stage."""
        return self.stages[0].micro_batches

    @cached_property
    def schedule(self) -> str:
        """The schedule of all stages, or `WorkloadError` for an unsupported schedule."""
        count = len(self.stages)
        for schedule in ("1f1b", "gpipe"):
            wanted = [tuple(orders(schedule, at, count, self.micro_batches)) for at in range(count)]
            if [stage.turns for stage in self.stages] == wanted:
                return schedule
        raise WorkloadError(
            f"The passes of the pipeline come neither in the order of 1F1B nor in that of GPipe, so the "
            f"order in other stages is unknown. {INSTEAD}"
        )

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """The stage of each layer of the model, and the layer's number in the stage."""
        return [(at, layer) for at, stage in enumerate(self.stages) for layer in range(stage.depth)]

    @cached_property
    def is_numbered_on(self) -> bool:
        """Whether the numbers of layers in module paths continue from stage to stage."""
        first, second = self.stages[0], self.stages[min(1, len(self.stages) - 1)]
        return first is second or int(second.layers.of_row.max()) > int(first.layers.of_row.max())

    def check(self, shape: Shape) -> None:
        """Raise an error for a *shape* that cannot be assembled from the captured stages."""
        count = shape.layers
        if count % shape.stages:
            fitting = [str(number) for number in range(1, count + 1) if count % number == 0]
            raise UsageError(
                f"The model has {count_text(count, 'layer')}, which cannot be divided evenly among "
                f"{shape.stages} stages. Use --pp {', '.join(fitting)}."
            )
        if (shape.stages, shape.layers) != (len(self.stages), len(self.places)):
            for one in (FORWARD, BACKWARD):
                for number in {0, self.micro_batches // 2, self.micro_batches - 1}:
                    self._check_alike(one, number)
        for stage in self.stages:
            check_reductions(stage, alone=len(self.stages) == 1 < shape.stages)
        if (
            self.micro_batches < 3
            and shape.micro_batches > self.micro_batches
            and has_reductions(self.stages)
        ):
            raise WorkloadError(
                f"The capture has {count_text(self.micro_batches, 'micro-batch', 'micro-batches')}, too "
                "few to find one that reduces no gradients. Next: capture the job with at least three "
                "micro-batches."
            )

    def _check_alike(self, kind: str, number: int) -> None:
        wanted = None
        for at, layer in self.places:
            if kind == BACKWARD and at and not layer:
                continue  # this operator returns the gradient of the received activations
            done = self.stages[at].signature((kind, number, layer))
            wanted = done if wanted is None else wanted
            if done != wanted:
                graph = self.stages[at].graph
                raise WorkloadError(
                    f"Layer {layer} of rank {graph.rank} differs from the others, so the activations between "
                    f"other stages are unknown. {INSTEAD}"
                )

    def recut(self, shape: Shape, number: int, ranks: Sequence[int], message_bytes: int) -> NewStage:
        """Return the new stage *number* of *shape*, in a pipeline of the ranks *ranks*."""
        depth = shape.layers // shape.stages
        layers = [self._layer(number, layer, shape) for layer in range(depth)]
        owner = self._owner(shape, number)
        pieces: dict[Key, Piece] = {START: Piece(owner, START)}
        weights = 0.0
        for kind, batch in orders(shape.schedule, number, shape.stages, shape.micro_batches):
            old = self._micro_batch(batch, shape)
            before, behind = self._ends(kind, shape, number)
            pieces[kind, batch, BEFORE] = _end(before, (kind, old, BEFORE), message_bytes)
            order = range(depth) if kind == FORWARD else reversed(range(depth))
            for layer in order:
                stage, place, name = layers[layer]
                pieces[kind, batch, layer] = Piece(stage, (kind, old, place), name)
            pieces[kind, batch, BEHIND] = _end(behind, (kind, old, BEHIND), message_bytes)
            if (kind, batch) == (BACKWARD, 0):
                weights = sum(weights_of(stage, place) for stage, place, _ in layers)
                weights += sum(
                    weights_of(stage, part) for stage, part in ((before, BEFORE), (behind, BEHIND)) if stage
                )
        pieces[END] = Piece(owner, END)
        near = [ranks[other] if 0 <= other < shape.stages else -1 for other in (number - 1, number + 1)]
        reduction = Reduction(round(weights_of(owner)), round(weights))
        return NewStage(ranks[number], number, shape, pieces, near[0], near[1], reduction, {})

    def _owner(self, shape: Shape, number: int) -> Stage:
        """Return the captured stage that provides the start and the end of the new stage *number*."""
        if number == 0:
            return self.stages[0]
        return self.stages[1 if number < shape.stages - 1 and len(self.stages) > 2 else -1]

    def _layer(self, number: int, layer: int, shape: Shape) -> tuple[Stage, int, int]:
        """Return the captured source of *layer* in the new stage *number*, and the layer's new number."""
        depth = shape.layers // shape.stages
        place = number * depth + layer
        name = place if self.is_numbered_on else layer
        more = shape.layers - len(self.places)
        middle = min(shape.layers, len(self.places)) // 2
        wanted = place if place < middle else max(middle, place - more)  # layers in the middle are repeated
        first, last = bool(number) and not layer, layer == depth - 1

        def unlike(index: int) -> tuple[bool, bool, int]:
            at, place = self.places[index]
            is_last = place == self.stages[at].depth - 1
            return (at > 0 and not place) != first, is_last != last, abs(index - wanted)

        at, place = self.places[min(range(len(self.places)), key=unlike)]
        return self.stages[at], place, name

    def _ends(self, kind: str, shape: Shape, number: int) -> tuple[Stage | None, Stage | None]:
        """Return the captured stages that provide the start and the end of a pass (None: a message)."""
        first, last = self.stages[0], self.stages[-1]
        alone = len(self.stages) == 1
        low = first if number == 0 else None if alone else last
        high = last if number == shape.stages - 1 else None if alone else first
        return (low, high) if kind == FORWARD else (high, low)

    def _micro_batch(self, number: int, shape: Shape) -> int:
        """Return the captured micro-batch for micro-batch *number*: the first, the last, or a middle one."""
        last = self.micro_batches - 1
        if number == shape.micro_batches - 1 and (number or has_reductions(self.stages)):
            return last
        return min(number, last - 1 if self.micro_batches > 2 else last)


def _end(stage: Stage | None, key: Key, message_bytes: int) -> Piece:
    return message(key, message_bytes) if stage is None else Piece(stage, key)


def _check_captured(
    workload: Workload, layout: Layout, pipelines: Sequence[tuple[int, int]], captured: Sequence[_Pipeline]
) -> None:
    """Raise an error if an assembly of a pipeline's captured stages changes their dependencies."""
    everything = {0: 0, **{key: key for key in workload.groups}}
    for name, pipeline in zip(pipelines, captured, strict=True):
        shape = Shape(layout.stages, pipeline.micro_batches, pipeline.schedule, len(pipeline.places))
        ranks = [layout.rank(name, at) for at in range(layout.stages)]
        for number, stage in enumerate(pipeline.stages):
            made = pipeline.recut(shape, number, ranks, 0)
            made.group_of = everything
            if _messages(made.graph()) != _messages(stage.graph):
                raise WorkloadError(
                    f"Rank {stage.graph.rank} does not wait for its messages as the schedules of "
                    f"torch.distributed.pipelining do, so the waits of other stages are unknown. {INSTEAD}"
                )


def _messages(graph: Graph) -> list[tuple[object, ...]]:
    """Return the messages of *graph* in order, each with the index of the first row that waits for it."""
    nodes, edges = graph.node_columns, graph.edge_columns
    rows = {int(number): row for row, number in enumerate(nodes["node_id"].tolist())}
    messages = [row for row, kind in enumerate(nodes["type"].tolist()) if kind in MESSAGES]
    place = {row: number for number, row in enumerate(messages)}
    waited: dict[int, int] = {}
    for source, target, kind in zip(*(edges[name].tolist() for name in ("src", "dst", "kind")), strict=True):
        if kind == EdgeKind.COMM_WAIT and rows[source] in place:
            behind = sum(row < rows[target] for row in messages)
            waited[rows[source]] = min(behind, waited.get(rows[source], behind))
    names = ("type", "comm_src", "comm_dst", "comm_size_bytes", "stream")
    return [(*(int(nodes[name][row]) for name in names), waited.get(row)) for row in messages]


def _assumptions(captured: _Pipeline, shape: Shape, new: Layout, message_bytes: int) -> list[str]:
    now = len(captured.stages)
    each = count_text(shape.layers // shape.stages, "layer")
    schedule = {"1f1b": "1F1B", "gpipe": "GPipe"}[shape.schedule]
    lines = [
        f"{count_text(shape.stages, 'stage')} of the pipeline instead of {now}, with {each} each, and "
        f"{shape.micro_batches} micro-batches instead of {captured.micro_batches}, each as large as before, "
        f"in the order of {schedule}: layers, messages and the ends of stages come from the capture, "
        "and the work after the last pass (the optimizer) takes longer in proportion to the weights"
    ]
    if now == 1 < shape.stages:
        lines.append(
            f"A layer sends {bytes_text(message_bytes)} per micro-batch, and sending takes no host "
            f"time; stages are {count_text(new.stride, 'rank')} apart"
        )
    return lines


_ADDITIONS = ("aten::add", "aten::add_")
_SIZES = (2, 4, 8)  # bytes of an element


def passed_bytes(stage: Stage) -> int:
    """Return the bytes that each layer passes to the next layer: the size of the sum at its end.

    The function raises `WorkloadError` if a layer does not end with a sum.
    """
    nodes = stage.graph.node_columns
    sizes = set()
    for layer in range(stage.depth):
        begin, end = stage.blocks[FORWARD, 0, layer]
        last = next((row for row in reversed(range(begin, end)) if nodes["num_ops"][row] > 1), begin)
        elements, moved = int(nodes["num_ops"][last]), int(nodes["tensor_size_bytes"][last])
        is_sum = nodes["operator"].texts[nodes["operator"].numbers[last]] in _ADDITIONS
        is_tensor = is_sum and any(moved == _TENSORS * size * elements for size in _SIZES)
        sizes.add(moved // _TENSORS if is_tensor else 0)
    if len(sizes) != 1 or 0 in sizes:
        raise WorkloadError(
            "A capture without stages lacks the size of activations between layers, unless a layer ends with "
            "a sum of two tensors (a residual). Give the size per micro-batch: --activation 16MiB."
        )
    return sizes.pop()


def message(key: Key, size_bytes: int) -> Piece:
    """Return the piece that receives a message at the start of a pass, or sends a message at its end."""
    receives = key[2] == BEFORE
    kind = NodeType.COMM_RECV if receives else NodeType.COMM_SEND
    operator = "c10d::recv_" if receives else "c10d::send"
    call = {
        "type": NodeType.COMP,
        "operator": operator,
        "phase": "forward",
        "kind": "host",
        "cause": "communication_call",
        "tensor_size_bytes": size_bytes,
    }
    sent = {
        "type": kind, "operator": operator, "phase": "communication", "kind": "communication",
        "comm_size_bytes": size_bytes, "comm_tag": 0, "group": NO_GROUP, "stream": MESSAGE_LANE,
    }  # fmt: skip
    nodes = [{"node_id": 0, "name": operator, **call}, {"node_id": 1, "name": operator, **sent}]
    graph = Graph.build(0, nodes, [(0, 1, EdgeKind.COMM_ISSUE)])
    return Piece(Stage.of_message(graph, key), key)
