"""The pages: each has PATH, TITLE, ``layout(run, selection, scheme)`` and ``register(app, view)``."""

from __future__ import annotations

from typing import Any

from . import compare, critical_path, graph, network, summary, timeline

__all__ = ["PAGES"]

PAGES: tuple[Any, ...] = (summary, critical_path, timeline, graph, network, compare)
