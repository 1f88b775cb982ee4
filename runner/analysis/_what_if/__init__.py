"""Ask what a step would take if something were faster, smaller or gone, by simulating it again."""

from ._simulate import sensitivity as sensitivity
from ._simulate import simulate_faster as simulate_faster
from ._simulate import what_if as what_if
from ._target import Target as Target
from ._target import targets as targets

__all__ = [
    "Target",
    "sensitivity",
    "simulate_faster",
    "targets",
    "what_if",
]
