"""The compiled simulation engine: event queue, ranks, collectives and analytical networks.

It alone defines the values of a configuration and their valid combinations: the FIELDS of a `Config`, the
SETTINGS of a packet network, the MACHINE_FIGURES of a GPU machine by their path, TOPOLOGIES of a dimension,
COLLECTIVES as in the keys of a system configuration, and the ALGORITHMS of one dimension, or
WHOLE_ALGORITHMS of all ranks at once. A number may follow the name of WINDOWED_ALGORITHMS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ... import errors

try:
    from ._engine import ALGORITHMS as ALGORITHMS
    from ._engine import COLLECTIVES as COLLECTIVES
    from ._engine import CONGESTION_CONTROLS as CONGESTION_CONTROLS
    from ._engine import ENGINE_FIELDS as _ENGINE_FIELDS
    from ._engine import FRAME_BYTES as FRAME_BYTES
    from ._engine import MACHINE_FIGURES as MACHINE_FIGURES
    from ._engine import PACKET_SETTINGS as _PACKET_SETTINGS
    from ._engine import PORT_RESERVE_BYTES as PORT_RESERVE_BYTES
    from ._engine import SILENCE as SILENCE
    from ._engine import TOPOLOGIES as TOPOLOGIES
    from ._engine import WHOLE_ALGORITHMS as WHOLE_ALGORITHMS
    from ._engine import WINDOWED_ALGORITHMS as WINDOWED_ALGORITHMS
    from ._engine import Config as Config
    from ._engine import EmulationOutput as EmulationOutput
    from ._engine import FabricReport as FabricReport
    from ._engine import FabricTransport as FabricTransport
    from ._engine import GpuConfig as GpuConfig
    from ._engine import GpuMachine as GpuMachine
    from ._engine import GpuOp as GpuOp
    from ._engine import GpuProgram as GpuProgram
    from ._engine import GpuReplay as GpuReplay
    from ._engine import NetworkModel as NetworkModel
    from ._engine import Output as Output
    from ._engine import PacketSimulation as PacketSimulation
    from ._engine import PathWalk as PathWalk
    from ._engine import Routes as Routes
    from ._engine import TcpTransport as _TcpTransport
    from ._engine import ThreadedTransport as ThreadedTransport
    from ._engine import Transport as Transport
    from ._engine import collectives as _collectives
    from ._engine import emulate as _emulate
    from ._engine import is_algorithm as is_algorithm
    from ._engine import lower_room as lower_room
    from ._engine import refusals as _refusals
    from ._engine import replay_gpu_program as _replay_gpu_program
    from ._engine import simulate as _simulate
except ImportError as error:
    raise ImportError(
        f"The simulation engine is not built ({error}). Run 'pip install .' in the checkout, or install the "
        "package again."
    ) from error


class Field(NamedTuple):
    """A field of `Config`: its *name*, the *origin* and *default* of its value, and which values are valid.

    *origin* is ``system``, ``memory``, ``network`` or ``experiment`` for the one that gives the value,
    ``run`` if it is computed, and ``local`` if it concerns only the process that simulates. Numbers are
    between *smallest* and *largest*; texts are one of *words*, if any.
    """

    name: str
    origin: str
    default: Any
    smallest: float
    largest: float
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key of configurations."""
        return self.name.replace("_", "-")

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest number."""
        return self.smallest, self.largest


class Setting(NamedTuple):
    """A setting of a packet network: *key* of config.txt, *kind* of value, *default*, and the valid range."""

    key: str
    kind: str
    default: Any
    smallest: float
    largest: float


FIELDS = {field.name: field for field in (Field(*row) for row in _ENGINE_FIELDS)}
SETTINGS = {setting.key: setting for setting in (Setting(*row) for row in _PACKET_SETTINGS)}


class Collective(NamedTuple):
    """A collective for `find_refusals`.

    *comm_type* is its number in Chakra's schema, *group* a key of `Config.groups` or 0 for all ranks. Bit d
    of *involved* says whether dimension d takes part.
    """

    comm_type: int
    group: int = 0
    size_bytes: int = 1 << 20
    involved: int = 0x0F
    node_id: int = 0


def collectives(
    programs: Sequence[bytes | str], apart: Iterable[int] = (), *, sizes: bool = False
) -> list[Collective]:
    """Return representatives of the collectives of *programs*, content or path of `.et` files.

    Of collectives that differ only in size it returns the first, with *sizes* the first of each size, and all
    whose node ids are in *apart*. Raises as `simulate` for an invalid program.
    """
    return [Collective(*each) for each in _collectives(errors, list(programs), list(apart), sizes)]


def refusals(config: Config, collectives: Iterable[Collective]) -> list[str]:
    """Return the error that a simulation with *config* would raise at each collective, "" if it would run.

    The engine plans each collective as for a simulation. Raises `ConfigError` if *config* allows no
    simulation at all.
    """
    return _refusals(errors, config, list(collectives))


def simulate(
    config: Config,
    programs: Sequence[bytes | str],
    program_of_rank: Iterable[int],
    progress: Callable[[int, int], bool] | None = None,
) -> Output:
    """Simulate *programs*, content or path of `.et` files, one per rank.

    *program_of_rank* gives the index of each rank's program. *progress* is called about ten times a second
    with the simulated time in ns and the number of finished ranks; the simulation is cancelled when it
    returns False. Ranks that never finish are listed in ``Output.unfinished``.

    Raises:
        BackendError: if messages are lost on a fabric, or cannot be sent over it.
        ConfigError: if the configuration is impossible or contradicts the workload.
        WorkloadFormatError: if a program is not a Chakra execution trace or a node lacks an attribute.
        DependencyError: if a dependency is not in the file, or no node can start.
        Cancelled: if *progress* returned False.

    """
    return _simulate(errors, config, list(programs), [int(program) for program in program_of_rank], progress)


def replay_gpu_program(
    machine: GpuMachine,
    program: GpuProgram,
    *,
    detailed: bool = False,
    stamps: bool = False,
    progress: Callable[[int, int], bool] | None = None,
) -> GpuReplay:
    """Run *program* once on otherwise idle GPUs of *machine*, one rank on each.

    *detailed* sends every request through every router; *stamps* adds the start and end of each operation.
    Operations that never end are listed in ``GpuReplay.stuck``: rank, workgroup, place, reason. *progress* as
    of `simulate`. Raises `Cancelled` if it returned False.
    """
    return _replay_gpu_program(errors, machine, program, detailed, stamps, progress)


EmulationProgress = Callable[[int, bool, bool, int, int], bool]
"""Called with the ns since the start, whether the rank has finished, whether it waits for nothing but
messages, and how many it has sent and received; returning False stops the rank."""


def tcp_transport(connections: Iterable[tuple[int, int, int]]) -> Transport:
    """Return a transport over connected sockets, each a descriptor, the peer's rank, and a path number.

    The transport owns the descriptors from now on, and closes them. A message takes the path to its peer with
    the fewest queued bytes. Raises `BackendError` for a descriptor that is not a socket.
    """
    return _TcpTransport(errors, list(connections))


def threaded_transport(post: Callable[[int, bytes, int, bool], None]) -> ThreadedTransport:
    """Return a transport whose messages are carried by Python threads.

    *post* is called with the receiving rank, the frame to send first (`FRAME_BYTES`), the number of payload
    bytes, and whether the message is urgent: it should overtake all but the message being sent. *post* must
    not block. The threads report to the transport which message was `sent`, which `came`, and which peer is
    `lost`; `size_behind` is the payload size after a frame, or -1 if the frame is not of that rank.
    """
    return ThreadedTransport(errors, post)


def emulate(  # noqa: PLR0917 - as simulate, with what makes one rank of a job
    config: Config,
    programs: Sequence[bytes | str],
    program_of_rank: Iterable[int],
    rank: int,
    transport: Transport,
    start_ns: int,
    progress: EmulationProgress,
) -> EmulationOutput:
    """Run the program of one *rank* in real time, its messages carried by *transport*.

    Computation is waited out; collectives become the messages that `simulate` would simulate, and messages of
    other ranks come from their own processes. Time 0 is *start_ns* of the monotonic clock
    (`time.monotonic_ns`). *progress* is called about fifty times a second in a separate thread, and stops the
    rank by returning False, because a rank that has finished still answers others. The other ranks'
    *programs* are needed if a collective's members have different amounts. Raises as `simulate`, and
    `BackendError` when a peer is lost.
    """
    order = [int(program) for program in program_of_rank]
    return _emulate(errors, config, list(programs), order, rank, transport, start_ns, progress)
