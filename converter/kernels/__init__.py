"""Kernels as data: name patterns of those that communicate."""

from __future__ import annotations

from ._patterns import VARIABLE as VARIABLE
from ._patterns import KernelPattern as KernelPattern
from ._patterns import UnsizedCommunication as UnsizedCommunication
from ._patterns import function_name as function_name
from ._patterns import kernel_pattern as kernel_pattern
from ._patterns import read_patterns as read_patterns
from ._patterns import unsized_communication as unsized_communication

__all__ = [
    "VARIABLE",
    "KernelPattern",
    "UnsizedCommunication",
    "function_name",
    "kernel_pattern",
    "read_patterns",
    "unsized_communication",
]
