"""Set results side by side: in total, by rank, node, collective and flow, and where their paths part."""

from ._compare import Comparison as Comparison
from ._compare import compare as compare
from ._differences import collective_differences as collective_differences
from ._differences import error_distribution as error_distribution
from ._differences import flow_differences as flow_differences
from ._differences import node_differences as node_differences
from ._differences import rank_differences as rank_differences
from ._measured import measured_result as measured_result
from ._parting import Parting as Parting
from ._parting import parting as parting

__all__ = [
    "Comparison",
    "Parting",
    "collective_differences",
    "compare",
    "error_distribution",
    "flow_differences",
    "measured_result",
    "node_differences",
    "parting",
    "rank_differences",
]
