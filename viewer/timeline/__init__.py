"""Find what a window of the timeline shows, merged where a pixel holds several slices."""

from __future__ import annotations

from ._slices import SliceIndex as SliceIndex

__all__ = [
    "SliceIndex",
]
