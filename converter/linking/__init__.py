"""Match records: host operators with device work, and log records of collectives across ranks."""

from ._captured import KERNEL as KERNEL
from ._captured import MEMCPY as MEMCPY
from ._captured import CapturedGraph as CapturedGraph
from ._captured import allocated_shapes as allocated_shapes
from ._captured import captured_graphs as captured_graphs
from ._captured import launches_graphs as launches_graphs
from ._device_links import Launches as Launches
from ._device_links import Linked as Linked
from ._device_links import blocks_host as blocks_host
from ._device_links import data_edges as data_edges
from ._device_links import host_rows as host_rows
from ._device_links import link as link
from ._device_links import record_ids as record_ids
from ._device_links import with_records as with_records
from ._host_lanes import Bursts as Bursts
from ._host_lanes import Lane as Lane
from ._host_lanes import bursts as bursts
from ._host_lanes import host_lanes as host_lanes
from ._host_lanes import lend_records as lend_records
from ._logged import Clocks as Clocks
from ._logged import LoggedMessage as LoggedMessage
from ._logged import MatchedCollective as MatchedCollective
from ._logged import MatchedLogs as MatchedLogs
from ._logged import match_logs as match_logs
from ._logged import troubles_of as troubles_of
