"""The engine compared with the reference simulator, bit for bit, and with closed forms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from workloads import check_path

import build
from chakrascope.converter import Workload
from chakrascope.errors import ConfigError
from chakrascope.runner import critical_path

DATA = Path(__file__).resolve().parent.parent / "data" / "engine"
CASES = reference.load(DATA / "cases.jsonl.gz")
RANDOM = reference.load(DATA / "random.jsonl.gz")


def _runs(answer: dict) -> bool:
    return answer["exit_code"] == 0 and bool(answer["ranks"])


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_hand_made_case(case, backend, tmp_path):
    answer = case[backend]
    if not _runs(answer):
        pytest.skip("the reference simulator itself gives no answer here; see test_extensions")
    if answer["unfinished_ranks"]:
        pytest.skip("ranks never finish here; see test_stalls")
    assert reference.differences(reference.run_case(case, backend, tmp_path), answer) == []


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_random_experiments(backend, tmp_path):
    wrong = {}
    compared = 0
    for experiment in RANDOM:
        if not experiment[backend]["ok"]:
            continue
        compared += 1
        folder = tmp_path / experiment["id"]
        folder.mkdir()
        found = reference.differences(reference.run_random(experiment, backend, folder), experiment[backend])
        if found:
            wrong[experiment["id"]] = found[:3]
    assert wrong == {}
    assert compared > 50


# Collectives against their closed forms, on a network without contention.

DELAY, LATENCY, BANDWIDTH, MEMORY = 10, 500.0, 50.0, 50.0


def message(size: int, hops: int = 1) -> int:
    return int(hops * LATENCY + size / (BANDWIDTH * 1073741824 / 1e9))


def reduction(size: int) -> int:
    return 3 * int(size / (MEMORY * 1e9) * 1e9)


def simulated(kind: str, algorithm: str, ranks: int, size: int, topology: str) -> int:
    name = kind.lower() + "_implementation"
    settings = build.config(
        topology=[topology],
        npus_count=[ranks],
        local_mem_bw=MEMORY,
        endpoint_delay=DELAY,
        **{name: [algorithm]},
    )
    times = build.finish([[build.coll(0, size, comm_type=kind)]] * ranks, settings)
    assert len(set(times)) == 1
    return times[0]


@given(st.integers(2, 9), st.integers(1, 10**7))
def test_ring(ranks, size):
    size = max(size, ranks)
    part = size // ranks
    turns = ranks * (ranks - 1) // 2
    forms = {
        "ALL_REDUCE": (2 * ranks - 1) * DELAY + (ranks - 1) * (2 * message(part) + reduction(part)),
        "REDUCE_SCATTER": ranks * DELAY + (ranks - 1) * (message(part) + reduction(part)),
        "ALL_GATHER": ranks * DELAY + (ranks - 1) * message(size),
        "ALL_TO_ALL": (turns + 1) * DELAY + turns * message(part),
    }
    for kind, expected in forms.items():
        assert simulated(kind, "ring", ranks, size, "Ring") == expected


@given(st.integers(2, 9), st.integers(1, 10**7))
def test_direct(ranks, size):
    size = max(size, ranks)
    part = size // ranks
    forms = {
        "ALL_REDUCE": 3 * DELAY + 2 * message(part, 2) + reduction(part),
        "REDUCE_SCATTER": 2 * DELAY + message(part, 2) + reduction(part),
        "ALL_GATHER": 2 * DELAY + message(size, 2),
        "ALL_TO_ALL": 2 * DELAY + message(part, 2),
    }
    for kind, expected in forms.items():
        assert simulated(kind, "direct", ranks, size, "Switch") == expected


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@given(size=st.integers(16, 10**7))
def test_halving_doubling(ranks, size):
    rounds = int(math.log2(ranks))
    sizes = [size >> (i + 1) for i in range(rounds)]
    way_back = [2 * (sizes[-1] // 2) << i for i in range(rounds)] if rounds else []
    scatter = (rounds + 1) * DELAY + sum(map(message, sizes)) + sum(map(reduction, sizes[1:]))
    both = (2 * rounds + 1) * DELAY + sum(map(message, sizes + way_back)) + sum(map(reduction, sizes[1:]))
    assert simulated("REDUCE_SCATTER", "halvingDoubling", ranks, size, "FullyConnected") == scatter
    assert simulated("ALL_REDUCE", "halvingDoubling", ranks, size, "FullyConnected") == both


# The causes that the engine records form a path: contiguous, across ranks, as long as the makespan.


def check_records(result):
    """Each node starts at time 0 or exactly when its cause ends, and ends after its origin starts."""
    nodes = result.nodes
    by_node = nodes.set_index(["rank", "node_id"])
    caused = nodes[nodes.cause_node >= 0]
    causes = by_node.loc[list(zip(caused["rank"], caused.cause_node, strict=True))]
    assert (causes.end_ns.to_numpy() == caused.start_ns.to_numpy()).all()
    assert (nodes[nodes.cause_node < 0].start_ns == 0).all()
    origins = by_node.loc[list(zip(nodes.origin_rank, nodes.origin_node, strict=True))]
    assert (origins.start_ns.to_numpy() <= nodes.end_ns.to_numpy()).all()
    itself = (nodes.origin_rank == nodes["rank"]) & (nodes.origin_node == nodes.node_id)
    assert (origins.start_ns.to_numpy() > nodes.start_ns.to_numpy())[~itself].all()


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("experiment", RANDOM[::8], ids=lambda experiment: experiment["id"])
def test_path_of_a_random_experiment(experiment, backend, tmp_path):
    if backend == "aware" and experiment["kind"] == "nd":
        pytest.skip("the congestion-aware network has one dimension")
    result = reference.run_random(experiment, backend, tmp_path)
    check_records(result)
    check_path(critical_path(result, Workload.load(tmp_path / "workload")))


# Results of the reference simulator for experiments that a random comparison found.

GIGABYTES = 5_000_000_007
BUS = {"model_shared_bus": True, "L": 3, "o": 10, "g": 7, "G": 0.05, "local_mem_bw": 50.0}


def gather(ranks: int, size: int, **settings) -> int:
    """Return the end of an all-gather on each rank of a ring."""
    chosen = build.config(npus_count=[ranks], **settings)
    times = build.finish([[build.coll(0, size, comm_type="ALL_GATHER")]] * ranks, chosen)
    assert len(set(times)) == 1
    return times[0]


@pytest.mark.parametrize(
    ("ranks", "aware", "expected"),
    [
        (6, False, 7617),
        (6, True, 11341),
        (12, False, 18077),
        (12, True, 34837),
        (20, False, 36988),
        (20, True, 76096),
    ],
)
def test_halving_doubling_gathers_wherever_its_partners_pair_up(ranks, aware, expected):
    algorithm = ["halvingDoubling"]
    assert gather(ranks, 100_003, all_gather_implementation=algorithm, aware=aware) == (expected)


def test_messages_by_rendezvous_keep_32_bits_of_their_size():
    assert gather(4, GIGABYTES, rendezvous=True) == 39_400_267
    # Here the remaining size is not positive, and the reference aborts.
    assert gather(4, 3_000_000_007, rendezvous=True) > 160_000_000


def test_sizes_on_the_shared_bus_keep_32_bits():
    assert gather(4, GIGABYTES, **BUS) == 506_983_107
    assert gather(4, 1 << 32, **BUS) == 240_001_764


def test_times_beyond_64_bits_are_refused():
    nodes = [build.comp(0, 9 * 10**15), build.comp(1, 9 * 10**15, (0,)), build.comp(2, 9 * 10**15, (1,))]
    with pytest.raises(ConfigError, match=r"2\^64 ns"):
        build.finish([nodes, nodes])


def test_chunks_in_different_orders_are_diagnosed():
    """Trees end at different times, so that ranks start the chunks of the next dimension in other orders."""
    settings = build.config(
        topology=["Ring"] * 3,
        npus_count=[4, 2, 2],
        bandwidth=[1.0] * 3,
        latency=[33.0] * 3,
        all_reduce_implementation=["doubleBinaryTree", "doubleBinaryTree", "ring"],
        preferred_dataset_splits=2,
        endpoint_delay=1000,
        local_mem_bw=50.0,
    )
    programs = [[build.coll(0, 1000)]] * 16
    assert "chunks in another order" in build.run(programs, settings).unfinished[0]["waits_for"]
    settings.active_chunks_per_dimension = 2
    assert min(build.finish(programs, settings)) > 0
