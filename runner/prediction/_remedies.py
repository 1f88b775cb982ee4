"""Find changes that make a plan fit in memory, and their cost in step time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...errors import UsageError
from ._prices import Links
from ._setting import Setting, software_of
from ._work import Batch, coefficients, work_of
from .models import OFFLOAD, RECOMPUTATIONS, Plan, fullest_memory, least_recomputation

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
