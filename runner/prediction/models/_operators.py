"""The operators of a rank in each layer with their work, and the rank's collectives with their phases."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ....converter.chakra import CollectiveType
from ._plan import OFFLOAD, Plan
from ._transformer import Convolution, Transformer

WITHIN, ACROSS = "within", "across"


class Spread(NamedTuple):
    """The placement of a group of ranks: *inside* members in each of *nodes* nodes."""

    inside: int
    nodes: int


class Phase(NamedTuple):
    """A phase of a collective on one kind of link; *size_bytes* is Chakra's size of the phase."""

    kind: CollectiveType
    level: str
    size_bytes: float


class Routing(NamedTuple):
    """The routing of a token to *chosen* of *experts*, from *chosen_groups* of *groups* equal groups."""

    experts: int
    chosen: int
    groups: int = 1
    chosen_groups: int = 1

    def places(self, count: int) -> float:
        """Return how many of *count* equally filled nodes (or ranks) hold experts of a token, on average."""
        share = self.chosen_groups / self.groups if count >= self.groups else 1.0
        places, experts = count * share, self.experts * share
        others = experts - experts / places
        missed = math.prod(max(0.0, others - each) / (experts - each) for each in range(self.chosen))
        return places * (1 - missed)


def spread(members: tuple[int, ...], node_size: int) -> Spread:
    """Return the placement of *members* in nodes of *node_size* ranks (one per node if uneven)."""
    counts: dict[int, int] = defaultdict(int)
    for rank in members:
        counts[rank // node_size] += 1
    sizes = set(counts.values())
    return Spread(sizes.pop(), len(counts)) if len(sizes) == 1 else Spread(1, len(members))


def phases(
    kind: CollectiveType, size_bytes: float, where: Spread, routing: Routing | None = None
) -> list[Phase]:
    """Return the phases of a collective of *size_bytes* in total, within the nodes and between them.

    The phases equal NCCL's rings over all network adapters of a node. In an all-to-all, each rank exchanges
    its node's part within the node, and sends the other parts through its own network adapter. With
    *routing*, a token is sent once to each node, in which a rank forwards the token.
    """
    inside, nodes = where
    members = inside * nodes
    if members == 1:
        return []
    if kind is CollectiveType.ALL_TO_ALL:
        within, across = size_bytes / nodes, size_bytes
        if routing:
            copy = size_bytes / routing.chosen
            within, across = (copy * routing.places(count) for count in (members, nodes))
        levels = [(WITHIN, inside, within), (ACROSS, nodes, across)]
        return [Phase(kind, level, size) for level, count, size in levels if count > 1]
    step: dict[str, Callable[[str], Phase]] = {
        "gather": lambda level: Phase(
            CollectiveType.ALL_GATHER, level, size_bytes / (inside if level == WITHIN else members)
        ),
        "scatter": lambda level: Phase(
            CollectiveType.REDUCE_SCATTER, level, size_bytes / (1 if level == WITHIN else inside)
        ),
        "reduce": lambda level: Phase(kind, level, size_bytes / (1 if level == WITHIN else inside)),
    }
    if nodes == 1 or inside == 1:
        only = WITHIN if nodes == 1 else ACROSS
        return [step[_STEPS[kind]](only)]
    if kind is CollectiveType.ALL_GATHER:
        return [step["gather"](ACROSS), step["gather"](WITHIN)]
    if kind is CollectiveType.REDUCE_SCATTER:
        return [step["scatter"](WITHIN), step["scatter"](ACROSS)]
    return [step["scatter"](WITHIN), step["reduce"](ACROSS), step["gather"](WITHIN)]


_STEPS = {
    CollectiveType.ALL_GATHER: "gather",
    CollectiveType.REDUCE_SCATTER: "scatter",
    CollectiveType.ALL_REDUCE: "reduce",
}


PRODUCTS = ("gemm", "half_gemm")
"""Kinds of matmuls: in the plan's precision, and in half precision regardless of the plan."""

# The work of the backward pass, relative to the forward pass. Matmuls compute two gradients. Flash attention
# recomputes the scores in addition to its four matmuls. Pointwise operators also read the gradient.
_BACKWARD = {
    **dict.fromkeys(PRODUCTS, 2.0),
    "attention": 2.0,
    "flash": 2.5,
    "pointwise": 2.0,
    "cast": 1.0,
    "launches": 2.0,
}
# The numbers of launches of a pass, estimated from Megatron-LM's layers: for a dense layer, for a layer of
# experts (router, token dispatcher and permutations), and for each local expert. The two matmuls of an expert
# are launched separately. Each matmul counts as two launches, because cuBLAS chooses its algorithm in every
# call. In a low precision, kernels for the maximum and the cast of the inputs and for the layout of the
# scales precede each matmul.
USUAL_HEAD = 128
"""The columns of the usual attention heads. Wider heads do not compute faster."""
DENSE_KERNELS, _EXPERT_KERNELS, _KERNELS_OF_EXPERT, _CAST_KERNELS = 15, 45, 4, 7
# Megatron-LM (TEGroupedMLP._apply_bias) adds the bias for each expert in single precision with two kernels.
# Both passes together move 64 bytes per element.
_BIAS_KERNELS, _BIAS_TOUCHES = 2, 64 / 3 / 2
# Megatron-LM (weighted_bias_quick_geglu_impl) clamps both halves of an activation's input, and joins them.
_CLAMP_TOUCHES = 8
# Matmuls in a low precision need padded rows of each expert, and the padding is removed from the result. The
# dispatchers that send a token once pad while they sort.
_PADDING_TOUCHES = 4


@dataclass(frozen=True)
class Operator:
    """One operator of a rank, or several operators of one kind.

    *kind* is one of these:

    * The kinds in `PRODUCTS` are matmuls.
    * ``attention`` is unfused attention with scores in memory, and ``flash`` is fused attention.
    * ``pointwise`` reads and writes memory, and ``cast`` converts to a low precision.
    * ``overhead`` is the time of each layer in addition to its work.
    * ``launches`` are kernel launches for which the chip waits.
    * ``copy`` is a copy to or from the host, and ``host`` is the memory traffic of work on the host.

    *flops* and *moved_bytes* are the operator's work. For an overhead, *flops* is the equivalent number of
    passes over a dense layer. For launches, *flops* is the number of launches. *scores* is the number of
    softmax scores of fused attention.
    """

    name: str
    kind: str
    flops: float
    moved_bytes: float
    module: str = ""
    scores: float = 0.0


@dataclass(frozen=True)
class Exchange:
    """A collective of the ranks along *axes*, with *size_bytes* as the total size.

    An *overlapped* gather runs during the next matmul, and an *overlapped* scatter runs during the previous
    matmul. An *overlapped* all-to-all runs during the whole pass over the layer. If *routing* is given, a
    token is sent only once to each node or rank. If *regathered* is true, ranks keep only their own parts of
    the gathered tensor, and gather the other parts again for the gradient of the weights.
    """

    name: str
    kind: CollectiveType
    axes: tuple[str, ...]
    size_bytes: float
    module: str = ""
    overlapped: bool = False
    routing: Routing | None = None
    regathered: bool = False


Item = Operator | Exchange


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a layer's parts on one rank: tokens, and bytes per element."""

    model: Transformer
    plan: Plan

    @property
    def sequence(self) -> int:
        return self.plan.sequence or self.model.sequence

    @property
    def tokens(self) -> float:
        return self.plan.micro_batch * self.sequence / self.plan.cp

    @property
    def full_row_tokens(self) -> float:
        """The number of tokens with complete rows on a rank; sequence parallelism divides this number."""
        return self.tokens / (self.plan.tp if self.plan.sequence_parallel else 1)

    def half_gemm(self, name: str, rows: float, inner: float, columns: float, module: str) -> Operator:
        """Return a matmul that is computed in at least half precision."""
        size = self.plan.element_bytes
        moved = size * (rows * inner + inner * columns + rows * columns)
        kind = "half_gemm" if self.plan.operand_bytes < size else "gemm"
        return Operator(name, kind, 2 * rows * inner * columns, moved, module)

    def gemm(  # noqa: PLR0917 - a matmul has three sizes
        self,
        name: str,
        rows: float,
        inner: float,
        columns: float,
        module: str,
        matrices: float = 1,
        gathers: Iterable[Item] | None = None,
    ) -> Iterator[Item]:
        """Yield a matmul, after the cast of its input; *matrices* matrices divide the rows.

        If *gathers* is given, its collectives gather the rows of the input. Before the gather, each rank
        casts its own rows.
        """
        operand, size = self.plan.operand_bytes, self.plan.element_bytes
        if operand < size:
            # The cast reads its input once and writes two copies: one for the matmul, and a transposed one
            # for the gradient of the weights.
            own = rows if gathers is None else self.full_row_tokens
            yield Operator(f"{name} cast", "cast", 0, own * inner * (size + 2 * operand), module)
        yield from gathers or ()
        moved = operand * inner * (rows + matrices * columns) + size * rows * columns
        yield Operator(name, "gemm", 2 * rows * inner * columns, moved, module)

    def pointwise(self, name: str, elements: float, touches: float, module: str) -> Operator:
        return Operator(name, "pointwise", elements, touches * elements * self.plan.element_bytes, module)

    def joined(
        self, name: str, module: str, *, gather: bool, alone: bool = False, axis: str = "tp"
    ) -> list[Item]:
        """Return the collective along *axis* before (*gather*) or after the matrices that its ranks share.

        If *alone* is true, the collective never overlaps a matmul. The ranks that share an expert (axis
        ``etp``) exchange tokens in half precision, before the cast for the matmul.
        """
        plan = self.plan
        ranks = plan.degree(axis)
        if ranks == 1 or (gather and not plan.sequence_parallel):
            return []
        whole = self.tokens * ranks / plan.tp * self.model.hidden * plan.element_bytes
        kind = CollectiveType.ALL_REDUCE
        if plan.sequence_parallel:
            kind = CollectiveType.ALL_GATHER if gather else CollectiveType.REDUCE_SCATTER
        overlapped = plan.tensor_overlap and plan.sequence_parallel and not alone
        return [
            Exchange(
                f"{name} {kind.name.lower()}", kind, (axis,),
                whole * (_part(plan, kind) if axis == "tp" else 1.0), module, overlapped,
                regathered=gather and axis == "tp" and not (plan.eager or plan.frozen),
            )
        ]  # fmt: skip


def pass_over_layer(model: Transformer, plan: Plan, layer: int, *, backward: bool = False) -> list[Item]:
    """Return the operators of a rank for *layer* and one micro-batch, in order."""
    sizes = _Sizes(model, plan)
    if model.convolutions:
        operators = list(_convolution(sizes, model.convolutions[layer]))
        return _gradients(operators, plan) if backward else operators
    launches = relative_launches(model, plan, layer)
    items: list[Item] = [
        Operator("layer", "overhead", launches, 0, f"layers.{layer}"),
        *_attention(sizes, f"layers.{layer}.attention"),
        *(_experts if model.is_expert_layer(layer) else _dense)(sizes, f"layers.{layer}.mlp"),
    ]
    if not backward:
        return items
    again = _recomputed(model, plan, items[1:])
    passes = 3 if plan.recompute == "full" else 2
    overhead = Operator("layer", "overhead", passes * launches, 0, f"layers.{layer}")
    return [overhead, *again, *_gradients(items[1:], plan)]


def relative_launches(model: Transformer, plan: Plan, layer: int) -> int:
    """Return the number of launches in a pass over *layer*, relative to a dense layer."""
    if not model.is_expert_layer(layer):
        return 1
    return round((_EXPERT_KERNELS + _kernels_of_experts(model, plan)) / DENSE_KERNELS)


def launched_ahead(model: Transformer, plan: Plan, layer: int, *, backward: bool = False) -> int:
    """Return the launches in a pass over *layer* before which the host does not wait for the chip.

    The number is relative to the launches of a dense layer.
    """
    if not model.is_expert_layer(layer):
        return 2 if backward else 1
    if plan.expert_overlap:
        return 0
    return 2 * relative_launches(model, plan, layer) if backward else round(_EXPERT_KERNELS / DENSE_KERNELS)


def awaited_launches(model: Transformer, plan: Plan) -> float:
    """Return the number of launches in a forward pass over a layer of experts for which the chip waits.

    The host reads each expert's token count before it launches the experts' matmuls. If exchanges of experts
    overlap the other pass of another micro-batch, both passes are launched between two such reads.
    """
    of_experts = _kernels_of_experts(model, plan)
    return of_experts + _EXPERT_KERNELS if plan.expert_overlap else of_experts


def _kernels_of_experts(model: Transformer, plan: Plan) -> float:
    kernels = _KERNELS_OF_EXPERT + (_CAST_KERNELS if plan.operand_bytes < plan.element_bytes else 0)
    kernels += _BIAS_KERNELS if model.expert_bias else 0
    return kernels * model.experts / plan.ep


def pass_over_output(model: Transformer, plan: Plan, *, backward: bool = False) -> list[Item]:
    """Return the last matmul and the loss of one micro-batch, or the classifier of an encoder."""
    sizes = _Sizes(model, plan)
    if model.classes:
        items: list[Item] = [
            sizes.half_gemm("classifier", plan.micro_batch, model.hidden, model.classes, "output")
        ]
    else:
        columns = model.vocab / plan.tp
        items = [
            *sizes.joined("output", "output", gather=True, alone=True),
            sizes.half_gemm("logits", sizes.tokens, model.hidden, columns, "output"),
            # The loss reads the logits twice in single precision, and writes once.
            Operator("loss", "pointwise", 0, sizes.tokens * columns * 8, "output"),
        ]
    return _gradients(items, plan) if backward else items


def optimizer_step(params: float, plan: Plan) -> list[Item]:
    """Return the operators of an Adam step on *params* parameters in single precision.

    Adam reads the weight, the gradient and two moments, and writes the weight and the moments. With Adam on
    the host, gradients are copied to the host first, and new weights are copied back.
    """
    moved, module = params * (28 + plan.element_bytes), "optimizer"
    if not plan.offload_optimizer:
        return [Operator("optimizer", "pointwise", 0, moved, module)]
    return [
        Operator("gradients to the host", "copy", 0, params * plan.grad_bytes, module),
        Operator("optimizer", "host", 0, moved, module),
        Operator("weights from the host", "copy", 0, params * plan.element_bytes, module),
    ]


def _attention(sizes: _Sizes, module: str) -> Iterator[Item]:
    model, plan = sizes.model, sizes.plan
    tokens, hidden = sizes.tokens, model.hidden
    yield sizes.pointwise("norm", sizes.full_row_tokens * hidden, 2, module)
    gathers = sizes.joined("attention", module, gather=True)
    if plan.frozen:
        # The adapter of queries, keys and values has a separate input, which consists of the rows before the
        # all-gather.
        gathers += sizes.joined("adapter", module, gather=True, alone=True)
    inner = model.query_size / plan.tp
    inputs = model.attention_inputs / plan.tp
    if not model.kv_rank:
        inputs = inner + 2 * model.kv_size_on(plan.tp)
    yield from sizes.gemm("qkv", tokens, hidden, inputs, module, gathers=gathers)
    if plan.lora:
        yield sizes.half_gemm("adapter down", tokens, hidden, plan.lora / plan.tp, module)
        yield sizes.half_gemm("adapter up", tokens, plan.lora, inputs, module)
    # Only fused attention skips masked scores.
    reach = float(sizes.sequence)
    if plan.fused_attention:
        reach = min(plan.document or reach, model.reach(sizes.sequence))
    columns = inner + model.heads * model.rope_size / 2 / plan.tp  # average width of queries and values
    square = plan.micro_batch * sizes.sequence * reach / plan.cp * columns
    if plan.cp > 1:
        kept = 2 * sizes.tokens * plan.cp * model.kv_size_on(plan.tp) * plan.element_bytes
        yield Exchange("keys and values", CollectiveType.ALL_GATHER, ("cp",), kept, module)
    if plan.fused_attention:
        half = 0.5 if model.causal else 1.0
        scores = half * square / min(model.head_size, USUAL_HEAD)
        yield Operator("attention", "flash", 4 * half * square, 0, module, scores)
    else:
        yield Operator("attention", "attention", 4 * square, 0, module)
    yield from sizes.gemm("projection", tokens, inner, hidden, module)
    yield from sizes.joined("attention", module, gather=False)
    yield sizes.pointwise("residual", sizes.full_row_tokens * hidden, 2, module)


def _convolution(sizes: _Sizes, layer: Convolution) -> Iterator[Item]:
    """Yield a convolution as a matmul, and the pointwise operators after it.

    A normalisation reads its input twice (for the mean, and to normalise), and writes its output once. The
    activation reads and writes once. Kernels are launched while earlier kernels run, so launches take no
    time.
    """
    size, images = sizes.plan.element_bytes, sizes.tokens
    before, behind = layer.inputs * layer.before * images, layer.outputs * layer.positions * images
    moved = size * (before + behind + layer.params)
    yield Operator("convolution", "gemm", layer.flops * images, moved, layer.name)
    yield sizes.pointwise("activation", behind, 5 if layer.norm else 2, layer.name)


def _dense(sizes: _Sizes, module: str) -> Iterator[Item]:
    model, plan = sizes.model, sizes.plan
    yield sizes.pointwise("norm", sizes.full_row_tokens * model.hidden, 2, module)
    gathers = sizes.joined("mlp", module, gather=True)
    yield from _feed_forward(sizes, sizes.tokens, model.ffn / plan.tp, module, gathers=gathers)
    yield from sizes.joined("mlp", module, gather=False)
    yield sizes.pointwise("residual", sizes.full_row_tokens * model.hidden, 2, module)


def _feed_forward(  # noqa: PLR0917 - the sizes of both matmuls
    sizes: _Sizes,
    tokens: float,
    width: float,
    module: str,
    experts: float = 1,
    gathers: Iterable[Item] | None = None,
) -> Iterator[Item]:
    model = sizes.model
    columns = width * (model.matrices - 1)
    yield from sizes.gemm("up", tokens, model.hidden, columns, module, experts, gathers)
    touches = model.matrices + (_CLAMP_TOUCHES if model.clamped else 0)
    yield sizes.pointwise("activation", tokens * width, touches, module)
    yield from sizes.gemm("down", tokens, width, model.hidden, module, experts)


def _experts(sizes: _Sizes, module: str) -> Iterator[Item]:
    """Yield a layer of experts with balanced routing, in which each rank receives as many tokens as it sends.

    The ranks that share an expert gather their tokens. Each of these ranks sends a share of the gathered
    tokens.
    """
    model, plan = sizes.model, sizes.plan
    split = plan.expert_split
    yield sizes.pointwise("norm", sizes.full_row_tokens * model.hidden, 2, module)
    yield sizes.half_gemm("router", sizes.full_row_tokens, model.hidden, model.experts, module)
    yield from sizes.joined("mlp", module, gather=True, alone=True, axis="etp")
    routed = sizes.tokens * split / plan.tp * model.top_k
    sent = routed / split
    exchange = Exchange(
        "dispatch",
        CollectiveType.ALL_TO_ALL,
        ("ep",),
        sent * model.hidden * plan.element_bytes,
        module,
        plan.expert_overlap,
        Routing(model.experts, model.top_k, model.expert_groups, model.top_groups)
        if plan.deduplicate
        else None,
    )
    if plan.ep > 1:
        yield exchange
    # Tokens are sorted by rank and by expert, and back. A dispatcher that sends one copy of a token per rank
    # sorts at the receiving rank.
    sorts = 4.0 if plan.deduplicate or plan.ep == 1 else 6 + 2 / model.top_k
    if plan.operand_bytes < plan.element_bytes and not plan.deduplicate:
        sorts += _PADDING_TOUCHES
    yield sizes.pointwise("permute", sent * model.hidden, sorts, module)
    yield Operator("experts", "launches", awaited_launches(model, plan), 0, module)
    width = model.expert_ffn / split
    yield from _feed_forward(sizes, routed, width, module, model.experts / plan.ep)
    if model.expert_bias:
        yield sizes.pointwise("bias", routed * model.hidden, _BIAS_TOUCHES, module)
    if plan.ep > 1:
        yield replace(exchange, name="combine")
    yield from sizes.joined("mlp", module, gather=False, alone=True, axis="etp")
    if model.shared_experts:
        gathers = sizes.joined("shared", module, gather=True, alone=True)
        width = model.shared_experts * model.expert_ffn / plan.tp
        yield from _feed_forward(sizes, sizes.tokens, width, f"{module}.shared", gathers=gathers)
        yield from sizes.joined("shared", module, gather=False, alone=True)
    yield sizes.pointwise("residual", sizes.full_row_tokens * model.hidden, 2, module)


def _unsaved(model: Transformer, again: Operator) -> Iterator[Operator]:
    """Yield the unsaved part of *again*: key and output projections, and every second later matmul."""
    shares = {
        "qkv again": model.kv_size / (model.query_size + 2 * model.kv_size),
        "projection again": 1.0,
        "up again": 0.5 if model.gated else 0.0,
        "down again": 0.0 if model.gated else 1.0,
    }
    share = 1.0 if again.kind == "pointwise" else shares.get(again.name, 0.0)
    if share:
        yield replace(again, flops=again.flops * share, moved_bytes=again.moved_bytes * share)


def _recomputed(model: Transformer, plan: Plan, forward: Sequence[Item]) -> list[Item]:
    """Return the operators of *forward* that the backward pass recomputes."""
    if plan.recompute in {"none", OFFLOAD}:
        return []
    again = [replace(item, name=f"{item.name} again") for item in forward]
    if plan.recompute == "full":
        return [item for item, first in zip(again, forward, strict=True) if first.name not in plan.saved]
    if plan.recomputes_products:
        return [part for item in again if isinstance(item, Operator) for part in _unsaved(model, item)]
    kind = "pointwise" if plan.fused_attention else "attention"
    return [item for item in again if isinstance(item, Operator) and item.kind == kind]


def _part(plan: Plan, kind: CollectiveType) -> float:
    """Return the share of an activation's bytes that tensor parallelism moves, given the operands' size."""
    return plan.operand_bytes / plan.element_bytes if kind is CollectiveType.ALL_GATHER else 1.0


_OPPOSITE = {
    CollectiveType.ALL_GATHER: CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER: CollectiveType.ALL_GATHER,
}


def _gradients(forward: Sequence[Item], plan: Plan) -> list[Item]:
    """Return the backward pass of *forward*, which has the operators and collectives in reverse order."""
    items: list[Item] = []
    for item in reversed(forward):
        name = f"{item.name} gradient"
        if isinstance(item, Exchange):
            kind = _OPPOSITE.get(item.kind, item.kind)
            size = item.size_bytes
            if item.axes == ("tp",):
                size *= _part(plan, kind) / _part(plan, item.kind)
            items.append(replace(item, name=name, kind=kind, size_bytes=size))
            if item.regathered:
                last = max(n for n, each in enumerate(items) if each.kind in PRODUCTS)
                items.insert(last, replace(item, name=f"{item.name} again", overlapped=True))
        else:
            is_frozen = plan.frozen and item.kind in PRODUCTS and not item.name.startswith("adapter")
            times = 1.0 if is_frozen else _BACKWARD[item.kind]
            if item.kind == "launches" and not plan.expert_overlap:
                times = 0.0  # the token counts are known
            flops, moved, scores = (times * each for each in (item.flops, item.moved_bytes, item.scores))
            items.append(replace(item, name=name, flops=flops, moved_bytes=moved, scores=scores))
    return items
