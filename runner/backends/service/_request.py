"""Translate an experiment to request messages of ASTRA-sim Service.

The messages are the part of the service's public interface (API 1.x) that is used here, with its
field numbers. The messages are built from a table into a separate descriptor pool, so any protobuf runtime
from version 4 works, even next to the service's SDK, which pins an exact version. Scalars are declared as
in proto2: the encoding is the same, but absent values differ from 0. For absent values, the service has its
own defaults.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import BackendUnavailable, ConfigError
from ..._experiment import Experiment
from ...config import SETTINGS, Fabric, NetworkConfig, SystemConfig, refuse_programs
from ...engine import COLLECTIVES
from ..astra_sim import lasting_fabric, link_texts, refuse_unsupported, setting_texts

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2

PACKAGE = "astra"
# One "name: type" per field, in order of field numbers from 1. "*" marks a list. Enumerations are
# declared as numbers.
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
    """Return each message's fields in order of number: name, type, and whether it is a list."""
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
    """Return a message of the type *name*; nested mappings become messages, and None an absent field.

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


BACKENDS = {
    "analytical-aware": (1, "analytical_congestion_aware"),
    "analytical-unaware": (2, "analytical_congestion_unaware"),
    "ns3": (3, "ns3"),
}
"""The number and name of each network type at the service."""
KINDS = tuple(BACKENDS)

_PREFIX = "workload"
_TOPOLOGIES = {"Ring": 1, "FullyConnected": 2, "Switch": 3}
# The service supports fewer algorithms than ASTRA-sim.
_ALGORITHMS = ("direct", "oneDirect", "oneRing", "ring")
_ALL_REDUCE = ("doubleBinaryTree", *_ALGORITHMS)
_COLLECTIVES = tuple(name.replace("-", "_") for name in COLLECTIVES)
_BUS = {"latency": "L", "overhead": "o", "gap": "g", "global_memory": "G"}
_CHUNK_BYTES = 1 << 20
_HPCC = 3
_HPCC_RATES_BPS = frozenset(gbit * 10**9 for gbit in (25, 50, 100, 200, 400, 2400))
# All archive entries have this time, so that equal experiments give equal archives.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_archive(
    experiment: Experiment, folder: str, path: Path, raise_if_stopped: Callable[[], None]
) -> None:
    """Write one program per rank as ``folder/workload.<rank>.et`` into the zip archive *path*.

    The service unpacks them as plain files, so ranks cannot share one. *raise_if_stopped* is called after
    every MiB.
    """
    source = experiment.workload
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for rank, index in enumerate(source.program_of_rank):
            program = source.programs[index]
            content = program if isinstance(program, bytes) else Path(program).read_bytes()
            entry = zipfile.ZipInfo(f"{folder}/{_PREFIX}.{rank}.et", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=len(content) > 1 << 31) as file:
                for start in range(0, max(len(content), 1), _CHUNK_BYTES):
                    raise_if_stopped()
                    file.write(content[start : start + _CHUNK_BYTES])


def configuration(experiment: Experiment, kind: str, folder: str, *, trace: bool) -> tuple[Any, list[str]]:
    """Return the request that configures *experiment*, and notes on values that the service changes.

    *trace* makes the log contain the start and end of every node. Raises `ConfigError` for settings
    that the interface lacks: halving-doubling and custom algorithms, networks of links, numbers
    beyond 32 bits.
    """
    warnings: list[str] = []
    number, name = BACKENDS[kind]
    common = {
        "workload": f"{folder}/{_PREFIX}",
        "system": _system(experiment, warnings, trace=trace),
        "communicator_group": [
            {"identifier": str(group), "npu_list": list(members)}
            for group, members in sorted(experiment.groups.items())
        ],
        "remote_memory": _memory(experiment),
        "logging": _logging() if trace else None,
        "cmd_parameters": _arguments(experiment),
    }
    network = {"choice": number, name: _network(experiment.network, kind, warnings)}
    content = {"common_config": common, "network_backend": network}
    try:
        return message("SetConfigRequest", {"config": content}), warnings
    except ValueError as error:
        raise ConfigError(
            f"A number of the experiment is too large for ASTRA-sim Service, which stores 32 bits ({error}); "
            "use the backends 'astra-sim:...' or Chakrascope's."
        ) from error


def _system(experiment: Experiment, warnings: list[str], *, trace: bool) -> dict[str, Any]:
    """Return the system with ASTRA-sim's defaults filled in, because the service's defaults differ."""
    system = experiment.system
    _refuse_custom(system)
    values = {
        name: system.value(_BUS.get(name, name))
        for name, _, repeated in MESSAGES["SystemConfiguration"]
        if not repeated and name != "trace_enabled"
    }
    plain = {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
    algorithms = _algorithms(system, experiment.network.dimensions, warnings)
    return {**plain, "trace_enabled": int(trace), **algorithms}


def _refuse_custom(system: SystemConfig) -> None:
    refuse_programs(system, "ASTRA-sim Service")
    given = [key for key, value in vars(system).items() if "custom" in key and value is not None]
    if given:
        raise ConfigError(
            f"'{given[0].replace('_', '-')}' cannot be used with ASTRA-sim Service, which ignores all other "
            "algorithms if one is custom; use the backends 'astra-sim:...' or Chakrascope's."
        )


def _algorithms(system: SystemConfig, dimensions: int, warnings: list[str]) -> dict[str, list[str]]:
    algorithms = {}
    for collective in _COLLECTIVES:
        key = f"{collective}_implementation"
        names = getattr(system, key)
        if names is None:
            names = ("ring",) * dimensions
            warnings.append(
                f"'{key.replace('_', '-')}' is absent, but the service requires it: ring was used."
            )
        allowed = _ALL_REDUCE if collective == "all_reduce" else _ALGORITHMS
        wrong = next((name for name in names if name not in allowed), None)
        if wrong:
            raise ConfigError(
                f"ASTRA-sim Service does not accept the algorithm '{wrong}' in '{key.replace('_', '-')}', "
                f"only {', '.join(sorted(allowed))}; choose one, or use the backends 'astra-sim:...' or "
                "Chakrascope's."
            )
        algorithms[key] = list(names)
    return algorithms


def _memory(experiment: Experiment) -> dict[str, Any]:
    memory = experiment.memory
    return {name: getattr(memory, name) for name, _, _ in MESSAGES["RemoteMemory"]}


def _logging() -> dict[str, Any]:
    """Return the logging configuration that prints node times, because the service keeps only the output."""
    sink = {"name": "console", "type": "stdout_sink_mt"}
    return {"sink": [sink], "logger": [{"name": "workload", "sinks": ["console"], "level": "debug"}]}


def _arguments(experiment: Experiment) -> dict[str, Any]:
    # An absent endpoint delay means ASTRA-sim's default, which the injection scale does not change.
    scaled = experiment.system.endpoint_delay is not None
    return {
        "num_queues_per_dim": experiment.num_queues_per_dim,
        "comm_scale": 1.0,
        "injection_scale": experiment.injection_scale if scaled else 1.0,
        "rendezvous_protocol": experiment.rendezvous,
    }


def _network(network: NetworkConfig, kind: str, warnings: list[str]) -> dict[str, Any]:
    refuse_unsupported(network, kind, kind)
    if kind == "ns3":
        return _packets(network, warnings)
    rows = [
        {
            "topology": _TOPOLOGIES[topology],
            "npus_count": count,
            "bandwidth": _single(bandwidth, "the network's bandwidth", warnings),
            "latency": _single(latency, "the network's latency", warnings),
        }
        for topology, count, bandwidth, latency in zip(
            network.topology, network.npus_count, network.bandwidth, network.latency, strict=True
        )
    ]
    return {"topology": {"choice": 1, "network": rows}}


def _single(value: float, what: str, warnings: list[str]) -> float:
    """Return *value*; append to *warnings* if the service will store another number."""
    stored = float(str(np.float32(value)))
    if stored != value:
        warnings.append(f"The service stores 32 bits of {what}: {stored!r} for {value!r}.")
    return value


def _packets(network: NetworkConfig, warnings: list[str]) -> dict[str, Any]:
    fabric = lasting_fabric(network)
    _refuse_flood(fabric)
    settings = setting_texts(fabric)
    chosen = {}
    for name, kind, repeated in MESSAGES["NS3Network"]:
        words = settings.pop(name.upper())
        chosen[name] = (
            [int(word) for word in words.split()] if repeated else _setting(words, name, kind, warnings)
        )
    warnings += [
        f"'{key}' has no effect: the service's interface lacks it."
        for key in settings
        if fabric.settings[key] != SETTINGS[key][1]
    ]
    ends = ("source_index", "destination_index", "bandwidth", "latency", "error_rate")
    topology = {
        "total_nodes": fabric.nodes,
        "total_switches": len(fabric.switches),
        "total_links": len(fabric.links),
        "switch_ids": list(fabric.switches),
        "connections": [dict(zip(ends, row, strict=True)) for row in link_texts(fabric)],
    }
    return {
        "network": chosen,
        "topology": {"choice": 1, "nc_topology": topology},
        "logical_topology": {"logical_dimensions": list(network.npus_count)},
    }


def _refuse_flood(fabric: Fabric) -> None:
    """Raise `ConfigError` for a network on which ASTRA-sim's ns-3 would print a line per packet."""
    rates = {link.rate_bps for link in fabric.links} - _HPCC_RATES_BPS
    if fabric.settings["CC_MODE"] == _HPCC and rates:
        raise ConfigError(
            f"ASTRA-sim's HPCC (CC_MODE 3) does not support links of {min(rates)} bit/s, and its warnings "
            "hang a service; give them 25, 50, 100, 200, 400 or 2400 Gbit/s, or use the "
            "backend 'packet'."
        )


def _setting(text: str, name: str, kind: str, warnings: list[str]) -> Any:
    """Convert a value from config.txt to the service's type *kind*."""
    if kind == "string":
        return text
    if kind == "float":
        return _single(float(text), name.upper(), warnings)
    number = float(text)
    if not number.is_integer():
        warnings.append(f"The service stores whole numbers of {name.upper()}: {int(number)} for {text}.")
    return int(number)
