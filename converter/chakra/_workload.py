"""A workload: one Chakra graph per rank, process groups, and metadata on the origin."""

from __future__ import annotations

import hashlib
import json
import operator
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UsageError, WorkloadError, WorkloadFormatError
from ...support import (
    link_or_copy,
    mapped_in_threads,
    new_file,
    remove_leftovers,
    sync_files,
    write_file,
)
from ...support.documents import parse_json, unique_keys
from ._attributes import check_attributes
from ._codec import bytes_of_messages, decode_graph, encode_graph, encoded_pieces, messages_of_bytes, read_et
from ._graph import EDGE_COLUMNS, Column, EdgeKind, Graph, NodeType, joined, table_of
from ._scaling import replicate
from ._tables import Tables, load_tables, save_tables, unchanged_files

if TYPE_CHECKING:
    import networkx
    import pandas as pd

_MANY_PROGRAMS = 32
_OTHER_FILES = (".groups.json", ".nodes.parquet", ".edges.parquet", ".workload.json")
_CAPTURED = "measured_step_ns"  # metadata of workloads that come from measured traces


@dataclass(frozen=True, eq=False, repr=False)
class Workload:
    """A workload: the graphs that the ranks of a cluster execute.

    Rank *r* runs ``graphs[program_of_rank[r]]``. *groups* maps a positive id to the group's global ranks in
    ring order. Group 0 always contains all ranks and is never listed. If *representative_of_rank* is given,
    only representatives have graphs, and only their groups are listed. Every other rank does the same work as
    its representative, but with different peers. A workload is immutable (`dataclasses.replace` returns a
    changed copy). Workloads are equal if their contents are equal. Workloads have no hash.
    """

    graphs: tuple[Graph, ...]
    program_of_rank: np.ndarray
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    representative_of_rank: np.ndarray | None = None

    @property
    def own_ranks(self) -> np.ndarray:
        """The ranks with graphs: all ranks, or the representatives."""
        if self.representative_of_rank is None:
            return np.arange(self.num_ranks)
        return np.unique(self.representative_of_rank)

    @property
    def num_ranks(self) -> int:
        """The number of ranks of the workload."""
        return len(self.program_of_rank)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Workload):
            return NotImplemented
        return (
            self.graphs == other.graphs
            and np.array_equal(self.program_of_rank, other.program_of_rank)
            and self.groups == other.groups
            and self.metadata == other.metadata
            and np.array_equal(self.own_ranks, other.own_ranks)
        )

    __hash__ = None  # type: ignore[assignment]  # graphs have no hash

    def __repr__(self) -> str:
        nodes = sum(graph.num_nodes for graph in self.graphs)
        return f"Workload(num_ranks={self.num_ranks}, programs={len(self.graphs)}, nodes={nodes})"

    def graph_of(self, rank: int) -> Graph:
        """Return the graph of *rank*; raises `UsageError` for a missing rank."""
        if not 0 <= rank < self.num_ranks:
            raise UsageError(f"There is no rank {rank}: the workload has ranks 0 to {self.num_ranks - 1}.")
        return self.graphs[int(self.program_of_rank[rank])]

    @classmethod
    def load(cls, prefix: str | Path) -> Workload:
        """Read the workload in the files ``PREFIX.{rank}.et`` and the files next to them.

        Groups, metadata and tables are optional: plain ``.et`` files of any origin load. Ranks with identical
        files share one graph. Raises `WorkloadError` if a rank is missing and `WorkloadFormatError` for a
        damaged file.
        """
        prefix = Path(prefix)
        metadata = _load_metadata(prefix)
        alike = _load_representatives(prefix, metadata)
        paths = _rank_files(prefix) if alike is None else _own_files(prefix, alike)
        tables, unchanged = _load_tables(prefix), unchanged_files(prefix, paths)
        groups = _load_groups(prefix)
        graphs: list[Graph] = []
        seen: dict[str, int] = {}
        program = np.zeros(len(paths) if alike is None else len(alike), dtype=np.int32)
        for rank, path in paths.items():
            digest = unchanged.get(rank, "")
            data = b"" if digest in tables.graphs else read_et(path)
            digest = digest if digest in tables.graphs else hashlib.sha256(data).hexdigest()
            if digest not in seen:
                seen[digest] = len(graphs)
                graph = tables.graphs.get(digest)
                if graph is None:
                    graph = _reasoned(decode_graph(data, rank=rank, source=str(path)), tables.edges.get(rank))
                    source, captured = f"{path}, rank {rank}", _CAPTURED in metadata
                    check_attributes(graph, groups, len(program), source, captured=captured)
                graphs.append(graph)
            program[rank] = seen[digest]
        expected = metadata.pop("num_ranks", len(program))
        if alike is not None:
            return cls(tuple(graphs), program[alike], groups, metadata, alike)
        if isinstance(expected, int) and expected > len(paths):
            raise WorkloadError(
                f"The workload {prefix} has {expected} ranks, but {prefix}.{len(paths)}.et is missing. "
                "Convert the traces again."
            )
        return cls(tuple(graphs), program, groups, metadata)

    @staticmethod
    def copy(prefix: str | Path, target: Path) -> bool:
        """Copy the files of the workload *prefix*, as `save` wrote them, to the new PREFIX *target*.

        Files of equal ranks become hard links if possible. If a file has changed since `save`, the function
        returns False and copies nothing. In this case, load and save the workload instead. Raises `OSError`,
        and the error of `load` if a rank is missing.
        """
        prefix = Path(prefix)
        metadata = _load_metadata(prefix)
        alike = _load_representatives(prefix, metadata)
        paths = _rank_files(prefix) if alike is None else _own_files(prefix, alike)
        digests = unchanged_files(prefix, paths)
        if len(digests) < len(paths) or metadata.get("num_ranks") != len(paths if alike is None else alike):
            return False
        copies: dict[str, Path] = {}
        for rank, path in sorted(paths.items(), reverse=True):
            copy = _sibling(target, f".{rank}.et")
            if digests[rank] in copies:
                link_or_copy(copies[digests[rank]], copy)
            else:
                copies[digests[rank]] = copy
                shutil.copyfile(path, copy)
        sync_files(_sibling(target, f".{rank}.et") for rank in paths)
        for ending in _OTHER_FILES:
            if _sibling(prefix, ending).exists():
                shutil.copyfile(_sibling(prefix, ending), _sibling(target, ending))
        return True

    @classmethod
    def from_messages(
        cls, ranks: Iterable[Iterable[Any]], groups: Mapping[int, Sequence[int]] | None = None
    ) -> Workload:
        """Create a workload from Chakra's protobuf messages: for each rank, a ``GlobalMetadata`` and nodes.

        *groups* maps ids of process groups to their ranks in ring order. Raises `WorkloadFormatError` naming
        rank and node for an invalid graph, and `UsageError` for another version of Chakra's schema.
        """
        programs: dict[bytes, int] = {}
        graphs: list[Graph] = []
        program_of_rank = []
        for rank, messages in enumerate(ranks):
            data = bytes_of_messages(messages, rank=rank)
            if data not in programs:
                programs[data] = len(graphs)
                graphs.append(decode_graph(data, rank=rank, source=f"rank {rank}"))
            program_of_rank.append(programs[data])
        if not graphs:
            raise WorkloadFormatError(
                "There is no rank in these messages. Pass one list of messages per rank."
            )
        members = {key: tuple(members) for key, members in (groups or {}).items()}
        for graph in graphs:
            check_attributes(graph, members, len(program_of_rank), f"Rank {graph.rank}", captured=False)
        return cls(tuple(graphs), np.array(program_of_rank, dtype=np.int32), members)

    def to_messages(self, et_def: Any) -> Iterator[list[Any]]:
        """Yield each rank's messages as objects of classes in Chakra's module *et_def* (``et_def_pb2``).

        The messages have the content of ``.et`` files, without `groups`. Raises `UsageError` for a module of
        another version of the schema, and for a workload in which ranks represent other ranks.
        """
        if len(self.own_ranks) < self.num_ranks:
            raise UsageError(
                f"Only {len(self.own_ranks)} of {self.num_ranks} ranks have their own graphs, so the others "
                "cannot be written as messages. Save the workload instead, or create it with a graph per "
                "rank."
            )
        for rank in range(self.num_ranks):
            yield list(messages_of_bytes(encode_graph(self.graph_of(rank)), et_def))

    def save(self, prefix: str | Path, *, linked: bool = False) -> None:
        """Write the ``.et`` files, groups, tables and finally the metadata, each atomically.

        If *linked* is true, the files of equal ranks are hard links if the file system supports hard links.
        Use *linked* for folders in which no file is edited in place. The file of rank 0 is written last, so
        an incomplete set never seems complete. A workload that cannot be written completely leaves no file.
        Raises `UsageError` for the path of a folder, and `OSError`.
        """
        prefix = Path(prefix)
        check_prefix(prefix)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(prefix.parent)
        _sibling(prefix, f".{self.own_ranks[0]}.et").unlink(missing_ok=True)
        for rank, path in _files_of_ranks(prefix).items():
            if rank not in self.own_ranks:  # the file is a remainder of an earlier, larger workload
                path.unlink()
        try:
            self._write(prefix, linked=linked)
        except BaseException:
            endings = (*(f".{rank}.et" for rank in self.own_ranks.tolist()), *_OTHER_FILES)
            for ending in endings:
                _sibling(prefix, ending).unlink(missing_ok=True)
            raise

    def _write(self, prefix: Path, *, linked: bool) -> None:
        own = self.own_ranks

        def write(program: int) -> str:
            ranks = own[self.program_of_rank[own] == program].tolist()
            path, *others = (_sibling(prefix, f".{rank}.et") for rank in ranks)
            return _write_graph(self.graphs[program], path, others, linked=linked)

        last = int(self.program_of_rank[own[0]])
        before = [program for program in range(len(self.graphs)) if program != last]
        threads = (os.cpu_count() or 1) if len(before) >= _MANY_PROGRAMS else 1
        written = mapped_in_threads(write, before, threads)
        digests = dict(zip(before, written, strict=True)) | {last: write(last)}
        sync_files(_sibling(prefix, f".{rank}.et") for rank in own.tolist())
        groups = _sibling(prefix, ".groups.json")
        if self.groups:
            write_file(groups, json.dumps({str(key): list(value) for key, value in self.groups.items()}))
        else:
            groups.unlink(missing_ok=True)
        save_tables(
            prefix,
            self.graphs,
            [digests[program] for program in range(len(self.graphs))],
            {rank: int(self.program_of_rank[rank]) for rank in own.tolist()},
        )
        document = {
            "format": "chakrascope-workload",
            "version": 1,
            "num_ranks": self.num_ranks,
            **self.metadata,
        }
        if self.representative_of_rank is not None:
            document["representatives"] = _run_lengths(self.representative_of_rank)
        write_file(_sibling(prefix, ".workload.json"), json.dumps(document, indent=1, sort_keys=True))

    def scale_out(self, num_ranks: int, *, first_only: bool = False) -> Workload:
        """Return this workload scaled out to *num_ranks* ranks by more data parallelism.

        *num_ranks* is a multiple of the present number of ranks. If *first_only* is true, only the ranks of
        the first repetition are returned, with groups that span all repetitions. Assumptions are appended to
        ``metadata["assumptions"]``. Raises `UsageError` for any other number. Raises `WorkloadError` for a
        job without data parallelism, such as a job with only pipeline stages or tensor-parallel ranks.
        """
        if num_ranks < self.num_ranks or num_ranks % self.num_ranks:
            raise UsageError(
                f"A workload of {self.num_ranks} ranks cannot be scaled out to {num_ranks}. Next: use a "
                f"multiple of {self.num_ranks} ranks."
            )
        if num_ranks == self.num_ranks:
            return self
        graphs, program, groups, assumptions = replicate(
            self.graphs, self.program_of_rank, self.groups, num_ranks, first_only=first_only
        )
        metadata = {
            **self.metadata,
            "scaled_from_ranks": self.metadata.get("scaled_from_ranks", self.num_ranks),
            "assumptions": [*self.metadata.get("assumptions", []), *assumptions],
        }
        return Workload(graphs, program, groups, metadata)

    def node_table(self) -> pd.DataFrame:
        """Return a table of the nodes that each rank executes, with ``rank`` as the first column.

        Ranks without a graph have no rows.
        """
        return _of_ranks([graph.node_columns for graph in self.graphs], self.program_of_rank, self.own_ranks)

    def edge_table(self) -> pd.DataFrame:
        """Return a table of the edges of all ranks, with the column ``rank`` first."""
        return _of_ranks([graph.edge_columns for graph in self.graphs], self.program_of_rank, self.own_ranks)

    def to_networkx(self, rank: int) -> networkx.DiGraph:
        """Return the graph of *rank* as a ``networkx.DiGraph``.

        Nodes are identified by id and have the other columns as attributes. An edge has its ``kind``, such as
        ``"launch"``. The networkx graph takes two kilobytes per node, which suits small graphs but not
        millions of nodes. Raises `UsageError` for a missing rank.
        """
        import networkx  # noqa: PLC0415 - slow to import, and seldom needed

        graph = self.graph_of(rank)
        result = networkx.DiGraph(rank=rank)
        records = graph.nodes.set_index("node_id").to_dict("index")
        result.add_nodes_from(records.items())
        result.add_edges_from(
            (src, dst, {"kind": EdgeKind(kind).name.lower()})
            for src, dst, kind in zip(
                *(graph.edge_columns[name].tolist() for name in EDGE_COLUMNS), strict=True
            )
        )
        return result

    def summary(self) -> dict[str, int]:
        """Return the numbers of ranks, and of nodes and communication nodes on all ranks."""
        comm = [int((graph.node_columns["type"] >= NodeType.COMM_SEND).sum()) for graph in self.graphs]
        nodes = [graph.num_nodes for graph in self.graphs]
        programs = self.program_of_rank.tolist()
        return {
            "num_ranks": self.num_ranks,
            "nodes": sum(nodes[program] for program in programs),
            "communication_nodes": sum(comm[program] for program in programs),
        }


def _sibling(prefix: Path, suffix: str) -> Path:
    return prefix.parent / f"{prefix.name}{suffix}"  # with_name fails for "."


def _run_lengths(representatives: np.ndarray) -> list[tuple[int, int]]:
    """Return *representatives* as pairs (representative, number of consecutive ranks it represents)."""
    starts = np.flatnonzero(np.diff(representatives, prepend=-1))
    lengths = np.diff(starts, append=len(representatives))
    return list(zip(representatives[starts].tolist(), lengths.tolist(), strict=True))


def _load_representatives(prefix: Path, metadata: dict[str, Any]) -> np.ndarray | None:
    """Remove the representatives of ranks from *metadata*, and return them, or None."""
    runs = metadata.pop("representatives", None)
    if runs is None:
        return None
    try:
        pairs = [(int(rank), int(length)) for rank, length in runs]
        alike = np.repeat([rank for rank, _ in pairs], [length for _, length in pairs]).astype(np.int32)
        stands_for_itself = np.array_equal(alike[alike], alike)
    except (TypeError, ValueError, IndexError) as error:
        path = _sibling(prefix, ".workload.json")
        raise WorkloadFormatError(
            f"{path} is damaged: its 'representatives' cannot be read ({error}). Write the workload again."
        ) from error
    if len(alike) == 0 or not stands_for_itself:
        raise WorkloadFormatError(
            f"{_sibling(prefix, '.workload.json')} is damaged: a rank represents others but not itself. "
            "Write the workload again."
        )
    return alike


def _own_files(prefix: Path, alike: np.ndarray) -> dict[int, Path]:
    """Return the ``.et`` files of the representatives; raise `WorkloadError` for a missing file."""
    files = {rank: _sibling(prefix, f".{rank}.et") for rank in np.unique(alike).tolist()}
    missing = [path for path in files.values() if not path.is_file()]
    if missing:
        raise WorkloadError(
            f"The workload {prefix} lacks {missing[0].name}, the graph of a rank that represents others. "
            "Write the workload again."
        )
    return files


def _rank_files(prefix: Path) -> dict[int, Path]:
    """Return the ``.et`` files of ranks 0, 1, ...; raise `WorkloadError` for a missing file."""
    found = _files_of_ranks(prefix)
    if not found:
        raise WorkloadError(
            f"No workload at {prefix}: {prefix.name}.0.et does not exist. Give the prefix of the .et files, "
            "or convert a trace set first."
        )
    missing = sorted(set(range(max(found) + 1)) - set(found))
    if missing:
        raise WorkloadError(
            f"The workload {prefix} has no file for rank {missing[0]} ({len(missing)} missing), although "
            f"rank {max(found)} exists. Add {prefix.name}.{missing[0]}.et or remove the files above it."
        )
    return {rank: found[rank] for rank in range(len(found))}


def _files_of_ranks(prefix: Path) -> dict[int, Path]:
    """Return the ``.et`` files of *prefix* that exist, by rank."""
    pattern = re.compile(re.escape(prefix.name) + r"\.(\d+)\.et")
    files = prefix.parent.iterdir() if prefix.parent.is_dir() else ()
    return {int(match[1]): path for path in files if (match := pattern.fullmatch(path.name))}


def check_prefix(prefix: str | Path) -> None:
    """Raise `UsageError` if *prefix* is a folder, because the files would be written next to the folder."""
    if Path(prefix).is_dir():
        raise UsageError(
            f"{prefix} is a folder, but graphs need the start of their file names. Next: write "
            f"{Path(prefix) / 'NAME'}, for NAME.0.et, NAME.1.et and so on."
        )


def _load_groups(prefix: Path) -> dict[int, tuple[int, ...]]:
    path = _sibling(prefix, ".groups.json")
    if not path.exists():
        return {}
    try:
        document = parse_json(read_et(path))
        by_id = unique_keys([(str(int(key)), ranks) for key, ranks in document.items()])
        groups = {int(key): tuple(operator.index(rank) for rank in ranks) for key, ranks in by_id.items()}
        np.array([*groups, *(rank for ranks in groups.values() for rank in ranks)], np.int64)  # bounded
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise WorkloadFormatError(
            f'{path} is not a groups file ({error}). It looks like {{"1": [0, 1]}}: group number to ranks.'
        ) from error
    return groups


def _load_metadata(prefix: Path) -> dict[str, Any]:
    path = _sibling(prefix, ".workload.json")
    if not path.exists():
        return {}
    try:
        document = json.loads(read_et(path))
    except (ValueError, RecursionError) as error:
        raise WorkloadFormatError(f"{path} is damaged ({error}). Convert the trace set again.") from error
    if not isinstance(document, dict):
        raise WorkloadFormatError(f"{path} holds no mapping. Convert the trace set again.")
    for own in ("format", "version", "tables"):
        document.pop(own, None)
    return document


def _load_tables(prefix: Path) -> Tables:
    """Return the tables of the workload *prefix*, empty if there are no tables."""
    try:
        return load_tables(prefix) or Tables({}, {})
    except ValueError as error:
        raise WorkloadFormatError(
            f"The tables of {prefix} are damaged ({error}). Delete {prefix.name}.nodes.parquet and "
            f"{prefix.name}.edges.parquet, or convert again."
        ) from error


def _reasoned(graph: Graph, kept: Mapping[str, np.ndarray] | None) -> Graph:
    """Return *graph*, with the reasons of edges in *kept* for edges with the same ends."""
    if kept is None or not len(kept["src"]) or not graph.num_edges:
        return graph
    edges = graph.edge_columns
    number = {
        ends: row for row, ends in enumerate(zip(kept["src"].tolist(), kept["dst"].tolist(), strict=True))
    }
    ends = zip(edges["src"].tolist(), edges["dst"].tolist(), strict=True)
    rows = np.fromiter((number.get(pair, -1) for pair in ends), dtype=np.int64, count=graph.num_edges)
    kinds = np.where(rows >= 0, kept["kind"][rows], edges["kind"])
    return graph.with_edges(np.column_stack([edges["src"], edges["dst"], kinds]))


def _of_ranks(
    programs: Sequence[Mapping[str, Column]], program_of_rank: np.ndarray, ranks: np.ndarray
) -> pd.DataFrame:
    """Return the columns of the *programs* of *ranks* as one table, with the column ``rank`` first.

    No intermediate table is built per program, because a thousand tables would take most of the time.
    """
    parts = [programs[program] for program in program_of_rank[ranks].tolist()]
    columns = {name: joined([part[name] for part in parts]) for name in parts[0]}
    lengths = [len(next(iter(part.values()))) for part in parts]
    return table_of({"rank": np.repeat(ranks, lengths), **columns}, copy=False)


def _write_graph(graph: Graph, path: Path, others: Sequence[Path], *, linked: bool) -> str:
    """Write the file of *graph* to *path* and the *others*, each atomically; return its SHA-256."""
    digest = hashlib.sha256()
    with new_file(path, sync=False) as temporary:  # `save` syncs all files together
        with temporary.open("wb") as file:
            for piece in encoded_pieces(graph):
                digest.update(piece)
                file.write(piece)
        for other in others:
            with new_file(other, sync=False) as copy:
                (link_or_copy if linked else shutil.copyfile)(temporary, copy)
    return digest.hexdigest()
