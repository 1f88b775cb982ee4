"""``chakrascope links``: how busy each link was, and who sent how much to whom."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import BackendError
from ._output import format_option, print_frame
from ._studies import of_a_run, open_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["links_command"]

_COLUMNS = ["source", "target", "share", "bytes", "busy_ns", "queue_ns", "bytes_per_ns"]
# Which table a view prints, the traffic one of several.
_VIEWS: Mapping[str, str] = {
    "links": "links",
    "dimensions": "dimensions",
    "traffic": "",
    "loads": "loads",
    "over-time": "link-use",
    "flows": "flows",
    "packets": "packets",
    "calibration": "calibration",
}
_TRAFFIC = {"bytes": "traffic-bytes", "busy": "traffic-busy_ns", "end-to-end": "traffic-flows"}
_OF_PACKETS = ("over-time", "flows", "packets")


@click.command("links")
@of_a_run
@click.option(
    "--view",
    type=click.Choice(list(_VIEWS)),
    default="links",
    show_default=True,
    help="Links, dimensions, traffic between ranks, loads of switches; with packet also link bytes "
    "over time, every message, and figures of queues and pauses; what a calibrated network was fitted to.",
)
@click.option(
    "--of",
    type=click.Choice(list(_TRAFFIC)),
    default="bytes",
    show_default=True,
    help="Traffic as bytes or busy time per hop, or as bytes from end to end.",
)
@format_option
def links_command(study_folder: Path, run_id: str | None, view: str, of: str, output_format: str) -> None:
    """List the links of a run of STUDY, the busiest first: bytes, busy time, waiting messages."""
    from ..runner.analysis import TABLES

    run = open_run(study_folder, run_id)
    table = TABLES[_VIEWS[view] or _TRAFFIC[of]](run)
    if view == "calibration":
        if table.empty:
            raise BackendError(
                "The network of this run was not fitted to measurements. Next: 'chakrascope calibrate' makes "
                "a network file of them for --network."
            )
        print_frame(table, output_format, title="Calibration of the network", limit=40)
        return
    end_to_end = view == "traffic" and of == "end-to-end"
    if view in _OF_PACKETS or end_to_end:
        if view == "over-time" and table.empty:
            raise _not_recorded(run.result.backend, "links over time", "analytical-aware")
        if table.empty or (end_to_end and run.result.flows.empty):
            raise _not_recorded(run.result.backend, "messages", "packet")
    elif run.result.links.empty:
        raise _not_recorded(run.result.backend, "links", "analytical-aware")
    elif table.empty:
        raise BackendError(
            "Loads are those of switches, and this network links its ranks directly. Next: --view traffic."
        )
    shown = _for_people(table, of) if output_format == "table" else table
    print_frame(shown, output_format, title=view.capitalize().replace("-", " "), limit=40)


def _not_recorded(backend: str, what: str, other: str) -> BackendError:
    return BackendError(
        f"The backend '{backend}' records no {what}; run the study with another, such as '{other}'."
    )


def _for_people(table: pd.DataFrame, of: str) -> pd.DataFrame:
    """Return what fits on a terminal; of a matrix the pairs, those with most first."""
    if "source" in table:
        chosen: pd.DataFrame = table[_COLUMNS].rename(columns={"bytes_per_ns": "GB/s"})
        return chosen
    if "from" not in table:
        return table
    name = "busy_ns" if of == "busy" else "bytes"
    pairs = table.melt(id_vars="from", var_name="to", value_name=name)
    shown: pd.DataFrame = pairs[pairs[name] > 0].sort_values(name, ascending=False, kind="stable")
    return shown
