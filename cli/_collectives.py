"""``chakrascope collectives``: what each collective moved, how fast, and who came last."""

from __future__ import annotations

from pathlib import Path

import click

from ._output import console, format_option, print_frame
from ._studies import of_a_run, open_run

__all__ = ["collectives_command"]

_NARROW = ["collective", "group", "ranks", "start_ns", "share", "rank", "node_id"]
_FORMULA = (
    "skew: from the first rank's arrival to the last one's; transfer: the rest. GB/s: bytes of the whole "
    "operation over the transfer; bus GB/s: that times 2(n-1)/n for an all-reduce and (n-1)/n for the others "
    "of n ranks, to compare with the hardware's"
)


@click.command("collectives")
@of_a_run
@format_option
def collectives_command(study_folder: Path, run_id: str | None, output_format: str) -> None:
    """List the collectives of a run of STUDY: size, skew, transfer, algorithm and bus bandwidth."""
    table = open_run(study_folder, run_id).collectives
    if output_format != "table":
        print_frame(table, output_format)
        return
    shown = table.drop(columns=_NARROW).rename(
        columns={"algorithm_bytes_per_ns": "GB/s", "bus_bytes_per_ns": "bus GB/s"}
    )
    print_frame(shown, "table", title="Collectives", limit=40)
    console.print(f"[dim]{_FORMULA}.[/]")
