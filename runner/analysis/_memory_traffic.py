"""Avoidable memory traffic: chains of operators that one kernel could compute, and repeated copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...converter import Graph, Workload
from ...converter.chakra import DELAYED, DEVICE_LANE
from ...support.table import Flags, Ints
from ._operators import precisions, written_bytes

FUSIBLE = "elementwise"
"""The `Target` of ``fusion`` for all fusible chains."""
PRECISIONS: Mapping[str, str] = {"double": "fp64", "bfloat16": "bf16"}
"""The `Target` of ``precision`` for all operators in a precision, as recorded."""
REPEATED = "copies"
"""The `Target` of ``repeated`` for all repeated copies."""
# Minimum bytes of a host operator; operators that move fewer bytes convert scalars, allocate memory, or call
# other operators.
_SCALAR_BYTES = 64
_WORK = ("compute", "communication", "copy")


class Accesses(NamedTuple):
    """The reads and writes of a workload's operators.

    *written* maps an operator and the total bytes of a call to the operator's class and its written
    bytes. *shared* has, per rank, rows of two nodes and the bytes that the first reads after the
    second.
    """

    written: Mapping[tuple[str, int], tuple[str, int]]
    shared: Mapping[int, Ints]


def accesses(metadata: Mapping[str, Any]) -> Accesses:
    """Read the accesses from a workload's *metadata*; unexpected values count as absent."""
    try:
        rows = msgspec.convert(
            metadata.get("shared_inputs", {}), dict[int, list[tuple[int, int, int]]], strict=False
        )
    except msgspec.ValidationError:
        rows = {}
    shared = {rank: np.array(own, dtype=np.int64).reshape(-1, 3) for rank, own in rows.items()}
    return Accesses(written_bytes(metadata), shared)


class Chains(NamedTuple):
    """Nodes of a graph that one kernel could compute together with others, by row of the graph.

    *chain* numbers the chains. *saved_bytes* is the part of a node's *moved_bytes* that it exchanges with
    neighbours in the chain, or that another node of the chain has already read. Both numbers of bytes are 0
    for a wait for a processor, and for the part of an operator after such a wait. *fused_ns* is the duration
    of the node after fusion, at the same rate in bytes per ns.
    """

    rows: Ints
    chain: Ints
    moved_bytes: Ints
    saved_bytes: Ints
    fused_ns: Ints


def fusible_chains(graph: Graph, known: Accesses) -> Chains:
    """Return the chains of elementwise operators and copies in *graph*, given its `accesses`.

    The operators of a chain follow each other on a stream without other work in between, and each
    reads at least the output of the previous operator. A fused kernel need not store these
    intermediate results, and reads a tensor only once. The optimizer, copies after copies, and
    operators repeated in place are left out, because their neighbours process different data.
    """
    if not known.written:
        return Chains(*np.zeros((5, 0), np.int64))
    nodes = graph.node_columns
    moved, written, is_copy = _amounts(graph, known)
    stream, operator = np.asarray(nodes["stream"]), nodes["operator"].numbers
    scalars = (stream < DEVICE_LANE) & (moved <= _SCALAR_BYTES)
    # Operators with less work also wait less for a processor.
    waits = nodes["cause"] == DELAYED
    worked = np.flatnonzero(nodes["kind"].passes(_WORK.__contains__) | waits)
    worked = worked[np.lexsort((np.asarray(nodes["measured_start_ns"])[worked], stream[worked]))]
    order = worked[~scalars[worked]]
    first, then = order[:-1], order[1:]
    repeats = nodes["operator"].passes(lambda name: name.endswith("_"))[then]
    repeats &= operator[first] == operator[then]
    optimizer = nodes["phase"] == "optimizer"
    passed = (written[first] > 0) & (written[then] > 0) & (moved[then] - written[then] >= written[first])
    passed &= (stream[first] == stream[then]) & ~optimizer[first] & ~optimizer[then]
    passed &= ~repeats & ~(is_copy[first] & is_copy[then])
    saved = np.zeros(len(moved), np.int64)
    np.add.at(saved, first[passed], written[first[passed]])
    np.add.at(saved, then[passed], written[first[passed]])
    begins = np.ones(len(order), bool)
    begins[1:] = ~passed
    number = np.zeros(len(moved), np.int64)
    number[order] = np.cumsum(begins)
    rows = np.flatnonzero(saved)
    saved = np.minimum(moved, saved + _read_before(graph, number, known))
    left = 1 - saved / np.maximum(1, moved)
    # A node that moves at most one byte belongs to the previous node if both have the same operator.
    heads = worked[np.maximum.accumulate(np.where(scalars[worked], 0, np.arange(len(worked))))]
    continues = scalars[worked] & (moved[worked] <= 1) & (saved[heads] > 0)
    for column in (operator, stream):
        continues &= column[worked] == column[heads]
    parts = np.concatenate([rows, worked[continues]])
    heads = np.concatenate([rows, heads[continues]])[np.argsort(parts)]
    parts = np.sort(parts)
    fused_ns = np.rint(np.asarray(nodes["duration_ns"])[parts] * left[heads]).astype(np.int64)
    whole = parts == heads
    return Chains(parts, number[heads], moved[parts] * whole, saved[parts] * whole, fused_ns)


def chains_of_nodes(workload: Workload, programs: Ints, node_ids: Ints) -> tuple[Ints, Chains]:
    """Return a mask of the given nodes that are in fusible chains, and the chains."""
    known = accesses(workload.metadata)
    places, parts, chains = [np.zeros(0, np.int64)], [np.zeros((5, 0), np.int64)], 0
    for program in np.unique(programs).tolist():
        graph, own = workload.graphs[program], np.flatnonzero(programs == program)
        found = fusible_chains(graph, known)
        ids = np.asarray(graph.node_columns["node_id"])[found.rows]
        chained = np.isin(node_ids[own], ids)
        there = np.searchsorted(ids, node_ids[own][chained])
        places.append(own[chained])
        parts.append(np.stack(found._replace(chain=found.chain + chains))[:, there])
        chains += int(found.chain.max(initial=0)) + 1
    return np.concatenate(places), Chains(*np.concatenate(parts, axis=1))


def _read_before(graph: Graph, chain: Ints, known: Accesses) -> Ints:
    """Return the number of bytes that each node reads after another node of its *chain* (0: no chain)."""
    ids, size_bytes = np.asarray(graph.node_columns["node_id"]), np.zeros(len(chain), np.int64)
    rows = known.shared.get(graph.rank, np.zeros((0, 3), np.int64))
    rows = rows[np.isin(rows[:, :2], ids).all(axis=1)]
    reader, earlier = np.searchsorted(ids, rows[:, :2].T)
    same = (chain[reader] == chain[earlier]) & (chain[reader] > 0)
    np.add.at(size_bytes, reader[same], rows[same, 2])
    return size_bytes


def _amounts(graph: Graph, known: Accesses) -> tuple[Ints, Ints, Flags]:
    """Return each node's moved bytes and written bytes (0: not fusible), and a mask of copies."""
    moved = np.asarray(graph.node_columns["tensor_size_bytes"]).astype(np.int64)
    operator = graph.node_columns["operator"]
    written, is_copy = np.zeros(len(moved), np.int64), np.zeros(len(moved), bool)
    sizes: dict[str, list[tuple[int, str, int]]] = {}
    for (name, size_bytes), (kind, amount) in known.written.items():
        sizes.setdefault(name, []).append((size_bytes, kind, amount))
    for number, name in enumerate(operator.texts):
        rows = np.flatnonzero(operator.numbers == number) if name in sizes else np.zeros(0, np.int64)
        for size_bytes, kind, amount in sizes.get(name, []):
            own = rows[moved[rows] == size_bytes]
            written[own], is_copy[own] = amount, kind == "copy"
    return moved, written, is_copy


def repeated_copies(graph: Graph, metadata: Mapping[str, Any]) -> Flags:
    """Return a mask of the nodes of *graph* that repeat a cast or copy."""
    return np.isin(np.asarray(graph.node_columns["node_id"]), _recorded(metadata, graph.rank))


def operators_in(precision: str, graph: Graph, metadata: Mapping[str, Any]) -> Flags:
    """Return a mask of the operators of *graph* in *precision*, which is empty if not in `PRECISIONS`."""
    recorded = PRECISIONS.get(precision)
    operators, sizes = graph.node_columns["operator"], _sizes_in(recorded, metadata) if recorded else {}
    size_bytes = np.asarray(graph.node_columns["tensor_size_bytes"])
    found: Flags = np.zeros(len(size_bytes), bool)
    for number, name in enumerate(operators.texts):
        if name in sizes:
            found |= (operators.numbers == number) & np.isin(size_bytes, sizes[name])
    return found


def _sizes_in(precision: str, metadata: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the bytes per call of each operator in *precision* that no other precision has."""
    sizes: dict[bool, dict[str, set[int]]] = {True: {}, False: {}}
    for name, size_bytes, own in precisions(metadata):
        sizes[own == precision].setdefault(name, set()).add(size_bytes)
    return {name: sorted(own - sizes[False].get(name, set()) - {0}) for name, own in sizes[True].items()}


def marked_nodes(
    workload: Workload, programs: Ints, node_ids: Ints, marked: Callable[[Graph, Mapping[str, Any]], Flags]
) -> Flags:
    """Return a mask of the given nodes that *marked* selects in their program's graph."""
    found: Flags = np.zeros(len(node_ids), bool)
    for program in np.unique(programs).tolist():
        own, graph = programs == program, workload.graphs[program]
        ids = np.asarray(graph.node_columns["node_id"])[marked(graph, workload.metadata)]
        found[own] = np.isin(node_ids[own], ids)
    return found


def _recorded(metadata: Mapping[str, Any], rank: int) -> Ints:
    """Return the ids of a rank's repeated copies from *metadata*; unexpected values are ignored."""
    listed = metadata.get("repeated")
    try:
        nodes = msgspec.convert(listed.get(str(rank), []) if isinstance(listed, dict) else [], list[int])
    except msgspec.ValidationError:
        nodes = []
    return np.array(nodes, dtype=np.int64)
