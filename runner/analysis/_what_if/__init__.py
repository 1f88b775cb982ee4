"""What-if analyses: simulate a step again with a part faster, smaller or removed."""

from typing import TYPE_CHECKING

from ....support import exports_of

if TYPE_CHECKING:
    from ._simulate import sensitivity as sensitivity
    from ._simulate import simulate_faster as simulate_faster
    from ._simulate import what_if as what_if
    from ._skew import Excess as Excess
    from ._skew import late_ranks as late_ranks
    from ._target import Target as Target
    from ._target import targets as targets
else:
    __getattr__ = exports_of(__name__, __file__)
