"""The packet-level backend: our own network model on ns-3's core, compiled on first use, run as a program.

The C++ below ``src/`` includes ns-3's headers and is licensed under GPL-2.0-only, as ns-3 is; it runs as a
program of its own that this package talks to through pipes.
"""

from ._backend import Ns3Backend as Ns3Backend
from ._build import build_driver as build_driver
from ._driver import LinkTotals as LinkTotals
from ._driver import PacketDriver as PacketDriver
from ._install import Compiler as Compiler
from ._install import Ns3Install as Ns3Install
from ._install import find_compiler as find_compiler
from ._install import find_ns3 as find_ns3

__all__ = [
    "Compiler",
    "LinkTotals",
    "Ns3Backend",
    "Ns3Install",
    "PacketDriver",
    "build_driver",
    "find_compiler",
    "find_ns3",
]
