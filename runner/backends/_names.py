"""Names of backends that more than one module knows."""

from __future__ import annotations

__all__ = ["AUTO", "AWARE", "EMULATION"]

AUTO = "auto"
AWARE = "analytical-aware"
EMULATION = "emulation:"  # and where the ranks run
