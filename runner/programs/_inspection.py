"""Summarise a program (traffic per pair of ranks, steps, lower bounds) and draw it as SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

from ...errors import ConfigError
from ...support import Svg, bytes_text, count_text, element, picture, ranks_text
from ._lower import Lowered, lower
from ._model import Program


@dataclass(frozen=True)
class Traffic:
    """The messages and bytes from one rank to another in one step, including flags and signals."""

    step: int
    source: int
    destination: int
    messages: int
    size_bytes: int


@dataclass(frozen=True)
class Inspection:
    """Summary figures of a program for one size.

    *steps* is the longest chain of dependent messages, and *rounds* how often the steps repeat.
    *most_sent_bytes* and *most_received_bytes* are maxima over ranks. *least_bytes* is a lower
    bound on the bytes that the busiest rank of any program for this collective receives (None if
    unknown). *link_bytes* is what the busiest pair sends in one direction.
    """

    program: Program
    size_bytes: int
    steps: int
    messages: int
    most_sent_bytes: int
    most_received_bytes: int
    least_bytes: int | None
    link_bytes: int
    local_bytes: int
    traffic: tuple[Traffic, ...]
    remarks: tuple[str, ...]
    rounds: int = 1


def inspect_program(program: Program, size_bytes: int) -> Inspection:
    """Return the figures of *program* for a collective of *size_bytes*; raises the errors of `lower`."""
    lowered = lower(program, size_bytes)
    steps = _steps(lowered)
    cells: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0])
    sent: dict[int, int] = defaultdict(int)
    received: dict[int, int] = defaultdict(int)
    links: dict[tuple[int, int], int] = defaultdict(int)
    for rank, nodes in enumerate(lowered.ranks):
        for node in nodes:
            if node.kind != "send":
                continue
            cell = cells[steps[node.tag], rank, node.peer]
            cell[0] += 1
            cell[1] += node.size_bytes
            sent[rank] += node.size_bytes
            received[node.peer] += node.size_bytes
            links[rank, node.peer] += node.size_bytes
    return Inspection(
        program=program,
        size_bytes=size_bytes,
        steps=max(steps.values(), default=0),
        messages=sum(messages for messages, _ in cells.values()),
        most_sent_bytes=max(sent.values(), default=0),
        most_received_bytes=max(received.values(), default=0),
        least_bytes=_least_bytes(program, size_bytes),
        link_bytes=max(links.values(), default=0),
        local_bytes=max(
            sum(node.passes * node.size_bytes for node in nodes if node.kind == "local")
            for nodes in lowered.ranks
        ),
        traffic=tuple(Traffic(*key, *value) for key, value in sorted(cells.items())),
        remarks=lowered.remarks,
        rounds=lowered.rounds,
    )


def inspection_facts(found: Inspection) -> list[tuple[str, str]]:
    """Return the figures as (name, text) pairs: those of the program first, then those of its traffic."""
    program = found.program
    place = "in place" if program.in_place else "out of place"
    most = "any size" if program.most_bytes is None else f"at most {bytes_text(program.most_bytes)}"
    sizes = f"from {bytes_text(program.least_bytes)}, {most}" if program.least_bytes else most
    blocks = max(len(rank.thread_blocks) for rank in program.ranks)
    least = ""
    if found.least_bytes:
        least = f", {found.most_received_bytes / found.least_bytes:.2f} times the minimum possible"
    rounds = f", in {found.rounds} rounds" if found.rounds > 1 else ""
    return [
        ("collective", f"{program.collective} among {count_text(program.num_ranks, 'rank')}"),
        ("language", f"{'MSCCL XML' if program.language == 'msccl' else 'MSCCL++ plan'}, {program.protocol}"),
        ("buffers", f"{count_text(program.chunks, 'chunk')}, {place}"),
        ("sizes", sizes),
        ("program", f"{count_text(program.num_ops, 'op')}, {count_text(blocks, 'thread block')} per rank"),
        ("size", bytes_text(found.size_bytes)),
        ("steps", f"{found.steps} in sequence{rounds}"),
        ("messages", f"{found.messages:,}"),
        ("sent by the busiest rank", bytes_text(found.most_sent_bytes)),
        ("received by the busiest rank", f"{bytes_text(found.most_received_bytes)}{least}"),
        ("between the busiest pair", f"{bytes_text(found.link_bytes)} one way"),
        ("local work", f"{bytes_text(found.local_bytes)} read and written"),
    ]


def _steps(lowered: Lowered) -> dict[int, int]:
    """Return the step of each message by tag: one more than the latest step it depends on."""
    starts = list(accumulate((len(nodes) for nodes in lowered.ranks), initial=0))
    nodes = [node for ranks in lowered.ranks for node in ranks]
    receives = {node.tag: number for number, node in enumerate(nodes) if node.kind == "receive"}
    later: dict[int, list[int]] = defaultdict(list)
    missing = [0] * len(nodes)
    for start, own in zip(starts, lowered.ranks, strict=False):
        for number, node in enumerate(own, start):
            for before in node.after:
                later[start + before].append(number)
            missing[number] += len(node.after)
            if node.kind == "send":
                later[number].append(receives[node.tag])
                missing[receives[node.tag]] += 1
    levels = [0] * len(nodes)
    ready = [number for number, count in enumerate(missing) if count == 0]
    while ready:
        number = ready.pop()
        level = levels[number] + (nodes[number].kind == "send")
        for other in later[number]:
            # On the same rank, nodes after a send wait for the dependencies of the send.
            mine = level if nodes[other].kind == "receive" else levels[number]
            levels[other] = max(levels[other], mine)
            missing[other] -= 1
            if missing[other] == 0:
                ready.append(other)
    return {node.tag: levels[number] + 1 for number, node in enumerate(nodes) if node.kind == "send"}


def _least_bytes(program: Program, size_bytes: int) -> int | None:
    """Return the least bytes that the busiest rank must receive without in-network reduction."""
    count = program.num_ranks
    share = Fraction(count - 1, count)
    least = {
        "all-reduce": 2 * share * size_bytes,
        "reduce-scatter": share * size_bytes,
        "all-to-all": share * size_bytes,
        "all-gather": Fraction((count - 1) * size_bytes),
    }.get(program.collective)
    return None if least is None else int(least)


# Beyond these limits, the arrows of a plot can no longer be distinguished.
_MAX_ARROWS, _MAX_STEPS, _MAX_RANKS = 600, 32, 16
# Browsers draw this many boxes without delay.
_MAX_CELLS = 50_000
# Margin at both ends of an arrow, as a fraction of the step's width.
ARROW_GAP = 0.06
_COLOURS = ("#8a939c", "#3b82c4", "#d9731a", "#b2182b")
_LEFT, _TOP, _BOTTOM, _RIGHT = 80, 64, 44, 24
_ARROW_ROW, _ARROW_STEP = 40, 110
_CELL_ROW, _CELLS_WIDE = 18, 800
_MAX_LABELS = 16
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.head{font-weight:600;font-size:14px}"
    ".grid{stroke:#d0d7de}.step{stroke:#9aa3ad;stroke-dasharray:2 3}svg{background:#fff}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}}"
)


def has_arrows(found: Inspection) -> bool:
    """Return whether the plot of a program uses arrows rather than shaded boxes."""
    few = len(found.traffic) <= _MAX_ARROWS and found.steps <= _MAX_STEPS
    return few and found.program.num_ranks <= _MAX_RANKS


def size_groups(sizes: Iterable[int], most: int = len(_COLOURS)) -> list[tuple[str, int, int]]:
    """Group *sizes* (bytes) into at most *most* ranges, each with label, minimum and maximum."""
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
    """Describe the traffic between two ranks in one step as a sentence."""
    return (
        f"Step {item.step}: rank {item.source} to rank {item.destination}, {bytes_text(item.size_bytes)} in "
        f"{count_text(item.messages, 'message')}"
    )


def program_picture(found: Inspection) -> str:
    """Draw the traffic between ranks in each step as SVG, with arrows or shaded boxes.

    Raises `ConfigError` for more ranks and steps than can be drawn.
    """
    arrows = has_arrows(found)
    ranks, steps = found.program.num_ranks, max(1, found.steps)
    if not arrows and ranks * steps > _MAX_CELLS:
        raise ConfigError(
            f"{found.program.name}: {ranks:,} ranks over {steps:,} steps are too many for a plot. "
            "Next: take the table, chakrascope algorithm inspect --view traffic."
        )
    row = _ARROW_ROW if arrows else _CELL_ROW
    step = _ARROW_STEP if arrows else max(2.0, min(60.0, _CELLS_WIDE / steps))
    width, height = max(480.0, _LEFT + step * steps + _RIGHT), _TOP + row * ranks + _BOTTOM
    name = found.program.name
    content = [
        element("style", Svg(_STYLE)),
        element("text", f"{name}, {bytes_text(found.size_bytes)}", class_="head", x=12, y=22),
        *_axes(ranks, steps, row, step),
        *(_arrows(found) if arrows else _boxes(found, step)),
    ]
    label = f"Who sends to whom in {name}: {ranks} ranks over {count_text(found.steps, 'step')}"
    return picture(width, height, *content, label=label, width=width, height=height) + "\n"


def _axes(ranks: int, steps: int, row: int, step: float) -> list[Svg]:
    """Return the labels of ranks and steps in the plot of a program."""
    bottom, middle = _TOP + row * ranks, {"text_anchor": "middle"}
    parts = [element("text", f"rank {rank}", x=12, y=_TOP + row * (rank + 0.5) + 4) for rank in range(ranks)]
    parts += [
        element("text", f"{number + 1}", x=_LEFT + step * (number + 0.5), y=bottom + 16, **middle)
        for number in range(0, steps, -(-steps // _MAX_LABELS))
    ]
    return [*parts, element("text", "step", x=_LEFT + step * steps / 2, y=bottom + 34, **middle)]


def _arrows(found: Inspection) -> list[Svg]:
    """Return the rank lines, the step borders, and an arrow per pair of ranks and step."""
    ranks, steps = found.program.num_ranks, found.steps
    end, bottom = _LEFT + _ARROW_STEP * steps, _TOP + _ARROW_ROW * ranks
    parts = [element("path", class_="grid", d=f"M{_LEFT} {_rank_y(rank):g}H{end}") for rank in range(ranks)]
    parts += [
        element("path", class_="step", d=f"M{_LEFT + _ARROW_STEP * number} {_TOP}V{bottom}")
        for number in range(1, steps)
    ]
    groups = size_groups(item.size_bytes for item in found.traffic)
    colours = _COLOURS[1:] if len(groups) == 1 else _COLOURS
    parts += _legend(groups, colours)
    for number, (_, least, most) in enumerate(groups):
        head = element(
            "marker", element("path", d="M0 0L9 4L0 8z", fill=colours[number]), id=f"arrow{number}",
            markerWidth=9, markerHeight=8, refX=8, refY=4, orient="auto", markerUnits="userSpaceOnUse",
        )  # fmt: skip
        own = [
            _arrow(item, f"url(#arrow{number})") for item in found.traffic if least <= item.size_bytes <= most
        ]
        parts += [element("defs", head), element("g", *own, stroke=colours[number], stroke_width=1.4)]
    return parts


def _arrow(item: Traffic, head: str) -> Svg:
    start, stop = (_LEFT + _ARROW_STEP * (item.step + side) for side in (ARROW_GAP - 1, -ARROW_GAP))
    way = f"M{start:.1f} {_rank_y(item.source):g}L{stop:.1f} {_rank_y(item.destination):g}"
    return element("path", element("title", traffic_sentence(item)), d=way, marker_end=head)


def _rank_y(rank: int) -> float:
    return _TOP + _ARROW_ROW * (rank + 0.5)


def _legend(groups: Sequence[tuple[str, int, int]], colours: Sequence[str]) -> list[Svg]:
    """Return the legend: a line and a range of sizes per colour."""
    parts, x = [element("text", "sent in one step:", x=12, y=48)], 120.0
    for (label, _, _), colour in zip(groups, colours, strict=False):
        parts.append(element("path", d=f"M{x:g} 44h20", stroke=colour, stroke_width=3))
        parts.append(element("text", label, x=x + 26, y=48))
        x += 50 + 7 * len(label)
    return parts


def _boxes(found: Inspection, step: float) -> list[Svg]:
    """Return a box per rank and step, darker for more bytes sent."""
    targets: dict[tuple[int, int], list[int]] = defaultdict(list)
    sent: dict[tuple[int, int], int] = defaultdict(int)
    for item in found.traffic:
        targets[item.source, item.step].append(item.destination)
        sent[item.source, item.step] += item.size_bytes
    most = max(sent.values(), default=1)
    parts = [element("text", f"sent in one step, at most {bytes_text(most)}", x=12, y=48)]
    for (rank, number), size in sent.items():
        to = targets[rank, number]
        receivers = f"{'rank' if len(to) == 1 else 'ranks'} {ranks_text(to)}"
        tip = element("title", f"Step {number}: rank {rank} sends {bytes_text(size)} to {receivers}")
        parts.append(
            element(
                "rect", tip, x=_LEFT + step * (number - 1), y=_TOP + _CELL_ROW * rank + 1, width=step * 0.94,
                height=_CELL_ROW - 2, fill=_COLOURS[1], opacity=0.15 + 0.85 * size / most,
            )
        )  # fmt: skip
    return parts
