"""Unroll a training loop over layers into a graph, in the order of ASTRA-sim 1.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..chakra import COMM_LANE, CollectiveType, EdgeKind, Graph, GraphBuilder, NodeType, communication

__all__ = ["Collective", "Layer", "Loop", "Pass", "unroll"]

_COMPUTE_LANE = 0


class Collective(msgspec.Struct, frozen=True):
    """A collective and its bytes, by ASTRA-sim's conventions."""

    kind: CollectiveType
    size_bytes: int


class Pass(msgspec.Struct, frozen=True):
    """One pass through a layer: its computation, and the communication after it."""

    duration_ns: int
    collective: Collective | None


class Layer(msgspec.Struct, frozen=True):
    """A layer's forward pass, gradient of its input, and gradient of its weights.

    Forward and input-gradient collectives are in *model_group*, those of weights in *data_group*; a negative
    group has no other member.
    """

    name: str
    forward: Pass
    input_gradient: Pass
    weight_gradient: Pass
    model_group: int = 0
    data_group: int = 0


class Loop(msgspec.Struct, frozen=True):
    """The training loop of one rank, of *passes* steps.

    With *last_bottom*, the first layer's collectives overlap layers 1 to *last_bottom*, as in recommenders.
    When the backward pass reaches a layer of *initiates*, everything since the last of *checkpoints* is
    computed forward again. With *only_weight_collectives*, the step consists of these alone, all at once. The
    first layer's input gradient is communicated only with *first_input_collective*, for workloads that do not
    list the layers below the first transformer block.
    """

    layers: Sequence[Layer]
    passes: int
    input_gradient_first: bool
    only_weight_collectives: bool = False
    last_bottom: int | None = None
    checkpoints: Sequence[int] = ()
    initiates: Sequence[int] = ()
    first_input_collective: bool = False


class _Unrolled(GraphBuilder):
    """The graph under construction. The next computation waits for the nodes in *tail*."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop
        self.tail: list[int] = []
        self.weights: dict[int, int] = {}
        self.step = 0

    def compute(self, layer: Layer, what: str, duration_ns: int, waits: Sequence[int]) -> int:
        """Append a computation after *waits*."""
        phase = "forward" if what.startswith("forward") else "backward"
        columns = {
            "type": NodeType.COMP,
            "name": f"{layer.name} {what}",
            "duration_ns": duration_ns,
            "stream": _COMPUTE_LANE,
            "operator": what,
            "phase": phase,
        }
        return self._add(columns, layer, waits)

    def communicate(
        self, layer: Layer, what: str, collective: Collective | None, group: int, waits: Sequence[int]
    ) -> int | None:
        """Append a collective after *waits*; None without a collective or other members."""
        if collective is None or group < 0:
            return None
        columns = communication(NodeType.COMM_COLL, collective.kind, collective.size_bytes, group=group)
        columns["name"] = f"{layer.name} {what} {columns['name']}"
        return self._add(columns | {"stream": COMM_LANE + group, "operator": what}, layer, waits)

    def _add(self, columns: dict[str, Any], layer: Layer, waits: Sequence[int]) -> int:
        placed = {**columns, "module": layer.name, "step": self.step}
        return self.add(placed, dict.fromkeys(waits, EdgeKind.DATA))

    def forward(self, first: int, last: int, *, again: bool = False) -> None:
        """Append the forward passes of layers *first* to *last*, in sequence."""
        loop, what = self.loop, "forward again" if again else "forward"
        embedding: int | None = None
        for index in range(first, last + 1):
            layer = loop.layers[index]
            waits = [*self.tail, *([self.weights[index]] if index in self.weights else [])]
            if loop.last_bottom is not None and index == loop.last_bottom + 1 and embedding is not None:
                waits.append(embedding)
            node = self.compute(layer, what, layer.forward.duration_ns, waits)
            comm = self.communicate(layer, what, layer.forward.collective, layer.model_group, [node])
            overlapped = loop.last_bottom is not None and index == 0
            embedding = comm if overlapped else embedding
            self.tail = [node] if comm is None or overlapped else [comm]

    def backward(self) -> None:
        """Append the backward passes of all layers."""
        loop = self.loop
        embedding: int | None = None
        for index in reversed(range(len(loop.layers))):
            if index in loop.initiates:
                self.forward(
                    max([at for at in loop.checkpoints if at <= index], default=0), index, again=True
                )
            if loop.last_bottom is not None and index == 0 and embedding is not None:
                self.tail.append(embedding)
            if loop.input_gradient_first:
                self._input_first(index)
            else:
                self._weights_first(index)
            if loop.last_bottom is not None and index == loop.last_bottom + 1:
                first = loop.layers[0]
                embedding = self.communicate(
                    first, "input gradient", first.input_gradient.collective, first.model_group, self.tail
                )

    def _input_first(self, index: int) -> None:
        """Compute the input's gradient, then the weights' while that one is communicated."""
        layer = self.loop.layers[index]
        node = self.compute(layer, "input gradient", layer.input_gradient.duration_ns, self.tail)
        comm = None
        if index or self.loop.first_input_collective:
            collective = layer.input_gradient.collective
            comm = self.communicate(layer, "input gradient", collective, layer.model_group, [node])
        weights = self._weights(index, [node])
        self.tail = [weights] if comm is None else [weights, comm]

    def _weights_first(self, index: int) -> None:
        """Compute the weights' gradient, then, while that one is communicated, the input's."""
        layer = self.loop.layers[index]
        self.tail = [self._weights(index, self.tail)]
        if index:
            node = self.compute(layer, "input gradient", layer.input_gradient.duration_ns, self.tail)
            comm = None
            if self.loop.last_bottom is None:
                collective = layer.input_gradient.collective
                comm = self.communicate(layer, "input gradient", collective, layer.model_group, [node])
            self.tail = [node if comm is None else comm]

    def _weights(self, index: int, waits: Sequence[int]) -> int:
        """Append the weight gradient of layer *index* and its collective, which the next step waits for."""
        layer = self.loop.layers[index]
        node = self.compute(layer, "weight gradient", layer.weight_gradient.duration_ns, waits)
        collective = layer.weight_gradient.collective
        comm = self.communicate(layer, "weight gradient", collective, layer.data_group, [node])
        self.weights[index] = node if comm is None else comm
        return node


def unroll(rank: int, loop: Loop) -> Graph:
    """Return the graph of *loop* on *rank*; a step's forward pass waits for the weights of the last one."""
    unrolled = _Unrolled(loop)
    for step in range(loop.passes):
        unrolled.step = step
        if loop.only_weight_collectives:
            for layer in loop.layers:
                collective = layer.weight_gradient.collective
                unrolled.communicate(layer, "weight gradient", collective, layer.data_group, [])
            continue
        unrolled.forward(0, len(loop.layers) - 1)
        unrolled.backward()
    return unrolled.graph(rank)
