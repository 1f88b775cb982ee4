#!/usr/bin/env python3
"""Write docs/validation/predictions.md: measured training steps against `predict`.

``python scripts/predictions_report.py [-o FOLDER]`` predicts each step of ``../shared/reference/training`` by
simulation, with the current costs in ``runner/chips``. The script fits nothing. For comparison, it also
predicts each step with constant utilisation, which is the median of the same rows.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bridge_steps import bridge_steps
from measured_steps import GIB, Step, every_step, left_out, unfitted_steps
from prediction_distance import Point, described, drawing, points, table
from prose import wrapped

from chakrascope.cli._predict import plan_of, predict_command
from chakrascope.runner import Detail, get_backend
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import (
    Setting,
    estimated_ns,
    experiment_of,
    needed_ns,
    uncertainty,
)
from chakrascope.runner.prediction.models import Plan, fullest_memory

ROOT = Path(__file__).resolve().parent.parent
ODD = 0.12  # rows with larger errors are left out of the second count


class Row(NamedTuple):
    """A measured step, its prediction, and the prediction of constant utilisation; ns.

    *estimated* is the closed form, by which `predict search` ranks plans.
    """

    step: Step
    predicted: float
    constant: float
    estimated: float = 0.0
    range: tuple[float, float] = (0.0, 0.0)

    @property
    def error(self) -> float:
        """The relative error of the predicted step time."""
        return self.predicted / self.step.measured_ns - 1

    @property
    def memory_gib(self) -> float:
        """The predicted memory of the fullest rank."""
        return fullest_memory(self.step.model, self.step.plan).total / GIB

    @property
    def memory_error(self) -> float:
        """The relative error of the predicted memory."""
        return self.memory_gib / (self.step.memory_gib or math.nan) - 1


def main() -> None:
    """Read the command line, predict every step and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "docs" / "validation", help="folder to write"
    )
    folder: Path = parser.parse_args().output
    rows = [row for steps in _by(every_step(), lambda step: step.data).values() for row in predicted(steps)]
    never = [
        row
        for unfitted, simulates in ((unfitted_steps(), True), (bridge_steps(), False))
        for steps in _by(unfitted, lambda step: step.data).values()
        for row in predicted(steps, simulates=simulates)
    ]
    (folder / "images").mkdir(parents=True, exist_ok=True)
    found = points([row.step for row in never])
    (folder / "images" / "predictions.svg").write_text(drawing(found), encoding="utf-8")
    (folder / "predictions.md").write_text(wrapped(page(rows, never, found)), encoding="utf-8")
    with (folder / "predictions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(_every([*rows, *never]))


_FLAGS = (
    "sequence_parallel", "fused_attention", "overlap", "tensor_overlap", "deduplicate", "expert_overlap",
    "cuda_graphs",
)  # fmt: skip
_NUMBERS = {
    "tp": 1, "pp": 1, "dp": 0, "cp": 1, "ep": 1, "micro_batch": 1, "global_batch": 0, "sequence": 0,
    "zero": -1, "document": 0, "expert_tp": 0,
}  # fmt: skip


def options(step: Step) -> list[str]:
    """Return the options of `chakrascope predict` for *step*, without model and network."""
    plan = step.plan
    words = ["--chip", step.chip, "--software", step.software, "--precision", plan.precision]
    words += [
        f"--{key.replace('_', '-')}={getattr(plan, key)}"
        for key, usual in _NUMBERS.items()
        if getattr(plan, key) != usual
    ]
    words += ["--recompute", plan.recompute, "--gradient-bytes", str(plan.grad_bytes)]
    words += [f"--interleave={plan.chunks}"] * (plan.chunks > 1)
    words += [f"--lora={plan.lora}"] * plan.frozen
    words += ["--keep=" + ",".join(plan.saved)] * bool(plan.saved)
    common = Plan()
    for key in _FLAGS:
        value = getattr(plan, key)
        needs_tensor = key in {"sequence_parallel", "tensor_overlap"} and plan.tp == 1
        if not needs_tensor and (value != getattr(common, key) or key in _FLAGS[:4]):
            words.append(f"--{'' if value else 'no-'}{key.replace('_', '-')}")
    return words


def by_command(step: Step) -> Step:
    """Return *step* with the command's plan for the options, which must equal the step's plan."""
    context = predict_command.make_context("predict", ["--network", "any", *options(step)])
    plan, _ = plan_of(context.params, find_chip(step.chip), step.plan.world, step.software)
    if plan.tp == 1:  # without effect, and defaults of the software
        measured = step.plan
        plan = replace(
            plan, sequence_parallel=measured.sequence_parallel, tensor_overlap=measured.tensor_overlap
        )
    if plan != step.plan:
        raise ValueError(f"{step.row}: the command predicts {plan}, and {step.plan} was measured")
    return replace(step, plan=plan)


def predicted(steps: Sequence[Step], *, simulates: bool = True) -> Iterator[Row]:
    """Yield the predictions of *steps* of one data set, by simulation or by the estimate."""
    steps = [by_command(step) for step in steps]
    settings = [
        Setting(step.model, step.plan, find_chip(step.chip), step.network, step.software) for step in steps
    ]
    needed = [needed_ns(setting) for setting in settings]
    usual = statistics.median(need / step.measured_ns for need, step in zip(needed, steps, strict=True))
    for setting, need, step in zip(settings, needed, steps, strict=True):
        low, high = uncertainty(setting)
        time = estimate = estimated_ns(setting)
        if simulates:
            experiment = experiment_of(setting, backend="analytical-unaware", every_rank=False)
            result = get_backend("analytical-unaware").run(replace(experiment, detail=Detail.TOTALS))
            time = result.makespan_ns
        yield Row(step, time, need / usual, estimate, (time * low, time * high))


def page(rows: Sequence[Row], never: Sequence[Row], found: Sequence[Point]) -> str:
    """Return the whole page."""
    return "\n".join([
        "# Predicted and measured training steps", "",
        "`scripts/predictions_report.py` writes this page. `predictions_report.py` predicts "
        f"{len(rows)} published step times with the options of `chakrascope predict`; "
        "[predictions.csv](predictions.csv) lists all predictions. The column *fitted* has the errors "
        "of a fit, because `scripts/fit_chips.py` fitted the costs in `runner/chips` to the same "
        "step times. For the column *unseen families*, the rows of each model size or recipe were left "
        "out of the fit in turn.", "",
        *_overview(rows), "",
        f"A row is odd if its error is above {ODD:.0%}. The column *constant utilisation* has the error of "
        "a prediction with the median utilisation of the rows. The column *in the interval* has the "
        "share of steps within the 90 % interval that is predicted without their family in the fit.",
        "",
        "## Other labs", "", *_never(never), "",
        "## Error against distance", "", *_distance(found), "",
        "## The best configuration", "", *_best(rows), "",
        "## Odd rows", "",
        *_neighbours(rows, never), "",
        "## Limits", "", *_missing(), "",
    ])  # fmt: skip


def _overview(rows: Sequence[Row]) -> Iterator[str]:
    names = "rows", "fitted", "unseen families (median)", "in the interval", "without odd rows"
    yield f"| steps | {' | '.join(names)} | constant utilisation |"
    yield "|---|---|---|---|---|---|---|"
    for data, part in _by(rows, lambda row: row.step.data).items():
        fit = find_chip(part[0].step.chip).costs_of(part[0].step.software).fit
        even = [row for row in part if abs(row.error) <= ODD]
        unseen = f"{fit.unseen_mean or 0:.1%} ({fit.unseen_median or 0:.1%})"
        yield (
            f"| {data} | {len(part)} | {_mean(part):.1%} | {unseen} | {fit.inside or 0:.0%} | "
            f"{_mean(even):.1%} of {len(even)} | {_constant(part):.1%} |"
        )


def _never(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "No chip file was fitted to the step times of other labs. The sources of these step times are "
        "Table 5 of Korthikanti et al. (2022), "
        "torchtitan's tables of Llama 2 and 3 with FSDP, NVIDIA's recipe for Grok-1, and five releases of "
        "[Megatron Bridge](https://docs.nvidia.com/nemo/megatron-bridge/latest/performance-summary.html). "
        "Rows of Megatron Bridge use the estimate of `predict search`. Some properties of the "
        "model were chosen with knowledge of the steps of Megatron Bridge: the launches and copies of "
        "experts, the number of launches in a low precision (by its errors), the order of casts and gathers, "
        "and the overlap of sends within and between nodes. Rows with *compared* run one plan with two "
        "token dispatchers, each with and without overlap. "
        "B200, B300 and GB300 are predicted with the costs of GB200, and H200 with those of H100. The error "
        "of memory compares "
        "the predicted memory of the fullest rank "
        "with the memory that PyTorch reserved, including fragments."
    )
    yield ""
    yield (
        "| steps | rows | mean error | largest error | in the interval | mean error of memory | "
        "largest error of memory |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, part in _by(rows, lambda row: f"{row.step.data}, {row.step.family}").items():
        inside = sum(row.range[0] <= row.step.measured_ns <= row.range[1] for row in part)
        memory = [row.memory_error for row in part if row.step.memory_gib]
        ends = f"{_mean_of(memory):.1%} | {_largest(memory):+.1%}" if memory else " | "
        largest = _largest([row.error for row in part])
        yield f"| {name} | {len(part)} | {_mean(part):.1%} | {largest:+.1%} | {inside} | {ends} |"
    memory = [row.memory_error for row in rows if row.step.memory_gib]
    close = sum(abs(error) <= 0.1 for error in memory)
    inside = sum(row.range[0] <= row.step.measured_ns <= row.range[1] for row in rows)
    yield (
        f"\nThe mean error of all step times from other labs is {_mean(rows):.1%}. Of {len(rows)} step "
        f"times, {inside} are in their 90 % "
        f"interval. The mean error of memory is {_mean_of(memory):.1%}; {close} of {len(memory)} predicted "
        "peaks are within 10% of the measured peaks."
    )


def _largest(errors: Sequence[float]) -> float:
    return max(errors, key=abs)


def _distance(found: Sequence[Point]) -> Iterator[str]:
    yield (
        "The distance of a step to the nearest fitted step is the largest number of doublings (of ranks, "
        "parameters, or operations in a layer), plus one for each part (such as a precision) that no fitted "
        "step has. The errors by distance use the estimate that ranks the plans of `predict search`. "
        "In the figure, rings mark steps outside their 90 % interval, and lines are medians."
    )
    yield ""
    yield f"![{described(found)}](images/predictions.svg)"
    yield ""
    yield from table(found)


def _best(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the measured time of the configuration predicted to be best, relative to the fastest."""
    yield (
        "The column *relative* has the measured time of the predicted best configuration (by "
        "simulation, or by the estimate of `predict search`), divided by the measured time of the "
        "fastest configuration."
    )
    yield ""
    yield "| model | ranks | configurations | predicted best | relative | estimated best | relative |"
    yield "|---|---|---|---|---|---|---|"
    lost: list[tuple[float, float]] = []
    parts = _by(
        (row for row in rows if row.step.software == "megatron" and row.step.chip == "a100-80"),
        lambda row: (row.step.family, row.step.plan.world, row.step.plan.global_batch),
    )
    for (family, world, _), part in parts.items():
        best = min(row.step.measured_ns for row in part)
        chosen = min(part, key=lambda row: row.predicted), min(part, key=lambda row: row.estimated)
        lost.append((chosen[0].step.measured_ns / best, chosen[1].step.measured_ns / best))
        cells = " | ".join(
            f"{row.step.row.split(': ')[1]} | {each:.3f}" for row, each in zip(chosen, lost[-1], strict=True)
        )
        yield f"| GPT {family}B | {world} | {len(part)} | {cells} |"
    means = [f"**{statistics.mean(each):.3f}**" for each in zip(*lost, strict=True)]
    yield f"| **mean** | | | | {means[0]} | | {means[1]} |"


def _neighbours(rows: Sequence[Row], never: Sequence[Row]) -> Iterator[str]:
    """Yield the errors of groups of rows that are odd for the same reason."""
    gpt = [row for row in rows if row.step.family == "39.1" and row.step.plan.tp in {2, 4}]
    odd = [row for row in gpt if row.error < -ODD]
    within = [
        row
        for row in never
        if row.step.model.name == "gpt-oss-120b"
        and row.step.plan.precision == "bf16"
        and row.step.plan.ep <= row.step.network.npus_count[0]
    ]
    hybrid = [row for row in never if row.step.data.endswith("compared") and row.step.plan.deduplicate]
    newer = [
        row
        for row in never
        if row.step.model.name == "llama3-405b"
        and row.step.chip in {"gb200", "gb300"}
        and row.step.plan.precision == "fp8"
    ]
    for part, start, end in (
        (
            odd,
            f"In {len(odd)} of {len(gpt)} rows of GPT 39.1B with tensor parallelism 2 or 4, the error of the "
            "predicted step is",
            "",
        ),
        (
            within,
            "The error of GPT-OSS 120B in BF16 with experts exchanged within nodes is",
            ", for an unknown reason",
        ),
        (hybrid, "The error of Qwen3 30B on 16 H100 with HybridEP of mid-2026 is", ""),
        (
            newer,
            "The error of Llama 3 405B in FP8 on GB200 and GB300 is",
            "; the fitted steps are a year older",
        ),
    ):
        errors = [row.error for row in part]
        if errors:
            yield f"* {start} {min(errors):+.0%} to {max(errors):+.0%}{end}."


def _missing() -> Iterator[str]:
    for line in (
        "stragglers, failures, data loading, or the slowdown of jobs that run short of memory.",
        "messages between pipeline stages that an interleaved schedule exposes, or the exchange of "
        "embedding gradients between the first and the last stage.",
        "skew between experts, sequences of unequal length, or padding.",
        "collectives that share a link; for shared links, use `--all-ranks --backend flow`.",
        "state-space layers (Mamba), or optimizations of one vendor's compiler.",
        "eager pointwise kernels, which count as fused, so that the predicted steps of eager jobs are too "
        "short.",
        "memory fragments, or the buffers of libraries.",
    ):
        yield f"* Predictions do not model {line}"
    counts = ", ".join(f"{name} ({count})" for name, count in left_out().items())
    yield f"* Published step times of models with state-space layers were not predicted: {counts}."


def _every(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    yield ["steps", "row", "measured_s", "predicted_s", "error", "reserved_gib", "predicted_gib", "options"]
    for row in rows:
        step = row.step
        memory = (str(step.memory_gib), f"{row.memory_gib:.1f}") if step.memory_gib else ("", "")
        times = f"{step.measured_ns / 1e9:.3f}", f"{row.predicted / 1e9:.3f}", f"{row.error:+.1%}"
        yield step.data, step.row, *times, *memory, " ".join(options(step))


def _by(items: Iterable, key: Callable) -> dict:  # type: ignore[type-arg]
    parts: dict = {}  # type: ignore[type-arg]
    for item in items:
        parts.setdefault(key(item), []).append(item)
    return parts


def _mean(rows: Sequence[Row]) -> float:
    return _mean_of([row.error for row in rows])


def _mean_of(errors: Sequence[float]) -> float:
    return statistics.mean(map(abs, errors)) if errors else 0.0


def _constant(rows: Sequence[Row]) -> float:
    return statistics.mean(abs(row.constant / row.step.measured_ns - 1) for row in rows)


if __name__ == "__main__":
    main()
