"""Find which host operator a piece of device work belongs to."""

from __future__ import annotations

from ._device_links import MEMCPY as MEMCPY
from ._device_links import Launches as Launches
from ._device_links import Linked as Linked
from ._device_links import data_edges as data_edges
from ._device_links import host_rows as host_rows
from ._device_links import link as link
from ._host_lanes import Bursts as Bursts
from ._host_lanes import Lane as Lane
from ._host_lanes import bursts as bursts
from ._host_lanes import host_lanes as host_lanes
from ._host_links import with_records as with_records
from ._lending import lend_records as lend_records

__all__ = [
    "MEMCPY",
    "Bursts",
    "Lane",
    "Launches",
    "Linked",
    "bursts",
    "data_edges",
    "host_lanes",
    "host_rows",
    "lend_records",
    "link",
    "with_records",
]
