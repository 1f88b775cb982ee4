"""``chakrascope slack``: how much later each node could end before the step would take longer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ._output import format_option, print_coded
from ._studies import of_a_run

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["slack_command"]

_FACTS = ["name", "kind", "operator", "module", "phase"]
_SHOWN = ["name", "module"]
_MOST_SHOWN = 20


@click.command("slack")
@of_a_run
@click.option("--rank", type=int, help="Only the nodes of this rank.")
@click.option("--node", type=int, help="Only the nodes with this id.")
@format_option
def slack_command(
    study_folder: Path, run_id: str | None, rank: int | None, node: int | None, output_format: str
) -> None:
    """Print how much later each node of a run of STUDY could end without delaying the step.

    A node with slack 0 is critical; speeding up one with slack changes nothing. All other durations and
    the order are kept; `chakrascope what-if` simulates instead.
    """
    from ..runner import Study
    from ..runner.analysis import coded_facts, slack_columns

    study = Study.open(study_folder)
    result, workload = study.result(run_id), study.run_workload(run_id)
    found = slack_columns(result, workload)
    found["duration_ns"] = found.pop("end_ns") - found["start_ns"]
    for name, wanted in (("rank", rank), ("node_id", node)):
        if wanted is not None:
            found = _rows_of(found, found[name] == wanted)
    count = len(found["rank"])
    if not count:
        chosen = {"--rank": rank, "--node": node}
        asked = "".join(f" {option} {value}" for option, value in chosen.items() if value is not None)
        raise UsageError(
            f"No node that ran is named by{asked}. Ranks count from 0, and "
            f"`chakrascope critical-path {study_folder} --run {study.run_info(run_id).id} --format csv` "
            "shows ids of nodes."
        )
    if output_format == "table":
        first = sorted(_most_critical_first(found)[:_MOST_SHOWN].tolist())
        found = _rows_of(found, first)
    facts = _SHOWN if output_format == "table" else _FACTS
    texts = coded_facts(workload, found["rank"], found["node_id"], facts)
    columns = {name: found.pop(name) for name in ("rank", "node_id")} | texts
    print_coded(columns | found, _most_critical_first(found), output_format, title="Slack", count=count)


def _rows_of(columns: dict[str, npt.NDArray[Any]], rows: Any) -> dict[str, npt.NDArray[Any]]:
    return {name: column[rows] for name, column in columns.items()}


def _most_critical_first(columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the rows by their slack, the longest nodes first of those with the same."""
    import numpy as np

    return np.lexsort((-columns["duration_ns"], columns["slack_ns"]))
