"""Summarise a program: traffic per pair of ranks, steps, and lower bounds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from ...support import bytes_text, count_text
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

    *steps* is the length of the longest chain of dependent messages, and *rounds* is the number of
    repetitions of the steps. *most_sent_bytes* and *most_received_bytes* are maxima over ranks. *least_bytes*
    is a lower bound on the bytes that the busiest rank of any program for this collective receives (None if
    unknown). *link_bytes* is the number of bytes that the busiest pair sends in one direction.
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
    """Return the figures as (name, text) pairs: first of the program, then of its traffic."""
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
