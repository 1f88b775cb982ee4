"""Check the attributes of nodes that determine the members of a collective and their bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import WorkloadFormatError
from .._columns import groups_of
from .._native import read_attributes
from ._graph import FILE_METADATA, NODE_COLUMNS, SPLITS, CollectiveType, Extra, Graph, NodeType, read_varint

_INVOLVED, _GROUP = "involved_dim", "pg_name"
_COLUMNS = {"comm_size_bytes": "comm_size", "tensor_size_bytes": "tensor_size", "group": _GROUP}
# The attributes with a column, and whether their value is a text. Such an attribute appears among a graph's
# other attributes only if it is repeated, or has a value of another type.
_WITH_COLUMN = {
    _COLUMNS.get(name, name): kind == "str" or name == "group"
    for name, (kind, _) in NODE_COLUMNS.items()
    if name not in ("node_id", "name", "type")
}
_ATTRIBUTE = 10 << 3 | 2  # key of an attribute in a node
_NAMES = (*_WITH_COLUMN, _INVOLVED, SPLITS)
_NAMED = "|".join(re.escape(f"\n{chr(len(name))}{name}") for name in _NAMES)


def check_attributes(
    graph: Graph, groups: Mapping[int, Sequence[int]], num_ranks: int, source: object, *, captured: bool
) -> None:
    """Raise `WorkloadFormatError`, naming *source*, for a repeated attribute or an impossible collective.

    *groups* are the process groups of the *num_ranks* ranks. A collective is impossible if no network
    dimension takes part, if its root is not a member of its group, or if the number of listed byte counts
    differs from the number of members. A *captured* job that was scaled still lists the bytes of the captured
    members.
    """
    for node, problem in _problems(graph, groups, num_ranks, captured=captured):
        row = int(np.searchsorted(graph.node_columns["node_id"], node))
        (name,) = graph.column_rows("name", np.array([row])).tolist()
        raise WorkloadFormatError(
            f"{source}: node {node} ('{name}') {problem}. Correct the workload or convert it again."
        )


def _problems(
    graph: Graph, groups: Mapping[int, Sequence[int]], num_ranks: int, *, captured: bool
) -> Iterator[tuple[int, str]]:
    nodes = graph.node_columns
    for ids, attributes in _other_attributes(graph):
        yield from ((int(ids[0]), problem) for problem in _repeated(attributes))
        rows = np.searchsorted(nodes["node_id"], ids)
        called = nodes["type"][rows] == NodeType.COMM_COLL
        values = dict(attributes)
        used, first = np.unique(nodes["group"][rows[called]], return_index=True)
        for group, node in zip(used.tolist(), ids[called][first].tolist(), strict=True):
            members = groups.get(group, () if group else range(num_ranks))
            if _INVOLVED in values:
                yield from ((node, problem) for problem in _uninvolved(values[_INVOLVED], group))
            if SPLITS in values and members and not captured:
                yield from ((node, problem) for problem in _misfit(values[SPLITS], len(members), group))
    yield from _strange_roots(graph, groups, num_ranks)


def _other_attributes(graph: Graph) -> Iterator[tuple[np.ndarray, list[tuple[str, Any]]]]:
    """Yield the distinct attributes, with repetitions, that may include one of `_NAMES` outside a column.

    Each item has the ids of the nodes, in ascending order, and their attributes.
    """
    for ids, encoded in Extra.of(graph.extra).distinct(_NAMED):
        nodes = ids[ids != FILE_METADATA]
        if len(nodes):
            yield nodes, [item for field in _fields(encoded) for item in _attribute_in(field)]


def _fields(encoded: bytes) -> Iterator[bytes]:
    """Yield the encoded fields of a message, with the fields of a group one by one."""
    at = 0
    while at < len(encoded):
        start = at
        key, at = read_varint(encoded, at)
        kind = key & 7
        if kind == 0:
            _, at = read_varint(encoded, at)
        elif kind == 2:
            length, at = read_varint(encoded, at)
            at += length
        else:
            at += {1: 8, 5: 4}.get(kind, 0)
        yield encoded[start:at]


def _attribute_in(field: bytes) -> Iterator[tuple[str, Any]]:
    if field[0] == _ATTRIBUTE:
        yield from read_attributes(field).items()


def _repeated(attributes: Sequence[tuple[str, Any]]) -> Iterator[str]:
    counts = Counter(name for name, _ in attributes)
    for name, value in attributes:
        has_type = name in _WITH_COLUMN and isinstance(value, str if _WITH_COLUMN[name] else int)
        if has_type or (counts[name] > 1 and name in (_INVOLVED, SPLITS)):
            yield f"has the attribute {name} twice"
        elif name == _GROUP:
            yield f"has an attribute {name} that is not a text, which ASTRA-sim refuses"


def _uninvolved(flags: Any, group: int) -> Iterator[str]:
    """Check the dimensions that take part in a collective; ASTRA-sim ignores them in a *group*."""
    if not isinstance(flags, list) or not all(isinstance(flag, bool) for flag in flags):
        yield f"has an attribute {_INVOLVED} that is not a list of booleans, which ASTRA-sim refuses"
    elif not group and not any(flags):
        yield f"takes part in no dimension of the network ({_INVOLVED}), so ASTRA-sim never completes it"


def _misfit(sizes: Any, members: int, group: int) -> Iterator[str]:
    if not isinstance(sizes, list) or not all(isinstance(size, int) for size in sizes):
        yield f"has an attribute {SPLITS} that is not a list of bytes"
    elif len(sizes) != members:
        of = f"group {group}" if group else "the workload"
        yield f"lists bytes for {len(sizes)} members ({SPLITS}), but {of} has {members} ranks"


def _strange_roots(
    graph: Graph, groups: Mapping[int, Sequence[int]], num_ranks: int
) -> Iterator[tuple[int, str]]:
    nodes = graph.node_columns
    kinds = [kind for kind in CollectiveType if kind.is_rooted]
    rooted = (nodes["type"] == NodeType.COMM_COLL) & np.isin(nodes["comm_type"], kinds)
    rows = np.flatnonzero(rooted & (nodes["comm_src"] >= 0))
    for group, calls in groups_of(nodes["group"][rows]).items():
        members = groups.get(group, () if group else range(num_ranks))
        roots, first = np.unique(nodes["comm_src"][rows[calls]], return_index=True)
        strange = ~np.isin(roots, members)
        if len(members) and strange.any():
            of = f"group {group}" if group else f"the {num_ranks} ranks"
            node, root = nodes["node_id"][rows[calls[first[strange][0]]]], roots[strange][0]
            yield int(node), f"has rank {root} as its root (comm_src), which is not one of {of}"
