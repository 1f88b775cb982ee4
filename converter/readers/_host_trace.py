"""Read host traces, the JSON of PyTorch's ExecutionTraceObserver: tensors and groups, but no times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from ...errors import TraceFormatError
from ...support.table import positions
from .._files import stream
from .._native import HostReader
from ._communications import DescribedGroup, described_groups, group_labels

_TENSOR_FIELDS = 6
_decode = msgspec.json.Decoder(list[list[Any]]).decode


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor argument: the storage, the size, and the storage element at which the tensor starts."""

    storage: int
    size_bytes: int
    offset: int = 0


class HostOp(msgspec.Struct, frozen=True):
    """The arguments of an operator, spelled as in the trace, and its schema.

    Operators that differ only in the identity of their tensors share a `HostOp`. Tensors read from
    a file therefore have number, storage and offset 0; their storages are in `HostTrace.storages`.
    """

    name: str
    inputs: list[Any]
    outputs: list[Any]
    schema: str
    shapes: list[Any] = []
    output_shapes: list[Any] = []
    types: list[Any] = []


class Kinds:
    """The arguments of a trace's operators, decoded when needed."""

    def __init__(
        self, names: Sequence[str], schemas: Sequence[str], arguments: Sequence[str], place: str = ""
    ) -> None:
        self.names, self._schemas, self._arguments, self._place = names, schemas, arguments, place
        self.changing = np.array(["!" in schema for schema in schemas], dtype=bool)
        self._decoded: dict[int, HostOp] = {}

    def renamed(self, pairs: Sequence[Sequence[int]], names: Sequence[str]) -> Kinds:
        """Return the kinds for *pairs* of an existing kind and a name's index (-1: keep the name)."""
        return Kinds(
            [self.names[kind] if name < 0 else names[name] for kind, name in pairs],
            [self._schemas[kind] for kind, _ in pairs],
            [self._arguments[kind] for kind, _ in pairs],
            self._place,
        )

    def __getitem__(self, kind: int) -> HostOp:
        found = self._decoded.get(kind)
        if found is None:
            try:
                inputs, outputs, *about = _decode(self._arguments[kind])
            except (msgspec.MsgspecError, RecursionError) as error:
                raise TraceFormatError(
                    f"{self._place}: the arguments of an operator '{self.names[kind]}' cannot be read "
                    f"({error}). Capture again."
                ) from error
            found = HostOp(self.names[kind], inputs, outputs, self._schemas[kind], *about)
            self._decoded[kind] = found
        return found


class HostTrace(msgspec.Struct, frozen=True):
    """The operators of one rank by record-function id, and the listed groups (empty ranks: all) with labels.

    *records* are the sorted ids. Row i of the other columns describes record i. *kind* is the index in
    *kinds*, which contain the arguments of operators, and whether an operator changes an argument in place.
    *thread* is the number of the thread, which differs from its number in the device trace. The storages of
    record i are ``storages[begin[i]:end[i]]``: inputs first, which end at *inputs_end*; the storages of the
    first argument end at *first_end*. *offsets* are the starts of tensors in their storages, empty if
    unknown. *process* is the process number, -1 if unknown.
    """

    records: np.ndarray
    kind: np.ndarray
    thread: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    inputs_end: np.ndarray
    first_end: np.ndarray
    storages: np.ndarray
    kinds: Kinds
    offsets: np.ndarray = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    groups: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    group_labels: dict[str, str] = msgspec.field(default_factory=dict)
    schema: str = ""
    process: int = -1

    def __len__(self) -> int:
        return len(self.records)

    def rows(self, record_ids: np.ndarray) -> np.ndarray:
        """Return the row of each id in *record_ids*, or -1 for unknown ids."""
        return positions(self.records, record_ids)

    def operator(self, record_id: int) -> HostOp | None:
        """Return the arguments of the operator with *record_id*, or None if the id is unknown."""
        row = self._row(record_id)
        return self.kinds[int(self.kind[row])] if row >= 0 else None

    def storages_of(self, record_id: int, *, first_input: bool = False) -> frozenset[int]:
        """Return the storages of all tensors of the operator with *record_id*, or of its first input."""
        row = self._row(record_id)
        if row < 0:
            return frozenset()
        end = self.first_end if first_input else self.end
        return frozenset(self.storages[self.begin[row] : end[row]].tolist())

    def names(self) -> np.ndarray:
        """Return the name of each operator."""
        names: np.ndarray = np.array(self.kinds.names, dtype=object)[self.kind]
        return names

    def changing(self) -> np.ndarray:
        """Return a mask of the operators that change an argument in place, according to their schema."""
        changing: np.ndarray = self.kinds.changing[self.kind]
        return changing

    def reads(self, rows: np.ndarray) -> np.ndarray:
        """Return the bounds of each row's input storages (begin, end, begin, end, ...); row -1 has none."""
        return self._slices(rows, self.begin, self.inputs_end)

    def writes(self, rows: np.ndarray) -> np.ndarray:
        """Return the range of each row's output storages, as `reads` does for inputs.

        An operator that has no outputs and changes an argument in place writes the storages of its first
        argument.
        """
        in_place = (self.inputs_end == self.end) & self.changing()
        begin = np.where(in_place, self.begin, self.inputs_end)
        return self._slices(rows, begin, np.where(in_place, self.first_end, self.end))

    def _slices(self, rows: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        bounds = np.zeros((len(rows), 2), dtype=np.int64)
        known = rows >= 0
        bounds[known] = np.column_stack([begin, end])[rows[known]]
        return bounds.ravel()

    def renamed(self, names: Mapping[int, str]) -> HostTrace:
        """Return the host trace with new *names* for some records."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
        given = [numbers.get(names.get(record, ""), -1) for record in self.records.tolist()]
        pairs = np.column_stack([self.kind, given]).astype(np.int64)
        different, kind = np.unique(pairs, axis=0, return_inverse=True)
        return replace(self, kind=kind.ravel(), kinds=self.kinds.renamed(different.tolist(), list(numbers)))

    def subset(self, rows: np.ndarray, records: np.ndarray) -> HostTrace:
        """Return the trace of *rows*, in any order, with the new ids *records*."""
        rows = rows[np.argsort(records, kind="stable")]
        columns = ("kind", "thread", "begin", "end", "inputs_end", "first_end")
        return replace(
            self, records=np.sort(records), **{name: getattr(self, name)[rows] for name in columns}
        )

    def _row(self, record_id: int) -> int:
        return int(self.rows(np.array([record_id], dtype=np.int64))[0])


def read_host_trace(path: Path) -> HostTrace:
    """Read the ExecutionTraceObserver JSON at *path* (plain or gzip), schemas 1.0.1 to 1.1.x.

    Raises `TraceFormatError` for a file that is damaged or not a host trace.
    """
    reader = HostReader()
    stream(path, reader)
    texts, kinds, columns = reader.texts(), reader.kinds(), reader.operators()
    bounds, records = columns.pop("bounds"), columns.pop("record_id")
    groups = [group for listed in reader.group_lists() for group in _listed_groups(listed)]
    trace = HostTrace(
        records=records,
        begin=bounds[:-1],
        end=bounds[1:],
        kinds=Kinds(
            [texts[number] for number in kinds["name"].tolist()],
            [texts[number] for number in kinds["schema"].tolist()],
            [texts[number] for number in kinds["arguments"].tolist()],
            str(path),
        ),
        groups={name: ranks for name, _, ranks in groups},
        group_labels=group_labels(groups),
        schema=reader.schema(),
        process=reader.process(),
        **columns,
    )
    # Of records with the same id, the last in the file counts.
    order = np.argsort(records, kind="stable")
    last = np.append(np.diff(records[order]) != 0, True)[: len(order)]
    return trace.subset(order[last], records[order[last]])


def tensors(value: Any) -> list[Tensor]:
    """Return every tensor in *value*, an argument or a nested list of arguments."""
    found: list[Tensor] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) is not list:
            continue
        if _is_tensor(item):
            _, storage, offset, elements, width, _ = item
            size_bytes = max(0, elements) * max(0, width)
            found.append(Tensor(storage, size_bytes, offset if type(offset) is int else 0))
        else:
            pending += [part for part in reversed(item) if type(part) is list]
    return found


def _is_tensor(item: list[Any]) -> bool:
    """Return whether *item* is (tensor, storage, offset, elements, bytes per element, device)."""
    return (
        len(item) == _TENSOR_FIELDS
        and type(item[5]) is str
        and type(item[1]) is type(item[3]) is type(item[4]) is int
    )


def _listed_groups(arguments: bytes) -> list[DescribedGroup]:
    """Parse the groups that PyTorch lists when an observer starts; unexpected values count as absent."""
    try:
        inputs = json.loads(arguments)
        values = inputs if isinstance(inputs, list) else inputs["values"]
        return described_groups(json.loads(values[0]))
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return []
