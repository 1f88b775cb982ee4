"""The GPU model simulates collectives as programs on compute units, memory request by memory request."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._collectives import GpuPrograms as GpuPrograms
    from ._collectives import chosen_programs as chosen_programs
    from ._collectives import gpu_config as gpu_config
    from ._machine import DEFAULT_MACHINE as DEFAULT_MACHINE
    from ._machine import LINE_BYTES as LINE_BYTES
    from ._machine import Compute as Compute
    from ._machine import Machine as Machine
    from ._machine import Memory as Memory
    from ._machine import Mesh as Mesh
    from ._machine import ScaleOut as ScaleOut
    from ._machine import ScaleUp as ScaleUp
    from ._machine import faster_machine as faster_machine
    from ._machine import find_machine as find_machine
    from ._machine import list_machines as list_machines
    from ._machine import load_machine as load_machine
    from ._machine import machine_of_backend as machine_of_backend
    from ._machine import machine_of_plain as machine_of_plain
    from ._run import simulate_program as simulate_program
    from ._run import why_rough as why_rough
else:
    __getattr__ = exports_of(__name__, __file__)
