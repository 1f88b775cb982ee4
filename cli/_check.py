"""What stands against a run before it is made, and about how long it takes, as the page New run tells it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd
from rich.markup import escape

from ..runner import Experiment, Study
from ..viewer.queries import Finding, Setup, check, duration_estimate, estimate_s, load_of
from ._output import console, print_frame, print_json

__all__ = ["print_check"]

_COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def print_check(study: Study, prefix: Path, experiments: list[Experiment], output_format: str) -> int:
    """Print what was found, and the estimate; returns 1 if something cannot run, else 0.

    *experiments* simulate the workload of *study* at *prefix*, one a backend.
    """
    ranks, load = study.workload_ranks(prefix.parent.name), load_of(prefix)
    findings: dict[str, Finding] = {}
    seconds: dict[str, float] = {}
    for experiment in experiments:
        setup = Setup.of_configs(experiment.network, experiment.system)
        seconds[experiment.backend] = estimate_s(setup, load, experiment.backend)
        if experiment.backend != "replay":
            findings |= {found.text: found for found in check(setup, ranks, [experiment.backend])}
    rows = [asdict(found) for found in findings.values()]
    if output_format == "json":
        print_json({"findings": rows, "estimate_s": seconds})
    elif output_format == "csv":
        print_frame(pd.DataFrame(rows, columns=["level", "text"]), "csv")
    else:
        for row in rows:
            console.print(
                f"[{_COLOURS[row['level']]}]{row['level']}[/]: {escape(row['text'])}", soft_wrap=True
            )
        for backend, estimate in seconds.items():
            console.print(f"{backend}: takes {duration_estimate([estimate])}, give or take a factor of two.")
    return int(any(row["level"] == "error" for row in rows))
