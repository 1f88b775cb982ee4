"""The backends that ship with the package, under their names; each is imported when it is asked for."""

from __future__ import annotations

from ..gpu import GPU_BACKEND
from ._base import Backend, register_family, register_late
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


register_late("analytical-unaware", _native)
register_late(AWARE, _native)
register_late(AUTO, _auto)
register_late("flow", _flow)
register_late(GPU_BACKEND, _gpu)
register_late("packet", _packet)
register_late("ns3", _ns3)
register_late("replay", _replay)
register_late("fake", _fake)
for _kind in KINDS:
    register_late(f"astra-sim:{_kind}", _astra_sim)
register_family(f"{AUTO}:", _auto, list)
register_family(f"{GPU_BACKEND}:", _gpu, list)
register_family(EMULATION, _emulation, list)
register_family(SCHEME, _service, lambda: [address.name for address in configured_services()])
