"""Turn a run into what a page shows; every function here is pure and has a command-line twin."""

from ._advice import advice_table as advice_table
from ._compare import collective_differences as collective_differences
from ._compare import node_differences as node_differences
from ._compare import rank_differences as rank_differences
from ._compare import run_overview as run_overview
from ._compare import same_nodes as same_nodes
from ._configure import Dimension as Dimension
from ._configure import Setup as Setup
from ._configure import check as check
from ._configure import command_line as command_line
from ._configure import differences as differences
from ._configure import experiment_of as experiment_of
from ._details import flows as flows
from ._details import node_details as node_details
from ._estimate import duration_estimate as duration_estimate
from ._estimate import estimate_s as estimate_s
from ._estimate import load_of as load_of
from ._form import SYSTEM_FIELDS as SYSTEM_FIELDS
from ._form import Form as Form
from ._form import decode_form as decode_form
from ._form import encode_form as encode_form
from ._graph import FEW_HOPS as FEW_HOPS
from ._graph import FOLDS as FOLDS
from ._graph import MOST_HOPS as MOST_HOPS
from ._graph import causes as causes
from ._graph import edge_kinds as edge_kinds
from ._graph import edges_of as edges_of
from ._graph import focus_of as focus_of
from ._graph import fold_of as fold_of
from ._graph import folded as folded
from ._graph import graph_tables as graph_tables
from ._graph import hops_of as hops_of
from ._groups import Groups as Groups
from ._imports import item_table as item_table
from ._imports import proposed_name as proposed_name
from ._link_path import why_no_links as why_no_links
from ._neighbourhood import Neighbour as Neighbour
from ._neighbourhood import neighbourhood as neighbourhood
from ._neighbourhood import neighbours as neighbours
from ._network import TRAFFIC as TRAFFIC
from ._network import LinkMap as LinkMap
from ._network import Matrix as Matrix
from ._network import Use as Use
from ._network import link_dimensions as link_dimensions
from ._network import link_map as link_map
from ._network import link_table as link_table
from ._network import packet_facts as packet_facts
from ._network import switch_loads as switch_loads
from ._network import traffic_of as traffic_of
from ._network import use_over_time as use_over_time
from ._objectives import more_is_cheaper as more_is_cheaper
from ._objectives import objectives as objectives
from ._objectives import worth_their_cost as worth_their_cost
from ._path import NO_NETWORK as NO_NETWORK
from ._path import contributors as contributors
from ._path import longest_segment as longest_segment
from ._path import longest_with_slack as longest_with_slack
from ._path import paths_strip as paths_strip
from ._path import segment_table as segment_table
from ._path import slack_shares as slack_shares
from ._path import strip as strip
from ._runs import compared as compared
from ._runs import run_table as run_table
from ._studies import study_table as study_table
from ._sweep_aim import LEAST as LEAST
from ._sweep_aim import MOST_TRIALS as MOST_TRIALS
from ._sweep_aim import Aim as Aim
from ._sweep_aim import aim_goal as aim_goal
from ._sweep_aim import decode_aim as decode_aim
from ._sweep_aim import encode_aim as encode_aim
from ._sweep_aim import made_aim as made_aim
from ._sweep_form import MOST_AXES as MOST_AXES
from ._sweep_form import Plan as Plan
from ._sweep_form import axis_names as axis_names
from ._sweep_form import decode_axes as decode_axes
from ._sweep_form import encode_axes as encode_axes
from ._sweep_form import plan_of as plan_of
from ._sweep_form import request_of as request_of
from ._sweep_form import suggested as suggested
from ._sweep_tables import SWEEP_TABLES as SWEEP_TABLES
from ._sweep_tables import front_table as front_table
from ._sweep_tables import pair_table as pair_table
from ._sweeps import answered as answered
from ._sweeps import best_by as best_by
from ._sweeps import best_point as best_point
from ._sweeps import figure_text as figure_text
from ._sweeps import known_goal as known_goal
from ._sweeps import setting_title as setting_title
from ._sweeps import swept_settings as swept_settings
from ._sweeps import value_text as value_text
from ._tables import COMPARISONS as COMPARISONS
from ._tables import OVERVIEWS as OVERVIEWS
from ._tables import TABLES as TABLES
from ._what_if import Target as Target
from ._what_if import changes as changes
from ._what_if import drops as drops
from ._what_if import simulate_faster as simulate_faster

__all__ = [
    "COMPARISONS",
    "FEW_HOPS",
    "FOLDS",
    "LEAST",
    "MOST_AXES",
    "MOST_HOPS",
    "MOST_TRIALS",
    "NO_NETWORK",
    "OVERVIEWS",
    "SWEEP_TABLES",
    "SYSTEM_FIELDS",
    "TABLES",
    "TRAFFIC",
    "Aim",
    "Dimension",
    "Form",
    "Groups",
    "LinkMap",
    "Matrix",
    "Neighbour",
    "Plan",
    "Setup",
    "Target",
    "Use",
    "advice_table",
    "aim_goal",
    "answered",
    "axis_names",
    "best_by",
    "best_point",
    "causes",
    "changes",
    "check",
    "collective_differences",
    "command_line",
    "compared",
    "contributors",
    "decode_aim",
    "decode_axes",
    "decode_form",
    "differences",
    "drops",
    "duration_estimate",
    "edge_kinds",
    "edges_of",
    "encode_aim",
    "encode_axes",
    "encode_form",
    "estimate_s",
    "experiment_of",
    "figure_text",
    "flows",
    "focus_of",
    "fold_of",
    "folded",
    "front_table",
    "graph_tables",
    "hops_of",
    "item_table",
    "known_goal",
    "link_dimensions",
    "link_map",
    "link_table",
    "load_of",
    "longest_segment",
    "longest_with_slack",
    "made_aim",
    "more_is_cheaper",
    "neighbourhood",
    "neighbours",
    "node_details",
    "node_differences",
    "objectives",
    "packet_facts",
    "pair_table",
    "paths_strip",
    "plan_of",
    "proposed_name",
    "rank_differences",
    "request_of",
    "run_overview",
    "run_table",
    "same_nodes",
    "segment_table",
    "setting_title",
    "simulate_faster",
    "slack_shares",
    "strip",
    "study_table",
    "suggested",
    "swept_settings",
    "switch_loads",
    "traffic_of",
    "use_over_time",
    "value_text",
    "why_no_links",
    "worth_their_cost",
]
