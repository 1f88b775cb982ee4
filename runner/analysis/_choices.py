"""The choices that commands and pages offer for runs; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping

BREAKDOWNS = ("kind", "cause", "operator", "module", "collective", "rank", "phase")
"""The breakdowns of a critical path, the most frequently used first."""
RUN_BREAKDOWNS = (*BREAKDOWNS, "network", "link")
"""The breakdowns of a run's critical path, including by network and by link."""
PARTS = ("part", "kind", "class", "operator", "module", "collective", "phase", "rank")
"""Properties by which the difference of two steps can be divided; ``part`` is the most specific."""
DIFF_TABLES = ("waterfall", "figures", "classes", "operators", "modules", "collectives", "paths")
"""The tables of the difference of two steps."""
FEW_HOPS, MAX_HOPS = 2, 8
FOLDS: Mapping[str, str] = {
    "nodes": "around the node",
    "modules": "modules",
    "phases": "phases",
    "streams": "streams",
    "ranks": "ranks",
}
"""The label of each fold of the graph."""
