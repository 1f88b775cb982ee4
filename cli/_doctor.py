"""``chakrascope doctor``: say what is wrong with a study, a trace set, a workload or the backends."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from ..converter import doctor
from ..runner import backend_report
from ._output import console, format_option, print_frame

__all__ = ["doctor_command"]

_COLUMNS = ["severity", "place", "cause", "remedy"]


@click.command("doctor")
@click.argument("target", metavar="STUDY|TRACES|PREFIX|backends")
@format_option
def doctor_command(target: str, output_format: str) -> int:
    """Look a study, a trace set or a workload over before anything runs; exit with 1 if there is an error.

    `chakrascope doctor backends` says which simulators can be used here instead.
    """
    if target == "backends" and not Path(target).exists():
        print_frame(pd.DataFrame(backend_report()), output_format, title="Backends")
        return 0
    findings = doctor(target)
    if output_format == "table" and not findings:
        console.print(f"[green]✓[/] nothing is wrong with {target}")
    else:
        rows = [finding.to_dict() for finding in findings]
        print_frame(pd.DataFrame(rows, columns=_COLUMNS), output_format, title=f"Findings in {target}")
    return int(any(finding.severity == "error" for finding in findings))
