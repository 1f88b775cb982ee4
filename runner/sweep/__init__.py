"""Sweeps: the same workload on many clusters, in one table."""

from ._front import frontier as frontier
from ._goal import FIGURES as FIGURES
from ._goal import Goal as Goal
from ._goal import parse_limits as parse_limits
from ._prices import Prices as Prices
from ._prices import check_cost as check_cost
from ._search import Range as Range
from ._search import Search as Search
from ._search import Space as Space
from ._space import Settings as Settings
from ._space import grid as grid
from ._space import multiply as multiply
from ._space import parse_axis as parse_axis
from ._space import read_points as read_points
from ._start import sweep_experiment as sweep_experiment
from ._sweep import Sweep as Sweep
from ._sweep import SweepProgress as SweepProgress
from ._sweep import read_sweep as read_sweep
from ._sweep import run_sweep as run_sweep
from ._sweep import sweep_names as sweep_names

__all__ = [
    "FIGURES",
    "Goal",
    "Prices",
    "Range",
    "Search",
    "Settings",
    "Space",
    "Sweep",
    "SweepProgress",
    "check_cost",
    "frontier",
    "grid",
    "multiply",
    "parse_axis",
    "parse_limits",
    "read_points",
    "read_sweep",
    "run_sweep",
    "sweep_experiment",
    "sweep_names",
]
