"""The backend that simulates every packet: ranks in our engine, the network on ns-3's core."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pandas as pd

from ....errors import BackendError, SimulationStalled
from ..._experiment import Experiment
from ..._result import COLUMNS, Result
from ...config import NO_CONTROL, PacketNetwork
from .._base import Progress
from .._flows import completion_times
from .._native import MOST_OVERTAKING, NativeBackend
from .._process import backend_timeout_s
from ._build import build_driver
from ._driver import Arrival, LinkTotals, Message, PacketDriver

__all__ = ["Ns3Backend"]

_Attempt = TypeVar("_Attempt")


class Ns3Backend(NativeBackend):
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
        watch = _Watch(progress)
        program, ns3 = build_driver(watch.keep_going)

        def attempt(overtaking: int) -> tuple[Result, LinkTotals, pd.DataFrame]:
            with PacketDriver(program, packet, keep_going=watch.keep_going, timeout_s=timeout_s) as driver:
                flows = _Flows(driver, watch)
                result = self.simulate(experiment, watch.engine_progress, flows.advance, overtaking)
                return result, driver.totals(), flows.table()

        result, totals, table = _eased(experiment, attempt)
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


def _eased(experiment: Experiment, attempt: Callable[[int], _Attempt]) -> _Attempt:
    """Return the first *attempt* that does not stall; a captured job is given more and more freedom."""
    for overtaking in range(MOST_OVERTAKING if experiment.semantics == "trace" else 0):
        with contextlib.suppress(SimulationStalled):
            return attempt(overtaking)
    return attempt(MOST_OVERTAKING if experiment.semantics == "trace" else 0)


class _Watch:
    """Remembers how far both halves of the simulation are, for whoever asks for progress."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.now_ns = 0
        self.finished = 0

    def keep_going(self) -> bool:
        """Return whether the simulation may go on."""
        return self._progress is None or self._progress(self.now_ns, self.finished)

    def engine_progress(self, now_ns: int, finished: int) -> bool:
        """Take the engine's own report."""
        self.now_ns = max(self.now_ns, now_ns)
        self.finished = finished
        return self.keep_going()


class _Flows:
    """Stands between engine and driver, and keeps when each message was sent and how long it took."""

    def __init__(self, driver: PacketDriver, watch: _Watch) -> None:
        self._driver = driver
        self._watch = watch
        self._sent: dict[int, Message] = {}
        self._done: list[tuple[int, int, int, int, int]] = []

    def advance(self, messages: list[Message], limit_ns: int) -> list[Arrival]:
        """Hand *messages* over and return what arrived next."""
        for message in messages:
            self._sent[message[0]] = message
        arrivals = self._driver.advance(messages, limit_ns)
        if not arrivals and limit_ns < 0 and self._sent:
            raise BackendError(
                f"{len(self._sent)} messages never arrive: their packets were lost and RETRANSMIT_TIMEOUT is "
                "0, or switches pause each other in a deadlock; set RETRANSMIT_TIMEOUT (us), or give the "
                "switches a larger BUFFER_SIZE (MiB)."
            )
        for message_id, time_ns in arrivals:
            _, source, destination, size, start_ns = self._sent.pop(message_id)
            self._done.append((source, destination, size, start_ns, time_ns))
            self._watch.now_ns = max(self._watch.now_ns, time_ns)
        return arrivals

    def table(self) -> pd.DataFrame:
        """Return the table ``flows``: every message, in the order in which they arrived."""
        columns = list(COLUMNS["flows"])
        table: pd.DataFrame = pd.DataFrame(self._done, columns=columns).astype(COLUMNS["flows"])
        return table


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
