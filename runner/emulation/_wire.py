"""The wire format of an emulation: authenticated messages with ranks, jobs and measurements.

Each end proves its knowledge of the secret without sending the secret, by signing a random challenge of the
other end. All later messages are signed and numbered, so that no third party can change, insert or repeat a
message. A message consists of JSON and byte strings, and never contains code. Messages above the length limit
are rejected.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import BackendError
from .. import engine

_MAGIC = b"chakrascope emulation 1\n"
_NONCE = 32
_DIGEST = 32
_LENGTH = struct.Struct(">QI")  # lengths of the body and of its leading JSON
_PIECE = 1 << 20
_MAX_BYTES = 4 << 30
_SEND_S = 60.0
PROOF_S = 5.0  # time limit for the proof of the secret
_CLOSED = "The connection was closed at the other end."


class ChannelClosed(BackendError):
    """The error for a channel that the other end has closed."""


class Refused(BackendError):
    """The error for a peer that does not know the secret, or that is not a program of an emulation."""


@dataclass(frozen=True)
class Message:
    """A message of an emulation: its kind, plain JSON, and byte strings."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()


def signature(secret: bytes, *parts: bytes) -> bytes:
    """Return the signature of *parts* with *secret*; every part has a fixed length."""
    return hmac.new(secret, b"".join(parts), hashlib.sha256).digest()


class Channel:
    """One end of an authenticated socket; *receiving* and *sending* are the keys of the two directions."""

    def __init__(self, connection: socket.socket, receiving: bytes, sending: bytes) -> None:
        self.socket = connection
        self._receiving, self._sending = receiving, sending
        self._received = self._sent = 0
        self._buffer = bytearray()
        connection.settimeout(_SEND_S)

    def fileno(self) -> int:
        """Return the file descriptor of the channel's socket, for selectors."""
        return self.socket.fileno()

    def close(self) -> None:
        """Close the socket of the channel."""
        self.socket.close()

    def send(self, kind: str, facts: dict[str, Any] | None = None, pieces: Sequence[bytes] = ()) -> None:
        """Send a message; raises `ChannelClosed` if the other end is closed or accepts no data."""
        head = json.dumps({"kind": kind, "facts": facts or {}, "sizes": [len(piece) for piece in pieces]})
        encoded = head.encode()
        length = _LENGTH.pack(len(encoded) + sum(map(len, pieces)), len(encoded))
        sealed = hmac.new(self._sending, struct.pack(">Q", self._sent) + length, hashlib.sha256)
        for part in (encoded, *pieces):
            sealed.update(part)
        self._sent += 1
        try:
            self.socket.sendall(length + sealed.digest() + encoded)
            for piece in pieces:
                self.socket.sendall(piece)
        except OSError as error:
            raise _lost(error) from error

    def pump(self) -> Iterator[Message]:
        """Read the available data, waiting for a first byte, and yield the complete messages.

        Raises `ChannelClosed` at the end of the connection, and `Refused` for an invalid message.
        """
        try:
            got = self.socket.recv(_PIECE)
        except OSError as error:
            raise _lost(error) from error
        if not got:
            raise ChannelClosed(_CLOSED)
        self._buffer += got
        while (message := self._next()) is not None:
            yield message

    def receive(self, timeout_s: float) -> Message:
        """Wait for one message from the other end and return the message."""
        self.socket.settimeout(timeout_s)
        try:
            message = self._next()
            while message is None:
                message = next(self.pump(), None)
            return message
        finally:
            self.socket.settimeout(_SEND_S)

    def _next(self) -> Message | None:
        head = _LENGTH.size + _DIGEST
        if len(self._buffer) < _LENGTH.size:
            return None
        size, json_size = _LENGTH.unpack_from(self._buffer)
        if size > _MAX_BYTES or json_size > size:
            raise Refused("The received data is not a message of an emulation.")
        if len(self._buffer) < head + size:
            return None
        whole = bytes(self._buffer[: head + size])
        del self._buffer[: head + size]
        number = struct.pack(">Q", self._received)
        expected = signature(self._receiving, number, whole[: _LENGTH.size], whole[head:])
        if not hmac.compare_digest(expected, whole[_LENGTH.size : head]):
            raise Refused("The data was modified in transit.")
        self._received += 1
        return _decoded(whole[head : head + json_size], whole[head + json_size :])


def _decoded(head: bytes, rest: bytes) -> Message:
    try:
        fields = json.loads(head)
        pieces, place = [], 0
        for size in fields["sizes"]:
            pieces.append(rest[place : place + size])
            place += size
        return Message(str(fields["kind"]), dict(fields["facts"]), tuple(pieces))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"The received data is not a message of an emulation ({error}).") from error


def challenge(connection: socket.socket, secret: bytes) -> Channel:
    """Return the channel of the connecting end, which is authenticated second.

    Raises `Refused` if the other end does not know *secret*.
    """
    connection.settimeout(PROOF_S)
    mine = os.urandom(_NONCE)
    try:
        connection.sendall(_MAGIC + mine)
        theirs = read_exactly(connection, _NONCE)
        proof = read_exactly(connection, _DIGEST)
        if not hmac.compare_digest(proof, signature(secret, b"host", mine, theirs)):
            raise Refused("The other end does not know the token.")
        connection.sendall(signature(secret, b"join", mine, theirs))
    except OSError as error:
        raise _lost(error) from error
    return _keyed(connection, secret, mine + theirs, (b"down", b"up"))


def answer(connection: socket.socket, secret: bytes) -> Channel:
    """Return the channel of the accepting end, which is authenticated first, by `challenge`."""
    connection.settimeout(PROOF_S)
    mine = os.urandom(_NONCE)
    try:
        if read_exactly(connection, len(_MAGIC)) != _MAGIC:
            raise Refused("The other end is not an agent of an emulation.")
        theirs = read_exactly(connection, _NONCE)
        connection.sendall(mine + signature(secret, b"host", theirs, mine))
        proof = read_exactly(connection, _DIGEST)
    except OSError as error:
        raise _lost(error) from error
    if not hmac.compare_digest(proof, signature(secret, b"join", theirs, mine)):
        raise Refused("The other end does not know the token.")
    return _keyed(connection, secret, theirs + mine, (b"up", b"down"))


def _keyed(
    connection: socket.socket, secret: bytes, nonces: bytes, directions: tuple[bytes, bytes]
) -> Channel:
    receiving, sending = (signature(secret, direction, nonces) for direction in directions)
    return Channel(connection, receiving, sending)


def _lost(error: OSError) -> ChannelClosed:
    # Closing a socket with unread data resets the connection.
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return ChannelClosed(_CLOSED)
    return ChannelClosed(f"The connection is lost ({error.strerror or error}).")


def pair() -> tuple[Channel, Channel]:
    """Return the two ends of a channel on this machine, of which one end is for a child process."""
    ours, theirs = socket.socketpair()
    down, up = os.urandom(_DIGEST), os.urandom(_DIGEST)
    return Channel(ours, up, down), Channel(theirs, down, up)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Return *size* bytes of *connection*; raises `ChannelClosed` if the other end closes earlier."""
    got = bytearray()
    while len(got) < size:
        piece = connection.recv(size - len(got))
        if not piece:
            raise ChannelClosed(_CLOSED)
        got += piece
    return bytes(got)


# Configuration fields that determine how a rank runs its program; of the network, only its shape affects a
# rank.
_FIELDS = [field for field in engine.FIELDS.values() if field.origin != "local"]
_DTYPES = {name: np.dtype(name) for name in ("int32", "int64", "uint8", "uint64")}


@dataclass(frozen=True)
class EngineJob:
    """The job that every rank receives: the engine's configuration, programs, and algorithm files by name.

    *program_of_rank* contains the index of each rank's program.
    """

    config: engine.Config
    programs: tuple[bytes, ...]
    program_of_rank: tuple[int, ...]
    algorithms: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def num_ranks(self) -> int:
        """The number of ranks of the job."""
        return len(self.program_of_rank)


def job_to_wire(job: EngineJob) -> tuple[dict[str, Any], list[bytes]]:
    """Return the facts and byte strings of a message with the job."""
    config = {}
    for each in _FIELDS:
        value = getattr(job.config, each.name)
        # The map is converted to a list, because JSON would convert numeric keys to strings.
        config[each.name] = list(value.items()) if isinstance(value, dict) else value
    collectives = job.config.collective_programs
    facts = {
        "config": config,
        "program_of_rank": list(job.program_of_rank),
        "programs": len(job.programs),
        "collectives": [[*named, len(graphs)] for *named, graphs in collectives],
        "algorithms": list(job.algorithms),
    }
    messages = [graph for *_, graphs in collectives for graph in graphs]
    return facts, [*job.programs, *messages, *job.algorithms.values()]


def algorithms_of(message: Message) -> dict[str, bytes]:
    """Return the algorithm files of a job; raises `BackendError` for a file name outside the job's folder."""
    names = message.facts["algorithms"]
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise BackendError(f"The coordinator names a file '{name}' outside of the job's own folder.")
    first = message.facts["programs"] + sum(count for *_, count in message.facts["collectives"])
    return dict(zip(names, message.pieces[first:], strict=True))


def config_of(message: Message) -> tuple[engine.Config, list[bytes], list[int]]:
    """Return the configuration, the programs, and the program of each rank of a job."""
    config = engine.Config()
    for name, _, default, *_ in _FIELDS:
        value = message.facts["config"][name]
        setattr(config, name, dict(value) if isinstance(default, dict) else value)
    config.custom_base = str(message.facts.get("folder", ""))
    pieces = iter(message.pieces)
    programs = list(itertools.islice(pieces, message.facts["programs"]))
    for collective, members, size, name, count in message.facts["collectives"]:
        config.add_program(collective, members, size, name, list(itertools.islice(pieces, count)))
    return config, programs, [int(program) for program in message.facts["program_of_rank"]]


def columns_to_wire(tables: Mapping[str, Mapping[str, Any]]) -> tuple[list[list[str]], list[bytes]]:
    """Return the names (table, column, type) and the bytes of all columns."""
    names, pieces = [], []
    for table, columns in tables.items():
        for column, values in columns.items():
            names.append([table, column, str(values.dtype)])
            pieces.append(values.tobytes())
    return names, pieces


def columns_from_wire(message: Message) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """Return the columns in a message by table and name; raises `BackendError` for invalid columns."""
    tables: dict[str, dict[str, npt.NDArray[Any]]] = {}
    try:
        for (table, column, dtype), piece in zip(message.facts["tables"], message.pieces, strict=True):
            tables.setdefault(table, {})[column] = np.frombuffer(piece, dtype=_DTYPES[dtype])
    except (KeyError, TypeError, ValueError) as error:
        raise BackendError(f"A rank sent measurements that cannot be read ({error}).") from error
    return tables


JOIN_S = 20.0  # time limit for the connections of all ranks


@dataclass(frozen=True)
class Rank:
    """The agent's instructions for a rank: the rank's number and addresses, and the host's namespace.

    Only the ranks of one run know *key*. *transport* names the transport of messages.
    """

    number: int
    addresses: tuple[str, ...]
    key: bytes
    transport: str = "tcp"
    namespace: str | None = None


class Entrance(Protocol):
    """The connection of a transport before a run: ranks exchange addresses, and then connect."""

    def listen(self) -> Any:
        """Return the addresses at which other ranks reach this rank, as plain JSON."""
        ...

    def connect(self, ends: dict[int, Any]) -> engine.Transport:
        """Connect to all other ranks; *ends* has the addresses that `listen` returned on each rank.

        Raises `BackendError` after `JOIN_S` seconds, or if a rank does not know the key.
        """
        ...
