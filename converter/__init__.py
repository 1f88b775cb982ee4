"""Convert traces to Chakra graphs: readers, linking, dependencies and the ``.et`` codec."""

from typing import TYPE_CHECKING

from ..support import exports_of

if TYPE_CHECKING:
    from ._microbenchmarks import MICROBENCHMARKS as MICROBENCHMARKS
    from ._microbenchmarks import microbenchmark as microbenchmark
    from .building import convert as convert
    from .building import convert_files as convert_files
    from .building import convert_logs as convert_logs
    from .chakra import EDGE_COLUMNS as EDGE_COLUMNS
    from .chakra import NODE_COLUMNS as NODE_COLUMNS
    from .chakra import CollectiveType as CollectiveType
    from .chakra import EdgeKind as EdgeKind
    from .chakra import Graph as Graph
    from .chakra import NodeType as NodeType
    from .chakra import Replay as Replay
    from .chakra import Workload as Workload
    from .chakra import decode_graph as decode_graph
    from .chakra import encode_graph as encode_graph
    from .chakra import read_et as read_et
    from .chakra import replay as replay
    from .checks import Finding as Finding
    from .checks import doctor as doctor
    from .checks import inspect_node as inspect_node
    from .checks import inspect_workload as inspect_workload
    from .checks import load_workload as load_workload
    from .checks import worst_first as worst_first
    from .export import EXPORT_FORMATS as EXPORT_FORMATS
    from .export import export_graph as export_graph
    from .linking import match_logs as match_logs
    from .readers import read_text_workload as read_text_workload
    from .readers.logs import read_logs as read_logs
else:
    __getattr__ = exports_of(__name__, __file__)
