"""``chakrascope studies``: the studies of a folder, with their tags and notes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ..support import bytes_text, duration_text
from ._output import console, format_option, print_frame

if TYPE_CHECKING:
    import pandas as pd


@click.command("studies")
@click.argument("folders", metavar="FOLDER...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--find", default="", metavar="TEXT", help="Only studies with this text: in name, tags, note..."
)
@click.option("--new", "begun", metavar="NAME", help="Create an empty study in FOLDER first.")
@click.option("--study", "name", metavar="NAME", help="The study that --tag and --note apply to.")
@click.option("--tag", "tags", multiple=True, help='Tags that replace those of the study; "" removes all.')
@click.option("--note", help='A note on the study; "" removes it.')
@click.option("--clear-traces", is_flag=True, help="Delete the cached studies of converted traces.")
@format_option
def studies_command(
    *,
    folders: tuple[Path, ...],
    find: str,
    begun: str | None,
    name: str | None,
    tags: tuple[str, ...],
    note: str | None,
    clear_traces: bool,
    output_format: str,
) -> None:
    """List the studies in one or more FOLDERs: their size, tags and notes.

    Without FOLDER, list the cached studies of converted traces, most recently used first.
    """
    import pandas as pd

    from ..runner import Workspace, clear_kept_traces, describe_study, kept_traces

    if clear_traces:
        console.print(f"Deleted {bytes_text(clear_kept_traces())} of converted traces.")
        return
    if not folders:
        kept = [{"study": str(study), "size_bytes": size} for study, size in kept_traces()]
        print_frame(
            pd.DataFrame(kept, columns=["study", "size_bytes"]), output_format, title="Kept of traces"
        )
        return

    workspace = Workspace(*folders)
    if (name is None) != (note is None and not tags):
        raise UsageError("--study NAME needs --tag or --note, and the reverse. Next: give both.")
    if begun is not None:
        workspace.create(begun)
    if name is not None:
        describe_study(workspace.study(name), note=note, tags=[tag for tag in tags if tag] if tags else None)
    table = workspace.table(find)
    if output_format == "table" and table.empty:
        console.print("There is no such study here. Next: `chakrascope profile -o FOLDER/NAME ...`.")
    else:
        print_frame(_for_people(table) if output_format == "table" else table, output_format, title="Studies")


def _for_people(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that fit on a terminal; an unreadable study has the reason in place of its note."""
    damaged = table["problem"] != ""
    described = table.assign(note=table["note"].where(~damaged, "cannot be read: " + table["problem"]))
    described["shortest"] = ["" if ns < 0 else duration_text(ns) for ns in table["shortest_ns"]]
    texts = [column for column in ("tags", "note") if (described[column] != "").any()]
    shown: pd.DataFrame = described[["name", "ranks", "workloads", "runs", "shortest", "changed", *texts]]
    return shown
