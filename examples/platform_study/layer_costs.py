"""Times of a layer on a chip, with the costs of `chakrascope predict`."""

from __future__ import annotations

from layer_tables import BYTES_PER_ELEMENT, Layer

from chakrascope.runner import NetworkConfig
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import ChipPrices, Links
from chakrascope.runner.prediction.models import Operator

__all__ = ["Costs"]

# The number of reads and writes per output element, in addition to the product. In the forward pass, a
# normalisation reads twice and writes once, and the activation reads and writes once. In the backward pass,
# the gradient is also read or written.
_TOUCHES = {True: 5, False: 2}
_BACKWARD = 2


class Costs:
    """The costs of a *chip*: the share of the chip's peak that each class of operators reaches."""

    def __init__(self, chip: str, network: str) -> None:
        found = find_chip(chip)
        software, costs = next(iter(found.costs.items()))
        links = Links.of(NetworkConfig.preset(network))
        self._prices = ChipPrices(found, costs, found.precision, links)
        self.name, self.software = chip, software

    def passes(self, layer: Layer, samples: int) -> tuple[int, int, int]:
        """Return the times of *layer* in ns: forward pass, gradient of inputs, gradient of weights."""
        product = sum(self._prices.operator_ns(each) for each in _products(layer, samples))
        touched = self._prices.operator_ns(_pointwise(layer, samples))
        weights = product if layer.kind in {"conv", "linear"} else 0.0
        # Both gradients of attention are gradients of inputs.
        inputs = product if weights else _BACKWARD * product
        return round(product + touched), round(inputs + _BACKWARD * touched), round(weights)


def _products(layer: Layer, samples: int) -> list[Operator]:
    if layer.kind == "norm":
        return []
    moved = layer.parameters
    moved += (layer.inputs * layer.input_positions + layer.outputs * layer.output_positions) * samples
    kind = "attention" if layer.kind == "attention" else "gemm"
    return [Operator(layer.name, kind, layer.operations * samples, moved * BYTES_PER_ELEMENT)]


def _pointwise(layer: Layer, samples: int) -> Operator:
    elements = layer.outputs * layer.output_positions * samples
    # The share that attention reaches includes the time of its scores.
    touches = 0 if layer.kind == "attention" else _TOUCHES[layer.norm]
    return Operator(layer.name, "pointwise", elements, touches * elements * BYTES_PER_ELEMENT)
