"""Chakra's execution trace format 0.0.4 in Protocol Buffers, to compare with our own codec.

The message classes are built from a descriptor instead of generated, so that any version of protobuf from 4
on can be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

__all__ = ["HEAD", "DecodeError", "GlobalMetadata", "Node", "framed", "messages"]

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "ChakraProtoMsg"
# Value kinds of an attribute in field order: each is a scalar at an odd number and a list at the next one.
_VALUE_KINDS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
    "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
_FIRST_VALUE_FIELD = 3

_NODE_FIELDS = (
    ("id", "uint64", False),
    ("name", "string", False),
    ("type", "int32", False),
    ("ctrl_deps", "uint64", True),
    ("data_deps", "uint64", True),
    ("start_time_micros", "uint64", False),
    ("duration_micros", "uint64", False),
    ("inputs", "IOInfo", False),
    ("outputs", "IOInfo", False),
    ("attr", "AttributeProto", True),
)


def _add_field(
    message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: str, *, repeated: bool = False
) -> descriptor_pb2.FieldDescriptorProto:
    """Add field *number* to *message*; a *kind* that is not a scalar names another message."""
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if kind in _VALUE_KINDS:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    return field


def _file() -> descriptor_pb2.FileDescriptorProto:
    """Describe the whole schema."""
    file = descriptor_pb2.FileDescriptorProto(
        name="chakrascope_et_def.proto", package=_PACKAGE, syntax="proto3"
    )
    attribute = descriptor_pb2.DescriptorProto(name="AttributeProto")
    _add_field(attribute, 1, "name", "string")
    _add_field(attribute, 2, "doc_string", "string")
    attribute.oneof_decl.add(name="value")
    for index, kind in enumerate(_VALUE_KINDS):
        number = _FIRST_VALUE_FIELD + 2 * index
        list_name = f"{kind.capitalize()}List"
        _add_field(file.message_type.add(name=list_name), 1, "values", kind, repeated=True)
        _add_field(attribute, number, f"{kind}_val", kind).oneof_index = 0
        _add_field(attribute, number + 1, f"{kind}_list", list_name).oneof_index = 0
    file.message_type.append(attribute)
    info = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        _add_field(info, number, name, "string")
    metadata = file.message_type.add(name="GlobalMetadata")
    _add_field(metadata, 1, "version", "string")
    _add_field(metadata, 2, "attr", "AttributeProto", repeated=True)
    node = file.message_type.add(name="Node")
    for number, (name, kind, repeated) in enumerate(_NODE_FIELDS, start=1):
        _add_field(node, number, name, kind, repeated=repeated)
    return file


def _message_class(pool: descriptor_pool.DescriptorPool, name: str) -> Any:
    """Return the class of message *name*."""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


# A separate pool: another package in the process may have registered the generated Chakra classes.
_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())
GlobalMetadata: Any = _message_class(_pool, "GlobalMetadata")
Node: Any = _message_class(_pool, "Node")


def framed(body: bytes) -> bytes:
    """Return *body*, an encoded message, with a length prefix."""
    length, digits = len(body), bytearray()
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    digits.append(length)
    return bytes(digits) + body


def messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a file; a truncated message raises `ValueError` or `IndexError`."""
    offset = 0
    while offset < len(data):
        size = shift = 0
        more = True
        while more:
            byte = data[offset]
            size |= (byte & 127) << shift
            shift, offset, more = shift + 7, offset + 1, byte > 127
        if size > len(data) - offset:
            raise ValueError(f"{size} bytes announced, {len(data) - offset} follow")
        yield data[offset : offset + size]
        offset += size


# The first message of our files.
HEAD = framed(GlobalMetadata(version="0.0.4").SerializeToString())
