"""``chakrascope links``: how busy each link was, and who sent how much to whom."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from ..errors import BackendError
from ..runner import Result, Study, human_size
from ..runner.links import link_dimensions, link_table, traffic
from ._output import format_option, print_frame
from ._studies import of_a_run

__all__ = ["links_command"]

_COLUMNS = ["source", "target", "share", "bytes", "busy_ns", "queue_ns", "bytes_per_ns"]


@click.command("links")
@of_a_run
@click.option(
    "--view",
    type=click.Choice(["links", "dimensions", "traffic"]),
    default="links",
    show_default=True,
    help="Each link, each dimension of the network, or the matrix of bytes from each to each.",
)
@format_option
def links_command(study_folder: Path, run_id: str | None, view: str, output_format: str) -> None:
    """List the links of a run of STUDY, the busiest first: bytes, busy time, waiting messages."""
    result = Study.open(study_folder).result(run_id)
    if result.links.empty:
        raise BackendError(
            f"The backend '{result.backend}' records no links; run the study with another, such as "
            "'analytical-aware'."
        )
    table = _table(result, view)
    print_frame(
        _for_people(table) if output_format == "table" else table,
        output_format,
        title=view.capitalize(),
        limit=40,
    )


def _table(result: Result, view: str) -> pd.DataFrame:
    if view == "links":
        return link_table(result)
    if view == "dimensions":
        return link_dimensions(link_table(result))
    matrix = traffic(result, "bytes")
    ends = [label.removeprefix("to ") for label in matrix.columns]
    values: pd.DataFrame = pd.DataFrame(matrix.values.astype("int64"), columns=ends)
    values.insert(0, "bytes from", [label.removeprefix("from ") for label in matrix.rows])
    return values


def _for_people(table: pd.DataFrame) -> pd.DataFrame:
    if "source" in table:
        chosen: pd.DataFrame = table[_COLUMNS].rename(columns={"bytes_per_ns": "GB/s"})
        return chosen
    if "bytes from" not in table:
        return table
    sizes = table.columns[1:]
    shown: pd.DataFrame = table.assign(**{str(name): table[name].map(human_size) for name in sizes})
    return shown
