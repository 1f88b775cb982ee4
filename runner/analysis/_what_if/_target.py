"""Targets of what-if changes: their keys in addresses and on the command line, and their nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....converter.chakra import HOST_CAUSES
from ....errors import UsageError
from ..._traits import about_backend
from .._critical_path import CriticalPath
from .._labels import lowered

if TYPE_CHECKING:
    import pandas as pd

COMMUNICATION = "kind:communication"
"""The `Target.key` of all communication."""
NETWORK = ("bandwidth", "latency", "link")
# Labels of host time outside operators.
_HOST_KINDS = {"host": "host work", "sync": "synchronisations"}
COLUMNS = ("operator", "module", "phase", "kind", "cause", "place")
NODES = ("kernel", "copy", "sync", "stall", "host", "function", "fusion", "precision", "repeated", "loops")
"""Kinds of targets that select nodes by name (see `Target`)."""
_EDGE = re.compile(r"(\d{1,18})/(\d{1,18})-(\d{1,18})")
_TARGET_FORMS = (
    "operator:NAME, module:NAME, phase:PHASE, kind:KIND, cause:CAUSE, place:PLACE, function:NAME, "
    "kernel:NAME, "
    "copy:DIRECTION, sync:NAME, stall:NAME, host:dispatch, host:PLACE, fusion:elementwise, "
    "precision:double, precision:bfloat16, repeated:copies, loops:short, skew:RANK, collective:TYPE, "
    "bandwidth:DIMENSION, latency:DIMENSION, link:FROM-TO, machine:FIGURE (on 'gpu') or edge:RANK/FROM-TO"
)
_LABELS = {
    "sync": "synchronisation {}",
    "stall": "host stall: {}",
    "copy": "copies {}",
    "host": "host work: {}",
    "skew": "rank {} as fast as its peers",
    "place": "everything in {}",
    "function": "everything in {} and its callees",
    "fusion": "chains of {} operators, fused",
    "precision": "operators in {} precision",
    "repeated": "casts and {} of unchanged data, performed only once",
    "loops": "{} operators in loops",
}
# Labels of the GPU model's machine figures that can change. The last two figures apply only to several
# nodes.
_FIGURES = {
    "scale_up.bytes_per_ns": "links between GPUs: more bandwidth",
    "scale_up.latency_ns": "links between GPUs: less latency",
    "compute.units": "more compute units",
    "compute.workgroups_per_unit": "more thread blocks on a compute unit",
    "compute.requests_per_unit": "more requests in flight per compute unit",
    "compute.unroll": "more loads in flight per wavefront",
    "memory.bytes_per_ns": "memory: more bandwidth",
    "scale_out.bytes_per_ns": "links between nodes: more bandwidth",
    "scale_out.latency_ns": "links between nodes: less latency",
}


@dataclass(frozen=True)
class Target:
    """One possible change: *what* is the kind of target, and *name* selects a target of this kind.

    Targets that select nodes:

    * ``operator``, ``module``, ``phase``, ``kind``, ``cause`` and ``place`` select nodes with the value
      *name* in the column of this kind. An operator with device work includes only the device work, without
      the dispatch. A module includes its submodules.
    * ``kernel`` selects nodes by name, and ``copy`` by direction ("HtoD").
    * ``sync`` selects synchronisations by operator or name. A removed synchronisation does not wait.
    * ``stall`` selects host stalls by operator or name. A stall is shortened to the duration of the median
      piece of host work.
    * ``host`` "dispatch" is all host work without stalls and special causes. ``host`` with a place is the
      host work at this place without the operators at this place, which ``place`` includes.
    * ``place`` may also be a function or several lines, ``load (data.py:31-34)``.
    * ``function`` selects everything in a function of the script and in the functions that only it calls.
    * ``fusion`` "elementwise" selects all chains of elementwise operators. Fused chains do not store
      intermediate results.
    * ``precision`` "double" or "bfloat16" selects all operators in this precision.
    * ``repeated`` "copies" selects all casts and copies of data that the step has already cast or copied.
    * ``loops`` "short" selects all short operators that a host thread calls in loops.
    * ``skew`` shortens the work of a late rank to the work of the rank's peers.

    Other targets:

    * ``collective`` is a type (``all_reduce`` includes the copies of gradients to and from buckets),
      ``send_recv``, or a description in the format of the critical path.
    * ``bandwidth`` and ``latency`` are a network dimension (from 0), and ``link`` is a link ("0-8").
    * ``machine`` is a figure of the machine of the GPU model ("scale_up.latency_ns").
    * ``edge`` is one dependency ("0/17-23": on rank 0, from node 17 to node 23).
    """

    what: str
    name: str

    @property
    def label(self) -> str:
        """The target as shown in tables and lists."""
        if self.what in ("bandwidth", "latency"):
            better = "more bandwidth" if self.what == "bandwidth" else "less latency"
            return f"network dimension {int(self.name) + 1}: {better}"
        if self.what == "collective":
            return f"{self.name} with less data"
        if self.what == "machine":
            return _FIGURES.get(self.name, f"machine: {self.name}")
        if self.what == "edge":
            rank, source, target = self.edge
            return f"node {target} of rank {rank} without waiting for node {source}"
        if self.what == "cause":
            return f"host work: {lowered(HOST_CAUSES.get(self.name, self.name))}"
        if self.what in _LABELS:
            return _LABELS[self.what].format(self.name)
        on_host = _HOST_KINDS.get(self.name) if self.what == "kind" else None
        return on_host or f"{self.what} {self.name}"

    @property
    def key(self) -> str:
        """The target as text, such as ``operator:NAME``, for :meth:`parse`."""
        return f"{self.what}:{self.name}"

    @property
    def edge(self) -> tuple[int, int, int]:
        """Rank, source and target of an edge."""
        return _read_edge(self.name)

    @classmethod
    def parse(cls, key: str) -> Target:
        """Parse the *key* of a target; raises `UsageError` if it is invalid."""
        what, _, name = key.partition(":")
        if what not in (*COLUMNS, *NODES, *NETWORK, "machine", "collective", "edge", "skew") or not name:
            raise UsageError(f"'{key[:60]}' cannot be changed; write {_TARGET_FORMS}.")
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

    For the GPU model, figures of the machine replace the network; the job uses *nodes* nodes of it.
    """
    traits = about_backend(backend)
    # Only a replay takes communication times from the workload.
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
