"""Read the timed operations of many steps, from ByteDance's published tables or from a capture.

ByteDance's columns are used unchanged. The columns of a capture are computed from recorded times.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import TraceError, TraceFormatError, did_you_mean
from ...support import open_file
from ...support.table import Columns, ParquetFile
from ...tracer import RankEntry, TraceSet, read_step_times
from .._files import UnpacksTooFar, unpacked
from ._file_kinds import PARQUET_MAGIC

OPERATION_TYPES = (
    "input",
    "params-all-gather",
    "forward-recv",
    "forward-compute",
    "forward-send",
    "backward-recv",
    "backward-compute",
    "backward-send",
    "gc",
    "descheduled",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "optimizer-clip-main-grad",
    "collectives",
    "optimizer",
)
"""The types of operations, roughly in the order of a step; only captures have ``descheduled``."""

_REQUIRED = ("step", "dp_rank", "stage", "optype", "start_ts", "duration")
_OPTIONAL = ("rank", "seq_id", "mc", "gmc", "mb_id")
_SIGNED = frozenset({"mc", "gmc", "mb_id"})  # -1 means that the column does not apply to the operation
_MOST = {"step": 2**53, "rank": 2**24, "dp_rank": 2**20, "stage": 2**12}
_MAX_OTHERS = 2**20
_MAX_SECONDS = 1e6
_NS_PER_S = 1e9
_GZIP_MAGIC = b"\x1f\x8b"
_PHASES = {
    "input": "loader_ns",
    "forward-compute": "forward_ns",
    "backward-compute": "backward_ns",
    "gc": "",  # the rest of the step includes garbage collections
    "descheduled": "delay_ns",
    "collectives": "collective_ns",
    "optimizer": "optimizer_ns",
}
"""The operations of a recorded step in order, each with the column that measures its duration."""
_NEXT = "Next: record them with `chakrascope trace --steps 0 -- COMMAND`."


@dataclass(frozen=True)
class OperationTable:
    """The operations of a job's ranks in many steps, sorted by step, replica, stage, type and number.

    *columns* are integers: ``step``, ``replica`` (data-parallel rank), ``stage`` (pipeline rank), ``rank``,
    ``type`` (index in `OPERATION_TYPES`), ``number`` (among operations of the same type, rank and step),
    ``chunk`` (model chunk of the stage), ``model_chunk`` (chunk of the model), ``micro_batch`` (-1: none),
    ``start_ns``, ``duration_ns``. *path* and ``row`` (from 1) identify the origin of each operation.
    """

    path: Path
    columns: Columns


def read_operation_table(path: str | Path) -> OperationTable:
    """Read a Parquet or CSV table with one row per operation.

    The table must have ``step``, ``dp_rank``, ``stage``, ``optype`` (one of `OPERATION_TYPES`), and
    ``start_ts`` and ``duration`` in seconds. ``rank``, ``seq_id``, ``mc``, ``gmc`` and ``mb_id`` are derived
    if missing, and other columns are ignored. The format is that of
    github.com/ByteDance-Seed/StragglerAnalysis. Raises `TraceFormatError` naming file, column and row.
    """
    path = Path(path)
    raw = _read(path)
    missing = [name for name in _REQUIRED if name not in raw]
    if missing:
        raise TraceFormatError(
            f"{path} has no column '{missing[0]}'; it has {', '.join(sorted(raw)) or 'none'}. A table of "
            f"operations has {', '.join(_REQUIRED)}. Next: rename or add it."
        )
    if not len(raw["step"]):
        raise TraceFormatError(f"{path} has no rows. Next: export the steps of the job again.")
    columns = {
        "step": _integers(path, raw, "step"),
        "replica": _integers(path, raw, "dp_rank"),
        "stage": _integers(path, raw, "stage"),
        "type": _types(path, raw["optype"]),
        "start_ns": _nanoseconds(path, raw, "start_ts", -_MAX_SECONDS),
        "duration_ns": _nanoseconds(path, raw, "duration", 0),
    }
    columns |= _with_defaults(path, raw, columns)
    order = np.lexsort([columns[name] for name in ("number", "type", "stage", "replica", "step")])
    columns["row"] = np.arange(1, len(order) + 1)
    table = OperationTable(path, {name: column[order] for name, column in columns.items()})
    _refuse_duplicates(table)
    return table


def _read(path: Path) -> Columns:
    """Return the required and optional columns of the table at *path*, by name."""
    wanted = (*_REQUIRED, *_OPTIONAL)
    try:
        with open_file(path) as file:
            magic = file.read(4)
        if magic == PARQUET_MAGIC:
            opened = ParquetFile(path)
            return opened.read([name for name in wanted if name in opened.kinds])
        import pandas as pd  # noqa: PLC0415 - slow to import

        frame = pd.read_csv(
            BytesIO(unpacked(path)) if magic.startswith(_GZIP_MAGIC) else path,
            usecols=wanted.__contains__,
            low_memory=False,
            compression=None,
        )
        return {str(name): frame[name].to_numpy() for name in frame.columns}
    except OSError as error:
        raise TraceError(
            f"{path} cannot be read: {error.strerror or error}. Next: check the path."
        ) from error
    except UnpacksTooFar as error:
        raise TraceFormatError(f"{path} {error}") from error
    except (ValueError, EOFError, zlib.error) as error:
        detail = " ".join(str(error).split())[:300].rstrip(".")
        raise TraceFormatError(
            f"{path} cannot be read as a table: {detail}. Next: export it again."
        ) from error


def _fail(path: Path, name: str, row: int, what: str) -> TraceFormatError:
    return TraceFormatError(
        f"{path}, row {row + 1}, column '{name}': {what}. Next: correct or remove the row."
    )


def _numbers(path: Path, raw: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[np.float64]:
    """Return the column *name* as finite numbers; raises `TraceFormatError` for other values."""
    column = raw[name]
    if column.dtype.kind not in "iuf":
        row = next((row for row, value in enumerate(column.tolist()) if not _is_number(value)), None)
        if row is not None:
            raise _fail(path, name, row, f"{str(column[row])[:40]!r} is not a number")
    numbers = column.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise _fail(path, name, int(bad[0]), f"the value is missing or not finite ({numbers[bad[0]]})")
    return numbers


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _integers(path: Path, raw: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[np.int64]:
    numbers = _numbers(path, raw, name)
    least, most = -1 if name in _SIGNED else 0, _MOST.get(name, _MAX_OTHERS)
    bad = np.flatnonzero((numbers != np.rint(numbers)) | (numbers < least) | (numbers > most))
    if len(bad):
        value = numbers[bad[0]]
        raise _fail(path, name, int(bad[0]), f"{value:g} is not a whole number from {least} to {most:,}")
    return numbers.astype(np.int64)


def _nanoseconds(
    path: Path, raw: Mapping[str, npt.NDArray[Any]], name: str, least: float
) -> npt.NDArray[np.int64]:
    numbers = _numbers(path, raw, name)
    bad = np.flatnonzero((numbers < least) | (numbers > _MAX_SECONDS))
    if len(bad):
        raise _fail(
            path, name, int(bad[0]), f"{numbers[bad[0]]:g} s is not from {least:g} to {_MAX_SECONDS:g}"
        )
    return np.rint(numbers * _NS_PER_S).astype(np.int64)


def _types(path: Path, names: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    places = {name: place for place, name in enumerate(OPERATION_TYPES)}
    codes: npt.NDArray[np.int64] = np.array([places.get(name, -1) for name in names.tolist()], np.int64)
    bad = np.flatnonzero(codes < 0)
    if len(bad):
        name = str(names[bad[0]])[:40]
        raise TraceFormatError(
            f"{path}, row {bad[0] + 1}, column 'optype': '{name}' is not a type of operation"
            f"{did_you_mean(name, OPERATION_TYPES)}"
        )
    return codes


def _with_defaults(path: Path, raw: Mapping[str, npt.NDArray[Any]], columns: Columns) -> Columns:
    """Return the optional columns, derived from *columns* where they are missing."""
    given = {name: _integers(path, raw, name) for name in _OPTIONAL if name in raw}
    stages = int(columns["stage"].max()) + 1
    chunk = given.get("mc", np.zeros(len(columns["step"]), np.int64))
    return {
        "rank": given.get("rank", columns["replica"] * stages + columns["stage"]),
        "number": given["seq_id"] if "seq_id" in given else _by_start(columns),
        "chunk": chunk,
        "model_chunk": given.get("gmc", chunk * stages + columns["stage"]),
        "micro_batch": given.get("mb_id", np.full(len(chunk), -1)),
    }


def _by_start(columns: Columns) -> npt.NDArray[np.int64]:
    """Return each operation's index by start time among operations of the same type, rank and step."""
    keys = [columns[name] for name in ("type", "stage", "replica", "step")]
    order = np.lexsort([columns["start_ns"], *keys])
    new = np.zeros(len(order), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    places = np.arange(len(order))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = places - np.maximum.accumulate(np.where(new, places, 0))
    return numbers


def _refuse_duplicates(table: OperationTable) -> None:
    """Raise `TraceFormatError` for two rows of one operation, and for two ranks of one replica and stage."""
    columns = table.columns
    same = np.ones(len(columns["step"]) - 1, bool)
    for name in ("step", "replica", "stage", "type", "number"):
        same &= np.diff(columns[name]) == 0
    places = columns["replica"] * (int(columns["stage"].max()) + 1) + columns["stage"]
    order = np.lexsort([columns["rank"], places])
    two = np.flatnonzero((np.diff(places[order]) == 0) & (np.diff(columns["rank"][order]) != 0))
    if len(two):
        first, second = order[two[0]], order[two[0] + 1]
        raise TraceFormatError(
            f"{table.path}, rows {columns['row'][first]} and {columns['row'][second]}: ranks "
            f"{columns['rank'][first]} and {columns['rank'][second]} both have dp_rank "
            f"{columns['replica'][first]} and stage {columns['stage'][first]}. Next: keep the rows of one "
            "rank of each tensor-parallel group."
        )
    twice = np.flatnonzero(same)
    if len(twice):
        at = int(twice[0])
        raise TraceFormatError(
            f"{table.path}, rows {columns['row'][at]} and {columns['row'][at + 1]}: both are "
            f"{OPERATION_TYPES[columns['type'][at]]} {columns['number'][at]} (seq_id) of step "
            f"{columns['step'][at]}, rank {columns['rank'][at]}. Next: remove one of them."
        )


@dataclass(frozen=True)
class _Recorded:
    """The recorded steps of one rank, sorted by step number.

    The first of *columns* is the step number. The others are times in ns: ``start_ns``, and durations with
    the names of `_PHASES`.
    """

    rank: int
    sends: frozenset[int]
    columns: Columns


def recorded_operations(trace_set: TraceSet) -> OperationTable:
    """Return the operations of the steps after warm-up that all ranks of *trace_set* recorded.

    Here, an operation is the total time of a phase in the step, and begins when the previous operation ends.
    A step begins on all ranks when it begins on the earliest rank. ``collectives`` is the time spent waiting
    for peers and their messages. Ranks that exchange messages are stages of one replica, in order of rank;
    other ranks are replicas. Raises `TraceError` if no step is common to all ranks.
    """
    warmup = int(trace_set.options.get("warmup", 0))
    recorded = [_recorded(trace_set, entry, warmup) for entry in trace_set.ranks]
    without = next((one.rank for one in recorded if not len(one.columns["step"])), None)
    if without is not None or not recorded:
        who = "no rank has" if without is None else f"rank {without} has no"
        raise TraceError(f"{trace_set.path}: {who} times of complete steps. {_NEXT}")
    common = reduce(np.intersect1d, [one.columns["step"] for one in recorded])
    if not len(common):
        raise TraceError(f"{trace_set.path}: no step was recorded on all of its ranks. {_NEXT}")
    places = _places(recorded)
    starts_ns = np.min([one.columns["start_ns"][np.isin(one.columns["step"], common)] for one in recorded], 0)
    starts_ns -= starts_ns[0]
    tables = [_operations(one, common, *places[one.rank], starts_ns) for one in recorded]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    order = np.lexsort([columns[name] for name in ("type", "stage", "replica", "step")])
    columns = {name: column[order] for name, column in columns.items()}
    return OperationTable(trace_set.path, columns | {"row": np.arange(1, len(order) + 1)})


def _recorded(trace_set: TraceSet, entry: RankEntry, warmup: int) -> _Recorded:
    """Return the unprofiled steps that the rank of *entry* recorded after *warmup* steps.

    Steps during which the system clock was set back are omitted.
    """
    parts = list(read_step_times(trace_set, entry))
    names = ("index", "time_ns", "cpu_ns", "recorded", *filter(None, _PHASES.values()))
    readings = {
        name: np.array([value for part in parts for value in part.steps.columns[name]], np.int64)
        for name in names
    }
    changes = {name: np.diff(column) for name, column in readings.items()}
    phases = {kind: changes[name] for kind, name in _PHASES.items() if name and kind != "descheduled"}
    phases["gc"] = changes["time_ns"] - sum(phases.values(), np.zeros(1, np.int64))
    whole = (changes["index"] == 1) & (readings["recorded"][1:] == 0) & (readings["index"][:-1] >= warmup)
    whole &= np.logical_and.reduce([duration >= 0 for duration in phases.values()])
    phases = _without_delay(phases, changes["delay_ns"], changes["cpu_ns"])
    columns = {"step": readings["index"][:-1], "start_ns": readings["time_ns"][:-1], **phases}
    sends = frozenset(peer for part in parts for peer in part.sends)
    return _Recorded(entry.rank, sends, {name: column[whole] for name, column in columns.items()})


def _without_delay(
    phases: Columns, delay_ns: npt.NDArray[np.int64], cpu_ns: npt.NDArray[np.int64]
) -> Columns:
    """Move the time spent waiting for a processor into a separate phase, ``descheduled``.

    The position of this wait in the step is unknown, so the wait is subtracted from all phases of work in
    proportion to their lengths. Part of the wait may lie in collectives, so work keeps at least the thread's
    CPU time. If the CPU time exceeds the phases of work because collectives spin, work keeps the CPU time
    minus the time of collectives.
    """
    work = {kind: time_ns for kind, time_ns in phases.items() if kind != "collectives"}
    total = sum(work.values(), np.zeros(1, np.int64))
    own_ns = np.where(cpu_ns <= total, cpu_ns, cpu_ns - phases["collectives"])
    share = np.clip(np.minimum(delay_ns, total - np.maximum(own_ns, 0)) / np.maximum(total, 1), 0, 1)
    taken = {kind: np.rint(time_ns * share).astype(np.int64) for kind, time_ns in work.items()}
    descheduled = sum(taken.values(), np.zeros(1, np.int64))
    return phases | {kind: work[kind] - taken[kind] for kind in work} | {"descheduled": descheduled}


def _places(recorded: Sequence[_Recorded]) -> dict[int, tuple[int, int]]:
    """Return the replica and the stage of each rank."""
    replica_of = {one.rank: one.rank for one in recorded}
    for one in recorded:
        for peer in one.sends:
            joined = {replica_of[one.rank], replica_of.get(peer, replica_of[one.rank])}
            replica_of |= {rank: min(joined) for rank, of in replica_of.items() if of in joined}
    members: dict[int, list[int]] = {}
    for rank in sorted(replica_of):
        members.setdefault(replica_of[rank], []).append(rank)
    return {
        rank: (replica, stage)
        for replica, ranks in enumerate(members.values())
        for stage, rank in enumerate(ranks)
    }


def _operations(
    recorded: _Recorded,
    common: npt.NDArray[np.int64],
    replica: int,
    stage: int,
    starts_ns: npt.NDArray[np.int64],
) -> Columns:
    """Return the rows of a rank in the steps *common* to all ranks, which begin at *starts_ns*."""
    chosen = np.isin(recorded.columns["step"], common)
    steps = recorded.columns["step"][chosen]
    durations = np.array([recorded.columns[kind][chosen] for kind in _PHASES])
    starts = starts_ns + np.cumsum(durations, axis=0) - durations
    same = {"replica": replica, "stage": stage, "rank": recorded.rank, "model_chunk": stage}
    same |= {"number": 0, "chunk": 0, "micro_batch": -1}
    return {
        "step": np.tile(steps, len(_PHASES)),
        "type": np.repeat([OPERATION_TYPES.index(kind) for kind in _PHASES], len(steps)),
        "start_ns": starts.ravel(),
        "duration_ns": durations.ravel(),
        **{name: np.full(durations.size, value) for name, value in same.items()},
    }
