"""What the time between the collectives of production logs is called."""

from __future__ import annotations

__all__ = ["GAP"]

GAP = "gap between collectives, not profiled"
