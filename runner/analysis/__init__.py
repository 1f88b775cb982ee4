"""Analyses of results: critical path, slack, advice, links, comparisons, what-if.

`RunAnalysis` is one run with all its analyses; `TABLES` names its tables.
"""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._advice import Advice as Advice
    from ._advice import Cause as Cause
    from ._advice import advice as advice
    from ._advice import advice_table as advice_table
    from ._advice import advice_text as advice_text
    from ._advice import gain_text as gain_text
    from ._attribution import attributable as attributable
    from ._attribution import difference_by_setting as difference_by_setting
    from ._attribution import difference_of_runs as difference_of_runs
    from ._attribution import shapley_values as shapley_values
    from ._changes import changes as changes
    from ._changes import drops as drops
    from ._checks import Communication as Communication
    from ._checks import check_setup as check_setup
    from ._checks import communication_of as communication_of
    from ._choices import BREAKDOWNS as BREAKDOWNS
    from ._choices import FEW_HOPS as FEW_HOPS
    from ._choices import FOLDS as FOLDS
    from ._choices import MOST_HOPS as MOST_HOPS
    from ._choices import PARTS as PARTS
    from ._choices import RUN_BREAKDOWNS as RUN_BREAKDOWNS
    from ._chrome_trace import chrome_trace as chrome_trace
    from ._collectives import collective_arrivals as collective_arrivals
    from ._collectives import collective_overview as collective_overview
    from ._compare import Comparison as Comparison
    from ._compare import compare as compare
    from ._compare_runs import backend_reasons as backend_reasons
    from ._compare_runs import configuration_table as configuration_table
    from ._compare_runs import explained_collectives as explained_collectives
    from ._compare_runs import run_overview as run_overview
    from ._compare_runs import same_nodes as same_nodes
    from ._critical_path import CriticalPath as CriticalPath
    from ._critical_path import critical_path as critical_path
    from ._csv import csv_pieces as csv_pieces
    from ._differences import collective_differences as collective_differences
    from ._differences import error_distribution as error_distribution
    from ._differences import flow_differences as flow_differences
    from ._differences import node_differences as node_differences
    from ._differences import rank_differences as rank_differences
    from ._differences import why_not_comparable as why_not_comparable
    from ._estimate import Load as Load
    from ._estimate import duration_estimate as duration_estimate
    from ._estimate import estimate_s as estimate_s
    from ._estimate import load_of as load_of
    from ._estimate import sends_one_by_one as sends_one_by_one
    from ._foreign_times import foreign_compute as foreign_compute
    from ._graph import ON_PATH as ON_PATH
    from ._graph import Groups as Groups
    from ._graph import Neighbour as Neighbour
    from ._graph import Neighbourhood as Neighbourhood
    from ._graph import causes as causes
    from ._graph import edges_of as edges_of
    from ._graph import folded as folded
    from ._graph import graph_tables as graph_tables
    from ._graph import neighbourhood as neighbourhood
    from ._graph import neighbours as neighbours
    from ._host_calls import CapturedCalls as CapturedCalls
    from ._host_calls import host_cause as host_cause
    from ._host_stacks import host_stack_table as host_stack_table
    from ._labels import EDGE_LABELS as EDGE_LABELS
    from ._labels import KIND_LABELS as KIND_LABELS
    from ._lane_rows import CALLS as CALLS
    from ._lanes import Lanes as Lanes
    from ._lanes import area_names as area_names
    from ._lanes import area_overview as area_overview
    from ._lanes import area_table as area_table
    from ._layers import layer_table as layer_table
    from ._links import TRAFFIC as TRAFFIC
    from ._links import Matrix as Matrix
    from ._links import Use as Use
    from ._links import end_names as end_names
    from ._links import failures_of as failures_of
    from ._links import link_dimensions as link_dimensions
    from ._links import link_table as link_table
    from ._links import switch_loads as switch_loads
    from ._links import traffic as traffic
    from ._links import traffic_table as traffic_table
    from ._links import use_over_time as use_over_time
    from ._logged import ALL_GROUPS as ALL_GROUPS
    from ._logged import logged_speeds as logged_speeds
    from ._logged import logged_stragglers as logged_stragglers
    from ._logged import logged_table as logged_table
    from ._logged import straggler_texts as straggler_texts
    from ._measured import measured_result as measured_result
    from ._network_path import NO_NETWORK as NO_NETWORK
    from ._network_path import why_no_links as why_no_links
    from ._operator_rates import operator_rates as operator_rates
    from ._operators import Roof as Roof
    from ._operators import joined_operators as joined_operators
    from ._operators import longest_call as longest_call
    from ._operators import operator_table as operator_table
    from ._operators import operators_text as operators_text
    from ._operators import roofline_points as roofline_points
    from ._operators import rooflines as rooflines
    from ._path_facts import coded_facts as coded_facts
    from ._path_tables import Divergence as Divergence
    from ._path_tables import contributors as contributors
    from ._path_tables import divergence as divergence
    from ._path_tables import divergence_text as divergence_text
    from ._path_tables import longest_segment as longest_segment
    from ._path_tables import nameless_text as nameless_text
    from ._path_tables import paths_table as paths_table
    from ._path_tables import segment_table as segment_table
    from ._provenance import FittedNetwork as FittedNetwork
    from ._provenance import calibration_table as calibration_table
    from ._provenance import fitted_network as fitted_network
    from ._provenance import packet_facts as packet_facts
    from ._rank_table import SlowestRank as SlowestRank
    from ._rank_table import rank_standings as rank_standings
    from ._rank_table import slowest_rank as slowest_rank
    from ._run import ComputedOnce as ComputedOnce
    from ._run import RunAnalysis as RunAnalysis
    from ._run import analyse_run as analyse_run
    from ._search import Words as Words
    from ._search import counterpart as counterpart
    from ._search import found_nodes as found_nodes
    from ._search import named_nodes as named_nodes
    from ._search import search_hits as search_hits
    from ._search import search_nodes as search_nodes
    from ._slack import longest_with_slack as longest_with_slack
    from ._slack import slack as slack
    from ._slack import slack_columns as slack_columns
    from ._slack import slack_shares as slack_shares
    from ._slack import slack_table as slack_table
    from ._summary import TIME_FORMULA as TIME_FORMULA
    from ._summary import Summary as Summary
    from ._summary import summarize as summarize
    from ._tables import COMPARISONS as COMPARISONS
    from ._tables import OVERVIEWS as OVERVIEWS
    from ._tables import TABLES as TABLES
    from ._tables import csv_text as csv_text
    from ._what_if import Target as Target
    from ._what_if import sensitivity as sensitivity
    from ._what_if import simulate_faster as simulate_faster
    from ._what_if import targets as targets
    from ._what_if import what_if as what_if
    from .before_after import VERDICT_COLOURS as VERDICT_COLOURS
    from .before_after import VERDICTS as VERDICTS
    from .before_after import Judgement as Judgement
    from .before_after import Limit as Limit
    from .before_after import Side as Side
    from .before_after import Step as Step
    from .before_after import StepDiff as StepDiff
    from .before_after import diff_steps as diff_steps
    from .before_after import judge as judge
    from .before_after import parse_limit as parse_limit
    from .before_after import read_side as read_side
    from .before_after import read_step as read_step
    from .before_after import side_of as side_of
    from .before_after import step_numbers as step_numbers
    from .diagnosis import Anomaly as Anomaly
    from .diagnosis import Diagnosis as Diagnosis
    from .diagnosis import diagnose as diagnose
    from .sql import SQL_EXAMPLES as SQL_EXAMPLES
    from .sql import SQL_TABLES as SQL_TABLES
    from .sql import Answer as Answer
    from .sql import SqlTable as SqlTable
    from .sql import query_run as query_run
    from .sql import sql_columns as sql_columns
    from .stragglers import STRAGGLER_TABLES as STRAGGLER_TABLES
    from .stragglers import Stragglers as Stragglers
    from .stragglers import find_stragglers as find_stragglers
    from .stragglers import operations_of as operations_of
else:
    __getattr__ = exports_of(__name__, __file__)

__all__ = [
    "ALL_GROUPS",
    "BREAKDOWNS",
    "CALLS",
    "COMPARISONS",
    "EDGE_LABELS",
    "FEW_HOPS",
    "FOLDS",
    "KIND_LABELS",
    "MOST_HOPS",
    "NO_NETWORK",
    "ON_PATH",
    "OVERVIEWS",
    "PARTS",
    "RUN_BREAKDOWNS",
    "SQL_EXAMPLES",
    "SQL_TABLES",
    "STRAGGLER_TABLES",
    "TABLES",
    "TIME_FORMULA",
    "TRAFFIC",
    "VERDICTS",
    "VERDICT_COLOURS",
    "Advice",
    "Anomaly",
    "Answer",
    "CapturedCalls",
    "Cause",
    "Communication",
    "Comparison",
    "ComputedOnce",
    "CriticalPath",
    "Diagnosis",
    "Divergence",
    "FittedNetwork",
    "Groups",
    "Judgement",
    "Lanes",
    "Limit",
    "Load",
    "Matrix",
    "Neighbour",
    "Neighbourhood",
    "Roof",
    "RunAnalysis",
    "Side",
    "SlowestRank",
    "SqlTable",
    "Step",
    "StepDiff",
    "Stragglers",
    "Summary",
    "Target",
    "Use",
    "Words",
    "advice",
    "advice_table",
    "advice_text",
    "analyse_run",
    "area_names",
    "area_overview",
    "area_table",
    "attributable",
    "backend_reasons",
    "calibration_table",
    "causes",
    "changes",
    "check_setup",
    "chrome_trace",
    "coded_facts",
    "collective_arrivals",
    "collective_differences",
    "collective_overview",
    "communication_of",
    "compare",
    "configuration_table",
    "contributors",
    "counterpart",
    "critical_path",
    "csv_pieces",
    "csv_text",
    "diagnose",
    "diff_steps",
    "difference_by_setting",
    "difference_of_runs",
    "divergence",
    "divergence_text",
    "drops",
    "duration_estimate",
    "edges_of",
    "end_names",
    "error_distribution",
    "estimate_s",
    "explained_collectives",
    "failures_of",
    "find_stragglers",
    "fitted_network",
    "flow_differences",
    "folded",
    "foreign_compute",
    "found_nodes",
    "gain_text",
    "graph_tables",
    "host_cause",
    "host_stack_table",
    "joined_operators",
    "judge",
    "layer_table",
    "link_dimensions",
    "link_table",
    "load_of",
    "logged_speeds",
    "logged_stragglers",
    "logged_table",
    "longest_call",
    "longest_segment",
    "longest_with_slack",
    "measured_result",
    "named_nodes",
    "nameless_text",
    "neighbourhood",
    "neighbours",
    "node_differences",
    "operations_of",
    "operator_rates",
    "operator_table",
    "operators_text",
    "packet_facts",
    "parse_limit",
    "paths_table",
    "query_run",
    "rank_differences",
    "rank_standings",
    "read_side",
    "read_step",
    "roofline_points",
    "rooflines",
    "run_overview",
    "same_nodes",
    "search_hits",
    "search_nodes",
    "segment_table",
    "sends_one_by_one",
    "sensitivity",
    "shapley_values",
    "side_of",
    "simulate_faster",
    "slack",
    "slack_columns",
    "slack_shares",
    "slack_table",
    "slowest_rank",
    "sql_columns",
    "step_numbers",
    "straggler_texts",
    "summarize",
    "switch_loads",
    "targets",
    "traffic",
    "traffic_table",
    "use_over_time",
    "what_if",
    "why_no_links",
    "why_not_comparable",
]
