"""The machine that runs collectives as programs: GPUs with compute units, and networks in and between GPUs.

Figures are per GPU unless stated otherwise. Bandwidths are in bytes per ns (1 byte/ns = 1 GB/s), and times
are in ns. A line is the data of one request, with `LINE_BYTES` bytes.

A machine file (YAML) has the keys of `Machine`, with the same nesting. *chip* names a chip file, which
provides common values; *sources* contains the origin of figures, by dotted key (``memory.latency_ns``) or
part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support.documents import read_yaml, yaml_mapping
from ..chips import find_chip
from ..config import Shipped, mapping_of, typed_fields
from ..programs import PROTOCOLS

LINE_BYTES = 128
ARBITRATIONS = ("first-come", "fair")
TOPOLOGIES = ("switch", "direct")
ROUTINGS = ("round-robin", "priority")
_MOST = 1 << 20
_LONGEST_NS = 1e9
_MAX_WAVES = 4096


@dataclass(frozen=True)
class Compute:
    """The compute units (CUs, SMs) of a GPU, and the limits of code that runs on these units.

    Each unit holds *workgroups_per_unit* thread blocks at a time, in wavefronts of *wavefront_threads*
    threads. A wavefront has up to *unroll* lines in flight, and a unit has up to *requests_per_unit*. A unit
    loads and stores at *bytes_per_ns* in each direction, and reduces inputs at *reduce_bytes_per_ns*. A
    kernel starts *launch_ns* after its node is ready, and each op of a thread block has an overhead of
    *op_ns*. *sync_ns* is the time of a barrier within a thread block (nop, barrier). *poll_ns* is the time
    from the arrival of a signal or flag until the waiting thread continues. *fence_ns* is the time of a fence
    in addition to the acknowledgements of writes.
    """

    units: int
    workgroups_per_unit: int = 1
    wavefront_threads: int = 32
    unroll: int = 8
    requests_per_unit: int = 512
    bytes_per_ns: float = 128.0
    reduce_bytes_per_ns: float = 256.0
    launch_ns: float = 0.0
    op_ns: float = 0.0
    sync_ns: float = 0.0
    poll_ns: float = 0.0
    fence_ns: float = 0.0


@dataclass(frozen=True)
class Mesh:
    """The on-chip network: *columns* x *rows* routers with compute units spread evenly over the routers.

    Memory channels are at the top and bottom rows of the mesh, and I/O ports are at the left and right
    columns. Each directed link carries *link_bytes_per_ns* and takes *hop_ns*, including the router. Each
    class of traffic that must not block another class has *virtual_channels* on each link, with
    *buffer_flits* of *flit_bytes* each. *arbitration* between the inputs of a router is ``round-robin``, or
    ``priority`` for requests without data.
    """

    columns: int
    rows: int
    link_bytes_per_ns: float
    hop_ns: float = 0.0
    virtual_channels: int = 16
    buffer_flits: int = 64
    flit_bytes: int = 32
    arbitration: str = "round-robin"

    @property
    def priority(self) -> bool:
        """Whether requests without data have priority in routers."""
        return self.arbitration == "priority"


@dataclass(frozen=True)
class Memory:
    """The GPU memory: *channels* with a total of *bytes_per_ns*, and *latency_ns* from request to answer."""

    channels: int
    bytes_per_ns: float
    latency_ns: float = 0.0


@dataclass(frozen=True)
class ScaleUp:
    """The network of loads and stores between the *gpus* of a node.

    A GPU has *ports* with a total of *bytes_per_ns* in each direction. With topology ``switch``, the ports
    lead to switches that connect all GPUs. With topology ``direct``, the ports are divided among the peers.
    *latency_ns* is the one-way latency from port to port. A request takes *control_bytes* on the wire, data
    takes its size plus *header_bytes*, and the acknowledgement of a write takes *acknowledge_bytes* (0: no
    bandwidth). If *multicast* is true, the switch multicasts and reduces (NVLS), which takes *reduce_ns*.
    Sums leave the switch at up to *reduce_bytes_per_ns* per GPU (0: at the rate of the links).
    """

    gpus: int
    ports: int
    bytes_per_ns: float
    latency_ns: float
    topology: str = "switch"
    header_bytes: int = 0
    control_bytes: int = 16
    acknowledge_bytes: int = 0
    multicast: bool = False
    reduce_ns: float = 0.0
    reduce_bytes_per_ns: float = 0.0

    @property
    def direct(self) -> bool:
        """Whether ports connect GPUs directly, with the ports divided among the peers."""
        return self.topology == "direct" and self.gpus > 1


@dataclass(frozen=True)
class ScaleOut:
    """The network between nodes: NICs with *bytes_per_ns* per GPU and direction, latency *latency_ns*.

    *proxy_ns* is the time that a proxy needs to post a transfer or a signal.
    """

    bytes_per_ns: float
    latency_ns: float
    proxy_ns: float = 0.0


@dataclass(frozen=True)
class Protocol:
    """The connections between MSCCL's thread blocks, with *slots* of *slot_bytes* bytes of data each.

    Chunks that are larger than a slot are sent in several rounds of one slot each. *threads* is the number of
    threads of a thread block, and *message_ns* is the time of a step without its data. The protocols LL and
    LL128 have flags in their data. With the protocol Simple, a fence and a signal follow the data.
    """

    slot_bytes: int
    slots: int = 8
    threads: int = 512
    message_ns: float = 0.0


# The parts of a machine, by key in the machine file.
PARTS: dict[str, type[Any]] = {
    "compute": Compute,
    "mesh": Mesh,
    "memory": Memory,
    "scale_up": ScaleUp,
    "scale_out": ScaleOut,
}


@dataclass(frozen=True)
class Machine:
    """The GPUs of a machine and their networks; *sources* contains the source of each figure by dotted key.

    *arbitration* between requests without data and data is ``first-come`` or ``fair``. With ``fair``, they
    alternate, so that a request waits for at most one line. *compute_waves* is the number of rounds of
    workgroups of a compute kernel on an otherwise idle GPU. *compute_memory_share* is the kernel's share of
    the memory bandwidth if the kernel's node has no bytes.
    """

    name: str
    compute: Compute
    mesh: Mesh
    memory: Memory
    scale_up: ScaleUp
    scale_out: ScaleOut
    protocols: Mapping[str, Protocol] = field(
        default_factory=lambda: {
            "Simple": Protocol(slot_bytes=1 << 19),
            "LL": Protocol(slot_bytes=1 << 14),
            "LL128": Protocol(slot_bytes=1 << 17),
        }
    )
    arbitration: str = "first-come"
    compute_waves: int = 8
    compute_memory_share: float = 0.0
    title: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def fair(self) -> bool:
        """Whether requests without data wait for at most one line of data."""
        return self.arbitration == "fair"

    def __post_init__(self) -> None:
        for part in PARTS:
            _check(self.name, part, getattr(self, part))
        for name, protocol in self.protocols.items():
            _check(self.name, f"protocols.{name}", protocol)
        _check_choice(self.name, "arbitration", self.arbitration, ARBITRATIONS)
        _check_choice(self.name, "scale_up.topology", self.scale_up.topology, TOPOLOGIES)
        _check_choice(self.name, "mesh.arbitration", self.mesh.arbitration, ROUTINGS)
        if not 1 <= self.compute_waves <= _MAX_WAVES or not 0 <= self.compute_memory_share <= 1:
            raise ConfigError(
                f"The machine '{self.name}': 'compute_waves' must be from 1 to {_MAX_WAVES}, not "
                f"{self.compute_waves!r}, and 'compute_memory_share' from 0 to 1, not "
                f"{self.compute_memory_share!r}."
            )
        _check_places(self)


_OPTIONAL_ZERO = {"acknowledge_bytes", "header_bytes", "reduce_bytes_per_ns"}


def _check(machine: str, where: str, part: Any) -> None:
    """Raise `ConfigError` for a figure of *part* that is not a number or out of range."""
    for item in fields(part):
        value = getattr(part, item.name)
        if isinstance(value, (str, bool)):
            continue
        key = f"{where}.{item.name}"
        zero = (item.name.endswith("_ns") and "bytes" not in item.name) or item.name in _OPTIONAL_ZERO
        most = _LONGEST_NS if isinstance(value, float) else float(1 << 30)
        number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        whole = "int" not in str(item.type) or isinstance(value, int)
        if not number or not whole or not (value >= 0 if zero else value > 0) or value > most:
            wanted = ("a whole number" if "int" in str(item.type) else "a number") + (
                " of 0 or more" if zero else " above 0"
            )
            raise ConfigError(
                f"The machine '{machine}': '{key}' must be {wanted} and at most {most:g}, not {value!r}."
            )


def _check_choice(machine: str, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(
            f"The machine '{machine}': '{key}' must be one of {', '.join(known)}, not {value!r}."
        )


def _check_places(machine: Machine) -> None:
    """Raise `ConfigError` if the endpoints do not fit the mesh, or the peers do not fit the ports."""
    routers = machine.mesh.columns * machine.mesh.rows
    if routers > 4096 or machine.compute.units > _MOST:
        raise ConfigError(
            f"The machine '{machine.name}' has {routers} routers and {machine.compute.units} compute units; "
            "at most 4096 and 1048576 can be simulated."
        )
    mesh = machine.mesh
    if mesh.buffer_flits * mesh.flit_bytes < max(LINE_BYTES, machine.scale_up.control_bytes):
        raise ConfigError(
            f"The machine '{machine.name}': {mesh.buffer_flits} flits of {mesh.flit_bytes} bytes have no "
            f"room for a line of {LINE_BYTES} bytes; raise 'mesh.buffer_flits'."
        )
    up = machine.scale_up
    if up.topology == "direct" and up.ports < up.gpus - 1:
        raise ConfigError(
            f"The machine '{machine.name}': {up.ports} ports cannot link a GPU directly to {up.gpus - 1} "
            "peers; raise 'scale_up.ports' or make the topology a switch."
        )


def machine_of_plain(plain: Mapping[str, Any]) -> Machine:
    """Return the machine from the output *plain* of `dataclasses.asdict`.

    Raises `TypeError` or `KeyError` for invalid data.
    """
    parts = {name: kind(**plain[name]) for name, kind in PARTS.items()}
    protocols = {name: Protocol(**facts) for name, facts in plain["protocols"].items()}
    return Machine(**{**plain, **parts, "protocols": protocols})


def _figures(machine: Machine) -> dict[str, float]:
    """Return the numbers of *machine* by dotted key, such as ``scale_up.latency_ns``."""
    figures: dict[str, float] = {}
    for part in fields(machine):
        value = getattr(machine, part.name)
        if is_dataclass(value):
            own = {f"{part.name}.{item.name}": getattr(value, item.name) for item in fields(value)}
        else:
            own = {part.name: value}
        figures |= {
            key: value
            for key, value in own.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
    return figures


def faster_machine(machine: Machine, key: str, times: float) -> Machine:
    """Return *machine* with the figure *key* multiplied by *times*; a time is divided by *times*.

    Integers change by at least one. Raises `ConfigError` for an unknown figure and an impossible machine.
    """
    figures = _figures(machine)
    if key not in figures:
        raise ConfigError(f"A machine has no figure '{key[:60]}'{did_you_mean(key, figures)}")
    value = figures[key]
    is_time = key.endswith("_ns") and not key.endswith("_per_ns")
    changed: float = value / times if is_time else value * times
    if isinstance(value, int):
        changed = max(1, math.ceil(changed - 1e-9) if times >= 1 else math.floor(changed + 1e-9))
    part, _, name = key.rpartition(".")
    new: dict[str, Any] = {name: changed}
    if part:
        new = {part: replace(getattr(machine, part), **new)}
    return replace(machine, **new)


_MACHINES = Shipped("machine", Path(__file__).with_name("machines.yml"))
_PLAIN = ("title", "arbitration", "compute_waves", "compute_memory_share")


def list_machines() -> list[str]:
    """Return the names of the machines that ship with the package, sorted."""
    return _MACHINES.names()


def find_machine(name: str | Path) -> Machine:
    """Return the shipped machine called *name*, or the machine in the file *name*.

    For an unknown name, raises `ConfigError` with the closest name.
    """
    if not _MACHINES.means(name):
        return load_machine(name)
    full_name, where = _MACHINES.full_name(str(name)), f"The machine '{name}'"
    return _machine(full_name, yaml_mapping(_MACHINES.text(full_name), where), where)


def load_machine(path: str | Path) -> Machine:
    """Read a machine file; raises `ConfigError` for unknown or missing keys, and for wrong values."""
    file = Path(path)
    return _machine(file.stem, read_yaml(file, "machine file"), str(file))


def _machine(name: str, content: Mapping[str, Any], where: str) -> Machine:
    given = {**{part: {} for part in PARTS}, **content}
    sources = _sources(given.pop("sources", {}), where)
    if "chip" in given:
        memory = dict(mapping_of(given["memory"], f"{where}: memory"))
        _take_from_chip(str(given.pop("chip")), memory, sources)
        given["memory"] = memory
    if "protocols" in given:
        _check_protocols(mapping_of(given["protocols"], f"{where}: protocols"), where)
    values = typed_fields(Machine, given, where, without=("name", "sources"))
    return Machine(name=name, **values, sources=sources)


def _take_from_chip(name: str, memory: dict[str, Any], sources: dict[str, str]) -> None:
    """Set the memory bandwidth from a chip file, unless the machine file gives the memory bandwidth."""
    chip = find_chip(name)
    if "bytes_per_ns" not in memory:
        memory["bytes_per_ns"] = chip.memory_bytes_per_s / 1e9
        sources.setdefault("memory.bytes_per_ns", f"the chip {chip.name}: {chip.source}")


def _sources(given: Any, file: str) -> dict[str, str]:
    """Return the sources of figures by dotted key; raises `ConfigError` for unknown figures."""
    sources = {str(key): str(words) for key, words in mapping_of(given, f"{file}: sources").items()}
    paths = {f"{name}.{item.name}" for name, kind in PARTS.items() for item in fields(kind)}
    paths |= {"protocols", *(f"protocols.{name}" for name in PROTOCOLS), *_PLAIN}
    for key in sources:
        if key not in paths:
            raise ConfigError(f"{file}: sources: there is no figure '{key}'{did_you_mean(key, paths)}")
    return sources


def _check_protocols(given: Mapping[Any, Any], file: str) -> None:
    for name in given:
        if name not in PROTOCOLS:
            raise ConfigError(f"{file}: unknown protocol '{name}'{did_you_mean(str(name), PROTOCOLS)}")
    for name in PROTOCOLS:
        if name not in given:
            raise ConfigError(f"{file}: the protocol '{name}' is missing; add it.")


DEFAULT_MACHINE = "h100"


def machine_of_backend(name: str) -> Machine:
    """Return the machine in the backend's *name*; raises `ConfigError` for an unknown machine."""
    return find_machine(name.partition(":")[2] or DEFAULT_MACHINE)
