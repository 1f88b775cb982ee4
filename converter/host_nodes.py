"""A host thread of a rank that drives a device as a chain of nodes, cut where it issues work or waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .graph import EdgeKind, NodeType
from .host_lanes import Burst, Lane
from .timeline import Piece

__all__ = ["Draft", "HostNodes", "Mark", "host_nodes"]

# A stretch this short, unless it is the first of an operator, is added to a neighbouring node, as is all of
# an operator's time after the operators in it while nothing was issued.
_MERGED_BELOW_NS = 2_000


@dataclass
class Draft:
    """A node that has no number yet: when it was measured to start, and its columns."""

    start_ns: int
    columns: dict[str, Any]

    @property
    def duration_ns(self) -> int:
        """How long it takes."""
        return int(self.columns["duration_ns"])


@dataclass(frozen=True)
class Mark:
    """A moment at which a thread issues launches, or stops until *resume_ns*.

    What it stops for are launches (*awaits*) or other threads' drafts (*after*), by number; neither, if it is
    outside the graph. *starts* are drafts of other threads that can begin now.
    """

    time_ns: int
    resume_ns: int
    issues: tuple[int, ...] = ()
    awaits: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def stops(self) -> bool:
        """Whether the thread stops, not only issues."""
        return bool(self.awaits or self.after) or self.resume_ns > self.time_ns


@dataclass
class HostNodes:
    """The nodes of one thread, numbered from *first* on, and how they relate to everything else.

    *issuer* maps a launch to the node that issued it, *awaits* lists (launch, node that waited for it),
    *bursts* the first and last node of each burst. *wait_ns* is the time the thread was stopped.
    """

    first: int
    drafts: list[Draft] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    issuer: dict[int, int] = field(default_factory=dict)
    awaits: list[tuple[int, int]] = field(default_factory=list)
    bursts: list[tuple[int, int]] = field(default_factory=list)
    wait_ns: int = 0


def host_nodes(lane: Lane, marks: Sequence[Mark], bursts: Sequence[Burst], first: int) -> HostNodes:
    """Return the nodes of *lane*, numbered from *first* on.

    The thread works in *bursts* only (all the time if there are none). Each node takes the time the thread
    spent in it; the time it was stopped at a mark belongs to nobody.
    """
    walk = _Walk(lane, HostNodes(first))
    ordered = sorted(marks, key=lambda mark: (mark.time_ns, mark.stops))
    if not bursts:
        walk.stretch(lane.pieces, ordered)
        return walk.nodes
    at = piece = 0
    for burst in bursts:
        while piece < len(lane.pieces) and lane.pieces[piece].end_ns <= burst.start_ns:
            piece += 1
        until = piece
        while until < len(lane.pieces) and lane.pieces[until].start_ns < burst.end_ns:
            until += 1
        stop = at
        while stop < len(ordered) and ordered[stop].time_ns <= burst.end_ns:
            stop += 1
        begin = len(walk.nodes.drafts)
        walk.stretch(lane.pieces[piece:until], ordered[at:stop])
        walk.ensure(burst.start_ns, begin)
        walk.nodes.bursts.append((first + begin, first + len(walk.nodes.drafts) - 1))
        at, piece = stop, until
    return walk.nodes


class _Walk:
    """One pass along a thread."""

    def __init__(self, lane: Lane, nodes: HostNodes) -> None:
        self.lane, self.nodes = lane, nodes
        self._seen: set[int] = set()
        self._closed = True
        self._fresh = True
        self._carried_ns = 0
        self._about = Piece(0, 0, -1, -1)
        self._waits: list[tuple[int, int]] = []  # (draft, kind) the next node depends on
        self._awaits: list[int] = []
        self._resume_ns = 0

    def stretch(self, pieces: Sequence[Piece], marks: Sequence[Mark]) -> None:
        """Walk along *pieces*, stopping at *marks*, both in order."""
        self._closed = self._fresh = True
        self._resume_ns, at = 0, 0
        for piece in pieces:
            while at < len(marks) and marks[at].time_ns <= piece.end_ns:
                self._advance(piece, marks[at].time_ns)
                self._apply(marks[at], piece)
                at += 1
            self._advance(piece, piece.end_ns)
        for mark in marks[at:]:
            self._apply(mark, self._about)
        self._flush()

    def ensure(self, start_ns: int, begin: int) -> None:
        """Make sure that there is a node from number *begin* on."""
        if len(self.nodes.drafts) == begin:
            self._add(self._about, start_ns, 0)

    def _advance(self, piece: Piece, until_ns: int) -> None:
        """Spend the time up to *until_ns* in *piece*."""
        begin = max(piece.start_ns, self._resume_ns)
        if until_ns <= begin:
            return
        self._resume_ns = until_ns
        length = until_ns - begin
        known = piece.op in self._seen
        short = length < _MERGED_BELOW_NS and (known or piece.op < 0)
        if self._fresh or not (short or (known and not self._closed)):
            self._seen.update([piece.op] if piece.op >= 0 else ())
            self._add(piece, begin, length)
        elif self._closed:
            self._carried_ns += length
            self._about = piece
        else:
            self.nodes.drafts[-1].columns["duration_ns"] += length

    def _apply(self, mark: Mark, piece: Piece) -> None:
        """Issue what *mark* issues, and stop where it stops."""
        self._about = piece
        if self._carried_ns or not self.nodes.drafts or self._fresh:
            self._add(piece, mark.time_ns, 0)
        self._closed = True
        current = self.nodes.first + len(self.nodes.drafts) - 1
        for launch in mark.issues:
            self.nodes.issuer[launch] = current
        self.nodes.edges += [(current, draft, int(EdgeKind.AUTOGRAD)) for draft in mark.starts]
        if not mark.stops:
            return
        self._awaits += mark.awaits
        self._waits += [(draft, int(EdgeKind.AUTOGRAD)) for draft in mark.after]
        self._fresh = True
        resume = max(mark.resume_ns, self._resume_ns)
        self.nodes.wait_ns += resume - max(self._resume_ns, mark.time_ns)
        self._resume_ns = resume

    def _flush(self) -> None:
        """Turn what is left over into a node."""
        if self._carried_ns or self._waits or self._awaits:
            self._add(self._about, self._resume_ns, 0)

    def _add(self, piece: Piece, start_ns: int, length_ns: int) -> None:
        """Append a node, which becomes the current one."""
        number = self.nodes.first + len(self.nodes.drafts)
        columns = _columns(self.lane, piece)
        columns["duration_ns"] = length_ns + self._carried_ns
        if self.nodes.drafts:
            self.nodes.edges.append((number - 1, number, int(EdgeKind.PROGRAM_ORDER)))
        self.nodes.edges += [(draft, number, kind) for draft, kind in self._waits]
        self.nodes.awaits += [(launch, number) for launch in self._awaits]
        self.nodes.drafts.append(Draft(start_ns, columns))
        self._waits, self._awaits, self._carried_ns = [], [], 0
        self._closed = self._fresh = False


def _columns(lane: Lane, piece: Piece) -> dict[str, Any]:
    """Return what a node of *piece* is called and belongs to."""
    about = piece.op if piece.op >= 0 else piece.next_op
    columns: dict[str, Any] = {
        "type": NodeType.COMP,
        "stream": lane.number,
        "is_cpu_op": True,
        "kind": "launch",
        "name": "host until the end of the step",
    }
    if about >= 0:
        op = lane.ops[about]
        name = op.event.name
        columns["module"], columns["phase"] = op.module, op.phase
        if piece.op >= 0:
            columns["name"] = columns["operator"] = name
        else:
            columns["name"] = f"host before {name}"
    return columns
