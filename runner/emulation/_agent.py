"""The agent of a host and the offset of its clock.

The agent joins a coordinator, starts the host's ranks, and always ends the ranks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BackendError, BackendUnavailable
from ._wire import Channel, ChannelClosed, Message, Rank, algorithms_of, challenge, pair, signature
from ._worker import run_rank


@dataclass(frozen=True)
class ClockEstimate:
    """The offset of a host's clock from the coordinator's clock at time *at_ns*, within *error_ns*."""

    at_ns: int
    offset_ns: int
    error_ns: int


def estimate(round_trips: Iterable[tuple[int, int, int]]) -> ClockEstimate:
    """Return the offset from the fastest of the *round_trips* (sent, host's clock, returned; ns).

    The host read its clock during the round trip, so the offset is known within half of the round-trip time.
    """
    sent, theirs, back = min(round_trips, key=lambda trip: trip[2] - trip[0])
    middle = (sent + back) // 2
    return ClockEstimate(middle, theirs - middle, (back - sent + 1) // 2)


@dataclass(frozen=True)
class HostClock:
    """A host's clock, estimated before and after a run; *shared* means that it is the coordinator's clock."""

    before: ClockEstimate
    after: ClockEstimate
    shared: bool = False

    @property
    def drift_ppm(self) -> float:
        """The clock drift relative to the coordinator's clock, in ppm."""
        elapsed = self.after.at_ns - self.before.at_ns
        if self.shared or elapsed <= 0:
            return 0.0
        return 1e6 * (self.after.offset_ns - self.before.offset_ns) / elapsed

    @property
    def error_ns(self) -> int:
        """The upper bound of the error of the host's corrected times, in ns."""
        return 0 if self.shared else max(self.before.error_ns, self.after.error_ns)

    def corrected(self, since_start_ns: npt.NDArray[np.int64], start_ns: int) -> npt.NDArray[np.int64]:
        """Convert the host's times to times since *start_ns* of the coordinator's clock.

        Times below 0, which mean that an event never happened, are not changed.
        """
        if self.shared:
            return since_start_ns
        drift = self.drift_ppm / 1e6
        shift = drift * (since_start_ns + (start_ns - self.before.at_ns)) / (1 + drift)
        moved = np.maximum(since_start_ns - np.rint(shift).astype(np.int64), 0)
        return np.where(since_start_ns < 0, since_start_ns, moved)

    def to_json(self) -> dict[str, Any]:
        """Return the figures for a result's provenance."""
        offset = 0 if self.shared else self.before.offset_ns
        return {
            "clock_offset_ns": offset,
            "clock_drift_ppm": round(self.drift_ppm, 3),
            "clock_error_ns": self.error_ns,
            "clock_shared": self.shared,
        }


def clock_name() -> str:
    """Return a name that two processes share only if they read the same monotonic clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""


PROTOCOL = 2
_ALIVE_S = 0.5
_SILENCE_S = 10.0  # longest time without a message of the coordinator, which sends one every second
_RETRY_S = 0.2
_MAX_RANKS = 1024


@dataclass
class _Child:
    """A running rank process of an agent."""

    pid: int
    channel: Channel


def join(
    address: tuple[str, int], secret: bytes, hosts: Mapping[str, str | None], *, wait_s: float, limit_s: float
) -> bool:
    """Serve the coordinator at *address* until the session ends; return whether a coordinator was found.

    *hosts* maps the names of the agent's hosts to network namespace files, or to None without a namespace.
    The agent waits *wait_s* seconds for the coordinator, and ends ranks that run for longer than *limit_s*
    seconds. Raises `Refused` if the coordinator does not know *secret*, and `ChannelClosed` if the connection
    is lost.
    """
    connection = _connect(address, wait_s)
    if connection is None:
        return False
    with connection:
        channel = challenge(connection, secret)
        Agent(channel, secret, hosts, limit_s).serve()
    return True


def _connect(address: tuple[str, int], wait_s: float) -> socket.socket | None:
    """Return a connection to *address* after trying for up to *wait_s* seconds, or None."""
    try:
        socket.getaddrinfo(*address)
    except socket.gaierror as error:
        raise BackendUnavailable(f"There is no host '{address[0]}' ({error.strerror}).") from error
    deadline = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(OSError):
            return socket.create_connection(address, timeout=max(min(wait_s, 5.0), _RETRY_S))
        if time.monotonic() >= deadline:
            return None
        time.sleep(_RETRY_S)


class Agent:
    """The agent's side of a session, which executes the coordinator's commands."""

    def __init__(
        self,
        channel: Channel,
        secret: bytes,
        hosts: Mapping[str, str | None],
        limit_s: float,
    ) -> None:
        self.channel = channel
        self.secret = secret
        self.hosts = dict(hosts)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.limit_s = limit_s
        self._job: Message | None = None
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._last_sent = self._last_received = time.monotonic()
        self._deadline: float | None = None

    def serve(self) -> None:
        """Execute commands until the coordinator ends the session, and finally end all ranks in any case."""
        self._selector.register(self.channel, selectors.EVENT_READ)
        try:
            self._send(
                "hello", protocol=PROTOCOL, hosts=list(self.hosts), clock=clock_name(), pid=os.getpid()
            )
            while self._step():
                pass
        finally:
            self._end_children()
            self._selector.close()
            if self._folder is not None:
                self._folder.cleanup()

    def _step(self) -> bool:
        for key, _ in self._selector.select(timeout=_ALIVE_S / 2):
            if key.fileobj is self.channel:
                for message in self.channel.pump():
                    self._last_received = time.monotonic()
                    if message.kind == "bye":
                        return False
                    self._obey(message)
            else:
                self._relay(key.data)
        now = time.monotonic()
        if now - self._last_sent > _ALIVE_S:
            self._send("alive")
        if now - self._last_received > _SILENCE_S:
            raise ChannelClosed(f"The coordinator was silent for {_SILENCE_S:g} s.")
        if self._deadline is not None and now > self._deadline:
            self._end_children()
            text = f"The agent ends ranks after {self.limit_s:g} s. Next: start it with a larger --limit."
            self._send("failed", rank=-1, error="BackendTimeout", text=text)
        return True

    def _send(self, kind: str, pieces: Iterable[bytes] = (), **facts: Any) -> None:
        self._last_sent = time.monotonic()
        self.channel.send(kind, facts, list(pieces))

    def _obey(self, message: Message) -> None:
        if message.kind == "ping":
            self._send("pong", mine_ns=time.monotonic_ns(), **message.facts)
        elif message.kind == "job":
            self._keep(message)
        elif message.kind == "launch":
            self._launch(message.facts)
        elif message.kind in ("connect", "start", "stop"):
            for child in self._children.values():
                with contextlib.suppress(ChannelClosed):  # the loss of a rank is reported later
                    child.channel.send(message.kind, message.facts)
        elif message.kind == "end":
            self._end_children()
            self._send("ended")

    def _keep(self, message: Message) -> None:
        """Store the job, and put its algorithm files into a folder that is removed when the agent ends."""
        folder = ""
        try:
            for name, content in algorithms_of(message).items():
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="chakrascope-agent-")
                folder = self._folder.name
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        except OSError as error:
            text = (
                f"The files of algorithms cannot be written to {tempfile.gettempdir()} on "
                f"{', '.join(self.hosts)} ({error.strerror}). Next: free some disk space there, or "
                "set TMPDIR."
            )
            self._send("failed", rank=-1, error="BackendError", text=text)
            return
        self._job = Message("job", message.facts | {"folder": folder}, message.pieces)
        self._send("kept")

    def _launch(self, facts: Mapping[str, Any]) -> None:
        job = self._job
        ranks = facts["ranks"]
        if job is None or self._children or len(ranks) > _MAX_RANKS:
            raise BackendError("The coordinator started ranks without a job, or too many of them.")
        key = signature(self.secret, b"ranks", bytes.fromhex(facts["nonce"]))
        self._deadline = time.monotonic() + self.limit_s
        for task in ranks:
            if task["host"] not in self.hosts:
                raise BackendError(
                    f"The coordinator expects the host '{task['host']}', but this agent serves another host."
                )
            addresses = tuple(map(str, task["addresses"]))
            namespace = self.hosts[task["host"]]
            self._fork(Rank(int(task["rank"]), addresses, key, str(facts["transport"]), namespace), job)

    def _fork(self, rank: Rank, job: Message) -> None:
        ours, theirs = pair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                ours.close()
                self.channel.close()
                for child in self._children.values():
                    child.channel.close()
                run_rank(rank, theirs, job)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        self._children[rank.number] = _Child(pid, ours)
        self._selector.register(ours, selectors.EVENT_READ, rank.number)

    def _relay(self, rank: int) -> None:
        """Forward a rank's report, or a notice that the rank has ended, to the coordinator."""
        child = self._children.get(rank)
        if child is None:
            return
        try:
            for message in child.channel.pump():
                self._send(message.kind, message.pieces, rank=rank, **message.facts)
        except ChannelClosed:
            status = self._reap(rank)
            self._send("gone", rank=rank, status=status)

    def _reap(self, rank: int) -> int:
        child = self._children.pop(rank)
        self._selector.unregister(child.channel)
        child.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])

    def _end_children(self) -> None:
        self._deadline = None
        for rank in list(self._children):
            self._reap(rank)
