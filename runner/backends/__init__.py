"""Simulation backends, looked up by name; each has a single method, `Backend.run`."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._base import Backend as Backend
    from ._base import Progress as Progress
    from ._base import backend_names as backend_names
    from ._base import get_backend as get_backend
    from ._base import register as register
    from ._emulation import EmulationBackend as EmulationBackend
    from ._engine import EngineBackend as EngineBackend
    from ._engine import compile_scenario as compile_scenario
    from ._engine import refuse_linkless as refuse_linkless
    from ._fake import FakeBackend as FakeBackend
    from ._packet import packet_backend as packet_backend
    from ._report import backend_report as backend_report
    from .astra_sim import NETWORK_FORMATS as NETWORK_FORMATS
    from .astra_sim import experiment_archive as experiment_archive
    from .astra_sim import write_inputs as write_inputs
    from .astra_sim import write_network as write_network
else:
    __getattr__ = exports_of(__name__, __file__)
