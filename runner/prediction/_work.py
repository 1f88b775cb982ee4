"""The amounts of work in a step, to be multiplied by costs: a closed form of the simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter import CollectiveType, NodeType
from ..chips import Chip, Costs
from ._links import Links
from ._prices import FLASH_BACKWARD
from .models import (
    PRODUCTS,
    Exchange,
    Operator,
    Passes,
    Phase,
    Plan,
    Spread,
    Stage,
    Transformer,
)

__all__ = ["AMOUNTS", "Batch", "StepWork", "coefficients", "work_of"]

Floats = npt.NDArray[np.float64]
AMOUNTS = (
    "gemm_flops",
    "half_gemm_flops",
    "gemm_bytes",
    "attention_flops",
    "pointwise_bytes",
    "passes",
    "host",
    "starts_within",
    "starts_across",
    "within_ns",
    "across_ns",
    "hops_ns",
)
_PLACE = {name: place for place, name in enumerate(AMOUNTS)}
_DATA_LANES = range(40, 44)
_OVERLAPPED_LANES = (*range(20, 22), *_DATA_LANES)


@dataclass(frozen=True)
class StepWork:
    """The amounts of a step, in the order of `AMOUNTS`.

    *stages* has those of a micro-batch on each pipeline stage, *overlapped* those of collectives during its
    computation, *data* those of collectives once a step, *end* the rest of a step; *message* is one message
    between stages. Of *data*, the share *hidden* runs during the passes of a micro-batch.
    """

    micro_batches: int
    chunks: int
    zero_bubble: bool
    stages: Floats
    overlapped: Floats
    data: Floats
    end: Floats
    message: Floats
    hidden: bool


class _UnitPrices:
    """Prices at which every node exists."""

    host_ns = step_ns = 1.0

    def operator_ns(self, operator: Operator) -> float:
        return 1.0 if operator.flops or operator.moved_bytes else 0.0

    def start_ns(self, where: Spread) -> float:
        return 1.0

    def slowed_ns(self, exchange: Exchange, where: Spread) -> float:
        return 0.0


def work_of(model: Transformer, plan: Plan, links: Links) -> StepWork:
    """Return the amounts of a step of *model* by *plan*; raises `UsageError` for one that cannot be."""
    plan.check(model)
    rows = _stage_works(model, plan, links)
    stages, overlapped, data, end = (np.stack([row[place] for row in rows]) for place in range(4))
    message = np.zeros(len(AMOUNTS))
    if plan.pp > 1:
        size = _message_bytes(model, plan)
        across = plan.strides["pp"] >= links.node_size or plan.world > links.node_size
        speed, latency = links.figures("across" if across else "within")
        message[_PLACE["across_ns" if across else "within_ns"]] = size / speed
        message[_PLACE["hops_ns"]] = latency
    return StepWork(
        micro_batches=plan.micro_batches,
        chunks=plan.chunks,
        zero_bubble=plan.schedule == "zero-bubble",
        stages=stages,
        overlapped=overlapped,
        data=data,
        end=end,
        message=message,
        hidden=plan.overlap and plan.zero < 2,
    )


def _message_bytes(model: Transformer, plan: Plan) -> float:
    sequence = plan.sequence or model.sequence
    return plan.micro_batch * sequence / plan.cp / plan.tp * model.hidden * plan.element_bytes


def _stage_works(model: Transformer, plan: Plan, links: Links) -> list[Floats]:
    """Return the work of each stage, those in the middle with the same kinds of layers counted once."""
    if model.convolutions:
        return [_work(model, plan, links, 0)]
    known: dict[tuple[int, int, int], Floats] = {}
    rows = []
    for stage in range(plan.pp):
        parts = [plan.layers_of(stage, chunk, model.layers) for chunk in range(plan.chunks)]
        experts = (
            sum(model.is_expert_layer(layer) for part in parts for layer in part) if model.experts else 0
        )
        place = 0 if stage == 0 else plan.pp - 1 if stage == plan.pp - 1 else 1
        key = place, experts, sum(map(len, parts)) - experts
        if key not in known:
            known[key] = _stage_work(model, plan, links, place, {True: key[1], False: key[2]})
        rows.append(known[key])
    return rows


def _stage_work(model: Transformer, plan: Plan, links: Links, place: int, counts: dict[bool, int]) -> Floats:
    """Return the amounts per micro-batch, those overlapped with it, per step overlapped, and at its end.

    Layers of a kind are alike, so the stage at *place* is one with a layer, and as many more of those that
    have experts and of others as *counts* says.
    """
    kind = counts[True] > 0
    total = _sample(model, plan, links, place, kind, 1)
    for is_expert, count in counts.items():
        more = count - (is_expert == kind)
        if more:
            one, two = (_sample(model, plan, links, 0, is_expert, number) for number in (1, 2))
            total = total + (two - one) * more
    return total


def _sample(  # noqa: PLR0917 - what a sample is of
    model: Transformer, plan: Plan, links: Links, stage: int, is_expert: bool, layers: int
) -> Floats:
    """Return the work of a *stage* with *layers* layers of a kind, a row for each of the four kinds.

    Work per micro-batch is the work per sequence.
    """

    def sized(micro_batch: int) -> Floats:
        # All turns that schedules order otherwise do the same.
        alike = replace(
            plan, chunks=1, schedule="1f1b", micro_batch=micro_batch, global_batch=plan.dp * micro_batch
        )
        return _sample_work(model, alike, links, stage, is_expert, layers)

    first = sized(1)
    return first if plan.micro_batch == 1 else first + (sized(2) - first) * (plan.micro_batch - 1)


@lru_cache(1 << 15)
def _sample_work(  # noqa: PLR0917 - all of the key
    model: Transformer, plan: Plan, links: Links, stage: int, is_expert: bool, layers: int
) -> Floats:
    """Return the work of a *stage* with *layers* layers of a kind, a row for each of the four kinds."""
    dense = 0 if is_expert else layers * plan.pp
    small = replace(model, layers=layers * plan.pp, dense_layers=dense, expert_every=1)
    return _work(small, plan, links, stage)


def _work(model: Transformer, plan: Plan, links: Links, stage: int) -> Floats:
    """Return the work of a *stage* of one chunk, a row for each of the four."""
    place = Stage(plan, _UnitPrices(), links.node_size, stage)
    passes = Passes(model, place)
    forward, backward = passes.forward(0).nodes, passes.backward(0).nodes
    line = _sum(forward, place, links) + _sum(backward, place, links)
    overlapped = _sum(forward, place, links, _OVERLAPPED_LANES) + _sum(
        backward, place, links, _OVERLAPPED_LANES
    )
    data = np.zeros(len(AMOUNTS))
    if plan.zero < 2:
        for ends in (passes.backward(0, reduces=True), passes.forward(0, is_first=True)):
            data += _sum(ends.nodes, place, links, _DATA_LANES)
    end = passes.end().nodes
    whole = _sum(end, place, links) + _sum(end, place, links, _OVERLAPPED_LANES)
    return np.stack([line, overlapped, data, whole])


def _sum(nodes: Iterable[Mapping[str, Any]], stage: Stage, links: Links, lanes: Sequence[int] = ()) -> Floats:
    """Return the amounts of *nodes* on *lanes*, or of those that do not overlap computation."""
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
        backward = operator == "flash" and node["name"].endswith("gradient")
        return [("attention_flops", node["num_ops"] / (FLASH_BACKWARD if backward else 1))]
    if operator in ("pointwise", "cast"):
        return [("pointwise_bytes", node["tensor_size_bytes"])]
    if operator == "overhead":
        return [("passes", node["num_ops"])]
    if operator == "launch":
        return [("host", node["duration_ns"])]
    return [(f"starts_{operator[6:]}", 1.0)] if operator.startswith("start ") else []


def _transfer(node: Mapping[str, Any], stage: Stage, links: Links) -> list[tuple[str, float]]:
    axes, level = node["group"]
    where = stage.where(axes)
    level = ("within" if where.nodes == 1 else "across") if level == "all" else level
    step = Phase(CollectiveType(node["comm_type"]), level, node["comm_size_bytes"])
    transfer, hops = links.transfer_ns(step, where)
    return [(f"{level}_ns", transfer), ("hops_ns", hops)]


def coefficients(chip: Chip, costs: Costs, precision: str) -> Floats:
    """Return what one of each of `AMOUNTS` takes, in ns; of host work, nothing."""
    memory = chip.memory_bytes_per_s / 1e9
    return np.array([
        1e9 / chip.flops_per_s(costs, "gemm", precision),
        1e9 / chip.flops_per_s(costs, "gemm", chip.precision),
        costs.gemm_memory / memory,
        1e9 / chip.flops_per_s(costs, "attention", precision),
        1 / (memory * costs.pointwise),
        costs.layer_ns,
        0.0,
        costs.within_node.latency_ns,
        costs.across_nodes.latency_ns,
        1 / costs.within_node.share,
        1 / costs.across_nodes.share,
        1.0,
    ])  # fmt: skip


class Batch:
    """Several steps, whose times are computed together."""

    def __init__(self, works: Sequence[StepWork]) -> None:
        self._starts = np.cumsum([0, *(len(work.stages) for work in works)])[:-1]
        self._count = np.array([len(work.stages) for work in works])
        self._stages, self._overlapped, self._data, self._end = (
            np.concatenate([getattr(work, name) for work in works])
            for name in ("stages", "overlapped", "data", "end")
        )
        self._message = np.stack([work.message for work in works])
        self._turns = np.array([work.micro_batches for work in works]) - 1.0
        self._chunks = np.array([work.chunks for work in works])
        self._bubble_free = np.array([work.zero_bubble for work in works])
        self._hidden = np.repeat([work.hidden for work in works], self._count)

    def step_ns(self, price: Floats, host_ns: float, rest_ns: float, exposed: float) -> Floats:
        """Return the time of each step: *price* as `coefficients` has it, and other figures of `Costs`."""
        transfers = price.copy()
        transfers[[_PLACE["starts_within"], _PLACE["starts_across"], _PLACE["hops_ns"]]] = 0
        # Transfers within nodes overlap those between nodes, of another layer.
        within, across = (
            self._overlapped[:, _PLACE[name]] * price[_PLACE[name]] for name in ("within_ns", "across_ns")
        )
        overlapped = self._overlapped @ price - np.minimum(within, across)
        computed = self._stages @ price + exposed * (self._overlapped @ transfers)
        computed = np.maximum(computed, self._stages[:, _PLACE["host"]] * host_ns)
        each = np.maximum(computed, overlapped)
        slowest, every = np.maximum.reduceat(each, self._starts), np.add.reduceat(each, self._starts)
        message = (self._message @ price) * 2
        # A message delays the next turn unless the stage that gets it is behind anyway.
        typical = (every - slowest) / np.maximum(self._count - 1, 1)
        turn = np.where(self._count > 1, np.maximum(slowest, typical + message), slowest)
        # What the first micro-batch needs on all stages; with several chunks, of the others a part.
        others = (every - slowest) / self._chunks
        others = np.where(self._bubble_free, others * 2 / 3, others)
        first = slowest + others + (self._count - 1) * message
        within, across = (
            self._data[:, _PLACE[name]] * price[_PLACE[name]] for name in ("within_ns", "across_ns")
        )
        data = self._data @ price - np.where(self._hidden, np.minimum(within, across), 0)
        left = np.maximum(data - (self._stages @ price) * _HIDDEN, data / _BUCKETS)
        # The weights of the first layer and the gradients of the last overlap with nothing.
        alone = overlapped * _PASSES / np.maximum(self._stages[:, _PLACE["passes"]], 1)
        end = self._end @ price + np.where(self._hidden, left, data + alone)
        longest: Floats = self._turns * turn + first + np.maximum.reduceat(end, self._starts)
        return longest + rest_ns


# Gradients of all layers but one can be reduced during the passes of a micro-batch; what is left is a bucket.
_HIDDEN = 0.9
_BUCKETS = 10
_PASSES = 3  # over a layer, in the count of `AMOUNTS`
