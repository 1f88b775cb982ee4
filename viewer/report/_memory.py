"""Draw what the fullest rank holds in memory over a predicted step, for the report."""

from __future__ import annotations

from itertools import accumulate

from ...support import Svg, bytes_text, element
from .._state import OpenRun
from .._theme import MEMORY_PARTS
from ..queries import fullest_curve, memory_facts, memory_verdict
from ._parts import Legend, Part, Picture
from ._pictures import LABEL_WIDTH, PICTURE_WIDTH, picture

__all__ = ["memory_note", "memory_parts"]

_HEIGHT, _HEADROOM = 170, 1.14


def memory_parts(run: OpenRun) -> list[Part]:
    """Return the curve of *run* as a picture with its legend; nothing of runs that were not predicted."""
    curve = fullest_curve(run)
    if curve is None:
        return []
    times = [int(time) for time in curve["times_ns"]]
    held = {part: curve[f"{part}_bytes"] for part in MEMORY_PARTS}
    layers = [size if isinstance(size, list) else [size] * len(times) for size in held.values()]
    sums = list(accumulate(layers, lambda below, own: [a + b for a, b in zip(below, own, strict=True)]))
    room = int((run.result.provenance.get("prediction") or {}).get("chip_memory_bytes", 0))
    top = _HEADROOM * max(int(curve["peak_bytes"]), room, 1)
    scale = (PICTURE_WIDTH - LABEL_WIDTH) / max(1, run.result.makespan_ns)
    x = [f"{LABEL_WIDTH + time * scale:.1f}" for time in times]
    below = [0] * len(times)
    shapes = []
    for (_, colour), above in zip(MEMORY_PARTS.values(), sums, strict=True):
        edge = [f"{a} {_y(b, top):.1f}" for a, b in zip(x, above, strict=True)]
        back = [f"{a} {_y(b, top):.1f}" for a, b in zip(reversed(x), reversed(below), strict=True)]
        shapes.append(element("path", d=f"M{'L'.join([*edge, *back])}Z", fill=colour))
        below = above
    marks = [_mark(0, top), _mark(int(curve["peak_bytes"]), top)]
    if room:
        y = _y(room, top)
        shapes.append(element("path", d=f"M{LABEL_WIDTH} {y:.1f}H{PICTURE_WIDTH}", class_="limit"))
        shapes.append(
            element("text", f"{bytes_text(room)} of the chip", x=PICTURE_WIDTH, y=y - 4, class_="end")
        )
    title = "What the fullest rank holds in memory over the step"
    drawn = picture(title, LABEL_WIDTH, _HEIGHT, run.result.makespan_ns, *shapes, *marks)
    return [Picture(drawn), Legend(list(MEMORY_PARTS.values()))]


def memory_note(run: OpenRun) -> str:
    """Return the verdict, and which rank is drawn."""
    verdict = memory_verdict(run)
    return f"{verdict[:1].upper()}{verdict[1:]}. {memory_facts(run)}" if verdict else memory_facts(run)


def _y(size: float, top: float) -> float:
    return _HEIGHT * (1 - size / top)


def _mark(size: int, top: float) -> Svg:
    return element("text", bytes_text(size) if size else "0", x=0, y=min(_HEIGHT, _y(size, top) + 4))
