"""From captured traces to Chakra graphs: readers, linking, dependencies and the ``.et`` codec."""

from .codec import decode_graph, encode_graph, read_et
from .convert import convert, convert_files
from .doctor import doctor
from .export import EXPORT_FORMATS, export
from .findings import Finding
from .graph import EDGE_COLUMNS, NODE_COLUMNS, CollectiveType, EdgeKind, Graph, NodeType
from .inspection import inspect_node, inspect_workload, load_workload
from .microbenchmarks import MICROBENCHMARKS, microbenchmark
from .replay import Replay, replay
from .text_workload import read_text_workload
from .workload import Workload

__all__ = [
    "EDGE_COLUMNS",
    "EXPORT_FORMATS",
    "MICROBENCHMARKS",
    "NODE_COLUMNS",
    "CollectiveType",
    "EdgeKind",
    "Finding",
    "Graph",
    "NodeType",
    "Replay",
    "Workload",
    "convert",
    "convert_files",
    "decode_graph",
    "doctor",
    "encode_graph",
    "export",
    "inspect_node",
    "inspect_workload",
    "load_workload",
    "microbenchmark",
    "read_et",
    "read_text_workload",
    "replay",
]
