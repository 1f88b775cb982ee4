"""The flow-level backend: a fluid model in which messages share link bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...support.table import Columns
from .._framed import typed
from .._result import COLUMNS, Result
from ..config import Fabric
from ..engine import NetworkModel
from ._engine import EngineBackend, Model, Run
from ._outcome import change_sentences, completion_times, more_provenance

if TYPE_CHECKING:
    import pandas as pd

# Strengths of the noise, in packets: a small delay, and the sum of such delays over many steps.
_SHAKES = (2.0, 8.0)
# If noise shortens a makespan by more than this fraction, the makespan depends on the random order in which
# messages start.
_SHORTER = 0.002
# Noise in every step lengthens a chain of steps by this fraction of the total noise if late ranks
# catch up. Measured in 205 random experiments whose error relative to packet-level simulation was
# below 1 %.
_PASSED_ON = 0.15
# Messages of equal size are out of lockstep if their times differ by more than this fraction.
_IN_STEP = 0.001
# Over fewer sequential steps than this, delays do not add up.
_FEW_STEPS = 6
_NEVER = np.int64((1 << 63) - 1)


def may_drift(flows: pd.DataFrame | Columns, makespan_ns: int) -> bool:
    """Return whether the messages in the table ``flows`` form many sequential steps of unequal times.

    Ranks in lockstep are all delayed alike, and a few steps cannot accumulate much delay.
    """
    times = flows["end_ns"] - flows["start_ns"]
    if not len(times):
        return False
    return bool(makespan_ns > _FEW_STEPS * times.mean()) and not in_step(flows)


def in_step(flows: pd.DataFrame | Columns) -> bool:
    """Return whether all messages of the same size take the same time."""
    sizes, kinds = np.unique(flows["bytes"], return_inverse=True)
    times = np.asarray(flows["end_ns"] - flows["start_ns"])
    shortest, longest = np.full(len(sizes), _NEVER), np.zeros(len(sizes), np.int64)
    np.minimum.at(shortest, kinds, times)
    np.maximum.at(longest, kinds, times)
    return bool((longest - shortest <= _IN_STEP * longest).all())


class Moved(NamedTuple):
    """The relative change of a makespan under noise, and whether it exceeds the noise itself."""

    share: float
    hangs: bool


def moved_by_shaking(
    makespan_ns: int, message_ns: float, packet_ns: float, shaken: Callable[[float], Any]
) -> Moved:
    """Return the change of the makespan if messages are a few packet times early or late.

    *shaken* simulates with random delays, given in packets. A packet takes *packet_ns*, and a
    message takes *message_ns* on average. The delay of the last message is not counted.
    """
    most = Moved(0.0, hangs=False)
    for packets in _SHAKES:
        output = shaken(packets)
        if output.unfinished:
            return Moved(1.0, hangs=True)
        noise_ns = packets * packet_ns
        longer = output.makespan_ns - makespan_ns
        share = max(abs(longer) - noise_ns, 0.0) / makespan_ns
        steps = makespan_ns / message_ns
        hangs = share > (_PASSED_ON * steps * noise_ns / makespan_ns if longer > 0 else _SHORTER)
        most = Moved(max(share, most.share), hangs)
        if hangs:
            break
    return most


FLAGS = {
    "marks": "Queues are long enough for switches to mark packets, so that congestion control (CC_MODE) "
    "slows senders down. Flows do not model this: the real time may be far longer. Next: use 'packet'.",
    "control": "Messages share switch ports under a congestion control that measures queues or delays. "
    "Flows only model the shares at which this congestion control aims. Next: use 'packet'.",
    "pauses": "Switch buffers fill up until switches pause their neighbours, which also delays messages "
    "to other hosts. Flows have no buffers. Next: use 'packet'.",
    "bursts": "Many messages are smaller than their window and share several consecutive links. Such a "
    "message occupies one link at a time, but a flow occupies all of them. Next: use 'packet'.",
    "two-way": "Data queues in both directions of a path, so that acknowledgements wait behind data and "
    "links are idle at times. Flows model this only in simple cases. Next: use 'packet'.",
    "unsteady": "Ranks fall out of step: delays of a few packet times, which flows do not model, change "
    "the step time by more than these delays. Next: use 'packet'.",
    "loss": "Links lose packets, and senders may wait for RETRANSMIT_TIMEOUT before they send again. "
    "Flows resend lost data immediately, or lose none. Next: use 'packet'.",
}
_QUEUES = (
    "Flows share links instead of queueing at them: queueing times of links are computed from rates and "
    "windows, and summed over packets; queues of acknowledgements are left out."
)


def flow_backend(_name: str = "flow") -> EngineBackend:
    """Return the flow-level backend, in which messages share the bandwidth of links fairly.

    The backend has the fabric, paths, headers, acknowledgements and windows of ``packet``, but no packets,
    so the run time grows with the number of messages and not with their bytes.
    ``provenance["flow"]["flags"]`` lists the known inaccuracies that apply to the run (keys of `FLAGS`). If
    none applies and messages form many unequal steps, the simulation is repeated with noise, and
    ``provenance["flow"]["moved"]`` is the relative change of the makespan.
    """
    return EngineBackend(Model(NetworkModel.FLOW, complete=_complete))


def _complete(result: Result, run: Run) -> Result:
    fabric, report = run.experiment.fabric, run.output.fabric
    flows = typed(report.flows, COLUMNS["flows"])
    facts: dict[str, Any] = {"flags": list(report.flags), "rate_changes": int(report.events)}
    facts |= completion_times(flows)
    if not facts["flags"] and may_drift(flows, result.makespan_ns):
        facts |= _shaken(result.makespan_ns, flows, fabric, run)
    warnings = [*fabric.warnings(), *(FLAGS[flag] for flag in facts["flags"])]
    assumptions = [_QUEUES, *change_sentences(fabric, report.changes)]
    provenance = more_provenance(
        result.provenance, {"flow": facts}, warnings=warnings, assumptions=assumptions
    )
    link_use = typed(report.intervals, COLUMNS["link_use"])
    return result.with_columns(flows=flows, link_use=link_use, provenance=provenance)


def _shaken(makespan_ns: int, flows: Columns, fabric: Fabric, run: Run) -> dict[str, Any]:
    """Return the effect of noise on the makespan, with a flag if it is too large."""
    message_ns = float((flows["end_ns"] - flows["start_ns"]).mean())

    def shaken(packets: float) -> Any:
        return run.rerun(shake_packets=packets)

    moved = moved_by_shaking(makespan_ns, message_ns, _packet_ns(fabric), shaken)
    return {"flags": ["unsteady"] if moved.hangs else [], "moved": round(moved.share, 6)}


def _packet_ns(fabric: Fabric) -> float:
    """Return the time in ns to send one full packet's payload over the slowest link."""
    slowest = min(link.rate_bps for link in fabric.links)
    return float(fabric.settings["PACKET_PAYLOAD_SIZE"]) * 8e9 / slowest
