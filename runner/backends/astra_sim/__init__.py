"""The user's own ASTRA-sim as backends: its files are written, its program run, its log read."""

from ._backend import AstraSimBackend as AstraSimBackend
from ._find import KINDS as KINDS
from ._find import AstraSimProgram as AstraSimProgram
from ._find import find_astra_sim as find_astra_sim
from ._find import locate as locate

__all__ = ["KINDS", "AstraSimBackend", "AstraSimProgram", "find_astra_sim", "locate"]
