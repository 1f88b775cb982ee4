"""The layers of a model: modules with a number in their path."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....converter.chakra import Graph
from ....errors import WorkloadError

__all__ = ["Layers"]

_NUMBERED = re.compile(r"(?:^|(?<=\.))(\d+)(?=\.|$)")


@dataclass(frozen=True)
class Layers:
    """The layers of *graph*: *of_row* is the number of each row's, -1 for none; *prefix* leads to them."""

    graph: Graph
    of_row: np.ndarray
    prefix: str

    @classmethod
    def of(cls, graph: Graph) -> Layers:
        """Find the modules that are numbered, those that most rows are of if there are several lists."""
        module = graph.node_columns["module"]
        parts = [_split(text) for text in module.texts]
        rows = np.bincount(module.numbers, minlength=len(parts))
        weight: dict[str, int] = {}
        for (prefix, number), times in zip(parts, rows.tolist(), strict=True):
            if number >= 0:
                weight[prefix] = weight.get(prefix, 0) + times
        if not weight:
            raise WorkloadError(
                f"No module of rank {graph.rank} has a number in its path, so its layers are not known. "
                "Capture with the names of modules, which torch.compile takes away."
            )
        chosen = max(weight, key=lambda prefix: weight[prefix])
        numbers = np.array([number if prefix == chosen else -1 for prefix, number in parts])
        return cls(graph, numbers[module.numbers], chosen)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(np.unique(self.of_row[self.of_row >= 0]))

    def cuts(self, phase: str) -> list[int]:
        """Return where each layer begins in *phase*, and behind the last one's last row."""
        texts = self.graph.node_columns["phase"]
        alike = texts == phase
        rows = np.flatnonzero(alike & (self.of_row >= 0))
        firsts = [int(rows[self.of_row[rows] == number][0]) for number in np.unique(self.of_row[rows])]
        return [*sorted(firsts), int(rows[-1]) + 1] if len(rows) else []

    def passes(self) -> int:
        """Return how often the forward pass comes to the first layer after another one."""
        phase = self.graph.node_columns["phase"]
        is_forward = phase == "forward"
        visited = self.of_row[is_forward & (self.of_row >= 0)]
        if not len(visited):
            return 0
        starts = visited == visited.min()
        return int((starts[1:] & ~starts[:-1]).sum()) + int(starts[0])

    def name_of(self) -> Callable[[int], object]:
        """Return the key of a row's operation, independent of its layer."""
        nodes, prefix = self.graph.node_columns, self.prefix
        operator, phase, module = nodes["operator"], nodes["phase"], nodes["module"]
        plain = [text.removeprefix(prefix).partition(".")[2] for text in module.texts]
        numbers = ("type", "stream", "comm_type", "comm_size_bytes", "group", "num_ops", "tensor_size_bytes")

        def name_of(row: int) -> object:
            words = (operator.texts[operator.numbers[row]], phase.texts[phase.numbers[row]])
            return (*words, plain[module.numbers[row]], *(int(nodes[name][row]) for name in numbers))

        return name_of


def _split(module: str) -> tuple[str, int]:
    """Return what leads to the number in the path of *module*, and the number; -1 if there is none."""
    match = _NUMBERED.search(module)
    return (module[: match.start()], int(match[1])) if match else ("", -1)
