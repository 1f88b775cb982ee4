"""The choices of commands and pages about runs, importable without other libraries."""

from __future__ import annotations

from collections.abc import Mapping

BREAKDOWNS = ("kind", "cause", "operator", "module", "collective", "rank", "phase")
"""What a critical path can be split by, in the order in which people ask."""
RUN_BREAKDOWNS = (*BREAKDOWNS, "network", "link")
"""What the critical path of a run can be split by: a path's own breakdowns, and the parts of the network."""
PARTS = ("part", "kind", "class", "operator", "module", "collective", "phase", "rank")
"""What the difference of two steps can be split by; ``part`` is the most telling name of each piece."""
FEW_HOPS, MOST_HOPS = 2, 8
FOLDS: Mapping[str, str] = {
    "nodes": "around the node",
    "modules": "modules",
    "phases": "phases",
    "streams": "streams",
    "ranks": "ranks",
}
"""What the graph may be folded into -> what people call it."""
