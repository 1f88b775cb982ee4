"""Labels of kinds of nodes and edges."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...converter import EdgeKind
from ...converter.chakra import KINDS

_LONGEST_NAME = 100
_PROPER = "Python"  # the name that a sentence may begin with
_LINE = re.compile(r":\d+\)$")
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

KIND_LABELS: Mapping[str, str] = KINDS
"""Each kind of a node or segment -> what people call it."""
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
"""Each kind of an edge (`EdgeKind`) -> what it stands for."""


def edge_label(kind: int) -> str:
    """Return the name of an edge's *kind*; unrecognised kinds are control."""
    return EDGE_LABELS.get(int(kind), EDGE_LABELS[EdgeKind.CTRL])


def short_name(name: str) -> str:
    """Return *name* short enough for a sentence, as kernel names may be whole signatures."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def lowered(sentence: str) -> str:
    """Return *sentence* for the middle of another one: without its capital and full stop."""
    first = sentence[:1] if sentence.startswith(_PROPER) else sentence[:1].lower()
    return first + sentence[1:].rstrip(".")


def function_of(place: str) -> str:
    """Return a place without its line: ``load (data.py)`` of ``load (data.py:31)``."""
    return _LINE.sub(")", place)


def numberless(module: str) -> str:
    """Return the name of a module with ``*`` for each number: ``layers.*.attention``."""
    return _NUMBER.sub("*", module)


def within(module: str) -> Callable[[str], bool]:
    """Return a test of whether a module is *module* or lies in it; a ``*`` in its name is any number."""
    pattern = re.compile(re.escape(module).replace(r"\*", r"\d+") + r"(\.|$)")
    return lambda name: pattern.match(name) is not None
