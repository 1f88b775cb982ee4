"""Readers of traces (host, device, linked), logs, operation tables and text workloads."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._communications import COMM_OPS as COMM_OPS
    from ._communications import FUNCTIONAL as FUNCTIONAL
    from ._communications import GLOO as GLOO
    from ._communications import MESSAGE_OPS as MESSAGE_OPS
    from ._communications import NCCL as NCCL
    from ._communications import dtype_bytes as dtype_bytes
    from ._communications import group_labels as group_labels
    from ._communications import is_floating as is_floating
    from ._communications import kernel_width as kernel_width
    from ._communications import numbers_per_element as numbers_per_element
    from ._communications import precision_of as precision_of
    from ._communications import short_type as short_type
    from ._device_comms import PARAMETERS as PARAMETERS
    from ._device_comms import DeviceComm as DeviceComm
    from ._device_comms import describe as describe
    from ._device_comms import is_communication as is_communication
    from ._device_comms import parameters as parameters
    from ._device_comms import peer_to_peer as peer_to_peer
    from ._file_kinds import common_name as common_name
    from ._file_kinds import damaged_file as damaged_file
    from ._file_kinds import holds_traces as holds_traces
    from ._file_kinds import is_of_one_rank as is_of_one_rank
    from ._file_kinds import is_operation_table as is_operation_table
    from ._file_kinds import kind_and_tool as kind_and_tool
    from ._file_kinds import kind_of as kind_of
    from ._file_kinds import missing_rank as missing_rank
    from ._file_kinds import stated_rank as stated_rank
    from ._file_kinds import unpacked as unpacked
    from ._file_kinds import worded_rank as worded_rank
    from ._file_sets import CAPTURE_FOLDER as CAPTURE_FOLDER
    from ._file_sets import HOST_DEVICES as HOST_DEVICES
    from ._file_sets import NAMED_LIKE_RANK as NAMED_LIKE_RANK
    from ._file_sets import Files as Files
    from ._file_sets import RankTraces as RankTraces
    from ._file_sets import find_rank_traces as find_rank_traces
    from ._file_sets import find_sides as find_sides
    from ._file_sets import host_ranks as host_ranks
    from ._file_sets import with_archives_open as with_archives_open
    from ._file_sets import with_capture_traces as with_capture_traces
    from ._host_comms import Communication as Communication
    from ._host_comms import Entry as Entry
    from ._host_comms import Flight as Flight
    from ._host_comms import communication_of as communication_of
    from ._host_comms import communications as communications
    from ._host_comms import issuing as issuing
    from ._host_comms import lost_communications as lost_communications
    from ._host_comms import read_flight_record as read_flight_record
    from ._host_comms import with_inferred_groups as with_inferred_groups
    from ._host_trace import HostOp as HostOp
    from ._host_trace import HostTrace as HostTrace
    from ._host_trace import Kinds as Kinds
    from ._host_trace import read_host_trace as read_host_trace
    from ._host_trace import tensors as tensors
    from ._kineto import CALL_RANGE as CALL_RANGE
    from ._kineto import CATEGORIES as CATEGORIES
    from ._kineto import MODULE_FRAME as MODULE_FRAME
    from ._kineto import MODULE_RANGE as MODULE_RANGE
    from ._kineto import OWN_RANGES as OWN_RANGES
    from ._kineto import STEP_MARK as STEP_MARK
    from ._kineto import Call as Call
    from ._kineto import CommArguments as CommArguments
    from ._kineto import DeviceTrace as DeviceTrace
    from ._kineto import Event as Event
    from ._kineto import Events as Events
    from ._kineto import Frames as Frames
    from ._kineto import Works as Works
    from ._kineto import read_device_trace as read_device_trace
    from ._linked import LINKED_LACKS as LINKED_LACKS
    from ._linked import read_linked as read_linked
    from ._linked import read_linked_host as read_linked_host
    from ._operation_table import OPERATION_TYPES as OPERATION_TYPES
    from ._operation_table import OperationTable as OperationTable
    from ._operation_table import read_operation_table as read_operation_table
    from ._operation_table import recorded_operations as recorded_operations
    from ._text_workload import read_text_workload as read_text_workload
    from ._timeline import PHASES as PHASES
    from ._timeline import HostCalls as HostCalls
    from ._timeline import Op as Op
    from ._timeline import Ops as Ops
    from ._timeline import Pieces as Pieces
    from ._timeline import Threads as Threads
    from ._timeline import cut_pieces as cut_pieces
    from ._timeline import host_calls as host_calls
    from ._timeline import read_host_calls as read_host_calls
else:
    __getattr__ = exports_of(__name__, __file__)
