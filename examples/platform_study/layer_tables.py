"""Read tables of layers, and write their computation and communication as ASTRA-sim 1.0 text workloads."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PARALLELISMS", "Layer", "read_layers", "text_workload"]

TABLES = Path(__file__).resolve().parent / "layers"
PARALLELISMS = ("data", "model", "hybrid")
_POLICIES = {"data": "DATA", "model": "MODEL", "hybrid": "HYBRID_DATA_MODEL"}
BYTES_PER_ELEMENT = 2  # half precision: parameters, gradients and activations


@dataclass(frozen=True)
class Layer:
    """A layer's shape; *positions* are pixels of an image or tokens of a sequence.

    *split* states how model parallelism divides the layer: by ``outputs``, which all ranks gather; by
    ``columns`` of the weights, without communication, because the next layer uses the share; by ``rows``,
    with partial sums that are reduced; by ``heads``, without communication; or not at all (``replicated``).
    """

    name: str
    kind: str
    inputs: int
    outputs: int
    kernel: int
    input_positions: int
    output_positions: int
    bias: bool
    norm: bool
    split: str

    @property
    def parameters(self) -> int:
        """The number of trained parameters, including the normalisation."""
        weights = self.inputs * self.outputs * self.kernel**2 if self.kind in {"conv", "linear"} else 0
        return weights + self.outputs * self.bias + 2 * self.outputs * self.norm

    @property
    def operations(self) -> int:
        """The floating-point operations of a sample's forward pass, which equal those of each gradient."""
        if self.kind == "norm":
            return 0
        return 2 * self.inputs * self.outputs * self.kernel**2 * self.output_positions


Passes = Callable[[Layer, int], tuple[int, int, int]]
"""A function of a layer and the samples of a rank that returns the times (ns) of the three passes."""


def read_layers(model: str) -> list[Layer]:
    """Return the layers of *model* (``vgg16``, ``resnet50`` or ``gpt3``), first to last."""
    with (TABLES / f"{model}.csv").open(newline="", encoding="utf-8") as table:
        return [_layer(row) for row in csv.DictReader(table)]


def _layer(row: dict[str, str]) -> Layer:
    return Layer(
        name=row["layer"],
        kind=row["kind"],
        inputs=int(row["inputs"]),
        outputs=int(row["outputs"]),
        kernel=int(row["kernel"]),
        input_positions=int(row["input_positions"]),
        output_positions=int(row["output_positions"]),
        bias=row["bias"] == "1",
        norm=row["norm"] == "1",
        split=row["split"],
    )


def text_workload(
    layers: list[Layer], parallelism: str, group: int, samples_per_rank: int, passes: Passes
) -> str:
    """Return the text workload of a training step, times in ns.

    *passes* returns the times of the three passes of a layer. In ``data`` parallelism, each rank has
    *samples_per_rank* samples. In ``model`` parallelism, the ranks of a *group* share the samples of the
    whole group and divide each layer, so that the computation of a rank stays the same. In ``hybrid``
    parallelism, the groups also reduce the gradients of their shares.
    """
    rows = [_row(layer, parallelism, group, samples_per_rank, passes) for layer in layers]
    return "\n".join([_POLICIES[parallelism], str(len(rows)), *rows]) + "\n"


def _row(layer: Layer, parallelism: str, group: int, samples: int, passes: Passes) -> str:
    times_ns = passes(layer, samples)
    shared = _activations(layer, group, samples * group) if parallelism != "data" else ["NONE 0", "NONE 0"]
    held = group if parallelism == "hybrid" and layer.split != "replicated" else 1
    size = -(-layer.parameters * BYTES_PER_ELEMENT // held) if parallelism != "model" else 0
    communications = [*shared, f"ALLREDUCE {size}" if size else "NONE 0"]
    columns = " ".join(
        f"{time_ns} {communication}" for time_ns, communication in zip(times_ns, communications, strict=True)
    )
    return f"{layer.name} -1 {columns} 0"


def _activations(layer: Layer, ranks: int, samples: int) -> list[str]:
    """Return the communication of model parallelism in the forward pass and for the input's gradient."""
    outputs = layer.outputs * layer.output_positions * samples * BYTES_PER_ELEMENT
    inputs = layer.inputs * layer.input_positions * samples * BYTES_PER_ELEMENT
    forward = {"outputs": f"ALLGATHER {-(-outputs // ranks)}", "rows": f"ALLREDUCE {outputs}"}
    backward = f"ALLREDUCE {inputs}" if layer.split in {"outputs", "columns"} else "NONE 0"
    return [forward.get(layer.split, "NONE 0"), backward]
