"""The transports of an emulation by name: TCP, Gloo, and transports of plug-ins.

Gloo is the backend of `torch.distributed` for training on CPUs. Gloo's calls block, so each path to a peer
has a sending and a receiving thread. The engine's thread does not hold the interpreter lock during waits.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib
import importlib.util
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from ...errors import BackendError, BackendUnavailable, ConfigError, did_you_mean
from ...support import load_plugin, plugin_names
from .. import engine
from ._wire import JOIN_S, ChannelClosed, Entrance, Rank, read_exactly, signature

_NONCE = 16
_HELLO = struct.Struct(">III")  # the ranks at the two ends, and the path number


class TcpEntrance:
    """Joins a rank to all other ranks by a TCP connection for each pair of network interfaces."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._listeners: list[socket.socket] = []

    def listen(self) -> list[Any]:
        """Return the address and listening port of each interface of the rank."""
        self._listeners = [_listen(address) for address in self.rank.addresses]
        return [listener.getsockname()[:2] for listener in self._listeners]

    def connect(self, ends: dict[int, Any]) -> engine.Transport:
        """Connect to all other ranks and return the transport over the TCP connections."""
        connections = _Meeting(self.rank, self._listeners, ends).connections()
        for listener in self._listeners:
            listener.close()
        return engine.tcp_transport([(each.detach(), peer, path) for each, peer, path in connections])


def _listen(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
    except OSError as error:
        raise BackendError(
            f"A rank cannot listen on {address} ({error.strerror}). Next: name addresses of the host's own "
            "interfaces under 'nics'."
        ) from error
    listener.listen(socket.SOMAXCONN)
    return listener


class _Meeting:
    """Connects a rank with all other ranks; on every path, the lower rank connects to the higher rank.

    Every step of the connection waits only for earlier steps of other ranks, so there is no deadlock.
    """

    def __init__(
        self, rank: Rank, listeners: list[socket.socket], ends: dict[int, list[tuple[str, int]]]
    ) -> None:
        self.rank = rank
        self.listeners = listeners
        self.ends = ends
        self.deadline = time.monotonic() + JOIN_S

    def connections(self) -> list[tuple[socket.socket, int, int]]:
        """Return the connected sockets, each with its peer and path; raises `BackendError`."""
        own = self.rank.number
        mine = len(self.rank.addresses)
        higher = [
            (self._connect(peer, path), peer, path)
            for peer, ends in sorted(self.ends.items())
            if peer > own
            for path in range(max(mine, len(ends)))
        ]
        lower = {
            (peer, path)
            for peer, ends in self.ends.items()
            if peer < own
            for path in range(max(mine, len(ends)))
        }
        accepted = self._accept(len(lower))
        for each, peer, path in higher:
            self._prove(each, peer, path)
        found = self._check(accepted, lower)
        for each, peer, _ in higher:
            if read_exactly(each, 2) != b"ok":
                raise BackendError(f"Rank {peer} did not accept the connection of rank {own}.")
        return [*higher, *((each, peer, path) for (peer, path), each in found.items())]

    def _connect(self, peer: int, path: int) -> socket.socket:
        address, port = self.ends[peer][path % len(self.ends[peer])]
        own = self.rank.addresses[path % len(self.rank.addresses)]
        try:
            return socket.create_connection((address, port), timeout=JOIN_S, source_address=(own, 0))
        except OSError as error:
            raise BackendError(
                f"Rank {self.rank.number} ({own}) cannot reach rank {peer} at {address}:{port} "
                f"({error.strerror or error}). Next: check the addresses of the hosts file, and that no "
                f"firewall blocks them."
            ) from error

    def _accept(self, count: int) -> list[tuple[socket.socket, bytes]]:
        """Return *count* accepted connections, each with the challenge that the other end must sign."""
        accepted: list[tuple[socket.socket, bytes]] = []
        while len(accepted) < count:
            left = self.deadline - time.monotonic()
            ready = select.select(self.listeners, [], [], max(left, 0))[0]
            if not ready:
                raise BackendError(
                    f"Rank {self.rank.number} waited {JOIN_S:g} s for other ranks to connect. Next: check "
                    "the addresses of the hosts file, and that no firewall blocks them."
                )
            accepted += [self._invite(listener) for listener in ready]
        return accepted

    def _invite(self, listener: socket.socket) -> tuple[socket.socket, bytes]:
        each, _ = listener.accept()
        each.settimeout(JOIN_S)
        nonce = os.urandom(_NONCE)
        each.sendall(nonce)
        return each, nonce

    def _prove(self, each: socket.socket, peer: int, path: int) -> None:
        hello = _HELLO.pack(self.rank.number, peer, path)
        nonce = read_exactly(each, _NONCE)
        each.sendall(hello + signature(self.rank.key, nonce, hello))

    def _check(
        self, accepted: list[tuple[socket.socket, bytes]], expected: set[tuple[int, int]]
    ) -> dict[tuple[int, int], socket.socket]:
        """Return the authenticated sockets of expected peers; other sockets are closed and replaced."""
        peers: dict[tuple[int, int], socket.socket] = {}
        waiting = list(accepted)
        while len(peers) < len(expected):
            if not waiting:
                waiting = self._accept(1)
            each, nonce = waiting.pop()
            identity = self._identify(each, nonce)
            if identity is None or identity in peers or identity not in expected:
                each.close()
                continue
            each.sendall(b"ok")
            peers[identity] = each
        return peers

    def _identify(self, each: socket.socket, nonce: bytes) -> tuple[int, int] | None:
        try:
            hello = read_exactly(each, _HELLO.size)
            proof = read_exactly(each, 32)
        except (OSError, ChannelClosed):
            return None
        if not hmac.compare_digest(proof, signature(self.rank.key, nonce, hello)):
            return None
        peer, own, path = _HELLO.unpack(hello)
        return (peer, path) if own == self.rank.number else None


_PIECE = 2 << 20  # bytes per call to gloo
_DEPTH = 2  # number of concurrent calls
# The timeout of a receive. The timeout is long, because gloo closes all connections if a receive times out.
_FOREVER = timedelta(days=1000)


class GlooEntrance:
    """Joins a rank to all other ranks by a gloo process group with a context for each network interface.

    The ranks find each other through a store of rank 0, under names that contain the run's key. Gloo itself
    has no authentication.
    """

    def __init__(self, rank: Rank) -> None:
        if importlib.util.find_spec("torch") is None:
            raise BackendUnavailable(
                "The transport 'gloo' is that of torch.distributed, and PyTorch is not installed here. Next: "
                "pip install 'chakrascope[torch]' on every host, or use --transport tcp."
            )
        self.rank = rank
        # imported late: torch is an optional dependency, and takes seconds to load
        self._torch: Any = importlib.import_module("torch")
        self._distributed: Any = importlib.import_module("torch.distributed")
        self._store: Any = None

    def listen(self) -> dict[str, Any]:
        """Return the number of interfaces, and on rank 0 the address of the store."""
        ends: dict[str, Any] = {"nics": len(self.rank.addresses)}
        if self.rank.number == 0:
            listener = _listen(self.rank.addresses[0])
            where = ends["store"] = listener.getsockname()[:2]
            self._store = self._open_store(where, listener.detach())
        return ends

    def connect(self, ends: dict[int, Any]) -> engine.Transport:
        """Return the transport over a process group of all ranks."""
        paths = max(int(end["nics"]) for end in ends.values())
        _share_priority()
        try:
            group = self._group(ends, paths)
        except (RuntimeError, ValueError) as error:
            raise BackendError(
                f"Rank {self.rank.number} could not join the others through gloo "
                f"({_first_line(error)}). Next: check the addresses of the hosts file, that no firewall "
                f"blocks them, and that all hosts have the same version of PyTorch."
            ) from error
        return _Streams(self._torch, group, set(ends) - {self.rank.number}, paths).start()

    def _open_store(self, where: Sequence[Any], descriptor: int | None = None) -> Any:
        return self._distributed.TCPStore(
            *where,
            is_master=descriptor is not None,
            timeout=timedelta(seconds=JOIN_S),
            wait_for_workers=False,
            master_listen_fd=descriptor,
        )

    def _group(self, ends: dict[int, Any], paths: int) -> Any:
        if self._store is None:
            self._store = self._open_store(ends[0]["store"])
        gloo = self._distributed.ProcessGroupGloo
        options = gloo._Options()
        own = self.rank.addresses
        options._devices = [gloo.create_device(hostname=own[path % len(own)]) for path in range(paths)]
        options._threads = 1  # threads for collectives, which are not used
        options._timeout = timedelta(seconds=JOIN_S)
        store = self._distributed.PrefixStore(self.rank.key.hex(), self._store)
        return gloo(store, self.rank.number, len(ends), options)


def _share_priority() -> None:
    """Give this thread's priority to the threads that it starts, including gloo's threads, if permitted."""
    with contextlib.suppress(OSError):
        policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_getparam(0))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


class _Stream:
    """A path to and from a peer over one network interface.

    The number of the path is the tag of all its messages. Gloo selects the context of a network interface by
    the tag, and keeps the order of messages.
    """

    def __init__(self, peer: int, path: int) -> None:
        self.peer = peer
        self.path = path
        self.queued_bytes = 0
        self._messages: deque[tuple[bytes, int]] = deque()
        self._filled = threading.Condition()

    def put(self, frame: bytes, size: int, urgent: bool) -> None:
        """Queue a message; an *urgent* message goes ahead of all queued messages."""
        with self._filled:
            (self._messages.appendleft if urgent else self._messages.append)((frame, size))
            self.queued_bytes += len(frame) + size
            self._filled.notify()

    def get(self) -> tuple[bytes, int]:
        """Wait for the next queued message and return the message."""
        with self._filled:
            self._filled.wait_for(lambda: self._messages)
            return self._messages.popleft()

    def done(self, frame: bytes, size: int) -> None:
        """Remove a sent message from the count of queued bytes."""
        with self._filled:
            self.queued_bytes -= len(frame) + size


class _Streams:
    """The threads that carry messages to and from *peers* until the process or a peer ends."""

    def __init__(self, torch: Any, group: Any, peers: Iterable[int], paths: int) -> None:
        self.torch = torch
        self.group = group
        self.streams = {peer: [_Stream(peer, path) for path in range(paths)] for peer in peers}
        generator = torch.Generator().manual_seed(1)  # random data cannot be compressed
        self.payload = torch.randint(256, (_PIECE,), dtype=torch.uint8, generator=generator)
        self.discarded = torch.zeros(_PIECE, dtype=torch.uint8)

    def start(self) -> engine.Transport:
        """Start the threads, and return the transport that uses the threads."""
        transport = engine.threaded_transport(self._post)
        for stream in [stream for streams in self.streams.values() for stream in streams]:
            for work in (self._send, self._receive):
                threading.Thread(target=_serve, args=(work, transport, stream), daemon=True).start()
        return transport

    def _post(self, peer: int, frame: bytes, size: int, urgent: bool) -> None:
        if peer not in self.streams:
            raise BackendError(f"There is no connection to rank {peer}.")
        streams = self.streams[peer]
        least = min(streams, key=lambda stream: stream.queued_bytes)
        streams.remove(least)
        streams.append(least)  # of paths with equally many bytes, take the next in turn
        least.put(frame, size, urgent)

    def _send(self, transport: engine.ThreadedTransport, stream: _Stream) -> None:
        frame, size = stream.get()
        begun_ns = time.monotonic_ns()
        head = self.torch.frombuffer(bytearray(frame), dtype=self.torch.uint8)
        works = deque([self.group.send([head], stream.peer, stream.path)])
        for piece in _pieces(size):
            works.append(self.group.send([self.payload[:piece]], stream.peer, stream.path))
            if len(works) > _DEPTH:
                works.popleft().wait(_FOREVER)
        for work in works:
            work.wait(_FOREVER)
        stream.done(frame, size)
        transport.sent(stream.peer, stream.path, frame, begun_ns)

    def _receive(self, transport: engine.ThreadedTransport, stream: _Stream) -> None:
        head = self.torch.zeros(engine.FRAME_BYTES, dtype=self.torch.uint8)
        self.group.recv([head], stream.peer, stream.path).wait(_FOREVER)
        begun_ns = time.monotonic_ns()
        frame = head.numpy().tobytes()
        size = transport.size_behind(stream.peer, frame)
        if size < 0:
            raise ValueError("the received data is not a message of the emulation")
        works: deque[Any] = deque()
        for piece in _pieces(size):
            works.append(self.group.recv([self.discarded[:piece]], stream.peer, stream.path))
            if len(works) > _DEPTH:
                works.popleft().wait(_FOREVER)
        for work in works:
            work.wait(_FOREVER)
        transport.came(stream.peer, stream.path, frame, begun_ns)


def _serve(work: _Work, transport: engine.ThreadedTransport, stream: _Stream) -> None:
    try:
        while True:
            work(transport, stream)
    except (RuntimeError, ValueError) as error:
        transport.lost(stream.peer, _first_line(error))


_Work = Callable[[engine.ThreadedTransport, _Stream], None]


def _pieces(size: int) -> Iterator[int]:
    """Split a message of *size* bytes into pieces, and yield the size of each."""
    for first in range(0, size, _PIECE):
        yield min(_PIECE, size - first)


_PLUGINS = "transports"
_ENTRANCES: dict[str, Callable[[Rank], Entrance]] = {"tcp": TcpEntrance, "gloo": GlooEntrance}


def transport_names() -> list[str]:
    """Return the names of all transports; ``NAME:ARGUMENT`` stands for a transport with an argument."""
    kinds = [*_ENTRANCES, *plugin_names(_PLUGINS)]
    return [kind + (f":{_argument(kind)}" if _argument(kind) else "") for kind in kinds]


def check_transport(name: str, where: str) -> str:
    """Return *name* if a transport has this name; raises `ConfigError` that names *where*.

    The argument of a transport can only be checked on the host that uses the transport.
    """
    kind, colon, argument = name.partition(":")
    exists = kind in _ENTRANCES or kind in plugin_names(_PLUGINS)
    if not exists or (colon and not _argument(kind)):
        names = transport_names()
        raise ConfigError(f"{where}: there is no transport '{name}'{did_you_mean(name, names)}")
    if _argument(kind) and not argument:
        raise ConfigError(f"{where}: '{kind}' needs an argument: {kind}:{_argument(kind)}.")
    return name


def entrance_of(rank: Rank) -> Entrance:
    """Return the object that connects *rank* to its transport's network; raises `ConfigError`."""
    kind = check_transport(rank.transport, f"Rank {rank.number}").partition(":")[0]
    return _entrance(kind)(rank)


def _entrance(kind: str) -> Callable[[Rank], Entrance]:
    return _ENTRANCES.get(kind) or load_plugin(_PLUGINS, kind)


def _argument(kind: str) -> str:
    """Return the argument that must follow the colon in names of *kind*, or ``""`` without an argument."""
    return str(getattr(_entrance(kind), "argument", ""))
