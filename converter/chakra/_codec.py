"""Read and write Chakra ``.et`` files: length-prefixed messages, a ``GlobalMetadata`` before the nodes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DependencyError, UsageError, WorkloadError, WorkloadFormatError
from ...support.table import TextColumn, positions
from .._files import UnpacksTooFar, unpacked
from .._native import ChakraRefusal, ChakraWriter, order_by_dependency, read_attributes, read_chakra
from .._native import replay as replay_times
from ._graph import FILE_METADATA, Column, EdgeKind, Extra, Graph, NodeType, read_varint, varint

_TYPE_FIELD = b"\x18"  # prefix of a node's extra fields if `NodeType` lacks its type


def read_et(path: str | Path) -> bytes:
    """Return the content of a workload's file at *path*; gzip files are decompressed, like in ASTRA-sim.

    Raises `WorkloadError` if the file cannot be read. Raises `WorkloadFormatError` if the file is truncated
    or unpacks to more bytes than a graph can have.
    """
    try:
        return unpacked(Path(path))
    except UnpacksTooFar as error:
        raise WorkloadFormatError(f"{path} {error}") from error
    except (EOFError, zlib.error) as error:
        raise WorkloadFormatError(
            f"{path} is truncated or damaged ({error}). Next: write the file again."
        ) from error
    except OSError as error:
        raise WorkloadError(
            f"{path} cannot be read: {error.strerror}. Check the file and its permissions."
        ) from error


def decode_graph(data: bytes, *, rank: int = 0, source: str = "<bytes>") -> Graph:
    """Return the graph of *rank* in *data*, the bytes of an ``.et`` file.

    Raises `WorkloadFormatError` naming *source*, the byte and the node for an invalid file.
    """
    try:
        numbers, texts, edges, (ids, ends, content) = read_chakra(data)
    except ChakraRefusal as error:
        raise WorkloadFormatError(f"{source}{error}") from None
    nodes: dict[str, Column] = {**numbers}
    nodes.update((name, TextColumn(*column)) for name, column in texts.items())
    with_current_kinds(nodes)
    return Graph.of_columns(rank, nodes, edges.reshape(-1, 3), extra=Extra(ids, ends, content))


def other_attributes(graph: Graph, node_id: int) -> dict[str, Any]:
    """Return a node's attributes without a column, by name, from the file of *graph*."""
    return read_attributes(graph.extra.get(node_id, b""))


def has_unknown_type(graph: Graph, node_id: int) -> bool:
    """Return whether the file of *graph* gives a node an unsupported type."""
    return graph.extra.get(node_id, b"").startswith(_TYPE_FIELD)


def has_attributes(graph: Graph, names: Sequence[str]) -> bool:
    """Return whether nodes in the file of *graph* have attributes with all of *names*."""
    return all(Extra.of(graph.extra).contains(name.encode()) for name in names)


def encode_graph(graph: Graph) -> bytes:
    """Return *graph* as the bytes of an ``.et`` file for ASTRA-sim, the joined `encoded_pieces`."""
    return b"".join(encoded_pieces(graph))


def encoded_pieces(graph: Graph) -> Iterator[bytes]:
    """Yield the bytes of an ``.et`` file of *graph*, about a megabyte at a time.

    ``duration_micros`` is the duration in microseconds, rounded with carry along each lane, so that sums
    agree to half a microsecond. The attribute ``duration_ns`` has the exact value.
    """
    nodes, edges = graph.node_columns, graph.edge_columns
    numbers = {name: _integers(column) for name, column in nodes.items() if isinstance(column, np.ndarray)}
    texts = {name: column.encoded() for name, column in nodes.items() if isinstance(column, TextColumn)}
    ids = numbers["node_id"]
    is_data = edges["kind"] == EdgeKind.DATA
    writer = ChakraWriter(
        graph.extra.get(FILE_METADATA),
        numbers,
        texts,
        _dependencies(ids, edges["src"][~is_data], edges["dst"][~is_data]),
        _dependencies(ids, edges["src"][is_data], edges["dst"][is_data]),
        Extra.of(graph.extra).spans(ids),
    )
    while piece := writer.next():
        yield piece


def _integers(column: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column, dtype=np.int64)


def _dependencies(ids: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the nodes on which each node depends, by node, without missing nodes."""
    place = positions(ids, targets)
    known = place >= 0
    return dependencies(_integers(sources)[known], place[known], len(ids))


# Field numbers that the codec reads and writes, by message. Other fields are copied unchanged.
_FIELDS = {
    "GlobalMetadata": {"version": 1, "attr": 2},
    "Node": {
        "id": 1, "name": 2, "type": 3, "ctrl_deps": 4, "data_deps": 5, "start_time_micros": 6,
        "duration_micros": 7, "attr": 10,
    },
    "AttributeProto": {
        "name": 1, "int32_val": 7, "int64_val": 9, "uint64_val": 13, "bool_val": 27, "string_val": 29,
    },
}  # fmt: skip


def bytes_of_messages(messages: Iterable[Any], *, rank: int) -> bytes:
    """Return the ``.et`` file of *messages*, which are a ``GlobalMetadata`` followed by ``Node`` messages.

    Raises `WorkloadFormatError` for messages of other types or with other field numbers.
    """
    pieces, expected = [], "GlobalMetadata"
    for position, message in enumerate(messages):
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or descriptor.name != expected:
            raise WorkloadFormatError(
                f"Rank {rank}: message {position} has type {type(message).__name__}, not {expected}. "
                "Pass a GlobalMetadata, then the nodes, as in an .et file."
            )
        if position < 2:
            _check(descriptor)
        expected = "Node"
        body = message.SerializeToString()
        pieces += [varint(len(body)), body]
    return b"".join(pieces)


def messages_of_bytes(data: bytes, et_def: Any) -> Iterator[Any]:
    """Yield the messages of the ``.et`` file *data* as objects of the classes in the module *et_def*.

    Raises `UsageError` if *et_def* has other classes or other field numbers.
    """
    try:
        message_class, node_class = et_def.GlobalMetadata, et_def.Node
        descriptors = [message_class.DESCRIPTOR, node_class.DESCRIPTOR]
    except AttributeError as error:
        raise UsageError(
            f"{getattr(et_def, '__name__', et_def)!r} has no Chakra messages ({error}). "
            "Pass the module et_def_pb2 that protoc generates from Chakra's et_def.proto."
        ) from None
    for descriptor in descriptors:
        _check(descriptor)
    start = 0
    while start < len(data):
        length, start = read_varint(data, start)
        yield message_class.FromString(data[start : start + length])
        start, message_class = start + length, node_class


def _check(descriptor: Any) -> None:
    """Raise `UsageError` if the field numbers of a message differ from Chakra 0.0.4."""
    fields = descriptor.fields_by_name
    for name, number in _FIELDS[descriptor.name].items():
        if name not in fields or fields[name].number != number:
            raise UsageError(
                f"Field {name!r} of message {descriptor.name} is not number {number}: this is not "
                "version 0.0.4 of Chakra's schema. Update the module et_def_pb2."
            )
    if "attr" in fields:
        _check(fields["attr"].message_type)


KINDS: Mapping[str, str] = {
    "compute": "Computation",
    "communication": "Communication",
    "copy": "Copies",
    "memory": "Remote memory",
    "host": "Host work",
    "sync": "Synchronisation",
    "wait": "Waiting for peers",
    "idle": "Idle",
}
"""Each kind of a node or segment, and its label. All tables, charts and columns use only these.

``compute`` is kernels, or operators where the host computes; ``copy`` is copies and memory sets of a device;
``memory`` is remote memory (MEM_LOAD, MEM_STORE); ``host`` is other work of a host thread, with its cause in
`HOST_CAUSES`; ``sync`` is a host thread that waits for the device; ``wait`` is waiting for a peer;
``idle`` is a device or a rank that has nothing to run.
"""
FIRST_LAUNCH = "first_launch"
"""The cause of the first launch of a recording, in which the profiler and the driver prepare themselves."""
DELAYED = "descheduled"
"""The cause of time in which a thread had no processor, whatever it was doing."""
COLLECTING = "garbage_collection"
HOST_CAUSES: Mapping[str, str] = {
    "input_pipeline": "Input pipeline",
    "worker_wait": "Waiting for a data loader worker",
    "process_start": "Starting and ending processes",
    "process_wait": "Waiting for another process or thread",
    "sampler": "Sampler of a data loader",
    COLLECTING: "Garbage collection",
    "lock": "Waiting for a lock or the GIL",
    DELAYED: "Waiting for a processor (descheduled)",
    "sleep": "Sleeping",
    "io": "File and network I/O",
    "checkpoint": "Checkpoint",
    "validation": "Validation",
    "logging": "Logging and formatting",
    "recomputation": "Recomputing activations",
    "anomaly_detection": "Anomaly detection of autograd",
    "synchronisation": "Synchronisation (.item() and similar calls)",
    "compilation": "Compilation",
    "object_collective": "Exchanging Python objects between ranks",
    "allocation": "Allocating and freeing device memory",
    FIRST_LAUNCH: "First launch of the recording",
    "communication_call": "Inside communication calls",
    "optimizer": "Optimizer bookkeeping",
    "python": "Python between operators",
    "dispatch": "Dispatch and launches",
}
"""Each cause of host time (column ``cause``), and its label; "" is host time whose cause is unknown."""
# The first lanes of collectives and messages. The collectives of a group have a separate lane. The messages
# to or from each peer in a group also have a separate lane: on the wire, a message only waits for messages in
# the same direction between the same two ranks.
COMM_LANE, MESSAGE_LANE = 100, 500
# Stream s of device d is lane DEVICE_LANE x (d + 1) + s.
DEVICE_LANE = 1000
BUFFERS: Mapping[str, str] = {
    "all_reduce": "gradient buckets of DistributedDataParallel",
    "all_gather": "gathered parameters of FSDP",
    "reduce_scatter": "reduced gradients of FSDP",
}
"""The label that replaces the source location of copies to and from a collective's buffer, by collective."""
# Name of nodes for the time between the collectives of production logs.
GAP = "gap between collectives, not profiled"
# Prefix of the name of host work outside operators, before the name of the next operator.
HOST_BEFORE = "host before "
# Names of host work after the last operator, and of host work of a thread for which only runtime calls were
# recorded.
HOST_END = "host until the end of the step"
HOST_UNRECORDED = "host work between calls of the runtime"
# Prefix of the name of a host thread's wait without a call, before the name of the awaited kernel.
SPIN = "spin until "
# Prefix of the name of a device's unexplained delay, before the name of the delayed work.
LATENCY = "device latency before "


def with_current_kinds(nodes: dict[str, Column]) -> None:
    """Replace the kinds ``launch`` and ``comm_call`` in files of version 0.2 by current kinds."""
    kinds = nodes.get("kind")
    if kinds is None or not {"launch", "comm_call"}.intersection(_texts(kinds).texts):
        return
    old = _texts(kinds)
    names = _texts(nodes["name"])
    latency = names.passes(lambda text: text.startswith(LATENCY))
    launch, call = (old == text for text in ("launch", "comm_call"))
    nodes["kind"] = _replaced(old, {"idle": launch & latency, "host": (launch & ~latency) | call})
    if call.any():
        causes = nodes.get("cause")
        nothing = np.zeros(len(old.numbers), np.int32)
        known = _texts(causes) if causes is not None and len(causes) else type(old)(nothing, [""])
        nodes["cause"] = _replaced(known, {"communication_call": call})


def _texts(column: Column) -> TextColumn:
    if isinstance(column, np.ndarray):
        raise TypeError("not a column of texts")
    return column


def _replaced(column: TextColumn, rows_of: Mapping[str, np.ndarray]) -> TextColumn:
    """Return *column* with each text of *rows_of* set in the rows of this text."""
    numbers, texts = column.numbers.copy(), list(column.texts)
    for text, rows in rows_of.items():
        if text not in texts:
            texts.append(text)
        numbers[rows] = texts.index(text)
    return type(column)(numbers, texts)


# Kinds of edges that the converter infers from measured times. Edges of all other kinds are certain.
_CONCLUDED = (EdgeKind.EVENT_SYNC, EdgeKind.COMM_WAIT, EdgeKind.DATA)


def consistent(starts_ns: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, int]:
    """Return *edges* without inferred edges that close a cycle, and the number of removed edges.

    An inferred edge within a cycle is removed if its target did not start later than its source.
    """
    position = _positions(starts_ns)
    sources, targets = edges[:, 0], edges[:, 1]
    if (position[sources] < position[targets]).all():
        return edges, 0
    free = order_by_dependency(position, *dependencies(sources, targets, len(position)))
    if len(free) == len(position):
        return edges, 0
    stuck = np.ones(len(position), dtype=bool)
    stuck[free] = False
    closes = stuck[sources] & stuck[targets] & np.isin(edges[:, 2], _CONCLUDED)
    closes &= starts_ns[sources] >= starts_ns[targets]
    return edges[~closes], int(closes.sum())


def _positions(starts_ns: np.ndarray) -> np.ndarray:
    """Return the position of each node in the order of starts."""
    order = np.argsort(starts_ns, kind="stable")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return position


def execution_order(
    starts_ns: Sequence[int] | np.ndarray, edges: Sequence[tuple[int, int, int]] | np.ndarray
) -> np.ndarray:
    """Return the node indices in order of start; every node comes after its dependencies.

    *edges* are rows of (source, target, kind). Raises `DependencyError` if there is a dependency cycle.
    """
    position = _positions(np.asarray(starts_ns, dtype=np.int64))
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 3)[:, :2]
    if (position[pairs[:, 0]] < position[pairs[:, 1]]).all():
        return np.argsort(position)
    order = order_by_dependency(position, *dependencies(pairs[:, 0], pairs[:, 1], len(position)))
    if len(order) < len(position):
        raise DependencyError(
            f"{len(position) - len(order)} nodes wait for each other in a dependency cycle, so none of them "
            "can start. Next: convert the traces again, or capture again."
        )
    return order


def dependencies(sources: np.ndarray, targets: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the dependencies of *count* nodes: an array of bounds, and the sources sorted by target.

    The sources of node i start at the index in the i-th entry of the bounds.
    """
    order = np.argsort(targets, kind="stable")
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(targets, minlength=count), out=bounds[1:])
    return bounds, sources[order].astype(np.int64, copy=False)


@dataclass(frozen=True)
class Replay:
    """Start and end of each node of a graph, in nanoseconds, in the order of ``graph.nodes``."""

    start_ns: np.ndarray
    end_ns: np.ndarray

    @property
    def makespan_ns(self) -> int:
        """Return the end of the last node."""
        return int(self.end_ns.max(initial=0))


def replay(graph: Graph) -> Replay:
    """Start every node when its dependencies and its predecessor on its lane (``stream``) have ended.

    Receives occupy no lane, as in simulations, so any number of receives may be pending. Nodes start in id
    order, which is program order. In files of other programs, a node may depend on a node with a higher id.
    In this case, nodes start in the nearest possible order. Raises `DependencyError` if a node waits for a
    missing node or for itself.
    """
    nodes, edges = graph.node_columns, graph.edge_columns
    ids, sources, targets = nodes["node_id"], edges["src"], edges["dst"]
    src, dst = np.searchsorted(ids, sources), np.searchsorted(ids, targets)
    bad = (src >= len(ids)) | (ids[np.minimum(src, len(ids) - 1)] != sources) if len(ids) else src >= 0
    if bad.any():
        where = int(np.argmax(bad))
        raise DependencyError(
            f"Node {targets[where]} of rank {graph.rank} waits for node {sources[where]}, which does not "
            "exist. Convert the trace set again."
        )
    turns = np.arange(len(ids))
    if (src >= dst).any():
        pairs = np.column_stack([src, dst, np.zeros_like(src)])
        turns = execution_order(turns, pairs)
    _, lanes = np.unique(nodes["stream"], return_inverse=True)
    lanes = np.where(nodes["type"] == NodeType.COMM_RECV, len(ids) + np.arange(len(ids)), lanes)
    start, end = replay_times(turns, lanes, nodes["duration_ns"], *dependencies(src, dst, len(ids)))
    return Replay(start, end)
