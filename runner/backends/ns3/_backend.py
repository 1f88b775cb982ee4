"""The backend that simulates every packet: ranks in our engine, the network on ns-3's core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from ..._experiment import Experiment
from ..._result import COLUMNS, Result
from ...config import NO_CONTROL, PacketNetwork
from .._base import Progress
from .._flows import completion_times
from .._native import NativeBackend
from .._process import backend_timeout_s
from ._build import build_driver
from ._driver import LinkTotals, PacketDriver
from ._exchange import Flows, Watch, eased

__all__ = ["RoceBackend"]

_NEVER = (
    "their packets were lost and RETRANSMIT_TIMEOUT is 0, or switches pause each other in a deadlock; set "
    "RETRANSMIT_TIMEOUT (us), or give the switches a larger BUFFER_SIZE (MiB)."
)


class RoceBackend(NativeBackend):
    """Simulates the packets of every message: windows, acknowledgements, queues, marks and pauses.

    Hosts, switches and links come from the network's ``packet`` part, or are made from its dimensions.
    *timeout_s* limits a run as for the other programs: by default ``CHAKRASCOPE_BACKEND_TIMEOUT``.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        super().__init__(congestion_aware=False)
        self.timeout_s = timeout_s

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `BackendUnavailable` without ns-3 or a compiler."""
        packet = PacketNetwork.of(experiment.network)
        timeout_s = backend_timeout_s() if self.timeout_s is None else self.timeout_s
        watch = Watch(progress)
        program, ns3 = build_driver(watch.keep_going)

        def attempt(overtaking: int) -> tuple[Result, LinkTotals, pd.DataFrame]:
            with PacketDriver(program, packet, keep_going=watch.keep_going, timeout_s=timeout_s) as driver:
                flows = Flows(driver, watch, _NEVER)
                result = self.simulate(experiment, watch.engine_progress, flows.advance, overtaking)
                return result, driver.totals(), flows.table()

        result, totals, table = eased(experiment, attempt)
        facts = {"versions": result.provenance["versions"] | {"ns-3": ns3.version}} | _facts(totals, table)
        warnings = [*result.provenance["warnings"], *packet.warnings(), *_drops(totals)]
        assumptions = [*result.provenance["assumptions"], *_assumptions(packet)]
        return replace(
            result,
            links=_link_table(totals.links),
            flows=table,
            link_use=totals.history,
            provenance=result.provenance | facts | {"warnings": warnings, "assumptions": assumptions},
        )


def _link_table(links: pd.DataFrame) -> pd.DataFrame:
    table: pd.DataFrame = pd.DataFrame(
        {
            "src": links["src"],
            "dst": links["dst"],
            "bytes": links["bytes"],
            "busy_ns": links["busy_ps"] // 1000,
            "queue_ns": links["queue_ps"] // 1000,
            "messages": links["packets"],
        }
    ).astype(COLUMNS["links"])
    return table


def _facts(totals: LinkTotals, flows: pd.DataFrame) -> dict[str, Any]:
    """Return what only a packet-level simulation knows, for the provenance."""
    links = totals.links
    facts: dict[str, Any] = {
        "data_packets": totals.data_packets,
        "network_events": totals.events,
        "pause_frames": int(links["pauses"].sum()),
        "paused_ns": int(links["paused_ps"].sum() // 1000),
        "drops": int(links["drops"].sum()),
        "largest_queue_bytes": max(links["largest_queue_bytes"].tolist(), default=0),
    }
    times = completion_times(flows)
    if times:
        facts["flow_completion_ns"] = times
    return {"packets": facts}


def _assumptions(packet: PacketNetwork) -> list[str]:
    if packet.settings["CC_MODE"] != NO_CONTROL:
        return []
    return ["Senders have no congestion control (CC_MODE 12): only windows and pauses limit them."]


def _drops(totals: LinkTotals) -> list[str]:
    dropped = int(totals.links["drops"].sum())
    return [f"{dropped} packets were lost and sent again."] if dropped else []
