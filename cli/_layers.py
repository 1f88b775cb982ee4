"""``chakrascope layers``: what each layer takes."""

from __future__ import annotations

from pathlib import Path

import click

from ._output import console, format_option, print_frame
from ._studies import of_a_run, open_run

__all__ = ["layers_command"]


@click.command("layers")
@of_a_run
@format_option
def layers_command(study_folder: Path, run_id: str | None, output_format: str) -> None:
    """List the modules of a run of STUDY in the order in which they run: forward, backward, communication."""
    layers = open_run(study_folder, run_id).layers
    if output_format != "table":
        print_frame(layers, output_format)
        return
    shown = layers.drop(columns=["other_ns", "share"]).rename(columns={"communication_ns": "comm_ns"})
    print_frame(shown, "table", title="Layers", limit=60)
    console.print("[dim]Means over all ranks; on path: their part of the critical path.[/]")
