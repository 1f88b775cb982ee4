"""Compare the packet-level backend with real ASTRA-sim's ns-3 on random experiments, by hand.

Example: ``ASTRA_SIM_HOME=~/astra-sim python benchmarks/packet_fuzz.py --count 120 --json packet_level.json``.
Each seed determines a network (star, ring of switches, two tiers, two interfaces per host, fast groups of
hosts), its settings, a congestion control and a workload. Both simulators run the experiment with ASTRA-sim's
clock of 1 ns, and the finish times of ranks and the mean completion times of messages are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import NetworkConfig, Result, SystemConfig, prepare
from chakrascope.runner.backends import packet_backend
from chakrascope.runner.backends.astra_sim import AstraSimBackend
from chakrascope.runner.config import PacketPart

CONTROLS = {12: "none", 1: "DCQCN", 3: "HPCC", 7: "TIMELY", 8: "DCTCP", 10: "HPCC-PINT"}
GBPS = 10**9
LIMIT_S = 240.0
# Maximum number of packets times hops, so that ASTRA-sim takes less than about half a minute.
WORK = 250_000

Links = list[tuple[int, int, int, int]]


def draw(seed: int, control: int | None = None) -> dict[str, Any]:
    """Return the experiment of *seed*: its network, system, workload and description."""
    chance = random.Random(seed)
    mode = control if control is not None else chance.choice(list(CONTROLS))
    shape = chance.choice(list(SHAPES))
    hosts, switches, links = SHAPES[shape](chance)
    packet = _settings(chance, mode, links, hosts)
    packet |= {"nodes": hosts + switches, "switches": list(range(hosts, hosts + switches))}
    packet["links"] = [[a, b, f"{rate}bps", f"{delay}ns", 0] for a, b, rate, delay in links]
    pattern, workload = _workload(chance, hosts)
    return {
        "seed": seed,
        "control": mode,
        "words": f"{shape}-{hosts} {pattern}",
        "network": NetworkConfig(
            ("Switch",), (hosts,), (50.0,), (500.0,), packet=PacketPart.from_mapping(packet)
        ),
        "system": _system(chance, hosts),
        "workload": workload,
    }


def _star(chance: random.Random) -> tuple[int, int, Links]:
    hosts = chance.choice((2, 3, 4, 6, 8, 12, 16))
    rate, delay = _link(chance)
    return hosts, 1, [(host, hosts, rate, delay) for host in range(hosts)]


def _uneven_star(chance: random.Random) -> tuple[int, int, Links]:
    hosts = chance.choice((3, 4, 6, 8))
    return hosts, 1, [(host, hosts, *_link(chance)) for host in range(hosts)]


def _ring(chance: random.Random) -> tuple[int, int, Links]:
    hosts = chance.choice((4, 5, 8))
    rate, delay = _link(chance)
    links = [(host, hosts + host, rate, delay) for host in range(hosts)]
    return hosts, hosts, links + [(hosts + i, hosts + (i + 1) % hosts, rate, delay) for i in range(hosts)]


def _two_tiers(chance: random.Random) -> tuple[int, int, Links]:
    leaves, each, spines = chance.choice((2, 3, 4)), chance.choice((2, 4)), chance.choice((1, 2, 4))
    hosts = leaves * each
    rate, delay = _link(chance)
    links = [(host, hosts + host // each, rate, delay) for host in range(hosts)]
    links += [
        (hosts + leaf, hosts + leaves + spine, rate, delay)
        for leaf in range(leaves)
        for spine in range(spines)
    ]
    return hosts, leaves + spines, links


def _dumbbell(chance: random.Random) -> tuple[int, int, Links]:
    each = chance.choice((2, 4))
    rate, delay = _link(chance)
    links = [(host, 2 * each + host // each, rate, delay) for host in range(2 * each)]
    return 2 * each, 2, [*links, (2 * each, 2 * each + 1, rate, delay)]


def _two_interfaces(chance: random.Random) -> tuple[int, int, Links]:
    hosts = chance.choice((4, 6, 8))
    rate, delay = _link(chance)
    return hosts, 2, [(host, hosts + plane, rate, delay) for host in range(hosts) for plane in (0, 1)]


def _fast_groups(chance: random.Random) -> tuple[int, int, Links]:
    groups, each = 2, chance.choice((2, 4))
    hosts = groups * each
    rate, delay = _link(chance)
    links = [(host, hosts + host // each, 2400 * GBPS, 150) for host in range(hosts)]
    return hosts, groups + 1, links + [(host, hosts + groups, rate, delay) for host in range(hosts)]


SHAPES: dict[str, Callable[[random.Random], tuple[int, int, Links]]] = {
    "star": _star,
    "uneven-star": _uneven_star,
    "ring": _ring,
    "two-tiers": _two_tiers,
    "dumbbell": _dumbbell,
    "two-interfaces": _two_interfaces,
    "fast-groups": _fast_groups,
}


def _link(chance: random.Random) -> tuple[int, int]:
    """Return the rate (bit/s) and the delay (ns) of a random link."""
    return chance.choice((25, 50, 100, 200, 400)) * GBPS, chance.choice((100, 500, 1000, 2000))


def _settings(chance: random.Random, mode: int, links: Links, hosts: int) -> dict[str, Any]:
    """Return settings with small and large thresholds and buffers, so that queues fill."""
    headroom = chance.choice((1, 3))
    smallest = _smallest_buffer_mib(links, hosts, headroom)
    low = chance.choice((20, 100, 400))
    rates = {rate for _, _, rate, _ in links}
    marks: dict[str, Any] = {
        "KMIN_MAP": dict.fromkeys(rates, low),
        "KMAX_MAP": dict.fromkeys(rates, low * chance.choice((2, 4))),
        "PMAX_MAP": dict.fromkeys(rates, chance.choice((0.01, 0.2, 1))),
    }
    return marks | {
        "ASTRA_SIM_CLOCK": 1,
        "CC_MODE": mode,
        "ALPHA_RESUME_INTERVAL": chance.choice((1, 55)),
        "BUFFER_SIZE": chance.choice((smallest, smallest, 16 + smallest, 32 + smallest)),
        "CLAMP_TARGET_RATE": chance.choice((0, 1)),
        "EWMA_GAIN": chance.choice((0.00390625, 0.0625)),
        "FAST_RECOVERY_TIMES": chance.choice((1, 5)),
        "FAST_REACT": chance.choice((0, 1)),
        "GLOBAL_T": chance.choice((0, 1)),
        "HEADROOM_FACTOR": headroom,
        "L2_ACK_INTERVAL": 1,
        "L2_CHUNK_SIZE": 4000,
        "MI_THRESH": chance.choice((0, 5)),
        "MULTI_RATE": chance.choice((0, 1)),
        "PACKET_PAYLOAD_SIZE": chance.choice((1000, 1000, 1500, 4096)),
        "RATE_AI": chance.choice(("50Mb/s", "1000Mb/s")),
        "RATE_HAI": chance.choice(("100Mb/s", "5000Mb/s")),
        "RATE_DECREASE_INTERVAL": 4,
        "RP_TIMER": chance.choice((20, 55, 900)),
        "SAMPLE_FEEDBACK": chance.choice((0, 1)),
        "VAR_WIN": chance.choice((0, 1)),
        "U_TARGET": 0.95,
    }


def _smallest_buffer_mib(links: Links, hosts: int, headroom: int) -> int:
    """Return the smallest buffer in MiB that is larger than the reserve of every switch for its ports."""
    aside: dict[int, int] = {}
    for *ends, rate, delay in links:
        for node in ends:
            if node >= hosts:
                aside[node] = aside.get(node, 0) + 4096 + rate * delay // (8 * GBPS) * headroom
    return 1 + max(aside.values()) // (1 << 20)


def _system(chance: random.Random, hosts: int) -> SystemConfig:
    names = ["ring", "direct"] + (["halvingDoubling"] if hosts & (hosts - 1) == 0 else [])
    chosen = chance.choice(names)
    a2a = "direct" if chosen == "halvingDoubling" else chosen
    return SystemConfig(
        all_reduce_implementation=(chosen,),
        reduce_scatter_implementation=(chosen,),
        all_gather_implementation=(chosen,),
        all_to_all_implementation=(a2a,),
        preferred_dataset_splits=chance.choice((1, 2, 4)),
        active_chunks_per_dimension=chance.choice((1, 2)),
        endpoint_delay=10,
        local_mem_bw=chance.choice((50.0, 1600.0)),
    )


def _workload(chance: random.Random, hosts: int) -> tuple[str, Workload]:
    """Return a name and programs: consecutive collectives, an incast, or a shift."""
    pattern = chance.choice(("collectives", "collectives", "collectives", "incast", "shift"))
    size = chance.choice((3_000, 100_000, 400_000, 2_000_000))
    late = [chance.choice((0, 1, 3)) * 1000 for _ in range(hosts)]
    if pattern == "collectives":
        kinds = chance.choices(list(_KINDS), k=chance.choice((1, 1, 2)))
        size = max(hosts * 16, min(size * 4, WORK * 1000 // (hosts * 4 * len(kinds))))
        programs = [_collectives(kinds, size, delay) for delay in late]
        pattern = "+".join(kind.name.lower() for kind in kinds)
    else:
        size = min(size, WORK * 1000 // (hosts * 4))
        programs = [_messages(rank, hosts, size, delay, pattern) for rank, delay in enumerate(late)]
    graphs = tuple(
        Graph.build(rank, nodes, [(source, 1 + source, 0) for source in range(len(nodes) - 1)])
        for rank, nodes in enumerate(programs)
    )
    return f"{pattern} {size}", Workload(graphs, np.arange(hosts, dtype=np.int32), {}, {})


_KINDS = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
)


def _compute(duration_ns: int) -> dict[str, Any]:
    return {"node_id": 0, "name": "compute", "type": NodeType.COMP, "duration_ns": duration_ns}


def _collectives(kinds: list[CollectiveType], size: int, delay_ns: int) -> list[dict[str, Any]]:
    facts = {"type": NodeType.COMM_COLL, "comm_size_bytes": size, "duration_ns": 1000}
    return [
        _compute(delay_ns),
        *(
            {"node_id": place, "name": kind.name, "comm_type": kind, **facts}
            for place, kind in enumerate(kinds, 1)
        ),
    ]


def _messages(rank: int, hosts: int, size: int, delay_ns: int, pattern: str) -> list[dict[str, Any]]:
    """Return the sends of *rank*, then its receives."""
    if pattern == "incast":
        to, sources = ([] if rank == 0 else [0]), (list(range(1, hosts)) if rank == 0 else [])
    else:
        to, sources = [(rank + 1) % hosts], [(rank - 1) % hosts]
    sends = [{"type": NodeType.COMM_SEND, "comm_dst": other, "comm_tag": rank} for other in to]
    receives = [{"type": NodeType.COMM_RECV, "comm_src": other, "comm_tag": other} for other in sources]
    nodes = [node | {"name": "message", "comm_size_bytes": size} for node in (*sends, *receives)]
    return [_compute(delay_ns), *({"node_id": place, **node} for place, node in enumerate(nodes, 1))]


def compare(experiment: dict[str, Any]) -> dict[str, Any]:
    """Run the experiment on both simulators; return the differences and the CPU times."""
    ready = prepare(
        experiment["workload"], experiment["system"], experiment["network"], semantics="astra-sim"
    )
    begun = time.monotonic()
    mine = packet_backend(timeout_s=LIMIT_S).run(ready)
    middle = time.monotonic()
    theirs = AstraSimBackend("ns3", timeout_s=LIMIT_S).run(ready)
    end = time.monotonic()
    packets = theirs.provenance["packets"]
    return _deviation(mine, theirs) | {
        "messages": len(theirs.flows),
        "data_packets": mine.provenance["packets"]["data_packets"],
        "pauses": [mine.provenance["packets"]["pause_frames"], packets["pause_frames"]],
        "drops": [mine.provenance["packets"]["drops"], packets["drops"]],
        "seconds": [middle - begun, end - middle],
    }


def _deviation(mine: Result, theirs: Result) -> dict[str, Any]:
    ours, real = (result.ranks["finish_ns"].to_numpy() for result in (mine, theirs))
    means = [float((flows["end_ns"] - flows["start_ns"]).mean()) for flows in (mine.flows, theirs.flows)]
    return {
        "finish": float((np.abs(ours - real) / real).max()),
        "makespan": (mine.makespan_ns - theirs.makespan_ns) / theirs.makespan_ns,
        "completion": (means[0] - means[1]) / means[1],
        "makespan_ns": theirs.makespan_ns,
    }


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line per congestion control: numbers of experiments and equal results, and distribution."""
    for mode, name in CONTROLS.items():
        chosen = [row for row in rows if row["control"] == mode and "finish" in row]
        if not chosen:
            continue
        finish = sorted(row["finish"] for row in chosen)
        times = sorted(abs(row["completion"]) for row in chosen)
        yield (
            f"{mode:>2} {name:<10} {len(chosen):>4} experiments, {sum(d == 0 for d in finish)} equal; ranks "
            f"finish within 0.1 %: {sum(d < 0.001 for d in finish)}, 2 %: {sum(d < 0.02 for d in finish)}, "
            f"median {statistics.median(finish):.4%}, worst {finish[-1]:.3%}; mean completion: median "
            f"{statistics.median(times):.3%}, worst {times[-1]:.2%}, signed mean "
            f"{statistics.mean(row['completion'] for row in chosen):+.2%}"
        )


def main() -> int:
    """Run the given seeds and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=120, help="number of experiments")
    parser.add_argument("--control", type=int, choices=CONTROLS, help="only experiments with this CC_MODE")
    parser.add_argument("--json", type=Path, help="file for all figures")
    chosen = parser.parse_args()
    rows = []
    for seed in range(chosen.first, chosen.first + chosen.count):
        experiment = draw(seed, chosen.control)
        row = {key: experiment[key] for key in ("seed", "control", "words")}
        try:
            row |= compare(experiment)
            found = f"{row['finish']:.4%} {row['completion']:+.3%}"
        except ChakrascopeError as error:
            row["error"] = found = str(error)
        print(f"{seed}: CC {row['control']} {row['words']}: {found}", flush=True)
        rows.append(row)
        if chosen.json:
            chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n".join(summary(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
