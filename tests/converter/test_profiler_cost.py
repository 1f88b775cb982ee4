"""What the profiler costs for each event is measured against steps without it, and taken out of host time."""

import pytest
from evidence_file import EvidenceFile
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import convert
from chakrascope.converter.building import profiler_overhead

START, END = 100_000, 102_000  # microseconds
OPERATORS = 100


def converted(folder, plain, recorded):
    """Convert a step of 100 operators, 10 us each and 10 us apart, that used *recorded* us of a processor.

    *plain* lists what the unprofiled steps after it used.
    """
    thread, evidence = Thread(0), EvidenceFile()
    for number in range(OPERATORS):
        thread.op("aten::mm", START + 5 + 20 * number, START + 15 + 20 * number, number + 1)
    entry = thread.write(folder, [(START, END)]) | {"process_groups": []}
    entry["unprofiled_steps"] = [{"index": 1 + n, "start_ns": 0, "end_ns": 1_500_000} for n in range(8)]
    cpu, time = 0, START
    evidence.step(0, START)
    for index, used in enumerate([recorded, *plain], start=1):
        cpu, time = cpu + used, time + 2_000
        evidence.step(index, time, cpu=cpu, recorded=int(index == 1))
    evidence.write(folder / "rank0.evidence.json.gz")
    entry["evidence"] = "rank0.evidence.json.gz"
    write_trace_set(folder, [entry])
    return convert(folder, step=0)


def test_each_recorded_event_costs_the_host_its_part(tmp_path):
    workload = converted(tmp_path, [1_000] * 8, 1_400)
    nodes = workload.graphs[0].nodes
    gaps = nodes[nodes["kind"] == "host"]["duration_ns"]
    assert set(nodes[nodes["kind"] == "compute"]["duration_ns"]) == {10_000}
    assert set(gaps[1:-1]) == {6_000}  # half of the 4 us before an operator, and half after it
    overhead = profiler_overhead(workload.metadata)
    assert overhead.removed_ns == OPERATORS * 4_000
    assert not overhead.matters
    assert "400 µs, the cost of recording operators, is taken out" in overhead.text


@pytest.mark.parametrize(
    ("plain", "recorded"),
    [
        ([1_000] * 4, 1_400),  # too few
        ([100, 3_000, 500, 2_000, 900, 2_500, 200, 1_500], 3_000),  # too different
        ([900, 1_100] * 4, 1_040),  # a difference that may be chance
        ([1_000] * 8, 700),
    ],
)
def test_nothing_is_taken_out_without_a_steady_baseline(tmp_path, plain, recorded):
    workload = converted(tmp_path, plain, recorded)
    assert profiler_overhead(workload.metadata).removed_ns == 0
    assert workload.graphs[0].nodes["duration_ns"].sum() == (END - START) * 1_000


def test_steps_that_also_save_are_left_out_of_the_baseline(tmp_path):
    workload = converted(tmp_path, [1_000, 1_000, 9_000] * 4, 1_400)
    assert profiler_overhead(workload.metadata).removed_ns == OPERATORS * 4_000


def test_no_operator_gets_shorter_than_nothing_and_no_event_costs_beyond_reason(tmp_path):
    workload = converted(tmp_path, [1_000] * 8, 9_000)
    assert profiler_overhead(workload.metadata).removed_ns == OPERATORS * 10_000
    assert workload.graphs[0].nodes["duration_ns"].min() == 0
