"""The backend that simulates every packet of a RoCE network, in Chakrascope's engine."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...support.table import Columns
from .. import engine
from .._framed import typed
from .._result import COLUMNS, Result
from ..config import NO_CONTROL, Fabric
from ..engine import NetworkModel
from ._engine import EngineBackend, Model, Run
from ._outcome import change_sentences, completion_times, more_provenance


def packet_backend(
    _name: str = "packet", notes: tuple[str, ...] = (), timeout_s: float | None = None
) -> EngineBackend:
    """Return the packet-level backend: congestion windows, switch queues, ECN marks and pause frames.

    Hosts, switches and links come from the network's ``packet`` part, or are derived from its
    dimensions. Every result lists *notes* among its assumptions. *timeout_s* limits the run time in
    seconds (default: ``CHAKRASCOPE_BACKEND_TIMEOUT``).
    """
    model = Model(NetworkModel.PACKET, complete=partial(_complete, notes), limited=True)
    return EngineBackend(model, timeout_s)


def _complete(notes: tuple[str, ...], result: Result, run: Run) -> Result:
    fabric, report = run.experiment.fabric, run.output.fabric
    flows = typed(report.flows, COLUMNS["flows"])
    facts = _facts(report) | completion_times(flows)
    provenance = more_provenance(
        result.provenance,
        {"packets": facts},
        warnings=[*fabric.warnings(), *_drops(facts)],
        assumptions=[
            *notes,
            *_assumptions(fabric),
            *change_sentences(fabric, report.changes),
            *_trains(fabric, report),
        ],
    )
    return result.with_columns(
        links=_links(report.links),
        flows=flows,
        link_use=typed(report.intervals, COLUMNS["link_use"]),
        provenance=provenance,
    )


def _links(links: Columns) -> Columns:
    names = {"src": links["src"], "dst": links["dst"], "bytes": links["bytes"]}
    times = {"busy_ns": links["busy_ps"] // 1000, "queue_ns": links["queue_ps"] // 1000}
    return typed({**names, **times, "messages": links["packets"]}, COLUMNS["links"])


def _facts(report: engine.FabricReport) -> dict[str, Any]:
    """Return the provenance of a packet-level simulation."""
    links = report.links
    return {
        "data_packets": report.data_packets,
        "network_events": report.events,
        "pause_frames": int(links["pauses"].sum()),
        "paused_ns": int(links["paused_ps"].sum() // 1000),
        "drops": int(links["drops"].sum()),
        "largest_queue_bytes": max(links["largest_queue_bytes"].tolist(), default=0),
        "train": report.largest_train,
    }


def _assumptions(fabric: Fabric) -> list[str]:
    assumptions = list(fabric.assumptions)
    if fabric.settings["ASTRA_SIM_CLOCK"]:
        assumptions.append(
            "Times are those of ASTRA-sim's ns-3 (ASTRA_SIM_CLOCK 1, its default): every packet takes "
            "whole ns, and a message is complete when its sender has the last acknowledgement. "
            "Exact times: ASTRA_SIM_CLOCK 0."
        )
    if fabric.settings["CC_MODE"] == NO_CONTROL:
        assumptions.append(
            "Senders have no congestion control (CC_MODE 12): only windows and pauses limit their rate."
        )
    return assumptions


def _trains(fabric: Fabric, report: engine.FabricReport) -> list[str]:
    """Return a note on the effect of PACKET_TRAIN, if it was set."""
    asked = fabric.settings["PACKET_TRAIN"]
    if asked == 1:
        return []
    if report.largest_train == 1:
        return [
            f"Every packet travelled separately although PACKET_TRAIN is {asked}: trains need messages of 32 "
            "packets, windows of 64 (48 where links hold 16), no loss, no links that change, no "
            "L2_ACK_INTERVAL above a packet, and no congestion control but DCQCN and DCTCP where queues stay "
            "below half of KMIN."
        ]
    sentence = (
        f"Up to {report.largest_train} packets of a message travelled as one event (PACKET_TRAIN {asked}), "
        "which moved the makespans of the 120 experiments of docs/validation/fidelity.md "
        "by 0.00 % (median), and by "
        "0.6 % at most. Without trains: PACKET_TRAIN 1."
    )
    ended = " Near pauses, and from the first loss, packets travelled separately."
    return [sentence + ended if report.split_trains else sentence]


def _drops(facts: dict[str, Any]) -> list[str]:
    """Return a warning if *facts* (see `_facts`) count lost packets."""
    if not facts["drops"]:
        return []
    lost = f"{facts['drops']} packets were lost and sent again."
    in_trains = (
        " Packets travelled in trains (PACKET_TRAIN) before the loss, which changes the lost packets, so the "
        "makespan may be wrong by up to a factor of 2. Next: set PACKET_TRAIN 1."
    )
    return [lost + in_trains if facts["train"] > 1 else lost]
