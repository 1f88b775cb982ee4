"""ns-3's TCP as a running program: the commands that describe a network to it, and its own reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ....errors import ConfigError
from ...config import Fabric, TcpPart
from ._driver import PacketDriver

__all__ = ["TcpDriver", "TcpTotals", "describe_tcp", "mark_thresholds", "open_before"]

_CONTROLS = {
    "bbr": "ns3::TcpBbr",
    "cubic": "chakrascope::tcp::HostCubic",
    "dctcp": "ns3::TcpDctcp",
    "newreno": "ns3::TcpNewReno",
    "reno": "ns3::TcpLinuxReno",
}
# The packets that a host's queue holds: Linux's defaults.
_HOST_PACKETS = {"fifo": 1000, "fq-codel": 10_240}
_TIMESTAMP_BYTES = 12  # TCP's option, which Linux sends with every segment
# Marks begin where DCTCP's authors had them: 65 packets at 10 Gbit/s, never fewer than 20.
_MARK_PACKETS = 65
_MARK_RATE_BPS = 10e9
_FEWEST_MARK_PACKETS = 20
_MOST_OPEN_BEFORE = 20_000  # connections, opened in a few seconds


def describe_tcp(fabric: Fabric, part: TcpPart) -> str:
    """Return the commands that build *fabric* with the TCP of *part*.

    Raises `ConfigError` where a folder for packets cannot be made.
    """
    settings = part.complete()
    lines = [f"set {name} {value}" for name, value in _settings(settings, len(fabric.hosts)).items()]
    lines += [f"set {name} {value}" for name, value in _outputs(settings)]
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
    """Return whether all *hosts* are connected before the job starts.

    The default, unless there are too many.
    """
    pairs: int = hosts * (hosts - 1) // 2 * settings["connections-per-pair"]
    given: str | None = settings["connect"]
    return given == "before" if given is not None else pairs <= _MOST_OPEN_BEFORE


def mark_thresholds(fabric: Fabric, settings: Mapping[str, Any]) -> dict[int, int]:
    """Return the queue length in bytes from which packets are marked, by the rate of the link.

    Often empty.
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
        rate: max(_FEWEST_MARK_PACKETS, math.ceil(_MARK_PACKETS * rate / _MARK_RATE_BPS)) for rate in rates
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
        # ns-3's timestamps are too coarse, but Linux's option takes its share of the wire.
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


def _outputs(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if settings["pcap"] is None:
        return
    folder = Path(settings["pcap"]).expanduser().resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {folder} for packets ('pcap' of 'tcp') cannot be made ({error.strerror}); name "
            "another."
        ) from error
    yield "PCAP", str(folder)
    if settings["flow-monitor"]:
        yield "FLOW_MONITOR_FILE", str(folder / "flow-monitor.xml")


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
    """Statistics of links, retransmissions by message, and flows from the flow monitor."""

    links: pd.DataFrame
    history: pd.DataFrame
    again: dict[int, int]
    monitored: list[dict[str, int]]
    segments: int
    events: int
    retransmissions: int
    timeouts: int


class TcpDriver(PacketDriver):
    """A driver program simulating the hosts and switches of *fabric* with the TCP of *part*.

    Nodes are numbered ranks first. Otherwise as `PacketDriver`.
    """

    def __init__(
        self,
        program: Path,
        fabric: Fabric,
        part: TcpPart,
        *,
        keep_going: Callable[[], bool] = lambda: True,
        timeout_s: float = 3600.0,
    ) -> None:
        numbered = fabric.hosts_first()
        commands = describe_tcp(numbered, part)
        super().__init__(program, numbered, commands, keep_going=keep_going, timeout_s=timeout_s)

    def tcp_totals(self) -> TcpTotals:
        """Return the statistics so far."""
        rows, (segments, events, retransmissions, timeouts) = self.report()
        monitored = [dict(zip(_FLOW_FIELDS, row, strict=True)) for row in rows["f"]]
        again = {row[0]: row[1] for row in rows["r"]}
        links, history = self.link_tables(rows, _LINK_FIELDS)
        return TcpTotals(links, history, again, monitored, segments, events, retransmissions, timeouts)
