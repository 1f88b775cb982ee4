"""Draw random ASTRA-sim experiments from seeds and write them as ASTRA-sim's input files.

An experiment can be written as JSON. ``network``, ``system`` and ``memory`` contain the files with these
names. ``groups`` contains the communicator groups, ``options`` the command-line options, and ``workload`` a
list of nodes per rank. ``custom`` contains a list of nodes per rank for the prefix of each custom algorithm,
and ``per_node`` the custom algorithms of single nodes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "engine"))
import et  # the tests' encoder, which also encodes invalid nodes

__all__ = ["command_options", "draw", "et", "features", "write"]

Experiment = dict[str, Any]

COLLECTIVES = ("ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER", "ALL_TO_ALL")
_SIZES = (0, 1, 7, 100, 1001, 4096, 65_536, 100_003, 1 << 20, 3_000_001, 1 << 24)


def draw(seed: int) -> Experiment:
    """Return the experiment of *seed*; the same seed gives the same experiment."""
    random = Random(seed)
    network = _network(random)
    ranks = math.prod(network["npus_count"])
    experiment: Experiment = {"seed": seed, "network": network, "options": _options(random)}
    experiment["memory"] = _memory(random)
    experiment["groups"] = {}
    experiment["custom"], experiment["per_node"] = {}, {}
    experiment["system"] = system = _system(random, network)
    if system["preferred-dataset-splits"] == 1 and random.random() < 0.45:
        _add_custom(random, experiment, ranks)
    experiment["workload"] = _Workload(random, experiment, ranks).draw()
    return experiment


def write(experiment: Experiment, folder: Path) -> None:
    """Write the input files of *experiment* to *folder*."""
    for rank, nodes in enumerate(experiment["workload"]):
        (folder / f"workload.{rank}.et").write_bytes(et.program(nodes))
    for prefix, programs in experiment["custom"].items():
        for position, nodes in enumerate(programs):
            (folder / f"{prefix}.{position}.et").write_bytes(et.program(nodes))
    if experiment["per_node"]:
        pairs = {int(node): prefix for node, prefix in experiment["per_node"].items()}
        (folder / "per_node.yml").write_text(yaml.safe_dump(pairs))
    if experiment["groups"]:
        (folder / "groups.json").write_text(json.dumps(experiment["groups"]))
    (folder / "network.yml").write_text(yaml.safe_dump(experiment["network"]))
    (folder / "system.json").write_text(json.dumps(experiment["system"], indent=1))
    (folder / "memory.json").write_text(json.dumps(experiment["memory"]))


def command_options(experiment: Experiment) -> list[str]:
    """Return the options of the experiment for ASTRA-sim's command line."""
    options = experiment["options"]
    return [
        f"--num-queues-per-dim={options['num_queues_per_dim']}",
        f"--injection-scale={options['injection_scale']}",
        *(["--rendezvous-protocol=true"] if options["rendezvous"] else []),
    ]


def features(experiment: Experiment) -> set[str]:
    """Return the names of the features of *experiment*, to measure coverage."""
    network, system, options = experiment["network"], experiment["system"], experiment["options"]
    nodes = [node for program in experiment["workload"] for node in program]
    found = {f"dimensions: {len(network['topology'])}"}
    found |= {f"topology: {name}" for name in network["topology"]}
    found |= {f"node: {node['type']}" for node in nodes if node["type"] != "COLL"}
    used = {node["comm_type"] for node in nodes if node["type"] == "COLL"}
    found |= {f"collective: {name}" for name in used}
    for kind in used & set(COLLECTIVES):
        names = system.get(_key(kind), [])
        found |= {f"algorithm: {name.rstrip('0123456789')}" for name in names}
        found |= {"algorithm: direct with a window" for name in names if name[-1].isdigit()}
    conditions = {
        "custom collectives": experiment["custom"],
        "custom collectives of single nodes": experiment["per_node"],
        "groups": experiment["groups"],
        "involved_dim": any("involved_dim" in node for node in nodes),
        "CPU nodes": any(node.get("is_cpu_op") for node in nodes),
        "rendezvous": options["rendezvous"],
        "queues per dimension > 1": options["num_queues_per_dim"] > 1,
        "injection scale": options["injection_scale"] != 1,
        "chunks > 1": system["preferred-dataset-splits"] > 1,
        "active chunks > 1": system.get("active-chunks-per-dimension", 1) > 1,
        "shared bus": system.get("model-shared-bus"),
        "roofline": system.get("roofline-enabled"),
        "replay only": system.get("replay-only"),
        "local bandwidth aware": system["collective-optimization"] == "localBWAware",
        f"memory: {experiment['memory']['memory-type']}": any(n["type"].startswith("MEM_") for n in nodes),
    }
    return found | {name for name, holds in conditions.items() if holds}


def _key(kind: str) -> str:
    return f"{kind.lower().replace('_', '-')}-implementation"


def _network(random: Random) -> dict[str, list[Any]]:
    dimensions = random.choices((1, 2, 3, 4), (60, 22, 12, 6))[0]
    while True:
        choices = (2, 3, 4, 5, 6, 7, 8, 8, 9, 16, 4) if dimensions == 1 else (2, 2, 3, 4, 4, 5, 8)
        counts = [random.choice(choices) for _ in range(dimensions)]
        if math.prod(counts) <= 36:
            break
    return {
        "topology": [random.choice(("Ring", "FullyConnected", "Switch")) for _ in counts],
        "npus_count": counts,
        "bandwidth": [random.choice((1.0, 12.5, 50.0, 450.0, random.uniform(0.5, 900))) for _ in counts],
        "latency": [random.choice((0.0, 1.0, 500.0, 0.5, 33.3, random.uniform(0, 3000))) for _ in counts],
    }


def _options(random: Random) -> dict[str, Any]:
    return {
        "num_queues_per_dim": random.choices((1, 2, 3, 4, 5), (70, 10, 8, 8, 4))[0],
        "injection_scale": random.choices((1.0, 0.5, 2.0, 1.7, 0.33), (70, 8, 8, 7, 7))[0],
        "rendezvous": random.random() < 0.15,
    }


def _memory(random: Random) -> dict[str, Any]:
    return {
        "memory-type": random.choice(("PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL")),
        "remote-mem-latency": random.choice((0, 1, 100, 2500)),
        "remote-mem-bw": random.choice((0, 1, 25, 100, 33.7)),
    }


def _system(random: Random, network: dict[str, list[Any]]) -> dict[str, Any]:
    system: dict[str, Any] = {
        "scheduling-policy": random.choice(("LIFO", "FIFO", "EXPLICIT")),
        "collective-optimization": random.choice(("baseline", "localBWAware")),
        "preferred-dataset-splits": random.choice((1, 1, 2, 3, 4, 7, 8)),
        "local-mem-bw": random.choice((50, 1600, 0.7, 333.3, random.uniform(1, 3000))),
    }
    if random.random() < 0.9:
        system["active-chunks-per-dimension"] = random.choice((1, 1, 2, 3, 5, 8))
    if random.random() < 0.9:
        system["endpoint-delay"] = random.choice((4, 5, 10, 37, 1000))
    if random.random() < 0.25:
        system |= {"roofline-enabled": 1, "peak-perf": random.choice((1, 120, 900.5, 0.01))}
    if random.random() < 0.04:
        system["replay-only"] = 1
    if random.random() < 0.12:
        system |= {"model-shared-bus": 1, "L": random.choice((0, 3, 250)), "o": random.choice((1, 10))}
        system |= {"g": random.choice((0, 7)), "G": random.choice((0, 0.0038, 0.05))}
        system["local-reduction-delay"] = random.choice((0, 1, 20))
    for kind in COLLECTIVES:
        system[_key(kind)] = _implementation(random, kind, network["npus_count"])
    return system


def _implementation(random: Random, kind: str, counts: Sequence[int]) -> list[str]:
    names = [_algorithm(random, kind, count) for count in counts]
    ranks = math.prod(counts)
    if random.random() < 0.1:
        place = random.randrange(len(counts))
        one = _algorithm(random, kind, ranks, trees=False)
        return [*names[:place], f"one{one[0].upper()}{one[1:]}"]
    if len(names) > 1 and random.random() < 0.08 and "doubleBinaryTree" not in names:
        return names[: random.randrange(1, len(names))]
    return names


def _algorithm(random: Random, kind: str, members: int, *, trees: bool = True) -> str:
    names = ["ring", "ring", "direct", f"direct{random.randrange(1, members + 2)}"]
    even = _is_power(members)
    if (even or random.random() < 0.03) and kind != "ALL_TO_ALL":
        names.append("halvingDoubling")
    if even and trees:
        names.append("doubleBinaryTree")
    return random.choice(names)


def _is_power(members: int) -> bool:
    return members & (members - 1) == 0


def _add_custom(random: Random, experiment: Experiment, ranks: int) -> None:
    """Give some kinds of collectives, or some nodes, custom algorithms."""
    members = ranks
    divisors = [size for size in range(2, ranks) if ranks % size == 0]
    if divisors and random.random() < 0.3:
        members = random.choice(divisors)
    experiment["custom_members"] = members
    for kind in random.sample(COLLECTIVES, random.randint(1, 4)):
        prefix = f"algorithm_{kind.lower()}"
        experiment["custom"][prefix] = _custom_programs(random, members)
        experiment["system"][f"{_key(kind)}-custom"] = [prefix]
    if random.random() < 0.4:
        experiment["custom"]["single"] = _custom_programs(random, members)


def _custom_programs(random: Random, members: int) -> list[list[dict[str, Any]]]:
    """Return a program per member; nodes depend only on earlier nodes, which excludes cycles."""
    programs: list[list[dict[str, Any]]] = [[] for _ in range(members)]
    gap = random.choice((1, 1, 3, 17, 1_000_003))

    def add(member: int, **facts: Any) -> None:
        program = programs[member]
        chosen = random.sample(program, min(len(program), random.choice((0, 1, 1, 2, 3))))
        node_id = len(program) * gap
        program.append({"id": node_id, "data_deps": [node["id"] for node in chosen]} | facts)

    for tag in range(random.randint(members, 5 * members)):
        source, target = random.sample(range(members), 2)
        message = {"comm_size": random.choice((1, 64, 5000, 1 << 18)), "comm_tag": tag % 7}
        add(source, type="SEND", name=f"send {tag}", comm_dst=target, **message)
        add(target, type="RECV", name=f"recv {tag}", comm_src=source, **message)
        if random.random() < 0.3:
            add(source, type="COMP", name=f"reduce {tag}", duration_micros=random.randrange(4))
    for member, program in enumerate(programs):
        if not program:
            add(member, type="COMP", name="nothing", duration_micros=1)
    return programs


class _Workload:
    """The programs of all ranks, drawn as one list of actions that each add nodes to some ranks."""

    def __init__(self, random: Random, experiment: Experiment, ranks: int) -> None:
        self.random = random
        self.experiment = experiment
        self.ranks = range(ranks)
        self.programs: list[list[dict[str, Any]]] = [[] for _ in self.ranks]
        self.next_id = random.choice((0, 0, 1, 1000, 10**12))
        self.gap = random.choice((1, 1, 2, 13))
        self.chained = random.random() < 0.85
        self.alike = random.random() < 0.5
        self.symmetric = self.alike and random.random() < 0.7
        self.last: dict[int, int] = {}

    def draw(self) -> list[list[dict[str, Any]]]:
        """Return the programs of all ranks."""
        random = self.random
        custom = self.experiment.get("custom_members", len(self.ranks))
        collective = self._world if custom == len(self.ranks) else self._partition
        actions: list[tuple[float, Callable[[], None]]] = [
            (5, self._compute),
            (8, collective),
            (2.5, self._partition if not self.experiment["custom"] else collective),
            (random.choice((0, 3)), self._messages),
            (random.choice((0, 0, 0, 2)), self._memory),
            (random.choice((0, 0, 0, 2)), self._cpu),
            (0.3, self._broadcast),
            (random.choice((0,) * 9 + (2,)), self._subgroup if not self.experiment["custom"] else collective),
            (random.choice((0,) * 19 + (1,)), self._odd),
        ]
        weights, functions = zip(*actions, strict=True)
        for function in random.choices(functions, weights, k=random.choice((1, 2, 4, 6, 10, 16))):
            function()
        self._close()
        if random.random() < 0.15:
            for program in self.programs:
                random.shuffle(program)
        return self.programs

    def _add(self, rank: int, node_id: int, *, comm: bool = False, **facts: Any) -> None:
        """Append a node; in a chained workload, communication follows the last communication of the rank."""
        random = Random(node_id) if self.alike else self.random
        program = self.programs[rank]
        count = min(len(program), random.choice((0, 1, 1, 2, 3)))
        parents = {node["id"] for node in random.sample(program, count)}
        if comm and self.chained and rank in self.last:
            parents.add(self.last[rank])
        if comm:
            self.last[rank] = node_id
        control = [parent for parent in sorted(parents) if random.random() < 0.3]
        data = [parent for parent in sorted(parents) if parent not in control]
        dependencies = {"data_deps": data, "ctrl_deps": control}
        program.append({"id": node_id, "name": f"n{node_id}"} | dependencies | facts)

    def _new_id(self) -> int:
        self.next_id += self.gap
        return self.next_id

    def _each(self, chance: float) -> list[int]:
        if self.symmetric or self.random.random() < 0.7:
            return list(self.ranks)
        return [rank for rank in self.ranks if self.random.random() < chance]

    def _compute(self) -> None:
        random, node_id = self.random, self._new_id()
        base = random.randrange(60)
        work: dict[str, Any] = {
            "num_ops": random.choice((1, 1000, 10**9, 3 * 10**11)),
            "tensor_size": random.choice((1, 4096, 10**7)),
        }
        if random.random() < 0.02:
            work["tensor_size"] = 0
        for rank in self._each(0.6):
            micros = base if self.alike else random.randrange(60)
            self._add(rank, node_id, type="COMP", duration_micros=micros, **work)

    def _cpu(self) -> None:
        node_id = self._new_id()
        for rank in self._each(0.5):
            micros = self.random.randrange(30)
            self._add(rank, node_id, type="COMP", duration_micros=micros, is_cpu_op=True)

    def _collective(self, members: int = 0) -> dict[str, Any]:
        """Return a collective, for a group if *members* is its size."""
        random = self.random
        allowed = [kind for kind in COLLECTIVES if not members or self._fits(kind, members)]
        kind = random.choice(allowed if allowed and random.random() < 0.97 else COLLECTIVES)
        size = random.choice((*_SIZES, random.randrange(1 << 22)))
        if random.random() < 0.02:
            size = 5_000_000_007
        if kind == "ALL_GATHER":
            size = max(size, self.experiment["system"]["preferred-dataset-splits"])
        facts = {"type": "COLL", "comm_type": kind, "comm_size": size, "comm_priority": random.randrange(3)}
        return facts | {"duration_micros": random.randrange(50)}

    def _fits(self, kind: str, members: int) -> bool:
        """Return whether ASTRA-sim can run *kind* in a group: trees crash there, other algorithms stall."""
        names = self.experiment["system"][_key(kind)]
        if len(names) > 1 or members == len(self.ranks):
            return True
        return "oubleBinaryTree" not in names[0] and ("alvingDoubling" not in names[0] or _is_power(members))

    def _world(self) -> None:
        node_id, facts = self._new_id(), self._collective()
        counts = self.experiment["network"]["npus_count"]
        if self.random.random() < 0.08:
            involved = [self.random.random() < 0.7 for _ in counts]
            involved[self.random.randrange(len(counts))] = True
            facts["involved_dim"] = [*involved, True, True, True][: max(4, len(counts))]
        if "single" in self.experiment["custom"] and self.random.random() < 0.4:
            self.experiment["per_node"][str(node_id)] = "single"
            self.experiment["system"]["per-node-custom-implementation"] = "per_node.yml"
        for rank in self.ranks:
            self._add(rank, node_id, comm=True, **facts)

    def _group(self, members: Sequence[int]) -> str:
        groups = self.experiment["groups"]
        for name, listed in groups.items():
            if sorted(listed) == sorted(members):
                return str(name)
        name = str(len(groups) + 1)
        order = list(members)
        if not self.experiment["custom"] and self.random.random() < 0.5:
            self.random.shuffle(order)
        groups[name] = order
        return name

    def _partition(self) -> None:
        """Add a collective in each group of a partition of the ranks."""
        total = len(self.ranks)
        sizes = [size for size in range(2, total + 1) if total % size == 0]
        size = self.experiment.get("custom_members") or self.random.choice(sizes)
        pool = list(self.ranks)
        if not self.symmetric and self.random.random() < 0.4:
            self.random.shuffle(pool)
        stride = self.random.choice((1, total // size)) if not self.experiment["custom"] else 1
        node_id, facts = self._new_id(), self._collective(size)
        for index in range(total // size):
            members = pool[index * size : (index + 1) * size] if stride == 1 else pool[index::stride]
            name = self._group(sorted(members))
            for rank in members:
                self._add(rank, node_id, comm=True, pg_name=name, **facts)

    def _subgroup(self) -> None:
        """Add a collective of some ranks, so that a later collective of all ranks never ends."""
        members = self.random.sample(self.ranks, self.random.randint(2, len(self.ranks)))
        name, node_id = self._group(sorted(members)), self._new_id()
        facts = self._collective(len(members))
        for rank in members:
            self._add(rank, node_id, comm=True, pg_name=name, **facts)

    def _messages(self) -> None:
        random, total = self.random, len(self.ranks)
        shift = random.randrange(1, total)
        pairs = [(rank, (rank + shift) % total) for rank in self.ranks]
        if not self.symmetric and random.random() < 0.6:
            pairs = random.sample(pairs, random.randint(1, len(pairs)))
        tag = random.choice((0, 1, 1, 2, 500_000_001))
        size = random.choices((1, 1000, 65_536, 1 << 22, 5_000_000_007), (8, 8, 8, 8, 1))[0]
        send_id, recv_id = self._new_id(), self._new_id()
        messages: list[dict[str, Any]] = [
            {"comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size}
            for source, target in pairs
        ]
        for message in messages:
            self._add(message["comm_src"], send_id, comm=True, type="SEND", **message)
        for message in messages:
            self._add(message["comm_dst"], recv_id, type="RECV", **message)

    def _memory(self) -> None:
        kind, node_id = self.random.choice(("MEM_LOAD", "MEM_STORE")), self._new_id()
        size = self.random.choice((1, 1000, 10**6))
        for rank in self._each(0.5):
            self._add(rank, node_id, comm=True, type=kind, tensor_size=size)

    def _broadcast(self) -> None:
        node_id, micros = self._new_id(), self.random.randrange(30)
        facts = {"type": "COLL", "comm_type": "BROADCAST", "comm_size": 1000, "duration_micros": micros}
        for rank in self.ranks:
            self._add(rank, node_id, comm=True, **facts)

    def _odd(self) -> None:
        """Add nodes that ASTRA-sim refuses or never finishes, such as collectives without an algorithm."""
        node_id = self._new_id()
        kinds = ("REDUCE", "GATHER", "SCATTER", "BARRIER")
        odd: list[dict[str, Any]] = [{"type": "INVALID"}, {"type": "METADATA"}]
        odd += [{"type": "COLL", "comm_type": kind, "comm_size": 1000} for kind in kinds]
        facts = self.random.choice(odd)
        for rank in self.ranks:
            self._add(rank, node_id, **facts)

    def _close(self) -> None:
        """Give every rank a node. A rank whose statistics ASTRA-sim cannot print ends with a computation."""
        node_id = self._new_id()
        plain = self.random.random() < 0.1
        work = {"type": "COMP", "duration_micros": 1, "num_ops": 1000, "tensor_size": 4096}
        for program in self.programs:
            special = any(node.get("is_cpu_op") or node["type"].startswith("MEM_") for node in program)
            if not program or (special and not plain):
                everything = [node["id"] for node in program]
                program.append({"id": node_id, "name": "end", "data_deps": everything} | work)
