"""The packet-level backend: ranks and collectives in the engine, messages on another simulator's clock."""

from __future__ import annotations

import heapq
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import case_network, case_system, case_workload, read_cases, star
from studies import as_version_0_2
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import CollectiveType
from chakrascope.errors import BackendError, BackendTimeout, Cancelled, SimulationStalled
from chakrascope.runner import (
    NetworkConfig,
    Result,
    SystemConfig,
    critical_path,
    get_backend,
    prepare,
    simulate,
)
from chakrascope.runner.backends import EngineBackend, packet_backend
from chakrascope.runner.config import Link, PacketPart


class DelayNetwork:
    """Delivers every message after the time of the unaware network, in steps as requested."""

    def __init__(self, network: NetworkConfig) -> None:
        self.beta = network.bandwidth_bytes_per_ns[0]
        self.latency = network.latency[0]
        self.heap: list[tuple[int, int]] = []
        self.limits: list[int] = []

    def advance(self, messages, limit):
        for number, _, _, size, at in messages:
            heapq.heappush(self.heap, (at + int(2 * self.latency + size / self.beta), number))
        self.limits.append(limit)
        if not self.heap or (limit >= 0 and self.heap[0][0] > limit):
            return []
        time = self.heap[0][0]
        arrived = []
        while self.heap and self.heap[0][0] == time:
            arrived.append((heapq.heappop(self.heap)[1], time))
        return arrived


COLLECTIVES = [
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
]
_PROGRAM = st.lists(
    st.tuples(st.sampled_from([*COLLECTIVES, None]), st.integers(1, 300_000)), min_size=1, max_size=4
)


@settings(max_examples=20, deadline=None)
@given(_PROGRAM, st.lists(st.integers(0, 50), min_size=4, max_size=4), st.sampled_from(["ring", "direct"]))
def test_an_outside_network_with_the_same_delays_gives_the_same_answer(program, skew, algorithm):
    ranks = []
    for late in skew:
        nodes = [comp(0, late * 1000)]
        for kind, amount in program:
            last = nodes[-1]["node_id"]
            if kind is None:
                nodes.append(comp(last + 1, amount // 1000 * 1000, (last,)))
            else:
                nodes.append(coll(last + 1, amount + 16, (last,), comm_type=kind))
        ranks.append(nodes)
    network = NetworkConfig(("Switch",), (4,), (50.0,), (500.0,))
    lists = dict.fromkeys(
        (
            "all_reduce_implementation",
            "reduce_scatter_implementation",
            "all_gather_implementation",
            "all_to_all_implementation",
        ),
        (algorithm,),
    )
    system = SystemConfig(endpoint_delay=10, preferred_dataset_splits=2, local_mem_bw=50.0, **lists)
    ready = prepare(workload(*ranks), system, network, semantics="astra-sim")
    backend = EngineBackend()
    inside = backend.run(ready)
    outside = backend.simulate(ready, None, DelayNetwork(network).advance)
    assert outside.ranks["finish_ns"].tolist() == inside.ranks["finish_ns"].tolist()
    for column in ("start_ns", "end_ns", "cause_node"):
        assert outside.nodes[column].tolist() == inside.nodes[column].tolist()
    path = critical_path(outside, workload(*ranks))
    assert path.segments["duration_ns"].sum() == outside.makespan_ns


def one_message(size=1 << 20, after_ns=0):
    return workload([comp(0, after_ns), send(1, 0, 1, size, (0,))], [recv(0, 0, 1, size)])


def test_what_an_outside_network_raises_reaches_the_caller():
    def broken(messages, limit):
        raise BackendError("the network broke")

    ready = prepare(one_message(), "default", NetworkConfig(("Switch",), (2,), (1.0,), (1.0,)))
    with pytest.raises(BackendError, match="the network broke"):
        EngineBackend().simulate(ready, None, broken)


def test_messages_that_never_arrive_leave_a_stall():
    ready = prepare(one_message(), "default", NetworkConfig(("Switch",), (2,), (1.0,), (1.0,)))
    with pytest.raises(SimulationStalled, match="waits for"):
        EngineBackend().simulate(ready, None, lambda messages, limit: [])


def test_time_advances_no_further_than_the_next_thing_a_rank_does():
    network = NetworkConfig(("Switch",), (2,), (1.0,), (1.0,))
    slow = DelayNetwork(network)
    busy = workload([send(0, 0, 1, 1 << 20), comp(1, 5_000)], [recv(0, 0, 1, 1 << 20)])
    ready = prepare(busy, "default", network, semantics="astra-sim")
    EngineBackend().simulate(ready, None, slow.advance)
    assert 5_000 in slow.limits
    assert slow.limits[-1] == -1


def run_case(case):
    """Simulate a recorded case as ASTRA-sim did."""
    model, system, network = case_workload(case), case_system(case), case_network(case)
    return simulate(model, system, network, backend="packet", semantics="astra-sim")


@pytest.mark.parametrize("index", range(19))
def test_recorded_cases_are_answered_to_the_nanosecond(data_dir, index):
    case = read_cases(data_dir / "runner" / "packet_cases.jsonl.gz")[index]
    result = run_case(case)
    assert result.ranks["finish_ns"].tolist() == case["cycles"]
    assert result.provenance["packets"]["flow_completion_ns"]["mean"] == pytest.approx(
        np.mean([flow[4] for flow in case["fct"]]), rel=1e-9
    )


@pytest.mark.parametrize("control", [1, 3, 7, 8, 10, 12])
def test_deterministic_congestion_controls_match_astra_sim(data_dir, control):
    cases = read_cases(data_dir / "runner" / "packet_controls.jsonl.gz")
    chosen = [case for case in cases if case["cc_mode"] == control]
    assert chosen
    for case in chosen:
        result = run_case(case)
        if case["exact"]:
            assert result.ranks["finish_ns"].tolist() == case["cycles"], case["id"]
        # Comparison of different random seeds.
        mean = result.provenance["packets"]["flow_completion_ns"]["mean"]
        expected = np.mean([flow[4] for flow in case["fct"]])
        assert mean == pytest.approx(expected, rel=1e-9 if case["exact"] else 0.15), case["id"]


def test_all_recorded_cases_are_within_a_third_of_a_percent(shared):
    exact = total = 0
    for case in read_cases(shared / "reference" / "ns3.jsonl.gz"):
        if sum(flow[2] for flow in case["fct"]) > 24 << 20:
            continue
        result = run_case(case)
        finish = result.ranks["finish_ns"].to_numpy()
        deviation = np.abs(finish - case["cycles"]).max() / max(case["cycles"])
        assert deviation < 0.0035, case["id"]
        exact += deviation == 0
        total += 1
    assert exact == total


def test_run_has_causes_links_and_packet_facts(tmp_path):
    model = workload(*[[comp(0, 2_000 * (rank + 1)), coll(1, 1 << 18, after=(0,))] for rank in range(4)])
    result = simulate(model, "default", star(4), backend="packet")
    path = critical_path(result, model)
    assert path.segments["duration_ns"].sum() == result.makespan_ns
    assert path.segments.iloc[0]["rank"] == 3
    assert set(result.links["src"]) == {0, 1, 2, 3, 4}
    assert (result.links["bytes"] > 0).all()
    packets = result.provenance["packets"]
    assert packets["data_packets"] > 0
    assert packets["flow_completion_ns"]["count"] == 4 * 6 * 4
    assert any("no congestion control" in text for text in result.provenance["assumptions"])
    sent = result.link_use.groupby(["src", "dst"])["bytes"].sum()
    assert sent.to_dict() == result.links.set_index(["src", "dst"])["bytes"].to_dict()
    assert len(result.flows) == 4 * 6 * 4
    assert result.flows["bytes"].sum() == 4 * 6 * (1 << 18) // 4
    assert (result.flows["end_ns"] > result.flows["start_ns"]).all()
    result.save(tmp_path / "run")
    loaded = Result.load(tmp_path / "run")
    for name in ("links", "flows", "link_use"):
        assert getattr(loaded, name).equals(getattr(result, name))
    (tmp_path / "run" / "flows.parquet").unlink()
    as_version_0_2(tmp_path / "run")
    assert Result.load(tmp_path / "run").flows.empty


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig(("Ring",), (4,), (50.0,), (500.0,)),
        NetworkConfig(("FullyConnected",), (4,), (50.0,), (500.0,)),
        NetworkConfig(("FullyConnected", "Switch"), (2, 2), (200.0, 25.0), (200.0, 1000.0)),
        NetworkConfig(
            ("Switch",),
            (4,),
            (50.0,),
            (500.0,),
            packet=PacketPart.from_mapping({"CC_MODE": 1, "fabric": {"hosts_per_leaf": 2}}),
        ),
    ],
)
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_one_description_of_a_network_serves_all_backends(network, kind):
    model = workload(*[[coll(0, 1 << 20, comm_type=kind)] for _ in range(4)])
    packet = simulate(model, "default", network, backend="packet")
    plain = simulate(model, "default", network, backend="analytical-unaware")
    # Packets pay for headers, acknowledgements, storing and contention; analytical messages do not.
    assert 0.8 < packet.makespan_ns / plain.makespan_ns < 4


def test_the_network_s_own_links_are_the_packets_ways():
    links = [[rank, 4 + rank // 2, 50.0, 500.0] for rank in range(4)] + [[4, 5, 25.0, 500.0]]
    network = NetworkConfig(("Switch",), (4,), (50.0,), (500.0,), links=tuple(Link(*link) for link in links))
    model = workload(*[[coll(0, 1 << 20, comm_type=CollectiveType.ALL_TO_ALL)] for _ in range(4)])
    result = simulate(model, "default", network, backend="packet")
    narrow = result.links.query("src == 4 and dst == 5").iloc[0]
    # Two ranks send a quarter of their buffer to each of two ranks in the other node, with headers.
    assert narrow["bytes"] > 4 * (1 << 18) * 1.036
    assert result.makespan_ns > 4 * (1 << 18) / (25.0 * (1 << 30) / 1e9)


def test_the_packets_ways_are_the_congestion_aware_network_s_too():
    leaves = PacketPart.from_mapping({"fabric": {"hosts_per_leaf": 2, "oversubscription": 2}})
    model = workload(*[[coll(0, 1 << 20, comm_type=CollectiveType.ALL_TO_ALL)] for _ in range(4)])
    one = NetworkConfig(("Switch",), (4,), (50.0,), (500.0,))
    narrow = NetworkConfig(("Switch",), (4,), (50.0,), (500.0,), packet=leaves)
    times = [simulate(model, "default", network, backend="analytical-aware") for network in (one, narrow)]
    assert times[0].makespan_ns < times[1].makespan_ns
    assert set(times[1].links["src"]) == set(range(7))


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 200_000), st.integers(0, 1))
def test_the_same_experiment_gives_the_same_answer(size, clock):
    model = workload(*[[coll(0, size + 4, comm_type=CollectiveType.ALL_TO_ALL)] for _ in range(4)])
    network = star(4, CC_MODE=1, ASTRA_SIM_CLOCK=clock)
    first, second = (simulate(model, "default", network, backend="packet") for _ in range(2))
    assert first.nodes.equals(second.nodes)
    assert first.links.equals(second.links)


def test_cancelling_and_the_time_limit(monkeypatch):
    ready = prepare(one_message(1 << 40), "default", star(2), backend="packet")
    seen = []
    with pytest.raises(Cancelled):
        get_backend("packet").run(ready, lambda now, done: len(seen) < 3 and not seen.append(now))
    with pytest.raises(BackendTimeout):
        packet_backend(timeout_s=0.3).run(ready)


def test_lost_packets_without_a_timer_are_explained():
    network = star(2, ERROR_RATE_PER_LINK=0.5, RETRANSMIT_TIMEOUT=0)
    with pytest.raises(BackendError, match=r"1 messages never arrive.*RETRANSMIT_TIMEOUT"):
        simulate(one_message(3_000), "default", network, backend="packet")


def test_ns3_on_a_roce_network_is_an_alias_with_a_note():
    model = workload(*[[coll(0, 1 << 18)] for _ in range(4)])
    alias, packet = (simulate(model, "default", star(4), backend=name) for name in ("ns3", "packet"))
    assert alias.ranks.equals(packet.ranks)
    assert alias.links.equals(packet.links)
    assert alias.backend == "ns3"
    told = [text for text in alias.provenance["assumptions"] if "'packet'" in text]
    assert len(told) == 1
    assert not any("ns-3" in text for text in packet.provenance["assumptions"])


def test_simulations_in_threads_do_not_disturb_each_other():
    models = [workload(*[[coll(0, size)] for _ in range(8)]) for size in (1 << 20, 3 << 20)]
    ready = [
        prepare(model, "default", star(8, CC_MODE=1, BUFFER_SIZE=4), backend="packet") for model in models
    ]
    alone = [get_backend("packet").run(each) for each in ready]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(get_backend("packet").run, ready * 3))
    for place, result in enumerate(together):
        assert result.links.equals(alone[place % 2].links)
        assert result.ranks.equals(alone[place % 2].ranks)
