"""The lateness of ranks in every captured step, and the choice of the step to convert."""

import json

import pytest
from evidence_file import EvidenceFile
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import convert
from chakrascope.converter.building import is_usually_late, step_choice_text, usually_late_ns

STEPS = [(1_000, 11_000), (12_000, 22_000), (23_000, 33_000)]  # microseconds


def captured(folder, late_us, *, hosts=("node1", "node1")):
    """Write two ranks with an all-reduce in each of three steps; the second arrives *late_us* later."""
    entries = []
    for rank, host in enumerate(hosts):
        thread = Thread(rank)
        for (start, end), late in zip(STEPS, late_us, strict=True):
            issued = start + 1_000 + rank * late
            thread.op("aten::mm", start + 10 * rank, issued, 1)
            thread.all_reduce(issued, issued + 100, 2, end - 1_000)
            thread.op("aten::add_", end - 900, end, 2)
        entries.append(thread.write(folder, STEPS) | {"hostname": host})
    write_trace_set(folder, entries)
    return folder


def test_each_step_tells_how_late_each_rank_came(tmp_path):
    metadata = convert(captured(tmp_path, [4_000, 0, 5_000])).metadata
    assert metadata["lateness_ns"] == {"0": [-4_000_000, 0, -5_000_000], "1": [4_000_000, 0, 5_000_000]}
    assert not is_usually_late(metadata, 1, 4_000_000)


def test_a_rank_that_is_late_in_all_steps_is_usually_late(tmp_path):
    metadata = convert(captured(tmp_path, [4_000, 3_000, 5_000])).metadata
    assert is_usually_late(metadata, 1, 5_000_000)
    assert not is_usually_late(metadata, 1, 20_000_000)
    assert not is_usually_late(metadata, 0, 5_000_000)


def test_clocks_of_two_machines_are_not_compared(tmp_path):
    metadata = convert(captured(tmp_path, [4_000, 0, 5_000], hosts=("node1", "node2"))).metadata
    assert "lateness_ns" not in metadata
    assert is_usually_late(metadata, 1, 1)


def waiting(folder, waits_us, *, steps=12, length_us=10_000):
    """Write ranks that wait for collectives in each step; steps 3 to 5 are captured."""
    entries = []
    for rank, waits in enumerate(waits_us):
        thread, evidence, waited = Thread(rank), EvidenceFile(), 0
        evidence.step(0, 0)
        for step in range(steps):
            waited += waits[step % len(waits)]
            is_captured = int(step in (3, 4, 5))
            evidence.step(step + 1, (step + 1) * length_us, recorded=is_captured, collective=waited)
        for number, (start, end) in enumerate(STEPS):
            thread.op("aten::mm", start + rank, start + 1_000, 3 * number + 1)
            thread.all_reduce(start + 1_000, start + 1_100, 3 * number + 2, end - 1_000)
            thread.op("aten::add_", end - 900, end, 3 * number + 3)
        evidence.write(folder / f"rank{rank}.evidence.json.gz", rank)
        groups = [{"name": "0", "ranks": [*range(len(waits_us))]}]
        files = {"evidence": f"rank{rank}.evidence.json.gz", "process_groups": groups}
        entries.append(thread.write(folder, STEPS) | files)
    write_trace_set(folder, entries)
    return convert(folder).metadata


def test_a_late_rank_waits_less_than_its_peers_in_unprofiled_steps(tmp_path):
    metadata = waiting(tmp_path, [[4_000, 5_000], [3_000], [100, 600]])
    assert metadata["waited_less_ns"]["2"] == [3_400_000] * 6  # without the first steps
    assert usually_late_ns(metadata, 2) == 3_400_000
    assert is_usually_late(metadata, 2, 50_000_000)
    assert not is_usually_late(metadata, 0, 1)


def test_a_rank_that_is_late_now_and_then_is_not_usually_late(tmp_path):
    metadata = waiting(tmp_path, [[5_000], [100, 5_000, 4_000]])
    assert not is_usually_late(metadata, 1, 1_000_000)


def test_short_waits_yield_no_lateness(tmp_path):
    """Collectives on a device do not delay the host."""
    metadata = waiting(tmp_path, [[20], [10]])
    assert "waited_less_ns" not in metadata
    assert usually_late_ns(metadata, 1) == 0


def test_steps_of_different_durations_are_named_with_their_range(tmp_path):
    thread = Thread(0)
    spans = [(1_000, 11_000), (12_000, 24_000), (25_000, 65_000)]
    for number, (start, end) in enumerate(spans):
        thread.op("aten::mm", start, end, number)
    write_trace_set(tmp_path, [thread.write(tmp_path, spans) | {"process_groups": []}])
    assert step_choice_text(convert(tmp_path).metadata) == (
        "Step 1 is shown: the median of 3 captured steps (10.0 ms to 40.0 ms, mean 20.7 ms), by the time "
        "of the slowest rank."
    )


def test_step_closest_to_unprofiled_steps_is_converted(tmp_path):
    thread = Thread(0)
    spans = [(1_000, 31_000), (32_000, 52_000), (53_000, 65_000)]
    for number, (start, end) in enumerate(spans):
        thread.op("aten::mm", start, end, number)
    entry = thread.write(tmp_path, spans) | {"process_groups": []}
    write_trace_set(tmp_path, [entry])
    metadata = convert(tmp_path).metadata
    assert (
        step_choice_text(metadata)
        == "Step 1 is shown: the median of 3 captured steps, by the time of the slowest rank."
    )
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    steps = [{"index": 9 + n, "start_ns": 0, "end_ns": 11_000_000} for n in range(6)]
    manifest["ranks"][0] |= {"unprofiled_steps": steps, "structure_step": None}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    metadata = convert(tmp_path).metadata
    assert metadata["steps"] == [2]
    reason = "the captured step closest to the median unprofiled step (11.0 ms)"
    assert step_choice_text(metadata) == f"Step 2 is shown: {reason}."
    assert step_choice_text(convert(tmp_path, step=0).metadata) == ""


@pytest.mark.parametrize(("delays", "shown"), [([0, 0, 0], 1), ([12_000, 0, 0], 0), ([20_000, 0, 0], 2)])
def test_median_step_excludes_run_delay(tmp_path, delays, shown):
    """The steps take 30, 20 and 12 ms; the unprofiled steps vary too much to have a median."""
    thread, evidence, total = Thread(0), EvidenceFile(), 0
    spans = [(1_000, 31_000), (31_000, 51_000), (51_000, 63_000)]
    evidence.step(0, 1_000)
    for number, ((start, end), delay) in enumerate(zip(spans, delays, strict=True), 1):
        thread.op("aten::mm", start, end, number)
        total += delay
        evidence.step(number, end, recorded=1, delay=total)
    for number in range(4, 24):
        end += 10_000 * (1 + number % 4)
        evidence.step(number, end, delay=total)
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    files = {"evidence": "rank0.evidence.json.gz", "process_groups": [], "structure_step": None}
    write_trace_set(tmp_path, [thread.write(tmp_path, spans) | files])
    metadata = convert(tmp_path).metadata
    assert metadata["steps"] == [shown]
    assert step_choice_text(metadata).endswith("the median of 3 captured steps, without run delay.")


def test_only_lines_of_a_loop_share_a_place(tmp_path):
    thread, evidence = Thread(0), EvidenceFile()
    thread.op("aten::mm", 1_000, 2_000, 1)
    lines = [40, 41, *[42, 43, 44] * 5, 43, 45, 46]
    for number, line in enumerate(lines):
        evidence.sample(3_500 + 5_000 * number, ("train", "a.py", line, "script"), cpu=5_000 * number)
    end = 3_500 + 5_000 * len(lines)
    thread.op("aten::mm", end - 500, end, 2)
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    entry = thread.write(tmp_path, [(1_000, end)]) | {"process_groups": []}
    write_trace_set(tmp_path, [entry | {"evidence": "rank0.evidence.json.gz"}])
    nodes = convert(tmp_path, step=0).graphs[0].nodes
    lasting = nodes[nodes["kind"] == "host"].groupby("place")["duration_ns"].sum()
    assert set(lasting.index) >= {"train (a.py:41)", "train (a.py:43)", "train (a.py:45)"}
    assert not {"train (a.py:42)", "train (a.py:44)"} & set(lasting.index)
    assert lasting["train (a.py:43)"] >= 15 * 5_000_000


def test_a_loop_that_another_captured_step_shows_is_one_place(tmp_path):
    """The converted step returns from line 43 to 42 once, the other step three times."""
    thread, evidence = Thread(0), EvidenceFile()
    spans = [(1_000, 31_000), (31_000, 81_000)]
    lines = [42, 43, 42, 43, *[42, 43] * 4]
    evidence.step(0, spans[0][0], recorded=0)
    for index, (start, end) in enumerate(spans, 1):
        thread.op("aten::mm", start, start + 1_000, 2 * index)
        thread.op("aten::mm", end - 1_000, end, 2 * index + 1)
        evidence.step(index, end, recorded=index)
    for number, line in enumerate([40, *lines]):
        time = 3_500 + 6_000 * number
        evidence.sample(time, ("train", "a.py", line, "script"), cpu=time)
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    entry = thread.write(tmp_path, spans) | {"process_groups": []}
    write_trace_set(tmp_path, [entry | {"evidence": "rank0.evidence.json.gz"}])
    places = set(convert(tmp_path, step=0).graphs[0].nodes["place"])
    assert {f"train (a.py:{line})" in places for line in (42, 43)} == {True, False}
