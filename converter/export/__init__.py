"""Export graphs for other tools."""

from __future__ import annotations

from ._export import EXPORT_FORMATS as EXPORT_FORMATS
from ._export import export_graph as export_graph

__all__ = [
    "EXPORT_FORMATS",
    "export_graph",
]
