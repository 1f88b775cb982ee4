"""Build the graph of each rank from its linked traces: lanes, steps, dependencies, costs."""

from __future__ import annotations

from ._convert import UNMARKED as UNMARKED
from ._convert import Progress as Progress
from ._convert import convert as convert
from ._convert import convert_files as convert_files
from ._overhead import ProfilerOverhead as ProfilerOverhead
from ._overhead import profiler_overhead as profiler_overhead
from ._rank import LEFT_OUT as LEFT_OUT
from ._rank import read_rank as read_rank
from ._steps import annotated_steps as annotated_steps

__all__ = [
    "LEFT_OUT",
    "UNMARKED",
    "ProfilerOverhead",
    "Progress",
    "annotated_steps",
    "convert",
    "convert_files",
    "profiler_overhead",
    "read_rank",
]
