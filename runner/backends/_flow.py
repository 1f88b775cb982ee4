"""The flow-level backend: messages as fluids that share the links of a fabric."""

from __future__ import annotations

from typing import Any

from ...support.table import Columns
from .._framed import typed
from .._result import COLUMNS, Result
from ..config import Fabric
from ..engine import NetworkModel
from ._changes import change_sentences
from ._engine import EngineBackend, Model, Run
from ._flows import completion_times
from ._unsteady import may_drift, moved_by_shaking

__all__ = ["FLAGS", "flow_backend"]

FLAGS = {
    "marks": "Queues reach the length at which switches mark packets, and the congestion control (CC_MODE) "
    "slows senders down, which flows do not: the real time may be far longer; ask 'packet'.",
    "control": "Messages share switch ports under a congestion control that measures queues or delays, and "
    "flows only know the shares it aims at; ask 'packet'.",
    "pauses": "Switch buffers fill up to where switches pause their neighbours, which also holds up messages "
    "to elsewhere, and flows know no buffers; ask 'packet'.",
    "bursts": "Many messages are smaller than their window and compete on several links in a row, where each "
    "is on one link at a time and a flow is on all of them; ask 'packet'.",
    "two-way": "Data queues in both directions of a way, so that acknowledgements get stuck behind it and "
    "links rest in between: flows allow for it in the simplest cases only; ask 'packet'.",
    "unsteady": "Ranks fall out of step: when messages are a few packets' times early or late, as packets "
    "make them and flows do not, the time moves by more than such delays; ask 'packet'.",
    "loss": "Links lose packets, for which senders may wait as long as RETRANSMIT_TIMEOUT, and flows send "
    "what is lost again at once, or lose none; ask 'packet'.",
}

_QUEUES = (
    "Flows share links instead of queueing at them: queueing times of links are what rates and windows let "
    "stand there, summed over packets; queues of acknowledgements are left out."
)


def flow_backend(_name: str = "flow") -> EngineBackend:
    """Return the backend whose messages share links fairly, like the packets of ``packet``.

    It has the same fabric, paths, headers, acknowledgements and windows, but no packets: the cost grows with
    the number of messages, not with their bytes. ``provenance["flow"]["flags"]`` names the known weaknesses
    of this model that the run met (keys of `FLAGS`). If messages form many steps that are not all alike, and
    no flag was met, the simulation is repeated with noise: ``provenance["flow"]["moved"]`` is the relative
    change of the makespan.
    """
    return EngineBackend(Model(NetworkModel.FLOW, complete=_complete))


def _complete(result: Result, run: Run) -> Result:
    fabric, report = run.experiment.fabric, run.output.fabric
    flows = typed(report.flows, COLUMNS["flows"])
    facts: dict[str, Any] = {"flags": list(report.flags), "rate_changes": int(report.events)}
    times = completion_times(flows)
    if times:
        facts["flow_completion_ns"] = times
    if not facts["flags"] and may_drift(flows, result.makespan_ns):
        facts |= _shaken(result.makespan_ns, flows, fabric, run)
    warnings = [*fabric.warnings(), *(FLAGS[flag] for flag in facts["flags"])]
    assumptions = [_QUEUES, *change_sentences(fabric, report.changes)]
    provenance = result.provenance | {
        "flow": facts,
        "warnings": [*result.provenance["warnings"], *warnings],
        "assumptions": [*result.provenance["assumptions"], *assumptions],
    }
    link_use = typed(report.intervals, COLUMNS["link_use"])
    return result.with_columns(flows=flows, link_use=link_use, provenance=provenance)


def _shaken(makespan_ns: int, flows: Columns, fabric: Fabric, run: Run) -> dict[str, Any]:
    """Return the effect of noise on the makespan, and the flag if it is too large."""
    message_ns = float((flows["end_ns"] - flows["start_ns"]).mean())

    def shaken(packets: float) -> Any:
        return run.again(shake_packets=packets)

    moved = moved_by_shaking(makespan_ns, message_ns, _packet_ns(fabric), shaken)
    return {"flags": ["unsteady"] if moved.hangs else [], "moved": round(moved.share, 6)}


def _packet_ns(fabric: Fabric) -> float:
    """Return the time of a packet on the slowest link, without its header."""
    slowest = min(link.rate_bps for link in fabric.links)
    return float(fabric.settings["PACKET_PAYLOAD_SIZE"]) * 8e9 / slowest
