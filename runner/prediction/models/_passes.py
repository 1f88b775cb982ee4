"""The blocks of a pipeline stage: forward passes, (halves of) backward passes, and the end of the step."""

from __future__ import annotations

from collections.abc import Sequence

from ....converter.chakra import CollectiveType, NodeType
from ._blocks import AXIS_LANES, LANES, Block, Stage
from ._memory import activation_bytes
from ._operators import (
    PRODUCTS,
    Exchange,
    Item,
    Operator,
    launched_ahead,
    optimizer_step,
    pass_over_layer,
    pass_over_output,
)
from ._plan import OFFLOAD
from ._transformer import Transformer


class Passes:
    """The passes of a pipeline *stage* over its layers of *model*."""

    def __init__(self, model: Transformer, stage: Stage) -> None:
        self.model, self.stage, self.plan = model, stage, stage.plan
        self.parts = [
            self.plan.layers_of(stage.stage, chunk, model.layers) for chunk in range(self.plan.chunks)
        ]
        self._plans = {layer: self.plan.at(place) for part in self.parts for place, layer in enumerate(part)}

    def is_first(self, chunk: int) -> bool:
        """Return whether *chunk* is the first chunk of the model."""
        return self.stage.stage == 0 and chunk == 0

    def is_last(self, chunk: int) -> bool:
        """Return whether *chunk* is the last chunk of the model."""
        return self.stage.stage == self.plan.pp - 1 and chunk == self.plan.chunks - 1

    def layer(self, layer: int, *, backward: bool = False) -> Sequence[Item]:
        """Return the operators of a micro-batch in *layer*."""
        return pass_over_layer(self.model, self._plans[layer], layer, backward=backward)

    def output(self, *, backward: bool = False) -> Sequence[Item]:
        """Return the operators of a micro-batch after the last layer."""
        return pass_over_output(self.model, self.plan, backward=backward)

    def forward(self, chunk: int, *, is_first: bool = False) -> Block:
        """Return the forward pass of a micro-batch through *chunk*.

        The first pass of a step (*is_first*) gathers the weights that later passes of the step also use.
        """
        block = Block()
        gathers = self.plan.shards_each_pass or (is_first and self.gathers_late)
        self._receive(block, is_end=self.is_first(chunk), step=-1)
        units: list[tuple[Sequence[Item], int]] = [(self.layer(layer), layer) for layer in self.parts[chunk]]
        if self.is_last(chunk):
            units.append((self.output(), -1))
        for place, (items, layer) in enumerate(units or [self._embedding]):
            self._unit(block, items, layer, place, "forward", gathers=gathers)
        self._send(block, is_end=self.is_last(chunk), step=1)
        return block

    def backward(self, chunk: int, *, half: str = "B", reduces: bool = False) -> Block:
        """Return the backward pass, or a *half*: gradients of only inputs (``I``) or only weights (``W``).

        If *reduces* is true, gradients are reduced after each layer, as for the last micro-batch of a step.
        """
        block = Block()
        if half != "W":
            self._receive(block, is_end=self.is_last(chunk), step=1)
        units = [(self.layer(layer, backward=True), layer) for layer in reversed(self.parts[chunk])]
        if self.is_last(chunk):
            units.insert(0, (self.output(backward=True), -1))
        for place, (items, layer) in enumerate(units or [self._embedding]):
            done = items if half == "B" else _half(items, half, frozen=self.plan.frozen)
            gathers = self.plan.zero == 3 and self.plan.shards_each_pass and half != "W"
            self._unit(block, done, layer, place, "backward", gathers=gathers, half=half)
            if layer >= 0 and half != "I" and not self.plan.frozen:
                self._reduce(block, layer, every=self.plan.shards_each_pass, last=reduces)
        if half != "W":
            self._send(block, is_end=self.is_first(chunk), step=-1)
        return block

    def end(self) -> Block:
        """Return the end of a step: reduction of remaining gradients, optimizer, and gathering of weights."""
        block, plan = Block(), self.plan
        block.compute("end of backward", 1, operator="end", phase="optimizer", kind="compute", num_ops=1,
                      tensor_size_bytes=1)  # fmt: skip
        if not plan.shards_each_pass:
            parts = [
                ("weights", self._dense_params(every=not plan.overlap), plan.data_axes),
                *self._experts(every=not plan.overlap),
            ]
            for name, params, axes in parts:
                block.last = self._gradient(block, name, params, axes, [block.last], "")
        owned = self._dense_params(every=True) / (plan.degree(*plan.data_axes) if plan.zero else 1)
        for _, params, axes in self._experts(every=True):
            owned += params / (plan.degree(*axes) if plan.zero else 1)
        if plan.lora:
            owned = self._adapters(block)
        if plan.lora or not plan.frozen:
            self.stage.append(block, optimizer_step(owned, plan), "optimizer")
        if plan.zero == 1 and not plan.frozen and not plan.overlap:
            whole = ("weights", self._dense_params(every=True), plan.data_axes)
            for name, params, axes in (whole, *self._experts(every=True)):
                gathered = Exchange(
                    f"new {name}", CollectiveType.ALL_GATHER, axes, params * plan.element_bytes
                )
                node = self.stage.exchange(block, gathered, [block.last], AXIS_LANES["gather"])
                block.last = node if node >= 0 else block.last
        if self.stage.prices.step_ns >= 1:
            block.compute("rest of the step", self.stage.prices.step_ns, operator="rest", phase="optimizer",
                          kind="host", num_ops=1, tensor_size_bytes=1)  # fmt: skip
        return block

    def _adapters(self, block: Block) -> float:
        """Append the reduction of adapter gradients, and return the rank's number of adapter parameters."""
        plan = self.plan
        params = sum(map(len, self.parts)) * self.model.adapter_params(plan.lora) / plan.tp
        reduced = Exchange("adapters", CollectiveType.ALL_REDUCE, plan.data_axes, params * plan.grad_bytes)
        node = self.stage.exchange(block, reduced, [block.last], AXIS_LANES["scatter"])
        block.last = node if node >= 0 else block.last
        return params / (plan.degree(*plan.data_axes) if plan.zero else 1)

    @property
    def gathers_late(self) -> bool:
        """Whether weights are gathered once per step, at their first use."""
        plan = self.plan
        if plan.zero == 3:
            return not plan.shards_each_pass
        return plan.zero == 1 and plan.overlap and not plan.frozen

    def _unit(
        self,
        block: Block,
        items: Sequence[Item],
        layer: int,
        place: int,
        phase: str,
        *,
        gathers: bool,
        half: str = "B",
    ) -> None:
        """Append a layer after its launches on the host and the gathering of its weights."""
        waits = [self._host(block, layer, phase, half)] if layer >= 0 else []
        if gathers and layer >= 0:
            waits.append(self._gather(block, layer, place))
        offloads = layer >= 0 and self._plans[layer].recompute == OFFLOAD
        if offloads and half != "W":
            waits += self._waits_for_copies(block, layer, place, phase)
        before = len(block.nodes)
        self._begin(block, items, waits, phase)
        if offloads and phase == "forward":
            stored = self._activations_of(layer, "activations to the host")
            block.stored.append(self.stage.copied(block, stored, [block.last], "store", phase))
        if before < len(block.nodes):
            block.late = before
        overlapped = self._slowed_ns(layer, phase, half) if layer >= 0 else 0
        overlapped += sum(
            self.stage.prices.slowed_ns(item, self.stage.where(item.axes))
            for item in items
            if isinstance(item, Exchange) and item.overlapped
        )
        if overlapped >= 1:
            block.compute("slowed by collectives", overlapped, operator="overhead", module=f"layers.{layer}",
                          phase=phase, kind="compute", num_ops=1, tensor_size_bytes=1)  # fmt: skip

    def _waits_for_copies(self, block: Block, layer: int, place: int, phase: str) -> list[int]:
        """Return the copies between chip and host that *layer* waits for.

        A forward pass waits for the copy of the activations of the layer before the previous layer to the
        host. A backward pass waits for the layer's activations, which are copied back during the previous
        layer of the pass.
        """
        if phase == "forward":
            return block.stored[-2:-1]
        waits = [block.late] if place > 0 else []
        loaded = self._activations_of(layer, "activations from the host")
        node = self.stage.copied(block, loaded, waits, "load", phase)
        if place == 0:
            block.early.append(node)
        return [node]

    def _activations_of(self, layer: int, name: str) -> Operator:
        size = activation_bytes(self.model, self.plan, layer, "none")
        return Operator(name, "copy", 0, size, f"layers.{layer}")

    def _begin(self, block: Block, items: Sequence[Item], waits: list[int], phase: str) -> None:
        start = len(block.nodes)
        self.stage.append(block, items, phase)
        if len(block.nodes) > start:
            block.edges += [(source, start, 0) for source in waits if source >= 0]

    def _host(self, block: Block, layer: int, phase: str, half: str) -> int:
        """Append the launches of a pass over a layer; a half pass for weights counts as a pass."""
        launches = launched_ahead(self.model, self.plan, layer)
        if phase == "backward":
            is_recomputed = half != "W" and self._plans[layer].recompute == "full"
            both = launched_ahead(self.model, self.plan, layer, backward=True)
            launches = (both if half == "B" else both // 2) + launches * is_recomputed
        if self.stage.prices.host_ns * launches < 1:
            return -1
        node = block.add(
            [block.synced, *block.launched[-1:]],
            name="launch",
            type=NodeType.COMP,
            duration_ns=round(self.stage.prices.host_ns * launches),
            stream=LANES["host"],
            operator="launch",
            phase=phase,
            kind="host",
        )
        block.launched.append(node)
        return node

    def _slowed_ns(self, layer: int, phase: str, half: str) -> float:
        """Return the time (ns) by which concurrent collectives prolong a pass over *layer*."""
        plan = self.plan
        if not plan.shards_each_pass:
            return 0
        gathers = phase == "forward" or (plan.zero == 3 and half != "W")
        exchanges = self._weights(layer) if gathers else []
        if phase == "backward" and half != "I" and not plan.frozen:
            exchanges += self._reduced(layer)
        return sum(
            self.stage.prices.slowed_ns(exchange, self.stage.where(exchange.axes)) for exchange in exchanges
        )

    def of_ends(self) -> dict[str, list[Exchange]]:
        """Return the first and last gather of sharded weights, and the last reduction (``ended``)."""
        layers = [layer for part in self.parts for layer in part]
        reduced = [] if self.plan.frozen else self._reduced(layers[0])
        return {"first": self._weights(layers[0]), "last": self._weights(layers[-1]), "ended": reduced}

    def _weights(self, layer: int) -> list[Exchange]:
        return self._of_unit("weights", CollectiveType.ALL_GATHER, layer, self.plan.element_bytes)

    def _reduced(self, layer: int) -> list[Exchange]:
        return self._of_unit("gradients", CollectiveType.REDUCE_SCATTER, layer, self.plan.grad_bytes)

    def _of_unit(self, name: str, kind: CollectiveType, layer: int, size_bytes: int) -> list[Exchange]:
        """Return the collectives of *layer*'s parameters, with separate groups of ranks for experts."""
        plan, module = self.plan, f"layers.{layer}"
        params, experts = self._unit_params(layer), self.plan.expert_params(self.model, layer)
        if plan.ep == 1 and plan.expert_split == plan.tp:
            params, experts = params + experts, 0.0
        parts = [(name, params, plan.data_axes), (f"{name} of experts", experts, ("edp",))]
        return [
            Exchange(part, kind, axes, count * size_bytes, module)
            for part, count, axes in parts
            if count >= 1 and plan.degree(*axes) > 1
        ]

    def _gather(self, block: Block, layer: int, place: int) -> int:
        """Append the all-gather of a layer's weights.

        Sharded weights are gathered during the computation of the preceding layer. The weights of a sharded
        optimizer are gathered from the start of the step.
        """
        waits = [block.late] if place > 0 and self.plan.zero >= 2 else []
        node = -1
        for exchange in self._weights(layer):
            node = self.stage.exchange(block, exchange, [*waits, node], AXIS_LANES["gather"])
        if place == 0 and node >= 0:
            block.early.append(node)
        return node

    def _reduce(self, block: Block, layer: int, *, every: bool, last: bool) -> None:
        """Append the reduction of a layer's gradients after *every* micro-batch, or only after the *last*."""
        plan = self.plan
        if every:
            # Gathers and scatters run one after another, because they share a communicator.
            for exchange in self._reduced(layer):
                node = self.stage.exchange(block, exchange, [block.last], AXIS_LANES["gather"])
                block.open.append(node)
        elif last and plan.overlap:
            parts = [("gradients", self._shared_params(layer), plan.data_axes)]
            if self.model.is_expert_layer(layer):
                parts.append(("gradients of experts", self.plan.expert_params(self.model, layer), ("edp",)))
            for name, params, axes in parts:
                node = self._gradient(block, name, params, axes, [block.last], f"layers.{layer}")
                block.open.append(node)

    def _gradient(  # noqa: PLR0917 - the gradient and its place in the graph
        self, block: Block, name: str, params: float, axes: tuple[str, ...], waits: Sequence[int], module: str
    ) -> int:
        kind = CollectiveType.REDUCE_SCATTER if self.plan.zero else CollectiveType.ALL_REDUCE
        if self.plan.degree(*axes) == 1 or params < 1 or self.plan.frozen:
            return waits[-1]
        exchange = Exchange(name, kind, axes, params * self.plan.grad_bytes, module)
        node = self.stage.exchange(block, exchange, waits, AXIS_LANES["scatter"])
        return node if node >= 0 else waits[-1]

    def _shared_params(self, layer: int) -> float:
        """Return the number of parameters of *layer* on this rank, except experts."""
        return self.model.shared_params_on(self.plan.tp, layer)

    def _unit_params(self, layer: int) -> float:
        """Return the number of parameters gathered with *layer*, including the embedding and the output."""
        params = self._shared_params(layer)
        if layer == 0:
            params += self.model.embedding_params / self.plan.tp
        if layer == self.model.layers - 1:
            params += self.model.output_params / self.plan.tp
        return params

    def _dense_params(self, *, every: bool) -> float:
        """Return the rank's number of non-expert parameters; without *every*, only those outside layers."""
        params = 0.0
        for chunk, layers in enumerate(self.parts):
            if every:
                params += sum(self._shared_params(layer) for layer in layers)
            if self.is_first(chunk):
                params += self.model.embedding_params / self.plan.tp
            if self.is_last(chunk) and not (self.model.tied and self.plan.pp == 1):
                params += (self.model.classes or self.model.vocab) * self.model.hidden / self.plan.tp
        return params

    def _experts(self, *, every: bool) -> list[tuple[str, float, tuple[str, ...]]]:
        params = sum(self.plan.expert_params(self.model, layer) for layers in self.parts for layer in layers)
        return [("experts", params, ("edp",))] if params and every else []

    def _receive(self, block: Block, *, is_end: bool, step: int) -> None:
        if self.plan.pp > 1 and not is_end:
            size = self.plan.message_bytes(self.model)
            block.receive = self.stage.message(block, "receive", size, [], step)

    def _send(self, block: Block, *, is_end: bool, step: int) -> None:
        if self.plan.pp > 1 and not is_end:
            self.stage.message(block, "send", self.plan.message_bytes(self.model), [block.last], step)

    @property
    def _embedding(self) -> tuple[Sequence[Item], int]:
        """The work of the embedding, which reads and writes a row for each token."""
        moved = 2 * self.plan.message_bytes(self.model)
        return [Operator("embedding", "pointwise", 0, moved, "embedding")], -1


def _half(items: Sequence[Item], half: str, *, frozen: bool) -> list[Item]:
    """Return a half of a backward pass: for inputs (``I``), or for weights (``W``, small if *frozen*)."""
    result: list[Item] = []
    for item in items:
        is_weights = isinstance(item, Operator) and item.kind in PRODUCTS and item.name.endswith("gradient")
        is_weights &= not frozen or item.name.startswith("adapter")
        if is_weights and isinstance(item, Operator):
            result.append(Operator(item.name, item.kind, item.flops / 2, item.moved_bytes / 2, item.module))
        elif half == "I":
            result.append(item)
    return result
