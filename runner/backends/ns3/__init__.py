"""The backend ``ns3``: ns-3's TCP model, compiled on first use.

The C++ code below ``tcp/`` includes ns-3's headers and is therefore under ns-3's licence,
GPL-2.0-only. The C++ code runs as a separate program, connected by pipes.
"""

from ._build import build_driver as build_driver
from ._build import find_compiler as find_compiler
from ._build import find_ns3 as find_ns3
from ._tcp_backend import TcpBackend as TcpBackend
from ._tcp_backend import ns3_backend as ns3_backend
from ._tcp_driver import TcpDriver as TcpDriver
