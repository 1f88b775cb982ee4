"""Export a rank's graph in the formats of other tools.

GraphML and DOT are written directly, node by node, because networkx would first build the graph in gigabytes
of memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ...errors import UsageError, did_you_mean
from ...support import new_file
from ...support.table import frame_bytes
from ..chakra import EDGE_COLUMNS, NODE_COLUMNS, EdgeKind, Graph, NodeType, Workload, replay

_COLOURS = {
    "compute": "#4c78a8",
    "communication": "#e45756",
    "copy": "#eeca3b",
    "memory": "#72b7b2",
    "host": "#bab0ac",
    "sync": "#f58518",
    "wait": "#f1a5a6",
    "idle": "#ffffff",
}
_GRAPHML_TYPES = {"int64": "long", "int16": "int", "uint8": "int", "bool": "boolean", "str": "string"}
# Kinds of edges drawn as arrows between lanes. Edges along a lane and data edges are not drawn, because
# they would hide the other arrows.
_ARROWS = frozenset({"launch", "event_sync", "comm_issue", "comm_wait", "autograd"})


def export_graph(workload: Workload, path: str | Path, file_format: str, *, rank: int = 0) -> Path:
    """Write the graph of *rank* atomically to *path* in one of `EXPORT_FORMATS`; return the path.

    ``chrome-trace`` contains all ranks, replayed with their recorded durations, for Perfetto or
    chrome://tracing. ``parquet`` and ``parquet-edges`` contain the nodes and edges of all ranks in the format
    of `Workload.node_table`.
    Raises `UsageError` for another format or rank.
    """
    if file_format not in EXPORT_FORMATS:
        raise UsageError(f"There is no format '{file_format}'{did_you_mean(file_format, EXPORT_FORMATS)}")
    workload.graph_of(rank)
    path = Path(path)
    with new_file(path, parents=True) as temporary, temporary.open("wb") as file:
        for part in EXPORT_FORMATS[file_format](workload, rank):
            file.write(part if isinstance(part, bytes) else part.encode("utf-8"))
    return path


def _records(graph: Graph) -> Iterator[dict[str, Any]]:
    """Yield the nodes of *graph* as mappings of Python values."""
    columns = [graph.node_columns[name].tolist() for name in NODE_COLUMNS]
    for values in zip(*columns, strict=True):
        yield dict(zip(NODE_COLUMNS, values, strict=True))


def _edges(graph: Graph) -> Iterator[tuple[int, int, str]]:
    columns = (graph.edge_columns[name].tolist() for name in EDGE_COLUMNS)
    for src, dst, kind in zip(*columns, strict=True):
        yield src, dst, EdgeKind(kind).name.lower()


def _json(workload: Workload, rank: int) -> Iterator[str]:
    """Yield one JSON document: rank, groups, nodes (one per line) and edges."""
    graph = workload.graph_of(rank)
    groups = {str(number): list(members) for number, members in workload.groups.items()}
    yield f'{{"rank": {rank}, "groups": {json.dumps(groups)},\n "nodes": [\n'
    for index, node in enumerate(_records(graph)):
        node["type"] = NodeType(node["type"]).name
        yield f"{',' if index else ''}{json.dumps(node)}\n"
    yield '],\n "edges": [\n'
    for index, (src, dst, kind) in enumerate(_edges(graph)):
        yield f"{',' if index else ''}{json.dumps({'src': src, 'dst': dst, 'kind': kind})}\n"
    yield "]}\n"


def _graphml(workload: Workload, rank: int) -> Iterator[str]:
    """Yield the graph of *rank* as GraphML, with every column as an attribute."""
    graph = workload.graph_of(rank)
    yield '<?xml version="1.0" encoding="utf-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    for name, (dtype, _) in NODE_COLUMNS.items():
        kind = _GRAPHML_TYPES[dtype]
        yield f'<key id="{name}" for="node" attr.name="{name}" attr.type="{kind}"/>\n'
    yield '<key id="kind_of_edge" for="edge" attr.name="kind" attr.type="string"/>\n'
    yield f'<graph id="rank{rank}" edgedefault="directed">\n'
    for node in _records(graph):
        data = "".join(f'<data key="{key}">{_text(value)}</data>' for key, value in node.items())
        yield f'<node id="n{node["node_id"]}">{data}</node>\n'
    for src, dst, kind in _edges(graph):
        yield f'<edge source="n{src}" target="n{dst}"><data key="kind_of_edge">{kind}</data></edge>\n'
    yield "</graph>\n</graphml>\n"


def _text(value: Any) -> str:
    """Return *value* as XML text; characters that are invalid in XML become question marks."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    from xml.sax.saxutils import escape  # noqa: PLC0415 - imports half the library of the internet

    return escape("".join(char if char in "\t\n\r" or char >= " " else "?" for char in text))


def _dot(workload: Workload, rank: int) -> Iterator[str]:
    """Yield Graphviz DOT: a box per node, coloured by kind, and edges labelled with reasons."""
    from xml.sax.saxutils import quoteattr  # noqa: PLC0415 - as above

    graph = workload.graph_of(rank)
    yield f"digraph rank{rank} {{\nrankdir=LR; node [shape=box, style=filled, fontname=Helvetica];\n"
    for node in _records(graph):
        label = quoteattr(f"{node['name']} ({node['duration_ns']} ns)")[1:-1].replace("\\", "\\\\")
        colour = _COLOURS.get(node["kind"], _COLOURS["idle"])
        yield f'n{node["node_id"]} [label="{label}", fillcolor="{colour}"];\n'
    for src, dst, kind in _edges(graph):
        yield f'n{src} -> n{dst} [label="{kind.replace("_", " ")}"];\n'
    yield "}\n"


def _chrome_trace(workload: Workload, _: int) -> Iterator[str]:
    """Yield JSON in Trace Event Format: a process per rank, a thread per lane, arrows between lanes."""
    yield '{"displayTimeUnit": "ns", "traceEvents": [\n'
    separator = ""
    for rank in range(workload.num_ranks):
        for event in _rank_events(workload.graph_of(rank), rank):
            yield f"{separator}{json.dumps(event)}"
            separator = ",\n"
    yield "\n]}\n"


def _rank_events(graph: Graph, rank: int) -> Iterator[dict[str, Any]]:
    times = replay(graph)
    starts, ends = times.start_ns.tolist(), times.end_ns.tolist()
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    place: dict[int, tuple[int, int, int]] = {}
    for node, start, end in zip(_records(graph), starts, ends, strict=True):
        lane = node["stream"]
        place[node["node_id"]] = (lane, start, end)
        shown = ("node_id", "operator", "module", "phase", "step", "comm_size_bytes", "group", "num_ops")
        yield {
            "ph": "X",
            "name": node["name"],
            "cat": node["kind"],
            "pid": rank,
            "tid": lane,
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": {key: node[key] for key in shown if node[key] not in (-1, "")},
        }
    for number, (src, dst, kind) in enumerate(_edges(graph)):
        if kind in _ARROWS and place[src][0] != place[dst][0]:
            arrow = {"cat": kind, "name": "waits", "id": f"{rank}.{number}", "pid": rank}
            yield {"ph": "s", "tid": place[src][0], "ts": place[src][2] / 1000, **arrow}
            yield {"ph": "f", "bp": "e", "tid": place[dst][0], "ts": place[dst][1] / 1000, **arrow}


EXPORT_FORMATS: dict[str, Callable[[Workload, int], Iterable[str] | Iterable[bytes]]] = {
    "chrome-trace": _chrome_trace,
    "dot": _dot,
    "graphml": _graphml,
    "json": _json,
    "parquet": lambda workload, _: [frame_bytes(workload.node_table())],
    "parquet-edges": lambda workload, _: [frame_bytes(workload.edge_table())],
}
