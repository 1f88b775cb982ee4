"""Connect all ranks by TCP connections, which are authenticated by the key of the run."""

from __future__ import annotations

import hmac
import os
import select
import socket
import struct
import time
from typing import Any

from ...errors import BackendError
from .. import engine
from ._wire import JOIN_S, ChannelClosed, Rank, read_exactly, signature

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
