"""The colours, labels and line styles of all pages."""

from __future__ import annotations

from collections.abc import Sequence

from ..runner import RunInfo
from ..runner.analysis import EDGE_LABELS
from ..runner.study import run_name
from ..support import count_text, duration_text

# From the palette of Okabe and Ito, which readers with common colour-vision deficiencies can distinguish.
KIND_COLOURS: dict[str, str] = {
    "compute": "#3b82c4",
    "communication": "#e08214",
    "copy": "#937c3c",
    "memory": "#1b9e77",
    "host": "#7fbfe6",
    "sync": "#e0b16c",
    "wait": "#c45a9c",
    "idle": "#a9b1ba",
}
# Label and colour of each part of a rank's memory, as the chart stacks them from the bottom.
MEMORY_PARTS: dict[str, tuple[str, str]] = {
    "weights": ("Weights", "#3b82c4"),
    "gradients": ("Gradients", "#7a9e3f"),
    "optimizer": ("Optimizer", "#8e6bbf"),
    "activations": ("Activations", "#d9731a"),
    "workspace": ("Workspace", "#8a939c"),
}
# Text on the colours above, in both colour schemes, with a contrast of at least 4.5 to 1.
ON_KIND_INK = "#0b1016"
# Colours of named slices, on which dark text is readable. Many names share colours.
NAME_COLOURS = (
    "#6fa8dc", "#f0a860", "#8fc07a", "#cf8bb8", "#5fc4b8", "#e0c64a", "#a99be0", "#e58e7a", "#8fb1bd",
    "#b9a06a", "#7fc8f0", "#c3cf6a",
)  # fmt: skip
# The critical path where it is drawn over other content.
PATH_COLOUR = "#d6264f"
KINDS: tuple[str, ...] = tuple(KIND_COLOURS)

_NAME_IN_LIST = 36

_EDGE_LINES: dict[int, tuple[str, str]] = {
    0: ("#3b82c4", "solid"),
    1: ("#9aa3ad", "solid"),
    2: ("#1b9e77", "solid"),
    3: ("#7fbfe6", "dashed"),
    4: ("#c26aa0", "dashed"),
    5: ("#e08214", "solid"),
    6: ("#b2182b", "solid"),
    7: ("#8073ac", "dotted"),
    8: ("#6b7280", "dotted"),
}
# Number of each edge kind (converter.EdgeKind) -> label, colour and line style.
EDGE_KINDS: dict[int, tuple[str, str, str]] = {
    kind: (EDGE_LABELS[kind], *line) for kind, line in _EDGE_LINES.items()
}


def kind_colour(kind: str) -> str:
    """Return the colour of a node or path segment of *kind*; grey if unknown."""
    return KIND_COLOURS.get(kind, KIND_COLOURS["idle"])


def short(text: str, most: int) -> str:
    """Return *text*, cut in the middle if it has more than *most* characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2 - 1) :]}"


def run_text(info: RunInfo, *, longest: int = 200, workload: bool = False) -> str:
    """Return a line that distinguishes a run from the others of its study.

    A name of more than *longest* characters is cut in the middle, so that step time and ranks stay
    visible. With *workload*, the name of the workload is included.
    """
    steps = f" ({count_text(info.steps, 'step')})" if info.steps > 1 else ""
    facts = [
        short(run_name(info), longest),
        duration_text(info.makespan_ns) + steps,
        count_text(info.num_ranks, "rank"),
    ]
    return " · ".join([*facts, info.workload] if workload else facts)


def run_options(runs: Sequence[RunInfo]) -> list[dict[str, str]]:
    """Return the options of the run selector, newest first; *runs* has the oldest first."""
    several = len({info.workload for info in runs}) > 1
    return [
        {"value": info.id, "label": run_text(info, longest=_NAME_IN_LIST, workload=several)}
        for info in reversed(runs)
    ]
