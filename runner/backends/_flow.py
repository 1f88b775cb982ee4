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
from ._fabric import set_fabric
from ._flows import completion_times
from ._native import NativeBackend

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
    "loss": "Links lose packets, and flows lose none; ask 'packet'.",
}


class FlowBackend(NativeBackend):
    """Messages share links fairly, as the packets of the backend ``packet`` would have them do.

    The same fabric, paths, headers, acknowledgements and windows, but no packets: the cost grows with the
    messages, not with their bytes. ``provenance["flow"]["flags"]`` names what this model is known to be bad
    at and the run met (keys of `FLAGS`).
    """

    def __init__(self) -> None:
        super().__init__(congestion_aware=False)

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `SimulationStalled` if ranks are left waiting for each other."""
        return self.simulate(experiment, progress)

    def _config(self, experiment: Experiment) -> Any:
        config = super()._config(experiment)
        set_fabric(config, engine.FabricModel.FLOW, PacketNetwork.of(experiment.network))
        return config

    def _complete(self, result: Result, experiment: Experiment, output: Any) -> Result:
        network = PacketNetwork.of(experiment.network)
        flows: pd.DataFrame = pd.DataFrame(output.fabric.flows).astype(COLUMNS["flows"])
        flags = list(output.fabric.flags)
        facts: dict[str, Any] = {"flags": flags, "rate_changes": int(output.fabric.events)}
        times = completion_times(flows)
        if times:
            facts["flow_completion_ns"] = times
        warnings = [*result.provenance["warnings"], *network.warnings(), *(FLAGS[flag] for flag in flags)]
        provenance = result.provenance | {"flow": facts, "warnings": warnings}
        return replace(result, flows=flows, provenance=provenance)
