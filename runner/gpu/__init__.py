"""The GPU model: collectives as programs on compute units, requests of a line on on-chip and other networks."""

from __future__ import annotations

from ._machine import LINE_BYTES, Compute, Machine, Memory, Mesh, Protocol, ScaleOut, ScaleUp

__all__ = ["LINE_BYTES", "Compute", "Machine", "Memory", "Mesh", "Protocol", "ScaleOut", "ScaleUp"]
