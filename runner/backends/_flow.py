"""The flow-level backend: messages as fluids that share the links of a fabric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ...support import count_text
from .. import engine
from .._experiment import Experiment
from .._result import COLUMNS, Result
from ..config import NO_CONTROL, PacketNetwork
from ._base import Progress
from ._changes import changes_told
from ._fabric import set_fabric
from ._flows import completion_times
from ._native import NativeBackend
from ._unsteady import Moved, may_drift, moved_by_shaking

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

# Of a message in the mean: where there are more packets, they cost more than they tell.
_FEW_PACKETS = 100
_MOST_IN_A_PIECE = 16
# Pieces that are further from fluids than this are asked what next to no noise, of so many packets, does, and
# by how much it may move them.
_APART = 0.01
_NOISE = 0.02
_MOVED = 0.02

_NO_QUEUES = "Flows share links instead of queueing at them: queueing times of links are 0, not measured."
_PIECES = (
    "Messages are short against their windows, or of few packets in steps that are not all alike: they "
    "travelled in pieces of up to {}, which wait for links in the order in which they come."
)


class FlowBackend(NativeBackend):
    """Messages share links fairly, as the packets of the backend ``packet`` would have them do.

    The same fabric, paths, headers, acknowledgements and windows, but no packets: the cost grows with the
    messages, not with their bytes. ``provenance["flow"]["flags"]`` names what this model is known to be bad
    at and the run met (keys of `FLAGS`).

    Messages that are short against their windows, or of few packets in steps that are not all alike, travel
    in pieces of ``provenance["flow"]["packets_a_piece"]`` packets at most, which wait for links in the order
    in which they come. Where such steps have longer messages, and no flag was met, it simulates again with
    noise: ``provenance["flow"]["moved"]`` is the share of the makespan by which that moves it. With
    *packets_a_piece*, all messages travel in pieces.
    """

    def __init__(self, packets_a_piece: int = 0) -> None:
        super().__init__(congestion_aware=False)
        self.packets_a_piece = packets_a_piece

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*, and where that may hang on little, in pieces, or with noise too.

        Raises as other backends do.
        """
        result = self.simulate(experiment, progress)
        facts = result.provenance["flow"]
        if "packets_a_piece" in facts:
            return result
        network = PacketNetwork.of(experiment.network, timed=True)
        drifts = not facts["flags"] and may_drift(result.flows, result.makespan_ns)
        pieces = _packets_a_piece(result, network, drifts=drifts)
        if pieces:
            return FlowBackend(pieces)._divided(experiment, result, progress)
        return self._shaken(experiment, result, network, progress) if drifts else result

    def _divided(self, experiment: Experiment, fluid: Result, progress: Progress | None) -> Result:
        """Return the answer in pieces, and where *fluid* has another, what noise does to it."""
        result = self.simulate(experiment, progress)
        apart = abs(result.makespan_ns - fluid.makespan_ns)
        if self.packets_a_piece > 1 or apart <= _APART * fluid.makespan_ns:
            return result
        output = self._with_noise(experiment, result, progress)(_NOISE)
        share = abs(output.makespan_ns / result.makespan_ns - 1)
        return _told(result, Moved(share, hangs=share > _MOVED or bool(output.unfinished)))

    def _shaken(
        self, experiment: Experiment, result: Result, network: PacketNetwork, progress: Progress | None
    ) -> Result:
        """Return *result* with what noise does to it."""
        shaken = self._with_noise(experiment, result, progress)
        message_ns = float((result.flows["end_ns"] - result.flows["start_ns"]).mean())
        return _told(result, moved_by_shaking(result.makespan_ns, message_ns, _packet_ns(network), shaken))

    def _with_noise(
        self, experiment: Experiment, result: Result, progress: Progress | None
    ) -> Callable[[float], Any]:
        """Return what simulates the experiment of *result* with so many packets of noise."""

        def finished(_now: int, _done: int) -> bool:
            return progress is None or progress(result.makespan_ns, experiment.workload.num_ranks)

        def shaken(packets: float) -> Any:
            config = self._config(experiment)
            config.record_nodes = config.record_links = False
            config.pieces_for_bursts = False
            config.shake_packets = packets
            source = experiment.workload
            return engine.simulate(config, list(source.programs), source.program_of_rank, finished)

        return shaken

    def _config(self, experiment: Experiment) -> Any:
        config = super()._config(experiment)
        network = PacketNetwork.of(experiment.network, timed=True)
        model = engine.FabricModel.PIECES if self.packets_a_piece else engine.FabricModel.FLOW
        set_fabric(config, model, network)
        config.pieces_for_bursts = _has_pieces(network)
        config.piece_packets = self.packets_a_piece or _MOST_IN_A_PIECE
        return config

    def _complete(self, result: Result, experiment: Experiment, output: Any) -> Result:
        network = PacketNetwork.of(experiment.network, timed=True)
        flows: pd.DataFrame = pd.DataFrame(output.fabric.flows).astype(COLUMNS["flows"])
        link_use: pd.DataFrame = pd.DataFrame(output.fabric.stretches).astype(COLUMNS["link_use"])
        flags, pieces = list(output.fabric.flags), int(output.fabric.largest_piece)
        facts: dict[str, Any] = {"flags": flags}
        facts |= {"packets_a_piece": pieces} if pieces else {"rate_changes": int(output.fabric.events)}
        times = completion_times(flows)
        if times:
            facts["flow_completion_ns"] = times
        warnings = [*result.provenance["warnings"], *network.warnings(), *(FLAGS[flag] for flag in flags)]
        told = changes_told(network, output.fabric.changes)
        queues = _PIECES.format(count_text(pieces, "packet")) if pieces else _NO_QUEUES
        assumptions = [*result.provenance["assumptions"], queues, *told]
        provenance = result.provenance | {"flow": facts, "warnings": warnings, "assumptions": assumptions}
        return replace(result, flows=flows, link_use=link_use, provenance=provenance)


def _told(result: Result, moved: Moved) -> Result:
    """Return *result*, which says how far noise moved it."""
    flags = ["unsteady"] if moved.hangs else []
    facts = result.provenance["flow"]
    facts = facts | {"flags": [*facts["flags"], *flags], "moved": round(moved.share, 6)}
    warnings = [*result.provenance["warnings"], *(FLAGS[flag] for flag in flags)]
    return replace(result, provenance=result.provenance | {"flow": facts, "warnings": warnings})


def _packet_ns(network: PacketNetwork) -> float:
    """Return how long a packet takes on the slowest link, without its header."""
    slowest = min(link.rate_bps for link in network.links)
    return float(network.settings["PACKET_PAYLOAD_SIZE"]) * 8e9 / slowest


def _has_pieces(network: PacketNetwork) -> bool:
    """Return whether messages may travel in pieces: these know no control, no loss and no change."""
    settings = network.settings
    beyond = settings["ASTRA_SIM_CLOCK"] or settings["ACK_HIGH_PRIO"] or network.lossy or network.changes
    return settings["CC_MODE"] == NO_CONTROL and not beyond


def _packets_a_piece(result: Result, network: PacketNetwork, *, drifts: bool) -> int:
    """Return how many packets a piece may have, where pieces tell more than the fluids of *result*; or 0."""
    flags = set(result.provenance["flow"]["flags"])
    if not _has_pieces(network) or not (drifts or flags) or flags - {"bursts", "two-way"}:
        return 0
    if "bursts" in flags:
        return _MOST_IN_A_PIECE
    packets = np.ceil(result.flows["bytes"] / network.settings["PACKET_PAYLOAD_SIZE"]).mean()
    return 1 if packets <= _FEW_PACKETS else 0
