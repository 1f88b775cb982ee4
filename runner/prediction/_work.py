"""The amounts of work in a step, and the closed form of the step time from these amounts and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...converter import CollectiveType, NodeType
from ...support.table import Floats
from ..chips import Chip, Costs
from ._prices import FLASH_BACKWARD, Links, flash_prices, host_prices
from .models import (
    DENSE_KERNELS,
    LANES,
    OFFLOAD,
    PRODUCTS,
    Block,
    Exchange,
    Item,
    Operator,
    Passes,
    Phase,
    Plan,
    Spread,
    Stage,
    Transformer,
)

# ``parts`` counts the parts of collectives, one per rank; only the parts of overlapped collectives take
# time. ``layers`` counts passes over layers. The amounts of ``dispatch`` belong to exchanges of experts,
# which run within and between nodes at the same time.
AMOUNTS = (
    "gemm_flops", "half_gemm_flops", "gemm_bytes", "attention_flops", "flash_flops", "scores",
    "pointwise_bytes", "passes", "launches", "host", "host_back", "starts_within", "starts_across",
    "within_ns", "across_ns", "hops_ns", "copy_bytes", "host_bytes", "parts", "layers",
    "dispatch_within_ns", "dispatch_within_hops_ns", "dispatch_across_ns", "dispatch_across_hops_ns",
)  # fmt: skip
_PLACE = {name: place for place, name in enumerate(AMOUNTS)}
_DISPATCHED = [
    [_PLACE[f"dispatch_{level}_ns"], _PLACE[f"dispatch_{level}_hops_ns"]] for level in ("within", "across")
]
# What the rows of a step's work contain, for a micro-batch on each pipeline stage:
# stages: all work; forward: that of the forward pass
# products: the matrix products that run during collectives of activations; attention_products: those around
#   attention
# tensor: the collectives of activations, with copies; attention_tensor: those around attention
# gathered: the gathers of sharded weights in the forward pass; first, last: those of these layers
# overlapped: the other collectives of experts and sharded weights during computation; ended: those of the
#   first layer's gradients
# offloaded: the forward pass of layers with activations on the host; offloaded_back: their backward pass
# data: the collectives that run once per step; end: the work at the end of a step, such as the optimizer
_ROWS = (
    "stages", "forward", "products", "attention_products", "tensor", "attention_tensor", "gathered",
    "overlapped", "offloaded", "offloaded_back", "first", "last", "ended", "data", "end",
)  # fmt: skip
_OF_WEIGHTS = ("gathered", "first", "last", "ended", "data", "end")  # independent of the micro-batch
_DATA_LANES = range(40, 44)
_TENSOR_LANES = (20, 21, LANES["store"], LANES["load"])
_EXPERT_LANES = (22, 23)
_DISPATCH_LANES = (18, 19)
_ACTIVATION_AXES = ("tp", "cp", "ep", "etp")  # the axes along which ranks exchange activations
_OVERLAPPED_LANES = (*_TENSOR_LANES, *_EXPERT_LANES, *_DATA_LANES)


@dataclass(frozen=True)
class StepWork:
    """The amounts of work in a step, in the order of `AMOUNTS`.

    *rows* has a table for each of `_ROWS`, with a line per pipeline stage. *message* contains the amounts of
    one message between stages. If *hidden* is true, the collectives of the row ``data`` run during the
    passes of a micro-batch.
    """

    micro_batches: int
    chunks: int
    zero_bubble: bool
    rows: Floats
    message: Floats
    hidden: bool

    def grown(self, other: StepWork, times: int) -> StepWork:
        """Return this work plus *times* the difference of *other*, because work is linear in sequences."""
        grows = np.array([name not in _OF_WEIGHTS for name in _ROWS])[:, None, None]
        return replace(
            self,
            rows=self.rows + (other.rows - self.rows) * times * grows,
            message=self.message + (other.message - self.message) * times,
        )


class _UnitPrices:
    """Dummy prices: one unit per operator, so that the graph contains every node."""

    host_ns = step_ns = 1.0

    def operator_ns(self, operator: Operator) -> float:
        return 1.0 if operator.flops or operator.moved_bytes else 0.0

    def start_ns(self, where: Spread) -> float:
        return 1.0

    def slowed_ns(self, exchange: Exchange, where: Spread) -> float:
        return 0.0


def work_of(model: Transformer, plan: Plan, links: Links) -> StepWork:
    """Return the amounts of work in a step of *model*, or raise `UsageError` for an impossible *plan*."""
    plan.check(model)
    message = np.zeros(len(AMOUNTS))
    if plan.pp > 1:
        size = plan.message_bytes(model)
        across = plan.strides["pp"] >= links.node_size or plan.world > links.node_size
        speed, latency = links.figures("across" if across else "within")
        message[_PLACE["across_ns" if across else "within_ns"]] = size / speed
        message[_PLACE["hops_ns"]] = latency
    return StepWork(
        micro_batches=plan.micro_batches,
        chunks=plan.chunks,
        zero_bubble=plan.schedule == "zero-bubble",
        rows=np.stack(_stage_works(model, plan, links), axis=1),
        message=message,
        hidden=plan.overlap and not plan.shards_each_pass,
    )


def _stage_works(model: Transformer, plan: Plan, links: Links) -> list[Floats]:
    """Return the work of each stage; middle stages with the same kinds of layers are computed once."""
    if model.convolutions:
        line = _line(model, plan, links, 0, _spreads(plan, links, 0))
        return [_joined(line, _exchanges(model, plan, links, 0)) + _alone(model, plan, links, 0)]
    passes = _Passes(
        replace(plan.of_one_sequence, chunks=1, saved=()),
        plan.recomputation.mode,
        plan.saved,
        plan.micro_batch,
    )
    works: dict[tuple[int, Counts], Floats] = {}
    rows = []
    for stage in range(plan.pp):
        place = 0 if stage == 0 else plan.pp - 1 if stage == plan.pp - 1 else 1
        key = place, _layer_counts(model, plan.pp, plan.chunks, plan.recomputation.layers, stage)
        if key not in works:
            works[key] = _stage_work(model, passes, links, *key) + _alone(model, plan, links, stage)
        rows.append(works[key])
    return rows


class _Passes(NamedTuple):
    """The passes of micro-batches of *size* sequences; *plan* has one sequence and no recomputation.

    *mode* and *saved* describe the recomputed layers.
    """

    plan: Plan
    mode: str
    saved: tuple[str, ...]
    size: int


Counts = tuple[tuple[tuple[bool, bool], int], ...]
"""The number of layers by whether they have experts and whether they are recomputed."""


@lru_cache(1 << 12)
def _layer_counts(model: Transformer, pp: int, chunks: int, recomputed: int, stage: int) -> Counts:
    """Count the layers of *stage* by kind, if *recomputed* layers of each chunk (0: all) are recomputed."""
    plan = Plan(pp=pp, chunks=chunks)
    counts = Counter(
        (model.is_expert_layer(layer), not recomputed or place < recomputed)
        for chunk in range(chunks)
        for place, layer in enumerate(plan.layers_of(stage, chunk, model.layers))
    )
    return tuple(sorted(counts.items(), reverse=True))


def _stage_work(model: Transformer, passes: _Passes, links: Links, place: int, counts: Counts) -> Floats:
    """Return the work of a pipeline stage, as a row of amounts for each of `_ROWS`.

    Layers of the same kind have equal work. The work of the stage at *place* is the work of a stage with one
    layer, plus the work of further layers of each kind, by the *counts*.
    """
    base = counts[0][0]
    total = _sample(model, passes, links, place, base, 1)
    for kind, count in counts:
        more = count - (kind == base)
        if more:
            one, two = (_sample(model, passes, links, 0, kind, number) for number in (1, 2))
            total = total + (two - one) * more
    return total


@lru_cache(1 << 14)
def _sample(  # noqa: PLR0917 - all arguments form the cache key
    model: Transformer, passes: _Passes, links: Links, stage: int, kind: tuple[bool, bool], layers: int
) -> Floats:
    """Return the work of a *stage* with *layers* layers of one kind, as a row for each of `_ROWS`.

    The work of a micro-batch is linear in its sequences. Samples are cached for all plans. Sharding over data
    parallelism does not change the computation of a rank. Micro-batches and recomputation do not change the
    collectives of data parallelism.
    """
    plan, (is_expert, is_recomputed) = passes.plan, kind
    stages = min(plan.pp, 3)
    alone = replace(
        plan,
        pp=stages,
        dp=1,
        global_batch=1,
        zero=0,
        recompute=passes.mode if is_recomputed else "none",
        saved=passes.saved if is_recomputed else (),
    )
    place = stages - 1 if stage == plan.pp - 1 else stage
    spreads = _spreads(plan, links, stage)

    def sized(micro_batch: int) -> Floats:
        sample = replace(alone, micro_batch=micro_batch, global_batch=micro_batch)
        return _line(_of_layers(model, layers * stages, is_expert), sample, links, place, spreads)

    line = sized(1)
    if passes.size > 1:
        line = line + (sized(2) - line) * (passes.size - 1)
    return _joined(line, _exchanges(_of_layers(model, layers * plan.pp, is_expert), plan, links, stage))


def _joined(line: Floats, exchanges: Floats) -> Floats:
    *computed, experts, offloaded, offloaded_back = line
    gathered, overlapped, data, end = exchanges
    none = np.zeros(len(AMOUNTS))  # see `_alone`
    return np.stack([
        *computed, gathered, overlapped + experts, offloaded, offloaded_back, none, none, none, data, end,
    ])  # fmt: skip


@lru_cache(1 << 8)
def _of_layers(model: Transformer, layers: int, is_expert: bool) -> Transformer:
    """Return *model* with *layers* layers, all with experts or all without experts."""
    return replace(model, layers=layers, dense_layers=0 if is_expert else layers, expert_every=1)


def _spreads(plan: Plan, links: Links, stage: int) -> tuple[tuple[tuple[str, ...], Spread], ...]:
    """Return the placement (in nodes) of the groups of ranks that exchange activations."""
    place = Stage(plan, _UnitPrices(), links.node_size, stage)
    return tuple(((axis,), place.where((axis,))) for axis in _ACTIVATION_AXES if plan.degree(axis) > 1)


@dataclass(frozen=True)
class _PlacedStage(Stage):
    """A pipeline stage with groups placed in nodes by *spreads*, regardless of the stage's plan."""

    spreads: tuple[tuple[tuple[str, ...], Spread], ...]

    def where(self, axes: tuple[str, ...]) -> Spread:
        """Return the placement in nodes of a group along *axes*; for other axes, the placement of a rank."""
        return dict(self.spreads).get(axes, Spread(1, 1))


@lru_cache(1 << 15)
def _line(model: Transformer, plan: Plan, links: Links, stage: int, spreads: tuple[Any, ...]) -> Floats:
    """Return the work of the passes of a *stage* with one chunk, without data parallelism."""
    place = _PlacedStage(plan, _UnitPrices(), links.node_size, stage, spreads)
    passes = Passes(model, place)
    both = passes.forward(0).nodes, passes.backward(0).nodes
    nodes = [*both[0], *both[1]]
    offloaded = [
        [node for node in part if plan.recompute == OFFLOAD and node.get("module", "").startswith("layers.")]
        for part in both
    ]
    attention = [node for node in nodes if node.get("module", "").endswith(".attention")]
    hiding = [[node for node in part if node.get("hides")] for part in (nodes, attention)]
    computed = [_sum(part, place, links) for part in (nodes, both[0], *hiding)]
    tensor = [_sum(part, place, links, _TENSOR_LANES) for part in (nodes, attention)]
    experts = _sum(nodes, place, links, _EXPERT_LANES)
    return np.stack([*computed, *tensor, experts, *(_sum(part, place, links) for part in offloaded)])


class _Exchanges(Passes):
    """Passes with one dummy operator per layer, which are used only for their communication."""

    def layer(self, layer: int, *, backward: bool = False) -> list[Item]:
        """Return the dummy operator of a layer."""
        return [Operator("layer", "overhead", 1, 0, f"layers.{layer}")]

    def output(self, *, backward: bool = False) -> list[Item]:
        """Return the dummy operator of the output."""
        return [Operator("output", "overhead", 1, 0)]


@lru_cache(1 << 15)
def _exchanges(model: Transformer, plan: Plan, links: Links, stage: int) -> Floats:
    """Return the work of data-parallel collectives of a *stage*: in passes, once per step, and at the end."""
    place = Stage(plan, _UnitPrices(), links.node_size, stage)
    passes = _Exchanges(model, place)
    gathered = overlapped = data = np.zeros(len(AMOUNTS))
    if plan.shards_each_pass:
        gathered, overlapped = (
            _sum(block.nodes, place, links, _DATA_LANES) for block in (passes.forward(0), passes.backward(0))
        )
    else:
        nodes = [*passes.backward(0, reduces=True).nodes, *passes.forward(0, is_first=True).nodes]
        data = _sum(nodes, place, links, _DATA_LANES)
    end = passes.end().nodes
    whole = _sum(end, place, links) + _sum(end, place, links, _OVERLAPPED_LANES)
    return np.stack([gathered, overlapped, data, whole])


def _alone(model: Transformer, plan: Plan, links: Links, stage: int) -> Floats:
    """Return the work of weight collectives of the first and last layer, which computation may not hide.

    The first gather and the last reduction of a step overlap no computation.
    """
    rows = np.zeros((len(_ROWS), len(AMOUNTS)))
    if plan.shards_each_pass:
        place = Stage(plan, _UnitPrices(), links.node_size, stage)
        for name, exchanges in Passes(model, place).of_ends().items():
            block = Block()
            for exchange in exchanges:
                place.exchange(block, exchange, [], _DATA_LANES[0])
            rows[_ROWS.index(name)] = _sum(block.nodes, place, links, _DATA_LANES)
        rows[_ROWS.index("end")] = rows[_ROWS.index("first")] + rows[_ROWS.index("ended")]
    return rows


def _sum(nodes: Iterable[Mapping[str, Any]], stage: Stage, links: Links, lanes: Sequence[int] = ()) -> Floats:
    """Return the work of *nodes* on *lanes*; the default is all nodes that do not overlap computation."""
    total = np.zeros(len(AMOUNTS))
    for node in nodes:
        lane = node["stream"] % 100
        if (lane not in lanes if lanes else lane in _OVERLAPPED_LANES) or node["type"] in (
            NodeType.COMM_SEND,
            NodeType.COMM_RECV,
        ):
            continue
        for name, amount in _amounts(node, stage, links):
            total[_PLACE[name]] += amount
    return total


def _amounts(node: Mapping[str, Any], stage: Stage, links: Links) -> list[tuple[str, float]]:
    operator = node["operator"]
    if node["type"] == NodeType.COMM_COLL:
        return _transfer(node, stage, links)
    if operator in PRODUCTS:
        return [(f"{operator}_flops", node["num_ops"]), ("gemm_bytes", node["tensor_size_bytes"])]
    if operator in ("attention", "flash"):
        part = 1 / FLASH_BACKWARD if operator == "flash" and node["name"].endswith("gradient") else 1
        kind = "flash_flops" if operator == "flash" else "attention_flops"
        return [(kind, node["num_ops"] * part), ("scores", node["scores"] * part)]
    if operator in ("pointwise", "cast"):
        return [("pointwise_bytes", node["tensor_size_bytes"])]
    if operator in ("copy", "host"):
        return [(f"{operator}_bytes", node["tensor_size_bytes"])]
    if operator == "overhead":
        return [("passes", node["num_ops"]), ("layers", 1.0)]
    if operator == "launches":
        return [("launches", node["num_ops"])]
    if operator == "launch":
        return [("host" if node["phase"] == "forward" else "host_back", node["duration_ns"])]
    return [(f"starts_{operator[6:]}", 1.0)] if operator.startswith("start ") else []


def _transfer(node: Mapping[str, Any], stage: Stage, links: Links) -> list[tuple[str, float]]:
    axes, level = node["group"]
    where = stage.where(axes)
    level = ("within" if where.nodes == 1 else "across") if level == "all" else level
    step = Phase(CollectiveType(node["comm_type"]), level, node["comm_size_bytes"])
    transfer, hops = links.transfer_ns(step, where)
    if node["stream"] in _DISPATCH_LANES:
        return [(f"dispatch_{level}_ns", transfer), (f"dispatch_{level}_hops_ns", hops)]
    return [(f"{level}_ns", transfer), ("hops_ns", hops), ("parts", where.inside * where.nodes)]


def coefficients(chip: Chip, costs: Costs, precision: str) -> Floats:
    """Return the time per unit (ns) of each of `AMOUNTS`; 0 for host work."""
    memory = chip.memory_bytes_per_s / 1e9
    offload = host_prices(chip)
    return np.array([
        1e9 / chip.flops_per_s(costs, "gemm", precision),
        1e9 / chip.flops_per_s(costs, "gemm", chip.precision),
        costs.gemm_memory / memory,
        1e9 / chip.flops_per_s(costs, "attention", precision),
        *flash_prices(chip, costs, precision),
        1 / (memory * costs.pointwise),
        costs.layer_ns,
        costs.host_ns / DENSE_KERNELS,
        0.0,
        0.0,
        costs.within_node.latency_ns,
        costs.across_nodes.latency_ns,
        1 / costs.within_node.share,
        1 / costs.across_nodes.share,
        1.0,
        *offload,
        0.0,
        0.0,
        1 / costs.within_node.share,
        1.0,
        1 / costs.across_nodes.share,
        1.0,
    ])  # fmt: skip


class Batch:
    """Several steps, with step times computed together in arrays."""

    def __init__(self, works: Sequence[StepWork]) -> None:
        self._count = np.array([work.rows.shape[1] for work in works])
        self._starts = np.cumsum([0, *self._count[:-1]])
        rows = np.concatenate([work.rows for work in works], axis=1)
        self._rows: dict[str, Floats] = dict(zip(_ROWS, rows, strict=True))
        self._message = np.stack([work.message for work in works])
        self._turns = np.array([work.micro_batches for work in works]) - 1.0
        self._chunks = np.array([work.chunks for work in works])
        self._bubble_free = np.array([work.zero_bubble for work in works])
        self._hidden = np.repeat([work.hidden for work in works], self._count)

    def step_ns(self, price: Floats, costs: Costs) -> Floats:
        """Return the time of each step in ns, with a *price* from `coefficients` and with *costs*."""
        times = {name: _exposed_ns(row, price) for name, row in self._rows.items()}
        each = self._micro_batch_ns(times, price, costs)
        slowest, every = np.maximum.reduceat(each, self._starts), np.add.reduceat(each, self._starts)
        message = (self._message @ price) * 2
        # A message delays the next pass unless the receiving stage is late for another reason.
        typical = (every - slowest) / np.maximum(self._count - 1, 1)
        turn = np.where(self._count > 1, np.maximum(slowest, typical + message), slowest)
        # The first micro-batch passes all stages. With several chunks, the first micro-batch needs only a
        # part of the other stages' time.
        others = (every - slowest) / self._chunks
        others = np.where(self._bubble_free, others * 2 / 3, others)
        first = slowest + others + (self._count - 1) * message
        data = times["data"] - np.where(self._hidden, self._concurrent_ns("data", price), 0)
        left = np.maximum(data - times["stages"] * _HIDDEN, data / _BUCKETS)
        end = times["end"] + np.where(self._hidden, left, data)
        longest: Floats = self._turns * turn + first + np.maximum.reduceat(end, self._starts)
        return longest + costs.step_ns

    def _micro_batch_ns(self, times: Mapping[str, Floats], price: Floats, costs: Costs) -> Floats:
        """Return the time of a micro-batch on each stage in ns."""
        transfers = price.copy()
        transfers[[_PLACE[name] for name in ("starts_within", "starts_across", "hops_ns", "copy_bytes")]] = 0
        rows, copy_ns = self._rows, price[_PLACE["copy_bytes"]]
        copies = rows["tensor"][:, _PLACE["copy_bytes"]] * copy_ns
        tensor = times["tensor"] - copies
        slowed = costs.exposed_tensors * rows["tensor"]
        slowed += costs.exposed * (rows["gathered"] + rows["overlapped"])
        worked = times["stages"] + slowed @ transfers
        # A long collective of attention is not hidden by the matmuls of the feed-forward part.
        alone = times["attention_tensor"] - times["attention_products"]
        worked += np.maximum(alone, 0) + np.maximum(tensor - times["products"] - alone, 0)
        worked += rows["tensor"][:, _PLACE["parts"]] * costs.part_ns
        worked = self._with_host(worked, price, costs)
        worked += self._awaited_ns(copies / 2, price)
        stalled = worked + self._stalled_ns(times, worked, price)
        overlapped = tensor + times["overlapped"] - self._concurrent_ns("tensor", price, "overlapped")
        longer: Floats = np.maximum(np.maximum(stalled, times["gathered"] + overlapped), copies / 2)
        return longer

    def _stalled_ns(self, times: Mapping[str, Floats], worked: Floats, price: Floats) -> Floats:
        """Return how long a micro-batch, which computes for *worked*, waits for sharded weights (ns).

        The weights of a layer are gathered while the layer before computes, and those of the first layer
        while the previous micro-batch ends its backward pass. Gathers wait for earlier reductions. Waits are
        left out for a single layer, and for several chunks, between which other passes run.
        """
        forward = worked * times["forward"] / np.maximum(times["stages"], 1)
        backward = worked - forward
        layers = np.maximum(self._rows["forward"][:, _PLACE["layers"]], 1)
        each, each_back = forward / layers, backward / layers
        first, last, ended = times["first"], times["last"], times["ended"]
        gathered = np.maximum(times["gathered"] - first - last, 0) / np.maximum(layers - 2, 1)
        reduced = times["overlapped"] - self._concurrent_ns("overlapped", price) - ended
        reduced = np.maximum(reduced, 0) / np.maximum(layers - 1, 1)
        second = np.where(layers > 2, gathered, last)
        turns = np.repeat(self._turns / (self._turns + 1), self._count)
        stalled = turns * np.maximum(reduced + first - each_back, 0)
        stalled += turns * np.maximum(ended + second - each, 0) + (1 - turns) * np.maximum(second - each, 0)
        stalled += np.maximum(layers - 3, 0) * np.maximum(gathered - each, 0)
        stalled += np.where(layers > 2, np.maximum(last - each, 0), 0)
        stalled += np.maximum(layers - 2, 0) * np.maximum(reduced - each_back, 0)
        is_sharded = (times["gathered"] > 0) & (layers > 1) & (np.repeat(self._chunks, self._count) == 1)
        return np.where(is_sharded, stalled, 0)

    def _with_host(self, worked: Floats, price: Floats, costs: Costs) -> Floats:
        """Return *worked*, the time of a micro-batch on the chip, with the host's launches.

        The host runs ahead of the chip, except where it waits for token counts in forward passes.
        """
        stages = self._rows["stages"]
        idle, forward, backward = (
            stages[:, _PLACE[name]] * each
            for name, each in (
                ("launches", price[_PLACE["launches"]]),
                ("host", costs.host_ns),
                ("host_back", costs.host_ns),
            )
        )
        busy = worked - idle
        ahead = np.where(idle > 0, busy / 3, 0)  # the share of forward passes
        launched: Floats = idle + np.maximum(busy, np.maximum(forward, ahead) + backward)
        return launched

    def _concurrent_ns(self, name: str, price: Floats, *more: str) -> Floats:
        """Return how long transfers within nodes overlap transfers between nodes (ns)."""
        rows = sum((self._rows[other] for other in more), self._rows[name])
        within, across = (
            rows[:, _PLACE[level]] * price[_PLACE[level]] for level in ("within_ns", "across_ns")
        )
        shorter: Floats = np.minimum(within, across)
        return shorter

    def _awaited_ns(self, each_way: Floats, price: Floats) -> Floats:
        """Return how long a micro-batch's layers wait for copies that take *each_way* per direction (ns).

        In a forward pass, a layer waits for the copy of the layer before the previous layer, so the copies of
        the last two layers of a chunk delay no layer. In a backward pass, a layer's copy runs during the
        layer before. If all layers of a chunk are copied, the first copy runs during a layer of a forward
        pass, or during the loss.
        """
        forward, backward = (_exposed_ns(self._rows[name], price) for name in ("offloaded", "offloaded_back"))
        copied, layers = (self._rows[name][:, _PLACE["layers"]] for name in ("offloaded", "forward"))
        chunks = np.repeat(self._chunks, self._count)
        without_loss = chunks.copy()
        without_loss[self._starts + self._count - 1] -= 1
        each, early = (np.minimum(part / np.maximum(copied, 1), 1) for part in (chunks, without_loss))
        late, late_back = np.maximum(each_way - forward, 0), np.maximum(each_way - backward, 0)
        whole = copied == layers
        awaited: Floats = late * np.maximum(1 - 2 * each, 0) + np.where(whole, late * early, 0)
        awaited += late_back * np.where(whole, 1 - each, 1)
        return awaited


def _exposed_ns(rows: Floats, price: Floats) -> Floats:
    """Return the times of *rows* in ns; of two concurrent transfers of a dispatch, the longer one counts."""
    within, across = (rows[:, places] @ price[places] for places in _DISPATCHED)
    times: Floats = rows @ price - np.minimum(within, across)
    return times


# The gradients of all layers except one can be reduced during the passes of a micro-batch. One bucket of
# gradients is reduced after the passes.
_HIDDEN = 0.9
_BUCKETS = 10
