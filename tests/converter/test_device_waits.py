"""Hosts that wait for their GPU: CUDA graphs, synchronisation, and clocks of limited precision."""

import random

import pytest
from kineto_trace import KinetoTrace

from chakrascope.converter import EdgeKind, convert_files, replay
from chakrascope.errors import TraceError, UsageError


class Trace(KinetoTrace):
    """A trace to be converted."""

    def workload(self, folder, **options):
        return convert_files(device_trace=[self.write(folder / "trace.json")], **options)

    def graph(self, folder, **options):
        (graph,) = self.workload(folder, **options).graphs
        return graph


def unexplained(workload):
    figures = workload.metadata["accounting"]["0"]
    return figures["unexplained_ns"] / figures["measured_step_ns"]


@pytest.mark.parametrize("kernels", [2, 2_000])
def test_a_graph_takes_one_place_in_the_launch_queue(tmp_path, kernels):
    trace = Trace()
    trace.op("aten::graph", 0, 400)
    for number in range(3):
        begin = 500 + number * kernels * 3
        launched = [(begin + 3 * kernel, 3) for kernel in range(kernels)]
        trace.launch((10 + 100 * number, 90), launched, name="cudaGraphLaunch")
    workload = trace.workload(tmp_path)
    (graph,) = workload.graphs
    device = graph.nodes[graph.nodes["name"] == "gemm"]
    issued = graph.edges[graph.edges["kind"] == EdgeKind.LAUNCH]
    assert len(device) == 3 * kernels
    assert issued["src"].nunique() == 3
    assert set(device["node_id"]) <= set(issued["dst"])
    assert not graph.edges["kind"].eq(EdgeKind.EVENT_SYNC).any()
    assert unexplained(workload) < 0.001


def test_a_full_queue_makes_the_host_wait_for_calls_not_for_kernels(tmp_path):
    trace = Trace()
    trace.op("aten::many", 0, 2_000_000)
    for number in range(1_100):  # each graph of two kernels runs for 100 us and takes 5 us to launch
        late = number >= 1_000
        start = 10 + 5 * number if not late else 10 + 100 * (number - 1_000) + 5_000
        trace.launch(
            (start, 95 if late else 4),
            [(6_000 + 100 * number, 50), (6_050 + 100 * number, 50)],
            name="cudaGraphLaunch",
        )
    graph = trace.graph(tmp_path)
    waited = graph.edges[graph.edges["kind"] == EdgeKind.EVENT_SYNC]
    kernels = graph.nodes.loc[graph.nodes["name"] == "gemm", "node_id"].tolist()
    assert len(waited) > 50
    assert set(waited["src"]) <= set(kernels[1::2])  # the last one of each


@pytest.mark.parametrize("early_ns", [0, 1, 400])
@pytest.mark.parametrize("name", ["cudaMemsetAsync", "cudaLaunchKernel"])
def test_adjacent_synchronisation_waits_for_the_work(tmp_path, name, early_ns):
    trace = Trace()
    trace.op("aten::zero_", 0, 300)
    trace.launch((10, 5), [(14.9, 100)], name=name)
    trace.call("cudaDeviceSynchronize", 15 - early_ns / 1000, 102)
    trace.launch((130, 5), [(140, 50)])
    workload = trace.workload(tmp_path)
    (graph,) = workload.graphs
    sync = graph.nodes[graph.nodes["kind"] == "sync"].iloc[0]
    first, second = graph.nodes.loc[graph.nodes["name"] == "gemm", "node_id"]
    pairs = set(graph.edges[["src", "dst"]].itertuples(index=False, name=None))
    assert (sync["name"], sync["operator"], sync["cause"]) == (
        "cudaDeviceSynchronize",
        "aten::zero_",
        "synchronisation",
    )
    assert (first, sync["node_id"]) in pairs
    assert (sync["node_id"], second) not in pairs
    assert unexplained(workload) < 0.01


def test_times_in_whole_microseconds_never_refuse_a_trace(tmp_path):
    trace = Trace()
    trace.op("aten::many", 0, 1_000)
    for number in range(100):
        at = 10 * number
        trace.launch((at, 1), [(at + 1, 0)], stream=7 + number % 3, work="fill", category="gpu_memset")
        trace.call("cudaDeviceSynchronize", at + 1, 0)
        trace.launch((at + 1, 1), [(at + 1, 2)])
        trace.call("cudaStreamSynchronize", at + 2, 1)
    workload = trace.workload(tmp_path)
    (graph,) = workload.graphs
    assert (graph.nodes["kind"] == "sync").sum() == 200
    assert unexplained(workload) < 0.01


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"])
def test_draining_synchronisation_replays_at_measured_time(tmp_path, call):
    trace = Trace()
    trace.add("user_annotation", "ProfilerStep#1", 0, 20_000)
    trace.add("user_annotation", "ProfilerStep#2", 20_000, 80_000)
    trace.op("aten::linear", 10, 15_000)
    for number in range(50):  # 1 ms of device work each, issued in 15 ms
        trace.launch((20 + 300 * number, 5), [(100 + 1_000 * number, 1_000)])
    trace.op("aten::item", 30_000, 21_000)
    trace.call(call, 30_010, 20_095)  # for work of the previous step
    trace.op("aten::mm", 60_000, 1_000)
    trace.launch((60_100, 5), [(60_110, 39_000)])
    trace.call("cudaDeviceSynchronize", 60_200, 38_915)
    graph = trace.graph(tmp_path, step=2)
    syncs = graph.nodes[graph.nodes["kind"] == "sync"]
    assert syncs["name"].tolist() == [call, "cudaDeviceSynchronize"]
    assert syncs["operator"].iloc[0] == "aten::item"
    # The step begins when the device has finished the previous one.
    assert replay(graph).makespan_ns == pytest.approx(100_000_000 - 50_100_000, rel=0.002)
    both = trace.graph(tmp_path, step="all")
    assert replay(both).makespan_ns == pytest.approx(100_000_000, rel=0.002)


@pytest.mark.parametrize(("call_us", "waits"), [(40_000, True), (43_000, True), (20_000, False)])
def test_a_copy_from_pageable_memory_stops_the_host_until_it_is_nearly_done(tmp_path, call_us, waits):
    """The call returns when the last part is in the driver's buffer: just before the copy ends."""
    trace = Trace()
    trace.op("aten::linear", 0, 300)
    trace.launch((10, 5), [(100, 10_000)])
    trace.op("aten::copy_", 400, call_us + 100)
    about = {"work": "Memcpy HtoD (Pageable -> Device)", "category": "gpu_memcpy"}
    trace.launch((410, call_us), [(10_110, 30_360)], name="cudaMemcpyAsync", **about)
    trace.op("aten::mm", 44_000, 300)
    trace.launch((44_010, 5), [(44_100, 5_000)])
    workload = trace.workload(tmp_path)
    (graph,) = workload.graphs
    syncs = graph.nodes[graph.nodes["kind"] == "sync"]
    assert syncs["name"].tolist() == ["cudaMemcpyAsync"] * waits
    on_host = graph.nodes[(graph.nodes["kind"] == "host") & (graph.nodes["operator"] == "aten::copy_")]
    assert (on_host["duration_ns"].max() > 1_000_000) == (not waits)
    assert unexplained(workload) < 0.01


def test_time_before_the_first_work_and_after_the_last_belongs_to_no_step(tmp_path):
    trace = Trace()
    trace.op("aten::load", 0, 900_000)
    trace.op("aten::mm", 1_000_000, 500)
    trace.launch((1_000_010, 20), [(1_000_100, 300)])
    trace.launch((1_000_050, 20), [(1_000_400, 600)])
    trace.op("aten::save", 1_002_000, 700_000)
    workload = trace.workload(tmp_path)
    (graph,) = workload.graphs
    assert workload.metadata["accounting"]["0"]["measured_step_ns"] == 900_000
    assert replay(graph).makespan_ns == 900_000
    assert graph.nodes.loc[graph.nodes["kind"] == "idle", "duration_ns"].sum() == 0


def test_work_is_matched_by_external_id_where_nothing_has_a_correlation(tmp_path):
    trace = Trace()
    trace.op("aten::mm", 0, 400)
    for number, external in enumerate([5, 5, 6]):
        start = 10 + 50 * number
        trace.add("cuda_runtime", "cudaLaunchKernel", start, 5, **{"External id": external})
        args = {"External id": external, "stream": 7, "device": 0}
        trace.add("kernel", f"kernel{number}", start + 20, 10, tid=7, **args)
    trace.add("cuda_runtime", "cudaStreamSynchronize", 170, 5, **{"External id": 6})
    graph = trace.graph(tmp_path)
    issued = graph.edges[graph.edges["kind"] == EdgeKind.LAUNCH]
    assert len(issued) == 3
    assert issued["src"].nunique() == 3
    assert set(graph.nodes.loc[graph.nodes["kind"] == "compute", "operator"]) == {"aten::mm"}


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"cpu_op": 1, "mtia_runtime": 3, "mtia_ccp_events": 25}, "25 events of kind 'mtia_ccp_events'"),
        ({"cpu_op": 1, "cuda_runtime": 3, "overhead": 2}, "no kernel, only 3 runtime calls"),
        ({"kernel": 2}, "no operator .*, but 2 kernels and copies"),
        (dict.fromkeys("abcdefgh", 1), "1 events of kind 'e', 3 more kinds: it is not"),
        ({"tpu_step": 2, "tpu_op": 1}, "no operator .*, but 1 events of kind 'tpu_op', 2 events of kind"),
    ],
)
def test_refusal_lists_content_of_the_file(tmp_path, kinds, said):
    trace = Trace()
    for kind, count in kinds.items():
        for number in range(count):
            trace.add(kind, "something", 10 * number, 5, correlation=number + 1, stream=7)
    with pytest.raises(TraceError, match=said):
        trace.graph(tmp_path)


def test_trace_without_device_work_is_an_error(tmp_path):
    trace = Trace()
    trace.op("aten::mm", 0, 10)
    trace.add("user_annotation", "nccl:all_reduce", 2, 5)
    with pytest.raises(TraceError, match="holds no kernel, only what the host did") as refusal:
        trace.graph(tmp_path)
    assert "0 runtime calls" not in str(refusal.value)


def test_host_work_of_a_trace_without_operators_has_no_false_place(tmp_path):
    trace = Trace()
    for number in range(4):
        start = 100 * number
        trace.launch((start, 5), [(start + 10, 20)])
    names = trace.graph(tmp_path).nodes.query("kind == 'host'")["name"]
    assert set(names) == {"host work between calls of the runtime"}


def test_a_step_without_operators_is_not_blamed_on_a_manifest(tmp_path):
    trace = Trace()
    trace.add("user_annotation", "ProfilerStep#3", 0, 100)
    trace.op("aten::mm", 200, 10)
    with pytest.raises(TraceError, match="no operator in the chosen step, but 1 outside of it") as refusal:
        trace.graph(tmp_path)
    assert "manifest" not in str(refusal.value)


def test_a_model_s_size_in_a_name_is_no_rank(tmp_path):
    trace = Trace()
    trace.op("aten::mm", 0, 100)
    trace.launch((10, 5), [(20, 50)])
    for name in ("sglang_Qwen3-8B_decode.json", "h100_trace.json"):
        trace.write(tmp_path / name)
    with pytest.raises(UsageError, match="has no rank in its content or its name"):
        convert_files(device_trace=str(tmp_path))


# Hosts that poll until the device is done: on memory that a kernel writes, or on queries of an event.


KERNEL = "void ep::internode::notify_dispatch<false, 8>(int*)"


def iterations(trace, lengths, *, kernel=KERNEL, after=lambda: 3):
    """Add an iteration per length: a kernel is issued, and the next operator runs after it has ended."""
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
def test_host_polling_memory_waits_for_the_writing_kernel(tmp_path, late):
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
    # Without the kernels' time, nothing is left to wait for.
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
        stall = draw.randint(300, 3_000)  # some kernels end in the stalls, a few at their ends by chance
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
        now += 240 + length  # after a stall, a short kernel is issued and ends at once
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
