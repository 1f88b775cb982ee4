"""Convert ASTRA-sim 1.0 text workloads (layers with compute times and collectives) to Chakra graphs.

A file states a parallelism and the number of layers, followed by one line per layer. A line has a name, a
reserved number, an update time, and a time, a collective and its bytes for each of three passes: forward
pass, input gradient and weight gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from ...errors import UsageError, WorkloadFormatError, did_you_mean
from ..chakra import (
    COMM_LANE,
    CollectiveType,
    EdgeKind,
    Graph,
    GraphBuilder,
    NodeType,
    Workload,
    communication,
    read_et,
)

_EVERYONE, _NOBODY, _NEAR, _FAR = "everyone", "nobody", "consecutive ranks", "ranks far apart"
_COMPUTE_LANE = 0


class _Policy(msgspec.Struct, frozen=True):
    """Which ranks share a layer's activations (*model*) and weights (*data*), and the backward order."""

    model: str
    data: str
    input_gradient_first: bool = True


_POLICIES = {
    "DATA": _Policy(_NOBODY, _EVERYONE, input_gradient_first=False),
    "MODEL": _Policy(_EVERYONE, _NOBODY),
    "MICRO": _Policy(_NOBODY, _EVERYONE),
    "HYBRID_DATA_MODEL": _Policy(_NEAR, _FAR),
    "HYBRID_MODEL_DATA": _Policy(_FAR, _NEAR),
    "HYBRID_CUSTOMIZED": _Policy(_NEAR, _FAR),
    "HYBRID_TRANSFORMER": _Policy(_NEAR, _FAR),
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _Policy(_NEAR, _FAR),
    "HYBRID_DLRM": _Policy(_EVERYONE, _EVERYONE, input_gradient_first=False),
    "HYBRID_DLRM_ENHANCED": _Policy(_EVERYONE, _EVERYONE, input_gradient_first=False),
    "TRANSFORMER": _Policy(_NEAR, _FAR),
    "TRANSFORMER_FWD_IN_BCKWD": _Policy(_NEAR, _FAR),
    "DLRM": _Policy(_EVERYONE, _EVERYONE, input_gradient_first=False),
}
# Policies that single layers of a customized workload can have.
_LAYER_POLICIES = ("DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")
_COLLECTIVES = {
    "NONE": None,
    "ALLREDUCE": CollectiveType.ALL_REDUCE,
    "ALLGATHER": CollectiveType.ALL_GATHER,
    "ALLTOALL": CollectiveType.ALL_TO_ALL,
    "REDUCESCATTER": CollectiveType.REDUCE_SCATTER,
}
_COLUMNS = 12
_MAX_NUMBER = 2**62
_MAX_RANKS = 1 << 20
_MAX_NODES = 5_000_000
_NODES_PER_LAYER = 6  # a computation and a collective for each of three passes
_BYTES_PER_NODE = 1_000  # memory per node during construction


class _Header(msgspec.Struct, frozen=True):
    """The first line of an ASTRA-sim 1.0 text workload: the policy and its arguments."""

    policy: str
    model_group: int | None
    last_bottom: int
    checkpoints: tuple[int, ...]
    initiates: tuple[int, ...]


def read_text_workload(
    path: str | Path,
    num_ranks: int,
    *,
    passes: int = 1,
    model_group: int | None = None,
    ns_per_unit: int = 1,
) -> Workload:
    """Read an ASTRA-sim 1.0 text workload for *num_ranks* ranks and *passes* training steps.

    *model_group* is the number of ranks that share a layer in hybrid policies. These ranks are consecutive,
    or equally spaced in ``HYBRID_MODEL_DATA``. In ``HYBRID_CUSTOMIZED``, in which each layer has a policy,
    they are consecutive. The default is the group size in the file. If the file states no group size, all
    collectives span all ranks. Compute times are in units of *ns_per_unit* ns: ASTRA-sim 1.0's cycles are 1
    ns, and the public converter uses microseconds (1000 ns). Raises `WorkloadError` for an unreadable file,
    `WorkloadFormatError` with the line for a damaged file, and `UsageError` for invalid numbers of ranks.
    """
    path = Path(path)
    header, layers = _read(path, ns_per_unit)
    if num_ranks < 1 or passes < 1 or ns_per_unit < 1:
        raise UsageError(
            "A workload needs at least one rank, one pass and 1 ns per unit. Next: give positive numbers."
        )
    _check_size(len(layers), num_ranks, passes)
    size = model_group or header.model_group or num_ranks
    if _POLICIES[header.policy].model not in (_NEAR, _FAR):
        size = num_ranks
    if size < 1 or num_ranks % size:
        raise UsageError(
            f"{path} has model-parallel groups of {size} ranks, but {num_ranks} ranks are not a multiple of "
            f"{size}. Choose a multiple of {size} ranks, or another model group."
        )
    spanning = model_group is None and header.model_group is None
    near, far = _groups(num_ranks, num_ranks // size if _POLICIES[header.policy].model == _FAR else size)
    if spanning:
        near = far = [tuple(range(num_ranks))]
    groups = sorted({*near, *far} - {tuple(range(num_ranks))})
    ids = {tuple(range(num_ranks)): 0, **{ranks: number for number, ranks in enumerate(groups, start=1)}}
    programs: dict[tuple[int, int], int] = {}
    graphs: list[Graph] = []
    program_of_rank = np.empty(num_ranks, dtype=np.int32)
    near_of, far_of = _group_of_rank(near, ids), _group_of_rank(far, ids)
    for rank in range(num_ranks):
        key = (near_of[rank], far_of[rank])
        if key not in programs:
            programs[key] = len(graphs)
            graphs.append(_unrolled(rank, _loop(header, layers, passes, *key)))
        program_of_rank[rank] = programs[key]
    return Workload(
        tuple(graphs),
        program_of_rank,
        {number: ranks for ranks, number in ids.items() if number},
        {
            "source": path.name,
            "policy": header.policy,
            "assumptions": _assumptions(header, size, spanning=spanning),
        },
    )


def _check_size(layers: int, num_ranks: int, passes: int) -> None:
    """Raise `UsageError` for too many ranks or nodes, with an estimate of the memory."""
    if num_ranks > _MAX_RANKS:
        raise UsageError(f"{num_ranks:,} ranks are too many; the limit is {_MAX_RANKS:,}. Use fewer.")
    nodes = layers * _NODES_PER_LAYER * passes
    if nodes > _MAX_NODES:
        raise UsageError(
            f"{passes:,} steps of {layers:,} layers make about {nodes:,} nodes a rank, which need about "
            f"{nodes * _BYTES_PER_NODE / 1e9:,.0f} GB; the limit is {_MAX_NODES:,} nodes. Use fewer."
        )


def _groups(num_ranks: int, size: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the groups of *size* consecutive ranks, and the groups of ranks *size* apart."""
    near = [tuple(range(start, start + size)) for start in range(0, num_ranks, size)]
    far = [tuple(range(first, num_ranks, size)) for first in range(size)]
    return near, far


def _group_of_rank(groups: Sequence[tuple[int, ...]], ids: dict[tuple[int, ...], int]) -> dict[int, int]:
    """Return the number of each rank's group, or -1 if the rank is the only member."""
    return {rank: ids[ranks] if len(ranks) > 1 else -1 for ranks in groups for rank in ranks}


def _loop(header: _Header, layers: Sequence[tuple[_Layer, str]], passes: int, near: int, far: int) -> _Loop:
    """Return the training loop of a rank in the groups *near* and *far* (-1: no other members)."""
    groups = {_EVERYONE: max(-1, min(0, max(near, far))), _NOBODY: -1, _NEAR: near, _FAR: far}
    dlrm = "DLRM" in header.policy
    return _Loop(
        layers=[
            layer.within(groups[_POLICIES[policy].model], groups[_POLICIES[policy].data])
            for layer, policy in layers
        ],
        passes=passes,
        input_gradient_first=_POLICIES[header.policy].input_gradient_first,
        only_weight_collectives=header.policy == "MICRO",
        last_bottom=header.last_bottom if dlrm else None,
        checkpoints=header.checkpoints,
        initiates=header.initiates,
        first_input_collective="TRANSFORMER" in header.policy,
    )


def _assumptions(header: _Header, size: int, *, spanning: bool) -> list[str]:
    notes = ["weight update times of the text workload are left out, as in the public converter"]
    model = _POLICIES[header.policy].model
    if model in (_NEAR, _FAR):
        notes.append(
            "the text workload does not contain the ranks that share a layer: all collectives span all "
            "ranks; a model group sets the number of these ranks"
            if spanning
            else f"{size:,} {model} are assumed to share a layer, because the text workload does not "
            "contain these ranks"
        )
    return notes


def _read(path: Path, ns_per_unit: int) -> tuple[_Header, list[tuple[_Layer, str]]]:
    """Read the header and the layers with policies; raises `WorkloadFormatError` naming the line."""
    try:
        lines = read_et(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise WorkloadFormatError(
            f"{path} is not a text workload: it is not text. Check the name."
        ) from error
    rows = [(number, line.split()) for number, line in enumerate(lines, start=1) if line.strip()]
    if len(rows) < 2:
        raise _damaged(path, len(lines), "it ends before its layers")
    header = _header(path, rows[0][1])
    count = _number(path, rows[1][0], rows[1][1][0])
    if len(rows) - 2 != count or not count:
        raise _damaged(path, len(lines), f"{count} layers are announced, {len(rows) - 2} follow")
    layers = [
        (_layer(path, number, row, ns_per_unit), _layer_policy(path, number, row, header.policy))
        for number, row in rows[2 : 2 + count]
    ]
    if header.last_bottom >= count or any(at >= count for at in (*header.checkpoints, *header.initiates)):
        raise _damaged(path, 1, f"it names a layer beyond the last, {count - 1}")
    return header, layers


def _header(path: Path, words: list[str]) -> _Header:
    """Read the policy and its arguments from the first line of the file."""
    policy = words[0].upper()
    if policy not in _POLICIES:
        raise _damaged(path, 1, f"'{words[0]}' is not a parallelism{did_you_mean(policy, _POLICIES)}")
    named: dict[str, list[int]] = {}
    key = ""
    for word in words[1:]:
        if word.endswith(":"):
            key = word[:-1]
            named[key] = []
        else:
            named.setdefault(key, []).append(_number(path, 1, word))
    own_group = named.get("model_parallel_NPU_group", [])
    return _Header(
        policy,
        own_group[0] if own_group else None,
        named[""][0] if named.get("") and "DLRM" in policy else 0,
        _counted(path, named.get("checkpoints", [])),
        _counted(path, named.get("checkpoint_initiates", [])),
    )


def _counted(path: Path, numbers: list[int]) -> tuple[int, ...]:
    """Return a list without its leading length; raises `WorkloadFormatError` if the length is wrong."""
    if numbers and numbers[0] != len(numbers) - 1:
        raise _damaged(path, 1, f"{numbers[0]} checkpoints are announced, {len(numbers) - 1} follow")
    return tuple(numbers[1:])


def _layer(path: Path, line: int, row: list[str], ns_per_unit: int) -> _Layer:
    """Read the layer in one line of the file."""
    if len(row) < _COLUMNS:
        raise _damaged(path, line, f"a layer has {_COLUMNS} columns, but this line has {len(row)}")
    passes = []
    for at, what in ((2, "forward"), (5, "input gradient"), (8, "weight gradient")):
        name = row[at + 1].upper()
        if name not in _COLLECTIVES:
            raise _damaged(
                path, line, f"'{row[at + 1]}' is not a collective{did_you_mean(name, _COLLECTIVES)}"
            )
        size = _number(path, line, row[at + 2])
        duration_ns = _number(path, line, row[at]) * ns_per_unit
        if duration_ns > _MAX_NUMBER:
            raise _damaged(path, line, f"{row[at]} units of {ns_per_unit:,} ns are too long")
        passes.append(_Pass(what, duration_ns, _COLLECTIVES[name] if size else None, size))
    return _Layer(row[0], *passes)


def _layer_policy(path: Path, line: int, row: list[str], policy: str) -> str:
    """Return the policy of one layer; in a customized workload, the policy in the last column."""
    if policy != "HYBRID_CUSTOMIZED" or len(row) <= _COLUMNS:
        return policy
    own = row[_COLUMNS].upper()
    if own not in _LAYER_POLICIES:
        raise _damaged(
            path, line, f"'{row[_COLUMNS]}' is not a layer's parallelism{did_you_mean(own, _LAYER_POLICIES)}"
        )
    return own


def _number(path: Path, line: int, word: str) -> int:
    if not (word.isascii() and word.isdecimal()) or len(word) > 19 or int(word) > _MAX_NUMBER:
        raise _damaged(path, line, f"'{word}' is not a number of at least 0")
    return int(word)


def _damaged(path: Path, line: int, what: str) -> WorkloadFormatError:
    return WorkloadFormatError(
        f"{path}, line {line}: {what}. The file is not an ASTRA-sim 1.0 text workload, or is damaged; "
        "correct it."
    )


class _Pass(msgspec.Struct, frozen=True):
    """One pass through a layer: a computation and the collective after it, with ASTRA-sim's size in bytes.

    A negative *group* number means that the group has no other member.
    """

    what: str
    duration_ns: int
    collective: CollectiveType | None
    size_bytes: int
    group: int = -1


class _Layer(msgspec.Struct, frozen=True):
    """A layer's forward pass, input gradient and weight gradient."""

    name: str
    forward: _Pass
    input_gradient: _Pass
    weight_gradient: _Pass

    def within(self, model: int, data: int) -> _Layer:
        """Return the layer with its activations shared in the group *model*, its weights in *data*."""
        forward, inputs = (replace(part, group=model) for part in (self.forward, self.input_gradient))
        return _Layer(self.name, forward, inputs, replace(self.weight_gradient, group=data))


class _Loop(msgspec.Struct, frozen=True):
    """The training loop of one rank, of *passes* steps.

    If *last_bottom* is given, the first layer's collectives overlap layers 1 to *last_bottom*, as in
    recommenders. When the backward pass reaches a layer of *initiates*, all layers since the last of
    *checkpoints* are computed forward again. With *only_weight_collectives*, the step consists only of
    weight-gradient collectives, which all start at once. The first layer's input gradient is communicated
    only with *first_input_collective*, for workloads without the layers below the first transformer block.
    """

    layers: Sequence[_Layer]
    passes: int
    input_gradient_first: bool
    only_weight_collectives: bool = False
    last_bottom: int | None = None
    checkpoints: Sequence[int] = ()
    initiates: Sequence[int] = ()
    first_input_collective: bool = False


class _Unrolled(GraphBuilder):
    """The graph under construction; the next computation waits for the nodes in *tail*."""

    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self.loop = loop
        self.tail: list[int] = []
        self.weights: dict[int, int] = {}
        self.step = 0

    def compute(self, layer: _Layer, part: _Pass, waits: Sequence[int]) -> int:
        """Append the computation of *part* of *layer*, which waits for the nodes *waits*; return its id."""
        columns = {
            "type": NodeType.COMP,
            "name": f"{layer.name} {part.what}",
            "duration_ns": part.duration_ns,
            "stream": _COMPUTE_LANE,
            "operator": part.what,
            "phase": "forward" if part.what.startswith("forward") else "backward",
        }
        return self._add(columns, layer, waits)

    def communicate(self, layer: _Layer, part: _Pass, waits: Sequence[int]) -> int | None:
        """Append the collective of *part*, which waits for *waits*; return its id, or None without peers."""
        if part.collective is None or part.group < 0:
            return None
        columns = communication(NodeType.COMM_COLL, part.collective, part.size_bytes, group=part.group)
        columns["name"] = f"{layer.name} {part.what} {columns['name']}"
        return self._add(columns | {"stream": COMM_LANE + part.group, "operator": part.what}, layer, waits)

    def _add(self, columns: dict[str, Any], layer: _Layer, waits: Sequence[int]) -> int:
        placed = {**columns, "module": layer.name, "step": self.step}
        return self.add(placed, dict.fromkeys(waits, EdgeKind.DATA))

    def forward(self, first: int, last: int, *, recomputed: bool = False) -> None:
        """Append the forward passes of layers *first* to *last*, in sequence."""
        loop = self.loop
        embedding: int | None = None
        for index in range(first, last + 1):
            layer = loop.layers[index]
            part = replace(layer.forward, what="forward again") if recomputed else layer.forward
            waits = [*self.tail, *([self.weights[index]] if index in self.weights else [])]
            if loop.last_bottom is not None and index == loop.last_bottom + 1 and embedding is not None:
                waits.append(embedding)
            node = self.compute(layer, part, waits)
            comm = self.communicate(layer, part, [node])
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
                    max([at for at in loop.checkpoints if at <= index], default=0), index, recomputed=True
                )
            if loop.last_bottom is not None and index == 0 and embedding is not None:
                self.tail.append(embedding)
            if loop.input_gradient_first:
                self._input_first(index)
            else:
                self._weights_first(index)
            if loop.last_bottom is not None and index == loop.last_bottom + 1:
                first = loop.layers[0]
                embedding = self.communicate(first, first.input_gradient, self.tail)

    def _input_first(self, index: int) -> None:
        """Append the input gradient, then the weight gradient, which overlaps the former's collective."""
        layer = self.loop.layers[index]
        node = self.compute(layer, layer.input_gradient, self.tail)
        comm = None
        if index or self.loop.first_input_collective:
            comm = self.communicate(layer, layer.input_gradient, [node])
        weights = self._weights(index, [node])
        self.tail = [weights] if comm is None else [weights, comm]

    def _weights_first(self, index: int) -> None:
        """Append the weight gradient, then the input gradient, which overlaps the former's collective."""
        layer = self.loop.layers[index]
        self.tail = [self._weights(index, self.tail)]
        if index:
            node = self.compute(layer, layer.input_gradient, self.tail)
            comm = None
            if self.loop.last_bottom is None:
                comm = self.communicate(layer, layer.input_gradient, [node])
            self.tail = [node if comm is None else comm]

    def _weights(self, index: int, waits: Sequence[int]) -> int:
        """Append the weight gradient of layer *index* and the collective that the next step waits for."""
        layer = self.loop.layers[index]
        node = self.compute(layer, layer.weight_gradient, waits)
        comm = self.communicate(layer, layer.weight_gradient, [node])
        self.weights[index] = node if comm is None else comm
        return node


def _unrolled(rank: int, loop: _Loop) -> Graph:
    """Return the graph of *loop* on *rank*; a forward pass waits for the weights of the previous step."""
    unrolled = _Unrolled(loop)
    for step in range(loop.passes):
        unrolled.step = step
        if loop.only_weight_collectives:
            for layer in loop.layers:
                unrolled.communicate(layer, layer.weight_gradient, [])
            continue
        unrolled.forward(0, len(loop.layers) - 1)
        unrolled.backward()
    return unrolled.graph(rank)
