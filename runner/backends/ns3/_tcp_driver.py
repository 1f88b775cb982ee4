"""ns-3's TCP as a running program, with its own reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ...config import Fabric, TcpPart
from ._driver import PacketDriver
from ._tcp_commands import describe_tcp

__all__ = ["TcpDriver", "TcpTotals"]

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
