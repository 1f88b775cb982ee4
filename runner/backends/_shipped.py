"""The backends that ship with the package, under their names; each is imported when it is asked for."""

from __future__ import annotations

from ..gpu import GPU_BACKEND
from ._base import About, Backend, register_family, register_late
from ._names import AUTO, AWARE, EMULATION
from .astra_sim import KINDS
from .service import SCHEME, configured_services, parse_address


def _native(name: str) -> Backend:
    from ._native import NativeBackend  # noqa: PLC0415

    return NativeBackend(congestion_aware=name == AWARE)


def _auto(name: str) -> Backend:
    from ._auto import AutoBackend, named_error  # noqa: PLC0415

    return AutoBackend() if name == AUTO else AutoBackend(named_error(name))


def _flow(name: str) -> Backend:
    from ._flow import FlowBackend  # noqa: PLC0415

    return FlowBackend()


def _gpu(name: str) -> Backend:
    from ._gpu import GpuBackend  # noqa: PLC0415

    return GpuBackend() if name == GPU_BACKEND else GpuBackend(name.partition(":")[2])


def _packet(name: str) -> Backend:
    from ._packet import PacketBackend  # noqa: PLC0415

    return PacketBackend()


def _ns3(name: str) -> Backend:
    from ._packet import NS3_ALIAS, PacketBackend  # noqa: PLC0415
    from .ns3 import Ns3Backend  # noqa: PLC0415

    return Ns3Backend(roce=PacketBackend(notes=(NS3_ALIAS,)))


def _replay(name: str) -> Backend:
    from ._native import ReplayBackend  # noqa: PLC0415

    return ReplayBackend()


def _fake(name: str) -> Backend:
    from ._fake import FakeBackend  # noqa: PLC0415

    return FakeBackend()


def _astra_sim(name: str) -> Backend:
    from .astra_sim import AstraSimBackend  # noqa: PLC0415

    return AstraSimBackend(name.partition(":")[2])


def _emulation(name: str) -> Backend:
    from ._emulation import EmulationBackend  # noqa: PLC0415

    return EmulationBackend(name.removeprefix(EMULATION))


def _service(name: str) -> Backend:
    from .service import ServiceBackend  # noqa: PLC0415

    return ServiceBackend(parse_address(name))


register_late(
    "analytical-unaware",
    _native,
    About(
        "our engine, messages never wait",
        "messages never wait for each other. Networks of dimensions, without failures; the fastest.",
    ),
)
register_late(
    AWARE,
    _native,
    About(
        "our engine, messages queue on links",
        "messages queue on links and take one fixed path. Any network; takes seconds.",
    ),
)
register_late(
    AUTO,
    _auto,
    About(
        "'flow', and 'packet' where that may be too far off",
        "flow, or packet where flow may be too far off. Any network.",
    ),
)
register_late(
    "flow",
    _flow,
    About(
        "our engine, messages share links",
        "messages share links fairly, as fluids, on the equal-cost paths of packet. Any network; its "
        "time grows with the messages, not their bytes.",
    ),
)
register_late(
    GPU_BACKEND,
    _gpu,
    About(
        "our engine, collectives and computation on the same compute units",
        "collectives run on compute units and slow down the computation beside them. The links are those of "
        "the machine; of the network only the number of ranks counts. Its time grows with bytes.",
    ),
)
register_late(
    "packet",
    _packet,
    About(
        "our engine, every packet of a RoCE network",
        "every packet of a RoCE network: queues, pauses, congestion control, equal-cost paths. Any "
        "network; one without a 'packet' section gets its defaults. Its time grows with bytes times hops.",
    ),
)
register_late(
    "ns3",
    _ns3,
    About(
        "ns-3's TCP; on RoCE networks an alias of 'packet'",
        "every TCP segment, by ns-3's own models: losses, timeouts, marks. Networks with a 'tcp' section, "
        "or without a 'packet' section; on others it is the packet backend. About 100 times slower than "
        "packet.",
    ),
)
register_late(
    "replay",
    _replay,
    About(
        "our engine, every node takes its measured time",
        "every node takes its measured time; the network has no effect.",
    ),
)
register_late("fake", _fake, About(offered=False))
for _kind in KINDS:
    register_late(f"astra-sim:{_kind}", _astra_sim, About("the user's own ASTRA-sim"))
register_family(f"{AUTO}:", _auto, list)
register_family(f"{GPU_BACKEND}:", _gpu, list)
register_family(EMULATION, _emulation, list)
register_family(SCHEME, _service, lambda: [address.name for address in configured_services()])
