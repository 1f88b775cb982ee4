"""Possible changes: their names in addresses and on the command line, and the parts of a path they cover."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....converter.chakra import HOST_CAUSES
from ....errors import UsageError
from ..._traits import about_backend
from .._critical_path import CriticalPath

if TYPE_CHECKING:
    import pandas as pd

COMMUNICATION = "kind:communication"
"""All communication, by `Target.key`."""
NETWORK = ("bandwidth", "latency", "link")
# What the host thread does outside operators, in words.
_HOST_KINDS = {"host": "host work", "sync": "synchronisations"}
COLUMNS = ("operator", "module", "phase", "kind", "cause", "place")
NODES = ("kernel", "copy", "sync", "stall", "host", "fusion", "repeated")
"""Nodes of one kind by name; see `Target`."""
_EDGE = re.compile(r"(\d{1,18})/(\d{1,18})-(\d{1,18})")
_WAYS = (
    "operator:NAME, module:NAME, phase:PHASE, kind:KIND, cause:CAUSE, place:PLACE, kernel:NAME, "
    "copy:DIRECTION, sync:NAME, stall:NAME, host:dispatch, host:PLACE, fusion:elementwise, "
    "repeated:copies, skew:RANK, collective:TYPE, "
    "bandwidth:DIMENSION, latency:DIMENSION, link:FROM-TO, machine:FIGURE (on 'gpu') or edge:RANK/FROM-TO"
)
_LABELS = {
    "sync": "synchronisation {}",
    "stall": "host stall: {}",
    "copy": "copies {}",
    "host": "host work: {}",
    "skew": "rank {} as fast as its peers",
    "place": "everything in {}",
    "fusion": "chains of {} operators, fused",
    "repeated": "casts and {} of unchanged data, done once",
}
# What is offered of a machine of the GPU model, in words; the last two only with several nodes.
_FIGURES = {
    "scale_up.bytes_per_ns": "links between GPUs: more bandwidth",
    "scale_up.latency_ns": "links between GPUs: less latency",
    "compute.units": "more compute units",
    "compute.workgroups_per_unit": "more thread blocks on a compute unit",
    "compute.requests_per_unit": "more requests under way per compute unit",
    "compute.unroll": "more loads under way per wavefront",
    "memory.bytes_per_ns": "memory: more bandwidth",
    "scale_out.bytes_per_ns": "links between nodes: more bandwidth",
    "scale_out.latency_ns": "links between nodes: less latency",
}


@dataclass(frozen=True)
class Target:
    """One possible change: *what* is its kind, *name* selects among those.

    Nodes with a *name* as their ``operator`` (if it has device work, that work alone, not its dispatch),
    ``module`` (or inside it), ``phase``, ``kind``, ``cause`` or ``place``; a ``kernel`` by name; a ``copy``
    by direction ("HtoD"); a ``sync`` by its operator or name, which waits for nothing once it is gone; a
    ``stall`` by its operator or name, which is then cut to the median piece of host work; ``host``
    "dispatch", all host work without stalls and special causes, or a place, such work there (``place`` has
    its operators, too); ``fusion`` "elementwise", chains of such operators, which then pass on results
    without storing them; ``repeated`` "copies", casts and copies of data that the step has already cast or
    copied; the ``skew`` of a rank, whose work then takes as long as that of its peers. A ``collective`` by
    its type (``all_reduce`` with the copies of gradients to and from buckets), ``send_recv``, or as the
    critical path describes it; the ``bandwidth`` or ``latency`` of a network dimension (from 0), a ``link``
    ("0-8"), a figure of the ``machine`` of the GPU model ("scale_up.latency_ns"), or one dependency, an
    ``edge`` ("0/17-23": of rank 0, from node 17 to node 23).
    """

    what: str
    name: str

    @property
    def label(self) -> str:
        """The target in words."""
        if self.what in ("bandwidth", "latency"):
            better = "more bandwidth" if self.what == "bandwidth" else "less latency"
            return f"network dimension {int(self.name) + 1}: {better}"
        if self.what == "collective":
            return f"{self.name}: less data"
        if self.what == "machine":
            return _FIGURES.get(self.name, f"machine: {self.name}")
        if self.what == "edge":
            rank, source, target = self.edge
            return f"node {target} of rank {rank} without waiting for node {source}"
        if self.what == "cause":
            return f"host work: {HOST_CAUSES.get(self.name, self.name).lower()}"
        if self.what in _LABELS:
            return _LABELS[self.what].format(self.name)
        on_host = _HOST_KINDS.get(self.name) if self.what == "kind" else None
        return on_host or f"{self.what} {self.name}"

    @property
    def key(self) -> str:
        """The target as one text, which :meth:`parse` reads."""
        return f"{self.what}:{self.name}"

    @property
    def edge(self) -> tuple[int, int, int]:
        """The rank, source and target of an edge."""
        return _read_edge(self.name)

    @classmethod
    def parse(cls, key: str) -> Target:
        """Return the target written as *key*; raises `UsageError` for anything else."""
        what, _, name = key.partition(":")
        if what not in (*COLUMNS, *NODES, *NETWORK, "machine", "collective", "edge", "skew") or not name:
            raise UsageError(f"'{key[:60]}' cannot be changed; write {_WAYS}.")
        if what == "edge":
            _read_edge(name)
        if what == "skew" and not (name.isdecimal() and len(name) < 19):
            raise UsageError(f"'{name[:60]}' is not a rank; write skew:RANK with its number, such as skew:1.")
        return cls(what, name)


def _read_edge(name: str) -> tuple[int, int, int]:
    match = _EDGE.fullmatch(name)
    if match is None:
        raise UsageError(
            f"'{name[:60]}' is not an edge; write RANK/FROM-TO with two node ids, such as 0/17-23."
        )
    rank, source, target = (int(text) for text in match.groups())
    return rank, source, target


def targets(
    path: CriticalPath, backend: str, dimensions: int, count: int = 5, *, nodes: int = 1
) -> list[Target]:
    """Return the possible targets: the *path*'s largest contributors, and the network.

    On the GPU model, that is the machine; the job uses *nodes* of its nodes.
    """
    traits = about_backend(backend)
    # Only a replay takes the duration of a communication from the workload.
    kinds = ["compute", "host", "copy", "memory"] + ["communication"] * (not traits.network)
    scaled = path.segments[path.segments["kind"].isin(kinds)]
    result = [Target(what, name) for what in ("operator", "module") for name in _largest(scaled, what, count)]
    result += [Target("kind", kind) for kind in _HOST_KINDS if (path.segments["kind"] == kind).any()]
    result += [Target("cause", cause) for cause in _largest(path.segments, "cause", count)]
    if traits.network:
        collectives = path.segments[~path.segments["collective"].str.match("(send|recv) of ")]
        result += [Target("collective", name) for name in _largest(collectives, "collective", count)]
        if traits.variant == "machine":
            return result + [
                Target("machine", key) for key in _FIGURES if nodes > 1 or not key.startswith("scale_out.")
            ]
        for dimension in range(dimensions):
            result += [Target("bandwidth", str(dimension)), Target("latency", str(dimension))]
    return result


def _largest(segments: pd.DataFrame, column: str, count: int) -> list[str]:
    named = segments[segments[column] != ""]
    return [str(name) for name in named.groupby(column)["duration_ns"].sum().nlargest(count).index]
