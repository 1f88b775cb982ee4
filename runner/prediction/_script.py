"""Make the workload of a job from recordings of some ranks of a script, which represent all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...converter.building import MAX_PROGRAMS, class_of, counts_whole, groups_like, operator_cost, plain_name
from ...converter.chakra import (
    DEVICE_LANE,
    MESSAGES,
    EdgeKind,
    Graph,
    GraphBuilder,
    NodeType,
    Workload,
    communication,
)
from ...converter.readers import HostOp, communication_of, tensors
from ...errors import TraceError, UsageError, did_you_mean
from ...tracer import RecordedEntry, Recording

_FUSIBLE = "aten::"


def fused_bytes(recording: Recording) -> dict[int, int]:
    """Return the bytes that each fusible operator moves, by the operator's index.

    Consecutive operators in a compiled module become one kernel, unless a matrix product, convolution or
    attention lies between them. The kernel reads each external input once, and writes each output that is
    used outside the kernel.
    """
    entries = recording.entries
    last_use = _last_uses(entries)
    moved_bytes: dict[int, int] = {}
    for group in _groups(recording):
        end = group[-1]
        inside: set[int] = set()
        for place in group:
            entry = entries[place]
            reads = {one.storage: one.size_bytes for one in tensors(entry.inputs)}
            writes = {one.storage: one.size_bytes for one in tensors(entry.outputs)}
            if entry.changes:
                writes |= {one.storage: one.size_bytes for one in tensors(entry.inputs[:1])}
            moved = sum(size for storage, size in reads.items() if storage not in inside)
            kept = (size for storage, size in writes.items() if last_use.get(storage, place) > end)
            dead = all(last_use.get(storage, place) == place for storage in writes)
            inside |= reads.keys() | writes.keys()
            moved_bytes[place] = max(1, moved + (sum(writes.values()) if dead else sum(kept)))
    return moved_bytes


def _groups(recording: Recording) -> Iterator[list[int]]:
    """For each fused kernel, yield the indices of its operators."""
    regions = [_region(name, set(recording.compiled)) for name in recording.modules]
    group: list[int] = []
    previous: object = None
    for place, entry in enumerate(recording.entries):
        region = regions[entry.module]
        fusible = region and entry.name.startswith(_FUSIBLE) and not counts_whole(entry.name)
        key = (region, entry.stream, entry.phase) if fusible else None
        if key != previous and len(group) > 1:
            yield group
        group = ([*group, place] if key == previous else [place]) if fusible else []
        previous = key
    if len(group) > 1:
        yield group


def _region(module: str, compiled: set[str]) -> str:
    """Return the outermost compiled module around *module*, or ``""`` if no module is compiled."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((name for name in names if name in compiled), "")


def _last_uses(entries: Sequence[RecordedEntry]) -> dict[int, int]:
    """Return the index of the last operator that uses each storage."""
    last_uses: dict[int, int] = {}
    for place, entry in enumerate(entries):
        for one in (*tensors(entry.inputs), *tensors(entry.outputs)):
            last_uses[one.storage] = place
    return last_uses


_NO_VALUES = "tensors had no values: code that depends on them ran as if they were ones"
_ONE_BY_ONE = (
    "operators are those that PyTorch runs one by one: nothing is fused, and launching them takes no time"
)
_FUSED = (
    "in compiled modules, consecutive pointwise operators move as much data as one fused kernel; others run "
    "one by one, and launching takes no time"
)


def script_workload(recordings: Sequence[Recording], mesh: Mapping[str, int] | None = None) -> Workload:
    """Return the workload of all ranks of a job from the *recordings* of some ranks.

    Compute nodes have operations and bytes but no durations, because durations depend on the chip. Streams,
    and waits between streams, are as recorded from the framework. *mesh* has the expected sizes of mesh
    dimensions by name. A mesh that the script did not create raises `UsageError`. If the recorded ranks
    cannot represent all other ranks, `TraceError` is raised.
    """
    world = recordings[0].world
    _check_mesh(recordings, mesh or {}, world)
    roles = {recording.rank: _role(recording) for recording in recordings}
    workload = workload_of_roles(roles, recordings[0].made_groups, world)
    notes = sorted({note for recording in recordings for note in recording.notes})
    fusion = _FUSED if any(recording.compiled for recording in recordings) else _ONE_BY_ONE
    memory = {str(recording.rank): recording.memory_bytes.most for recording in recordings}
    metadata: dict[str, Any] = {
        "source": "script",
        "torch_version": recordings[0].torch_version,
        "assumptions": [_NO_VALUES, fusion, *workload.metadata["assumptions"], *notes],
        "memory_bytes": memory,
        "recorded_ranks": sorted(roles),
    }
    if mesh:
        metadata["mesh"] = dict(mesh)
    return Workload(workload.graphs, workload.program_of_rank, workload.groups, metadata)


def _check_mesh(recordings: Sequence[Recording], mesh: Mapping[str, int], world: int) -> None:
    """Raise `UsageError` if the script did not create a device mesh with the sizes *mesh*."""
    if mesh and prod(mesh.values()) != world:
        raise UsageError(
            f"--mesh {_mesh_text(mesh)} has {prod(mesh.values())} ranks, and --world is {world}. Change one "
            "of them so that they agree."
        )
    made = {
        name: size for one in recordings[0].meshes for name, size in zip(one.names, one.sizes, strict=True)
    }
    sizes = {len(ranks) for ranks in recordings[0].groups.values()}
    for name, size in mesh.items():
        if name in made and made[name] != size:
            raise UsageError(
                f"The script creates a mesh with {name}={made[name]}, but --mesh has {name}={size}. Next: "
                "pass the script its own option after `--`, or change --mesh."
            )
        if name not in made and size > 1 and size not in sizes:
            hint = did_you_mean(name, made) if made else " It makes no device mesh."
            raise UsageError(
                f"--mesh has {name}={size}, but the script creates no group of {size} ranks{hint} Next: pass "
                "the script its own option after `--`, or change --mesh."
            )


def _mesh_text(mesh: Mapping[str, int]) -> str:
    return ",".join(f"{name}={size}" for name, size in mesh.items())


def _role(recording: Recording) -> Role:
    """Return the program of the recorded rank, with the members of the groups that the rank uses."""
    everyone = tuple(range(recording.world))
    groups: list[tuple[int, ...]] = []
    builder = GraphBuilder()
    last: dict[int, int] = {}
    is_comm: list[bool] = []
    fused = fused_bytes(recording)
    for number, entry in enumerate(recording.entries):
        node = _node(recording, entry, groups, everyone)
        if number in fused:
            node["tensor_size_bytes"] = fused[number]
        is_comm.append(node["type"] != NodeType.COMP)
        waits = {other: _why(is_comm[other], is_comm[number]) for other in entry.waits}
        if entry.stream in last:
            waits[last[entry.stream]] = EdgeKind.STREAM_ORDER
        last[entry.stream] = builder.add({"stream": DEVICE_LANE + entry.stream, "step": 0, **node}, waits)
    return Role(builder.graph(recording.rank), tuple(groups))


def _why(from_comm: bool, to_comm: bool) -> EdgeKind:
    if to_comm and not from_comm:
        return EdgeKind.COMM_ISSUE
    return EdgeKind.COMM_WAIT if from_comm else EdgeKind.EVENT_SYNC


def _precision(recording: Recording, entry: RecordedEntry) -> str:
    """Return the precision of a matmul, a convolution or attention, or ``""`` for other operators.

    The element size of the operands determines the precision. FP16 and BF16 are both ``half``, because chips
    compute both at the same speed. Operands in FP32 are computed in TF32 if the script allows TF32 for
    operators of their class.
    """
    if not counts_whole(entry.name):
        return ""
    sizes = [
        value[4]
        for value, shape in zip(entry.inputs, entry.shapes, strict=True)
        if tensors(value) and len(shape) > 1 and not isinstance(shape[0], list)
    ]
    found = _PRECISIONS.get(sizes[0], "") if sizes else ""
    is_tf32 = found == "fp32" and class_of(plain_name(entry.name)) in recording.tf32
    return "tf32" if is_tf32 else found


_PRECISIONS = {1: "low", 2: "half", 4: "fp32", 8: "fp64"}


def _node(
    recording: Recording, entry: RecordedEntry, groups: list[tuple[int, ...]], everyone: tuple[int, ...]
) -> dict[str, Any]:
    """Return the columns of *entry*, and append a new communication group to *groups*, counted from 1."""
    record = HostOp(
        entry.name,
        entry.inputs,
        entry.outputs,
        "(!)" if entry.changes else "",
        entry.shapes,
        entry.output_shapes,
    )
    node: dict[str, Any] = {"operator": entry.name, "module": recording.modules[entry.module]}
    try:
        comm = communication_of(record)
    except ValueError:
        raise TraceError(
            f"Rank {recording.rank} communicates by {entry.name}, which chakrascope does not recognise, so "
            "the graph would lack it. Use another collective in the script, or report the operator."
        ) from None
    if comm is None:
        num_ops, moved = operator_cost(record)
        name = f"{entry.name} {_precision(recording, entry)}".rstrip()
        node |= {"name": name, "type": NodeType.COMP, "phase": entry.phase, "kind": "compute"}
        return node | {"num_ops": num_ops, "tensor_size_bytes": moved}
    spec, size_bytes, _ = comm
    ranks = tuple(recording.groups.get(entry.group or "", ()))
    if not ranks:
        raise TraceError(
            f"Rank {recording.rank} communicates by {entry.name} in the group '{entry.group}', which it did "
            "not make. Make groups by torch.distributed.new_group or a device mesh."
        )
    if ranks != everyone and ranks not in groups:
        groups.append(ranks)
    group = 0 if ranks == everyone else groups.index(ranks) + 1
    peer = ranks[entry.peer] if spec.collective is None else -1
    return node | communication(
        spec.node_type, spec.collective, size_bytes, group=group, peer=peer, tag=entry.tag
    )


_COMMUNICATIONS = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_ENDS = ("comm_src", "comm_dst")
_PLACE = "the script"
_SMALLER = "Predict a job of at most 64 ranks, with --all-ranks."


@dataclass(frozen=True)
class Role:
    """The program of a recorded rank: a *graph*, whose column ``group`` counts *groups* from 1."""

    graph: Graph
    groups: tuple[tuple[int, ...], ...]

    def same_as(self, other: Role) -> bool:
        """Return whether both programs have the same communication in the same order with the same ranks."""
        return self._traffic() == other._traffic()

    def _traffic(self) -> list[tuple[object, ...]]:
        nodes = self.graph.node_columns
        rows = np.flatnonzero(np.isin(nodes["type"], _COMMUNICATIONS))
        names = ("type", "comm_type", "comm_size_bytes", *_ENDS)
        columns = [nodes[name][rows].tolist() for name in names]
        members = [self.groups[group - 1] if group else () for group in nodes["group"][rows].tolist()]
        return [*zip(*columns, members, strict=True)]

    def has_peers(self) -> bool:
        """Return whether the program sends or receives messages."""
        return bool(np.isin(self.graph.node_columns["type"], MESSAGES).any())

    def peer_groups(self) -> set[tuple[int, ...]]:
        """Return the members of each group in which the rank exchanges messages; () stands for all ranks."""
        nodes = self.graph.node_columns
        used = np.unique(nodes["group"][np.isin(nodes["type"], MESSAGES)]).tolist()
        return {self.groups[group - 1] if group else () for group in used}


def workload_of_roles(
    roles: Mapping[int, Role], made_groups: Sequence[Sequence[int]], world: int
) -> Workload:
    """Return the workload of *world* ranks, each with the program of one of the recorded *roles* (by rank).

    Every rank with which rank 0 exchanges messages (the stages of its pipeline) must be recorded. The
    corresponding ranks of other pipelines have the same programs, with the corresponding groups.
    *made_groups* are all groups of the script in order of creation. The function raises `TraceError` if the
    recorded ranks cannot represent the other ranks, or if a recorded rank's program differs from the program
    of its representative.
    """
    missing = sorted(set(range(world)) - set(roles))
    stages = _stages(roles, world) if missing else ()
    if not missing:
        actors = dict(roles)
    else:
        replicas = _Replicas(made_groups, world)
        actors = {
            rank: _moved(roles[stages[at]], stages, line, at, replicas)
            for line in replicas.lines(stages)
            for at, rank in enumerate(line)
        }
        _check(actors, roles)
    assumptions = []
    if missing:
        named = ", ".join(map(str, sorted(roles)[:8])) + (", ..." if len(roles) > 8 else "")
        assumptions.append(
            f"ranks {named} were run; the others are assumed to do the same as their representatives"
        )
    return _workload(actors, world, assumptions)


def _stages(roles: Mapping[int, Role], world: int) -> tuple[int, ...]:
    """Return the ranks that must be recorded: rank 0, and all ranks with which it exchanges messages."""
    groups = roles[0].peer_groups()
    if not groups:
        if any(role.has_peers() for role in roles.values()):
            raise TraceError(
                f"Rank 0 of the script exchanges no messages with single ranks, but others do: it cannot "
                f"represent them. {_SMALLER}"
            )
        return (0,)
    if len(groups) > 1:
        raise TraceError(
            "Rank 0 of the script exchanges messages with single ranks in several groups (for example, "
            f"pipeline and ring attention), so it is unknown which ranks are identical. {_SMALLER}"
        )
    stages = groups.pop() or tuple(range(world))
    lacking = [rank for rank in stages if rank not in roles]
    if lacking:
        raise TraceError(
            f"Rank {lacking[0]} of the script was not recorded, and rank 0 exchanges messages in a group "
            "with it. Record this rank as well."
        )
    return stages


class _Replicas:
    """Maps the groups of one rank to the groups of another rank that the script created together."""

    def __init__(self, made_groups: Sequence[Sequence[int]], world: int) -> None:
        self._made = made_groups
        self.world = world
        self._of_rank: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}

    def lines(self, stages: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the groups of ranks that correspond to *stages* and that together contain all ranks."""
        if len(stages) == 1:
            return [(rank,) for rank in range(self.world)]
        if len(stages) == self.world:
            return [stages]
        return groups_like(stages, self._made, self.world, _PLACE)

    def group_of(self, rank: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the group of *rank* among the groups that the script created together with group *ranks*."""
        if ranks not in self._of_rank:
            alike = groups_like(ranks, self._made, self.world, _PLACE)
            self._of_rank[ranks] = {member: group for group in alike for member in group}
        return self._of_rank[ranks][rank]


def _moved(role: Role, stages: tuple[int, ...], line: tuple[int, ...], at: int, replicas: _Replicas) -> Role:
    """Return *role*, recorded at position *at* of *stages*, for the rank at this position of *line*."""
    rank = line[at]
    if line == stages:
        return role
    groups = tuple(replicas.group_of(rank, ranks) for ranks in role.groups)
    graph = role.graph.as_rank(rank)
    if role.has_peers():
        table = np.arange(replicas.world, dtype=np.int64)
        table[list(stages)] = line
        nodes = graph.node_columns
        ends = {name: np.where(nodes[name] >= 0, table[nodes[name]], -1) for name in _ENDS}
        graph = graph.with_columns(**ends)
    return Role(graph, groups)


def _check(actors: Mapping[int, Role], roles: Mapping[int, Role]) -> None:
    for rank, role in roles.items():
        if not role.same_as(actors[rank]):
            raise TraceError(
                f"Rank {rank} of the script communicates differently from the rank that would represent it, "
                f"so the recorded ranks do not determine the others. {_SMALLER}"
            )


def _workload(actors: Mapping[int, Role], world: int, assumptions: list[str]) -> Workload:
    """Assign numbers to all groups, and store one graph for ranks with equal programs."""
    used = sorted({group for role in actors.values() for group in role.groups})
    numbers = {group: number for number, group in enumerate(used, start=1)}
    programs: dict[tuple[object, ...], int] = {}
    graphs: list[Graph] = []
    program_of_rank = np.empty(world, dtype=np.int32)
    for rank in range(world):
        role = actors[rank]
        own = tuple(numbers[group] for group in role.groups)
        nodes = role.graph.node_columns
        ends = (rank,) if role.has_peers() else ()
        key = (id(nodes["num_ops"]), own, ends)
        if key not in programs:
            programs[key] = len(graphs)
            table = np.array([0, *own], dtype=np.int64)
            graphs.append(role.graph.as_rank(rank).with_columns(group=table[nodes["group"]]))
        program_of_rank[rank] = programs[key]
        if len(graphs) > MAX_PROGRAMS:
            raise TraceError(
                f"The script's {world} ranks need more distinct graphs than the limit of {MAX_PROGRAMS}. "
                "Predict a smaller job."
            )
    groups = {number: group for group, number in numbers.items()}
    return Workload(tuple(graphs), program_of_rank, groups, {"assumptions": assumptions})
