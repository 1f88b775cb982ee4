"""Predict a training step: generate its graphs, simulate them, and estimate an uncertainty interval."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from ...converter import Workload
from ...converter.building import COMPUTED_FOR
from ...errors import UsageError
from ...support import bytes_text, share_text
from .._experiment import Experiment
from .._result import Result
from .._simulate import prepare
from .._traits import DEFAULT_BACKEND, about_backend
from ..analysis import critical_path
from ..backends import Progress, get_backend
from ..chips import Chip
from ._distribution import StepDistribution, Variation, step_distribution
from ._memory_curve import MemoryCurve, memory_curves
from ._prices import Links, needs_every_rank, predicted_system, reached_network
from ._setting import Remedy, Setting, remedies, unusual_links
from .models import (
    Memory,
    Transformer,
    rank_memory,
    training_step,
)

# Error bounds that hold for nine of ten rows, as the absolute logarithm of measured over predicted time:
# for a feature without fitted rows, for a kind of layer without fitted rows, and for a chip with the costs
# of another chip.
_UNMEASURED_PART, _UNMEASURED_LAYER, OTHER_CHIP = 0.2, 0.4, 0.4
# The same bound for each doubling of ranks beyond the fitted rows, and for each halving of their layers.
_PER_DOUBLING, _PER_HALVING = 0.05, 0.14
_LAYERS = {"experts", "convolutions"}
USUAL_UTILISATION = 0.4
_WORDS = {
    "compute": "computation",
    "host": "launches",
    "wait": "waiting for other stages",
    "idle": "idle time",
}


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """A predicted step, simulated from a plan or a recorded script; times are in ns, and sizes in bytes.

    *memory_bytes* is the memory of the fullest rank. *bounds* are the factors on the step time that bound its
    90 % interval. *needed_ns* is the time of the step's required operations at peak speed, and
    *constant_utilisation_ns* the step time if every job reached the same share of the chip's peak.
    """

    chip: Chip
    experiment: Experiment
    result: Result
    memory_bytes: int
    bounds: tuple[float, float]
    needed_ns: float
    constant_utilisation_ns: int

    @property
    def step_ns(self) -> int:
        """The simulated step time in ns."""
        return self.result.makespan_ns

    @property
    def range_ns(self) -> tuple[int, int]:
        """The bounds of the 90 % interval of the step time, in ns."""
        low, high = self.bounds
        return round(self.step_ns * low), round(self.step_ns * high)

    @property
    def utilisation(self) -> float:
        """The share of the step that the required operations take at peak speed."""
        return self.needed_ns / self.step_ns

    @property
    def fits(self) -> bool:
        """Whether the fullest rank fits into the usable memory of the chip."""
        return self.memory_bytes <= self.chip.usable_bytes

    @property
    def workload(self) -> Workload:
        """The workload that was simulated for the prediction."""
        return self.experiment.workload.model

    @property
    def assumptions(self) -> list[str]:
        """The assumptions of the prediction, and deviations of the simulation from the request."""
        provenance = self.result.provenance
        notes = [*provenance.get("warnings", []), *provenance.get("assumptions", [])]
        return [str(line) for line in dict.fromkeys(notes)]

    @cached_property
    def bound_by(self) -> str:
        """The largest parts of the predicted step's critical path, as text."""
        path, total = critical_path(self.result, self.workload), self.step_ns
        kinds, operators = path.breakdown("kind"), path.breakdown("operator")
        text = ", ".join(
            f"{_WORDS.get(row.key, row.key)} {share_text(row.duration_ns / total)}"
            for row in kinds.head(3).itertuples()
        )
        key, duration = operators["key"].iloc[0], operators["duration_ns"].iloc[0]
        return f"{text} of the critical path; the largest operator is {key} ({share_text(duration / total)})"

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON; ``tokens_per_s`` is None, because a script's tokens are unknown."""
        low, high = self.range_ns
        return {
            "step_ns": self.step_ns,
            "step_low_ns": low,
            "step_high_ns": high,
            "tokens_per_s": None,
            "memory_bytes_per_rank": self.memory_bytes,
            "fits": self.fits,
            "bound_by": self.bound_by,
            "assumptions": self.assumptions,
        }

    def run_result(self) -> Result:
        """Return the result for a run of a study, with the prediction in its provenance.

        The key ``prediction`` contains the output of `to_json` without assumptions, which the provenance has
        already, the chip's title, its ``chip_memory_bytes`` and its ``chip_usable_bytes``. The key
        ``memory_over_time`` contains the memory curves of a prediction from model sizes.
        """
        document, chip = self.to_json(), self.chip
        del document["assumptions"]
        curves = {name: document[name] for name in ("memory_over_time",) if name in document}
        facts = {"chip_memory_bytes": chip.memory_bytes, "chip_usable_bytes": chip.usable_bytes}
        prediction = {**document, "chip": chip.title, **facts}
        return replace(self.result, provenance={**self.result.provenance, "prediction": prediction, **curves})


@dataclass(frozen=True, kw_only=True)
class Prediction(PredictedStep):
    """The predicted step of a plan with all inputs of the prediction.

    *needed_ns* excludes the operations for gradients of frozen weights. If a variation is requested,
    *distribution* contains the step times of the replays.
    """

    setting: Setting
    memory: tuple[Memory, ...]
    distribution: StepDistribution | None = None

    @property
    def tokens_per_s(self) -> float:
        """The throughput of all ranks together in tokens per second."""
        plan = self.setting.plan
        return plan.global_batch * (plan.sequence or self.setting.model.sequence) / self.step_ns * 1e9

    @cached_property
    def remedies(self) -> list[Remedy]:
        """The changes that make the plan fit in memory, cheapest first.

        The list is empty if the plan already fits, or if even pairs of changes do not suffice.
        """
        return [] if self.fits else remedies(self.setting)

    @cached_property
    def memory_over_time(self) -> tuple[MemoryCurve, ...]:
        """The memory use of a rank of each pipeline stage over the step."""
        setting = self.setting
        return memory_curves(
            setting.model, setting.plan, setting.prices, Links.of(setting.network),
            workload=self.workload, result=self.result,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON: step time, interval, speed, memory, bottleneck and assumptions."""
        return {
            **super().to_json(),
            "tokens_per_s": self.tokens_per_s,
            "remedies": [asdict(each) for each in self.remedies],
            "memory_over_time": [curve.to_json() for curve in self.memory_over_time],
            **({"spread": self.distribution.to_json()} if self.distribution else {}),
        }


def predict(
    setting: Setting,
    *,
    backend: str = DEFAULT_BACKEND,
    every_rank: bool = False,
    variation: Variation | None = None,
    progress: Progress | None = None,
) -> Prediction:
    """Generate and simulate the step of *setting*, with one rank of each kind or with *every_rank*.

    With a *variation* of kernels and ranks, the step is simulated again in replays. An impossible setting
    raises `UsageError`. The function also raises the errors of the *backend*. All backends except
    ``analytical-unaware`` need every rank. On a network with message costs, every rank is always simulated.
    """
    setting.check()
    experiment = experiment_of(setting, backend=backend, every_rank=every_rank)
    result = get_backend(backend).run(experiment, progress)
    stages = range(setting.plan.pp)
    memory = tuple(rank_memory(setting.model, setting.plan, stage) for stage in stages)
    distribution = None
    if variation:
        distribution = step_distribution(experiment, setting.plan, variation, progress)
    usual = setting.costs.fit.utilisation or USUAL_UTILISATION
    return Prediction(
        chip=setting.chip,
        experiment=experiment,
        result=result,
        memory_bytes=max(each.total for each in memory),
        bounds=uncertainty(setting),
        needed_ns=needed_ns(setting, trained=not setting.plan.frozen),
        constant_utilisation_ns=round(needed_ns(setting) / usual),
        setting=setting,
        memory=memory,
        distribution=distribution,
    )


def experiment_of(setting: Setting, *, backend: str, every_rank: bool) -> Experiment:
    """Return the experiment of *setting* on a network with the bandwidths that collectives attain."""
    plan, costs = setting.plan, setting.costs
    if not about_backend(backend).folds and not every_rank:
        raise UsageError(
            f"'{backend}' simulates every rank, but the prediction has one graph per set of identical ranks. "
            "Next: add --all-ranks, or leave out --backend."
        )
    every_rank = every_rank or needs_every_rank(setting.network)
    node_size = Links.of(setting.network).node_size
    workload = training_step(setting.model, plan, setting.prices, node_size, every_rank=every_rank)
    facts = {"assumptions": assumptions(setting), COMPUTED_FOR: setting.chip.name}
    workload = replace(workload, metadata={**workload.metadata, **facts})
    system = predicted_system(setting.network.topology)
    network = reached_network(setting.network, costs)
    return prepare(workload, system, network, backend=backend)


def needed_ns(setting: Setting, *, trained: bool = True) -> float:
    """Return the time (ns) of a step's required operations if all ranks computed at peak speed.

    The operations for gradients of weights are excluded unless the weights are *trained*.
    """
    plan, model = setting.plan, setting.model
    sequence = plan.sequence or model.sequence
    flops = model.flops_per_token(sequence, trained=trained) * sequence * plan.global_batch
    return flops / (setting.chip.peak(plan.precision) * plan.world) * 1e9


def parts_of(setting: Setting) -> list[str]:
    """Return the names of the optional features that the job of *setting* uses."""
    plan, model = setting.plan, setting.model
    parts = {
        "experts": model.experts > 0,
        "more than two experts a token": model.top_k > 2,
        "biases of experts": model.expert_bias,
        "experts across nodes": plan.ep > 1 and _experts_leave_node(setting),
        "overlapped experts": plan.expert_overlap,
        "convolutions": bool(model.convolutions),
        "latent attention": model.kv_rank > 0,
        "windows of attention": 0 < (model.window or model.chunk) < (plan.sequence or model.sequence),
        "tensor parallelism across nodes": plan.tp > Links.of(setting.network).node_size,
        "context parallelism": plan.cp > 1,
        "zero bubble": plan.schedule == "zero-bubble",
        "CUDA graphs": plan.cuda_graphs,
        "CPU offload": plan.needs_host,
        "a sharded optimizer": plan.zero == 1 and not plan.frozen,
        "adapters": plan.frozen,
        "tensor parallelism with sharded weights": plan.zero >= 2 and plan.tp * plan.pp > 1,
        f"the precision {plan.precision}": plan.precision not in {"bf16", "fp16"},
    }
    return [name for name, present in parts.items() if present]


def unmeasured(setting: Setting) -> list[str]:
    """Return the job's features that occur in none of the measured steps behind its costs."""
    fit = setting.costs.fit
    beyond = [part for part in parts_of(setting) if part not in fit.covers]
    links = unusual_links(fit, setting.network)
    if links:
        beyond.append(f"links with {links}")
    if fit.most_ranks is not None and setting.plan.world > fit.most_ranks:
        beyond.append(f"more than {fit.most_ranks:,} ranks")
    if fit.least_layer_flops is not None and layer_flops(setting) < fit.least_layer_flops:
        beyond.append("as little to compute in a layer, a rank and a micro-batch")
    return beyond


def layer_flops(setting: Setting) -> float:
    """Return the forward operations of the smallest layer, per rank and micro-batch."""
    plan, model = setting.plan, setting.model
    tokens = plan.micro_batch * (plan.sequence or model.sequence) / plan.cp
    if model.convolutions:
        return min(layer.flops for layer in model.convolutions) * tokens
    return 2 * tokens * _smallest_layer(model) / plan.tp


@lru_cache(16)
def _smallest_layer(model: Transformer) -> int:
    return min(model.layer_params(layer, active=True) for layer in range(model.layers))


def _experts_leave_node(setting: Setting) -> bool:
    node_size = Links.of(setting.network).node_size
    return len({rank // node_size for rank in setting.plan.group(0, "ep")}) > 1


def uncertainty(setting: Setting) -> tuple[float, float]:
    """Return the factors on the step time that bound its 90 % interval.

    The interval combines independent errors. The first error is that of families left out of the fit. Further
    errors are added for few families, for another chip, and for each feature without a measured step. More
    ranks and smaller layers than measured widen the interval further, by the number of doublings.
    """
    fit = setting.costs.fit
    beyond = unmeasured(setting)
    variance = sum((_UNMEASURED_LAYER if part in _LAYERS else _UNMEASURED_PART) ** 2 for part in beyond)
    variance += _UNMEASURED_PART**2 / (fit.families or math.inf) + (OTHER_CHIP**2 if not fit.rows else 0.0)
    for each, ratio in (
        (_PER_HALVING, (fit.least_layer_flops or 0.0) / layer_flops(setting)),
        (_PER_DOUBLING, setting.plan.world / (fit.most_ranks or math.inf)),
    ):
        variance += (each * math.log2(max(ratio, 1.0))) ** 2
    low, high = (math.hypot(math.log(each or 1.0), math.sqrt(variance)) for each in (fit.low, fit.high))
    return math.exp(-low), math.exp(high)


def _reached(setting: Setting) -> str:
    """Return a sentence that states which share of the bandwidth collectives attain."""
    if setting.network.efficiency is not None:
        return "Collectives reach the bandwidth that the efficiency of the network allows"
    costs = setting.costs
    within, across = share_text(costs.within_node.share), share_text(costs.across_nodes.share)
    return f"Collectives reach {within} of the bandwidth within a node and {across} across nodes"


def _attended(setting: Setting) -> list[str]:
    """Return a sentence for each kind of attention that does not cover the whole sequence."""
    model, sequence = setting.model, setting.plan.sequence or setting.model.sequence
    if not 0 < (model.window or model.chunk) < sequence:
        return []
    if not setting.plan.fused_attention:
        return ["Attention that is not fused computes all scores, including masked scores"]
    layers = f"in all layers but one of {model.full_every}" if model.full_every else "in all layers"
    if model.chunk:
        return [f"Tokens attend to earlier tokens in the same chunk of {model.chunk} tokens, {layers}"]
    return [f"Tokens attend to the {model.window} tokens before them (the model's window), {layers}"]


def assumptions(setting: Setting) -> list[str]:
    """Return the assumptions of the prediction, one sentence each."""
    plan, fit = setting.plan, setting.costs.fit
    measured = f"fitted on {fit.rows} measured steps ({fit.data})" if fit.rows else fit.data
    assumptions = [
        f"Operator times are those of '{setting.software}' on {setting.chip.title}, {measured}",
        f"{_reached(setting)}; a collective across nodes runs within the nodes first, then between them",
        f"Ranks are placed {', '.join(plan.placement)} from the innermost dimension, "
        f"{Links.of(setting.network).node_size} per node",
        "All ranks of a pipeline stage take the same time: there are no stragglers, failures or data loading",
        "Tokens are images of 224 x 224; for a convolution, the host launches a tenth of the kernels of a "
        "transformer layer, and no other kernels per step"
        if setting.model.convolutions
        else f"Sequences have {plan.sequence or setting.model.sequence} tokens without padding",
    ]
    if plan.pp > 1 and plan.ends_count(setting.model.layers):
        assumptions.append("The embedding and the loss each take the place of one layer in the pipeline")
    elif plan.pp > 1 and setting.model.layers % (plan.pp * plan.chunks):
        assumptions.append(
            "The layers do not divide evenly among pipeline stages; the first stages have one layer more"
        )
    assumptions += setting.model.remarks
    if plan.tp > setting.model.kv_heads and not setting.model.kv_rank:
        assumptions.append(f"Each of the {setting.model.kv_heads} key/value heads is stored on several ranks")
    if plan.lora:
        assumptions.append(
            f"Adapters of rank {plan.lora} are on queries, keys and values of every layer; all other weights "
            "are frozen and kept in the precision of computation"
        )
    if plan.lora or not plan.frozen:
        stored_bytes = 4 if plan.zero >= 2 else plan.grad_bytes
        assumptions.append(
            f"A gradient takes {plan.grad_bytes} bytes in reductions (--gradient-bytes), and {stored_bytes} "
            "in memory"
        )
    assumptions += _attended(setting)
    if setting.model.experts:
        assumptions.append("All experts get the same number of tokens")
        if not plan.cuda_graphs:
            assumptions.append(
                "The host launches the matmuls of experts after it has received their token counts"
            )
    if plan.ep > 1:
        assumptions.append(
            "A token is sent once to each node with experts for it, and within the node to each rank with "
            "such experts"
            if plan.deduplicate
            else "A copy of a token is sent to each of its experts"
        )
    if plan.needs_host and setting.chip.host:
        host = setting.chip.host
        assumptions.append(
            f"A rank has {bytes_text(host.link_bytes_per_s)}/s to and from its host, and "
            f"{bytes_text(host.memory_bytes_per_s)}/s of the host's memory bandwidth; the host memory is "
            "large enough"
        )
    if plan.pp > 1 and setting.model.tied:
        assumptions.append(
            "The exchange of gradients of embeddings that the first and last stage share is left out"
        )
    beyond = unmeasured(setting)
    if beyond:
        assumptions.append(f"No measured step has {', '.join(beyond)}; the interval is wider for this reason")
    chip = setting.chip
    assumptions.append(
        f"A plan fits in {bytes_text(chip.usable_bytes)} of a chip's {bytes_text(chip.memory_bytes)}; "
        "fragments of PyTorch's allocator and NCCL's buffers need the rest"
    )
    return assumptions
