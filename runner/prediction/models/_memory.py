"""The memory of a rank: weights, gradients, optimizer state, and activations in flight."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ._plan import Plan
from ._transformer import Transformer

__all__ = ["Memory", "activation_bytes", "fullest_memory", "in_flight", "rank_memory"]

_MASTER, _ADAM = 4, 8  # bytes a parameter: the weight in single precision, and two moments


@dataclass(frozen=True)
class Memory:
    """The peak memory of a rank of *stage*, in bytes by category."""

    stage: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    output: int
    working: int

    @property
    def total(self) -> int:
        """All of it; the output is gone before the first layer works backwards."""
        held = self.weights + self.gradients + self.optimizer + self.activations
        return held + max(self.output, self.working)


def rank_memory(model: Transformer, plan: Plan, stage: int) -> Memory:
    """Return the memory of a rank of *stage* at its peak."""
    kinds = _kinds(model, plan.pp, plan.chunks, stage)
    experts = sum(count * _expert_params(model, plan, layer) for layer, count in kinds)
    params = sum(count * _params(model, plan, layer) for layer, count in kinds)
    ends = 0.0
    if stage == 0:
        ends += model.embedding_params / plan.tp
    last = stage == plan.pp - 1
    if last and not (model.tied and plan.pp == 1):
        ends += (model.classes or model.vocab) * model.hidden / plan.tp
    params += ends
    # Ranks with the same experts are fewer than those with the same other weights.
    owned = (params - experts) / plan.degree(*plan.data_axes) + experts / plan.degree("edp")
    size = plan.element_bytes
    # Weights in single precision are their own master.
    master = 0 if size == _MASTER else _MASTER
    weights, gradients, optimizer = params * size, params * plan.grad_bytes, params * (master + _ADAM)
    if plan.zero == 1:
        optimizer = owned * (master + _ADAM)
    working = 0.0
    if plan.zero >= 2:
        # Sharded weights are kept in single precision alone; two layers are whole at a time.
        gradients, optimizer = owned * 4, owned * (_MASTER + _ADAM)
        largest = max(_params(model, plan, layer) for layer, _ in kinds)
        weights, working = (0.0, 2 * max(largest, ends) * size) if plan.zero == 3 else (params * size, 0.0)
    if plan.frozen:
        # Frozen weights are kept as they are computed with.
        if plan.zero == 3:
            weights = owned * size
        adapters = sum(count for _, count in kinds) * model.adapter_params(plan.lora) / plan.tp
        share = 1 / plan.degree(*plan.data_axes)
        weights += adapters * size
        gradients = adapters * plan.grad_bytes * (share if plan.zero >= 2 else 1)
        optimizer = adapters * (master + _ADAM) * (share if plan.zero else 1)
    each = [activation_bytes(model, plan, layer) for layer, _ in kinds]
    held = sum(size * count for size, (_, count) in zip(each, kinds, strict=True))
    kept = held / plan.chunks * in_flight(plan, stage)
    if plan.recompute != "none":
        whole = max(activation_bytes(model, plan, layer, recompute="none") for layer, _ in kinds)
        working += max(0.0, whole - max(each))
    output = _output_bytes(model, plan) if last else 0.0
    return Memory(stage, *(round(part) for part in (weights, gradients, optimizer, kept, output, working)))


def fullest_memory(model: Transformer, plan: Plan) -> Memory:
    """Return the memory of a rank of the fullest stage."""
    stages = _different_stages(model, plan.pp, plan.chunks)
    return max((rank_memory(model, plan, stage) for stage in stages), key=lambda memory: memory.total)


@lru_cache(1 << 10)
def _different_stages(model: Transformer, pp: int, chunks: int) -> tuple[int, ...]:
    """Return the first of all stages with the same layers, which has most micro-batches in flight."""
    first: dict[tuple[object, ...], int] = {}
    for stage in range(pp):
        kinds = [(model.is_expert_layer(layer), count) for layer, count in _kinds(model, pp, chunks, stage)]
        first.setdefault((stage == 0, *kinds), stage)
    return tuple({*first.values(), pp - 1})


def in_flight(plan: Plan, stage: int) -> int:
    """Return how many forward passes of a part of the model wait for their backward passes at a time.

    What `schedule` comes to, without listing its turns.
    """
    behind = plan.pp - stage - 1
    if plan.pp > 1 and plan.schedule == "zero-bubble":
        return min(plan.pp, plan.micro_batches)
    if plan.pp > 1 and plan.schedule == "interleaved":
        return min(behind * 2 + (plan.chunks - 1) * plan.pp + 1, plan.micro_batches * plan.chunks)
    return min(behind + 1, plan.micro_batches)


@lru_cache(1 << 14)
def _kinds(model: Transformer, pp: int, chunks: int, stage: int) -> tuple[tuple[int, int], ...]:
    """Return a layer of each kind that *stage* has, with how many of that kind there are."""
    plan = Plan(pp=pp, chunks=chunks)
    counts: dict[int, tuple[int, int]] = {}
    for chunk in range(chunks):
        for layer in plan.layers_of(stage, chunk, model.layers):
            kind = layer if model.convolutions else model.is_expert_layer(layer)
            first, count = counts.get(kind, (layer, 0))
            counts[kind] = first, count + 1
    return tuple(counts.values())


def activation_bytes(model: Transformer, plan: Plan, layer: int, recompute: str | None = None) -> float:
    """Return what *layer* keeps of a micro-batch for its backward pass, with another *recompute* if given.

    As Korthikanti et al. count it (34 + 5 a s / h bytes a token and hidden number of a GPT in half precision,
    10 of them whole on every tensor-parallel rank), for other feed-forward parts and heads too; eager
    frameworks that shard weights also keep what norms and positions compute in single precision, and the
    gate apart from its activation. Experts keep a copy of a token each. Products of a low precision keep
    their operands in it, that of attention's output in addition to the output. Products with *frozen* weights
    keep no inputs: behind the norm and the activation of a feed-forward part.
    """
    recompute = recompute or plan.recompute
    if model.convolutions:
        found = model.convolutions[layer]
        # The product and its normalisation keep their inputs, the activation is done in place.
        return plan.micro_batch * found.outputs * found.positions * plan.element_bytes * (1 + found.norm)
    sequence = plan.sequence or model.sequence
    tokens = plan.micro_batch * sequence / plan.cp
    hidden, tp = model.hidden, plan.tp
    kept = 1 / tp if plan.sequence_parallel else 1.0
    # The counts below are of half precision.
    tokens *= plan.element_bytes / 2
    wide = _feed_forward_width(model, layer)
    kv_size = model.kv_size_on(tp) * tp
    if recompute == "full":
        columns = {
            "qkv": (model.query_size + 2 * kv_size) / tp,
            "projection": hidden * kept,
            "up": wide * (model.matrices - 1) / tp,
            "down": hidden * kept,
        }
        return tokens * 2 * (hidden * kept + sum(columns[name] for name in plan.saved))
    heads = (2 * model.query_size + 2 * kv_size) / hidden  # queries, keys, values, and what comes out
    if recompute == "selective" and plan.fused_attention:
        products = 2 + heads + wide / hidden * (model.matrices - 1) + 1
        return tokens * hidden * 2 * products * (kept if tp > 1 else 1)
    # Norms and positions in single precision; fused attention comes without dropout, whose masks are two
    # bytes.
    eager = _is_eager(plan) and not model.learned_positions
    whole = 16.0 if eager else 8.0 if plan.fused_attention else 10.0
    split = 2 * heads + 2 * wide / hidden * ((4 if eager else 3) if model.gated else 2)
    operand = min(plan.operand_bytes, 2.0)
    inputs = 1 + (model.top_k if model.is_expert_layer(layer) else 1)
    whole += operand * inputs - 4
    split += (operand - 2) * wide / hidden + (operand * model.query_size / hidden if operand < 2 else 0)
    if plan.frozen:
        whole -= operand
        split -= operand * wide / hidden
    if eager:
        split += 6 * (model.query_size + kv_size) / hidden + 4 * (model.query_size - kv_size) / hidden
    scores = 0.0
    if not plan.fused_attention and recompute == "none":
        scores = 5 * model.heads * sequence / hidden
    return tokens * hidden * (whole * kept + (split + scores) / tp)


def _is_eager(plan: Plan) -> bool:
    return plan.zero >= 2


def _feed_forward_width(model: Transformer, layer: int) -> float:
    if not model.is_expert_layer(layer):
        return model.ffn
    return (model.top_k + model.shared_experts) * model.expert_ffn


def _params(model: Transformer, plan: Plan, layer: int) -> float:
    """Return the parameters of *layer* on one rank."""
    return model.shared_params_on(plan.tp, layer) + _expert_params(model, plan, layer)


def _expert_params(model: Transformer, plan: Plan, layer: int) -> float:
    """Return the parameters of the experts of *layer* on one rank."""
    if not model.is_expert_layer(layer):
        return 0.0
    return model.experts * model.expert_params / plan.ep / plan.expert_tp


def _output_bytes(model: Transformer, plan: Plan) -> float:
    """Return what the end of the model keeps of its logits, by default three times: two of them in fp32."""
    if model.classes:
        return plan.micro_batch * model.classes * 10
    tokens = plan.micro_batch * (plan.sequence or model.sequence) / plan.cp
    return tokens * model.vocab / plan.tp * model.loss_bytes
