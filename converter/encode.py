"""Write Chakra ``.et`` files. The few wire types they need are encoded here, several times faster than by
building message objects; reading goes through the schema, which the round-trip tests hold against this.
"""  # noqa: D205 - one sentence too long for a line

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .graph import EdgeKind, Graph

__all__ = ["ATTRIBUTES", "TEXT_ATTRIBUTES", "UNSET_IS_MINUS_ONE", "encode_graph", "framed"]

_FORMAT_VERSION = "0.0.4"
_VARINT, _LENGTH = 0, 2
# Field numbers of the schema.
_ID, _NAME, _TYPE, _CTRL, _DATA, _DURATION, _ATTRIBUTE = 1, 2, 3, 4, 5, 7, 10
_ATTRIBUTE_NAME = 1
_VALUE_FIELDS = {"int32_val": 7, "int64_val": 9, "uint64_val": 13, "bool_val": 27, "string_val": 29}

# attribute -> (column, value field we write). ASTRA-sim reads the first ones and ignores the last four.
ATTRIBUTES = {
    "comm_type": ("comm_type", "int64_val"),
    "comm_size": ("comm_size_bytes", "int64_val"),
    "comm_src": ("comm_src", "int32_val"),
    "comm_dst": ("comm_dst", "int32_val"),
    "comm_tag": ("comm_tag", "int32_val"),
    "num_ops": ("num_ops", "int64_val"),
    "tensor_size": ("tensor_size_bytes", "uint64_val"),
    "duration_ns": ("duration_ns", "uint64_val"),
    "stream": ("stream", "int64_val"),
    "step": ("step", "int64_val"),
    "measured_start_ns": ("measured_start_ns", "int64_val"),
}
TEXT_ATTRIBUTES = ("kind", "operator", "module", "phase")
UNSET_IS_MINUS_ONE = frozenset(
    {
        "comm_type",
        "comm_size",
        "comm_src",
        "comm_dst",
        "comm_tag",
        "num_ops",
        "tensor_size",
        "step",
        "measured_start_ns",
    }
)


def encode_graph(graph: Graph) -> bytes:
    """Return *graph* as the bytes of an ``.et`` file that ASTRA-sim reads.

    ``duration_micros`` is the nanosecond duration rounded with carry along each lane, so that sums agree to
    half a microsecond; the exact value is in the attribute ``duration_ns``.
    """
    columns = [
        _fields(_ID, graph.nodes["node_id"].tolist()),
        _texts(_NAME, graph.nodes["name"].tolist()),
        _fields(_TYPE, graph.nodes["type"].tolist()),
        *_dependencies(graph),
        _fields(_DURATION, _micros(graph)),
        *_attributes(graph),
    ]
    if graph.extra:
        columns.append([graph.extra.get(number, b"") for number in graph.nodes["node_id"].tolist()])
    parts = [framed(_text(1, _FORMAT_VERSION))]
    parts += [framed(b"".join(fields)) for fields in zip(*columns, strict=True)]
    return b"".join(parts)


def framed(body: bytes) -> bytes:
    """Return *body*, an encoded message, behind its varint length."""
    return _varint(len(body)) + body


def _micros(graph: Graph) -> Iterator[int]:
    """Yield the durations in microseconds, what rounding left over carried to the lane's next node."""
    carry: dict[int, int] = {}
    lanes, durations = graph.nodes["stream"].tolist(), graph.nodes["duration_ns"].tolist()
    for lane, duration in zip(lanes, durations, strict=True):
        exact = duration + carry.get(lane, 0)
        micros = max(0, (exact + 500) // 1000)
        carry[lane] = exact - micros * 1000
        yield micros


def _attributes(graph: Graph) -> Iterator[list[bytes]]:
    """Yield, attribute by attribute, its encoding on every node: empty where it says nothing."""
    nodes = graph.nodes
    yes, no = (_attribute("is_cpu_op", _field(_VALUE_FIELDS["bool_val"], value)) for value in (1, 0))
    yield [yes if value else no for value in nodes["is_cpu_op"].tolist()]
    for name, (column, kind) in ATTRIBUTES.items():
        values = nodes[column].tolist()
        skipped = name in UNSET_IS_MINUS_ONE
        if not skipped or max(values, default=-1) >= 0:
            yield _integers(name, _VALUE_FIELDS[kind], values, skip_negative=skipped)
    groups = [str(group) if group else "" for group in nodes["group"].tolist()]
    if any(groups):
        yield _labels("pg_name", groups)
    for name in TEXT_ATTRIBUTES:
        yield _labels(name, nodes[name].tolist())


def _integers(name: str, number: int, values: Sequence[int], *, skip_negative: bool) -> list[bytes]:
    """Encode an integer attribute of every node."""
    start = _text(_ATTRIBUTE_NAME, name) + _tag(number, _VARINT)
    opening, length = _tag(_ATTRIBUTE, _LENGTH), len(start)
    encoded = []
    for value in values:
        if value < 0 and skip_negative:
            encoded.append(b"")
            continue
        digits = _varint(value)
        encoded.append(opening + _SMALL[length + len(digits)] + start + digits)
    return encoded


def _labels(name: str, values: Sequence[str]) -> list[bytes]:
    """Encode a text attribute of every node; few texts occur often."""
    known = {"": b""}
    for value in set(values) - {""}:
        known[value] = _attribute(name, _text(_VALUE_FIELDS["string_val"], value))
    return [known[value] for value in values]


def _attribute(name: str, value: bytes) -> bytes:
    body = _text(_ATTRIBUTE_NAME, name) + value
    return _tag(_ATTRIBUTE, _LENGTH) + _varint(len(body)) + body


def _dependencies(graph: Graph) -> tuple[list[bytes], list[bytes]]:
    """Return the encoded control and data dependencies of every node."""
    found: dict[int, dict[int, list[int]]] = {_CTRL: {}, _DATA: {}}
    columns = (graph.edges[name].tolist() for name in ("src", "dst", "kind"))
    for src, dst, kind in zip(*columns, strict=True):
        found[_DATA if kind == EdgeKind.DATA else _CTRL].setdefault(dst, []).append(src)
    ids = graph.nodes["node_id"].tolist()
    ctrl, data = ([_packed(number, found[number].get(node)) for node in ids] for number in (_CTRL, _DATA))
    return ctrl, data


def _packed(number: int, values: Sequence[int] | None) -> bytes:
    if not values:
        return b""
    body = b"".join(map(_varint, values))
    return _tag(number, _LENGTH) + _varint(len(body)) + body


def _texts(number: int, values: Sequence[str]) -> list[bytes]:
    known = {value: _text(number, value) for value in set(values)}
    return [known[value] for value in values]


def _fields(number: int, values: Sequence[int] | Iterator[int]) -> list[bytes]:
    tag = _tag(number, _VARINT)
    return [tag + _varint(value) for value in values]


def _field(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value)


def _text(number: int, value: str) -> bytes:
    body = value.encode("utf-8", "replace")
    return _tag(number, _LENGTH) + _varint(len(body)) + body


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Return *value* in groups of seven bits; negative ones as 64-bit two's complement."""
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    return _long_varint(value & (1 << 64) - 1)


def _long_varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


_SMALL = [_long_varint(value) for value in range(1 << 14)]
