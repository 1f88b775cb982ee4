"""The time that is each step's own, where the host runs ahead of the device."""

from itertools import pairwise

import pytest
from engine_traces import Engine

from chakrascope.converter import convert_files, replay

US = 1000


def shares(workload):
    return {number: (start, end) for number, start, end in workload.metadata["step_shares"]["0"]}


def run_ahead(tmp_path, *, behind_us=0.0, kernel_us=50.0, host_us=20.0):
    """Return a trace of five steps of 40 kernels each; the device is slower than the host."""
    engine = Engine(behind_us=behind_us)
    for number in range(5):
        engine.step(f"ProfilerStep#{number}", [kernel_us] * (40 + number), host_us=host_us)
    return engine, str(engine.write(tmp_path / "trace.json"))


def test_steps_that_overlap_on_the_device_add_up_to_the_span(tmp_path):
    engine, trace = run_ahead(tmp_path)
    whole = convert_files(None, trace, step="all").metadata["measured_step_ns"]["0"]
    single = [convert_files(None, trace, step=step).metadata["measured_step_ns"]["0"] for step in range(5)]
    assert sum(single) == pytest.approx(whole, rel=0.001)
    finished = [engine.spans[0][0], *(span[2] for span in engine.spans)]
    expected = [(end - start) * US for start, end in pairwise(finished)]
    assert single == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("kernel_us", [5.0, 22.0, 50.0, 400.0])
def test_a_step_replays_as_long_as_it_took_beside_its_neighbours(tmp_path, kernel_us):
    _, trace = run_ahead(tmp_path, kernel_us=kernel_us)
    for step in (0, 2, 4, "all"):
        workload = convert_files(None, trace, step=step)
        measured = workload.metadata["measured_step_ns"]["0"]
        assert replay(workload.graphs[0]).makespan_ns == pytest.approx(measured, rel=0.01)


def test_the_host_keeps_the_time_that_the_device_does_not_wait_for(tmp_path):
    _, trace = run_ahead(tmp_path)
    workload = convert_files(None, trace, step=3)
    nodes = workload.graphs[0].nodes
    host_ns = int(nodes.loc[nodes["stream"] < 1000, "duration_ns"].sum())
    left_out = workload.metadata["accounting"]["0"]["host_ahead_ns"]
    assert 0 < left_out < 40 * US  # until the first launch
    assert host_ns + left_out == pytest.approx(43 * 20 * US, rel=0.05)


def test_the_median_step_is_that_by_own_time_not_by_the_host_s(tmp_path):
    """The host takes as long for all five steps, the device 40 kernels of so many microseconds."""
    engine = Engine()
    for number, kernel_us in enumerate((90.0, 50.0, 30.0, 70.0, 60.0)):
        engine.step(f"ProfilerStep#{number}", [kernel_us] * 40)
    workload = convert_files(None, str(engine.write(tmp_path / "trace.json")))
    assert workload.metadata["steps"] == [4]
    assert workload.metadata["measured_step_ns"]["0"] == pytest.approx(40 * 60 * US, rel=0.01)


def test_the_median_is_of_steps_that_issued_work_if_any_did(tmp_path):
    engine = Engine()
    engine.step("ProfilerStep#0", [90.0] * 40)
    engine.now += 5000.0
    engine.step("ProfilerStep#1", [])
    workload = convert_files(None, str(engine.write(tmp_path / "trace.json")))
    assert workload.metadata["steps"] == [0]


def test_kernels_belong_to_the_step_that_issued_them(tmp_path):
    _, trace = run_ahead(tmp_path)
    nodes = convert_files(None, trace, step="all").graphs[0].nodes
    assert nodes[nodes["name"] == "gemm"].groupby("step").size().tolist() == [40, 41, 42, 43, 44]


def test_steps_that_do_not_overlap_are_the_host_s(tmp_path):
    engine, trace = run_ahead(tmp_path, kernel_us=2.0)
    workload = convert_files(None, trace, step="all")
    origin = engine.spans[0][0]
    for number, (start, end, _) in enumerate(engine.spans[:-1]):
        assert shares(workload)[number] == pytest.approx(
            ((start - origin) * US, (end - origin) * US), abs=US * 9
        )


def test_time_before_a_capture_s_first_kernel_is_no_step_s(tmp_path):
    engine, trace = run_ahead(tmp_path, behind_us=400_000.0)
    whole = convert_files(None, trace, step="all")
    measured = whole.metadata["measured_step_ns"]["0"]
    assert measured == pytest.approx((engine.spans[-1][2] - 400_000.0) * US, rel=0.001)
    assert replay(whole.graphs[0]).makespan_ns == pytest.approx(measured, rel=0.01)
    assert whole.metadata["accounting"]["0"]["device_latency_ns"] < 0.01 * measured
    first = convert_files(None, trace, step=0).metadata["measured_step_ns"]["0"]
    assert first == pytest.approx(40 * 50 * US, rel=0.01)


def test_a_short_latency_before_the_first_kernel_is_the_step_s(tmp_path):
    engine, trace = run_ahead(tmp_path, behind_us=1800.0)
    measured = convert_files(None, trace, step="all").metadata["measured_step_ns"]["0"]
    assert measured == pytest.approx((engine.spans[-1][2] - engine.spans[0][0]) * US, rel=0.001)
