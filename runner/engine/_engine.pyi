import enum
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

class GpuMachine:
    def __init__(self, figures: Mapping[str, Any]) -> None: ...

class GpuOp(enum.Enum):
    DATA = 0
    SIGNAL = 1
    TAKE = 2
    AWAIT = 3
    SYNC = 4
    BARRIER = 5
    FENCE = 6
    PROXY = 7
    FLUSH = 8
    PAUSE = 9

class GpuProgram:
    name: str
    copies: int
    groups: Sequence[Sequence[int]]
    counters: Sequence[Sequence[int]]
    def __init__(self) -> None: ...
    def add_rank(self) -> None: ...
    def add_workgroup(
        self,
        wavefronts: int,
        ops: Sequence[
            tuple[
                GpuOp,
                int,
                int,
                float,
                Sequence[tuple[int, int, float, int]],
                Sequence[tuple[int, int, float, int]],
                Sequence[tuple[int, int, int]],
            ]
        ],
    ) -> None: ...

class GpuReplay:
    rank_ns: npt.NDArray[np.int64]
    stamps: dict[str, npt.NDArray[np.int64]]
    links: dict[str, npt.NDArray[np.int64]]
    counts: dict[str, float]
    stuck: list[tuple[int, int, int, int]]

class GpuConfig:
    machine: GpuMachine
    detailed: bool
    def __init__(self) -> None: ...
    def add_collective(
        self, kind: int, group: int, size_bytes: int, members: Sequence[int], program: GpuProgram | None
    ) -> None: ...

class NetworkModel(enum.Enum):
    UNAWARE = 0
    AWARE = 1
    FLOW = 2
    PACKET = 3

class _Fabric(Protocol):
    @property
    def nodes(self) -> int: ...
    @property
    def switches(self) -> Sequence[int]: ...
    @property
    def hosts(self) -> Sequence[int]: ...
    @property
    def links(self) -> Sequence[tuple[int, int, int, int, float]]: ...
    @property
    def changes(self) -> Sequence[tuple[int, int, int]]: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...

class Routes:
    def __init__(self, fabric: _Fabric, step: int = 1) -> None: ...
    def path(self, source: int, destination: int, ports: int) -> list[int]: ...
    def measure(self, source: int, destination: int, payload_bytes: int) -> tuple[int, int]: ...

class FabricReport:
    flows: dict[str, npt.NDArray[np.int64]]
    links: dict[str, npt.NDArray[np.int64]]
    intervals: dict[str, npt.NDArray[np.int64]]
    flags: list[str]
    changes: dict[str, npt.NDArray[np.int64]]
    data_packets: int
    events: int
    largest_train: int
    split_trains: bool

class PathWalk:
    rank: int
    done: bool
    def __init__(self, rank: int, node: int, makespan_ns: int, most_steps: int) -> None: ...
    def advance(
        self,
        errors: ModuleType,
        node: npt.NDArray[np.int64],
        start: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        cause: npt.NDArray[np.int64],
        cause_is_dependency: npt.NDArray[np.bool_],
        origin_rank: npt.NDArray[np.int32],
        origin_node: npt.NDArray[np.int64],
    ) -> None: ...
    def steps(self) -> dict[str, npt.NDArray[np.int64]]: ...

def lower_room(
    errors: ModuleType,
    room: npt.NDArray[np.int64],
    order: npt.NDArray[np.int32],
    first: npt.NDArray[np.int64],
    waiting: npt.NDArray[np.int32],
    gap: npt.NDArray[np.int64],
) -> None: ...

class PacketSimulation:
    def __init__(self, fabric: _Fabric) -> None: ...
    def send(self, message: int, source: int, destination: int, bytes: int, time_ps: int) -> None: ...
    def run(self, limit_ps: int) -> list[tuple[int, int]]: ...
    def report(self) -> FabricReport: ...

class Config:
    topology: list[str]
    npus_count: list[int]
    bandwidth: list[float]
    latency: list[float]
    wire_share: float
    shake_packets: float
    num_queues_per_dim: int
    rendezvous: bool
    semantics: str
    overtaking: int
    native_collectives: bool
    replay_only: bool
    preferred_dataset_splits: int
    active_chunks_per_dimension: int
    endpoint_delay: int
    local_reduction_delay: int
    local_mem_bw: float
    peak_perf: float
    roofline_enabled: bool
    track_local_mem: bool
    collective_optimization: str
    scheduling_policy: str
    intra_dimension_policy: str
    inter_dimension_policy: str
    all_reduce_implementation: list[str]
    reduce_scatter_implementation: list[str]
    all_gather_implementation: list[str]
    all_to_all_implementation: list[str]
    all_reduce_implementation_custom: list[str]
    reduce_scatter_implementation_custom: list[str]
    all_gather_implementation_custom: list[str]
    all_to_all_implementation_custom: list[str]
    model_shared_bus: int
    L: float
    o: float
    g: float
    G: float
    per_node_custom_implementation: dict[int, str]
    custom_base: str
    collective_costs: dict[int, list[tuple[int, int]]]
    message_cost_ns: int
    message_library_costs: list[tuple[int, int]]
    messages_on_request: bool
    sends_first: dict[int, int]
    collective_substitutes: dict[int, int]
    memory_type: str
    remote_mem_latency: int
    remote_mem_bw: int
    num_nodes: int
    num_npus_per_node: int
    groups: dict[int, list[int]]
    fold: bool
    meeting_ranks: int
    representative_of_rank: list[int]
    record_nodes: bool
    record_links: bool
    external_network: Callable[[list[tuple[int, int, int, int, int]], int], list[tuple[int, int]]]
    network_model: NetworkModel
    gpu: GpuConfig | None
    @property
    def collective_programs(self) -> list[tuple[str, int, int, str, list[bytes]]]: ...
    def __init__(self) -> None: ...
    def set_fabric(self, fabric: _Fabric) -> None: ...
    def add_program(
        self, collective: str, members: int, size: int, name: str, graphs: list[bytes]
    ) -> None: ...
    def set_sync_points(
        self,
        rank: list[int],
        node_id: list[int],
        point: list[int],
        wait_ns: list[int],
        begin_ns: list[int],
    ) -> None: ...

class Output:
    makespan_ns: int
    nodes_total: int
    nodes_executed: int
    events: int
    folded: bool
    overtaking: int
    overtaken: int
    replayed: int
    evened: int
    undercharged: tuple[int, int, int, int, int] | None
    unfinished: list[dict[str, int | str]]
    deadlock: list[dict[str, int | str | bool]]
    rank_finish_ns: npt.NDArray[np.int64]
    finish_order: npt.NDArray[np.int32]
    rank_representative: npt.NDArray[np.int32]
    rank_exposed_comm_ns: npt.NDArray[np.int64]
    rank_compute_ns: npt.NDArray[np.int64]
    rank_comm_ns: npt.NDArray[np.int64]
    rank_overlap_ns: npt.NDArray[np.int64]
    rank_copy_ns: npt.NDArray[np.int64]
    rank_exposed_copy_ns: npt.NDArray[np.int64]
    rank_compute_bound: npt.NDArray[np.float64]
    rank_compute_utilization: npt.NDArray[np.float64]
    rank_memory_utilization: npt.NDArray[np.float64]
    rank_operation_intensity: npt.NDArray[np.float64]
    node_counts: npt.NDArray[np.int64]
    link_src: npt.NDArray[np.int32]
    link_dst: npt.NDArray[np.int32]
    link_bytes: npt.NDArray[np.int64]
    link_busy_ns: npt.NDArray[np.int64]
    link_queue_ns: npt.NDArray[np.int64]
    fabric: FabricReport
    link_messages: npt.NDArray[np.int64]
    gpu_compute_ns: npt.NDArray[np.uint64]
    gpu_alone_ns: npt.NDArray[np.uint64]

    def nodes(self, first: int, last: int) -> dict[str, npt.NDArray[np.integer[Any]]]: ...
    def collectives(self, of_all: bool) -> dict[str, npt.NDArray[np.integer[Any]]]: ...

class EmulationOutput:
    finish_ns: int
    nodes_total: int
    nodes_executed: int
    events: int
    overtaken: int
    replayed: int
    evened: int
    statistics: dict[str, float]
    nodes: dict[str, npt.NDArray[np.int64]]
    sent: dict[str, npt.NDArray[np.int64]]
    received: dict[str, npt.NDArray[np.int64]]
    open: list[dict[str, int | str]]

class Transport: ...

class TcpTransport(Transport):
    def __init__(self, errors: ModuleType, connections: Sequence[tuple[int, int, int]]) -> None: ...

class FabricTransport(Transport):
    @staticmethod
    def is_built() -> bool: ...
    @staticmethod
    def providers(errors: ModuleType) -> list[str]: ...
    @staticmethod
    def open(
        errors: ModuleType, provider: str, addresses: Sequence[str], rank: int, key: bytes
    ) -> FabricTransport: ...
    def names(self) -> list[bytes]: ...
    def join(self, errors: ModuleType, peers: dict[int, list[bytes]], deadline_ns: int) -> None: ...

class ThreadedTransport(Transport):
    def __init__(self, errors: ModuleType, post: Callable[[int, bytes, int, bool], None]) -> None: ...
    def sent(self, peer: int, path: int, frame: bytes, begun_ns: int) -> None: ...
    def came(self, peer: int, path: int, frame: bytes, begun_ns: int) -> None: ...
    def lost(self, peer: int, why: str) -> None: ...
    @staticmethod
    def size_behind(peer: int, frame: bytes) -> int: ...

def emulate(
    errors: ModuleType,
    config: Config,
    programs: Sequence[bytes | str],
    program_of_rank: Sequence[int],
    rank: int,
    transport: Transport,
    start_ns: int,
    progress: Callable[[int, bool, bool, int, int], bool],
) -> EmulationOutput: ...
def simulate(
    errors: ModuleType,
    config: Config,
    programs: Sequence[bytes | str],
    program_of_rank: Sequence[int],
    progress: Callable[[int, int], bool] | None,
) -> Output: ...
def collectives(
    errors: ModuleType, programs: Sequence[bytes | str], apart: Sequence[int], sizes: bool
) -> list[tuple[int, int, int, int, int]]: ...
def refusals(
    errors: ModuleType, config: Config, collectives: Sequence[tuple[int, int, int, int, int]]
) -> list[str]: ...
def replay_gpu_program(
    errors: ModuleType,
    machine: GpuMachine,
    program: GpuProgram,
    detailed: bool,
    stamps: bool,
    progress: Callable[[int, int], bool] | None,
) -> GpuReplay: ...
def is_algorithm(name: str) -> bool: ...

FRAME_BYTES: int
CONGESTION_CONTROLS: tuple[int, ...]
PORT_RESERVE_BYTES: int
SILENCE: str
ENGINE_FIELDS: tuple[tuple[str, str, Any, float, float, tuple[str, ...]], ...]
PACKET_SETTINGS: tuple[tuple[str, str, Any, float, float], ...]
MACHINE_FIGURES: tuple[str, ...]
TOPOLOGIES: tuple[str, ...]
COLLECTIVES: tuple[str, ...]
ALGORITHMS: tuple[str, ...]
WHOLE_ALGORITHMS: tuple[str, ...]
WINDOWED_ALGORITHMS: tuple[str, ...]
