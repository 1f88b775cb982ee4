"""The backend for ns-3's TCP model, which passes messages between the engine and the ns-3 program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pandas as pd

from ....errors import BackendError, SimulationStalled
from ..._experiment import Experiment
from ..._memory import within_memory
from ..._result import COLUMNS, Result, TemporaryFolder
from ...config import Fabric, NetworkConfig, TcpPart
from .._base import Backend, Progress
from .._engine import MAX_OVERTAKING, EngineBackend
from .._outcome import completion_times, more_provenance
from .._packet import packet_backend
from .._process import backend_timeout_s
from ._build import build_driver
from ._tcp_driver import Arrival, Message, TcpDriver, TcpTotals, mark_thresholds, open_before

_Attempt = TypeVar("_Attempt")


def eased(experiment: Experiment, attempt: Callable[[int], _Attempt]) -> _Attempt:
    """Call *attempt* with rising degrees of overtaking until a captured job no longer stalls."""
    for overtaking in range(MAX_OVERTAKING if experiment.semantics == "trace" else 0):
        with contextlib.suppress(SimulationStalled):
            return attempt(overtaking)
    return attempt(MAX_OVERTAKING if experiment.semantics == "trace" else 0)


class Watch:
    """The progress of the engine and of the ns-3 program in one simulation."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.now_ns = 0
        self.finished = 0

    def may_continue(self) -> bool:
        """Return whether the simulation may continue."""
        return self._progress is None or self._progress(self.now_ns, self.finished)

    def engine_progress(self, now_ns: int, finished: int) -> bool:
        """Record the engine's progress; return whether the simulation may continue."""
        self.now_ns = max(self.now_ns, now_ns)
        self.finished = finished
        return self.may_continue()


class Flows:
    """Passes messages from the engine to ns-3, and records when each was sent and how long it took."""

    def __init__(self, driver: TcpDriver, watch: Watch) -> None:
        self._driver = driver
        self._watch = watch
        self._sent: dict[int, Message] = {}
        self._done: list[tuple[int, int, int, int, int]] = []
        self._ids: list[int] = []

    def advance(self, messages: list[Message], limit_ns: int) -> list[Arrival]:
        """Send *messages* to ns-3 and return the next arrivals, up to *limit_ns*."""
        for message in messages:
            self._sent[message[0]] = message
        arrivals = self._driver.advance(messages, limit_ns)
        if not arrivals and limit_ns < 0 and self._sent:
            raise BackendError(
                f"{len(self._sent)} messages never arrive: the connections lose every segment; check the "
                "losses of the links."
            )
        for message_id, time_ns in arrivals:
            _, source, destination, size, start_ns = self._sent.pop(message_id)
            self._ids.append(message_id)
            self._done.append((source, destination, size, start_ns, time_ns))
            self._watch.now_ns = max(self._watch.now_ns, time_ns)
        return arrivals

    def table(self, resent: Mapping[int, int]) -> pd.DataFrame:
        """Return the table ``flows`` of all messages in order of arrival; *resent* counts their segments."""
        table = pd.DataFrame(self._done, columns=list(COLUMNS["flows"])).astype(COLUMNS["flows"])
        table["retransmissions"] = pd.Series([resent.get(one, 0) for one in self._ids], dtype="int64")
        frame: pd.DataFrame = table
        return frame


_ALIAS = (
    "The backend 'ns3' on a RoCE network is 'packet', the engine's own packet model; ns-3 has no part in it."
)
_MAX_MONITORED = 10_000
_MAX_NAMED = 5
_OF_LINKS = {"ERROR_RATE_PER_LINK", "LINK_DOWN"}  # packet settings that TCP also uses


def ns3_backend(_name: str) -> Ns3Backend:
    """Return the backend ``ns3``, which simulates TCP or RoCE packet by packet."""
    return Ns3Backend()


class Ns3Backend:
    """Simulates TCP with ns-3; networks with RoCE settings (``packet``) use the engine's packet model."""

    def __init__(self) -> None:
        self.tcp = TcpBackend()
        self.roce = packet_backend(notes=(_ALIAS,))

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `BackendUnavailable` without ns-3 or a compiler."""
        chosen: Backend = self.tcp if experiment.network.is_tcp else self.roce
        return chosen.run(experiment, progress)


class TcpBackend:
    """Simulates ns-3's TCP between the ranks: segments, acknowledgements, queues, losses and timeouts.

    Hosts, switches and links come from the network's fabric (``packet``, ``links``) or its
    dimensions, and everything else from its ``tcp`` part. *timeout_s* limits the run time in
    seconds (default: ``CHAKRASCOPE_BACKEND_TIMEOUT``).
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        self.timeout_s = timeout_s

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `BackendUnavailable` without ns-3 or a compiler."""
        with within_memory(experiment.workload.num_ranks):
            fabric = experiment.fabric
        part = experiment.network.tcp or TcpPart()
        timeout_s = backend_timeout_s() if self.timeout_s is None else self.timeout_s
        watch, engine = Watch(progress), EngineBackend()
        program, ns3 = build_driver(watch.may_continue)
        pcap = TemporaryFolder() if part.complete()["pcap"] else None

        def attempt(overtaking: int) -> tuple[Result, TcpTotals, pd.DataFrame]:
            driver = TcpDriver(
                program,
                fabric,
                part,
                pcap=None if pcap is None else pcap.path,
                may_continue=watch.may_continue,
                timeout_s=timeout_s,
            )
            with driver:
                flows = Flows(driver, watch)
                result = engine.simulate(experiment, watch.engine_progress, flows.advance, overtaking)
                totals = driver.tcp_totals()
                return result, totals, flows.table(totals.resent)

        result, totals, table = eased(experiment, attempt)
        facts = {"versions": result.provenance["versions"] | {"ns-3": ns3.version}} | _facts(totals, table)
        provenance = more_provenance(
            result.provenance,
            facts,
            warnings=_warnings(experiment.network, totals),
            assumptions=_assumptions(fabric, part, result.makespan_ns),
        )
        return replace(
            result,
            links=_link_table(totals.links),
            flows=table,
            link_use=totals.history,
            pcap=pcap,
            provenance=provenance,
        )


def _link_table(links: pd.DataFrame) -> pd.DataFrame:
    """Add columns for dropped packets, marked packets and the longest queue to the table ``links``."""
    times = {"busy_ns": links["busy_ps"] // 1000, "queue_ns": links["queue_ps"] // 1000}
    table = links.assign(**times, messages=links["packets"])
    kinds = COLUMNS["links"] | dict.fromkeys(("drops", "marks", "largest_queue_bytes"), "int64")
    frame: pd.DataFrame = table[list(kinds)].astype(kinds)
    return frame


def _facts(totals: TcpTotals, flows: pd.DataFrame) -> dict[str, Any]:
    """Return the provenance of a TCP simulation."""
    links = totals.links
    facts: dict[str, Any] = {
        "data_packets": totals.segments,
        "network_events": totals.events,
        "retransmissions": totals.retransmissions,
        "timeouts": totals.timeouts,
        "drops": int(links["drops"].sum()),
        "marks": int(links["marks"].sum()),
        "largest_queue_bytes": max(links["largest_queue_bytes"].tolist(), default=0),
    }
    facts |= completion_times(flows)
    if totals.monitored:
        facts["flow_monitor"] = totals.monitored[:_MAX_MONITORED]
    return {"packets": facts}


def _warnings(network: NetworkConfig, totals: TcpTotals) -> list[str]:
    sentences = []
    given = set() if network.packet is None else set(network.packet.settings) - _OF_LINKS
    if given:
        more = f" and {len(given) - _MAX_NAMED} more" if len(given) > _MAX_NAMED else ""
        names = ", ".join(sorted(given)[:_MAX_NAMED])
        sentences.append(f"Settings of RoCE have no effect on TCP: {names}{more}.")
    if totals.retransmissions:
        sentences.append(
            f"{totals.retransmissions} segments were sent again after {int(totals.links['drops'].sum())} "
            f"losses and {totals.timeouts} timeouts."
        )
    left = len(totals.monitored) - _MAX_MONITORED
    if left > 0:
        sentences.append(
            f"{left} more flows of the flow monitor are only in its file, next to the recorded packets."
        )
    return sentences


def _assumptions(fabric: Fabric, part: TcpPart, makespan_ns: int) -> list[str]:
    settings = part.complete()
    sentences = part.assumptions()
    later = [change.time_ns for change in fabric.changes if change.time_ns > makespan_ns]
    if later:
        sentences.append(f"The job ended before the link change at {later[0]} ns.")
    if len(later) < len(fabric.changes):
        sentences.append(
            "A link that goes down loses the segments on the link and in its queue; TCP sends them again. "
            "Queues and marking thresholds do not change with the rate of a link."
        )
    marks = mark_thresholds(fabric, settings)
    if marks and settings["ecn-threshold"] is None:
        words = ", ".join(f"{count} B at {rate / 1e9:g} Gbit/s" for rate, count in marks.items())
        sentences.append(
            f"Switches mark all packets if the queue has at least {words} (at most half the buffer)."
        )
    if open_before(settings, len(fabric.hosts)):
        sentences.append("All ranks are connected to each other before the job starts, as with gloo.")
    else:
        sentences.append("Ranks connect when they first have a message, and the handshake takes its time.")
    sentences.append(
        "TCP is modelled by ns-3, with Linux's small queues and slow start after idle, but without "
        "RACK, tail loss probes and quick acknowledgements: a lost last segment waits for 'min-rto'."
    )
    return sentences
