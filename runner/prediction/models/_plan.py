"""The plan of a training job: parallelism, batches, recomputation, schedule, and coordinates of ranks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from ....errors import UsageError
from ...chips import LOW_PRECISIONS
from ._transformer import Transformer

RECOMPUTATIONS = ("none", "selective", "full")
OFFLOAD = "offload"
"""The mode of layers with activations that are kept in the memory of the host."""
_UNIFORM = "uniform"


class Recomputation(NamedTuple):
    """The *mode* (`OFFLOAD` or from `RECOMPUTATIONS`) of the first *layers* of each chunk (0: all layers).

    The remaining layers keep all activations. With recomputation, each *unit* of layers keeps only its input.
    """

    mode: str
    layers: int = 0
    unit: int = 1

    def mode_at(self, place: int) -> str:
        """Return the recomputation mode of the layer at *place* in a chunk of a stage."""
        return self.mode if not self.layers or place < self.layers else "none"


@lru_cache(256)
def recomputation_of(text: str) -> Recomputation:
    """Read a recomputation mode, ``N``, ``uniform:N`` or ``offload:N``; raise `UsageError` for other texts.

    ``N`` and ``uniform:N`` are Megatron's full recomputation with ``--recompute-num-layers`` N and the
    methods ``block`` and ``uniform``. ``offload:N`` is Megatron's ``--cpu-offloading-num-layers`` N.
    """
    if text in {*RECOMPUTATIONS, OFFLOAD}:
        return Recomputation(text)
    method, colon, count = text.rpartition(":")
    is_method = method in {_UNIFORM, OFFLOAD} if colon else True
    if not (is_method and count.isascii() and count.isdecimal() and len(count) < 10 and int(count)):
        raise UsageError(
            f"--recompute can be {', '.join(RECOMPUTATIONS)}, {OFFLOAD}, a number of layers, uniform:N or "
            f"{OFFLOAD}:N, not '{text}'."
        )
    if method == _UNIFORM:
        return Recomputation("full", unit=int(count))
    return Recomputation(method or "full", layers=int(count))


AXES = ("tp", "cp", "dp", "pp")
PRODUCT_NAMES = ("qkv", "projection", "up", "down")
SCHEDULES = ("1f1b", "interleaved", "zero-bubble")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan to train a model on ``tp * cp * dp * pp`` ranks.

    * *ep* neighbouring ranks along ``cp`` and ``dp`` share the experts of a layer.
    * *zero* 1 to 3 shards the optimizer, the gradients and the weights over data parallelism. Stage 3 is
      FSDP. Like PyTorch, FSDP with several pipeline stages keeps weights and gradients whole during a step.
    * *chunks* is the number of parts of the model per pipeline stage (schedule ``interleaved``).
    * *placement* lists the axes of parallelism, innermost first.
    * If *overlap* is true, gradients are reduced during the backward pass.
    * *fused_attention* never writes the scores to memory.
    * *grad_bytes* is the size of a gradient during its reduction.
    * With *frozen* weights, only adapters are trained (LoRA), and weights have no gradients.
    * *lora* is the rank of adapters on queries, keys and values, or 0 if adapters are too small to count.
    * If *tensor_overlap* is true, the collectives of tensor parallelism overlap the matmuls that they belong
      to.
    * *recompute* is a text that `recomputation_of` reads. Under full recomputation, *saved* names the matmuls
      that are not recomputed.
    * *expert_tp* neighbouring ranks along ``tp`` share an expert (0: all ranks along ``tp``). If *expert_tp*
      is less than *tp*, the *ep* ranks also span ``tp``, and each group has separate tokens.
    * A token attends to at most *document* tokens if sequences are packed from shorter documents.
    * If *deduplicate* is true, a token is sent only once to each node and rank, regardless of the number of
      its experts there.
    * If *expert_overlap* is true, the exchange of tokens runs during the computation of another micro-batch.
    * If *cuda_graphs* is true, the launches of kernels are replayed, and take no time on the host.
    * If *offload_optimizer* is true, the host stores the optimizer's state and computes the optimizer's step.
    * *eager* frameworks run PyTorch's own operators, which keep more activations. The selective recomputation
      of eager frameworks (torchtitan) computes every second matmul again.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    sequence: int = 0
    chunks: int = 1
    zero: int = 0
    recompute: str = "none"
    schedule: str = "1f1b"
    sequence_parallel: bool = False
    precision: str = "bf16"
    placement: tuple[str, ...] = AXES
    overlap: bool = True
    fused_attention: bool = True
    grad_bytes: int = 4
    frozen: bool = False
    lora: int = 0
    tensor_overlap: bool = False
    saved: tuple[str, ...] = ()
    document: int = 0
    expert_tp: int = 0
    deduplicate: bool = True
    expert_overlap: bool = False
    cuda_graphs: bool = False
    offload_optimizer: bool = False
    eager: bool = False

    @property
    def world(self) -> int:
        """The number of ranks of the job."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches per step and data-parallel rank."""
        return self.global_batch // (self.dp * self.micro_batch)

    @cached_property
    def recomputation(self) -> Recomputation:
        """The recomputation of the backward pass, or `UsageError` for an invalid *recompute*."""
        return recomputation_of(self.recompute)

    def at(self, place: int) -> Plan:
        """Return the plan that applies the recomputation of the layer at *place* of a chunk to all layers."""
        mode = self.recomputation.mode_at(place)
        if mode == self.recompute:
            return self
        return self._unrecomputed if mode == "none" else self._recomputed

    @cached_property
    def _recomputed(self) -> Plan:
        return replace(self, recompute=self.recomputation.mode)

    @cached_property
    def _unrecomputed(self) -> Plan:
        return replace(self, recompute="none", saved=())

    @property
    def recomputes_products(self) -> bool:
        """Whether selective recomputation computes every second matmul again."""
        return self.eager and self.fused_attention and self.recompute == "selective"

    @property
    def shards_each_pass(self) -> bool:
        """Whether each micro-batch gathers weights and reduces gradients separately."""
        return self.zero == 2 or (self.zero == 3 and self.pp == 1)

    @property
    def needs_host(self) -> bool:
        """Whether the plan moves activations or optimizer state between a chip and its host."""
        return self.offload_optimizer or self.recomputation.mode == OFFLOAD

    @cached_property
    def of_one_sequence(self) -> Plan:
        """The plan with one micro-batch of one sequence, in the order of 1F1B, without recomputation."""
        return replace(self, micro_batch=1, global_batch=self.dp, recompute="none", schedule="1f1b")

    @property
    def expert_split(self) -> int:
        """The number of tensor-parallel ranks that share an expert."""
        return self.expert_tp or self.tp

    @property
    def _stage_ranks(self) -> int:
        return self.tp * self.cp * self.dp

    @property
    def element_bytes(self) -> int:
        """The size (bytes) of an element of activations and weights in computations."""
        return 4 if self.precision in {"fp32", "tf32"} else 2

    @property
    def operand_bytes(self) -> float:
        """The size (bytes) of an element of the operands of the layers' matmuls."""
        return LOW_PRECISIONS.get(self.precision, self.element_bytes)

    @cached_property
    def strides(self) -> dict[str, int]:
        """The distance in rank numbers between neighbours on each axis."""
        sizes = [getattr(self, axis) for axis in self.placement]
        return dict(
            zip(self.placement, itertools.accumulate([1, *sizes[:-1]], lambda a, b: a * b), strict=True)
        )

    @cached_property
    def layout(self) -> Plan:
        """The plan with only the options that affect the placement of ranks."""
        keys = ("tp", "pp", "dp", "cp", "ep", "placement", "expert_tp")
        return Plan(**{key: getattr(self, key) for key in keys})

    def position(self, rank: int, axis: str) -> int:
        """Return the coordinate of *rank* on *axis*."""
        size: int = getattr(self, axis)
        return rank // self.strides[axis] % size

    def group(self, rank: int, *axes: str) -> tuple[int, ...]:
        """Return the ranks that differ from *rank* along *axes* only, in ascending order.

        In addition to a plan's axes, there are three axes for experts. Experts are distributed over the ranks
        along ``ep`` (neighbours along ``cp``, then ``dp``, as in Megatron). Ranks along ``edp`` have the same
        experts. Ranks along ``etp`` share an expert.
        """
        origin, steps = rank, []
        for axis in axes:
            stride, count, position = self._line(rank, axis)
            origin -= position * stride
            steps.append(range(0, count * stride, stride))
        return tuple(sorted(origin + sum(step) for step in itertools.product(*steps)))

    def _line(self, rank: int, axis: str) -> tuple[int, int, int]:
        """Return the stride and size of *axis*, and the position of *rank* on the axis."""
        if axis in {"ep", "edp"}:
            # The ranks that distribute experts are adjacent, with ranks of different experts innermost.
            stride = min((self.strides[each] for each in self._expert_plane), default=self.strides["dp"])
            stride *= self.expert_split if "tp" in self._expert_plane else 1
            number = rank // stride % self.expert_ranks
            if axis == "ep":
                return stride, self.ep, number % self.ep
            return stride * self.ep, self.expert_ranks // self.ep, number // self.ep
        if axis == "etp":
            return self.strides["tp"], self.expert_split, self.position(rank, "tp") % self.expert_split
        return self.strides[axis], getattr(self, axis), self.position(rank, axis)

    def message_bytes(self, model: Transformer) -> float:
        """Return the bytes of activations between stages; each tensor-parallel rank sends a part."""
        sequence = self.sequence or model.sequence
        return self.micro_batch * sequence / self.cp / self.tp * model.hidden * self.element_bytes

    def expert_params(self, model: Transformer, layer: int) -> float:
        """Return the number of parameters of the experts of *layer* on one rank."""
        if not model.is_expert_layer(layer):
            return 0.0
        return model.experts * model.expert_params / self.ep / self.expert_split

    @property
    def data_axes(self) -> tuple[str, ...]:
        """The axes along which ranks have the same weights, except weights of experts."""
        return ("cp", "dp") if self.cp > 1 else ("dp",)

    @property
    def expert_ranks(self) -> int:
        """How many ranks of a stage process different tokens; experts can be distributed over these."""
        return self.cp * self.dp * self.tp // self.expert_split

    @property
    def _expert_plane(self) -> tuple[str, ...]:
        """The axes over which experts can be distributed, without axes of a single rank."""
        axes = ("tp", "cp", "dp") if self.expert_split < self.tp else ("cp", "dp")
        return tuple(axis for axis in axes if getattr(self, axis) > 1)

    def degree(self, *axes: str) -> int:
        """Return the number of ranks in a group along *axes*."""
        sizes = {"ep": self.ep, "edp": self.expert_ranks // self.ep, "etp": self.expert_split}
        return math.prod(sizes.get(axis) or getattr(self, axis) for axis in axes)

    def ends_count(self, layers: int) -> bool:
        """Return whether the embedding and the loss count as one layer each in the pipeline.

        As in Megatron, the embedding and the loss count as layers if the layers cannot be divided evenly
        otherwise. Every stage has at least one layer.
        """
        parts = self.pp * self.chunks
        return layers % parts != 0 and (layers + 2) % parts == 0 and layers + 2 > self.pp

    def layers_of(self, stage: int, chunk: int, layers: int) -> range:
        """Return the layers of a stage's *chunk*; in uneven splits, the first chunks have one layer more."""
        part, parts = chunk * self.pp + stage, self.pp * self.chunks
        if self.ends_count(layers):
            each = (layers + 2) // parts
            return range(max(0, part * each - 1), min(layers, (part + 1) * each - 1))
        each, more = divmod(layers, parts)
        first = part * each + min(part, more)
        return range(first, first + each + (part < more))

    def longest_part(self, layers: int) -> int:
        """Return the largest number of layers of a chunk of a stage."""
        parts = self.pp * self.chunks
        if self.ends_count(layers):
            return (layers + 2) // parts - (parts == 2)
        return -(-layers // parts)

    def check(self, model: Transformer) -> None:
        """Raise `UsageError` with the remedy if sizes are not divisible or options are incompatible."""
        for key in ("tp", "pp", "dp", "cp", "ep", "micro_batch", "global_batch", "chunks"):
            if getattr(self, key) < 1:
                raise UsageError(f"{_option(key)} must be 1 or more, not {getattr(self, key)}.")
        self._check_model(model)
        per_step = self.dp * self.micro_batch
        if self.global_batch % per_step:
            near = max(1, round(self.global_batch / per_step)) * per_step
            raise UsageError(
                f"A global batch of {self.global_batch} cannot be divided into micro-batches of "
                f"{self.micro_batch} on {self.dp} data-parallel ranks, which take {per_step} sequences at "
                f"a time. Next: use --global-batch {near}, or change --micro-batch or --dp."
            )
        self._check_recomputation(model)
        if self.lora < 0 or (self.lora and not self.frozen):
            raise UsageError(
                f"Adapters of rank {self.lora} need a rank of 1 or more, and weights that are frozen."
            )
        if self.chunks > 1 and self.pp == 1:
            raise UsageError(
                f"--interleave {self.chunks} distributes the model over pipeline stages, but there is only "
                "one. Next: use --pp 2 or more, or leave out --interleave."
            )
        if self.schedule == "interleaved" and self.micro_batches % self.pp:
            raise UsageError(
                f"The interleaved schedule needs a multiple of --pp {self.pp} micro-batches, but there are "
                f"{self.micro_batches}. Next: change --global-batch, or leave out --interleave."
            )

    def _check_recomputation(self, model: Transformer) -> None:
        mode, layers, unit = self.recomputation
        most = self.longest_part(model.layers)
        if max(layers, unit) > most:
            every = OFFLOAD if mode == OFFLOAD else "full"
            raise UsageError(
                f"--recompute {self.recompute} is more than the {most} layers of a pipeline stage"
                f"{' and chunk' if self.chunks > 1 else ''}. Next: use --recompute {every} (all layers)."
            )
        for name in self.saved:
            if name not in PRODUCT_NAMES:
                raise UsageError(f"--keep can be {', '.join(PRODUCT_NAMES)}, and not '{name}'.")
        if self.saved and (mode != "full" or unit > 1):
            raise UsageError("--keep has no effect without --recompute full or N. Next: leave out --keep.")
        if self.document and not self.fused_attention:
            raise UsageError("--document needs fused attention. Leave out --no-fused-attention.")

    def _check_model(self, model: Transformer) -> None:
        axes = [key for key in ("tp", "pp", "cp", "ep", "chunks") if getattr(self, key) > 1]
        if model.convolutions and self.frozen:
            raise UsageError(f"{model.name} has no attention for adapters. Next: leave out --lora.")
        if model.convolutions and (axes or self.recompute != "none" or self.sequence > 1):
            what = _option(axes[0]) if axes else "--recompute" if self.recompute != "none" else "--sequence"
            raise UsageError(f"{model.name} supports data parallelism only; leave out {what}.")
        for what, count, key in (
            ("attention heads", model.heads, "tp"),
            ("columns in a feed-forward part", model.ffn, "tp"),
            ("numbers of a sequence", self.sequence or model.sequence, "cp"),
        ):
            degree = getattr(self, key)
            if count % degree:
                fitting = _divisor(count, degree)
                raise UsageError(
                    f"{model.name} has {count} {what}, which {_option(key)} {degree} does not divide. Next: "
                    f"use {_option(key)} {fitting}."
                )
        self._check_shares(model)
        if self.pp * self.chunks > model.layers and not self.ends_count(model.layers):
            raise UsageError(
                f"{model.name} has {model.layers} layers, too few for {self.pp} pipeline stages of "
                f"{self.chunks} parts. Next: reduce --pp or --interleave."
            )
        self._check_experts(model)

    def _check_shares(self, model: Transformer) -> None:
        """Raise `UsageError` for heads and tokens that ranks cannot share equally."""
        if not model.kv_rank and not shares_heads(model.kv_heads, self.tp):
            fitting = max(
                each
                for each in range(1, self.tp + 1)
                if model.heads % each == model.ffn % each == 0 and shares_heads(model.kv_heads, each)
            )
            raise UsageError(
                f"{model.name} has {model.kv_heads} heads of keys and values. --tp {self.tp} neither divides "
                f"them nor is a multiple of them. Next: use --tp {fitting}."
            )
        tokens = self.sequence or model.sequence
        if self.cp > 1 and tokens % (2 * self.cp):
            raise UsageError(
                f"Each of --cp {self.cp} ranks has two equal parts of a sequence, one near its start and one "
                f"near its end, but {tokens} tokens are not divisible by {2 * self.cp}. Next: use "
                f"--sequence {max(1, tokens // (2 * self.cp)) * 2 * self.cp}."
            )
        if self.sequence_parallel and tokens // self.cp % self.tp:
            raise UsageError(
                f"Sequence parallelism divides the {tokens // self.cp} tokens of a rank among --tp "
                f"{self.tp} ranks, but this is not possible without a remainder. Next: add "
                "--no-sequence-parallel, or change --sequence."
            )

    def _check_experts(self, model: Transformer) -> None:
        """Raise `UsageError` with valid degrees if experts cannot be divided among the ranks."""
        if not model.experts and (self.expert_tp or self.ep > 1):
            option = f"--expert-tp {self.expert_tp}" if self.expert_tp else f"--ep {self.ep}"
            raise UsageError(f"{model.name} has no experts. Next: leave out {option}.")
        self._check_expert_split(model)
        if self.ep == 1:
            return
        if self.tp > 1 and not self.sequence_parallel:
            raise UsageError(
                f"--ep {self.ep} with --tp {self.tp} needs sequence parallelism, as in Megatron. Next: "
                "add --sequence-parallel."
            )
        if model.experts % self.ep:
            raise UsageError(
                f"--ep {self.ep} does not divide the {model.experts} experts of {model.name}. Next: use "
                f"--ep {_divisor(model.experts, self.ep)}."
            )
        if self.expert_ranks % self.ep:
            fitting = _divisor(math.gcd(model.experts, self.expert_ranks), self.ep)
            every = self._stage_ranks
            whole = (
                f", or --expert-tp 1, which distributes experts over all {every} ranks of a stage"
                if self.expert_split > 1 and every % self.ep == 0
                else ""
            )
            over = " x ".join(f"--{axis} {getattr(self, axis)}" for axis in self._expert_plane)
            over += f" / --expert-tp {self.expert_tp}" if 1 < self.expert_split < self.tp else ""
            raise UsageError(
                f"Experts are distributed over {over or '--dp 1'}, {self.expert_ranks} ranks, which --ep "
                f"{self.ep} does not divide. Next: use --ep {fitting}{whole}."
            )
        other_axes = [
            axis for axis in self.placement if getattr(self, axis) > 1 and axis not in self._expert_plane
        ]
        places = [place for place, axis in enumerate(self.placement) if axis in self._expert_plane]
        if any(places[0] < self.placement.index(axis) < places[-1] for axis in other_axes):
            raise UsageError(
                f"Experts are distributed over {' and '.join(self._expert_plane)}, which are not adjacent in "
                f"--placement {'-'.join(self.placement)}. Next: use --placement tp-cp-dp-pp."
            )

    def _check_expert_split(self, model: Transformer) -> None:
        """Raise `UsageError` for tensor-parallel ranks that cannot share an expert equally."""
        split = self.expert_split
        if split < 1 or self.tp % split:
            near = _divisor(self.tp, max(1, min(split, self.tp)))
            raise UsageError(
                f"--expert-tp {split} does not divide --tp {self.tp}. Next: use --expert-tp {near}."
            )
        if model.expert_ffn % split:
            raise UsageError(
                f"{model.name} has experts of {model.expert_ffn} columns, which --expert-tp {split} does not "
                f"divide. Next: use --expert-tp {_divisor(math.gcd(model.expert_ffn, self.tp), split)}."
            )
        if split < self.tp and (
            not self.sequence_parallel
            or self.placement[-1] != "pp"
            or (split > 1 and self.placement[0] != "tp")
        ):
            raise UsageError(
                "If fewer ranks share an expert than share other layers (--expert-tp below --tp), the plan "
                "needs sequence parallelism, and pipeline stages outermost (--placement tp-cp-dp-pp)."
            )


def shares_heads(kv_heads: int, tp: int) -> bool:
    """Return whether *kv_heads* heads can be divided among *tp* ranks, or copied equally often."""
    return kv_heads % tp == 0 or tp % kv_heads == 0


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of *number* that is at most *most*."""
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return max(each for low in small for each in (low, number // low) if each <= most)


def _option(key: str) -> str:
    return "--interleave" if key == "chunks" else "--" + key.replace("_", "-")
