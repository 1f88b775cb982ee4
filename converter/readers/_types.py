"""Types of tensors as PyTorch, its profiler and C++ spell them: width, short name, and precision."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["dtype_bytes", "is_floating", "kernel_width", "precision_of", "short_type"]


class _Type(NamedTuple):
    short: str
    size_bytes: int
    floating: bool


# In lower case and without c10::
_TYPES = {
    name: _Type(short, size_bytes, not short.startswith(("int", "uint", "bool")))
    for short, size_bytes, names in (
        ("fp64", 8, "double|float64"),
        ("fp32", 4, "float|float32"),
        ("fp16", 2, "half|float16"),
        ("bf16", 2, "bfloat16"),
        ("fp8", 1, "float8_e4m3fn|float8_e4m3fnuz|float8_e5m2|float8_e5m2fnuz"),
        ("complex32", 4, "complexhalf|complex<half>"),
        ("complex64", 8, "complexfloat|complex<float>"),
        ("complex128", 16, "complexdouble|complex<double>"),
        ("int64", 8, "long|long int|int64"),
        ("int32", 4, "int|int32"),
        ("int16", 2, "short|short int|int16"),
        ("int8", 1, "char|signed char|int8"),
        ("uint64", 8, "unsigned long|uint64"),
        ("uint32", 4, "unsigned int|uint32"),
        ("uint16", 2, "unsigned short|uint16"),
        ("uint8", 1, "byte|unsigned char|uint8"),
        ("bool", 1, "bool"),
    )
    for name in names.split("|")
}
_UNKNOWN = _Type("", 0, False)
_TENSOR = re.compile(r"Tensor\(([^)]*)\)")
# Kernels that only copy name the width of an element, others its type.
_OPAQUE = re.compile(r"OpaqueType<(\d+)")
_IN_KERNEL = re.compile(r"\b(?:c10::)?(BFloat16|Half|float|double)\b")
# Parts of the names of kernels that multiply 32-bit numbers as TF32 (cuBLAS, CUTLASS).
_TF32 = ("tf32", "s1688")


def dtype_bytes(name: str) -> int:
    """Return the bytes of one element of type *name*, 0 if unknown."""
    return _type(name).size_bytes


def is_floating(spelled: Any) -> bool:
    """Return whether *spelled* is a floating-point type."""
    return any(one.floating for one in _types(spelled))


def short_type(spelled: Any) -> str:
    """Return the short name of the type *spelled* of a tensor, or of the tensors of a list; "" if unknown."""
    return next((one.short for one in _types(spelled) if one.short), "")


def precision_of(types: Sequence[Any], kernels: Iterable[str] = ()) -> str:
    """Return the precision of an operator whose arguments have *types*: the narrowest floating-point one.

    Products of 32-bit numbers are TF32 where one of its *kernels* is called so. "" if no argument tells.
    """
    floating = [one for spelled in types for one in _types(spelled) if one.floating]
    precision = min(floating, key=lambda one: one.size_bytes, default=_UNKNOWN).short
    if precision == "fp32" and any(part in kernel.lower() for kernel in kernels for part in _TF32):
        return "tf32"
    return precision


def kernel_width(kernel: str) -> int:
    """Return the bytes of an element that a *kernel* handles, by its template's arguments; 0 if unknown."""
    if opaque := _OPAQUE.search(kernel):
        return int(opaque[1])
    typed = _IN_KERNEL.search(kernel)
    return dtype_bytes(typed[1]) if typed else 0


def _types(spelled: Any) -> list[_Type]:
    """Return the types that *spelled* names: ``Tensor(c10::Half)``, ``c10::Half``, a list."""
    if not isinstance(spelled, str):
        return []
    return [_type(name) for name in (_TENSOR.findall(spelled) if "Tensor(" in spelled else [spelled])]


def _type(name: str) -> _Type:
    plain = name.removeprefix("c10::").lower()
    return _TYPES.get("float8_e5m2" if plain.startswith("float8") else plain, _UNKNOWN)
