"""Sweeps: simulations of the same workload on many clusters, in one table."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._answers import SWEEP_TABLES as SWEEP_TABLES
    from ._answers import WORK as WORK
    from ._answers import answered as answered
    from ._answers import available_goal as available_goal
    from ._answers import best_by as best_by
    from ._answers import best_point as best_point
    from ._answers import comparison_notes as comparison_notes
    from ._answers import front_table as front_table
    from ._answers import frontier as frontier
    from ._answers import has_one_value as has_one_value
    from ._answers import more_is_cheaper as more_is_cheaper
    from ._answers import objectives as objectives
    from ._answers import pair_table as pair_table
    from ._answers import per_captured_step as per_captured_step
    from ._answers import point_label as point_label
    from ._answers import possible_objectives as possible_objectives
    from ._answers import setting_title as setting_title
    from ._answers import swept_settings as swept_settings
    from ._answers import worth_their_cost as worth_their_cost
    from ._goal import FIGURES as FIGURES
    from ._goal import Goal as Goal
    from ._goal import Prices as Prices
    from ._goal import check_cost as check_cost
    from ._goal import figure_of as figure_of
    from ._goal import parse_limits as parse_limits
    from ._point import Answer as Answer
    from ._point import Solver as Solver
    from ._point import Work as Work
    from ._point import measure as measure
    from ._pool import Places as Places
    from ._settings import read_points as read_points
    from ._space import Range as Range
    from ._space import Search as Search
    from ._space import Space as Space
    from ._space import grid as grid
    from ._space import multiply as multiply
    from ._space import parse_axis as parse_axis
    from ._space import values_of as values_of
    from ._sweep import Sweep as Sweep
    from ._sweep import SweepInterrupted as SweepInterrupted
    from ._sweep import SweepProgress as SweepProgress
    from ._sweep import read_sweep as read_sweep
    from ._sweep import run_sweep as run_sweep
    from ._sweep import sweep_names as sweep_names
    from ._table import PointTable as PointTable
    from ._table import points_file as points_file
    from ._table import sweep_experiment as sweep_experiment
    from ._table import sweep_workload as sweep_workload
else:
    __getattr__ = exports_of(__name__, __file__)
