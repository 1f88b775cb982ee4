"""Write the results of checks as a JUnit file for CI systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

import click

from ..errors import UsageError
from ..support import visible, write_file, writing

junit_option = click.option(
    "--junit",
    "junit_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the checks to this file as JUnit XML, for CI systems.",
)


@dataclass(frozen=True)
class Case:
    """A check: its *name*, its *outcome*, and a sentence that explains it."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    text: str = ""


def write_junit(file: Path, suite: str, cases: Sequence[Case]) -> None:
    """Write *cases* to *file* as one test suite; raises `UsageError` if writing fails."""
    counts = {outcome: sum(case.outcome == outcome for case in cases) for outcome in ("failed", "skipped")}
    head = f'failures="{counts["failed"]}" skipped="{counts["skipped"]}" tests="{len(cases)}" errors="0"'
    body = "".join(_case(suite, case) for case in cases)
    opened = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name={_attribute(suite)} {head}>\n'
    with writing(file, UsageError):
        write_file(file, f"{opened}{body}</testsuite>\n", parents=True)


def _case(suite: str, case: Case) -> str:
    lead = f"  <testcase classname={_attribute(suite)} name={_attribute(case.name)}"
    text = escape(visible(case.text, keep="\n\t"))
    if case.outcome == "passed":
        return f"{lead}><system-out>{text}</system-out></testcase>\n" if text else f"{lead}/>\n"
    tag = "failure" if case.outcome == "failed" else "skipped"
    return f"{lead}><{tag} message={_attribute(case.text)}>{text}</{tag}></testcase>\n"


def _attribute(text: str) -> str:
    return quoteattr(visible(text))
