"""``chakrascope view``: open a study in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ..runner import Study
from ._output import console

__all__ = ["serve_study", "view_command"]


def serve_study(study: Study, host: str, port: int) -> None:
    """Serve the viewer until interrupted, printing its address first."""
    try:
        from ..viewer import serve  # noqa: PLC0415  the viewer is an extra
    except ImportError as error:
        raise UsageError(
            f"the viewer needs a package that is not installed ({error.name}). "
            "Next: pip install 'chakrascope[viewer]'."
        ) from error
    serve(
        study,
        host=host,
        port=port,
        ready=lambda url: console.print(f"Viewer: [bold]{url}[/]  (Ctrl-C stops it)"),
    )


@click.command("view")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
@click.option("--port", default=8050, show_default=True, help="Port to bind; 0 picks a free one.")
def view_command(study_folder: Path, host: str, port: int) -> None:
    """Open STUDY in the browser: what bounds the step, the critical path, the timeline, the graph."""
    serve_study(Study.open(study_folder), host, port)
