"""Write the readings of all steps of a long run to one file of bounded size."""

from __future__ import annotations

import errno
import gzip
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FORMAT, VERSION = "chakrascope-steps", 1
FIRST_WRITE_NS, WRITE_NS = 1_000_000_000, 10_000_000_000
MOST_BYTES_PER_HOUR = 16_000_000
FIRST_BYTES = 1_000_000
_NS_PER_HOUR = 3_600_000_000_000


class StepFile:
    """Appends rows of *columns* to the file *path*, as whole gzip members of JSON.

    A gzip member is written every ten seconds, and the first members are written earlier. If the process is
    killed, all earlier members remain readable. If steps are so short that the file grows by more than 20 MB
    an hour, only every second step is written, then every fourth step, and so on. All ranks write the same
    steps.
    """

    def __init__(self, path: Path, columns: Sequence[str], head: Callable[[], dict[str, Any]]) -> None:
        self.failure = ""
        self._path = path
        self._columns = columns
        self._head = head
        self._rows: list[Sequence[int]] = []
        self._begin_ns = self._written_ns = time.time_ns()
        self._bytes = 0
        self._apart = 1
        path.write_bytes(b"")

    def add(self, row: Sequence[int]) -> None:
        """Add the row of a boundary between steps; the first value is the step's number."""
        if row[0] % self._apart < 2:
            self._rows.append(row)
        so_far = self._written_ns - self._begin_ns
        if time.time_ns() - self._written_ns >= min(WRITE_NS, max(FIRST_WRITE_NS, so_far)):
            self.write()

    def write(self) -> None:
        """Write all pending rows, unless an earlier write has failed."""
        before, now = self._written_ns, time.time_ns()
        self._written_ns = now
        if not self._rows or self.failure:
            return
        values = zip(*self._rows, strict=True)
        steps = dict(zip(self._columns, map(list, values), strict=True))
        document = {"format": FORMAT, "version": VERSION, **self._head(), "steps": steps}
        member = gzip.compress(json.dumps(document, separators=(",", ":")).encode() + b"\n", 3)
        self._rows = []
        try:
            self._append(member)
        except OSError as error:
            self.failure = f"step times end early: {self._path}: {error.strerror}"
        is_much = len(member) * _NS_PER_HOUR > MOST_BYTES_PER_HOUR * (now - before)
        total = FIRST_BYTES + MOST_BYTES_PER_HOUR * (now - self._begin_ns) // _NS_PER_HOUR
        if is_much and self._bytes > total:
            self._apart = max(4, 2 * self._apart)  # every second, fourth, ... step has its two boundaries

    def _append(self, member: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            if os.write(descriptor, member) < len(member):
                os.ftruncate(descriptor, self._bytes)
                raise OSError(errno.ENOSPC, "the disk is full, or a limit on file sizes was reached")
        finally:
            os.close(descriptor)
        self._bytes += len(member)
