"""A picture of a program as SVG: ranks over steps, an arrow for what one rank sends another in a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from ...errors import ConfigError
from ...support import bytes_text, count_text, ranks_text
from ._inspection import Inspection, Traffic

__all__ = ["ARROW_GAP", "has_arrows", "program_picture", "size_groups", "traffic_sentence"]

# Up to here arrows can be told apart.
_MOST_ARROWS, _MOST_STEPS, _MOST_RANKS = 600, 32, 16
# Browsers draw so many boxes without delay.
_MOST_CELLS = 50_000
# An arrow begins and ends within its step, of whose width this is left free at both sides.
ARROW_GAP = 0.06
_COLOURS = ("#8a939c", "#3b82c4", "#d9731a", "#b2182b")
_LEFT, _TOP, _BOTTOM, _RIGHT = 80, 64, 44, 24
_ARROW_ROW, _ARROW_STEP = 40, 110
_CELL_ROW, _CELLS_WIDE = 18, 800
_MOST_LABELS = 16
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.head{font-weight:600;font-size:14px}"
    ".grid{stroke:#d0d7de}.step{stroke:#9aa3ad;stroke-dasharray:2 3}svg{background:#fff}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}}"
)


def has_arrows(found: Inspection) -> bool:
    """Return whether a picture has an arrow for whatever one rank sends another in a step."""
    few = len(found.traffic) <= _MOST_ARROWS and found.steps <= _MOST_STEPS
    return few and found.program.num_ranks <= _MOST_RANKS


def size_groups(sizes: Iterable[int], most: int = len(_COLOURS)) -> list[tuple[str, int, int]]:
    """Return at most *most* ranges that hold all *sizes* in bytes: label, least and most of each."""
    distinct = sorted(set(sizes))
    count = max(1, min(most, len(distinct)))
    whole, more = divmod(len(distinct), count)
    edges = [number * whole + min(number, more) for number in range(count + 1)] if distinct else []
    ranges = [(distinct[start], distinct[end - 1]) for start, end in pairwise(edges)]
    return [
        (bytes_text(low) if low == high else f"{bytes_text(low)} to {bytes_text(high)}", low, high)
        for low, high in ranges
    ]


def traffic_sentence(item: Traffic) -> str:
    """Return in words what one rank sends another in one step."""
    return (
        f"Step {item.step}: rank {item.source} to rank {item.destination}, {bytes_text(item.size_bytes)} in "
        f"{count_text(item.messages, 'message')}"
    )


def program_picture(found: Inspection) -> str:
    """Return who sends what to whom in which step as an SVG: arrows, or shaded boxes where those are many.

    Raises `ConfigError` for more ranks and steps than can be drawn.
    """
    arrows = has_arrows(found)
    ranks, steps = found.program.num_ranks, max(1, found.steps)
    if not arrows and ranks * steps > _MOST_CELLS:
        raise ConfigError(
            f"{found.program.name}: {ranks:,} ranks over {steps:,} steps are too many for a picture. "
            "Next: take the table, chakrascope algorithm inspect --view traffic."
        )
    row = _ARROW_ROW if arrows else _CELL_ROW
    step = _ARROW_STEP if arrows else max(2.0, min(60.0, _CELLS_WIDE / steps))
    width, height = max(480.0, _LEFT + step * steps + _RIGHT), _TOP + row * ranks + _BOTTOM
    name = escape(found.program.name)
    told = f"Who sends to whom in {name}: {ranks} ranks over {count_text(found.steps, 'step')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" '
        f'height="{height}" role="img" aria-label="{told}"><style>{_STYLE}</style>',
        f'<text class="head" x="12" y="22">{name}, {bytes_text(found.size_bytes)}</text>',
        *_axes(ranks, steps, row, step),
        *(_arrows(found) if arrows else _boxes(found, step)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes(ranks: int, steps: int, row: int, step: float) -> list[str]:
    """Return the names of ranks and steps."""
    bottom = _TOP + row * ranks
    parts = [
        f'<text x="12" y="{_TOP + row * (rank + 0.5) + 4:g}">rank {rank}</text>' for rank in range(ranks)
    ]
    parts += [
        f'<text x="{_LEFT + step * (number + 0.5):.1f}" y="{bottom + 16}" text-anchor="middle">'
        f"{number + 1}</text>"
        for number in range(0, steps, -(-steps // _MOST_LABELS))
    ]
    middle = _LEFT + step * steps / 2
    return [*parts, f'<text x="{middle:.1f}" y="{bottom + 34}" text-anchor="middle">step</text>']


def _arrows(found: Inspection) -> list[str]:
    """Return lines of ranks, borders of steps, and an arrow for each pair of ranks in a step."""
    ranks, steps = found.program.num_ranks, found.steps
    end, bottom = _LEFT + _ARROW_STEP * steps, _TOP + _ARROW_ROW * ranks
    parts = [f'<path class="grid" d="M{_LEFT} {_rank_y(rank):g}H{end}"/>' for rank in range(ranks)]
    for number in range(1, steps):
        x = _LEFT + _ARROW_STEP * number
        parts.append(f'<path class="step" d="M{x} {_TOP}V{bottom}"/>')
    groups = size_groups(item.size_bytes for item in found.traffic)
    colours = _COLOURS[1:] if len(groups) == 1 else _COLOURS
    parts += _legend(groups, colours)
    for number, (_, least, most) in enumerate(groups):
        own = [item for item in found.traffic if least <= item.size_bytes <= most]
        parts.append(
            f'<defs><marker id="arrow{number}" markerWidth="9" markerHeight="8" refX="8" refY="4" '
            f'orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0L9 4L0 8z" fill="{colours[number]}"/>'
            f'</marker></defs><g stroke="{colours[number]}" stroke-width="1.4">'
        )
        for item in own:
            start, stop = (_LEFT + _ARROW_STEP * (item.step + side) for side in (ARROW_GAP - 1, -ARROW_GAP))
            parts.append(
                f'<path d="M{start:.1f} {_rank_y(item.source):g}L{stop:.1f} {_rank_y(item.destination):g}" '
                f'marker-end="url(#arrow{number})"><title>{traffic_sentence(item)}</title></path>'
            )
        parts.append("</g>")
    return parts


def _rank_y(rank: int) -> float:
    return _TOP + _ARROW_ROW * (rank + 0.5)


def _legend(groups: Sequence[tuple[str, int, int]], colours: Sequence[str]) -> list[str]:
    """Return a line and its sizes for each colour, behind each other."""
    parts, x = ['<text x="12" y="48">sent in one step:</text>'], 120.0
    for (label, _, _), colour in zip(groups, colours, strict=False):
        parts.append(
            f'<path d="M{x:g} 44h20" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{x + 26:g}" y="48">{label}</text>'
        )
        x += 50 + 7 * len(label)
    return parts


def _boxes(found: Inspection, step: float) -> list[str]:
    """Return a box for whatever a rank sends in a step, the darker the more."""
    targets: dict[tuple[int, int], list[int]] = defaultdict(list)
    sent: dict[tuple[int, int], int] = defaultdict(int)
    for item in found.traffic:
        targets[item.source, item.step].append(item.destination)
        sent[item.source, item.step] += item.size_bytes
    most = max(sent.values(), default=1)
    parts = [f'<text x="12" y="48">sent in one step, at most {bytes_text(most)}</text>']
    for (rank, number), size in sent.items():
        to = targets[rank, number]
        parts.append(
            f'<rect x="{_LEFT + step * (number - 1):.2f}" y="{_TOP + _CELL_ROW * rank + 1}" '
            f'width="{step * 0.94:.2f}" height="{_CELL_ROW - 2}" fill="{_COLOURS[1]}" '
            f'opacity="{0.15 + 0.85 * size / most:.2f}"><title>Step {number}: rank {rank} sends '
            f"{bytes_text(size)} to {'rank' if len(to) == 1 else 'ranks'} {ranks_text(to)}</title></rect>"
        )
    return parts
