"""Every answer computed from results: critical path, slack, advice, layers, comparisons, what-if."""

from ._advice import Advice as Advice
from ._advice import advice as advice
from ._area import area_overview as area_overview
from ._area import area_table as area_table
from ._checks import Communication as Communication
from ._checks import check_setup as check_setup
from ._checks import communication_of as communication_of
from ._chrome_trace import chrome_trace as chrome_trace
from ._collective_overview import collective_overview as collective_overview
from ._compare import Comparison as Comparison
from ._compare import compare as compare
from ._critical_path import BREAKDOWNS as BREAKDOWNS
from ._critical_path import CriticalPath as CriticalPath
from ._critical_path import critical_path as critical_path
from ._differences import collective_differences as collective_differences
from ._differences import error_distribution as error_distribution
from ._differences import flow_differences as flow_differences
from ._differences import node_differences as node_differences
from ._differences import rank_differences as rank_differences
from ._divergence import Divergence as Divergence
from ._divergence import divergence as divergence
from ._divergence import divergence_text as divergence_text
from ._divergence import paths_table as paths_table
from ._labels import EDGE_LABELS as EDGE_LABELS
from ._labels import KIND_LABELS as KIND_LABELS
from ._lanes import Lanes as Lanes
from ._lanes import is_communication as is_communication
from ._lanes import lane_table as lane_table
from ._layers import cut_names as cut_names
from ._layers import layer_table as layer_table
from ._links import Matrix as Matrix
from ._links import endpoint as endpoint
from ._links import link_dimensions as link_dimensions
from ._links import link_table as link_table
from ._links import switch_loads as switch_loads
from ._links import traffic as traffic
from ._measured import measured_result as measured_result
from ._run import ComputedOnce as ComputedOnce
from ._run import RunAnalysis as RunAnalysis
from ._run import analyse_run as analyse_run
from ._search import Words as Words
from ._search import found_nodes as found_nodes
from ._search import search_nodes as search_nodes
from ._slack import slack as slack
from ._summary import TIME_FORMULA as TIME_FORMULA
from ._summary import Summary as Summary
from ._summary import summarize as summarize
from ._what_if import Target as Target
from ._what_if import sensitivity as sensitivity
from ._what_if import simulate_faster as simulate_faster
from ._what_if import targets as targets
from ._what_if import what_if as what_if

__all__ = [
    "BREAKDOWNS",
    "EDGE_LABELS",
    "KIND_LABELS",
    "TIME_FORMULA",
    "Advice",
    "Communication",
    "Comparison",
    "ComputedOnce",
    "CriticalPath",
    "Divergence",
    "Lanes",
    "Matrix",
    "RunAnalysis",
    "Summary",
    "Target",
    "Words",
    "advice",
    "analyse_run",
    "area_overview",
    "area_table",
    "check_setup",
    "chrome_trace",
    "collective_differences",
    "collective_overview",
    "communication_of",
    "compare",
    "critical_path",
    "cut_names",
    "divergence",
    "divergence_text",
    "endpoint",
    "error_distribution",
    "flow_differences",
    "found_nodes",
    "is_communication",
    "lane_table",
    "layer_table",
    "link_dimensions",
    "link_table",
    "measured_result",
    "node_differences",
    "paths_table",
    "rank_differences",
    "search_nodes",
    "sensitivity",
    "simulate_faster",
    "slack",
    "summarize",
    "switch_loads",
    "targets",
    "traffic",
    "what_if",
]
