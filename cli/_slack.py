"""``chakrascope slack``: how much later each node could end before the step would take longer."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ._output import format_option, print_frame
from ._studies import of_a_run

__all__ = ["slack_command"]

_FACTS = ["rank", "node_id", "name", "kind", "operator", "module", "phase"]


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
    from ..runner import Study, slack

    study = Study.open(study_folder)
    result, workload = study.result(run_id), study.run_workload(run_id)
    keys = ["rank", "node_id"]
    table = result.nodes[[*keys, "start_ns", "end_ns"]].merge(slack(result, workload), on=keys)
    table["duration_ns"] = table["end_ns"] - table["start_ns"]
    table = workload.node_table()[_FACTS].merge(table.drop(columns="end_ns"), on=keys)
    if rank is not None:
        table = table[table["rank"] == rank]
    if node is not None:
        table = table[table["node_id"] == node]
    if table.empty:
        chosen = {"--rank": rank, "--node": node}
        asked = "".join(f" {option} {value}" for option, value in chosen.items() if value is not None)
        raise UsageError(
            f"No node that ran is named by{asked}. Ranks count from 0, and "
            f"`chakrascope critical-path {study_folder} --run {study.run_info(run_id).id} --format csv` "
            "shows ids of nodes."
        )
    ordered = table.sort_values(["slack_ns", "duration_ns"], ascending=[True, False], kind="stable")
    shown = ordered.drop(columns=["kind", "operator", "phase"]) if output_format == "table" else ordered
    print_frame(shown, output_format, title="Slack", limit=20)
