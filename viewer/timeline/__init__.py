"""The slices in a time window of the timeline, merged within pixels."""

from ._index import TimelineIndex as TimelineIndex
from ._slices import COLOURED_BY as COLOURED_BY
from ._slices import Colours as Colours
