"""``chakrascope view``: open a study in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ._output import console
from ._studies import holds_traces, open_study

if TYPE_CHECKING:
    from ..runner import Study, Workspace


def serve_study(
    study: Study | Workspace,
    host: str,
    port: int,
    import_from: Path | None = None,
    *,
    with_token: bool = True,
    run_id: str = "",
) -> None:
    """Serve the viewer until interrupted, after printing its address, which opens the run *run_id*."""
    try:
        from ..viewer import serve
    except ImportError as error:
        raise UsageError(
            f"The viewer needs a package that is not installed ({error.name}). "
            "Next: pip install 'chakrascope[viewer]'."
        ) from error
    serve(
        study,
        host=host,
        port=port,
        import_from=import_from,
        with_token=with_token,
        ready=lambda url: console.print(
            f"Viewer: [bold]{_of_run(url, run_id)}[/]\n[dim]Anyone with this address can open the viewer. "
            "Ctrl-C stops it.[/]",
            soft_wrap=True,
        ),
    )


def _of_run(url: str, run_id: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}run={run_id}" if run_id else url


@click.command("view")
@click.argument("folders", metavar="STUDY|TRACE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address on which the viewer listens.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8050,
    show_default=True,
    help="Port on which the viewer listens; 0 picks a free port.",
)
@click.option(
    "--import-from",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder from which the Import page may import traces and graphs. [default: none]",
)
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    help="Run that the viewer opens first. [default: the capture, or else the newest run]",
)
@click.option(
    "--no-token", is_flag=True, help="Do not require the secret token: any local user can open the viewer."
)
def view_command(
    *,
    folders: tuple[Path, ...],
    host: str,
    port: int,
    import_from: Path | None,
    run_id: str | None,
    no_token: bool,
) -> None:
    """Show STUDY in the browser: what bounds the step, the critical path, the timeline and the graph.

    Several studies, or a folder of studies, are shown as a list. TRACE is a trace, as for `summary`, or a
    table of operations, as for `diagnose`.
    """
    from ..runner import Study, Workspace

    if _are_traces(folders):
        folders = (open_study(folders).path,)
    workspace = Workspace(*(_existing(folder) for folder in folders))
    what = Study.open(folders[0]) if workspace.is_one_study else workspace
    if run_id is not None and not isinstance(what, Study):
        raise UsageError("--run needs exactly one STUDY. Next: name only the study that contains the run.")
    chosen = what.run_info(run_id).id if run_id is not None and isinstance(what, Study) else ""
    serve_study(what, host, port, import_from, with_token=not no_token, run_id=chosen)


def _are_traces(paths: tuple[Path, ...]) -> bool:
    """Return whether *paths* are files, or one folder of traces that is no study."""
    from ..runner import Study

    if all(path.is_file() for path in paths):
        return True
    folder = paths[0]
    if len(paths) > 1 or not folder.is_dir() or Study.is_study(folder) or Study.folders_in(folder):
        return False
    return holds_traces(folder)


def _existing(folder: Path) -> Path:
    """Return *folder*; raises the error for a missing study if it does not exist."""
    from ..runner import Study

    return folder if folder.is_dir() else Study.open(folder).path
