"""Estimate the memory of a simulation or a table, and refuse a size above the memory limit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..converter.chakra import saved_node_count
from ..errors import BackendError, ConfigError, StudyError, TraceError
from ..support import bytes_text, parse_size
from ..support.table import ParquetFile
from ._traits import backends_that

if TYPE_CHECKING:
    from ._experiment import WorkloadSource

_VARIABLE = "CHAKRASCOPE_MEMORY"
# Bytes of memory, measured with a hundred million nodes: of a process at its start, of a node in a program,
# of the records of an executed node, and of a row in the full table of nodes.
_START_BYTES = 150_000_000
_PROGRAM_NODE_BYTES = 20
_RECORD_BYTES = 18
_TABLE_ROW_BYTES = 420
_ENCODED_BYTES = 100  # bytes of a node in a file without node tables
_OPERATION_BYTES = 330  # bytes of a timed operation in memory, with the data of what-if analyses
_CSV_OPERATION_BYTES = 60  # bytes of an operation's row in a CSV file


def memory_limit() -> int:
    """Return the memory limit in bytes: ``CHAKRASCOPE_MEMORY``, such as 4GB, or the machine's memory.

    A value that is not a size raises `ConfigError`.
    """
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(parse_size(text))
    except ValueError as error:
        raise ConfigError(
            f"{_VARIABLE} is '{text}', which is not a size; give a size such as 4GB."
        ) from error
    if limit < 1:
        raise ConfigError(f"{_VARIABLE} is '{text}', which leaves no usable memory; give a size such as 4GB.")
    return limit


def check_simulation(source: WorkloadSource, *, alike_once: bool) -> None:
    """Raise `BackendError` if the simulation of *source* would exceed the memory limit.

    If *alike_once* is true, only one of the ranks with the same program is simulated.
    """
    programs = _program_nodes(source)
    ranks = 1.0 if alike_once else source.num_ranks / max(1, len(source.programs))
    needed = _START_BYTES + int(programs * (_PROGRAM_NODE_BYTES + _RECORD_BYTES * ranks))
    limit = memory_limit()
    if needed > limit:
        raise BackendError(
            f"Simulating {int(programs * ranks):,} nodes needs about {bytes_text(needed)} of memory, and "
            f"{_limit_text(limit)}. Next: simulate fewer ranks (equal ranks are simulated only once on "
            f"{backends_that('folds')}) or fewer steps, or use a larger machine{_or_raise()}."
        )


@contextlib.contextmanager
def within_memory(ranks: int) -> Iterator[None]:
    """Turn a `MemoryError` in a simulation of *ranks* into an error that suggests how to save memory."""
    try:
        yield
    except MemoryError as error:
        raise BackendError(
            f"There is not enough memory to simulate {ranks} ranks. Next: simulate fewer ranks, simulate "
            "without congestion (equal ranks are simulated only once), or use a larger machine."
        ) from error


def check_table(rows: int) -> None:
    """Raise `StudyError` if the full table of *rows* nodes would exceed the memory limit."""
    needed, limit = _START_BYTES + rows * _TABLE_ROW_BYTES, memory_limit()
    if needed > limit:
        raise StudyError(
            f"The table of the run's {rows:,} nodes needs about {bytes_text(needed)} of memory, and "
            f"{_limit_text(limit)}. `summary` and `critical-path` read only parts of the table; for other "
            f"commands, use a larger machine{_or_raise()}."
        )


def check_operations(path: Path) -> None:
    """Raise `TraceError` if the table of operations at *path* would exceed the memory limit.

    The limit applies to reading and replaying the table. A damaged table passes, because its reader reports
    the damage.
    """
    try:
        rows = ParquetFile(path).num_rows
    except ValueError:
        rows = path.stat().st_size // _CSV_OPERATION_BYTES
    needed, limit = _START_BYTES + rows * _OPERATION_BYTES, memory_limit()
    if needed > limit:
        raise TraceError(
            f"{path}: about {rows:,} operations need {bytes_text(needed)} of memory, and "
            f"{_limit_text(limit)}. Next: export fewer steps, such as every tenth, or use a larger "
            f"machine{_or_raise()}."
        )


def _program_nodes(source: WorkloadSource) -> int:
    """Return the total number of nodes of the programs of *source*, estimated for files."""
    if source.loaded is not None:
        return sum(graph.num_nodes for graph in source.loaded.graphs)
    saved = saved_node_count(source.prefix) if source.prefix is not None else None
    if saved is not None:
        return saved
    sizes = [
        Path(program).stat().st_size if isinstance(program, str) else len(program)
        for program in source.programs
    ]
    return sum(sizes) // _ENCODED_BYTES


def _limit_text(limit: int) -> str:
    named = bool(os.environ.get(_VARIABLE, "").strip())
    return f"{_VARIABLE} allows {bytes_text(limit)}" if named else f"this machine has {bytes_text(limit)}"


def _or_raise() -> str:
    return f", or raise {_VARIABLE}" if os.environ.get(_VARIABLE, "").strip() else ""
