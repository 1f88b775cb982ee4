"""The plug-in for dumps of PyTorch's flight recorder, JSON or pickle."""

from __future__ import annotations

import io
import math
import pickle
import re
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from ....errors import TraceFormatError
from ..._files import unpacked_file
from ...chakra import NodeType
from .._communications import GLOO, LibraryCollective, collective_named, dtype_bytes
from ..logs import (
    MAX_BYTES,
    UNKNOWN,
    Comm,
    LoggedOp,
    LogReader,
    RankLog,
    Reader,
    bounded,
    collective_op,
    counted,
    damaged,
    ranks_by_name,
)

# The opcodes that PyTorch's and Python's picklers write for containers, strings, numbers, None and
# Booleans. Other opcodes could import or call code (GLOBAL, REDUCE, BUILD), or allocate far more memory
# than the file's size (BYTEARRAY8).
_PLAIN = frozenset(
    {
        "APPEND", "APPENDS", "BINBYTES", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT",
        "BINUNICODE", "DICT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1",
        "LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "POP", "POP_MARK",
        "PROTO", "SETITEM", "SETITEMS", "SHORT_BINBYTES", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1",
        "TUPLE2", "TUPLE3",
    }
)  # fmt: skip
_PLAIN_CODES = frozenset(getattr(pickle, name)[0] for name in _PLAIN)
_DAMAGES = (
    pickle.UnpicklingError, EOFError, IndexError, KeyError, ValueError, TypeError, AttributeError,
    OverflowError, MemoryError, RecursionError, struct.error,
)  # fmt: skip


class _NotPlain(Exception):
    """Raised for a pickle that is damaged or contains more than plain values."""


def _plain_values(data: bytes) -> Any:
    """Unpickle containers, strings, numbers, None and booleans.

    Raises `_NotPlain` for any other object, before importing or calling anything.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except _DAMAGES as error:
        raise _NotPlain(str(error) or type(error).__name__) from None


def _refused(unpickler: Any) -> None:
    raise pickle.UnpicklingError("it contains more than plain values, which no flight recorder writes")


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined,misc,unused-ignore]
    """Python's unpickler in pure Python, restricted to plain opcodes.

    The unpickler in C allocates memory for the highest memo number, which a file of ten bytes can set
    arbitrarily high; the unpickler in Python uses a dict.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        code: action if code in _PLAIN_CODES else _refused
        for code, action in pickle._Unpickler.dispatch.items()  # type: ignore[attr-defined,unused-ignore]
    }

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every class and function that a pickle names."""
        raise pickle.UnpicklingError(f"it asks for {module[:40]}.{name[:40]}, which no flight recorder needs")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse every persistent id in a pickle."""
        raise pickle.UnpicklingError("it refers to data outside the file")


_PICKLE = b"\x80"
# PyTorch's pickler writes the keys of the record as readable text.
_JSON_KEYS = re.compile(rb'"(?:pg_config|profiling_name)"\s*:')
_PICKLE_HEAD, _PICKLED_KEYS = re.compile(rb"\x80[\x02-\x05]"), (b"pg_config", b"profiling_name")
# Backends that record neither begin nor end. Their operations have ended once they are marked as retired.
_ENDS_WHEN_RETIRED = frozenset({"gloo", "mpi"})
_COALESCED = "coalesced"
_PEERS = re.compile(r"(?P<kind>send|recv)\s+(?P<here>\d{1,9})\s*(?:->|<-)\s*(?P<there>\d{1,9})")
_NS_PER_MS = 1e6
_MAX_RANKS = 2**24
_NO_MESSAGES = "gloo's flight recorder does not record sends and receives, so they are missing"


class _Entry(msgspec.Struct):
    process_group: tuple[str, str]
    profiling_name: str
    time_created_ns: int
    record_id: int = 0
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    is_p2p: bool = False
    input_sizes: list[list[int]] = []
    output_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    output_dtypes: list[str] = []
    state: str = ""
    duration_ms: float | None = None
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    retired: bool = False


class _Config(msgspec.Struct):
    ranks: str | list[int] = ""
    desc: str = ""


class _Dump(msgspec.Struct):
    entries: list[dict[str, Any]] = []
    pg_config: dict[str, _Config] = {}
    version: str = ""


def _recognises(head: bytes) -> bool:
    if _PICKLE_HEAD.match(head):
        return any(key in head for key in _PICKLED_KEYS)
    return _JSON_KEYS.search(head) is not None


def _read(paths: Sequence[Path]) -> tuple[list[RankLog], list[str]]:
    return [_read_dump(path, rank) for path, rank in ranks_by_name(paths)], []


def _read_dump(path: Path, rank: int) -> RankLog:
    """Read the dump of *rank* at *path*; raises `TraceFormatError` naming file, rank and entry."""
    dump = _dump(path)
    reader = Reader(str(path), "entry", rank)
    entries = _entries(reader, dump.entries)
    comms, keys = _comms(reader, dump.pg_config, entries)
    coalesced = {_batch(entry): entry for entry in entries if _plain_name(entry) == _COALESCED}
    left_out: Counter[str] = Counter()
    ops: list[LoggedOp] = []
    repeats: Counter[tuple[str, bool, int]] = Counter()
    for entry in entries:
        reader.number = entry.record_id
        key = keys[entry.process_group]
        batch = (key, *_batch(entry)[1:])
        op = _op(reader, entry, coalesced.get(_batch(entry), entry), key, repeats[batch])
        if op is None:
            left_out[_plain_name(entry)] += _plain_name(entry) != _COALESCED
            continue
        repeats[batch] += 1
        ops.append(op)
    notes = [f"entries that move no data were left out: {counted(+left_out)}"] if +left_out else []
    if any(entry.profiling_name.startswith(GLOO) for entry in entries):
        notes.append(_NO_MESSAGES)
    first = min((entry.record_id for entry in entries), default=0)
    return RankLog(rank, str(path), ops, comms, from_the_start=first == 0, notes=tuple(notes))


def _dump(path: Path) -> _Dump:
    """Read the flight recorder's dump at *path*, JSON or pickle."""
    data = unpacked_file(path)
    if not data.startswith(_PICKLE):
        try:
            return msgspec.json.decode(data, type=_Dump)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise damaged(str(path), f"it is not a flight record ({error})") from error
    try:
        return msgspec.convert(_plain_values(data), _Dump)
    except _NotPlain as error:
        raise TraceFormatError(
            f"{path} is not a flight record: the pickle cannot be read safely ({error}). Next: dump it as "
            "JSON, or leave out this log."
        ) from None
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise damaged(str(path), str(error)) from None


def _entries(reader: Reader, raw: Sequence[dict[str, Any]]) -> list[_Entry]:
    """Return the dump's entries in order of time; raises `TraceFormatError` for a malformed entry."""
    entries = []
    for number, values in enumerate(raw):
        reader.number = number
        try:
            entries.append(msgspec.convert(values, _Entry))
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # a lone surrogate cannot be encoded
            reader.fail(str(error))
        bounded(reader, "time_created_ns", entries[-1].time_created_ns)
    return sorted(entries, key=lambda entry: (entry.record_id, entry.time_created_ns))


def _comms(
    reader: Reader, config: dict[str, _Config], entries: Sequence[_Entry]
) -> tuple[dict[str, Comm], dict[tuple[str, str], str]]:
    """Return the communicators in a dump, and the key of each process group in the *entries*.

    Groups of different ranks may have the same name, so the key includes the ranks if the dump
    lists them.
    """
    comms: dict[str, Comm] = {}
    keys: dict[tuple[str, str], str] = {}
    for name, desc in dict.fromkeys(entry.process_group for entry in entries):
        stated = config.get(name)
        ranks = _ranks(reader, stated.ranks) if stated is not None else ()
        key = f"{name} {list(ranks)}" if ranks else f"{name} {desc}"
        label = desc if desc != "undefined" else ""
        place = ranks.index(reader.rank) if reader.rank in ranks else UNKNOWN
        if ranks and place == UNKNOWN:
            reader.fail(f"process group '{name}' has the ranks {list(ranks)[:20]}, not this one")
        least = 0 if ranks else _least_size(reader, name, entries)
        comms[key] = Comm(len(ranks) or least, place, ranks, label)
        keys[name, desc] = key
    return comms, keys


def _least_size(reader: Reader, group: str, entries: Sequence[_Entry]) -> int:
    """Return the number of ranks that the sizes of gathers and scatters in *group* imply, 0 if unknown."""
    sizes = [0]
    for entry in entries:
        if entry.process_group[0] != group or entry.is_p2p:
            continue
        reader.number = entry.record_id
        library = collective_named(_plain_name(entry))
        given = _bytes(reader, entry.input_sizes, entry.input_dtypes)
        taken = _bytes(reader, entry.output_sizes, entry.output_dtypes)
        less, more = (taken, given) if library and library.name == "reduce_scatter" else (given, taken)
        if (
            library is not None
            and library.name in ("all_gather", "reduce_scatter")
            and less
            and not more % less
        ):
            sizes.append(more // less)
    return max(sizes) if max(sizes) <= _MAX_RANKS else 0


def _ranks(reader: Reader, listed: str | list[int]) -> tuple[int, ...]:
    """Return a group's ranks from a list or the text of one."""
    try:
        ranks: list[int] = (
            msgspec.json.decode(listed or "[]", type=list[int]) if isinstance(listed, str) else listed
        )
    except msgspec.MsgspecError:
        reader.fail(f"the ranks of a process group are '{str(listed)[:80]}'")
    if len(set(ranks)) != len(ranks) or any(not 0 <= rank < _MAX_RANKS for rank in ranks):
        reader.fail(f"the ranks of a process group are {str(ranks)[:80]}")
    return tuple(ranks)


def _batch(entry: _Entry) -> tuple[tuple[str, str], bool, int]:
    """Return the key that operations of one batch have in common."""
    sequence = entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id
    return entry.process_group, entry.is_p2p, sequence


def _plain_name(entry: _Entry) -> str:
    return entry.profiling_name.rpartition(":")[2]


def _op(reader: Reader, entry: _Entry, timed: _Entry, group: str, repeat: int) -> LoggedOp | None:
    """Return the operation of *entry*, with the times of *timed* (itself or its batch); None if unknown."""
    times = _times(reader, entry, timed)
    name, backend = _plain_name(entry), entry.profiling_name.partition(":")[0]
    times["completed"] = (
        timed.state == "completed"
        or times["ended_ns"] != UNKNOWN
        or (timed.retired and backend in _ENDS_WHEN_RETIRED)
    )
    times["timed_out"] = timed.retired and not times["completed"]
    given = _bytes(reader, entry.input_sizes, entry.input_dtypes)
    taken = _bytes(reader, entry.output_sizes, entry.output_dtypes)
    if entry.is_p2p:
        return _message(name, max(given, taken), group, entry, times)
    library = collective_named(name)
    if library is None:
        return None
    size = library.fixed_bytes if library.fixed_bytes >= 0 else taken if library.sized_by_output else given
    dtype = (entry.input_dtypes or entry.output_dtypes or [""])[0]
    series = f"part {repeat}" if repeat else ""
    agrees = _agreement(library, size, taken, dtype)
    return collective_op(library, group, entry.collective_seq_id, size, agrees, series=series, **times)


def _agreement(library: LibraryCollective, size: int, taken: int, dtype: str) -> str:
    """Describe the properties that all ranks of a collective must share: kind, type, bytes."""
    if library.fixed_bytes >= 0:
        return library.name
    if library.name == "all_to_all":  # the bytes for each peer may differ between ranks
        return f"{library.name} of {dtype}"
    return f"{library.name} of {taken if library.name == 'all_gather' and taken else size:,} bytes of {dtype}"


def _message(name: str, size: int, group: str, entry: _Entry, times: dict[str, Any]) -> LoggedOp | None:
    """Return the send or receive called *name*, for example ``send 0->1`` or ``recv 1<-0``."""
    found = _PEERS.search(name)
    if found is None:
        return None
    kind = NodeType.COMM_SEND if found["kind"] == "send" else NodeType.COMM_RECV
    return LoggedOp(group, entry.p2p_seq_id, name, kind, None, size, peer=int(found["there"]), **times)


def _times(reader: Reader, entry: _Entry, timed: _Entry) -> dict[str, Any]:
    """Return the times of *entry*, by names of `LoggedOp`; times of 0 and None are unknown."""
    begun, ended = timed.time_discovered_started_ns, timed.time_discovered_completed_ns
    duration = timed.duration_ms
    if duration is not None:
        begun = None  # the start is polled only every 100 ms; only the duration is exact
    if duration is not None and not (math.isfinite(duration) and 0 <= duration < 1e12):
        reader.fail(f"duration_ms is {duration}")
    return {
        "created_ns": entry.time_created_ns,
        "started_ns": bounded(reader, "time_discovered_started_ns", begun) if begun else UNKNOWN,
        "ended_ns": bounded(reader, "time_discovered_completed_ns", ended) if ended else UNKNOWN,
        "duration_ns": UNKNOWN if duration is None else round(duration * _NS_PER_MS),
    }


def _bytes(reader: Reader, shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> int:
    """Return the total bytes of tensors with *shapes*; a single type applies to all tensors."""
    total = 0
    for index, shape in enumerate(shapes):
        if any(not 0 <= size <= MAX_BYTES for size in shape) or len(shape) > 64:
            reader.fail(f"a tensor has the shape {str(list(shape))[:80]}")
        dtype = dtypes[min(index, len(dtypes) - 1)] if dtypes else ""
        width = dtype_bytes(dtype)
        if not width:
            reader.fail(f"a tensor has the type '{dtype[:40]}', the size of which is unknown")
        total = bounded(reader, "the size of its tensors", total + math.prod(shape) * width, MAX_BYTES)
    return total


READER = LogReader("PyTorch's flight recorder", _recognises, _read, keeps_newest=True, has_late_ends=True)
