"""One graph in a separate file whose columns are read on demand, for thousands of graphs."""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...support import new_file
from ._archive import Archive, SavedColumns
from ._graph import EDGE_COLUMNS, NODE_COLUMNS, Column, Graph
from ._tables import Spool, write_array

__all__ = ["keep_graph", "kept_graph"]

_HEAD, _SIZES = "head", "sizes"
# Opening one takes longer than reading a column, and few are read at the same time.
_OPEN_AT_ONCE = 4


class _Brief:
    """An archive without cached columns, which is open only while it is among the last ones read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def column(self, name: str, rows: slice, dtype: str) -> Column:
        return self._archive().read(name, rows, dtype)

    def taken(self, name: str, rows: slice, dtype: str, chosen: np.ndarray) -> Column:
        return self._archive().taken(name, rows, dtype, chosen)

    def _archive(self) -> Archive:
        status = self.path.stat()
        return _opened(self.path, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=_OPEN_AT_ONCE)
def _opened(path: Path, _inode: int, _changed_ns: int) -> Archive:
    return Archive(path)


def keep_graph(graph: Graph, head: bytes, path: Path) -> None:
    """Write the columns of *graph*, and *head*, to *path* atomically; raises `OSError`.

    Fields without a column are not written.
    """
    spool = Spool(path.parent)
    spool.add(graph)
    sizes = [graph.rank, graph.num_nodes, graph.num_edges]
    with new_file(path, sync=False) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        write_array(archive, _HEAD, np.frombuffer(head, np.uint8))
        write_array(archive, _SIZES, np.array(sizes, np.int64))
        spool.write(archive)


def kept_graph(path: Path) -> tuple[Graph, bytes]:
    """Return the graph and the head that `keep_graph` wrote to *path*; raises some of `DAMAGES`.

    A damaged column raises `WorkloadFormatError` on its first use.
    """
    archive = Archive(path)
    rank, nodes, edges = archive.whole_integers(_SIZES).tolist()
    archive.check({**dict.fromkeys(NODE_COLUMNS, nodes), **{f"edge_{name}": edges for name in EDGE_COLUMNS}})
    brief = _Brief(path)
    of_nodes = SavedColumns(brief, {name: name for name in NODE_COLUMNS}, slice(0, nodes))
    of_edges = SavedColumns(brief, {name: f"edge_{name}" for name in EDGE_COLUMNS}, slice(0, edges))
    return Graph(rank, of_nodes, of_edges), archive.whole(_HEAD).tobytes()
