"""Send and receive messages over gloo, the backend of `torch.distributed` for training on CPUs.

Gloo's calls block, so each path to a peer has a sending and a receiving thread. The engine's thread does not
hold the interpreter lock during waits.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from ...errors import BackendError, BackendUnavailable
from .. import engine
from ._wire import JOIN_S, Rank

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
            address = self.rank.addresses[0]
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                listener = socket.create_server((address, 0), family=family)
            except OSError as error:
                raise BackendError(
                    f"A rank cannot listen on {address} ({error.strerror}). Next: name addresses of the "
                    "host's own interfaces under 'nics'."
                ) from error
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
        generator = torch.Generator().manual_seed(1)  # incompressible data
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
        streams.append(least)  # round-robin on a tie in bytes
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
            raise ValueError("what came is not a message of the emulation")
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
    """Yield the sizes of the pieces of a message of *size* bytes."""
    for first in range(0, size, _PIECE):
        yield min(_PIECE, size - first)
