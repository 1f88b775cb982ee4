"""Write Chakra `.et` files byte by byte, so that the engine's decoder is tested against the format itself."""

from __future__ import annotations

NODE_TYPES = {
    "INVALID": 0,
    "METADATA": 1,
    "MEM_LOAD": 2,
    "MEM_STORE": 3,
    "COMP": 4,
    "SEND": 5,
    "RECV": 6,
    "COLL": 7,
}
COMM_TYPES = {
    "ALL_REDUCE": 0,
    "REDUCE": 1,
    "ALL_GATHER": 2,
    "GATHER": 3,
    "SCATTER": 4,
    "BROADCAST": 5,
    "ALL_TO_ALL": 6,
    "REDUCE_SCATTER": 7,
    "REDUCE_SCATTER_BLOCK": 8,
    "BARRIER": 9,
}
# The field number of an attribute's value, by type.
UINT32, UINT64, UINT64_LIST, BOOL, BOOL_LIST, STRING = 9, 13, 14, 27, 28, 29
ATTRIBUTES = {
    "is_cpu_op": BOOL,
    "num_ops": UINT64,
    "tensor_size": UINT64,
    "comm_type": UINT64,
    "comm_size": UINT64,
    "comm_src": UINT32,
    "comm_dst": UINT32,
    "comm_tag": UINT32,
    "comm_priority": UINT32,
    "pg_name": STRING,
    "involved_dim": BOOL_LIST,
    "duration_ns": UINT64,
    "stream": UINT64,
    "comm_splits": UINT64_LIST,
    "kind": STRING,
}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _block(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def attribute(name: str, value) -> bytes:
    field = ATTRIBUTES[name]
    if field == STRING:
        content = _block(field, str(value).encode())
    elif field == UINT64_LIST:
        content = _block(field, _block(1, b"".join(map(varint, value))))
    elif field == BOOL_LIST:
        content = _block(field, _block(1, bytes(value)))
    else:
        content = _number(field, COMM_TYPES.get(value, value))
    return _block(10, _block(1, name.encode()) + content)


def attribute_of_int64(name: str, value: int) -> bytes:
    """Encode an attribute of a signed type, which other tools use for sizes."""
    return _block(10, _block(1, name.encode()) + _number(9, value % (1 << 64)))


def node(data: dict) -> bytes:
    """Encode a node given as the mapping that the reference data uses."""
    body = _number(1, data["id"]) + _block(2, data.get("name", "").encode())
    body += _number(3, NODE_TYPES.get(data["type"], data["type"]))
    body += b"".join(_number(4, parent) for parent in data.get("ctrl_deps", ()))
    body += b"".join(_number(5, parent) for parent in data.get("data_deps", ()))
    if data.get("duration_micros"):
        body += _number(7, data["duration_micros"])
    body += attribute("is_cpu_op", data.get("is_cpu_op", False))
    for name in ATTRIBUTES:
        if name != "is_cpu_op" and data.get(name) is not None:
            body += attribute(name, data[name])
    return body


def program(nodes: list[dict]) -> bytes:
    """Encode a whole `.et` file."""
    messages = [_block(1, b"0.0.4"), *(node(item) for item in nodes)]
    return b"".join(varint(len(message)) + message for message in messages)
