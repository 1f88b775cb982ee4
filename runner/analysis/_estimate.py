"""Estimate the duration of a simulation from its number of messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...converter import CollectiveType, Workload
from ...converter.chakra import saved_columns
from .._traits import about_backend
from ..config import NetworkConfig, SystemConfig

# Times measured on a busy 2-core machine: starting a process, reading a node, an event of the engine, a row
# of the engine's result, and a packet over one link in ns-3.
_START_S = 2.0
_NODE_S = 8e-7
_EVENT_S = 1 / 5e6
_ROW_S = 1e-6
_PACKET_S = 4e-6
_PACKET_BYTES = 1000
_SEGMENT_S = 2.5e-5  # time per TCP segment in ns-3
_SEGMENT_BYTES = 1448
_EVENTS_A_MESSAGE = 2.5
# From 64 ranks on, the engine computes contention-free phases as a whole, and each phase takes 10 events.
_WORKED_OUT_RANKS = 64
_EVENTS_A_PHASE = 10
_NAMES = tuple(dict.fromkeys(kind.key for kind in CollectiveType if kind.ring_passes))
_TREE = "doubleBinaryTree"


@dataclass(frozen=True)
class Load:
    """The size of a simulation: *nodes* nodes in *programs* different programs, on *ranks* ranks.

    *collectives* has the name, number of calls and total bytes of each collective, averaged over programs.
    """

    ranks: int
    programs: int
    nodes: int
    collectives: tuple[tuple[str, float, float], ...]


def load_of(prefix: Path) -> Load:
    """Return the load of the workload at *prefix*, from a cache of recent requests if possible."""
    stat = (prefix.parent / f"{prefix.name}.workload.json").stat()
    return _load(prefix, stat.st_mtime_ns)


@lru_cache(16)
def _load(prefix: Path, _changed: int) -> Load:
    parts, ranks = _nodes_of(prefix)
    programs: set[int] = set()
    nodes = 0
    calls: dict[int, tuple[int, float]] = {}
    for part in parts:
        nodes += len(part["rank"])
        programs.update(np.unique(part["rank"]).tolist())
        sent = np.flatnonzero(part["comm_type"] >= 0)
        kinds, sizes = part["comm_type"][sent], np.maximum(part["comm_size_bytes"][sent], 0)
        for kind in np.unique(kinds).tolist():
            count, size = calls.get(kind, (0, 0.0))
            own = sizes[kinds == kind]
            calls[kind] = count + len(own), size + float(own.sum(dtype=np.float64))
    divided = max(1, len(programs))
    totals: dict[str, tuple[float, float]] = {}
    for kind, (count, size) in calls.items():
        collective = CollectiveType.of(kind)
        name = collective.key if collective is not None and collective.ring_passes else "all-reduce"
        before = totals.get(name, (0.0, 0.0))
        totals[name] = before[0] + count / divided, before[1] + size / divided
    collectives = tuple((name, *totals[name]) for name in _NAMES if name in totals)
    return Load(ranks, divided, nodes, collectives)


def _nodes_of(prefix: Path) -> tuple[Iterator[dict[str, Any]], int]:
    """Return the traffic of all programs in pieces (from saved tables, if any), and the number of ranks."""
    columns = ["comm_type", "comm_size_bytes"]
    saved = saved_columns(prefix, columns)
    head = prefix.parent / f"{prefix.name}.workload.json"
    if saved is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return saved, int(json.loads(head.read_text(encoding="utf-8"))["num_ranks"])
    workload = Workload.load(prefix)
    parts = (
        {"rank": np.full(graph.num_nodes, number), **{name: graph.node_columns[name] for name in columns}}
        for number, graph in enumerate(workload.graphs)
    )
    return parts, workload.num_ranks


def estimate_s(network: NetworkConfig, system: SystemConfig, load: Load, backend: str) -> float:
    """Estimate the seconds that *backend* takes, including its process start and the saving of the run.

    The order of magnitude is right if collectives span all ranks. If collectives span groups of ranks, the
    estimate is an upper bound.
    """
    traits = about_backend(backend)
    ranks = load.ranks if traits.replays else network.num_ranks
    nodes = load.nodes / load.programs * ranks
    # Ranks with equal behaviour are simulated once, unless ranks compete for links or use tree algorithms.
    trees = any(_TREE in _algorithms(network, system, name) for name in _NAMES)
    simulated = ranks if not traits.folds or trees else min(ranks, load.programs)
    carried = () if traits.replays else load.collectives
    whole = simulated == ranks and not sends_one_by_one(network, system, load, backend)
    messages = sum(_messages(network, system, name, count, whole=whole) for name, count, _ in carried)
    events = simulated * (2 * nodes / ranks + messages)
    read_s = _START_S + _NODE_S * load.nodes + _ROW_S * nodes
    return read_s + _EVENT_S * events + _packets_s(network, load, backend)


def sends_one_by_one(network: NetworkConfig, system: SystemConfig, load: Load, backend: str) -> str:
    """Return the reason to simulate each message of all ranks; "" if phases are computed as a whole.

    The engine may still have to simulate single messages if the order of events within one nanosecond is
    ambiguous.
    """
    if not about_backend(backend).folds:
        return f"messages of '{backend}' share links"
    if network.num_ranks < _WORKED_OUT_RANKS:
        return f"there are fewer than {_WORKED_OUT_RANKS}"
    for name, _count, _size in load.collectives:
        algorithms = _algorithms(network, system, name)
        for size, algorithm in zip(network.npus_count, algorithms, strict=True):
            halves = "alving" in algorithm and size & (size - 1) == 0
            if not halves and algorithm not in {"ring", "oneRing"}:
                return f"{name} is '{algorithm}', which is simulated message by message, unlike a ring"
    return ""


def _algorithms(network: NetworkConfig, system: SystemConfig, collective: str) -> list[str]:
    """Return the algorithm of a *collective* on each dimension; the default is a ring."""
    named = system.to_dict().get(f"{collective}-implementation", [])
    return [*named, *["ring"] * network.dimensions][: network.dimensions]


def _messages(
    network: NetworkConfig, system: SystemConfig, collective: str, count: float, *, whole: bool
) -> float:
    """Return the number of events for all messages of one rank in *count* calls of a *collective*.

    If *whole* is true, each phase of the collective counts as one computation, regardless of the number of
    messages.
    """
    chunks = float(system.preferred_dataset_splits or 1)
    phases = 2 if collective == "all-reduce" else 1
    events = 0.0
    algorithms = _algorithms(network, system, collective)
    if whole:
        return count * chunks * phases * network.dimensions * _EVENTS_A_PHASE
    for size, topology, algorithm in zip(network.npus_count, network.topology, algorithms, strict=True):
        steps = math.log2(size) if "alving" in algorithm or algorithm == _TREE else size - 1
        events += phases * steps * _EVENTS_A_MESSAGE * (1 + _hops(topology))
    return count * chunks * events


def _hops(topology: str) -> int:
    return 2 if topology == "Switch" else 1


def _packets_s(network: NetworkConfig, load: Load, backend: str) -> float:
    """Return the seconds to simulate every packet on every link; 0 for backends that simulate no packets."""
    # The time that the backend `auto` saves by not simulating packets is known only after the run.
    traits = about_backend(backend)
    if not traits.packets:
        return 0.0
    tcp = traits.tcp and network.is_tcp
    packet_s, packet_bytes = (_SEGMENT_S, _SEGMENT_BYTES) if tcp else (_PACKET_S, _PACKET_BYTES)
    crossings = 0.0
    for name, _count, size in load.collectives:
        share = size
        for extent, topology in zip(network.npus_count, network.topology, strict=True):
            moved = (2 if name == "all-reduce" else 1) * share * (extent - 1) / extent
            crossings += moved / packet_bytes * _hops(topology)
            share /= extent
    return packet_s * crossings * network.num_ranks


def duration_estimate(seconds: Sequence[float]) -> str:
    """Return the expected duration of consecutive jobs that take *seconds*, as text."""
    total = sum(seconds)
    for scale, unit in ((3600, "h"), (60, "min")):
        if total >= 2 * scale:
            return f"about {total / scale:.0f} {unit}"
    return f"about {max(1, round(total))} s"
