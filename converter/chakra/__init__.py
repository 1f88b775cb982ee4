"""Chakra graphs and workloads: data model, execution order, and ``.et`` files."""

from __future__ import annotations

from ...support.table import TextColumn as TextColumn
from ._builder import GraphBuilder as GraphBuilder
from ._builder import communication as communication
from ._codec import BUFFERS as BUFFERS
from ._codec import COMM_LANE as COMM_LANE
from ._codec import DEVICE_LANE as DEVICE_LANE
from ._codec import GAP as GAP
from ._codec import HOST_BEFORE as HOST_BEFORE
from ._codec import HOST_CAUSES as HOST_CAUSES
from ._codec import HOST_END as HOST_END
from ._codec import HOST_UNRECORDED as HOST_UNRECORDED
from ._codec import KINDS as KINDS
from ._codec import LATENCY as LATENCY
from ._codec import MESSAGE_LANE as MESSAGE_LANE
from ._codec import SPIN as SPIN
from ._codec import Replay as Replay
from ._codec import consistent as consistent
from ._codec import decode_graph as decode_graph
from ._codec import dependencies as dependencies
from ._codec import encode_graph as encode_graph
from ._codec import execution_order as execution_order
from ._codec import has_unknown_type as has_unknown_type
from ._codec import other_attributes as other_attributes
from ._codec import read_et as read_et
from ._codec import replay as replay
from ._codec import shortest_cycle as shortest_cycle
from ._codec import unreachable as unreachable
from ._graph import EDGE_COLUMNS as EDGE_COLUMNS
from ._graph import MESSAGES as MESSAGES
from ._graph import NODE_COLUMNS as NODE_COLUMNS
from ._graph import CollectiveType as CollectiveType
from ._graph import Column as Column
from ._graph import EdgeKind as EdgeKind
from ._graph import Graph as Graph
from ._graph import NodeType as NodeType
from ._graph import with_splits as with_splits
from ._scaling import have_messages as have_messages
from ._scaling import recognise as recognise
from ._tables import read_graph as read_graph
from ._tables import saved_columns as saved_columns
from ._tables import saved_node_count as saved_node_count
from ._tables import unchanged_files as unchanged_files
from ._tables import write_graph as write_graph
from ._workload import Workload as Workload
