"""A deeper model: one of its equal layers more often, forwards and backwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....errors import UsageError, WorkloadError
from ...chakra import CollectiveType, EdgeKind, Graph, NodeType, Workload, recognise
from ._periods import Periods, alike, repeated

__all__ = ["with_layers"]

_NUMBERED = re.compile(r"(?:^|(?<=\.))(\d+)(?=\.|$)")
_PEERS = (NodeType.COMM_SEND, NodeType.COMM_RECV)
_INSTEAD = "Capture the deeper model, or record its script."


def with_layers(workload: Workload, count: int) -> Workload:
    """Return *workload* as with a model of *count* layers, all like those in the middle of it.

    Layers are modules with a number in their path. Raises `UsageError` for fewer than it has, and
    `WorkloadError` where no two layers do the same one after the other, or gradients of several travel
    together.
    """
    graphs = workload.graphs
    if any(np.isin(graph.node_columns["type"], _PEERS).any() for graph in graphs):
        raise WorkloadError(
            "The ranks of the workload are stages of a pipeline, and how more layers would be shared out "
            f"among them is not known. {_INSTEAD}"
        )
    replicas = recognise(graphs, workload.program_of_rank, workload.groups).replicas
    found = [_Layers.of(graph) for graph in graphs]
    (present,) = {layers.count for layers in found} if len({layers.count for layers in found}) == 1 else (0,)
    if not present:
        raise WorkloadError(f"The ranks of the workload have different numbers of layers. {_INSTEAD}")
    if count < present:
        raise UsageError(
            f"The captured model has {present} layers, and --layers {count} is less. Ask for {present} or "
            "more, or capture a smaller model."
        )
    if count == present:
        return workload
    made = tuple(_deeper(layers, count - present, replicas) for layers in found)
    said = (
        f"{count} layers instead of {present}: one like those in the middle is repeated, and what follows "
        "the backward pass (the optimizer) takes longer by its share of the weights"
    )
    metadata = {**workload.metadata, "assumptions": [*workload.metadata.get("assumptions", []), said]}
    metadata.pop("accounting", None)
    return replace(workload, graphs=made, metadata=metadata)


@dataclass(frozen=True)
class _Layers:
    """The layers of *graph*: *of_row* is the number of each row's, -1 for none; *prefix* leads to them."""

    graph: Graph
    of_row: np.ndarray
    prefix: str

    @classmethod
    def of(cls, graph: Graph) -> _Layers:
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
        alike = np.array([text == phase for text in texts.texts], dtype=bool)[texts.numbers]
        rows = np.flatnonzero(alike & (self.of_row >= 0))
        firsts = [int(rows[self.of_row[rows] == number][0]) for number in np.unique(self.of_row[rows])]
        return [*sorted(firsts), int(rows[-1]) + 1] if len(rows) else []

    def name_of(self) -> Callable[[int], object]:
        """Return what tells what a row does, whichever layer it is of."""
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


def _deeper(layers: _Layers, times: int, replicas: frozenset[int]) -> Graph:
    """Return the graph of *layers* with one of them *times* more often."""
    graph, name_of = layers.graph, layers.name_of()
    cuts = {phase: layers.cuts(phase) for phase in ("forward", "backward")}
    forward = _periods(graph, cuts["forward"], name_of, "forward")
    share = _share(graph, forward)
    if not cuts["backward"]:  # inference
        return repeated(_scaled(graph, cuts["forward"][-1], 1 + times * share), forward, times)
    backward = _periods(graph, cuts["backward"], name_of, "backward")
    if replicas:
        _check_gradients(graph, backward, replicas)
    result = _without_saved_tensors(_scaled(graph, cuts["backward"][-1], 1 + times * share), forward)
    return repeated(repeated(result, backward, times), forward, times)


def _periods(graph: Graph, cuts: Sequence[int], name_of: Callable[[int], object], phase: str) -> Periods:
    found = alike(graph, cuts, name_of)
    if found is None:
        raise WorkloadError(
            f"No two layers of rank {graph.rank} do the same one after the other in the {phase} pass, so "
            f"what one more adds is not known. {_INSTEAD}"
        )
    return found


def _check_gradients(graph: Graph, backward: Periods, replicas: frozenset[int]) -> None:
    """Refuse layers whose gradients are reduced with those of others: more layers change the buckets."""
    last = backward.found[-1]
    nodes = graph.node_columns
    inside = slice(last.begin, last.end)
    kinds = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
    of_data = np.isin(nodes["group"][inside], list(replicas)) & np.isin(nodes["comm_type"][inside], kinds)
    if not of_data.any():
        raise WorkloadError(
            f"The gradients of several layers of rank {graph.rank} are reduced together, in buckets that "
            f"other layers would fill differently. {_INSTEAD}"
        )


def _share(graph: Graph, forward: Periods) -> float:
    """Return the share of a layer in the weights: of what is gathered, else of the forward operations."""
    nodes = graph.node_columns
    phase = nodes["phase"]
    is_forward = np.array([text == "forward" for text in phase.texts], dtype=bool)[phase.numbers]
    gathers = (nodes["comm_type"] == CollectiveType.ALL_GATHER) & (np.arange(graph.num_nodes) < forward.end)
    amounts = np.where(gathers, nodes["comm_size_bytes"], 0)
    if not amounts.any():
        amounts = np.where(is_forward & (nodes["type"] == NodeType.COMP), nodes["num_ops"], 0)
    last = forward.found[-1]
    return float(amounts[last.begin : last.end].sum() / max(1, amounts.sum()))


def _scaled(graph: Graph, behind: int, factor: float) -> Graph:
    """Return *graph* with the computation from row *behind* on *factor* times as large."""
    nodes = graph.node_columns
    rows = (np.arange(graph.num_nodes) >= behind) & (nodes["type"] == NodeType.COMP)
    changed = {
        name: np.where(rows & (nodes[name] > 1), np.rint(nodes[name] * factor), nodes[name]).astype(np.int64)
        for name in ("duration_ns", "num_ops", "tensor_size_bytes")
    }
    return graph.with_columns(**changed)


def _without_saved_tensors(graph: Graph, forward: Periods) -> Graph:
    """Leave out what later rows of the same stream take from the forward pass: the stream orders them."""
    edges, nodes = graph.edge_columns, graph.node_columns
    rows = {number: row for row, number in enumerate(nodes["node_id"].tolist())}
    kept = []
    for src, dst, kind in zip(*(edges[name].tolist() for name in ("src", "dst", "kind")), strict=True):
        one, other = rows[src], rows[dst]
        inside = forward.begin <= one < forward.end <= other
        same = nodes["stream"][one] == nodes["stream"][other]
        if not (inside and same and kind in (EdgeKind.DATA, EdgeKind.AUTOGRAD)):
            kept.append((src, dst, kind))
    return graph.with_edges(kept)
