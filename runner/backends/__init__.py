"""Simulation backends: one method, `Backend.run`, under a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...support import exports_of
from . import _shipped as _shipped

if TYPE_CHECKING:
    from ._auto import AutoBackend as AutoBackend
    from ._base import Backend as Backend
    from ._base import Progress as Progress
    from ._base import about_backend as about_backend
    from ._base import backend_names as backend_names
    from ._base import get_backend as get_backend
    from ._base import register as register
    from ._base import register_family as register_family
    from ._base import warm_up as warm_up
    from ._emulation import EmulationBackend as EmulationBackend
    from ._fake import FakeBackend as FakeBackend
    from ._flow import FlowBackend as FlowBackend
    from ._gpu import GpuBackend as GpuBackend
    from ._native import NativeBackend as NativeBackend
    from ._native import ReplayBackend as ReplayBackend
    from ._native import engine_config as engine_config
    from ._native import refuse_linkless as refuse_linkless
    from ._packet import PacketBackend as PacketBackend
    from ._report import backend_report as backend_report
    from .astra_sim import NETWORK_FORMATS as NETWORK_FORMATS
    from .astra_sim import AstraSimBackend as AstraSimBackend
    from .astra_sim import AstraSimProgram as AstraSimProgram
    from .astra_sim import find_astra_sim as find_astra_sim
    from .astra_sim import write_inputs as write_inputs
    from .astra_sim import write_network as write_network
    from .ns3 import Ns3Backend as Ns3Backend
    from .service import ServiceBackend as ServiceBackend
    from .service import configured_services as configured_services
else:
    __getattr__ = exports_of(__name__, __file__)


__all__ = [
    "NETWORK_FORMATS",
    "AstraSimBackend",
    "AstraSimProgram",
    "AutoBackend",
    "Backend",
    "EmulationBackend",
    "FakeBackend",
    "FlowBackend",
    "GpuBackend",
    "NativeBackend",
    "Ns3Backend",
    "PacketBackend",
    "Progress",
    "ReplayBackend",
    "ServiceBackend",
    "about_backend",
    "backend_names",
    "backend_report",
    "configured_services",
    "engine_config",
    "find_astra_sim",
    "get_backend",
    "refuse_linkless",
    "register",
    "register_family",
    "warm_up",
    "write_inputs",
    "write_network",
]
