"""The cores that a job leaves free, and what moving work to them can gain."""

import pytest
from evidence_file import EvidenceFile
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import convert
from chakrascope.converter.building import FreeCores, free_cores
from chakrascope.converter.building._step_times import cores_of_ranks
from chakrascope.tracer import RankEntry, read_evidence

STEP = 20_000  # microseconds


def cores_of(folder, *ranks, hosts=("a",)):
    """Return the free cores of a job whose ranks kept so many of their cores busy and idle."""
    entries = []
    for rank, (busy, idle, facts) in enumerate(ranks):
        evidence, workers = EvidenceFile(), facts.pop("workers", 0)
        evidence.loader("Images.__getitem__", "data.py", 7, workers)
        for number in range(30):
            # The profiled steps keep all cores busy, and the idle time is read at every third step.
            profiled, spent = 10 <= number < 14, STEP * number
            idle_us = round((idle or 0) * (spent - STEP * min(4, max(0, number - 9))))
            is_read = idle is not None and number % 3 == 0
            evidence.step(
                number, spent, recorded=int(profiled), process_cpu=round(busy * spent),
                idle=idle_us if is_read else (-1,),
            )  # fmt: skip
        evidence.write(folder / f"rank{rank}.evidence.json.gz", rank, **facts)
        thread = Thread(rank)
        thread.op("aten::mm", 1_000, 10_000 - rank, 1)
        entry = thread.write(folder, [(1_000, 11_000)]) | {"process_groups": []}
        entry |= {"evidence": f"rank{rank}.evidence.json.gz", "hostname": hosts[rank % len(hosts)]}
        entries.append(entry)
    write_trace_set(folder, entries)
    return free_cores(convert(folder).metadata)


@pytest.mark.parametrize(
    ("busy", "idle", "facts", "expected"),
    [
        (1, 3, {"cores": 4}, (4, 1, 3)),
        (1, 1, {"cores": 4}, (4, 1, 1)),  # the others belong to other jobs
        (1, 60, {"cores": 64, "quota": 2.0}, (2, 1, 1)),
        (1, 60, {"cores": 64, "quota": 1.0}, (1, 1, 0)),
        (0.5, 1, {"cores": 4, "workers": 2}, (4, 2.5, 1)),
        (0.5, 3.5, {"cores": 4, "workers": 2}, (4, 0.5, 3.5)),  # its workers have nothing to do
    ],
)
def test_free_cores_are_idle_and_within_the_quota(tmp_path, busy, idle, facts, expected):
    assert cores_of(tmp_path, (busy, idle, facts)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("hosts", "busy"), [(("a",), 2), (("a", "b"), 1)])
def test_ranks_of_one_host_share_its_cores(tmp_path, hosts, busy):
    ranks = [(1, 2, {"cores": 4}), (1, 2, {"cores": 4})]
    assert cores_of(tmp_path, *ranks, hosts=hosts) == pytest.approx((4, busy, 2), abs=0.01)


def test_ranks_without_evidence_are_as_busy_as_the_others(tmp_path):
    assert cores_of(tmp_path, (1, 2, {"cores": 8})) == pytest.approx((8, 1, 2), abs=0.01)
    evidence = {0: read_evidence(tmp_path / "rank0.evidence.json.gz")}
    entries = [RankEntry(rank, hostname=host) for rank, host in enumerate("aaab")]
    assert cores_of_ranks(entries, evidence)["cores"]["0"] == pytest.approx([8, 3, 2], abs=0.01)


def test_captures_without_readings_have_no_free_cores(tmp_path):
    assert cores_of(tmp_path, (1, None, {})) is None
    assert free_cores({"cores": {"0": ["two", 1, 1]}}) is None
    assert free_cores({"cores": [1]}) is None


def test_as_much_work_remains_when_it_is_moved():
    assert FreeCores(2, 1, 1).movable_share == 0.5
    assert FreeCores(2, 2, 0).movable_share == 0
    assert FreeCores(64, 1, 63).movable_share == pytest.approx(63 / 64)
