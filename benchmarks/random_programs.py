"""Draw random feasible and infeasible programs, and simulate them with trace semantics.

A program is feasible if some schedule completes it. A feasible program is drawn as one schedule of
computation, collectives of overlapping groups and messages. Each rank executes its part of the schedule, and
waits for some of its operations. An infeasible program has two additional operations, for which two ranks
wait in opposite orders. As a script, this module counts how many of *N* feasible programs stall, and how many
infeasible programs are not diagnosed:

    python benchmarks/random_programs.py 2000
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "engine"))
import et  # the tests' encoder, which also encodes invalid nodes

from chakrascope.runner import engine
from chakrascope.runner.config import preset_text

__all__ = ["NETWORKS", "SYSTEM", "configure", "draw", "simulate"]

Program = dict[str, Any]
Node = dict[str, Any]

SYSTEM = json.loads(preset_text("system", "default"))
NETWORKS = ("analytical-unaware", "analytical-aware")
_KINDS = ("ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER", "ALL_TO_ALL", "BROADCAST", "REDUCE", "BARRIER")
_SHAPES = ((4,), (4,), (8,), (6,), (2, 2), (2, 2), (4, 2), (3, 2), (2, 2, 2))
_SIZES = (1, 100, 4096, 100_003, 1 << 20, 1 << 24)
_HOST, _COMPUTE, _MESSAGES, _GROUPS = 1, 2, 3, 10  # lanes


def draw(seed: int, *, possible: bool = True) -> Program:
    """Return the program of *seed*; unless *possible*, two ranks wait for two operations in opposite orders.

    ``npus_count``, ``topology``, ``groups``, ``queues`` and ``rendezvous`` are the engine's settings of these
    names; ``ranks`` contains a list of nodes per rank, and ``inverted`` the names of the added nodes.
    """
    return _Drawing(seed).draw(possible=possible)


def configure(program: Program, network: str = NETWORKS[0], **settings: Any) -> engine.Config:
    """Return the engine's configuration for *program* on the default system; *settings* override."""
    config = engine.Config()
    dimensions = len(program["npus_count"])
    chosen = {
        "npus_count": program["npus_count"],
        "topology": program["topology"],
        "bandwidth": [10.0] * dimensions,
        "latency": [500.0] * dimensions,
        "network_model": getattr(engine.NetworkModel, network.removeprefix("analytical-").upper()),
        "groups": program["groups"],
        "num_queues_per_dim": program["queues"],
        "rendezvous": program["rendezvous"],
        "semantics": "trace",
        "native_collectives": True,
    }
    for key, value in SYSTEM.items():
        chosen[key.replace("-", "_")] = value * dimensions if isinstance(value, list) else value
    for name, value in (chosen | settings).items():
        setattr(config, name, value)
    return config


def simulate(program: Program, network: str = NETWORKS[0], **settings: Any) -> Any:
    """Return the engine's output for *program*."""
    programs = [et.program(nodes) for nodes in program["ranks"]]
    return engine.simulate(configure(program, network, **settings), programs, range(len(programs)))


class _Drawing:
    """A program during its construction: the nodes of each rank, and possible dependencies."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.seed = seed
        self.counts = list(random.choice(_SHAPES))
        self.size = math.prod(self.counts)
        self.groups = self._draw_groups()
        self.extra_groups: dict[int, list[int]] = {}  # names of operations that make the program infeasible
        self.nodes: list[list[Node]] = [[] for _ in range(self.size)]
        # A host thread that launches and waits, as in a capture, or a graph of data flow alone.
        self.hosted = random.random() < 0.6
        self.host: list[int | None] = [None] * self.size
        self.running: list[list[int]] = [[] for _ in range(self.size)]
        self.last: dict[tuple[int, Any], int] = {}
        self.tags = itertools.count(1)
        self.names = itertools.count()

    def draw(self, *, possible: bool) -> Program:
        random = self.random
        length = random.randint(4, 24)
        inverted_at = Random(self.seed + 1).randrange(length)
        inverted: list[str] = []
        for place in range(length):
            if place == inverted_at and not possible:
                inverted = self._invert(Random(self.seed + 2))
            action = random.choices((self._compute, self._collective, self._message), (2, 6, 2))[0]
            action()
        for rank in range(self.size):
            self._compute_on(rank, 100)
        if not self.hosted and random.random() < 0.5:
            self._renumber()
        return {
            "seed": self.seed,
            "npus_count": self.counts,
            "topology": [random.choice(("Ring", "FullyConnected", "Switch")) for _ in self.counts],
            "groups": self.groups | self.extra_groups,
            "queues": random.choice((1, 1, 1, 2)),
            "rendezvous": random.random() < 0.1,
            "ranks": self.nodes,
            "inverted": inverted,
        }

    def _draw_groups(self) -> dict[int, list[int]]:
        """Return process groups: rows and columns of the mesh, odd and even ranks, and random ranks."""
        ranks = list(range(self.size))
        found = [ranks[::2], ranks[1::2]]
        stride = 1
        for count in self.counts if len(self.counts) > 1 else ():
            starts = [rank for rank in ranks if rank // stride % count == 0]
            found += [[start + stride * step for step in range(count)] for start in starts]
            stride *= count
        found += [self.random.sample(ranks, self.random.randint(2, self.size)) for _ in range(3)]
        return {number: members for number, members in enumerate(found, 1) if len(members) > 1}

    def _add(self, rank: int, lane: int, parents: Sequence[int | None], **facts: Any) -> int:
        nodes = self.nodes[rank]
        chosen = sorted({parent for parent in parents if parent is not None})
        nodes.append(
            {"id": len(nodes), "name": f"n{len(nodes)}", "stream": lane, "data_deps": chosen} | facts
        )
        return len(nodes) - 1

    def _before(self, rank: int) -> list[int | None]:
        """Return the dependencies of a new operation of *rank*: the host's launch, or some earlier nodes."""
        if not self.hosted:
            earlier = len(self.nodes[rank])
            return list(self.random.sample(range(earlier), min(earlier, self.random.choice((0, 1, 1, 2)))))
        facts = {"type": "COMP", "is_cpu_op": True, "duration_ns": self.random.randrange(1, 20_000)}
        waits: list[int | None] = [self.host[rank]]
        if self.running[rank] and self.random.random() < 0.3:
            waits += self.random.sample(self.running[rank], 1)
        self.host[rank] = self._add(rank, _HOST, waits, **facts)
        return [self.host[rank]]

    def _communicate(self, rank: int, lane: int, key: Any, *, wait: bool = False, **facts: Any) -> int:
        """Add communication; operations of one *key* stay in order."""
        parents = [*self._before(rank), self.last.get((rank, key))]
        node = self._add(rank, lane, parents, **facts)
        self.last[rank, key] = node
        self.running[rank].append(node)
        if wait:
            self._wait(rank, node)
        return node

    def _wait(self, rank: int, node: int) -> None:
        facts = {"type": "COMP", "is_cpu_op": True, "duration_ns": 10}
        self.host[rank] = self._add(rank, _HOST, [self.host[rank], node], **facts)

    def _compute_on(self, rank: int, most_ns: int) -> None:
        facts = {"type": "COMP", "duration_ns": self.random.randrange(1, most_ns)}
        self._add(rank, _COMPUTE, self._before(rank), **facts)

    def _compute(self) -> None:
        for rank in range(self.size):
            if self.random.random() < 0.6:
                self._compute_on(rank, 2_000_000)

    def _collective(self) -> None:
        random = self.random
        group = random.choice((0, 0, *self.groups))
        members = self.groups.get(group, range(self.size))
        kind = random.choice(_KINDS)
        facts = {"type": "COLL", "comm_type": kind, "comm_size": random.choice(_SIZES), "pg_name": str(group)}
        if kind in {"BROADCAST", "REDUCE"}:
            facts["comm_src"] = random.choice(members)
        name = f"{kind.lower()} {next(self.names)}"
        rows = self._splits(kind, len(members)) if random.random() < 0.4 else []
        # Without edges, operations of one lane may begin in any order.
        lane = _GROUPS + group if self.hosted or random.random() < 0.5 else _GROUPS
        for place, rank in random.sample([*enumerate(members)], len(members)):
            if rows:
                size = rows[place][0] if kind == "ALL_GATHER" else sum(rows[place])
                facts |= {"comm_splits": rows[place], "comm_size": size}
            self._communicate(rank, lane, group, wait=random.random() < 0.25, name=name, **facts)

    def _splits(self, kind: str, members: int) -> list[list[int]]:
        """Return the bytes of each member for each other member, if the collective may be uneven."""
        rows = [[self.random.choice((0, 1, *_SIZES)) for _ in range(members)] for _ in range(members)]
        uneven = {
            "ALL_TO_ALL": rows,
            "ALL_GATHER": [[row[0]] * members for row in rows],
            "REDUCE_SCATTER": [rows[0]] * members,
        }
        return uneven.get(kind, [])

    def _message(self) -> None:
        random = self.random
        for _ in range(random.choice((1, 1, 2, 4))):
            source, target = random.sample(range(self.size), 2)
            self._send(source, target, random.choice(_SIZES), wait=random.random() < 0.3)

    def _send(self, source: int, target: int, size: int, *, wait: bool) -> None:
        message = {"comm_src": source, "comm_dst": target, "comm_tag": next(self.tags), "comm_size": size}
        name = f"message {next(self.names)}"
        self._communicate(source, _MESSAGES, "send", name=name, type="SEND", **message)
        self._communicate(target, _MESSAGES, "recv", wait=wait, name=name, type="RECV", **message)

    def _invert(self, chance: Random) -> list[str]:
        """Let two ranks wait for two operations in opposite order, which is a deadlock."""
        first, second = chance.sample(range(self.size), 2)
        operations = [self._inverted(chance, first, second, end) for end in ("first", "second")]
        for rank, order in ((first, operations), (second, operations[::-1])):
            before = self._before(rank)
            for lane, parts in order:
                node = self._add(rank, lane, before, **parts[rank])
                facts = {"type": "COMP", "is_cpu_op": True, "duration_ns": 10}
                self.host[rank] = self._add(rank, _HOST, [*before, node], **facts)
                before = [self.host[rank]]
        for lane, parts in operations:
            for rank in parts.keys() - {first, second}:
                self._add(rank, lane, self._before(rank), **parts[rank])
        return [f"inverted {end}" for end in ("first", "second")]

    def _inverted(self, chance: Random, first: int, second: int, end: str) -> tuple[int, dict[int, Node]]:
        """Return the lane and the nodes of an operation for which both ranks wait."""
        name = f"inverted {end}"
        if chance.random() < 0.5:  # the rank that begins the operation later sends
            source, target = (second, first) if end == "first" else (first, second)
            message = {"comm_src": source, "comm_dst": target, "comm_tag": next(self.tags), "comm_size": 64}
            kinds = {source: "SEND", target: "RECV"}
            return _MESSAGES, {rank: {"name": name, "type": kind} | message for rank, kind in kinds.items()}
        group = 100 + len(self.extra_groups)
        others = [rank for rank in range(self.size) if rank not in {first, second}]
        members = [first, second, *chance.sample(others, chance.randint(0, len(others)))]
        self.extra_groups[group] = members
        facts = {"type": "COLL", "comm_type": "ALL_REDUCE", "comm_size": 4096, "pg_name": str(group)}
        return _GROUPS + group, {rank: {"name": name} | facts for rank in members}

    def _renumber(self) -> None:
        """Shuffle the ids of the nodes, so that they do not reveal the order."""
        for rank, nodes in enumerate(self.nodes):
            ids = Random(self.seed * 1000 + rank).sample(range(len(nodes)), len(nodes))
            for node in nodes:
                node["id"] = ids[node["id"]]
                node["data_deps"] = sorted(ids[parent] for parent in node["data_deps"])


def judge(seed: int, counts: Counter[str]) -> None:
    """Count the outcomes of the program of *seed* and of the infeasible program on each network."""
    possible, impossible = draw(seed), draw(seed, possible=False)
    for network in NETWORKS:
        output = simulate(possible, network)
        counts["possible"] += 1
        counts[f"overtaking {output.overtaking}"] += 1
        if output.unfinished:
            counts["stalled"] += 1
            print(f"seed {seed} stalls on {network}: {output.unfinished[0]}")
        output = simulate(impossible, network)
        counts["impossible"] += 1
        names = {step["name"] for step in output.deadlock}
        if not names & set(impossible["inverted"]):
            counts["not diagnosed"] += 1
            print(f"seed {seed} made impossible is not diagnosed on {network}: {output.deadlock}")


def main() -> int:
    """Judge the programs of seeds 0 to N - 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", type=int, metavar="N")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    begun = time.perf_counter()
    for seed in range(options.first, options.first + options.programs):
        judge(seed, counts)
    for name, count in sorted(counts.items()):
        print(f"{name:>16}: {count}")
    print(f"{time.perf_counter() - begun:.1f} s")
    return 1 if counts["stalled"] or counts["not diagnosed"] else 0


if __name__ == "__main__":
    sys.exit(main())
