"""The flow-level backend: messages as fluids that share the links of a fabric."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from .. import engine
from .._experiment import Experiment
from .._result import COLUMNS, Result
from ..config import PacketNetwork
from ._base import Progress
from ._changes import changes_told
from ._fabric import set_fabric
from ._flows import completion_times
from ._native import NativeBackend
from ._unsteady import may_drift, moved_by_shaking

__all__ = ["FLAGS", "FlowBackend"]

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

_NO_QUEUES = "Flows share links instead of queueing at them: queueing times of links are 0, not measured."


class FlowBackend(NativeBackend):
    """Messages share links fairly, as the packets of the backend ``packet`` would have them do.

    The same fabric, paths, headers, acknowledgements and windows, but no packets: the cost grows with the
    messages, not with their bytes. ``provenance["flow"]["flags"]`` names what this model is known to be bad
    at and the run met (keys of `FLAGS`). Where messages are many dependent steps that are not all alike, and
    no other flag was met, it simulates again with noise: ``provenance["flow"]["moved"]`` is the share of the
    makespan by which that moves it.
    """

    def __init__(self) -> None:
        super().__init__(congestion_aware=False)

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*, and where that may hang on little, with noise too; raises as others do."""
        result = self.simulate(experiment, progress)
        facts = result.provenance["flow"]
        if facts["flags"] or not may_drift(result.flows, result.makespan_ns):
            return result

        def shaken(packets: float) -> Any:
            config = self._config(experiment)
            config.record_nodes = config.record_links = False
            config.shake_packets = packets
            source = experiment.workload
            return engine.simulate(config, list(source.programs), source.program_of_rank, finished)

        def finished(_now: int, _done: int) -> bool:
            return progress is None or progress(result.makespan_ns, experiment.workload.num_ranks)

        packet_ns = _packet_ns(PacketNetwork.of(experiment.network, timed=True))
        message_ns = float((result.flows["end_ns"] - result.flows["start_ns"]).mean())
        moved = moved_by_shaking(result.makespan_ns, message_ns, packet_ns, shaken)
        flags = ["unsteady"] if moved.hangs else []
        warnings = [*result.provenance["warnings"], *(FLAGS[flag] for flag in flags)]
        facts = facts | {"flags": flags, "moved": round(moved.share, 6)}
        return replace(result, provenance=result.provenance | {"flow": facts, "warnings": warnings})

    def _config(self, experiment: Experiment) -> Any:
        config = super()._config(experiment)
        set_fabric(config, engine.FabricModel.FLOW, PacketNetwork.of(experiment.network, timed=True))
        return config

    def _complete(self, result: Result, experiment: Experiment, output: Any) -> Result:
        network = PacketNetwork.of(experiment.network, timed=True)
        flows: pd.DataFrame = pd.DataFrame(output.fabric.flows).astype(COLUMNS["flows"])
        link_use: pd.DataFrame = pd.DataFrame(output.fabric.stretches).astype(COLUMNS["link_use"])
        flags = list(output.fabric.flags)
        facts: dict[str, Any] = {"flags": flags, "rate_changes": int(output.fabric.events)}
        times = completion_times(flows)
        if times:
            facts["flow_completion_ns"] = times
        warnings = [*result.provenance["warnings"], *network.warnings(), *(FLAGS[flag] for flag in flags)]
        told = changes_told(network, output.fabric.changes)
        assumptions = [*result.provenance["assumptions"], _NO_QUEUES, *told]
        provenance = result.provenance | {"flow": facts, "warnings": warnings, "assumptions": assumptions}
        return replace(result, flows=flows, link_use=link_use, provenance=provenance)


def _packet_ns(network: PacketNetwork) -> float:
    """Return how long a packet takes on the slowest link, without its header."""
    slowest = min(link.rate_bps for link in network.links)
    return float(network.settings["PACKET_PAYLOAD_SIZE"]) * 8e9 / slowest
