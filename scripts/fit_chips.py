#!/usr/bin/env python3
"""Fit the costs of operators on chips to measured training steps, and write them into runner/chips/chips.yml.

``python scripts/fit_chips.py [--only CHIP]`` reads only the steps of ``../shared/reference/training``. Each
chip and software stack has up to a dozen costs with physical bounds. The fit minimises the relative errors of
the closed form. Small errors count squared and large errors linearly, so that odd rows have less weight.
Costs that the steps hardly determine stay close to the usual values. The chip files also contain the errors
of families (model sizes) that were left out of the fit in turn, and the range that contains nine of ten of
these steps.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measured_steps import Step, every_step

from chakrascope.runner.chips import (
    LOW_PRECISIONS,
    Chip,
    Costs,
    Fit,
    LinkCosts,
    chip_text,
    find_chip,
    list_chips,
)
from chakrascope.runner.prediction import (
    Batch,
    Links,
    Setting,
    StepWork,
    coefficients,
    estimated_ns,
    layer_flops,
    needed_ns,
    parts_of,
    uncertainty,
    work_of,
)

CHIPS = Path(__file__).resolve().parent.parent / "runner" / "chips" / "chips.yml"
# The usual value of a cost, at which a fit starts, and the factor (as a logarithm) by which the cost may
# deviate.
_USUAL: dict[str, float] = {
    "gemm": 0.75,
    "gemm_memory": 0.5,
    "attention": 0.3,
    "pointwise": 0.6,
    "layer_ns": 1e5,
    "host_ns": 2e5,
    "step_ns": 2e7,
    "exposed": 0.2,
    "within_share": 0.75,
    "within_latency_ns": 60e3,
    "across_share": 0.7,
    "across_latency_ns": 60e3,
}
_LEAST = {
    "gemm_fp8": 0.2,
    "tensor_exposed": 1e-3,
    "part_ns": 1.0,
    **dict(zip(_USUAL, (0.2, 1e-3, 0.02, 0.05, 1.0, 1.0, 1.0, 1e-3, 0.1, 1.0, 0.1, 1.0), strict=True)),
}
_MOST = {
    "gemm_fp8": 1.0,
    "tensor_exposed": 1.0,
    "part_ns": 1e6,
    **dict(zip(_USUAL, (1.0, 5.0, 0.8, 1.0, 1e8, 1e8, 1e10, 1.0, 1.0, 1e7, 1.0, 1e7), strict=True)),
}
_SMALL = 0.02  # errors below this value count squared
_HELD = 0.01  # weight of a cost whose logarithm deviates by one from the usual value, in errors
Costing = dict[str, float]


@dataclass(frozen=True)
class Task:
    """A fit: its steps, starting values, *free* costs, and the defaults of the software."""

    chip: str
    software: str
    data: str
    source: str
    free: Mapping[str, float]
    start: Mapping[str, float] = field(default_factory=dict)
    like: tuple[str, str] | None = None
    habits: Mapping[str, int] = field(default_factory=dict)


# A cost is not free if its usual value gives the same errors for families that were left out.
_FSDP = {
    "gemm": 0.5, "attention": 1, "pointwise": 0.7, "layer_ns": 1, "step_ns": 1, "exposed": 1,
    "within_share": 0.2, "across_share": 0.2,
}  # fmt: skip
_LLM_FOUNDRY = "mosaicml/llm-foundry 8c8dd48, scripts/train/benchmarking: MPT with FSDP"
_RECIPES = "NVIDIA/dgxc-benchmarking v24.11.1 to v25.04, README tables"
_NEMO = {"sharded_optimizer": True, "grad_bytes": 2}
_XLA = {"gemm": 0.15, "step_ns": 1, "exposed": 0.7}
_XLA_START = {
    "gemm": 0.7, "gemm_fp8": 0.55, "attention": 0.5, "pointwise": 0.7, "layer_ns": 5e4, "exposed": 0.1,
    "within_latency_ns": 2e4, "across_latency_ns": 2e4,
}  # fmt: skip
TASKS = (
    Task(
        "a100-80", "megatron", "A100 Megatron-DeepSpeed",
        "VIA-Research/vTrain f8dda84, data/ground_truth_multi.csv: GPT 3.6B to 175B with Megatron-DeepSpeed",
        {"gemm": 0.5, "attention": 1, "layer_ns": 1, "within_share": 0.2, "within_latency_ns": 1,
         "across_latency_ns": 1},
        {"gemm": 0.8, "attention": 0.15, "pointwise": 0.75, "host_ns": 2e6, "step_ns": 5e7,
         "within_latency_ns": 1e5, "across_latency_ns": 1e5},
        habits={"fused_attention": False, "overlap": False, "sequence_parallel": False},
    ),
    Task(
        "a100-40", "fsdp", "MPT FSDP a100-40", _LLM_FOUNDRY, _FSDP,
        habits={"grad_bytes": 2, "eager": True},
    ),
    # Chips with the same multiprocessors and software, but other memory.
    Task(
        "a100-80", "fsdp", "MPT FSDP a100-80", _LLM_FOUNDRY, dict.fromkeys(_FSDP, 0.1),
        like=("a100-40", "fsdp"), habits={"eager": True},
    ),
    Task("h100", "fsdp", "MPT FSDP h100", _LLM_FOUNDRY, _FSDP, habits={"eager": True}),
    Task(
        "h100", "megatron", "NVIDIA recipes megatron", f"{_RECIPES}: Llama 3 with NeMo",
        {"gemm": 0.3, "layer_ns": 1, "step_ns": 1, "within_share": 0.2},
        {"gemm": 0.72, "attention": 0.6, "pointwise": 0.7, "layer_ns": 5e4, "exposed": 0.1,
         "tensor_exposed": 0.2, "within_latency_ns": 2e4, "across_latency_ns": 2e4},
        habits={"tensor_overlap": True, **_NEMO},
    ),
    # The speed of matmuls relative to an H100 is that of isolated matmuls. All-gathers in a node reach the
    # bandwidth of NCCL 2.29 in isolation, with 512 MiB (ai-dynamo/aiconfigurator 095f58a,
    # systems/data/gb200).
    Task(
        "gb200", "megatron", "GB200 NeMo",
        "NVIDIA/dgxc-benchmarking support/25.05, README tables: Nemotron-4 340B and Grok-1 with NeMo",
        {"layer_ns": 1, "step_ns": 1, "part_ns": 1}, {"within_share": 0.63, "part_ns": 1e4},
        like=("h100", "megatron"), habits={"tensor_overlap": True, **_NEMO},
    ),
    Task(
        "h100", "xla", "NVIDIA recipes xla", f"{_RECIPES}: Llama with MaxText", _XLA, _XLA_START,
    ),
    Task(
        "h100", "paxml", "NVIDIA recipes paxml", f"{_RECIPES}: GPT with Paxml", _XLA, _XLA_START,
    ),
)  # fmt: skip


def main() -> None:
    """Read the command line, fit, and write the chip files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list_chips(), help="fit only this chip")
    only = parser.parse_args().only
    steps = every_step()
    for task in TASKS:
        if only in (None, task.chip):
            chip = find_chip(task.chip)
            costs = fitted_costs(task, chip, [step for step in steps if step.data == task.data])
            _save(chip, task.software, costs)


def store_chip(chip: Chip, file: Path) -> None:
    """Replace the block of *chip* in *file*, the file of the shipped chips."""
    block = f"{chip.name}:\n" + textwrap.indent(chip_text(chip), "  ")
    place = rf"^{re.escape(chip.name)}:\n(?:  .*\n)+"
    text = re.sub(place, lambda _: block, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")


def _save(chip: Chip, software: str, costs: Costs) -> None:
    others = {name: value for name, value in chip.costs.items() if name not in ("default", software)}
    like = {name: other for name, other in chip.like.items() if name != software}
    store_chip(replace(chip, costs={**others, software: costs}, like=like), CHIPS)
    fit = costs.fit
    if fit.rows and fit.unseen_mean is not None and fit.unseen_median is not None and fit.mean is not None:
        print(
            f"{chip.name} {software}: {fit.rows} rows, fitted {fit.mean:.2%}, families left out "
            f"{fit.unseen_mean:.2%} (median {fit.unseen_median:.2%}), {fit.inside or 0:.0%} in their range"
        )


def fitted_costs(task: Task, chip: Chip, steps: Sequence[Step], *, checks_ranges: bool = True) -> Costs:
    """Return the costs of *task*, with their errors; products in fp8 have a separate share of the peak.

    Checking the ranges takes a fit for each pair of families.
    """
    start = {**_USUAL, **task.start}
    if task.like:
        start = {**start, **_plain(chip.costs_like(find_chip(task.like[0]), task.like[1])), **task.start}
    free = dict(task.free)
    if any(step.plan.precision == "fp8" for step in steps):
        start.setdefault("gemm_fp8", start["gemm"] * 0.85)
        if "gemm" in free:
            free["gemm_fp8"] = 1.0
    problem = _Problem(chip, steps, start, free)
    costing = problem.fit(range(len(steps)))
    costs = costs_from(costing, task.habits)
    errors = problem.errors(costing)
    parts = problem.left_out() if len(set(problem.families)) > 1 else [errors]
    fit = _summary(task, chip, steps, errors, parts)
    return replace(costs, fit=replace(fit, inside=_inside(task, chip, steps) if checks_ranges else None))


def _inside(task: Task, chip: Chip, steps: Sequence[Step]) -> float:
    """Return the share of *steps* in their interval, with costs that were fitted without their family."""
    are_inside = []
    for step, setting, _ in unseen_steps(task, chip, steps):
        low, high = uncertainty(setting)
        are_inside.append(low <= step.measured_ns / estimated_ns(setting) <= high)
    return round(float(np.mean(are_inside)), 4)


class Unseen(NamedTuple):
    """A *step* whose family was left out: *setting* has costs that were fitted to the *others*."""

    step: Step
    setting: Setting
    others: Sequence[Step]


def unseen_steps(task: Task, chip: Chip, steps: Sequence[Step]) -> Iterator[Unseen]:
    """Yield each of *steps* at costs that were fitted without its family."""
    for family in dict.fromkeys(step.family for step in steps):
        others = [step for step in steps if step.family != family]
        costs = fitted_costs(task, chip, others, checks_ranges=False)
        fitted = replace(chip, costs={task.software: costs})
        for step in steps:
            if step.family == family:
                setting = Setting(step.model, step.plan, fitted, step.network, step.software)
                yield Unseen(step, setting, others)


def _summary(
    task: Task, chip: Chip, steps: Sequence[Step], errors: np.ndarray, parts: Sequence[np.ndarray]
) -> Fit:
    def share(value: float) -> float:
        return round(float(value), 4)

    settings = [Setting(step.model, step.plan, chip, step.network, step.software) for step in steps]
    reached = [needed_ns(setting) / step.measured_ns for setting, step in zip(settings, steps, strict=True)]
    unseen = np.concatenate(parts)
    low, high = _range_of(parts)
    largest = max((step.network for step in steps), key=lambda network: network.dimensions)
    bandwidths = [float(round(each * 1e9)) for each in largest.bandwidth_bytes_per_ns]
    return Fit(
        data=task.source,
        rows=len(steps),
        families=len(parts),
        mean=share(np.abs(errors).mean()),
        median=share(np.median(np.abs(errors))),
        worst=share(np.abs(errors).max()),
        unseen_mean=share(np.abs(unseen).mean()),
        unseen_median=share(np.median(np.abs(unseen))),
        low=share(low),
        high=share(high),
        utilisation=share(np.median(reached)),
        most_ranks=max(step.plan.world for step in steps),
        within_bytes_per_s=bandwidths[0],
        across_bytes_per_s=bandwidths[1] if len(bandwidths) > 1 else None,
        least_layer_flops=_round(min(map(layer_flops, settings))),
        covers=tuple(sorted({part for setting in settings for part in parts_of(setting)})),
    )


def _range_of(parts: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the multiples of the prediction that bound nine of ten rows of every family.

    *parts* are the errors of families that were left out, which represent a new family.
    """
    ratios = [1 / (1 + part) for part in parts]
    low = min(float(np.quantile(part, 0.05, method="lower")) for part in ratios)
    high = max(float(np.quantile(part, 0.95, method="higher")) for part in ratios)
    return min(low, 1.0), max(high, 1.0)


def costs_from(costing: Mapping[str, float], habits: Mapping[str, Any], *, exact: bool = False) -> Costs:
    """Return *costing* in the format of a chip file, rounded to four digits unless *exact*."""
    value = costing if exact else {name: _round(number) for name, number in costing.items()}
    low = {key: value[f"gemm_{key}"] for key in LOW_PRECISIONS if f"gemm_{key}" in value}
    gemm = {"default": value["gemm"], **low}
    return Costs(
        gemm=gemm,
        attention={"default": value["attention"]},
        pointwise=value["pointwise"],
        gemm_memory=value["gemm_memory"],
        layer_ns=value["layer_ns"],
        host_ns=value["host_ns"],
        step_ns=value["step_ns"],
        exposed=value["exposed"],
        tensor_exposed=value.get("tensor_exposed", value["exposed"]),
        part_ns=value.get("part_ns", 0.0),
        within_node=LinkCosts(value["within_share"], value["within_latency_ns"]),
        across_nodes=LinkCosts(value["across_share"], value["across_latency_ns"]),
        **habits,
    )


def _plain(costs: Costs) -> Costing:
    """Return *costs* with the names that the fit uses."""
    named = {name: getattr(costs, name) for name in _USUAL if isinstance(getattr(costs, name, None), float)}
    return {
        **named,
        "gemm": costs.gemm["default"],
        "attention": costs.attention["default"],
        **({} if costs.tensor_exposed is None else {"tensor_exposed": costs.tensor_exposed}),
        **{f"gemm_{key}": share for key, share in costs.gemm.items() if key != "default"},
        "within_share": costs.within_node.share,
        "within_latency_ns": costs.within_node.latency_ns,
        "across_share": costs.across_nodes.share,
        "across_latency_ns": costs.across_nodes.latency_ns,
    }


def _round(value: float) -> float:
    return float(f"{value:.4g}")


class _Part(NamedTuple):
    """Steps of one *precision*, with their *places* among others."""

    precision: str
    places: np.ndarray
    batch: Batch
    measured: np.ndarray


class _Problem:
    """Measured steps of one chip, and the costs that the fit may change."""

    def __init__(
        self, chip: Chip, steps: Sequence[Step], start: Mapping[str, float], free: Mapping[str, float]
    ) -> None:
        self.chip, self.start = chip, dict(start)
        self.names = list(free)
        self.free = np.array(list(free.values()))
        self.precisions = np.array([step.plan.precision for step in steps])
        self.works: list[StepWork] = [
            work_of(step.model, step.plan, Links.of(step.network)) for step in steps
        ]
        self.measured = np.array([step.measured_ns for step in steps])
        self.families = np.array([step.family for step in steps])

    def errors(self, costing: Costing, rows: Sequence[int] | None = None) -> np.ndarray:
        """Return the relative errors of *rows* (default: all) with the costs *costing*."""
        return self._relative(self._batches(range(len(self.works)) if rows is None else rows), costing)

    def _batches(self, rows: Sequence[int]) -> list[_Part]:
        """Return *rows* by precision, with their places among them."""
        chosen, parts = np.array(rows), []
        for precision in dict.fromkeys(self.precisions[chosen].tolist()):
            places = np.flatnonzero(self.precisions[chosen] == precision)
            part = Batch([self.works[row] for row in chosen[places]])
            parts.append(_Part(precision, places, part, self.measured[chosen[places]]))
        return parts

    def _relative(self, batches: Sequence[_Part], costing: Costing) -> np.ndarray:
        costs = costs_from(costing, {}, exact=True)  # rounded costs would have no slope
        found = np.empty(sum(len(part.places) for part in batches))
        for part in batches:
            price = coefficients(self.chip, costs, part.precision)
            times = part.batch.step_ns(price, costs)
            found[part.places] = times / part.measured - 1
        return found

    def fit(self, rows: Sequence[int]) -> Costing:
        """Return the costs that fit *rows* best."""
        batches = self._batches(rows)
        usual = np.log([self.start[name] for name in self.names])
        bounds = [np.log([limit[name] for name in self.names]) for limit in (_LEAST, _MOST)]

        def relative(at: np.ndarray) -> np.ndarray:
            return self._relative(batches, self._costing(at))

        found = _descend(relative, usual, self.free, bounds)
        return self._costing(found)

    def _costing(self, at: np.ndarray) -> Costing:
        return {**self.start, **dict(zip(self.names, np.exp(at).tolist(), strict=True))}

    def left_out(self) -> list[np.ndarray]:
        """Return the errors of each family with costs that were fitted to the other families."""
        found = []
        for family in dict.fromkeys(self.families.tolist()):
            out = self.families == family
            costing = self.fit(np.flatnonzero(~out).tolist())
            found.append(self.errors(costing, np.flatnonzero(out).tolist()))
        return found


def _descend(
    relative: Callable[[np.ndarray], np.ndarray],
    usual: np.ndarray,
    free: np.ndarray,
    bounds: Sequence[np.ndarray],
) -> np.ndarray:
    """Return the point with the smallest errors of *relative* (Levenberg-Marquardt with the Huber loss)."""
    held = _HELD / free**2
    at = usual.copy()
    errors = relative(at)

    def loss(errors: np.ndarray, at: np.ndarray) -> float:
        size = np.abs(errors)
        each = np.where(size < _SMALL, size**2 / (2 * _SMALL), size - _SMALL / 2)
        return float(each.sum() + (held * (at - usual) ** 2).sum() / 2)

    best, damping = loss(errors, at), 1e-3
    for _ in range(40):
        slopes = np.stack([(relative(at + step) - errors) / 1e-4 for step in np.eye(len(at)) * 1e-4], axis=1)
        weights = 1 / np.maximum(np.abs(errors), _SMALL)
        curve = (slopes * weights[:, None]).T @ slopes + np.diag(held)
        slope = (slopes * weights[:, None]).T @ errors + held * (at - usual)
        for _ in range(12):
            step = np.linalg.solve(curve + damping * np.diag(np.diag(curve) + 1e-9), -slope)
            there = np.clip(at + np.clip(step, -1, 1), *bounds)
            value = loss(relative(there), there)
            if value < best - 1e-12:
                break
            damping *= 4
        else:
            break
        gain, best, at, errors, damping = best - value, value, there, relative(there), max(damping / 5, 1e-9)
        if gain < 1e-7:
            break
    return at


if __name__ == "__main__":
    main()
