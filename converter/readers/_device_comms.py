"""Determine what a kernel communicates, from its arguments, its operator's arguments, or its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..chakra import CollectiveType, NodeType
from ..kernels import kernel_pattern
from ._communications import COMM_OPS, MESSAGE_OPS, LibraryCollective, collective_named, dtype_bytes
from ._host_comms import shared_out, split_bytes
from ._host_trace import HostOp, HostTrace, tensors
from ._kineto import CommArguments, Work
from ._timeline import Op

PARAMETERS = "record_param_comms"
# Collectives that the kernel's name identifies; their size comes from an operator.
_BY_KERNEL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
# Operators that communicate and compute, so that their first tensor is not the sent tensor.
_COMPUTES = re.compile(r"matmul|gemm|linear|_mm")
_MAX_IN_NODE = 8  # maximum number of ranks in custom all-reduces of vLLM, SGLang and PyTorch
_ALL_RANKS = (
    "custom and symmetric-memory collectives are assumed to span all ranks, like the only process group"
)
_MAY_BE_UNEVEN = (CollectiveType.ALL_TO_ALL, CollectiveType.REDUCE_SCATTER)


class DeviceComm(msgspec.Struct, frozen=True):
    """A communication on a device: a collective, or a send or receive with a *peer* (a global rank).

    *group_ranks* is () for all ranks, and *group_label* is as in `group_labels`. *sequence* numbers
    the communications of the group *group_name* (-1: unknown); waits refer to it. *storages* are the
    storages of the communicated tensors. *splits* are the bytes per member, if the trace lists them.
    *notes* are assumptions.
    """

    node_type: NodeType
    collective: CollectiveType | None
    size_bytes: int
    group_ranks: tuple[int, ...]
    group_label: str = ""
    peer: int = -1
    tag: int = -1
    group_name: str = ""
    sequence: int = -1
    storages: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    splits: tuple[int, ...] = ()


class Parameters(msgspec.Struct, frozen=True):
    """The arguments of a ``record_param_comms``; the *name* ``wait`` means a wait for *sequence*."""

    name: str
    sequence: int = -1
    group_name: str = ""
    world: int = 0
    input_splits: list[Any] = msgspec.field(default_factory=list)


def is_communication(kernel: str) -> bool:
    """Return whether a kernel called *kernel* communicates, for any communication library."""
    pattern = kernel_pattern(kernel)
    return pattern is not None and pattern.kind == "communication"


def parameters(record: HostOp | None) -> Parameters | None:
    """Read the arguments of a ``record_param_comms`` node: [tensors,] sequence, group, rank, name, ...

    Since torch 2.6, the sequence is a pair (number, is point to point).
    """
    if record is None or record.name != PARAMETERS:
        return None
    values = list(record.inputs)
    if values and isinstance(values[0], list) and not _is_sequence(values[0]):
        del values[0]
    at = next((index for index, value in enumerate(values) if isinstance(value, str)), None)
    if at is None:
        return None
    group = next((value for value in values[:at] if isinstance(value, list)), [])
    first = values[0]
    if isinstance(first, list):
        # Messages are numbered separately from collectives, and their kernels do not record the number.
        first = first[0] if _is_sequence(first) and not first[1] else -1
        group = next((value for value in values[1:at] if isinstance(value, list)), [])
    return Parameters(
        name=values[at],
        sequence=first if isinstance(first, int) else -1,
        group_name=str(group[0]) if group else "",
        world=values[-1] if isinstance(values[-1], int) else 0,
        input_splits=next((value for value in values[at + 1 :] if isinstance(value, list)), []),
    )


def _is_sequence(value: list[Any]) -> bool:
    return len(value) == 2 and type(value[1]) is bool


def describe(
    work: Work,
    chain: Sequence[Op],
    host: HostTrace,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
    *,
    alone: bool = False,
) -> tuple[DeviceComm | None, tuple[int, ...]]:
    """Return the communication of the kernel *work*, or None if it is unknown, and its process group.

    *chain* are the operators around the kernel's launch, innermost first. *groups* maps group names to global
    ranks; () means all ranks. *alone* means that the innermost operator launched no other communication
    kernel. `peer_to_peer` handles point-to-point kernels.
    """
    holder, stated = _parameters_of(chain, host)
    record = host.operator(holder) if holder is not None else None
    arguments = work.comm or next((op.comm for op in chain if op.comm is not None), None)
    name = arguments.collective if arguments else stated.name if stated else _by_kernel(work.name)
    library = collective_named(name)
    members, notes = _members(arguments, stated, groups, world_size)
    if library is None:
        return None, members
    ranks = members
    size = _size(library, arguments, record)
    if size < 0:
        size = _size_by_operator(chain, host)
    if size < 0 and alone and _by_kernel(work.name):
        size, ranks, notes = _by_launcher(library.name, chain, host, groups, world_size), (), (_ALL_RANKS,)
    if size < 0:
        return None, members
    comm = DeviceComm(
        NodeType.COMM_COLL,
        library.kind,
        size,
        ranks,
        host.group_labels.get(_group_name(arguments, stated), ""),
        group_name=stated.group_name if stated else "",
        sequence=stated.sequence if stated else -1,
        storages=host.storages_of(holder) if holder is not None else frozenset(),
        notes=(*notes, library.note) if library.note else notes,
        splits=_splits(library, size, stated, chain, host),
    )
    return comm, members


def peer_to_peer(
    op: Op,
    host: HostTrace,
    ranks: tuple[int, ...],
) -> DeviceComm | None:
    """Return the send or receive that *op* issues; *op* states its peer as an index into *ranks*."""
    record = host.operator(op.record_id)
    if record is None or op.name not in MESSAGE_OPS:
        return None
    local, tag = (_integer(record.inputs, index) for index in (2, 3))
    moved = tensors(record.inputs[0] if record.inputs else [])
    return DeviceComm(
        COMM_OPS[op.name].node_type,
        None,
        sum(tensor.size_bytes for tensor in moved),
        ranks,
        peer=ranks[local] if 0 <= local < len(ranks) else local,
        tag=max(0, tag),
        storages=host.storages_of(op.record_id, first_input=True),
    )


def _parameters_of(chain: Sequence[Op], host: HostTrace) -> tuple[int | None, Parameters | None]:
    """Return the innermost ``record_param_comms`` around a launch, and its arguments."""
    for op in chain:
        stated = parameters(host.operator(op.record_id))
        if stated is not None:
            return op.record_id, stated
    return None, None


def _by_kernel(kernel: str) -> str:
    """Return the collective that a kernel's name identifies, or ""."""
    pattern = kernel_pattern(kernel)
    return pattern.operation if pattern is not None and pattern.operation in _BY_KERNEL else ""


def _group_name(arguments: CommArguments | None, stated: Parameters | None) -> str:
    """Return the name of the process group, or "" if unknown."""
    return (arguments.group_name if arguments else "") or (stated.group_name if stated else "")


def _members(
    arguments: CommArguments | None,
    stated: Parameters | None,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the ranks of the process group (() for all ranks), and the assumptions."""
    if arguments is not None and arguments.group_ranks:
        return arguments.group_ranks, ()
    name = _group_name(arguments, stated)
    if name in groups:
        return groups[name], ()
    size = arguments.group_size if arguments else stated.world if stated else 0
    if size == world_size:
        return (), ()
    return (), ("the trace names no process group for some collectives: all ranks are assumed",)


def _size(library: LibraryCollective, arguments: CommArguments | None, record: HostOp | None) -> int:
    """Return the size of a collective in bytes, from *arguments* or else *record*; -1 if unknown."""
    if library.fixed_bytes >= 0:
        return library.fixed_bytes
    if arguments is not None:
        elements = arguments.out_elements if library.sized_by_output else arguments.in_elements
        width = dtype_bytes(arguments.dtype)
        if elements >= 0 and width:
            return elements * width
    if record is None:
        return -1
    moved = tensors(record.outputs if library.sized_by_output else record.inputs[:1])
    return sum(tensor.size_bytes for tensor in moved) if moved else -1


def _splits(
    library: LibraryCollective, size: int, stated: Parameters | None, chain: Sequence[Op], host: HostTrace
) -> tuple[int, ...]:
    """Return the bytes per member if the library, or an operator around the launch, lists splits."""
    if library.kind not in _MAY_BE_UNEVEN:
        return ()
    splits = shared_out(size, stated.input_splits) if stated else ()
    for op in chain:
        record = host.operator(op.record_id)
        splits = splits or (split_bytes(record) if record is not None else ())
    return splits


def _size_by_operator(chain: Sequence[Op], host: HostTrace) -> int:
    """Return the bytes that the ``c10d`` operator around a launch moves, or -1 if there is no operator."""
    for op in chain:
        spec, record = COMM_OPS.get(op.name), host.operator(op.record_id)
        if spec is not None and record is not None and 0 <= spec.sized_by < len(record.inputs):
            return sum(tensor.size_bytes for tensor in tensors(record.inputs[spec.sized_by]))
    return -1


def _by_launcher(
    collective: str,
    chain: Sequence[Op],
    host: HostTrace,
    groups: Mapping[str, tuple[int, ...]],
    world_size: int,
) -> int:
    """Return the bytes that a custom or symmetric-memory collective of all ranks moves, or -1 if unknown.

    The data is the first tensor of the operator named after the *collective* around the launch, in
    the signatures of PyTorch, vLLM, SGLang and TensorRT-LLM.
    """
    for op in chain:
        record, called = host.operator(op.record_id), op.name.rpartition("::")[2].lower()
        if record is None or collective.replace("_", "") not in called.replace("_", ""):
            continue
        moved = tensors(record.inputs)[:1]
        named = [groups[value] for value in record.inputs if isinstance(value, str) and value in groups]
        everyone = _of_everyone(named[:1] or list(groups.values()), world_size)
        return moved[0].size_bytes if moved and everyone and not _COMPUTES.search(called) else -1
    return -1


def _of_everyone(groups: Sequence[tuple[int, ...]], world_size: int) -> bool:
    """Return whether every group of several ranks spans all ranks.

    If no group has several ranks, all ranks communicate if they fit into one node, because custom kernels
    communicate only within a node.
    """
    sizes = {len(ranks) or world_size for ranks in groups} - {1}
    return sizes == {world_size} or (not sizes and 1 < world_size <= _MAX_IN_NODE)


def _integer(values: Sequence[Any], index: int) -> int:
    value = values[index] if index < len(values) else -1
    return value if isinstance(value, int) else -1
