"""``chakrascope import``: import traces and graphs of a folder into a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from ..errors import StudyError, WorkloadError, did_you_mean
from ._convert import Step, capture_option, step_option
from ._doctor import print_findings
from ._output import console, conversion_cache, counter, format_option, print_frame, print_next, stage
from ._run import new_study

if TYPE_CHECKING:
    from ..runner import ImportItem


@click.command("import")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.argument("place", metavar="[WHAT]", required=False)
@click.option("--name", help="Name of the imported workload. [default: derived from WHAT]")
@step_option
@capture_option
@click.option("--check", is_flag=True, help="Check the traces or graphs of WHAT without importing them.")
@format_option
def import_command(
    *,
    study_folder: Path,
    folder: Path,
    place: str | None,
    name: str | None,
    step: Step,
    capture_trace: str | None,
    check: bool,
    output_format: str,
) -> None:
    """List the traces and graphs in FOLDER that STUDY can import, or import one of them (WHAT).

    The list contains trace sets, host and device traces from other tools, production logs and Chakra graphs,
    up to four folders deep. WHAT is a name in the first column of the list, or a folder that holds only one
    listed item. STUDY is created if it does not exist.
    """
    from ..runner import Study, find_items
    from ..runner.study import check_item, check_name, import_item, proposed_name

    if name is not None:
        check_name(name, "a workload")  # fail before the conversion, which may take minutes
    if place is not None and not check:
        Study.check_place(study_folder)
    items = find_items(folder)
    if place is None:
        _print_items(items, study_folder, folder, output_format)
        return
    item = _chosen(items, folder, place)
    asked: dict[str, Any] = {"step": step, "capture_trace": capture_trace}
    with conversion_cache(Study(study_folder).import_target(item.id)) as finished:
        with stage(f"checked {item.place}") as status:
            findings = check_item(folder, item.id, counter(status, "ranks"), finished=finished, **asked)
        print_findings(findings, item.place)
        errors = sum(finding.severity == "error" for finding in findings)
        if errors:
            raise WorkloadError(
                f"{folder / item.place} cannot be imported: it has {errors} error(s); see above."
            )
        if not check:
            with new_study(study_folder) as study, stage(f"imported {item.place}") as status:
                chosen = name or proposed_name(item)
                made = import_item(
                    study, folder, item.id, chosen, counter(status, "ranks"), finished=finished, **asked
                )
    if not check:
        console.print_text(f"Imported as the workload '{made}' of {study_folder}.")
        print_next("run", study_folder, "--workload", made, then="--network PRESET")


def _print_items(items: list[ImportItem], study_folder: Path, folder: Path, output_format: str) -> None:
    from ..runner.study import item_table

    table = item_table(items)
    if output_format != "table":
        print_frame(table, output_format)
    elif table.empty:
        console.print_text(f"{folder} contains nothing that can be imported, up to four folders deep.")
    else:
        shown = table[["place", "kind", "ranks", "files", "size_bytes", "problem"]]
        shown = shown.assign(ranks=shown["ranks"].where(shown["ranks"].notna(), ""))
        shown = shown.rename(columns={"place": "name"})
        print_frame(shown, "table", title=f"Content of {escape(str(folder))}")
        usable = [item.place for item in items if not item.problem]
        if usable:
            print_next("import", study_folder, folder, usable[0])


def _chosen(items: list[ImportItem], folder: Path, place: str) -> ImportItem:
    """Return the item *place*, or the only item in the folder *place*.

    Raises `StudyError` if there is no such item, or if the item cannot be imported.
    """
    inside = [item for item in items if item.place.startswith(f"{place.rstrip('/')}/") and not item.problem]
    only = inside[0] if len(inside) == 1 else None
    found = next((item for item in items if place in (item.place, item.id)), only)
    if found is None:
        names = [item.place for item in inside or items]
        near = f". Next: name one of {', '.join(names)}." if inside else did_you_mean(place, names)
        raise StudyError(f"Nothing in {folder} that can be imported has the name '{place}'{near}")
    if found.problem:
        raise StudyError(f"{folder / found.place} cannot be imported: {found.problem}.")
    return found
