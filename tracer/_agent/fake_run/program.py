"""The program of one rank in a step: operators and communications, with their dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Program:
    """The entries of one step in order of issue, with the dependencies from streams, events and data.

    An entry waits for the entries in ``waits``, and for the previous entry on its stream, which ``waits``
    does not list.
    """

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.modules: list[str] = [""]
        self.compiled: list[str] = []
        self.notes: list[str] = []
        self.names: Any = None
        self.recording = False
        self.quiet = 0
        self.epoch = 0
        self.phase = ""
        self.current: Stream | None = None
        self._module_numbers = {"": 0}
        self._lanes: dict[object, int] = {}
        self._last: dict[int, int] = {}
        self._pending: dict[int, set[int]] = {}
        self._writer: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._storage_count = 0
        self._ordered: dict[tuple[int, int], int] = {}

    def begin(self) -> None:
        """Drop the recording so far and start to record."""
        self.entries.clear()
        for table in (self._lanes, self._last, self._pending, self._writer, self._ordered):
            table.clear()
        self.epoch += 1
        self.recording = True

    def note(self, sentence: str) -> None:
        """Record *sentence* as an assumption of the recording."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @property
    def active(self) -> bool:
        """Whether the current work belongs to the recorded step."""
        return self.recording and not self.quiet

    def module_number(self, name: str) -> int:
        """Return the index of the module called *name*."""
        if name not in self._module_numbers:
            self._module_numbers[name] = len(self.modules)
            self.modules.append(name)
        return self._module_numbers[name]

    def compute(self, entry: dict[str, Any], reads: Iterable[int], writes: Iterable[int]) -> None:
        """Append an operator on the current stream that uses the storages *reads* and *writes*."""
        lane = self._lane(self.current)
        waits = self._pending.pop(lane, set()) | self._sources(reads)
        self._append(entry, lane, waits, writes)

    def communicate(
        self, entry: dict[str, Any], line: object, reads: Iterable[int], writes: Iterable[int]
    ) -> int:
        """Append a communication on the separate stream *line*, after the work issued so far."""
        issuer = self._lane(self.current)
        waits = set(self._pending.get(issuer, ())) | self._sources(reads)
        if issuer in self._last:
            waits.add(self._last[issuer])
        return self._append(entry, self._lane(line), waits, writes)

    def wait(self, places: Iterable[int]) -> None:
        """Make the next entry of the current stream wait for the entries at *places*."""
        if self.recording:
            self._pending.setdefault(self._lane(self.current), set()).update(places)

    def wait_for_data(self, storages: Iterable[int]) -> None:
        """Make the next entry of the current stream wait for the entries that wrote *storages*."""
        self.wait(self._sources(storages))

    def freed(self, storage: int) -> None:
        """Forget *storage* and its writer, because another storage may reuse the address."""
        self._writer.pop(storage, None)
        self._storages.pop(storage, None)

    def storage_number(self, storage: int) -> int:
        """Return an id of *storage* that is unique within the step; ids start at 1."""
        if storage not in self._storages:
            self._storage_count += 1
            self._storages[storage] = self._storage_count
        return self._storages[storage]

    def reached(self, stream: Stream | None) -> frozenset[int]:
        """Return the unfinished entries of *stream*: the last entry, or the next entry's dependencies."""
        lane = self._lane(stream)
        last = {self._last[lane]} if lane in self._last else set()
        return frozenset(last | self._pending.get(lane, set()))

    def pend(self, stream: Stream | None, places: Iterable[int]) -> None:
        """Make the next entry of *stream* wait for the entries at *places*."""
        self._pending.setdefault(self._lane(stream), set()).update(places)

    def _lane(self, line: object) -> int:
        return self._lanes.setdefault(line, len(self._lanes))

    def _sources(self, storages: Iterable[int]) -> set[int]:
        return {self._writer[storage] for storage in storages if storage in self._writer}

    def _append(self, entry: dict[str, Any], lane: int, waits: set[int], writes: Iterable[int]) -> int:
        place = len(self.entries)
        direct = []
        for other in sorted(waits, reverse=True):
            across = (lane, self.entries[other]["stream"])
            if across[0] != across[1] and self._ordered.get(across, -1) < other:
                self._ordered[across] = other
                direct.append(other)
        self.entries.append({**entry, "stream": lane, "waits": direct[::-1]})
        self._last[lane] = place
        self._writer.update(dict.fromkeys(writes, place))
        return place


PROGRAM = Program()


class Stream:
    """A stream of the emulated device, on which work runs in order."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.device = "cpu"

    def wait_stream(self, stream: Any) -> None:
        """Make the next work on this stream wait for the work on *stream*."""
        if PROGRAM.recording:
            PROGRAM.pend(self, PROGRAM.reached(stream))

    def wait_event(self, event: Any) -> None:
        """Make the next work on this stream wait for *event*."""
        if isinstance(event, Event):
            event.wait(self)

    def record_event(self, event: Any = None) -> Event:
        """Return an event that follows all work issued to this stream so far."""
        recorded = event if isinstance(event, Event) else Event()
        recorded.record(self)
        return recorded

    def query(self) -> bool:
        """Return True, because all work on an emulated stream is done."""
        return True

    def synchronize(self) -> None:
        """Return immediately, because an emulated stream has no pending work."""

    def __enter__(self) -> Stream:
        """Make this stream the current stream."""
        self._before = PROGRAM.current
        PROGRAM.current = self
        return self

    def __exit__(self, *_: object) -> None:
        PROGRAM.current = self._before


class Event:
    """An event on a stream of the emulated device."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._places: frozenset[int] = frozenset()
        self._epoch = -1

    def record(self, stream: Any = None) -> Event:
        """Record the work issued to *stream* (default: the current stream) as the event's work."""
        self._places = PROGRAM.reached(stream if isinstance(stream, Stream) else PROGRAM.current)
        self._epoch = PROGRAM.epoch
        return self

    def wait(self, stream: Any = None) -> None:
        """Make the next work on *stream* wait for this event."""
        if PROGRAM.recording and self._epoch == PROGRAM.epoch:
            PROGRAM.pend(stream if isinstance(stream, Stream) else PROGRAM.current, self._places)

    def query(self) -> bool:
        """Return True, because every emulated event has happened."""
        return True

    def synchronize(self) -> None:
        """Return immediately, because every emulated event has happened."""

    def elapsed_time(self, _end: Any) -> float:
        """Return one millisecond, because emulated work has no duration."""
        return 1.0
