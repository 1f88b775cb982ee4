"""Compare two sides of one or several steps each, and decide which differences exceed the noise."""

from ._diff import VERDICT_COLOURS as VERDICT_COLOURS
from ._diff import Side as Side
from ._diff import StepDiff as StepDiff
from ._diff import diff_steps as diff_steps
from ._limits import Judgement as Judgement
from ._limits import judge as judge
from ._limits import parse_limit as parse_limit
from ._sides import check_side as check_side
from ._sides import read_side as read_side
from ._sides import side_of as side_of
from ._sides import step_numbers as step_numbers
from ._step import read_step as read_step
