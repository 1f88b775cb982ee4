"""The messages of ASTRA-sim Service's public interface (API 1.x) used here, by field numbers.

The messages are built from a table in a separate descriptor pool. Any protobuf runtime from version 4 works,
even together with the service's SDK, which requires an exact version. Scalars are declared as in proto2,
which uses the same bytes but distinguishes 0 from absent values. This distinction matters, because the
service replaces absent values by defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ....errors import BackendUnavailable

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2

PACKAGE = "astra"
# The table has one "name: type" per field, in the order of field numbers from 1. "*" marks a list.
# Enumerations are declared as numbers.
_TABLE = """
Data: chunk_size:uint64 datum:bytes
UploadConfigResponse: server_response:ServerResponse
SetConfigRequest: config:Config
SetConfigResponse: server_response:ServerResponse
GetConfigResponse: response_bytes:bytes
GetStatusResponse: control_status:ControlStatus
SetControlActionRequest: control:Control
SetControlActionResponse: server_response:ServerResponse
GetResultRequest: result:Result
GetResultResponse: response_bytes:bytes
GetVersionResponse: version:Version

ServerResponse: message:string warnings:string*
ControlStatus: status:int32
Control: choice:int32 start:ControlStart
ControlStart: backend:int32
Result: choice:int32 filename:string
Version: api_spec_version:string sdk_version:string app_version:string

Config: common_config:CommonConfiguration network_backend:NetworkBackend
CommonConfiguration: workload:string system:SystemConfiguration communicator_group:CommunicatorGroup*
  remote_memory:RemoteMemory logging:SpdlogConfig cmd_parameters:CommandArguments
CommandArguments: num_queues_per_dim:uint32 comm_scale:double injection_scale:double rendezvous_protocol:bool
SystemConfiguration: scheduling_policy:string all_reduce_implementation:string*
  reduce_scatter_implementation:string* all_gather_implementation:string* all_to_all_implementation:string*
  all_to_all_implementation_custom:string* all_gather_implementation_custom:string*
  all_reduce_implementation_custom:string* collective_optimization:string local_reduction_delay:int32
  active_chunks_per_dimension:int32 latency:float overhead:float gap:float global_memory:float
  endpoint_delay:int32 model_shared_bus:int32 preferred_dataset_splits:int32 peak_perf:double
  local_mem_bw:double roofline_enabled:int32 trace_enabled:int32 replay_only:int32 track_local_mem:int32
CommunicatorGroup: identifier:string npu_list:int32*
RemoteMemory: memory_type:string remote_mem_latency:int32 remote_mem_bw:int32 num_nodes:int32
  num_npus_per_node:int32
SpdlogConfig: sink:Sink* logger:Logger*
Sink: name:string type:string
Logger: name:string sinks:string* level:string

NetworkBackend: choice:int32 analytical_congestion_aware:AnalyticalConfiguration
  analytical_congestion_unaware:AnalyticalConfiguration ns3:NS3Configuration
AnalyticalConfiguration: topology:AnalyticalTopology
AnalyticalTopology: choice:int32 network:AnalyticalTopologyNetwork*
AnalyticalTopologyNetwork: topology:int32 npus_count:int32 bandwidth:float latency:float

NS3Configuration: network:NS3Network topology:NS3Topology logical_topology:NS3LogicalTopology
NS3Topology: choice:int32 nc_topology:NCTopology
NCTopology: total_nodes:int32 total_switches:int32 total_links:int32 switch_ids:int32*
  connections:NCTopologyConnection*
NCTopologyConnection: source_index:uint32 destination_index:uint32 bandwidth:string latency:string
  error_rate:string
NS3LogicalTopology: logical_dimensions:uint32*
NS3Network: enable_qcn:int32 use_dynamic_pfc_threshold:int32 packet_payload_size:uint32 topology_file:string
  flow_file:string trace_file:string trace_output_file:string fct_output_file:string pfc_output_file:string
  simulator_stop_time:float cc_mode:int32 alpha_resume_interval:uint32 rate_decrease_interval:uint32
  clamp_target_rate:uint32 rp_timer:uint32 ewma_gain:float fast_recovery_times:uint32 rate_ai:string
  rate_hai:string min_rate:string dctcp_rate_ai:string error_rate_per_link:float l2_chunk_size:uint32
  l2_ack_interval:uint32 l2_back_to_zero:int32 has_win:int32 global_t:int32 var_win:int32 fast_react:int32
  u_target:float mi_thresh:uint32 int_multi:uint32 multi_rate:int32 sample_feedback:int32
  pint_log_base:float pint_prob:float rate_bound:int32 ack_high_prio:int32 link_down:uint32*
  enable_trace:int32 kmax_map:string kmin_map:string pmax_map:string buffer_size:uint32 qlen_mon_file:string
  qlen_mon_start:int64 qlen_mon_end:int64 nic_total_pause_time:int32 headroom_factor:int32
"""


def _fields() -> dict[str, list[tuple[str, str, bool]]]:
    """Return each message's fields in the order of their numbers: name, type, and whether it is a list."""
    messages: dict[str, list[tuple[str, str, bool]]] = {}
    fields: list[tuple[str, str, bool]] = []
    for word in _TABLE.split():
        if word.endswith(":"):
            fields = messages[word[:-1]] = []
            continue
        name, _, kind = word.partition(":")
        fields.append((name, kind.rstrip("*"), kind.endswith("*")))
    return messages


MESSAGES = _fields()


def _file() -> descriptor_pb2.FileDescriptorProto:
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - an extra

    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="chakrascope_service.proto", package=PACKAGE)
    for message_name, fields in MESSAGES.items():
        described = file.message_type.add(name=message_name)
        for number, (name, kind, repeated) in enumerate(fields, start=1):
            field = described.field.add(name=name, number=number)
            field.label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            if kind in MESSAGES:
                field.type, field.type_name = types.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                field.type = getattr(types, f"TYPE_{kind.upper()}")
    return file


@cache
def _classes() -> dict[str, Any]:
    try:
        from google.protobuf import descriptor_pool, message_factory  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BackendUnavailable(
            f"ASTRA-sim Service needs Protocol Buffers, which are missing ({error}); install them with "
            "`pip install 'chakrascope[service]'` or `pip install protobuf`."
        ) from error

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    descriptors = {name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in MESSAGES}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in descriptors.items()}


def decode_error() -> type[Exception]:
    """Return the exception type for bytes that are not a valid message."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra

    return DecodeError


def message(name: str, content: Mapping[str, Any] | None = None) -> Any:
    """Return a message of the type *name*; mappings become messages, and None values become absent fields.

    Raises `BackendUnavailable` without protobuf.
    """
    made = _classes()[name]()
    _fill(made, content or {})
    return made


def _fill(target: Any, content: Mapping[str, Any]) -> None:
    for key, value in content.items():
        if isinstance(value, Mapping):
            _fill(getattr(target, key), value)
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            for item in value:
                if isinstance(item, Mapping):
                    _fill(getattr(target, key).add(), item)
                else:
                    getattr(target, key).append(item)
        elif value is not None:
            setattr(target, key, value)
