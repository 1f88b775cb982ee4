"""The input of a prediction, from the model to the software, and changes that make a plan fit in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ConfigError, UsageError
from ..chips import Chip, Costs, Fit
from ..config import NetworkConfig
from ._prices import ChipPrices, Links, costs_on
from ._work import Batch, coefficients, work_of
from .models import OFFLOAD, RECOMPUTATIONS, Plan, Transformer, fullest_memory, least_recomputation

OPTIONS = ("deduplicate", "expert_overlap", "cuda_graphs", "offload_optimizer")
_MAX_GPUS = 1_000_000
_ALIKE = 1.5  # measured shares are assumed to hold for bandwidths that differ by up to this factor
_KERNELS = 0.1  # ratio of a convolution's launches to a transformer layer's


@dataclass(frozen=True)
class Setting:
    """The input of a prediction: *model* with *plan* on a *network* of *chip* with *software*."""

    model: Transformer
    plan: Plan
    chip: Chip
    network: NetworkConfig
    software: str

    @property
    def costs(self) -> Costs:
        """The costs of operators; layers of convolutional networks have fewer kernel launches."""
        result = costs_on(self.network, self.chip.costs_of(self.software))
        if self.plan.cuda_graphs:
            result = replace(result, host_ns=0.0)
        if not self.model.convolutions:
            return result
        return replace(result, host_ns=result.host_ns * _KERNELS, step_ns=0.0)

    @property
    def prices(self) -> ChipPrices:
        """The prices (times in ns) of operators and collectives."""
        links = Links.of(self.network)
        return ChipPrices(self.chip, self.costs, self.plan.precision, links)

    def check(self) -> None:
        """Raise `UsageError` for a plan that the model, the chip or the network does not allow."""
        self.plan.check(self.model)
        self.chip.peak(self.plan.precision)
        if self.plan.needs_host and self.chip.host is None:
            raise UsageError(
                f"CPU offload needs the bandwidths of a host, which the chip '{self.chip.name}' lacks. "
                "Next: use a chip file with 'host: {link_bytes_per_s: 6.4e+10, memory_bytes_per_s: 7.7e+10}'."
            )
        if self.plan.world != self.network.num_ranks:
            raise UsageError(
                f"The plan needs {self.plan.world} ranks (tp {self.plan.tp} x pp {self.plan.pp} x dp "
                f"{self.plan.dp} x cp {self.plan.cp}), and the network '{self.network.name}' has "
                f"{self.network.num_ranks}. Next: change --dp, or the network. Presets exist for any number "
                "of nodes, such as hgx-h100-64x8 for 64 nodes."
            )


def software_of(chip: Chip, plan: Plan) -> str:
    """Return the software stack of *chip* for *plan*: FSDP for sharded gradients, otherwise Megatron."""
    wanted = ("fsdp", "megatron") if plan.zero >= 2 else ("megatron", "fsdp")
    return next((name for name in (*wanted, "default") if name in chip.costs), next(iter(chip.costs)))


def with_habits(plan: Plan, costs: Costs, chosen: Mapping[str, Any]) -> Plan:
    """Return *plan* with the software's default for every option that is not in *chosen*.

    The keys of *chosen* are ``sequence_parallel``, ``fused_attention``, ``overlap``, ``tensor_overlap``,
    ``gradient_bytes``, and `OPTIONS`, which are off by default. Defaults for tensor parallelism are also set
    in plans without tensor parallelism, because derived plans may have a higher degree.
    """

    def habit(name: str) -> bool:
        value = chosen.get(name)
        return bool(getattr(costs, name)) if value is None else value

    options: dict[str, Any] = {key: bool(chosen[key]) for key in OPTIONS if chosen.get(key) is not None}
    return replace(
        plan,
        **options,
        sequence_parallel=habit("sequence_parallel"),
        fused_attention=habit("fused_attention"),
        overlap=habit("overlap"),
        eager=costs.eager,
        tensor_overlap=habit("sequence_parallel") and habit("tensor_overlap"),
        grad_bytes=max(int(chosen.get("gradient_bytes") or costs.grad_bytes), plan.element_bytes),
    )


def usual_network(chip: Chip, ranks: int) -> NetworkConfig:
    """Return the preset of the usual nodes of *chip*, with the given number of *ranks*.

    The function raises `UsageError` if no network preset has the chip, or if *ranks* do not fill whole nodes.
    """
    if not chip.network:
        raise UsageError(
            f"The chip '{chip.name}' has no default network. Next: add --network NAME, a preset or a "
            "file, which also gives the number of GPUs."
        )
    node = NetworkConfig.preset(chip.network)
    size, family = node.num_ranks, node.name.removesuffix(f"-{node.num_ranks}")
    if not 1 <= ranks <= _MAX_GPUS:
        raise UsageError(
            f"The number of GPUs must be from 1 to {_MAX_GPUS:,}, not {ranks}. Next: use --gpus {size}, for "
            "example."
        )
    if ranks == size:
        return node
    try:
        NetworkConfig.preset(f"{family}-2x{size}")
    except ConfigError:
        raise UsageError(
            f"Nodes of '{family}' have {size} GPUs, and no preset connects several nodes. Next: use "
            f"--gpus {size}, or --network with a file that has the network between the nodes."
        ) from None
    if ranks % size:
        near = max(1, round(ranks / size)) * size
        raise UsageError(
            f"Nodes of '{family}' have {size} GPUs, and {ranks} is not a multiple of {size}. Next: use "
            "--gpus "
            f"{near}, or --network with nodes of another size."
        )
    return NetworkConfig.preset(f"{family}-{ranks // size}x{size}")


def unusual_links(fit: Fit, network: NetworkConfig) -> str:
    """Return a text on bandwidths of *network* that differ from the measured steps, or ``""``.

    The attained shares of bandwidths in *fit* were fitted to the measured steps. A network with an
    `efficiency` has shares from its file, so the result is ``""``.
    """
    if network.efficiency is not None:
        return ""
    own = Links.of(network)
    levels = [("within a node", own.within_bytes_per_ns, fit.within_bytes_per_s)]
    if network.dimensions > 1:
        levels.append(("between nodes", own.across_bytes_per_ns, fit.across_bytes_per_s))
    return " and ".join(
        f"{mine:,.4g} GB/s {where} instead of {theirs / 1e9:,.4g}"
        for where, mine, theirs in levels
        if theirs and not 1 / _ALIKE <= mine * 1e9 / theirs <= _ALIKE
    )


_SHOWN = 3
_LEAST = "as few layers as it takes"


@dataclass(frozen=True)
class Remedy:
    """Options that make a plan fit in memory, the fullest rank's memory, and the factor on the step time."""

    options: str
    memory_bytes: int
    times_as_long: float


def estimated_ns(setting: Setting) -> float:
    """Return the step time of *setting* in ns, estimated by the closed form instead of a simulation."""
    costs, plan = setting.costs, setting.plan
    work = work_of(setting.model, plan, Links.of(setting.network))
    price = coefficients(setting.chip, costs, plan.precision)
    return float(Batch([work]).step_ns(price, costs)[0])


def remedies(setting: Setting) -> list[Remedy]:
    """Return the cheapest changes that make *setting* fit in memory: one change, or a pair."""
    changes = list(_changes(setting.plan, offloads=setting.chip.host is not None))
    for count in (1, 2):
        result: list[Remedy] = []
        for chosen in itertools.combinations(changes, count):
            keys = [key for change in chosen for key in change]
            if len(keys) == len(set(keys)):
                result += _tried(setting, {key: value for change in chosen for key, value in change.items()})
        if result:
            return sorted(result, key=lambda each: (each.times_as_long, each.memory_bytes))[:_SHOWN]
    return []


def _changes(plan: Plan, *, offloads: bool) -> Iterator[dict[str, Any]]:
    """Yield changes of *plan* that save memory, as fields by name, with CPU offload if *offloads*."""
    mode, layers, _ = plan.recomputation
    place = RECOMPUTATIONS.index(plan.recompute) if plan.recompute in RECOMPUTATIONS else 1
    for recompute in RECOMPUTATIONS[place + 1 :]:
        yield {"recompute": recompute}
    if offloads and mode != OFFLOAD:
        yield {"recompute": OFFLOAD}
    if offloads and not plan.offload_optimizer:
        yield {"offload_optimizer": True}
    if mode == "none" or layers:
        yield {"recompute": _LEAST}
    if not plan.fused_attention:
        yield {"fused_attention": True}
    for zero in range(plan.zero + 1, 4):
        yield {"zero": zero}
    if plan.micro_batch > 1:
        yield {"micro_batch": 1}
    for axis in ("tp", "pp", "cp"):
        for factor in (2, 4, 8):
            if plan.dp % factor == 0:
                yield {axis: getattr(plan, axis) * factor, "dp": plan.dp // factor}


def _tried(setting: Setting, changes: dict[str, Any]) -> Iterator[Remedy]:
    """Yield the remedy *changes* if the changed plan is possible and fits in memory."""
    least = changes.get("recompute") == _LEAST
    plan = replace(setting.plan, **(changes | ({"recompute": "none"} if least else {})))
    try:
        plan.check(setting.model)
    except UsageError:
        return
    if least:
        recomputation = least_recomputation(setting.model, plan, setting.chip.usable_bytes)
        if recomputation is None:
            return
        plan, changes = recomputation, {**changes, "recompute": recomputation.recompute}
    memory = fullest_memory(setting.model, plan).total
    if memory <= setting.chip.usable_bytes:
        longer = estimated_ns(replace(setting, plan=plan)) / estimated_ns(setting)
        options = [_option(key, value) for key, value in changes.items()]
        if software_of(setting.chip, plan) != setting.software:
            options.append(f"--software {setting.software}")
        yield Remedy(" ".join(options), memory, longer)


def _option(key: str, value: Any) -> str:
    name = f"--{key.replace('_', '-')}"
    return name if value is True else f"{name} {value}"
