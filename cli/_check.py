"""The checks and the time estimate before a run, as on the page New run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ._doctor import FINDING_COLUMNS, print_findings
from ._output import console, print_frame, print_json

if TYPE_CHECKING:
    from ..converter import Finding
    from ..runner import Experiment

__all__ = ["print_check"]


def print_check(prefix: Path, experiments: list[Experiment], output_format: str) -> int:
    """Print the findings and the estimate; returns 1 if some experiment cannot run, else 0.

    *experiments* simulate the workload at *prefix*, one per backend.
    """
    import pandas as pd

    from ..runner import about_backend, check_setup, communication_of
    from ..runner.analysis import duration_estimate, estimate_s, load_of

    workload, load = communication_of(prefix), load_of(prefix)
    findings: dict[Finding, None] = {}
    seconds: dict[str, float] = {}
    for experiment in experiments:
        network, system = experiment.network, experiment.system
        seconds[experiment.backend] = estimate_s(network, system, load, experiment.backend)
        if not about_backend(experiment.backend).replays:
            findings |= dict.fromkeys(check_setup(network, system, workload, [experiment.backend]))
    rows = [finding.to_dict() for finding in findings]
    if output_format == "json":
        print_json({"findings": rows, "estimate_s": seconds})
    elif output_format == "csv":
        print_frame(pd.DataFrame(rows, columns=FINDING_COLUMNS), "csv")
    else:
        print_findings(findings, "the configuration")
        for backend, estimate in seconds.items():
            console.print(f"{backend}: takes {duration_estimate([estimate])}, give or take a factor of two.")
    return int(any(finding.severity == "error" for finding in findings))
