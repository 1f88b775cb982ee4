"""One rank of an emulated job: a process that joins the others, runs its program and tells what it saw."""

from __future__ import annotations

import ctypes
import hmac
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import BackendError, ChakrascopeError
from .. import engine
from ._channel import Channel, ChannelClosed, Message, read_exactly, signature
from ._wire import columns_to_wire, config_of

__all__ = ["Rank", "run_rank"]

_NONCE = 16
_HELLO = struct.Struct(">III")  # the ranks of both ends, and the path
_JOIN_S = 20.0
_REPORT_S = 0.1
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_TIMER_SLACK = 29  # PR_SET_TIMERSLACK
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Rank:
    """What an agent tells one of its ranks: which it is, where it may listen, and its host's namespace."""

    number: int
    addresses: tuple[str, ...]
    key: bytes
    namespace: str | None = None


def run_rank(rank: Rank, channel: Channel, job: Message) -> None:
    """Run the *job* to its end, and tell the agent at the other end of *channel* whatever comes of it."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    libc.prctl(_TIMER_SLACK, 1)
    if os.getppid() != parent:
        return
    try:
        if rank.namespace is not None:
            _enter(libc, rank.namespace)
        _run(rank, channel, job)
    except ChannelClosed:
        return
    except ChakrascopeError as error:
        _tell_failure(channel, type(error).__name__, error.message)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _tell_failure(channel, "BackendError", f"{error.strerror or error}{where}.")
    except MemoryError:
        _tell_failure(channel, "BackendError", "There is not enough memory for the rank.")


def _tell_failure(channel: Channel, kind: str, text: str) -> None:
    try:
        channel.send("failed", {"error": kind, "text": text})
    except ChannelClosed:
        sys.stderr.write(text + "\n")


def _enter(libc: ctypes.CDLL, path: str) -> None:
    """Move this process into the network namespace of that file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(descriptor)


def _run(rank: Rank, channel: Channel, job: Message) -> None:
    config, programs, order = config_of(job)
    listeners = [_listen(address) for address in rank.addresses]
    channel.send("listening", {"ends": [listener.getsockname()[:2] for listener in listeners]})
    ends = _expect(channel, "connect")["ends"]
    connections = _Meeting(rank, listeners, {int(peer): each for peer, each in ends.items()}).connections()
    for listener in listeners:
        listener.close()
    transport = engine.tcp_transport([(s.detach(), peer, path) for s, peer, path in connections])
    channel.send("ready")
    start_ns = int(_expect(channel, "start")["start_ns"])
    output = engine.emulate(config, programs, order, rank.number, transport, start_ns, _reporter(channel))
    _tell_output(channel, output)
    # A peer may not have heard yet that all is over: the connections stay until the agent ends this process.
    while True:
        channel.receive(_JOIN_S)


def _expect(channel: Channel, kind: str) -> dict[str, Any]:
    message = channel.receive(_JOIN_S * 3)
    if message.kind != kind:
        raise BackendError(f"A rank was told '{message.kind}' where '{kind}' was due.")
    return message.facts


def _reporter(channel: Channel) -> Callable[[int, bool, bool, int, int], bool]:
    """Return what the engine calls: tells the agent how far the rank is, and hears when to stop."""
    last: list[Any] = [0.0, None]

    def report(now_ns: int, finished: bool, waiting: bool, sent: int, received: int) -> bool:
        state = (finished, waiting, sent, received)
        now = time.monotonic()
        if state != last[1] and (now - last[0] > _REPORT_S or waiting):
            last[:] = now, state
            facts = {"finished": finished, "waiting": waiting, "sent": sent, "received": received}
            channel.send("progress", {"now_ns": now_ns, **facts})
        if not select.select([channel], [], [], 0)[0]:
            return True
        return not any(message.kind == "stop" for message in channel.pump())

    return report


def _tell_output(channel: Channel, output: engine.EmulationOutput) -> None:
    tables: dict[str, Mapping[str, Any]] = {
        "nodes": output.nodes,
        "sent": output.sent,
        "received": output.received,
    }
    names, pieces = columns_to_wire(tables)
    channel.send(
        "output",
        {
            "statistics": {key: _plain(value) for key, value in output.statistics.items()},
            "nodes_total": int(output.nodes_total),
            "nodes_executed": int(output.nodes_executed),
            "events": int(output.events),
            "overtaken": int(output.overtaken),
            "open": list(output.open),
            "peak_bytes": _peak_bytes(),
            "tables": names,
        },
        pieces,
    )


def _plain(value: float) -> float:
    return value if isinstance(value, int) or np.isfinite(value) else 0.0


def _peak_bytes() -> int:
    """Return the most memory that this process had, what it shares with its agent included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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
    """Connects a rank with all others: on every path the lower rank connects to the higher one.

    Every step needs only what all ranks did in the steps before, so that none waits for another in a ring.
    """

    def __init__(
        self, rank: Rank, listeners: list[socket.socket], ends: dict[int, list[tuple[str, int]]]
    ) -> None:
        self.rank = rank
        self.listeners = listeners
        self.ends = ends
        self.deadline = time.monotonic() + _JOIN_S

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
                raise BackendError(f"Rank {peer} did not take the connection of rank {own}.")
        return [*higher, *((each, peer, path) for (peer, path), each in found.items())]

    def _connect(self, peer: int, path: int) -> socket.socket:
        address, port = self.ends[peer][path % len(self.ends[peer])]
        own = self.rank.addresses[path % len(self.rank.addresses)]
        try:
            return socket.create_connection((address, port), timeout=_JOIN_S, source_address=(own, 0))
        except OSError as error:
            raise BackendError(
                f"Rank {self.rank.number} ({own}) cannot reach rank {peer} at {address}:{port} "
                f"({error.strerror or error}). Next: check the addresses of the hosts file, and that no "
                "firewall stands between them."
            ) from error

    def _accept(self, count: int) -> list[tuple[socket.socket, bytes]]:
        """Return that many connections, each with what its other end has to sign."""
        accepted: list[tuple[socket.socket, bytes]] = []
        while len(accepted) < count:
            left = self.deadline - time.monotonic()
            ready = select.select(self.listeners, [], [], max(left, 0))[0]
            if not ready:
                raise BackendError(
                    f"Rank {self.rank.number} waited {_JOIN_S:g} s for other ranks to connect. Next: check "
                    "the addresses of the hosts file, and that no firewall stands between them."
                )
            accepted += [self._invite(listener) for listener in ready]
        return accepted

    def _invite(self, listener: socket.socket) -> tuple[socket.socket, bytes]:
        each, _ = listener.accept()
        each.settimeout(_JOIN_S)
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
        """Return the sockets that proved to be what is expected; others are closed, and more awaited."""
        found: dict[tuple[int, int], socket.socket] = {}
        waiting = list(accepted)
        while len(found) < len(expected):
            if not waiting:
                waiting = self._accept(1)
            each, nonce = waiting.pop()
            whose = self._whose(each, nonce)
            if whose is None or whose in found or whose not in expected:
                each.close()
                continue
            each.sendall(b"ok")
            found[whose] = each
        return found

    def _whose(self, each: socket.socket, nonce: bytes) -> tuple[int, int] | None:
        try:
            hello = read_exactly(each, _HELLO.size)
            proof = read_exactly(each, 32)
        except (OSError, ChannelClosed):
            return None
        if not hmac.compare_digest(proof, signature(self.rank.key, nonce, hello)):
            return None
        peer, own, path = _HELLO.unpack(hello)
        return (peer, path) if own == self.rank.number else None
