"""The flow-level backend: messages as fluids that share the links of a fabric."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ConfigError
from ...support import count_text
from .. import engine
from .._experiment import Experiment
from .._framed import typed
from .._result import COLUMNS, Result
from ..config import NO_CONTROL, PacketNetwork
from ._base import Progress
from ._changes import changes_told
from ._fabric import set_fabric
from ._flows import completion_times
from ._native import NativeBackend
from ._packet import drops_told, packet_facts
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

# Packets of a message, in the mean: where there are more, they cost more than they tell.
_FEW_PACKETS = 100
_MOST_IN_A_PIECE = 16

_QUEUES = (
    "Flows share links instead of queueing at them: queueing times of links are what rates and windows let "
    "stand there, summed over packets; queues of acknowledgements are left out."
)
_PIECES = (
    "Messages are short against their windows: they travelled in pieces of up to {}, which wait for links in "
    "the order in which they come."
)
_PACKETS = (
    "Messages have few packets, or are steps of not many that are not all alike: every packet was simulated, "
    "as 'packet' does, whose answer this is."
)


class FlowBackend(NativeBackend):
    """Messages share links fairly, as the packets of the backend ``packet`` would have them do.

    The same fabric, paths, headers, acknowledgements and windows, but no packets: the cost grows with the
    messages, not with their bytes. ``provenance["flow"]["flags"]`` names what this model is known to be bad
    at and the run met (keys of `FLAGS`).

    Messages that are short against their windows travel in pieces of
    ``provenance["flow"]["packets_a_piece"]`` packets at most, which wait for links in the order in which they
    come. Where messages have few packets, or are steps of not many that are not all alike, every packet is
    simulated (pieces of 1), as `PacketBackend` does. Where such steps have longer messages, and no flag was
    met, it simulates again with noise: ``provenance["flow"]["moved"]`` is the share of the makespan by which
    that moves it. With *packets_a_piece*, all messages travel in pieces.
    """

    def __init__(self, packets_a_piece: int = 0) -> None:
        super().__init__(congestion_aware=False)
        self.packets_a_piece = packets_a_piece
        self.model = engine.FabricModel.PIECES if packets_a_piece else engine.FabricModel.FLOW

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*, and where that may hang on little, in pieces, by packets, or with noise too.

        Raises as other backends do.
        """
        result = self.simulate(experiment, progress)
        facts = result.provenance["flow"]
        fluids = "packets_a_piece" not in facts
        drifts = fluids and not facts["flags"] and may_drift(result.columns("flows"), result.makespan_ns)
        return self._shaken(experiment, result, progress) if drifts else result

    def _simulated(self, config: Any, experiment: Experiment, progress: Progress | None) -> Any:
        """Return the engine's output: that of a better model where there is one for this experiment."""
        output = super()._simulated(config, experiment, progress)
        if output.fabric_model != engine.FabricModel.FLOW:
            return output
        better = _better_model(output, experiment.packet_network)
        if better is None:
            return output
        config.fabric_model = better
        return super()._simulated(config, experiment, progress)

    def _shaken(self, experiment: Experiment, result: Result, progress: Progress | None) -> Result:
        """Return *result* with what noise does to it."""
        network = experiment.packet_network

        def finished(_now: int, _done: int) -> bool:
            return progress is None or progress(result.makespan_ns, experiment.workload.num_ranks)

        def shaken(packets: float) -> Any:
            config = self._config(experiment)
            config.record_nodes = config.record_links = False
            config.pieces_for_bursts = config.packets_for_few = False
            config.shake_packets = packets
            source = experiment.workload
            return engine.simulate(config, list(source.programs), source.program_of_rank, finished)

        flows = result.columns("flows")
        message_ns = float((flows["end_ns"] - flows["start_ns"]).mean())
        return _told(result, moved_by_shaking(result.makespan_ns, message_ns, _packet_ns(network), shaken))

    def _config(self, experiment: Experiment) -> Any:
        config = super()._config(experiment)
        network = experiment.packet_network
        set_fabric(config, self.model, network)
        config.pieces_for_bursts = _has_pieces(network)
        config.packets_for_few = _has_packets(network)
        config.piece_packets = self.packets_a_piece or _MOST_IN_A_PIECE
        return config

    def _complete(self, result: Result, experiment: Experiment, output: Any) -> Result:
        network = experiment.packet_network
        flows = typed(output.fabric.flows, COLUMNS["flows"])
        link_use = typed(output.fabric.stretches, COLUMNS["link_use"])
        packets = output.fabric_model == engine.FabricModel.PACKET
        flags, pieces = list(output.fabric.flags), 1 if packets else int(output.fabric.largest_piece)
        facts: dict[str, Any] = {"flags": flags}
        facts |= {"packets_a_piece": pieces} if pieces else {"rate_changes": int(output.fabric.events)}
        times = completion_times(flows)
        if times:
            facts["flow_completion_ns"] = times
        told: dict[str, Any] = {"flow": facts}
        warnings = [*result.provenance["warnings"], *network.warnings(), *(FLAGS[flag] for flag in flags)]
        if packets:
            told["packets"] = packet_facts(output.fabric, times)
            warnings += drops_told(told["packets"])
        told["warnings"] = warnings
        queues = _PACKETS if packets else _PIECES.format(count_text(pieces, "packet"))
        changes = changes_told(network, output.fabric.changes)
        told["assumptions"] = [
            *result.provenance["assumptions"],
            queues if pieces else _QUEUES,
            *changes,
        ]
        return result.with_columns(flows=flows, link_use=link_use, provenance=result.provenance | told)


def _told(result: Result, moved: Moved) -> Result:
    """Return *result*, which says how far noise moved it."""
    flags = ["unsteady"] if moved.hangs else []
    facts = result.provenance["flow"]
    facts = facts | {"flags": [*facts["flags"], *flags], "moved": round(moved.share, 6)}
    warnings = [*result.provenance["warnings"], *(FLAGS[flag] for flag in flags)]
    return result.with_columns(provenance=result.provenance | {"flow": facts, "warnings": warnings})


def _packet_ns(network: PacketNetwork) -> float:
    """Return how long a packet takes on the slowest link, without its header."""
    slowest = min(link.rate_bps for link in network.links)
    return float(network.settings["PACKET_PAYLOAD_SIZE"]) * 8e9 / slowest


def _has_pieces(network: PacketNetwork) -> bool:
    """Return whether messages may travel in pieces: these know no control, no loss and no change."""
    settings = network.settings
    beyond = (
        settings["ASTRA_SIM_CLOCK"] or settings["ACK_HIGH_PRIO"] or network.lossy or network.changes_later
    )
    return settings["CC_MODE"] == NO_CONTROL and not beyond


def _has_packets(network: PacketNetwork) -> bool:
    """Return whether packets may answer: where pieces might, unless the packet model refuses the network."""
    if not _has_pieces(network):
        return False
    try:
        network.check_buffers()
        network.check_timeout()
    except ConfigError:
        return False
    return True


def _better_model(output: Any, network: PacketNetwork) -> engine.FabricModel | None:
    """Return the model that tells more than the fluids of *output* at a cost that is worth it, if any."""
    flows, flags = output.fabric.flows, output.fabric.flags
    if not len(flows["bytes"]):
        return None
    packets = np.ceil(flows["bytes"] / network.settings["PACKET_PAYLOAD_SIZE"]).mean()
    drifts = not flags and may_drift(flows, output.makespan_ns)
    if packets <= _FEW_PACKETS and (flags or drifts) and _has_packets(network):
        return engine.FabricModel.PACKET
    return None
