"""Helpers of pages on top of `runner.analysis`: pixels, layouts of drawings, forms, addresses."""

from ._configure import PRESETS as PRESETS
from ._configure import Dimension as Dimension
from ._configure import Networks as Networks
from ._configure import Setup as Setup
from ._configure import check as check
from ._configure import chosen_backends as chosen_backends
from ._configure import command_line as command_line
from ._configure import differences as differences
from ._configure import experiment_of as experiment_of
from ._configure import is_offered as is_offered
from ._configure import kept_text as kept_text
from ._configure import machine_of as machine_of
from ._configure import plain_backend as plain_backend
from ._configure import takes_machine as takes_machine
from ._details import flows as flows
from ._details import fullest_curve as fullest_curve
from ._details import memory_facts as memory_facts
from ._details import memory_verdict as memory_verdict
from ._details import node_details as node_details
from ._details import paths_strip as paths_strip
from ._details import rank_text as rank_text
from ._details import stand_ins_note as stand_ins_note
from ._details import strip as strip
from ._form import DIMENSION_FIELDS as DIMENSION_FIELDS
from ._form import KEPT as KEPT
from ._form import NUMBER_FIELDS as NUMBER_FIELDS
from ._form import SYSTEM_FIELDS as SYSTEM_FIELDS
from ._form import TIMES as TIMES
from ._form import TRIALS as TRIALS
from ._form import Begun as Begun
from ._form import Form as Form
from ._form import NumberField as NumberField
from ._form import begun_from as begun_from
from ._form import decode_form as decode_form
from ._form import encode_form as encode_form
from ._form import form_of_workload as form_of_workload
from ._form import typed_text as typed_text
from ._graph import PATH_EDGES as PATH_EDGES
from ._graph import edge_choice as edge_choice
from ._graph import edge_kinds as edge_kinds
from ._graph import focus_of as focus_of
from ._graph import fold_of as fold_of
from ._graph import has_selected as has_selected
from ._graph import hops_of as hops_of
from ._graph import opened_nodes as opened_nodes
from ._graph import placed_groups as placed_groups
from ._graph import placed_nodes as placed_nodes
from ._network import LinkMap as LinkMap
from ._network import link_map as link_map
from ._sides import DIFF_TABLES as DIFF_TABLES
from ._sides import Reading as Reading
from ._sides import Sides as Sides
from ._sides import open_beside as open_beside
from ._stragglers import slowdown_matrix as slowdown_matrix
from ._stragglers import step_operations as step_operations
from ._stragglers import stragglers_of as stragglers_of
from ._stragglers import worst_step as worst_step
from ._sweep_form import LEAST as LEAST
from ._sweep_form import MOST_AXES as MOST_AXES
from ._sweep_form import Aim as Aim
from ._sweep_form import Plan as Plan
from ._sweep_form import aim_goal as aim_goal
from ._sweep_form import axis_names as axis_names
from ._sweep_form import axis_reading as axis_reading
from ._sweep_form import decode_aim as decode_aim
from ._sweep_form import decode_axes as decode_axes
from ._sweep_form import encode_aim as encode_aim
from ._sweep_form import encode_axes as encode_axes
from ._sweep_form import figure_text as figure_text
from ._sweep_form import made_aim as made_aim
from ._sweep_form import plan_of as plan_of
from ._sweep_form import request_of as request_of
from ._sweep_form import suggested as suggested
from ._work import Simulations as Simulations
from ._work import Work as Work

__all__ = [
    "DIFF_TABLES",
    "DIMENSION_FIELDS",
    "KEPT",
    "LEAST",
    "MOST_AXES",
    "NUMBER_FIELDS",
    "PATH_EDGES",
    "PRESETS",
    "SYSTEM_FIELDS",
    "TIMES",
    "TRIALS",
    "Aim",
    "Begun",
    "Dimension",
    "Form",
    "LinkMap",
    "Networks",
    "NumberField",
    "Plan",
    "Reading",
    "Setup",
    "Sides",
    "Simulations",
    "Work",
    "aim_goal",
    "axis_names",
    "axis_reading",
    "begun_from",
    "check",
    "chosen_backends",
    "command_line",
    "decode_aim",
    "decode_axes",
    "decode_form",
    "differences",
    "edge_choice",
    "edge_kinds",
    "encode_aim",
    "encode_axes",
    "encode_form",
    "experiment_of",
    "figure_text",
    "flows",
    "focus_of",
    "fold_of",
    "form_of_workload",
    "fullest_curve",
    "has_selected",
    "hops_of",
    "is_offered",
    "kept_text",
    "link_map",
    "machine_of",
    "made_aim",
    "memory_facts",
    "memory_verdict",
    "node_details",
    "open_beside",
    "opened_nodes",
    "paths_strip",
    "placed_groups",
    "placed_nodes",
    "plain_backend",
    "plan_of",
    "rank_text",
    "request_of",
    "slowdown_matrix",
    "stand_ins_note",
    "step_operations",
    "stragglers_of",
    "strip",
    "suggested",
    "takes_machine",
    "typed_text",
    "worst_step",
]
