"""The slices in a window of the timeline, merged within pixels."""

from __future__ import annotations

from ._colours import COLOURED_BY as COLOURED_BY
from ._colours import Colours as Colours
from ._index import Hits as Hits
from ._index import TimelineIndex as TimelineIndex
