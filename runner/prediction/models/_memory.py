"""The memory of a rank: weights, gradients, optimizer state, and activations in flight."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ._plan import OFFLOAD, Plan, Recomputation
from ._transformer import Transformer

_MASTER, _ADAM = 4, 8  # bytes per parameter: the weight in single precision, and two moments
_SINGLE = 4


@dataclass(frozen=True)
class Memory:
    """The peak memory of a rank of pipeline stage *stage*, in bytes by category.

    *buffers* are the bytes that PyTorch reserves for collectives and messages during the whole step.
    """

    stage: int
    weights: int
    gradients: int
    optimizer: int
    buffers: int
    activations: int
    output: int
    working: int

    @property
    def total(self) -> int:
        """The peak of all memory in bytes; *output* is released before the first layer's backward pass."""
        held = self.weights + self.gradients + self.optimizer + self.buffers + self.activations
        return held + max(self.output, self.working)


def rank_memory(
    model: Transformer, plan: Plan, stage: int, recomputation: Recomputation | None = None
) -> Memory:
    """Return the peak memory of a rank of *stage*; *recomputation* may replace the plan's recomputation."""
    # Memory grows linearly with the number of sequences, so the cache stores one sequence for all sizes of
    # micro-batches.
    recomputation, single = recomputation or plan.recomputation, plan.of_one_sequence
    kinds = _kinds(model, plan.pp, plan.chunks, recomputation.layers, stage)
    fixed = _fixed(model, single, stage)
    layers = _Layers(model, single, recomputation, kinds)
    kept = layers.activations(stage) * plan.micro_batch * in_flight(plan, stage)
    output = fixed.output * plan.micro_batch + fixed.ends
    working = fixed.gathered + (layers.recomputed + _gathered_bytes(model, single)) * plan.micro_batch
    buffers = fixed.buffers + _pipeline_buffers(model, plan, stage)
    gradients = fixed.gradients
    if plan.zero == 3 and plan.chunks > 1 and plan.micro_batches <= plan.pp:
        # FSDP reduces the gradients of a chunk before the backward passes of the next chunk begin.
        gradients /= plan.chunks
    parts = fixed.weights, gradients, fixed.optimizer, buffers, kept, output, working
    return Memory(stage, *map(round, parts))


class _Fixed(NamedTuple):
    """Memory in bytes that does not depend on the micro-batch, and the *output* bytes of one sequence.

    *ends* are the weights that PyTorch does not shard again before the loss. *gathered* are the weights of
    the layers that a backward pass needs at a time, with their gradients. *buffers* are buffers of streams
    other than the compute stream.
    """

    weights: float
    gradients: float
    optimizer: float
    output: float
    ends: float
    gathered: float
    buffers: float


@lru_cache(1 << 12)
def _fixed(model: Transformer, plan: Plan, stage: int) -> _Fixed:
    kinds = _kinds(model, plan.pp, plan.chunks, 0, stage)
    experts = sum(kind.layers * plan.expert_params(model, kind.layer) for kind in kinds)
    params = sum(kind.layers * _params(model, plan, kind.layer) for kind in kinds)
    ends = 0.0
    if stage == 0:
        ends += model.embedding_params / plan.tp
    last = stage == plan.pp - 1
    if last and not (model.tied and plan.pp == 1):
        ends += (model.classes or model.vocab) * model.hidden / plan.tp
    layers = sum(kind.layers for kind in kinds)
    state = _state(model, plan, params + ends, experts, layers)
    shards = 0.0, 0.0, 0.0
    if plan.zero == 3:
        units = [_params(model, plan, kind.layer) for kind in kinds]
        sharded = state[1] if plan.shards_each_pass else state[1] / plan.degree(*plan.data_axes)
        if model.convolutions and plan.eager:
            shards = _sharding_of_convolutions(plan, [*units, ends])
        else:
            shards = _sharding(plan, ends, max(units), sharded)
    return _Fixed(*state, _output_bytes(model, plan) if last else 0.0, *shards)


def _sharding(plan: Plan, ends: float, layer: float, sharded: float) -> tuple[float, float, float]:
    """Return the *ends*, *gathered* and *buffers* of `_Fixed` for sharded weights, in bytes.

    *ends* are the parameters of the embedding and the output, and *layer* is the number of parameters of the
    largest layer. *sharded* is the size of a rank's gradients in bytes.

    The model follows `torch.distributed.fsdp.fully_shard`. An all-gather has a buffer on a separate stream,
    which is released when the next buffer is read. The embedding, the output and the last layer are unsharded
    at the loss. A reduce-scatter copies the gradients of a layer in single precision, while the gradients of
    the previous layer are in flight. The caching allocator never reuses the memory of one stream for another.
    """
    size = plan.element_bytes
    if not plan.eager:
        return 0.0, 2 * max(layer, ends) * size * plan.shards_each_pass, 0.0
    buffers = (max(layer, ends) + layer) * size
    gradients = 0.0 if plan.frozen else layer * size
    if not plan.shards_each_pass:
        return 0.0, gradients, buffers + sharded
    return (ends + layer) * size, (ends + layer) * size + gradients * (1 + 2 * _MASTER / size), buffers


def _sharding_of_convolutions(plan: Plan, units: Sequence[float]) -> tuple[float, float, float]:
    """Return the result of `_sharding` for layers of different sizes; *units* are their parameter counts.

    The model follows `torch.distributed.fsdp.fully_shard`. The weights of a unit are released before its
    gradients are copied in single precision. The copy of the previous unit is released before the copy of the
    next unit begins. The weights of the next unit are gathered at the same time. The last unit stays
    unsharded after the forward pass.
    """
    size = plan.element_bytes
    needed = [0.0]
    for place, params in enumerate(units):
        before = units[place - 1] if place else 0.0
        behind = units[place + 1] if place + 1 < len(units) else 0.0
        computing = (2 * params + before) * size + behind * _SINGLE
        reducing = (params + before) * size + params * _SINGLE
        needed.append(max(computing, reducing))
    buffers = max(map(sum, itertools.pairwise([0.0, *units]))) * size
    return units[-1] * size, max(needed), buffers


def _gathered_bytes(model: Transformer, plan: Plan) -> float:
    """Return the bytes of a sequence-parallel layer's gathered input and its gradient, for one sequence."""
    if not plan.sequence_parallel or plan.tp == 1:
        return 0.0
    return 2 * (plan.sequence or model.sequence) / plan.cp * model.hidden * plan.element_bytes


def _pipeline_buffers(model: Transformer, plan: Plan, stage: int) -> float:
    """Return the bytes that `torch.distributed.pipelining` holds for messages and outputs of *stage*.

    Each micro-batch has separate buffers for the input and the gradient that a chunk receives. The logits of
    all micro-batches are held until the step ends. As many outputs are in flight as inputs; the inputs are
    already counted as activations of a layer.
    """
    if plan.pp == 1 or not plan.eager:
        return 0.0
    last = stage == plan.pp - 1
    tokens = plan.micro_batch * (plan.sequence or model.sequence) / plan.cp
    message = tokens * model.hidden / (plan.tp if plan.sequence_parallel else 1)
    received = 2 * plan.chunks - (stage == 0) - last
    logits = tokens * (model.classes or model.vocab) / plan.tp * last * (plan.micro_batches - 1)
    return (plan.micro_batches * received * message + logits) * plan.element_bytes


def _state(
    model: Transformer, plan: Plan, params: float, experts: float, layers: int
) -> tuple[float, float, float]:
    """Return the bytes of weights, gradients and optimizer state of *params* parameters."""
    # Experts are replicated on fewer ranks than other weights.
    owned = (params - experts) / plan.degree(*plan.data_axes) + experts / plan.degree("edp")
    size = plan.element_bytes
    each = plan.shards_each_pass
    # The host stores the optimizer's moments. Megatron leaves the weights in single precision on the chip.
    moments = 0 if plan.offload_optimizer else _ADAM
    masters = 0 if plan.offload_optimizer and plan.eager else _MASTER
    # Weights in single precision need no separate master copy.
    master = 0 if size == _MASTER else masters
    weights, gradients, optimizer = params * size, params * plan.grad_bytes, params * (master + moments)
    if plan.zero == 1:
        optimizer = owned * (master + moments)
    if plan.zero >= 2:
        # Sharded weights are stored only in single precision.
        gradients, optimizer = (owned if each else params) * 4, owned * (masters + moments)
    if plan.zero == 3 and each:
        weights = 0.0 if masters else owned * size
    if plan.frozen:
        # Frozen weights are stored in the precision of computation.
        if plan.zero == 3:
            weights = owned * size + (0.0 if each else params * size)
        adapters = layers * model.adapter_params(plan.lora) / plan.tp
        share = 1 / plan.degree(*plan.data_axes)
        weights += adapters * size
        gradients = adapters * plan.grad_bytes * (share if plan.zero >= 2 else 1)
        optimizer = adapters * (master + moments) * (share if plan.zero else 1)
    return weights, gradients, optimizer


class _Layers(NamedTuple):
    """The *kinds* of layers of a stage, and the activations that they store under *recomputation*."""

    model: Transformer
    plan: Plan
    recomputation: Recomputation
    kinds: Sequence[_Kind]

    def activations(self, stage: int) -> float:
        """Return the bytes of activations that a forward pass stores, averaged over the chunks of *stage*."""
        unit, plan = self.recomputation.unit, self.plan
        if unit > 1:
            parts = (len(plan.layers_of(stage, chunk, self.model.layers)) for chunk in range(plan.chunks))
            units = sum(-(-layers // unit) for layers in parts)
            return self._kept(self.kinds[0]) / plan.chunks * units
        return sum(kind.layers * self._kept(kind) for kind in self.kinds) / plan.chunks

    @property
    def recomputed(self) -> float:
        """The bytes that a unit of layers needs during its recomputation, in addition to the stored bytes.

        Activations that return from the host arrive one layer ahead. Layers that keep all activations come
        later in the forward pass, so they have released their activations when the recomputation begins.
        """
        if self.recomputation.mode == "none":
            return 0.0
        again = [kind for kind in self.kinds if kind.is_recomputed]
        whole = max(activation_bytes(self.model, self.plan, kind.layer, "none") for kind in again)
        released = sum(kind.layers * self._kept(kind) for kind in self.kinds if not kind.is_recomputed)
        kept = max(map(self._kept, again))
        unit = 2 if self.recomputation.mode == OFFLOAD else self.recomputation.unit
        return max(0.0, whole * unit - kept - released / self.plan.chunks)

    def _kept(self, kind: _Kind) -> float:
        mode = self.recomputation.mode if kind.is_recomputed else "none"
        return activation_bytes(self.model, self.plan, kind.layer, mode)


def least_recomputation(model: Transformer, plan: Plan, most_bytes: int) -> Plan | None:
    """Return *plan* with the smallest number of recomputed layers that needs at most *most_bytes*.

    The result is None if the recomputation of all layers except one does not suffice.
    """
    counts = range(1, plan.longest_part(model.layers))

    def holds(count: int) -> bool:
        again = Recomputation("full", layers=count)
        return fullest_memory(model, plan, again).total <= most_bytes

    place = bisect.bisect_left(counts, True, key=holds)
    return replace(plan, recompute=str(counts[place])) if place < len(counts) else None


def fullest_memory(model: Transformer, plan: Plan, recomputation: Recomputation | None = None) -> Memory:
    """Return the largest peak memory of all stages; *recomputation* may replace the plan's."""
    layers = (recomputation or plan.recomputation).layers
    stages = _different_stages(model, plan.pp, plan.chunks, layers)
    return max(
        (rank_memory(model, plan, stage, recomputation) for stage in stages), key=lambda memory: memory.total
    )


@lru_cache(1 << 10)
def _different_stages(model: Transformer, pp: int, chunks: int, recomputed: int) -> tuple[int, ...]:
    """Return the first stage of each set of equal stages, which has the most micro-batches in flight."""
    first: dict[tuple[object, ...], int] = {}
    for stage in range(pp):
        kinds = [
            (model.is_expert_layer(kind.layer), kind.is_recomputed, kind.layers)
            for kind in _kinds(model, pp, chunks, recomputed, stage)
        ]
        first.setdefault((stage == 0, *kinds), stage)
    return tuple({*first.values(), pp - 1})


def in_flight(plan: Plan, stage: int) -> int:
    """Return the maximum number of forward passes of a chunk that still await their backward passes.

    The number equals the maximum over the passes in `schedule`, but is computed without listing the passes.
    """
    behind = plan.pp - stage - 1
    if plan.pp > 1 and plan.schedule == "zero-bubble":
        return min(plan.pp, plan.micro_batches)
    if plan.pp > 1 and plan.schedule == "interleaved":
        return min(behind * 2 + (plan.chunks - 1) * plan.pp + 1, plan.micro_batches * plan.chunks)
    return min(behind + 1, plan.micro_batches)


class _Kind(NamedTuple):
    """A kind of layers in a stage: an example *layer*, its recomputation, and the number of *layers*."""

    layer: int
    is_recomputed: bool
    layers: int


@lru_cache(1 << 14)
def _kinds(model: Transformer, pp: int, chunks: int, recomputed: int, stage: int) -> tuple[_Kind, ...]:
    """Return the kinds of layers of *stage*; the first *recomputed* of each chunk (0: all) are recomputed."""
    plan = Plan(pp=pp, chunks=chunks)
    kinds: dict[tuple[int, bool], _Kind] = {}
    for chunk in range(chunks):
        for place, layer in enumerate(plan.layers_of(stage, chunk, model.layers)):
            again = not recomputed or place < recomputed
            key = (layer if model.convolutions else int(model.is_expert_layer(layer))), again
            kind = kinds.get(key, _Kind(layer, again, 0))
            kinds[key] = kind._replace(layers=kind.layers + 1)
    return tuple(kinds.values())


@lru_cache(1 << 12)
def activation_bytes(model: Transformer, plan: Plan, layer: int, recompute: str) -> float:
    """Return the bytes of activations of *layer* that a chip stores per micro-batch, by *recompute*.

    The count follows Korthikanti et al., who count 34 + 5 a s / h bytes per token and hidden unit of a GPT in
    half precision. 10 of these bytes are not divided among tensor-parallel ranks. The count is extended to
    other feed-forward parts and heads.

    * Eager frameworks that shard weights also keep the single-precision results of norms, the gate separate
      from its activation, and inputs that sequence parallelism gathered.
    * Each expert of a token keeps a copy of the token.
    * Matmuls of a low precision keep their operands in this precision. The matmul after attention keeps its
      operand in addition to the output of attention.
    * Matmuls with *frozen* weights keep no inputs after the norm and the activation of a feed-forward part.
    """
    if recompute == OFFLOAD:
        return 0.0
    if model.convolutions:
        stored = model.convolutions[layer].stored_bytes(plan.element_bytes)
        if layer == 0:  # the loaded images, and their copy in the precision of computation
            first = model.convolutions[0]
            stored += (
                first.inputs
                * first.before
                * (plan.element_bytes + (_SINGLE if plan.element_bytes < _SINGLE else 0))
            )
        return plan.micro_batch * stored
    sequence = plan.sequence or model.sequence
    tokens = plan.micro_batch * sequence / plan.cp
    hidden, tp = model.hidden, plan.tp
    kept = 1 / tp if plan.sequence_parallel else 1.0
    # The following numbers of bytes are for half precision.
    tokens *= plan.element_bytes / 2
    wide = _feed_forward_width(model, layer)
    kv_size = model.kv_size_on(tp) * tp
    if recompute == "full":
        columns = {
            "qkv": (model.query_size + 2 * kv_size) / tp,
            "projection": hidden * kept,
            "up": wide * (model.matrices - 1) / tp,
            "down": 0.0,  # the output is counted as the next layer's input
        }
        return tokens * 2 * (hidden * kept + sum(columns[name] for name in plan.saved))
    heads = (2 * model.query_size + 2 * kv_size) / hidden  # queries, keys, values, and attention's output
    if recompute == "selective" and plan.fused_attention and plan.eager:
        # The stored activations are the inputs of a layer, and the outputs of attention, queries, values and
        # every second later matmul.
        ends = 2 if model.gated else 1
        return tokens * 2 * (hidden * kept * ends + (2 * model.query_size + kv_size + wide) / tp)
    if recompute == "selective" and plan.fused_attention:
        # The inputs of frozen weights may not be stored, so a layer can need less memory without
        # recomputation.
        least = activation_bytes(model, plan, layer, "none")
        products = heads + wide / hidden * (model.matrices - 1)
        return min(least, tokens * hidden * 2 * (3 * kept + products / tp))
    # Norms run in single precision. Fused attention has no dropout masks, which would take two bytes.
    eager = plan.eager and not model.learned_positions
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
        split += 4 * (model.query_size - kv_size) / hidden  # keys and values expanded to all heads
        if plan.sequence_parallel:
            split += operand * (1 + (not model.is_expert_layer(layer))) * (tp - 1)
    scores = 0.0
    if not plan.fused_attention and recompute == "none":
        scores = 5 * model.heads * sequence / hidden
    return tokens * hidden * (whole * kept + (split + scores) / tp)


def _feed_forward_width(model: Transformer, layer: int) -> float:
    if not model.is_expert_layer(layer):
        return model.ffn
    return (model.top_k + model.shared_experts) * model.expert_ffn


def _params(model: Transformer, plan: Plan, layer: int) -> float:
    """Return the number of parameters of *layer* on one rank."""
    return model.shared_params_on(plan.tp, layer) + plan.expert_params(model, layer)


def _output_bytes(model: Transformer, plan: Plan) -> float:
    """Return the bytes of the logits: one copy in half precision and two copies in single precision.

    Eager frameworks have buffers for logits in half precision and in fp32, and for the softmax and its
    gradient. A softmax over tensor-parallel ranks needs two more buffers.
    """
    if model.classes:
        return plan.micro_batch * model.classes * 10
    tokens = plan.micro_batch * (plan.sequence or model.sequence) / plan.cp
    usual = 10 if not plan.eager else 14 if plan.tp == 1 else 22
    return tokens * model.vocab / plan.tp * (model.loss_bytes or usual)
