"""Chakra graphs and workloads: the model, its order, and the ``.et`` files."""

from __future__ import annotations

from ...support.table import TextColumn as TextColumn
from ._builder import GraphBuilder as GraphBuilder
from ._builder import communication as communication
from ._codec import decode_graph as decode_graph
from ._codec import encode_graph as encode_graph
from ._codec import has_unknown_type as has_unknown_type
from ._codec import other_attributes as other_attributes
from ._codec import read_et as read_et
from ._extra import with_splits as with_splits
from ._graph import EDGE_COLUMNS as EDGE_COLUMNS
from ._graph import MESSAGES as MESSAGES
from ._graph import NODE_COLUMNS as NODE_COLUMNS
from ._graph import CollectiveType as CollectiveType
from ._graph import Column as Column
from ._graph import EdgeKind as EdgeKind
from ._graph import Graph as Graph
from ._graph import NodeType as NodeType
from ._kinds import BUFFERS as BUFFERS
from ._kinds import COMM_LANE as COMM_LANE
from ._kinds import DEVICE_LANE as DEVICE_LANE
from ._kinds import GAP as GAP
from ._kinds import HOST_BEFORE as HOST_BEFORE
from ._kinds import HOST_CAUSES as HOST_CAUSES
from ._kinds import HOST_END as HOST_END
from ._kinds import HOST_UNRECORDED as HOST_UNRECORDED
from ._kinds import KINDS as KINDS
from ._kinds import LATENCY as LATENCY
from ._kinds import MESSAGE_LANE as MESSAGE_LANE
from ._kinds import SPIN as SPIN
from ._order import Replay as Replay
from ._order import consistent as consistent
from ._order import dependencies as dependencies
from ._order import execution_order as execution_order
from ._order import replay as replay
from ._order import shortest_cycle as shortest_cycle
from ._order import unreachable as unreachable
from ._parallelism import have_messages as have_messages
from ._parallelism import recognise as recognise
from ._tables import read_graph as read_graph
from ._tables import saved_columns as saved_columns
from ._tables import saved_node_count as saved_node_count
from ._tables import unchanged_files as unchanged_files
from ._tables import write_graph as write_graph
from ._workload import Workload as Workload
