"""Make a workload from recordings of a script's ranks without devices, peers or data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from ...converter.building import class_of, counts_whole, operator_cost, plain_name
from ...converter.chakra import DEVICE_LANE, EdgeKind, GraphBuilder, NodeType, Workload, communication
from ...converter.readers import HostOp, communication_of, tensors
from ...errors import TraceError, UsageError, did_you_mean
from ...tracer import RecordedEntry, Recording
from ._roles import Role, cast

_FUSIBLE = "aten::"


def fused_bytes(recording: Recording) -> dict[int, int]:
    """Return the bytes that each operator moves by its index, for operators that would be fused with others.

    Consecutive operators in a compiled module, without a product, convolution or attention in between,
    become one kernel. It reads each external input once, and writes each output that is used elsewhere.
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
    """Yield the indices of the operators of each kernel."""
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
    """Return the outermost compiled module around *module*, ``""`` for none."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((name for name in names if name in compiled), "")


def _last_uses(entries: Sequence[RecordedEntry]) -> dict[int, int]:
    """Return the index of the last use of each storage."""
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
    """Return the workload of all ranks of a job from the *recordings* of some of them.

    Compute nodes have operations and bytes but no time, which depends on a chip. Streams and their waits
    are those of the framework. *mesh* has the expected sizes of mesh dimensions by name. Raises
    `UsageError` for a mesh that the script did not create, `TraceError` if the recorded ranks cannot
    represent the others.
    """
    world = recordings[0].world
    _check_mesh(recordings, mesh or {}, world)
    roles = {recording.rank: _role(recording) for recording in recordings}
    workload = cast(roles, recordings[0].made_groups, world)
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
    """Raise `UsageError` unless the script created the *mesh*."""
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
                f"The script makes a mesh with {name}={made[name]}, and --mesh says {name}={size}. The "
                "script decides: pass it its own option after `--`, or change --mesh."
            )
        if name not in made and size > 1 and size not in sizes:
            hint = did_you_mean(name, made) if made else " It makes no device mesh."
            raise UsageError(
                f"--mesh says {name}={size}, but the script makes no group of {size} ranks{hint} The script "
                "decides how it is split: pass it its own option after `--`, or change --mesh."
            )


def _mesh_text(mesh: Mapping[str, int]) -> str:
    return ",".join(f"{name}={size}" for name, size in mesh.items())


def _role(recording: Recording) -> Role:
    """Return the program of the recorded rank, with the ranks of the groups it uses."""
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
    """Return the precision of a matmul, a convolution or attention; ``""`` for other operators.

    The size of its operands' elements decides it. FP16 and BF16, which chips compute at one speed, are
    ``half``. Operands in FP32 are computed in TF32 if the script allows it for operators of their class.
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
    """Return the columns of *entry*; a group it uses is added to *groups*, counted from 1 on."""
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
            f"rank {recording.rank} communicates by {entry.name}, which chakrascope does not recognise, so "
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
            f"rank {recording.rank} communicates by {entry.name} in the group '{entry.group}', which it did "
            "not make. Make groups by torch.distributed.new_group or a device mesh."
        )
    if ranks != everyone and ranks not in groups:
        groups.append(ranks)
    group = 0 if ranks == everyone else groups.index(ranks) + 1
    peer = ranks[entry.peer] if spec.collective is None else -1
    return node | communication(
        spec.node_type, spec.collective, size_bytes, group=group, peer=peer, tag=entry.tag
    )
