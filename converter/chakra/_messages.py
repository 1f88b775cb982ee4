"""Graphs as Chakra's own protobuf messages, of whichever module ``et_def_pb2`` the caller uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import UsageError, WorkloadFormatError
from ._extra import varint

__all__ = ["bytes_of_messages", "messages_of_bytes"]

# The numbers of the fields that the codec reads and writes. Other fields are passed on as they are.
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
    """Return the ``.et`` file of *messages*: a ``GlobalMetadata``, then each ``Node``.

    Raises `WorkloadFormatError` for other messages, and for other numbers of their fields.
    """
    pieces, expected = [], "GlobalMetadata"
    for position, message in enumerate(messages):
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or descriptor.name != expected:
            raise WorkloadFormatError(
                f"Rank {rank}: message {position} is of type {type(message).__name__}, not {expected}. "
                "Pass a GlobalMetadata, then the nodes, as in an .et file."
            )
        if position < 2:
            _check(descriptor)
        expected = "Node"
        body = message.SerializeToString()
        pieces += [varint(len(body)), body]
    return b"".join(pieces)


def messages_of_bytes(data: bytes, et_def: Any) -> Iterator[Any]:
    """Yield the messages of the ``.et`` file *data*, of the classes in the module *et_def*.

    Raises `UsageError` if it has other classes or other numbers of their fields.
    """
    try:
        message_class, node_class = et_def.GlobalMetadata, et_def.Node
        descriptors = [message_class.DESCRIPTOR, node_class.DESCRIPTOR]
    except AttributeError as error:
        raise UsageError(
            f"{getattr(et_def, '__name__', et_def)!r} has no messages of Chakra ({error}). "
            "Pass the module et_def_pb2 that protoc makes of Chakra's et_def.proto."
        ) from None
    for descriptor in descriptors:
        _check(descriptor)
    start = 0
    while start < len(data):
        length = shift = 0
        more = True
        while more:
            more, length = data[start] > 127, length | (data[start] & 127) << shift
            start, shift = start + 1, shift + 7
        yield message_class.FromString(data[start : start + length])
        start, message_class = start + length, node_class


def _check(descriptor: Any) -> None:
    """Raise `UsageError` if fields of a message have other numbers than in Chakra 0.0.4."""
    fields = descriptor.fields_by_name
    for name, number in _FIELDS[descriptor.name].items():
        if name not in fields or fields[name].number != number:
            raise UsageError(
                f"Field {name!r} of message {descriptor.name} is not number {number}: this is not "
                "version 0.0.4 of Chakra's schema. Update the module et_def_pb2."
            )
    if "attr" in fields:
        _check(fields["attr"].message_type)
