"""The Dash application that shows what bounds a step, and the HTML report.

Only the application needs the package Dash; the report, the queries and the page state do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._app import create_app as create_app
    from ._server import serve as serve
    from .report import write_report as write_report

from ._state import OpenRun as OpenRun
from ._state import StudyView as StudyView

__all__ = [
    "OpenRun",
    "StudyView",
    "create_app",
    "serve",
    "write_report",
]

_HOMES = {"create_app": "_app", "serve": "_server", "write_report": "report"}


def __getattr__(name: str) -> Any:
    """Import the public *name*, which needs Dash, on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
