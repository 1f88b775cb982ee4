"""The running ns-3 program, in lockstep with the engine's clock: commands, arrivals and reports."""

from __future__ import annotations

import contextlib
import math
import os
import select
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import pandas as pd

from ....errors import BackendError, BackendTimeout, BackendUnavailable, Cancelled
from ....support import Lifeline
from ..._result import COLUMNS
from ...config import Fabric, TcpPart
from .._process import describe_exit

Message = tuple[int, int, int, int, int]
"""Id, source host, destination host, bytes, and send time in ns."""

Arrival = tuple[int, int]
"""Id of a message, and when it was completely received, in ns."""

_POLL_S = 0.1
_CHUNK = 1 << 16


class TcpDriver:
    """A context manager for the program that simulates *fabric* with the TCP settings of *part*.

    Nodes are numbered with the ranks first, then the switches. Packets are recorded in the folder
    *pcap*, if one is given. While the program works, *may_continue* is called ten times a second; if it
    returns False, `Cancelled` is raised. An answer that takes longer than *timeout_s* seconds raises
    `BackendTimeout`.
    """

    def __init__(
        self,
        program: Path,
        fabric: Fabric,
        part: TcpPart,
        *,
        pcap: Path | None = None,
        may_continue: Callable[[], bool] = lambda: True,
        timeout_s: float = 3600.0,
    ) -> None:
        fabric = fabric.hosts_first()
        commands = describe_tcp(fabric, part, pcap)
        self._keep_going = may_continue
        self._next_tick = time.monotonic()
        self._deadline = self._next_tick + timeout_s
        self._timeout_s = timeout_s
        self._hosts = fabric.hosts
        self._switches = sorted(fabric.switches)
        self._rest = b""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the program
        self._lifeline = Lifeline()
        try:
            self._process = self._lifeline.start(
                [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError as error:
            self._lifeline.close()
            self._errors.close()
            raise BackendUnavailable(
                f"The compiled model of TCP {program} cannot be started ({error.strerror}); delete it, "
                "and it is compiled again."
            ) from error
        try:
            if self._process.stdin is not None:
                os.set_blocking(self._process.stdin.fileno(), False)
            self._ask(commands, until="ready")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TcpDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the ns-3 program."""
        self._lifeline.close()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def advance(self, messages: Sequence[Message], limit_ns: int) -> list[Arrival]:
        """Send *messages* and simulate until a message arrives, but not past *limit_ns* (-1: no limit).

        Returns every message that arrives at that time, rounded up to whole ns. The list is empty
        if the limit was reached or no message is in flight.
        """
        hosts = self._hosts
        lines = [f"send {m} {hosts[a]} {hosts[b]} {size} {at * 1000}\n" for m, a, b, size, at in messages]
        lines.append(f"run {limit_ns * 1000 if limit_ns >= 0 else -1}\n")
        return [_arrival(line) for line in self._ask("".join(lines), until="now")]

    def tcp_totals(self) -> TcpTotals:
        """Return ns-3's statistics of links, retransmissions and flows up to the current time."""
        rows: dict[str, list[list[int]]] = defaultdict(list)
        for line in self._ask("links\n", until="end", keep_last=True):
            kind, *words = line.split(" ")
            rows[kind].append([int(word) for word in words])
        monitored = [dict(zip(_FLOW_FIELDS, row, strict=True)) for row in rows["f"]]
        resent = {row[0]: row[1] for row in rows["r"]}
        links = pd.DataFrame(rows["l"], columns=list(_LINK_FIELDS))
        history = _history(rows["u"])
        order = {node: rank for rank, node in enumerate(self._hosts)}
        # Switches are numbered even if all their links are down.
        order |= {node: len(self._hosts) + index for index, node in enumerate(self._switches)}
        for table in (links, history):
            table["src"], table["dst"] = table["src"].map(order), table["dst"].map(order)
        return TcpTotals(links, history, resent, monitored, *rows["end"][0])

    def _ask(self, text: str, *, until: str, keep_last: bool = False) -> list[str]:
        """Send *text* and return the answer, up to the line that starts with *until*."""
        self._write(text.encode())
        lines: list[str] = []
        for line in self._read_lines():
            if line.startswith("error "):
                raise BackendError(f"The model of TCP refused the experiment: {line[6:]}.")
            if line.split(" ", 1)[0] == until:
                return [*lines, line] if keep_last else lines
            lines.append(line)
        raise self._died()

    def _write(self, data: bytes) -> None:
        """Write all of *data* to the ns-3 program, however slowly it reads."""
        stream = self._process.stdin
        if stream is None:
            return
        rest = memoryview(data)
        while rest:
            self._tick()
            if select.select([], [stream], [], _POLL_S)[1]:
                try:
                    rest = rest[os.write(stream.fileno(), rest[:_CHUNK]) :]
                except OSError:
                    # The program's last output explains the failure better than a broken pipe.
                    return

    def _read_lines(self) -> Iterator[str]:
        """Yield the ns-3 program's output line by line until it closes the pipe."""
        while True:
            # The program writes nothing after the end of an answer, so no line is read too early.
            *lines, self._rest = self._rest.split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
            chunk = self._read()
            if not chunk:
                return
            self._rest += chunk

    def _read(self) -> bytes:
        """Return the next bytes that the ns-3 program writes; empty at its end."""
        stream = self._process.stdout
        if stream is None:
            return b""
        self._tick()
        while not select.select([stream], [], [], _POLL_S)[0]:
            self._tick()
        return os.read(stream.fileno(), _CHUNK)

    def _tick(self) -> None:
        """Check whether to continue, at most ten times a second."""
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + _POLL_S
        if not self._keep_going():
            raise Cancelled("The packet-level simulation was cancelled.")
        if now > self._deadline:
            raise BackendTimeout(
                f"The packet-level simulation did not finish within {self._timeout_s:g} s; allow more time "
                "with CHAKRASCOPE_BACKEND_TIMEOUT, or simulate smaller messages or fewer ranks."
            )

    def _died(self) -> BackendError:
        status = self._process.wait()
        self._errors.seek(0)
        output = self._errors.read()[-600:].decode("utf-8", "replace").strip()
        last = f" Its last output: {' | '.join(output.splitlines()[-3:])}." if output else ""
        return BackendError(
            f"The model of TCP ended in the middle of a simulation: {describe_exit(status)}.{last} Next: "
            "simulate a smaller network, or report this error with the experiment."
        )


def _arrival(line: str) -> Arrival:
    """Return the arrival in a line of output, its time rounded up to whole ns."""
    try:
        _, message, time_ps = line.split(" ")
        return int(message), -(-int(time_ps) // 1000)
    except ValueError as error:
        raise BackendError(
            f"The TCP model gave an invalid answer ('{line[:80]}'); delete the folder "
            "chakrascope/ns3 in your cache, and it is compiled again."
        ) from error


def _history(rows: list[list[int]]) -> pd.DataFrame:
    """Return ``src, dst, start_ns, end_ns, bytes`` of the equally long intervals that have traffic."""
    widest = max((row[2] for row in rows), default=1)
    parts = []
    for src, dst, width, *counts in rows:
        # Interval lengths differ by powers of two, so shorter intervals add up to the longest.
        sums = np.add.reduceat(counts, np.arange(0, len(counts), widest // width))
        used = np.flatnonzero(sums)
        start_ns = used * (widest // 1000)
        times = {"start_ns": start_ns, "end_ns": start_ns + widest // 1000}
        parts.append(pd.DataFrame({"src": src, "dst": dst, **times, "bytes": sums[used]}))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS["link_use"]))
    table: pd.DataFrame = whole.astype(COLUMNS["link_use"])
    return table


_CONTROLS = {
    "bbr": "ns3::TcpBbr",
    "cubic": "chakrascope::tcp::HostCubic",
    "dctcp": "ns3::TcpDctcp",
    "newreno": "ns3::TcpNewReno",
    "reno": "ns3::TcpLinuxReno",
}
# Linux's default queue capacities of a host, in packets.
_HOST_PACKETS = {"fifo": 1000, "fq-codel": 10_240}
_TIMESTAMP_BYTES = 12  # Linux sends this TCP option with every segment
# The marking threshold of the DCTCP paper: 65 packets at 10 Gbit/s, and never under 20 packets.
_MARK_PACKETS = 65
_MARK_RATE_BPS = 10e9
_MIN_MARK_PACKETS = 20
_MAX_OPEN_BEFORE = 20_000  # ns-3 opens this many connections in a few seconds


def describe_tcp(fabric: Fabric, part: TcpPart, pcap: Path | None) -> str:
    """Return the driver's commands that build *fabric* with the TCP settings of *part*.

    *pcap* is the folder for packets, if they are recorded.
    """
    settings = part.complete()
    lines = [f"set {name} {value}" for name, value in _settings(settings, len(fabric.hosts)).items()]
    if pcap is not None:
        lines.append(f"set PCAP {pcap}")
        lines += [f"set FLOW_MONITOR_FILE {pcap}/flow-monitor.xml"] if settings["flow-monitor"] else []
    lines.append(" ".join(map(str, ["nodes", fabric.nodes, *fabric.switches])))
    marks = mark_thresholds(fabric, settings)
    lines += [
        f"link {link.a} {link.b} {link.rate_bps} {link.delay_ps} {link.loss!r} {marks.get(link.rate_bps, 0)}"
        for link in fabric.links
    ]
    lines += [f"change {1000 * time_ns} {link} {rate_bps}" for time_ns, link, rate_bps in fabric.changes]
    lines.append("build")
    return "\n".join(lines) + "\n"


def open_before(settings: Mapping[str, Any], hosts: int) -> bool:
    """Return whether all *hosts* connect to each other before the job starts.

    By default they do, unless there are too many connections.
    """
    pairs: int = hosts * (hosts - 1) // 2 * settings["connections-per-pair"]
    given: str | None = settings["connect"]
    return given == "before" if given is not None else pairs <= _MAX_OPEN_BEFORE


def mark_thresholds(fabric: Fabric, settings: Mapping[str, Any]) -> dict[int, int]:
    """Return the queue length in bytes above which packets are marked, keyed by link rate in bit/s.

    The result is empty if the settings do not mark packets.
    """
    if settings["queue-disc"] != "red" or settings["red-thresholds"]:
        return {}
    if settings["ecn-threshold"] is None and settings["congestion-control"] != "dctcp":
        return {}
    rates = sorted({link.rate_bps for link in fabric.links})
    if settings["ecn-threshold"] is not None:
        return dict.fromkeys(rates, settings["ecn-threshold"])
    most = settings["buffer"] // 2
    packets = {
        rate: max(_MIN_MARK_PACKETS, math.ceil(_MARK_PACKETS * rate / _MARK_RATE_BPS)) for rate in rates
    }
    return {rate: min(count * settings["mtu"], most) for rate, count in packets.items()}


def _settings(settings: Mapping[str, Any], hosts: int) -> dict[str, Any]:
    low, high = settings["red-thresholds"] or (settings["buffer"] // 6, settings["buffer"] // 2)
    return {
        "ACK_EVERY": settings["ack-every"],
        "BUFFER": settings["buffer"],
        "CONNECTIONS": settings["connections-per-pair"],
        "CONNECT_FIRST": int(open_before(settings, hosts)),
        "CONTROL": _CONTROLS[settings["congestion-control"]],
        "DELAYED_ACK_NS": settings["delayed-ack"],
        "ECN": int(settings["ecn"]),
        "FLOW_MONITOR": int(settings["flow-monitor"]),
        # ns-3's timestamps are too coarse to enable, but the option's bytes count on the wire.
        "FRAME_OVERHEAD": settings["frame-overhead"] + _TIMESTAMP_BYTES,
        "HOST_DISC": settings["host-queue-disc"],
        "HOST_PACKETS": _HOST_PACKETS[settings["host-queue-disc"]],
        "INITIAL_WINDOW": settings["initial-window"],
        "LIMIT_OUTPUT_BYTES": settings["limit-output-bytes"],
        "MESSAGE_HEADER": settings["message-header"],
        "MIN_RTO_NS": settings["min-rto"],
        "MSS": settings["mss"],
        "MTU": settings["mtu"],
        "RECEIVE_BUFFER": settings["receive-buffer"],
        "RED_MAX": high,
        "RED_MIN": low,
        "SEED": settings["seed"],
        "SEND_BUFFER": settings["send-buffer"],
        "SLOW_START_AFTER_IDLE": int(settings["slow-start-after-idle"]),
        "SWITCH_DISC": settings["queue-disc"],
    }


_LINK_FIELDS = (
    *("src", "dst", "bytes", "busy_ps", "queue_ps"),
    *("packets", "drops", "marks", "largest_queue_bytes"),
)
_FLOW_FIELDS = (
    *("src", "dst", "src_port", "dst_port", "sent_packets", "received_packets"),
    *("sent_bytes", "received_bytes", "lost_packets", "delay_sum_ns", "jitter_sum_ns"),
)


@dataclass(frozen=True)
class TcpTotals:
    """ns-3's statistics: link traffic, retransmissions per message, and the flow monitor's flows."""

    links: pd.DataFrame
    history: pd.DataFrame
    resent: dict[int, int]
    monitored: list[dict[str, int]]
    segments: int
    events: int
    retransmissions: int
    timeouts: int
