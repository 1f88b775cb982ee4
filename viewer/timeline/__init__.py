"""Lay nodes out in lanes, and find what fills a window of them."""

from __future__ import annotations

from ._lanes import is_communication as is_communication
from ._lanes import lane_table as lane_table
from ._slices import SliceIndex as SliceIndex

__all__ = [
    "SliceIndex",
    "is_communication",
    "lane_table",
]
