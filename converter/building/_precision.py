"""Precisions of operators, from the types of their arguments as PyTorch spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["is_floating", "kernel_width", "precision_of", "short_type"]

# PyTorch's C++ name, in lower case and without c10:: -> (the usual short name, bytes of an element)
_FLOATING = {
    "double": ("fp64", 8), "float": ("fp32", 4), "half": ("fp16", 2), "bfloat16": ("bf16", 2),
    "float8_e4m3fn": ("fp8", 1), "float8_e4m3fnuz": ("fp8", 1), "float8_e5m2": ("fp8", 1),
    "float8_e5m2fnuz": ("fp8", 1), "complex<float>": ("complex64", 8), "complex<double>": ("complex128", 16),
}  # fmt: skip
_OTHERS = {
    "long int": "int64", "long": "int64", "int": "int32", "short int": "int16", "short": "int16",
    "signed char": "int8", "char": "int8", "unsigned char": "uint8", "byte": "uint8", "bool": "bool",
}  # fmt: skip
_TYPE = re.compile(r"Tensor\(([^)]*)\)")
# Kernels that only copy name the width of an element, others its type.
_OPAQUE = re.compile(r"OpaqueType<(\d+)")
_IN_KERNEL = re.compile(r"\b(?:c10::)?(BFloat16|Half|float|double)\b")
# Parts of the names of kernels that multiply 32-bit numbers as TF32 (cuBLAS, CUTLASS).
_TF32 = ("tf32", "s1688")


def is_floating(spelled: Any) -> bool:
    """Return whether *spelled* is a floating-point type."""
    return any(name in _FLOATING for name in _plain(spelled))


def short_type(spelled: Any) -> str:
    """Return the short name of the type *spelled* of a tensor, or of the tensors of a list; "" if unknown."""
    for name in _plain(spelled):
        if name in _FLOATING:
            return _FLOATING[name][0]
        if name in _OTHERS:
            return _OTHERS[name]
    return ""


def precision_of(types: Sequence[Any], kernels: Iterable[str] = ()) -> str:
    """Return the precision of an operator whose arguments have *types*: the narrowest floating-point one.

    Products of 32-bit numbers are TF32 where one of its *kernels* is called so. "" if no argument tells.
    """
    found = [_FLOATING[name] for spelled in types for name in _plain(spelled) if name in _FLOATING]
    precision = min(found, key=lambda item: item[1], default=("", 0))[0]
    if precision == "fp32" and any(part in kernel.lower() for kernel in kernels for part in _TF32):
        return "tf32"
    return precision


def kernel_width(kernel: str) -> int:
    """Return the bytes of an element that a *kernel* handles, by its template's arguments; 0 if unknown."""
    if opaque := _OPAQUE.search(kernel):
        return int(opaque[1])
    typed = _IN_KERNEL.search(kernel)
    return _FLOATING[typed[1].lower()][1] if typed else 0


def _plain(spelled: Any) -> list[str]:
    """Return the types that *spelled* names, in lower case: ``Tensor(c10::Half)``, ``c10::Half``, a list."""
    if not isinstance(spelled, str):
        return []
    names = _TYPE.findall(spelled) if "Tensor(" in spelled else [spelled]
    return [name.removeprefix("c10::").lower() for name in names]
