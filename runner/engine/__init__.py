"""The compiled simulation engine: event queue, ranks, collectives and analytical networks.

The engine alone defines the valid values of a configuration. FIELDS lists the fields of a `Config`, and
SETTINGS the settings of a packet network. MACHINE_FIGURES maps the paths of a GPU machine's figures to their
members. TOPOLOGIES are the shapes of a dimension. COLLECTIVES are the names of collectives in system
configurations. ALGORITHMS run in one dimension, and WHOLE_ALGORITHMS run over all ranks at once. A number may
follow a name in WINDOWED_ALGORITHMS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
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
    """A field of `Config`: its *name*, the *origin* and *default* of its value, and its valid values.

    *origin* is the source of the value: ``system``, ``memory``, ``network`` or ``experiment``, or ``run`` for
    a computed value. An origin of ``local`` means that the value affects only the simulating process. Numbers
    are between *smallest* and *largest*. Texts are one of *words*, if there are any.
    """

    name: str
    origin: str
    default: Any
    smallest: float
    largest: float
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key of the field in configuration files."""
        return self.name.replace("_", "-")

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest valid number of the field."""
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
    """A collective that `find_refusals` checks without simulating it.

    *comm_type* is the collective's number in Chakra's schema. *group* is a key of `Config.groups`, or 0 for
    all ranks. Bit d of *involved* is set if dimension d takes part.
    """

    comm_type: int
    group: int = 0
    size_bytes: int = 1 << 20
    involved: int = 0x0F
    node_id: int = 0

    def spans(self, sizes: Sequence[int]) -> bool:
        """Return whether the collective takes part in a dimension of a network with the given *sizes*.

        As in ASTRA-sim, only collectives of all ranks have flags, and every dimension after the fourth takes
        part.
        """
        flags = -1 if self.group else self.involved | ~0x0F
        return max(sizes) < 2 or any(size > 1 and flags >> place & 1 for place, size in enumerate(sizes))


def collectives(
    programs: Sequence[bytes | str], apart: Iterable[int] = (), *, sizes: bool = False
) -> list[Collective]:
    """Return representative collectives of *programs*, which are the content or the paths of `.et` files.

    Of collectives that differ only in size, the first one is returned, or with *sizes* the first
    one of each size. All collectives with node ids in *apart* are returned, without grouping.
    Raises the errors of `simulate` for an invalid program.
    """
    return [Collective(*each) for each in _collectives(errors, _encoded(programs), list(apart), sizes)]


def _encoded(programs: Sequence[bytes | str]) -> list[bytes | str]:
    """Return *programs* with the content in place of each path that is not UTF-8, as the engine needs."""
    return [
        program if isinstance(program, bytes) or _is_utf8(program) else Path(program).read_bytes()
        for program in programs
    ]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refusals(config: Config, collectives: Iterable[Collective]) -> list[str]:
    """Return the error that a simulation with *config* would raise for each collective, or "".

    The engine plans each collective like a simulation does. Raises `ConfigError` if *config* does not allow
    any simulation.
    """
    return _refusals(errors, config, list(collectives))


def simulate(
    config: Config,
    programs: Sequence[bytes | str],
    program_of_rank: Iterable[int],
    progress: Callable[[int, int], bool] | None = None,
) -> Output:
    """Simulate *programs*, which are the content or the paths of `.et` files.

    *program_of_rank* contains the index of each rank's program. *progress* is called about ten times a second
    with the simulated time in ns and the number of finished ranks. The simulation is cancelled if *progress*
    returns False. ``Output.unfinished`` lists the ranks that never finish.

    Raises:
        BackendError: if messages are lost on a fabric, or cannot be sent over it.
        ConfigError: if the configuration is impossible or contradicts the workload.
        WorkloadFormatError: if a program is not a Chakra execution trace or a node lacks an attribute.
        DependencyError: if a dependency is not in the file, or no node can start.
        Cancelled: if *progress* returned False.

    """
    return _simulate(
        errors, config, _encoded(programs), [int(program) for program in program_of_rank], progress
    )


def replay_gpu_program(
    machine: GpuMachine,
    program: GpuProgram,
    *,
    detailed: bool = False,
    stamps: bool = False,
    progress: Callable[[int, int], bool] | None = None,
) -> GpuReplay:
    """Run *program* once on otherwise idle GPUs of *machine*, with one rank per GPU.

    If *detailed* is true, every request is simulated through every router. *stamps* adds the start and end of
    each operation. ``GpuReplay.stuck`` lists the operations that never end, with their rank, workgroup, place
    and reason. *progress* is called as in `simulate`. Raises `Cancelled` if *progress* returns False.
    """
    return _replay_gpu_program(errors, machine, program, detailed, stamps, progress)


EmulationProgress = Callable[[int, bool, bool, int, int], bool]
"""Called with the ns since the start, whether the rank has finished, whether it waits for nothing but
messages, and how many it has sent and received; returning False stops the rank."""


def tcp_transport(connections: Iterable[tuple[int, int, int]]) -> Transport:
    """Return a transport over connected sockets, given by descriptor, rank of the peer, and path number.

    The transport owns the descriptors, and closes them at its end. Each message takes the path to its peer
    with the fewest queued bytes. Raises `BackendError` for a descriptor that is not a socket.
    """
    return _TcpTransport(errors, list(connections))


def threaded_transport(post: Callable[[int, bytes, int, bool], None]) -> ThreadedTransport:
    """Return a transport that lets Python threads carry its messages.

    *post* is called with the receiving rank, the frame to send first (`FRAME_BYTES`), the number of payload
    bytes, and whether the message is urgent. An urgent message should overtake all messages except the
    message that is being sent. *post* must not block. The threads notify the transport of messages that were
    `sent` or that `came`, and of `lost` peers. `size_behind` is the payload size after a frame, or -1 if the
    frame does not come from that rank.
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
    """Run the program of one *rank* in real time, with messages carried by *transport*.

    Computation takes its real time. Collectives become the messages that `simulate` would simulate. Messages
    of other ranks come from the processes of these ranks. Time 0 is *start_ns* of the monotonic clock
    (`time.monotonic_ns`). *progress* is called about fifty times a second in a separate thread. A finished
    rank continues to answer other ranks until *progress* returns False. The *programs* of other ranks are
    needed if the members of a collective have different amounts. Raises the errors of `simulate`, and
    `BackendError` if a peer is lost.
    """
    order = [int(program) for program in program_of_rank]
    return _emulate(errors, config, _encoded(programs), order, rank, transport, start_ns, progress)
