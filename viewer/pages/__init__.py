"""The pages: each has PATH, TITLE, ``layout(run, selection, scheme)`` and ``register(app, view)``.

A page with NEEDS_RUN false is laid out from the view of the study in place of a run.
"""

from __future__ import annotations

from typing import Any

from . import compare, configure, critical_path, graph, imports, network, runs, summary, sweep, timeline

__all__ = ["NEW_RUN_PATH", "PAGES"]

NEW_RUN_PATH: str = configure.PATH

PAGES: tuple[Any, ...] = (
    summary,
    critical_path,
    timeline,
    graph,
    network,
    compare,
    sweep,
    runs,
    configure,
    imports,
)
