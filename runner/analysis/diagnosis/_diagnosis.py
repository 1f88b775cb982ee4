"""Combine the anomalies of a run: their size, confidence, cost and alternatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ....support import count_text, duration_text, instant_text, share_text
from ....support.table import Flags
from ..._result import Result
from ._cost import Cost, Replay, cost_of_host, cost_of_part, cost_of_stall
from ._hosts import SlowHost, slow_hosts
from ._messages import Messages, Suspect, hosts_of_ranks, messages_of
from ._rates import Rates, SlowPart, measure_rates, slow_parts
from ._stalls import Stall, stalls

_FEWEST = 24
_FOLLOWS = 0.8
_SHOWN = 4
ANOMALY_COLUMNS = (
    "what", "where", "amount", "confidence", "cost_ns", "cost_low_ns", "cost_high_ns", "chance", "detail",
    "factor", "factor_low", "factor_high", "begin_ns", "end_ns", "lasted_ns", "hosts", "or_else", "shown_by",
    "next_step",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Anomaly:
    """An anomaly of a run: its kind *what*, and the NIC, link or host *where*.

    *what* is ``slow NIC``, ``slow link``, ``slow host``, ``intermittent host`` or ``stall``. *amount* and
    *detail* describe its size in words. *factor* (90 % interval: *factor_low* to *factor_high*) is the
    remaining fraction of the rate of a NIC or link, or multiplies a host's compute times; for a stall it is
    0, and *begin_ns*, *end_ns* and *lasted_ns* are its times. *confidence* is the probability that the
    suspect, or a part of it, is the cause, and *chance* that a healthy run deviates as much. *cost* is the
    time added to the step. *or_else* lists alternative suspects that this run cannot rule out. *evidence* is
    the rows of ``flows``, or the ``rank, node_id`` of ``nodes``, that show the anomaly.
    """

    what: str
    where: str
    hosts: tuple[str, ...]
    amount: str
    detail: str
    factor: float
    factor_low: float
    factor_high: float
    begin_ns: int
    end_ns: int
    lasted_ns: int
    confidence: float
    chance: float
    cost: Cost
    or_else: tuple[str, ...]
    evidence: pd.DataFrame
    shown_by: str
    next_step: str

    @property
    def sentence(self) -> str:
        """Describe the anomaly: place, interval, alternatives, evidence and next step."""
        other = (
            (f" This run cannot distinguish this cause from {', '.join(self.or_else)}.")
            if self.or_else
            else ""
        )
        return f"{_capital(self.where)}: {self.detail}.{other} Shown by {self.shown_by}. {self.next_step}"


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The *anomalies* of a run by descending cost, and *remarks* on the limits of the diagnosis.

    *checked* describes the checked messages and computations.
    """

    anomalies: tuple[Anomaly, ...]
    checked: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A row per anomaly, with the columns `ANOMALY_COLUMNS`."""
        rows = [
            vars(one)
            | {"cost_ns": one.cost.ns, "cost_low_ns": one.cost.low_ns, "cost_high_ns": one.cost.high_ns}
            | {"hosts": ", ".join(one.hosts), "or_else": "; ".join(one.or_else)}
            for one in self.anomalies
        ]
        table: pd.DataFrame = pd.DataFrame(rows, columns=list(ANOMALY_COLUMNS))
        return table


def diagnose(result: Result, nodes: pd.DataFrame) -> Diagnosis:
    """Return the slow NICs, links and hosts of a run, and its stalled links.

    *nodes* are those of *result* with their properties (`RunAnalysis.nodes`). Costs come from
    replays of the run's records with and without each anomaly. Too few records cause a remark instead of an
    error.
    """
    messages = messages_of(result)
    host_of = hosts_of_ranks(result)
    remarks: list[str] = []
    checked: list[str] = []
    parts: list[SlowPart] = []
    still: list[Stall] = []
    rates = _rates(messages, remarks)
    if rates is not None:
        parts, incasts, rates = slow_parts(rates)
        parts, echoes = _without_echoes(parts, rates)
        remarks += [*echoes, *map(_of_incast, incasts)]
        still, paused = stalls(rates)
        remarks += paused
        nics = count_text(len(messages.nics), "NIC")
        checked.append(f"{count_text(len(messages), 'message')} through {nics}")
        if messages.left_out:
            remarks.append(
                f"Only the first {len(messages):,} messages were examined; {messages.left_out:,} later "
                "messages were not."
            )
    computed, untold = slow_hosts(nodes, host_of)
    remarks += untold
    if not untold:
        checked.append(f"computations of {count_text(len(host_of), 'rank')}")
    parts, folded = _without_followers(parts, computed)
    remarks += folded
    anomalies: list[Anomaly] = []
    if parts or still or computed:
        replay = Replay.of(result, nodes)
        if rates is not None:
            anomalies += [_of_part(part, cost_of_part(part, replay, rates)) for part in parts]
            anomalies += [_of_stall(stall, cost_of_stall(stall, replay, rates)) for stall in still]
        hosts = (_of_host(host, cost_of_host(host, replay)) for host in computed)
        # An intermittently slow host matters only if other ranks wait for it.
        anomalies += [one for one in hosts if one.what != "intermittent host" or one.cost.ns > 0]
    anomalies.sort(key=lambda one: -one.cost.ns)
    return Diagnosis(tuple(anomalies), tuple(checked), tuple(remarks))


def _rates(messages: Messages, remarks: list[str]) -> Rates | None:
    """Return the rates of *messages*, or None, with a remark, if there are too few."""
    if len(messages) == 0:
        remarks.append(
            "The run has no records of messages between hosts, so slow NICs, slow links and stalls cannot be "
            "detected. Next: emulate the workload on the hosts with `chakrascope emulate`, or simulate the "
            "network with `chakrascope run --backend packet`."
        )
        return None
    if len(messages) < _FEWEST:
        remarks.append(
            f"{count_text(len(messages), 'message')} between hosts are too few to compare NICs and links."
        )
        return None
    rates = measure_rates(messages)
    if len(messages.hosts) < 3:
        remarks.append(
            "With two hosts, only a slow direction can be detected, as a slow NIC cannot be distinguished "
            "from a slow network. Next: use a run on three or more hosts."
        )
    return rates


def _without_followers(parts: list[SlowPart], hosts: list[SlowHost]) -> tuple[list[SlowPart], list[str]]:
    """Drop slow *parts* that a slow host explains; return the others and remarks.

    A host that computes slowly sends late and in bursts, so that its messages appear slow.
    """
    if not hosts:
        return parts, []
    worst = max(hosts, key=lambda host: host.factor)
    kept = [part for part in parts if part.factor <= _FOLLOWS / worst.factor]
    remarks = [
        f"{_capital(part.suspect.name)} seems to reach only {share_text(part.factor)} of its peers' rate, "
        f"but {worst.host} explains this: late computations delay messages, which are then sent in bursts."
        for part in parts
        if part not in kept
    ]
    return kept, remarks


def _without_echoes(parts: list[SlowPart], rates: Rates) -> tuple[list[SlowPart], list[str]]:
    """Drop the opposite direction of NICs that are slow in one direction; return the others and remarks.

    Acknowledgements of one direction queue behind the data of the other direction, which delays messages.
    """
    kept: list[SlowPart] = []
    remarks = []
    for part in parts:
        causes = [one for one in kept if not (part.suspect.on & ~_other_direction(one.suspect, rates)).any()]
        if causes:
            remarks.append(
                f"{_capital(part.suspect.name)} seems to reach only {share_text(part.factor)} of its peers' "
                f"rate, but {causes[0].suspect.name} explains this: acknowledgements wait behind data there."
            )
        else:
            kept.append(part)
    return kept, remarks


def _of_incast(part: SlowPart) -> str:
    """Return a remark on a NIC that may receive slowly only because of several senders at once."""
    nic = part.suspect.name.removesuffix(", receiving")
    return (
        f"The {nic} receives at only {share_text(part.factor)} of its peers' rate. Several senders at "
        "once (incast) can also cause this. Next: run a workload in which one rank at a time sends to it, "
        "such as `chakrascope generate ring-shift`."
    )


def _other_direction(suspect: Suspect, rates: Rates) -> Flags:
    """Return a mask of the opposite paths through the NICs of *suspect*, if only one direction is slow."""
    paths = rates.sharing.paths
    if bool(suspect.sends) == bool(suspect.receives):
        return np.zeros(len(paths), bool)
    other = paths[:, 1] if suspect.sends else paths[:, 0]
    return np.isin(other, suspect.sends or suspect.receives)


def _of_part(part: SlowPart, cost: Cost) -> Anomaly:
    suspect = part.suspect
    detail = (
        f"at {share_text(part.factor)} of its peers' rate ({share_text(part.low)} to "
        f"{share_text(part.high)}) during the whole run"
    )
    return Anomaly(
        "slow link" if suspect.kind == "link" else "slow NIC", suspect.name, suspect.hosts,
        f"at {share_text(part.factor)}", detail, part.factor, part.low, part.high, -1, -1, 0, part.confidence,
        part.chance, cost, suspect.others, pd.DataFrame({"flow": part.evidence}),
        f"{count_text(len(part.evidence), 'message')} through it",
        "Check the negotiated speed, the error counters and the cable.",
    )  # fmt: skip


def _of_stall(stall: Stall, cost: Cost) -> Anomaly:
    suspect = stall.suspect
    detail = (
        f"no data for about {duration_text(stall.lasted_ns)} between {instant_text(stall.begin_ns)} and "
        f"{instant_text(stall.end_ns)}"
    )
    rows = ", ".join(map(str, stall.evidence[:_SHOWN]))
    return Anomaly(
        "stall", suspect.name, suspect.hosts, f"for {duration_text(stall.lasted_ns)}", detail, 0.0, 0.0, 0.0,
        stall.begin_ns, stall.end_ns, stall.lasted_ns, stall.confidence, stall.chance, cost, suspect.others,
        pd.DataFrame({"flow": stall.evidence}),
        f"{count_text(len(stall.evidence), 'late message')} (rows {rows} of flows)",
        "Look for a link failure, pauses or retransmissions at this time.",
    )  # fmt: skip


def _of_host(host: SlowHost, cost: Cost) -> Anomaly:
    detail = f"computations take {host.factor:.2f} times {host.against} ({host.low:.2f} to {host.high:.2f})"
    if host.share < 1:
        detail += (
            f" on average: the host stops or is slow in {share_text(host.share)} of the time, and computes "
            "at full speed otherwise"
        )
    shown = host.evidence[["rank", "node_id"]].head(_SHOWN).itertuples(index=False)
    nodes = ", ".join(f"{rank}/{node}" for rank, node in shown)
    always = host.share == 1
    return Anomaly(
        "slow host" if always else "intermittent host", host.host, (host.host,),
        f"{host.factor:.2f} times as long", detail, host.factor, host.low, host.high, -1, -1, 0,
        host.confidence, host.chance, cost, (), host.evidence,
        f"its computations, most by {nodes} (rank/node)",
        "Check the clock rates, temperature and other processes of the host." if always
        else "Check for intermittent activity on the host: other processes, throttling, page reclaim.",
    )  # fmt: skip


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
