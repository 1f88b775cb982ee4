"""Hosts that spin until the device is done: on memory that a kernel writes, or on queries of an event."""

import random

import pytest

from chakrascope.converter import replay

from .test_device_waits import Trace, unexplained

KERNEL = "void ep::internode::notify_dispatch<false, 8>(int*)"


def iterations(trace, lengths, *, kernel=KERNEL, after=lambda: 3):
    """Add an iteration per length: a kernel is issued, and the next operator runs when it has ended."""
    now = 0
    for length in lengths:
        for number in range(40):  # usual host work
            trace.op("aten::empty", now + 6 * number, 3)
        now += 240
        trace.launch((now, 5), [(now + 10, length)], work=kernel)
        now += 10 + length + after()
        trace.op("aten::view", now, 3)
        trace.launch((now + 5, 5), [(now + 15, 30)])
        now += 60
    trace.op("aten::end", now, 5)


def spins(graph):
    return graph.nodes[graph.nodes["kind"] == "sync"]


def pairs(graph):
    return set(graph.edges[["src", "dst"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("late", [-80, 0, 12])
def test_a_host_that_spins_on_memory_waits_for_the_kernel_that_writes_it(tmp_path, late):
    trace, draw = Trace(), random.Random(5)
    lengths = [draw.randint(2_000, 20_000) for _ in range(5)]
    iterations(trace, lengths, after=lambda: late)
    workload = trace.workload(tmp_path, step="all")
    (graph,) = workload.graphs
    found = spins(graph)
    kernels = graph.nodes.loc[graph.nodes["name"] == KERNEL, "node_id"].tolist()
    assert found["name"].unique().tolist() == ["spin until notify_dispatch"]
    assert found["cause"].unique().tolist() == ["synchronisation"]
    assert {(kernel, node) for kernel, node in zip(kernels, found["node_id"], strict=True)} <= pairs(graph)
    assert unexplained(workload) < 0.02
    # Without the kernels' time there is nothing to wait for.
    before = replay(graph).makespan_ns
    graph.node_columns["duration_ns"][kernels] = 0
    assert replay(graph).makespan_ns < before - 0.9 * 1_000 * sum(lengths)


def test_kernels_of_equal_length_are_waited_for_where_chance_is_small(tmp_path):
    trace = Trace()
    iterations(trace, [8_000] * 6)
    assert len(spins(trace.graph(tmp_path, step="all"))) == 6


@pytest.mark.parametrize("seed", range(5))
def test_a_host_bound_loop_waits_for_no_kernel(tmp_path, seed):
    trace, draw, now = Trace(), random.Random(seed), 0
    for _ in range(60):
        for number in range(30):
            trace.op("aten::empty", now + 6 * number, 3)
        now += 180
        stall = draw.randint(300, 3_000)  # in which some kernels end, a few by chance where the stall does
        trace.launch((now, 5), [(now + 10, draw.randint(10, 3_000))], work=KERNEL)
        now += stall
        trace.op("aten::view", now, 3)
        now += 3_100
    trace.op("aten::end", now, 5)
    assert spins(trace.graph(tmp_path, step="all")).empty


def test_a_kernel_issued_after_the_stretch_is_what_waits(tmp_path):
    trace, now = Trace(), 0
    for length in (3_000, 9_000, 5_000, 14_000, 7_000):
        for number in range(40):
            trace.op("aten::empty", now + 6 * number, 3)
        now += 240 + length  # a stall, after which a short kernel is issued and ends at once
        trace.op("aten::mm", now, 20)
        trace.launch((now + 1, 2), [(now + 4, 3)], work=KERNEL)
        now += 30
    trace.op("aten::end", now, 5)
    assert spins(trace.graph(tmp_path, step="all")).empty


def test_queries_of_an_event_in_a_row_wait_for_the_work_before_it(tmp_path):
    trace = Trace()
    trace.op("aten::mm", 0, 50)
    trace.launch((10, 5), [(20, 2_000)], work=KERNEL)
    trace.call("cudaEventRecord", 20, 2)
    for number in range(100):
        trace.call("cudaEventQuery", 60 + 20 * number, 4)
    trace.op("aten::add", 2_070, 50)
    trace.launch((2_080, 5), [(2_090, 30)])
    workload = trace.workload(tmp_path)
    (graph,) = workload.graphs
    (found,) = spins(graph).itertuples()
    kernel = int(graph.nodes.loc[graph.nodes["name"] == KERNEL, "node_id"].iloc[0])
    assert (found.name, found.cause) == ("cudaEventQuery", "synchronisation")
    assert (kernel, found.node_id) in pairs(graph)
    assert unexplained(workload) < 0.02


def test_queries_that_end_long_after_the_work_did_not_wait_for_it(tmp_path):
    trace = Trace()
    trace.op("aten::mm", 0, 50)
    trace.launch((10, 5), [(20, 500)], work=KERNEL)
    for number in range(100):
        trace.call("cudaEventQuery", 60 + 20 * number, 4)
    trace.op("aten::add", 2_070, 50)
    trace.launch((2_080, 5), [(2_090, 30)])
    assert spins(trace.graph(tmp_path)).empty
