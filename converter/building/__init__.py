"""Build the graph of each rank from its linked traces: steps, lanes, dependencies, costs."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._callers import script_callers as script_callers
    from ._cause_rules import ACTIVITIES as ACTIVITIES
    from ._cause_rules import is_compiled_region as is_compiled_region
    from ._conversion import Progress as Progress
    from ._convert import convert as convert
    from ._convert import convert_files as convert_files
    from ._costs import counts_whole as counts_whole
    from ._costs import operator_cost as operator_cost
    from ._host_graph import LEFT_OUT as LEFT_OUT
    from ._logs import convert_logs as convert_logs
    from ._operator_classes import FUSIBLE_CLASSES as FUSIBLE_CLASSES
    from ._operator_classes import MATRIX_CLASSES as MATRIX_CLASSES
    from ._operator_classes import class_of as class_of
    from ._operator_classes import plain_name as plain_name
    from ._operator_table import TRANSFER as TRANSFER
    from ._overhead import ProfilerOverhead as ProfilerOverhead
    from ._overhead import profiler_overhead as profiler_overhead
    from ._rank import read_rank as read_rank
    from ._rank_graph import is_usually_late as is_usually_late
    from ._rank_graph import usually_late_ns as usually_late_ns
    from ._stand_ins import COMPUTED_FOR as COMPUTED_FOR
    from ._stand_ins import MAX_PROGRAMS as MAX_PROGRAMS
    from ._stand_ins import UNMARKED as UNMARKED
    from ._stand_ins import captured_steps as captured_steps
    from ._stand_ins import computed_on_host as computed_on_host
    from ._stand_ins import group_name as group_name
    from ._stand_ins import groups_like as groups_like
    from ._stand_ins import has_lanes as has_lanes
    from ._stand_ins import is_captured as is_captured
    from ._stand_ins import measured_group_sizes as measured_group_sizes
    from ._stand_ins import measured_world_size as measured_world_size
    from ._stand_ins import stand_in_assumption as stand_in_assumption
    from ._stand_ins import stand_in_of as stand_in_of
    from ._stand_ins import step_choice_text as step_choice_text
    from ._step_times import FreeCores as FreeCores
    from ._step_times import StepTimes as StepTimes
    from ._step_times import free_cores as free_cores
    from ._step_times import lacks_bfloat16 as lacks_bfloat16
    from ._step_times import rank_delays as rank_delays
    from ._step_times import run_delays as run_delays
    from ._step_times import step_times as step_times
    from ._steps import StepChoice as StepChoice
    from ._steps import annotated_steps as annotated_steps
    from ._steps import batch_of as batch_of
    from ._steps import step_choice as step_choice
    from ._steps import step_names as step_names
    from ._trace_identity import Doubt as Doubt
    from ._trace_identity import Identity as Identity
    from ._trace_identity import as_assumptions as as_assumptions
    from ._trace_identity import disjoint_steps as disjoint_steps
    from ._trace_identity import doubts_of_pair as doubts_of_pair
    from ._trace_identity import doubts_of_ranks as doubts_of_ranks
    from ._workers import FinishedRanks as FinishedRanks
    from ._workers import finished_ranks as finished_ranks
else:
    __getattr__ = exports_of(__name__, __file__)
