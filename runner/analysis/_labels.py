"""Labels for kinds of nodes and edges, and short names for sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...converter import EdgeKind
from ...converter.chakra import KINDS

_LONGEST_NAME = 100
_PROPER = "Python"  # a name, which keeps its capital inside a sentence
_LINE = re.compile(r":(\d+)(?:-\d+)?\)$")
_LINES = re.compile(r"(.*):(\d{1,9})-(\d{1,9})\)", re.DOTALL)
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

KIND_LABELS: Mapping[str, str] = KINDS
"""The label of each kind of node or segment."""
EDGE_LABELS: Mapping[int, str] = {
    EdgeKind.DATA: "data",
    EdgeKind.PROGRAM_ORDER: "program order",
    EdgeKind.STREAM_ORDER: "stream order",
    EdgeKind.LAUNCH: "launch",
    EdgeKind.EVENT_SYNC: "event sync",
    EdgeKind.COMM_ISSUE: "collective issued",
    EdgeKind.COMM_WAIT: "collective awaited",
    EdgeKind.AUTOGRAD: "autograd",
    EdgeKind.CTRL: "control",
}
"""The label of each kind of edge (`EdgeKind`)."""


def edge_label(kind: int) -> str:
    """Return the label of an edge's *kind*; unknown kinds are called control."""
    return EDGE_LABELS.get(int(kind), EDGE_LABELS[EdgeKind.CTRL])


def short_name(name: str, most: int = _LONGEST_NAME) -> str:
    """Shorten *name* to *most* characters for a sentence, because kernel names may be whole signatures."""
    return name if len(name) <= most else f"{name[:most]}..."


def lowered(sentence: str) -> str:
    """Return *sentence* without its initial capital and full stop, for use inside another sentence."""
    first = sentence[:1] if sentence.startswith(_PROPER) else sentence[:1].lower()
    return first + sentence[1:].rstrip(".")


def function_of(place: str) -> str:
    """Return a source location without its lines: ``load (data.py)`` for ``load (data.py:31)``."""
    return _LINE.sub(")", place)


def line_of(place: str) -> int:
    """Return the first line of a source location: 31 for ``load (data.py:31)``, -1 without a line."""
    found = _LINE.search(place)
    return int(found[1]) if found else -1


def at_place(name: str) -> Callable[[str], bool]:
    """Return a test for source locations in *name*: a line, a function, or ``load (data.py:31-34)``."""
    found = _LINES.fullmatch(name)
    if found is None:
        return lambda place: name in (place, function_of(place))
    function, lines = f"{found[1]})", range(int(found[2]), int(found[3]) + 1)
    return lambda place: line_of(place) in lines and function_of(place) == function


def is_forward(function: str) -> bool:
    """Return whether *function* (with its file) is the forward pass of a module."""
    return function.partition(" (")[0].endswith(".forward")


def numberless(module: str) -> str:
    """Replace the numbers in a module name by ``*``, as in ``layers.*.attention``."""
    return _NUMBER.sub("*", module)


def within(module: str) -> Callable[[str], bool]:
    """Return a test whether a name is *module* or inside it; ``*`` in *module* matches any number."""
    pattern = re.compile(re.escape(module).replace(r"\*", r"\d+") + r"(\.|$)")
    return lambda name: pattern.match(name) is not None
