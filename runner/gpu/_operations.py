"""Write the operations of workgroups (thread blocks) in the engine's format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from .. import engine
from ..programs import Op
from ._machine import LINE_BYTES

Access = tuple[int, int, float, int]
"""Rank, group of the switch, bytes moved per byte of data, counter to raise; -1 for none."""
Use = tuple[int, int, int]
"""Rank, counter, value."""
_Operation = tuple[engine.GpuOp, int, int, float, list[Access], list[Access], list[Use]]


class Places:
    """Numbers the ops and rounds of a program; the engine labels operations with these numbers."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], int] = {}

    def number(self, op: Op, turn: int) -> int:
        """Return the number of *op* in round *turn*."""
        return self.numbers.setdefault((op.place, turn), len(self.numbers))

    def names(self) -> list[tuple[str, int]]:
        """Return the name of the op and the round, in the order of their numbers."""
        return list(self.numbers)


@dataclass
class RankWriter:
    """Collects the operations of a rank's thread blocks, and the rank's counters by purpose."""

    rank: int
    places: Places
    counters: dict[Hashable, int] = field(default_factory=dict)
    values: list[int] = field(default_factory=list)
    blocks: list[tuple[int, list[_Operation]]] = field(default_factory=list)
    place: int = -1
    lines: Counter[int] = field(default_factory=Counter)
    """Lines of accesses by the group of the switch; -1: without one."""

    def counter(self, what: Hashable, value: int = 0) -> int:
        """Return the number of a counter; a new counter has the initial *value*."""
        if what not in self.counters:
            self.counters[what] = len(self.values)
            self.values.append(value)
        return self.counters[what]

    def begin_block(self, wavefronts: int) -> None:
        """Begin a new thread block for the following operations."""
        self.blocks.append((wavefronts, []))

    def at(self, op: Op, turn: int) -> None:
        """Attribute the following operations to *op* in round *turn*."""
        self.place = self.places.number(op, turn)

    def data(self, size_bytes: int, sources: Iterable[Access], targets: Iterable[Access]) -> None:
        """Add an operation that loads from all sources, reduces, and stores to all targets."""
        sources, targets = list(sources), list(targets)
        for _, group, wire, _ in (*sources, *targets):
            self.lines[group] += -(-int(size_bytes * wire) // LINE_BYTES)
        self._add(engine.GpuOp.DATA, size_bytes, sources=sources, targets=targets)

    def proxy(self, size_bytes: int, target: Access) -> None:
        """Add a request for a proxy to move data while the thread block continues."""
        self._add(engine.GpuOp.PROXY, size_bytes, targets=[target])

    def signal(self, uses: Iterable[Use]) -> None:
        """Add an operation that increases counters of any rank."""
        self._add(engine.GpuOp.SIGNAL, uses=uses)

    def take(self, uses: Iterable[Use]) -> None:
        """Add an operation that waits until counters of this rank reach values, and subtracts the values."""
        self._add(engine.GpuOp.TAKE, uses=uses)

    def await_(self, uses: Iterable[Use]) -> None:
        """Add an operation that waits until counters of this rank reach the given values."""
        self._add(engine.GpuOp.AWAIT, uses=uses)

    def barrier(self, counter: int, count: int) -> None:
        """Add an operation that synchronises *count* thread blocks of the rank."""
        self._add(engine.GpuOp.BARRIER, uses=[(self.rank, counter, count)])

    def sync(self) -> None:
        """Add an operation that synchronises the threads of the thread block."""
        self._add(engine.GpuOp.SYNC)

    def fence(self) -> None:
        """Add an operation that waits until all stores are acknowledged."""
        self._add(engine.GpuOp.FENCE)

    def flush(self) -> None:
        """Add an operation that waits until the proxies have moved all data."""
        self._add(engine.GpuOp.FLUSH)

    def pause(self, ns: float) -> None:
        """Add an operation that waits for a fixed time of *ns* nanoseconds."""
        if ns > 0:
            self._add(engine.GpuOp.PAUSE, ns=ns)

    def _add(
        self,
        kind: engine.GpuOp,
        size_bytes: int = 0,
        *,
        ns: float = 0.0,
        sources: Iterable[Access] = (),
        targets: Iterable[Access] = (),
        uses: Iterable[Use] = (),
    ) -> None:
        operation = (kind, self.place, size_bytes, ns, list(sources), list(targets), list(uses))
        self.blocks[-1][1].append(operation)
