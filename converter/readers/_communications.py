"""Tables of collectives and tensor types: names, group labels, element widths, precisions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..chakra import CollectiveType, NodeType

_BARRIER_BYTES = 64
# Prefixes of the communication libraries' annotations.
GLOO, NCCL = "gloo:", "nccl:"


class LibraryCollective(msgspec.Struct, frozen=True):
    """A collective of PyTorch or a library, and the *kind* that represents it in graphs.

    Simulators support five collectives. Every other collective is replaced by the most similar one, and
    *note* describes the replacement. The size of a collective is the size of its input or, if ASTRA-sim
    counts the output, of its output. *fixed_bytes* is the nominal size of a collective without data (a
    barrier), otherwise -1. The ranks of a *rooted* collective need not wait for each other.
    """

    name: str
    kind: CollectiveType
    sized_by_output: bool = False
    rooted: bool = False
    fixed_bytes: int = -1
    note: str = ""


_COLLECTIVES = {
    collective.name: collective
    for collective in (
        LibraryCollective("all_reduce", CollectiveType.ALL_REDUCE),
        LibraryCollective("all_gather", CollectiveType.ALL_GATHER),
        LibraryCollective("reduce_scatter", CollectiveType.REDUCE_SCATTER),
        LibraryCollective("all_to_all", CollectiveType.ALL_TO_ALL),
        LibraryCollective("broadcast", CollectiveType.BROADCAST, rooted=True),
        LibraryCollective(
            "scatter",
            CollectiveType.BROADCAST,
            sized_by_output=True,
            rooted=True,
            note="scatter is written as a broadcast",
        ),
        LibraryCollective(
            "gather", CollectiveType.ALL_GATHER, rooted=True, note="gather is written as an all-gather"
        ),
        LibraryCollective(
            "reduce", CollectiveType.ALL_REDUCE, rooted=True, note="reduce is written as an all-reduce"
        ),
        LibraryCollective(
            "barrier",
            CollectiveType.ALL_REDUCE,
            fixed_bytes=_BARRIER_BYTES,
            note=f"a barrier is written as an all-reduce of {_BARRIER_BYTES} bytes",
        ),
    )
}
_SUFFIXES = re.compile(r"(_coalesced|_base|_into_tensor|_tensor|_oop|_single|_sparse|_uneven|_inplace)+$")
# Spellings in PyTorch, NCCL and RCCL, without underscores. A trailing v means uneven sizes.
_SPELLINGS = {
    **{name.replace("_", ""): name for name in _COLLECTIVES},
    "allgatherv": "all_gather",
    "allreducebarrier": "barrier",
    "alltoallv": "all_to_all",
    "all2all": "all_to_all",
    "bcast": "broadcast",
    "reducescatterv": "reduce_scatter",
}


def collective_named(name: str) -> LibraryCollective | None:
    """Return the collective that a library, profiler or log calls *name*, or None if there is none."""
    plain = _SUFFIXES.sub("", name.lower().removeprefix(NCCL).strip("_")).replace("_", "")
    return _COLLECTIVES.get(_SPELLINGS.get(plain, ""))


class CommOp(msgspec.Struct, frozen=True):
    """The communication of an operator; *sized_by* is the argument that gives the size (-1: none)."""

    node_type: NodeType
    sized_by: int
    library: LibraryCollective | None = None

    @property
    def collective(self) -> CollectiveType | None:
        """The kind of the collective, or None for a message."""
        return None if self.library is None else self.library.kind

    @property
    def note(self) -> str:
        """The assumption if another collective replaces this collective, otherwise ""."""
        return "" if self.library is None else self.library.note

    @property
    def writes_first(self) -> bool:
        """Whether the operator writes its first argument, so that later users of the argument must wait.

        Later users need not wait for a send, or for a broadcast at its root, to read the data.
        """
        return self.node_type is not NodeType.COMM_SEND and self.collective is not CollectiveType.BROADCAST


def _operators(namespace: str, rows: Mapping[str, tuple[int, str]]) -> dict[str, CommOp]:
    """Return operators by name from *rows*: collective -> (argument that gives the size, names)."""
    return {
        namespace + operator: CommOp(NodeType.COMM_COLL, sized_by, _COLLECTIVES[name])
        for name, (sized_by, operators) in rows.items()
        for operator in operators.split()
    }


COMM_OPS: Mapping[str, CommOp] = _operators(
    "c10d::",
    {
        "all_reduce": (0, "allreduce_ allreduce_coalesced_"),
        "all_gather": (
            1,
            "_allgather_base_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_",
        ),
        "reduce_scatter": (1, "_reduce_scatter_base_ reduce_scatter_ reduce_scatter_tensor_coalesced_"),
        "all_to_all": (1, "alltoall_base_ alltoall_"),
        "broadcast": (0, "broadcast_"),
        "scatter": (0, "scatter_"),
        "gather": (1, "gather_"),
        "reduce": (0, "reduce_"),
        "barrier": (-1, "barrier"),
    },
) | {"c10d::send": CommOp(NodeType.COMM_SEND, 0), "c10d::recv_": CommOp(NodeType.COMM_RECV, 0)}
MESSAGE_OPS = frozenset(name for name, op in COMM_OPS.items() if op.library is None)
# Functional collectives issue the operators above, except on fake tensors.
FUNCTIONAL = "_c10d_functional::"
FUNCTIONAL_OPS: Mapping[str, CommOp] = _operators(
    FUNCTIONAL,
    {
        "all_reduce": (0, "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_"),
        "all_gather": (
            0,
            "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out",
        ),
        "reduce_scatter": (
            0,
            "reduce_scatter_tensor reduce_scatter_tensor_coalesced reduce_scatter_tensor_out",
        ),
        "all_to_all": (0, "all_to_all_single"),
        "broadcast": (0, "broadcast broadcast_"),
    },
)


class _Type(NamedTuple):
    short: str
    size_bytes: int
    floating: bool


# Tensor types by name in lower case, without c10::
_TYPES = {
    name: _Type(short, size_bytes, not short.startswith(("int", "uint", "bool")))
    for short, size_bytes, names in (
        ("fp64", 8, "double|float64"),
        ("fp32", 4, "float|float32"),
        ("fp16", 2, "half|float16"),
        ("bf16", 2, "bfloat16"),
        ("fp8", 1, "float8_e4m3fn|float8_e4m3fnuz|float8_e5m2|float8_e5m2fnuz|float8_e8m0fnu"),
        ("fp4", 1, "float4_e2m1fn_x2"),
        ("complex32", 4, "complexhalf|complex<half>"),
        ("complex64", 8, "complexfloat|complex<float>"),
        ("complex128", 16, "complexdouble|complex<double>"),
        ("int64", 8, "long|long int|int64"),
        ("int32", 4, "int|int32"),
        ("int16", 2, "short|short int|int16"),
        ("int8", 1, "char|signed char|int8|int1|int2|int3|int4|int5|int6|int7"),
        ("uint64", 8, "unsigned long|uint64"),
        ("uint32", 4, "unsigned int|uint32"),
        ("uint16", 2, "unsigned short|uint16"),
        ("uint8", 1, "byte|unsigned char|uint8|uint1|uint2|uint3|uint4|uint5|uint6|uint7"),
        ("int8", 1, "qint8"),
        ("uint8", 1, "quint8|quint4x2|quint2x4|bits1x8|bits2x4|bits4x2|bits8"),
        ("uint16", 2, "bits16"),
        ("int32", 4, "qint32"),
        ("bool", 1, "bool"),
    )
    for name in names.split("|")
}
_UNKNOWN = _Type("", 0, False)
_TENSOR = re.compile(r"Tensor\(([^)]*)\)")
# The width in bits in the names of kernels that only copy; other kernels name the type.
_OPAQUE = re.compile(r"OpaqueType<(\d+)")
_IN_KERNEL = re.compile(r"\b(?:c10::)?(BFloat16|Half|float|double)\b")
# Marks of kernels that multiply 32-bit numbers as TF32 (cuBLAS, CUTLASS).
_TF32 = ("tf32", "s1688")


def dtype_bytes(name: str) -> int:
    """Return the bytes of one element of the tensor type *name*, or 0 if unknown."""
    return _type(name).size_bytes


def is_floating(spelled: Any) -> bool:
    """Return whether *spelled* is a floating-point type."""
    return any(one.floating for one in _types(spelled))


def short_type(spelled: Any) -> str:
    """Return the short name of a tensor's type, or of the types of a list of tensors; "" if unknown."""
    return next((one.short for one in _types(spelled) if one.short), "")


def numbers_per_element(spelled: Any) -> int:
    """Return the number of values in one element of type *spelled*: 2 for 4-bit types, otherwise 1."""
    return 2 if short_type(spelled) == "fp4" else 1


def precision_of(types: Sequence[Any], kernels: Iterable[str] = ()) -> str:
    """Return an operator's precision: the narrowest floating-point type of its arguments (*types*).

    32-bit products are TF32 if the name of one of *kernels* has a mark of TF32. 4-bit products are NVFP4 if
    their scales are ``float8_e4m3fn``, otherwise MXFP4. The result is "" without a floating-point argument.
    """
    floating = [one for spelled in types for one in _types(spelled) if one.floating]
    precision = min(floating, key=lambda one: (one.size_bytes, one.short != "fp4"), default=_UNKNOWN).short
    if precision == "fp4":
        return "nvfp4" if any("float8_e4m3" in str(spelled).lower() for spelled in types) else "mxfp4"
    if precision == "fp32" and any(part in kernel.lower() for kernel in kernels for part in _TF32):
        return "tf32"
    return precision


def kernel_width(kernel: str) -> int:
    """Return the bytes per element that *kernel* processes, from its template arguments; 0 if unknown."""
    if opaque := _OPAQUE.search(kernel):
        return int(opaque[1])
    typed = _IN_KERNEL.search(kernel)
    return dtype_bytes(typed[1]) if typed else 0


def _types(spelled: Any) -> list[_Type]:
    """Parse the types in a text such as ``Tensor(c10::Half)``, ``c10::Half`` or a list of these."""
    if not isinstance(spelled, str):
        return []
    return [_type(name) for name in (_TENSOR.findall(spelled) if "Tensor(" in spelled else [spelled])]


def _type(name: str) -> _Type:
    plain = name.removeprefix("c10::").lower()
    return _TYPES.get("float8_e5m2" if plain.startswith("float8") else plain, _UNKNOWN)


# Name, description and global ranks of a process group.
DescribedGroup = tuple[str, str, tuple[int, ...]]
# Placeholders that PyTorch writes for groups without a description (torch/distributed/distributed_c10d.py).
_UNDESCRIBED = ("", "undefined", "default_pg")


def group_labels(groups: Iterable[DescribedGroup]) -> dict[str, str]:
    """Return a label for each group by name; *groups* are in order of creation.

    The label is the description, such as ``dp`` for a dimension of a device mesh, or "". Groups
    with equal ranks and description are numbered; the numbers agree between ranks, which create
    groups in the same order.
    """
    labels: dict[str, str] = {}
    seen: Counter[tuple[tuple[int, ...], str]] = Counter()
    for name, description, ranks in groups:
        label = "" if description in _UNDESCRIBED else description.removeprefix("mesh_")
        seen[ranks, label] += 1
        count = seen[ranks, label]
        labels[name] = label if count == 1 else f"{label} no. {count}".strip()
    return labels


def described_groups(listed: Iterable[Any]) -> list[DescribedGroup]:
    """Parse a trace's list of groups; unexpected values count as absent."""
    return [
        (
            str(item.get("pg_name")),
            str(item.get("pg_desc", "")),
            tuple(rank for rank in item["ranks"] if type(rank) is int),
        )
        for item in listed
        if isinstance(item, Mapping) and isinstance(item.get("ranks"), list)
    ]
