"""``chakrascope doctor``: report the problems of a study, a trace set, a workload or the backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from ..errors import UsageError
from ._junit import Case, junit_option, write_junit
from ._output import console, conversion_cache, counter, error_console, format_option, print_frame, print_json

if TYPE_CHECKING:
    from ..converter import Finding
    from ..runner import Experiment

FINDING_COLUMNS = ["severity", "place", "cause", "remedy"]


@click.command("doctor")
@click.argument("target", metavar="STUDY|TRACES|PREFIX|backends")
@junit_option
@format_option
def doctor_command(target: str, junit_file: Path | None, output_format: str) -> int:
    """Check a study, traces or a workload for errors; exit with 1 if there is an error.

    TRACES are a captured trace set, traces from other tools (Kineto, host or linked), or production logs,
    given as a file, a folder, an archive, or a pattern with {rank}. `chakrascope doctor backends`
    lists the usable simulators.
    """
    import pandas as pd

    from ..converter import doctor
    from ..runner import Study, backend_report, check_study

    if target == "backends" and not Path(target).exists():
        if junit_file is not None:
            raise UsageError("--junit needs something to check. Next: name a study, traces or graphs.")
        print_frame(pd.DataFrame(backend_report()), output_format, title="Backends")
        return 0
    with error_console.status(f"checking {escape(target)}") as status:
        progress = counter(status, "ranks converted")
        if Study.is_study(target):
            findings = check_study(Study(Path(target)), jobs=None, progress=progress)
        else:
            with conversion_cache(Path(f"{target}.doctor")) as finished:
                findings = doctor(target, jobs=None, progress=progress, finished=finished)
    if output_format == "table":
        print_findings(findings, target)
    else:
        rows = [finding.to_dict() for finding in findings]
        print_frame(pd.DataFrame(rows, columns=FINDING_COLUMNS), output_format, title=f"Findings in {target}")
    if junit_file is not None:
        write_junit(junit_file, f"doctor {target}", _cases(findings, target))
    return int(any(finding.severity == "error" for finding in findings))


def _cases(findings: Sequence[Finding], target: str) -> list[Case]:
    """Return a test case per finding: errors fail, warnings and notes pass with their text."""
    made = [
        Case(
            f"{finding.place}: {finding.cause}",
            "failed" if finding.severity == "error" else "passed",
            " ".join(filter(None, [f"{finding.severity}: {finding.cause}", finding.remedy])),
        )
        for finding in findings
    ]
    return made or [Case(f"nothing is wrong with {target}", "passed")]


def print_findings(findings: Iterable[Finding], target: str) -> None:
    """Print the place, the cause and the next step of each finding."""
    colours = {"error": "bold red", "warning": "yellow", "note": "cyan"}
    place = ""
    for finding in findings:
        if finding.place != place:
            place = finding.place
            console.print_text(place, "bold")
        console.print_marked(f"  {finding.severity}:", colours[finding.severity], finding.cause)
        if finding.remedy:
            console.print_text(f"  → {finding.remedy}", "dim")
    if not place:
        console.print_done(f"nothing is wrong with {target}")


def print_check(prefix: Path, experiments: list[Experiment], output_format: str) -> int:
    """Print the findings about *experiments*, one per backend, with the workload at *prefix*.

    Returns 1 if any cannot run, otherwise 0.
    """
    import pandas as pd

    from ..runner import about_backend, check_setup, communication_of

    workload = communication_of(prefix)
    findings: dict[Finding, None] = {}
    for experiment in experiments:
        if not about_backend(experiment.backend).replays:
            network, system = experiment.network, experiment.system
            findings |= dict.fromkeys(check_setup(network, system, workload, [experiment.backend]))
    rows = [finding.to_dict() for finding in findings]
    if output_format == "json":
        print_json({"findings": rows})
    elif output_format == "csv":
        print_frame(pd.DataFrame(rows, columns=FINDING_COLUMNS), "csv")
    else:
        print_findings(findings, "the configuration")
    return int(any(finding.severity == "error" for finding in findings))
