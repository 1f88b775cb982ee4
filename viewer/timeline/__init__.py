"""The slices in a window of the timeline, merged within pixels."""

from __future__ import annotations

from ._colours import COLOURED_BY as COLOURED_BY
from ._colours import Colours as Colours
from ._ranked import Hits as Hits
from ._ranked import RankedIndex as RankedIndex
from ._slices import SliceIndex as SliceIndex

__all__ = [
    "COLOURED_BY",
    "Colours",
    "Hits",
    "RankedIndex",
    "SliceIndex",
]
