"""From captured traces to Chakra graphs: readers, linking, dependencies and the ``.et`` codec."""

from .building import convert, convert_files, convert_logs, script_workload
from .chakra import (
    EDGE_COLUMNS,
    NODE_COLUMNS,
    CollectiveType,
    EdgeKind,
    Graph,
    NodeType,
    Replay,
    Workload,
    decode_graph,
    encode_graph,
    read_et,
    replay,
)
from .checks import Finding, doctor, inspect_node, inspect_workload, load_workload, worst_first
from .export import EXPORT_FORMATS, export_graph
from .generate import MICROBENCHMARKS, microbenchmark
from .linking import match_logs
from .readers import read_text_workload
from .readers.logs import read_logs

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
    "convert_logs",
    "decode_graph",
    "doctor",
    "encode_graph",
    "export_graph",
    "inspect_node",
    "inspect_workload",
    "load_workload",
    "match_logs",
    "microbenchmark",
    "read_et",
    "read_logs",
    "read_text_workload",
    "replay",
    "script_workload",
    "worst_first",
]
