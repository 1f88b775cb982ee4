"""``chakrascope run --steps all``: simulate each captured step, and print the distribution of step times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..support import duration_text
from ._output import console, print_frame, print_json, print_next, print_rows, stage

if TYPE_CHECKING:
    from ..converter import Workload
    from ..runner import Experiment, Result, Study
    from ..tracer import TraceSet

_QUANTILES = (0.5, 0.9)


def print_each_step(
    study: Study,
    simulated: Callable[[Workload], Iterable[tuple[Experiment, Result]]],
    output_format: str,
) -> None:
    """Convert each step of *study*'s newest capture and print what *simulated* returns; stores nothing.

    Raises `UsageError` if no step was captured on every rank, and the errors of `convert` and
    `prepare`.
    """
    from ..converter import convert
    from ..tracer import TraceSet

    folder = study.latest_trace_set()
    trace_set = TraceSet.load(folder)
    trace_set.check_usable()
    rows: list[dict[str, Any]] = []
    for step, measured_ns in _measured_ns(trace_set).items():
        with stage(f"converted step {step}"):
            workload = convert(folder, step=step)
        for experiment, result in simulated(workload):
            makespans = {"makespan_ns": result.makespan_ns, "measured_ns": measured_ns}
            rows.append({"step": step, "backend": experiment.backend, **makespans})
    if not rows:
        raise UsageError(
            f"No step was captured on every rank of {folder}. Next: capture again with `chakrascope trace`."
        )
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    spreads = {backend: _spread(rows, backend) for backend in backends}
    if output_format == "json":
        print_json({"steps": rows, "distribution": spreads})
    elif output_format == "csv":
        import pandas as pd

        print_frame(pd.DataFrame(rows), "csv")
    else:
        print_rows(rows, title="Simulated steps")
        for backend, spread in spreads.items():
            figures = ", ".join(f"{name} {duration_text(ns)}" for name, ns in spread.items())
            console.print_text(f"{backend}: {figures}")
        longest = max(rows, key=lambda row: row["makespan_ns"])
        print_next("convert", study.path, "--step", longest["step"])


def _measured_ns(trace_set: TraceSet) -> dict[int, int]:
    """Return how many ns each step took on its slowest rank, for steps captured on all ranks."""
    lengths = [
        {step.index: step.end_ns - step.start_ns for step in entry.steps}
        for entry in trace_set.ranks
        if entry.device_trace is not None
    ]
    common = set[int]().union(*lengths).intersection(*lengths)
    return {step: max(of_rank[step] for of_rank in lengths) for step in sorted(common)}


def _spread(rows: list[dict[str, Any]], backend: str) -> dict[str, int]:
    """Return quantiles, minimum and maximum of the makespans (ns) on *backend*."""
    import numpy as np

    times = np.array([row["makespan_ns"] for row in rows if row["backend"] == backend])
    quantiles = {f"p{q * 100:g}": round(float(np.quantile(times, q))) for q in _QUANTILES}
    return {"shortest": int(times.min()), **quantiles, "longest": int(times.max())}
