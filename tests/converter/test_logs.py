"""Production logs: reading, matching across ranks, refusals, and conversion to a workload."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings
from log_files import BEGIN_NS, MS, US, Job, Record, straggling_job

from chakrascope.converter import NodeType, Workload, convert_logs, doctor, match_logs, read_logs
from chakrascope.converter.building import computed_on_host, stand_in_assumption
from chakrascope.converter.chakra import GAP
from chakrascope.converter.checks._workload_checks import check_workload
from chakrascope.errors import TraceError, UsageError
from chakrascope.runner import NetworkConfig, simulate

RING_4 = """topology: [ Ring ]
npus_count: [ 4 ]
bandwidth: [ 50.0 ]
latency: [ 500.0 ]
"""


@pytest.fixture
def job():
    return straggling_job()


def network(tmp_path, ranks=4):
    path = tmp_path / "network.yml"
    path.write_text(RING_4.replace("4 ]", f"{ranks} ]"))
    return NetworkConfig.load(path)


def of_rank(workload, rank):
    table = workload.node_table()
    return table[table["rank"] == rank].reset_index(drop=True)


def collectives(matched):
    """Return the fields that all logs have, independent of each tool's numbering and names."""
    return sorted(
        (op.name, op.size_bytes, tuple(found.ops)) for found in matched.collectives for op in [found.first]
    )


# The expected content of each tool's log of one job


@pytest.mark.parametrize("kind", ["flight", "inspector"])
def test_all_tools_yield_equal_collectives(tmp_path, job, kind):
    matched = match_logs(read_logs([job.write(tmp_path / kind, kind)]))
    expected = [("all_gather", 2048, pair) for pair in ((0, 1), (2, 3))] * 4
    expected += [("reduce_scatter", 16384, pair) for pair in ((0, 2), (1, 3))] * 4
    expected += [("all_reduce", 8192, (0, 1, 2, 3))] * 4
    assert collectives(matched) == sorted(expected)
    assert {matched.logs.groups[found.group] for found in matched.collectives} == {
        (0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3),
    }  # fmt: skip
    assert [(m.source, m.target, m.send.size_bytes) for m in matched.messages] == [(0, 1, 1024)] * 4
    assert not any([matched.mismatches, matched.unfinished, matched.before, matched.after, matched.loose])


def test_a_workload_of_a_flight_record_has_the_collectives_and_the_gaps_as_measured(tmp_path):
    job = Job(2)
    job.compute({0: 1000, 1: 3000})
    job.collective(floats=1024, transfer_us=100)
    job.compute(400)
    job.collective("all_gather", floats=256, transfer_us=50)
    job.collective("broadcast", floats=1, transfer_us=10)
    job.collective(floats=1, transfer_us=10)
    workload = convert_logs([job.write(tmp_path / "logs")])
    first = of_rank(workload, 0)
    assert first["name"].tolist() == ["all_reduce", GAP, "all_gather", "broadcast", "all_reduce"]
    assert first["duration_ns"].tolist() == [2100 * US, 400 * US, 50 * US, 10 * US, 10 * US]
    assert first["measured_start_ns"].tolist() == [0, 2100 * US, 2500 * US, 2550 * US, 2560 * US]
    assert first["comm_size_bytes"].tolist() == [4096, -1, 1024, 4, 4]
    assert first["kind"].tolist() == ["communication", "compute", *["communication"] * 3]
    last = of_rank(workload, 1)  # the clocks agree, so it begins when rank 0 does
    assert last["duration_ns"].tolist() == [2000 * US, 100 * US, 400 * US, 50 * US, 10 * US, 10 * US]
    assert last["measured_start_ns"].tolist()[:4] == [0, 2000 * US, 2100 * US, 2500 * US]
    assert workload.metadata["measured_step_ns"] == {"0": 2570 * US, "1": 2570 * US}
    assert workload.metadata["captured"] is True


@pytest.mark.parametrize(("kind", "options"), [("flight", {}), ("inspector", {"verbose": True})])
@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware"])
def test_every_workload_runs_to_its_end_and_takes_the_measured_time(tmp_path, job, kind, options, backend):
    workload = convert_logs([job.write(tmp_path / kind, kind, **options)], tmp_path / "w")
    assert Workload.load(tmp_path / "w") == workload
    result = simulate(workload, "default", network(tmp_path), backend=backend)
    measured = max(workload.metadata["measured_step_ns"].values())
    # A fast network saves at most the transfers: 100, 300, 50 and 200 us of four steps.
    assert measured - 4 * 650 * US <= result.makespan_ns <= measured
    assert not [finding for finding in doctor(tmp_path / "w") if finding.severity == "error"]


def test_concurrent_operations_have_no_dependency(tmp_path):
    job = Job(2, {"a": [0, 1], "b": [0, 1]})
    for group in ("a", "b"):  # the second is issued while the first runs
        for rank in (0, 1):
            job.now[rank] = BEGIN_NS + (0 if group == "a" else 100 * US)
        job.collective(group=group, transfer_us=500)
    job.compute(50)
    job.collective(group="a", transfer_us=10)
    workload = convert_logs([job.write(tmp_path / "logs", timed=False)])
    graph = workload.graphs[0]
    names = graph.nodes["name"].tolist()
    assert names == ["all_reduce", GAP, "all_reduce", GAP, "all_reduce"]
    edges = set(zip(graph.edges["src"].tolist(), graph.edges["dst"].tolist(), strict=True))
    assert not {(0, 1), (0, 2)} & edges  # neither the issue nor the second waits for the first
    assert {(0, 3), (2, 3), (3, 4)} <= edges
    assert graph.nodes["duration_ns"].tolist() == [500 * US, 100 * US, 500 * US, 50 * US, 10 * US]


def test_ring_buffer_begins_at_the_first_common_record(tmp_path):
    job = Job(3)
    for _ in range(6):
        job.compute(100)
        job.collective()
    folder = job.write(tmp_path / "logs")
    cut = {"entries": 2, "rank": 1}
    (folder / "nccl_trace_rank_1.json").write_text(json.dumps(job.flight(1, first=cut["entries"])))
    workload = convert_logs([folder])
    assert [graph.nodes["name"].tolist().count("all_reduce") for graph in workload.graphs] == [4, 4, 4]
    said = " ".join(workload.metadata["assumptions"])
    assert "the beginning of the job is lost" in said
    assert "4 records of collectives that some rank's log lacks" in said


def test_messages_are_matched_from_the_end_where_the_beginning_is_lost(tmp_path):
    job = Job(2)
    for size in (1, 2, 3):
        job.message(0, 1, floats=size)
        job.collective()
    folder = job.write(tmp_path / "logs")
    (folder / "nccl_trace_rank_1.json").write_text(json.dumps(job.flight(1, first=1)))
    matched = match_logs(read_logs([folder]))
    assert [(m.send.size_bytes, m.receive.size_bytes) for m in matched.messages] == [(8, 8), (12, 12)]
    assert matched.loose == 1
    assert "1 sends and receives without a matching receive or send" in str(convert_logs([folder]).metadata)


def test_messages_of_a_shorter_log_are_matched_by_size_and_time(tmp_path):
    """The log of rank 1 ends before its last receive: numbered from the end, all would be off by one."""
    for name, sizes in (("sizes", (1, 2, 3, 4, 5)), ("times", (7, 7, 7, 7, 7))):
        job = Job(2)
        for size in sizes:
            job.compute(1000)
            job.collective()
            job.message(0, 1, floats=size)
        folder = job.write(tmp_path / name)
        dump = job.flight(1, first=1)
        dump["entries"] = dump["entries"][:-1]
        (folder / "nccl_trace_rank_1.json").write_text(json.dumps(dump))
        matched = match_logs(read_logs([folder]))
        assert [(m.send.sequence, m.receive.sequence) for m in matched.messages] == [
            (1, 1), (2, 2), (3, 3), (4, 4),
        ]  # fmt: skip
        assert matched.loose == 1


@st.composite
def legal_jobs(draw):
    """Return a finished job of three to five ranks in overlapping groups."""
    ranks = draw(st.integers(3, 5))
    members = st.lists(st.integers(0, ranks - 1), min_size=2, max_size=ranks, unique=True).map(sorted)
    groups = draw(st.lists(members, max_size=4))
    job = Job(ranks, {f"g{number}": ranks_of for number, ranks_of in enumerate(groups)})
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(
            st.sampled_from(["compute", "message", "all_reduce", "all_gather", "broadcast", "all_to_all"])
        )
        if kind == "compute":
            job.compute({rank: draw(st.integers(0, 3000)) for rank in range(ranks)})
        elif kind == "message":
            source, target = draw(st.permutations(range(ranks)))[:2]
            job.message(source, target, floats=draw(st.sampled_from([16, 64])))
        else:
            job.collective(kind, draw(st.sampled_from(list(job.groups))), draw(st.integers(1, 99)))
    job.collective()
    return job


# Failing examples are not shrunk, because that takes minutes; the job is printed as it is.
@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(job=legal_jobs(), data=st.data())
def test_logs_of_any_legal_job_become_a_workload_that_ends(tmp_path_factory, job, data):
    tmp_path = tmp_path_factory.mktemp("legal")
    kind, options = data.draw(
        st.sampled_from(
            [("flight", {}), ("flight", {"timed": False}), ("inspector", {"verbose": True}),
             ("inspector", {})]
        )
    )  # fmt: skip
    folder = job.write(tmp_path / "logs", kind, **options)
    lost = {rank: data.draw(st.integers(0, 3)) for rank in range(job.num_ranks)} if kind == "flight" else {}
    for rank, first in lost.items():
        dump = json.dumps(job.flight(rank, first=min(first, len(job.records[rank]) - 1), **options))
        (folder / f"nccl_trace_rank_{rank}.json").write_text(dump)
    workload = convert_logs([folder], back_to_back=options == {} and kind == "inspector")
    errors = [found.cause for found in check_workload(workload) if found.severity == "error"]
    assert errors == []
    for backend in ("analytical-unaware", "analytical-aware"):
        assert (
            simulate(workload, "default", network(tmp_path, job.num_ranks), backend=backend).makespan_ns > 0
        )
    if not any(lost.values()):
        count = sum(len(records) for records in job.records.values())
        assert sum((graph.nodes["type"] != NodeType.COMP).sum() for graph in workload.graphs) == count


def test_times_that_contradict_each_other_make_no_deadlock(tmp_path):
    """Collectives of two groups in flight in different orders; each host was far ahead of its device."""
    job = Job(2, {"a": [0, 1], "b": [0, 1]})
    for rank, groups in ((0, "ab"), (1, "ba")):
        for at, group in enumerate(groups):
            begin = BEGIN_NS + at * 10 * MS
            job.records[rank].append(Record(group, 1, "all_reduce", 64, begin, begin + 5 * MS))
    workload = convert_logs([job.write(tmp_path / "logs")])
    assert any("contradict each other" in note for note in workload.metadata["assumptions"])
    assert simulate(workload, "default", network(tmp_path, 2)).makespan_ns > 0


def test_operations_issued_as_one_have_the_times_of_the_batch(tmp_path):
    job = Job(2)
    job.collective(floats=8)
    for rank in (0, 1):
        dump = job.flight(rank)
        (entry,) = dump["entries"]
        parts = [entry | {"record_id": at, "state": "scheduled", "retired": False} for at in (0, 1)]
        for part in parts:
            part.pop("duration_ms")
            part["time_discovered_completed_ns"] = None
        whole = entry | {"record_id": 2, "profiling_name": "nccl:coalesced", "input_sizes": [[8]]}
        dump["entries"] = [*parts, whole]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(dump))
    matched = match_logs(read_logs([tmp_path]))
    assert [op.duration_ns for found in matched.collectives for op in found.ops.values()] == [100 * US] * 4
    assert not matched.unfinished


def test_clocks_follow_from_the_ends_of_collectives(tmp_path):
    job = straggling_job(ahead_ns={1: 3 * MS, 2: -(10**12)})
    matched = match_logs(read_logs([job.write(tmp_path / "logs")]))
    assert matched.clocks.source == "ends"
    assert matched.clocks.corrected == {1: 3 * MS, 2: -(10**12)}
    right = convert_logs([straggling_job().write(tmp_path / "right")])
    assert convert_logs([tmp_path / "logs"]).graphs == right.graphs


def test_without_ends_the_order_of_the_collectives_bounds_the_clocks(tmp_path):
    options = {"backend": "gloo", "timed": False}
    job = straggling_job(ahead_ns={3: 10**13})
    clocks = match_logs(read_logs([job.write(tmp_path / "far", **options)])).clocks
    assert clocks.source == "order"
    assert clocks.corrected.keys() == {3}
    assert abs(clocks.corrected[3] - 10**13) <= clocks.spread_ns < 10 * MS
    near = match_logs(read_logs([straggling_job().write(tmp_path / "near", **options)])).clocks
    assert (near.source, near.corrected) == ("order", {})


def test_uneven_all_to_alls_are_no_disagreement(tmp_path):
    job = Job(2)
    job.collective("all_to_all", floats=64, sizes={1: 128})
    workload = convert_logs([job.write(tmp_path / "logs")])
    assert [graph.nodes["comm_size_bytes"].tolist() for graph in workload.graphs] == [[512], [512]]
    assert any("uneven" in note for note in workload.metadata["assumptions"])


# Missing, duplicate or unknown ranks


def test_a_rank_given_twice_is_refused(tmp_path, job):
    folder = job.write(tmp_path / "logs")
    (folder / "again_rank_2.json").write_text(json.dumps(job.flight(2)))
    with pytest.raises(TraceError, match="belongs to rank 2, like"):
        read_logs([folder])
    inspector = job.write(tmp_path / "inspector", "inspector")
    (inspector / "copy.log").write_text(job.inspector(1))
    with pytest.raises(TraceError, match="both log process 101 on host0"):
        read_logs([inspector])


def test_a_log_that_was_copied_onto_itself_is_refused(tmp_path, job):
    (tmp_path / "a.log").write_text(job.inspector(0) * 2)
    with pytest.raises(TraceError, match=r"rank 0\) has all_gather 0 of .* twice"):
        match_logs(read_logs([tmp_path / "a.log"]))


def test_missing_ranks_are_replaced_only_by_equal_ranks(tmp_path, job):
    data_parallel = Job(4)
    data_parallel.collective()
    workload = convert_logs([data_parallel.write(tmp_path / "dp", ranks=(1, 2))])
    assert workload.num_ranks == 4
    said = " ".join(workload.metadata["assumptions"])
    assert "2 of 4 ranks (ranks 1, 2) represent the others" in said
    assert stand_in_assumption(workload.metadata) in workload.metadata["assumptions"]
    assert not computed_on_host(workload)  # the log does not contain it
    assert any(found.severity == "warning" for found in doctor(tmp_path / "dp"))
    with pytest.raises(TraceError, match="no log of ranks 2, 3 of 4, and the ranks communicate in groups"):
        convert_logs([job.write(tmp_path / "tp", ranks=(0, 1))])


def test_unlisted_groups_are_the_logging_ranks(tmp_path, job):
    logs = read_logs([job.write(tmp_path / "logs", backend="gloo", timed=False, listed=False)])
    assert set(logs.groups.values()) == {(0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3)}
    one = job.write(tmp_path / "one", ranks=(0,), backend="gloo", timed=False, listed=False)
    with pytest.raises(TraceError, match="list all ranks of world: they list rank 0 of at least 2"):
        convert_logs([one])


def test_groups_of_equal_name_are_distinguished_by_ranks(tmp_path):
    job = Job(4, {"a": [0, 1], "b": [2, 3], "c": [0, 1]})
    for group in "abc":
        job.collective(group=group)
    for rank in range(4):
        dump = json.dumps(job.flight(rank))
        for old, new in (("a", "mesh_tp"), ("b", "mesh_tp"), ("c", "undefined")):
            dump = dump.replace(f'"{old}"', f'"{new}"')
        (tmp_path / f"rank_{rank}.json").write_text(dump)
    labels = set(read_logs([tmp_path]).labels.values())
    assert labels == {"mesh_tp ranks 0, 1", "mesh_tp ranks 2, 3", "group of ranks 0, 1"}


def test_logs_of_different_jobs_are_refused(tmp_path):
    for rank, groups in ((0, {"tp": [0, 1]}), (1, {"tp": [1, 2]})):
        job = Job(3, groups)
        job.collective()
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(job.flight(rank)))
    assert len(read_logs([tmp_path]).groups) == 1  # groups are also identified by their ranks
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.log").write_text(job.inspector(rank))
    with pytest.raises(UsageError, match="logs from NCCL Inspector and PyTorch's flight recorder"):
        read_logs([tmp_path])


# NCCL Inspector


def test_logs_without_times_become_a_workload_only_when_asked_to(tmp_path, job):
    folder = job.write(tmp_path / "logs", "inspector")
    with pytest.raises(UsageError, match="durations of collectives, but no start times"):
        convert_logs([folder])
    workload = convert_logs([folder], back_to_back=True)
    assert not workload.node_table()["name"].eq(GAP).any()
    assert workload.metadata["captured"] is False
    assert any("without computation" in note for note in workload.metadata["assumptions"])
    for backend in ("analytical-unaware", "analytical-aware"):
        assert 0 < simulate(workload, "default", network(tmp_path), backend=backend).makespan_ns < MS


def test_lines_behind_a_marker_are_of_its_communicator(tmp_path, job):
    plain = read_logs([job.write(tmp_path / "plain", "inspector")])
    marked = read_logs([job.write(tmp_path / "marked", "inspector", marked=True)])
    assert [log.ops for log in plain.ranks.values()] == [log.ops for log in marked.ranks.values()]
    lost = {"coll_dropped_since_last_dump": 5, "p2p_dropped_since_last_dump": 2}
    with (tmp_path / "marked" / "host0-pid100.log").open("a") as file:
        file.write(json.dumps({"dump_stats": lost}) + "\n")
    assert (
        "7 records were overwritten before they were written out (rank 0)"
        in read_logs([tmp_path / "marked"]).notes
    )


def test_one_process_that_drives_several_devices_is_several_ranks(tmp_path):
    job = Job(2)
    job.collective()
    text = "".join(job.inspector(rank).replace('"pid": 101', '"pid": 100') for rank in (0, 1))
    (tmp_path / "both.log").write_text(text)
    logs = read_logs([tmp_path])
    assert (sorted(logs.ranks), logs.world_size) == ([0, 1], 2)


def test_without_a_communicator_of_all_ranks_host_and_process_number_them(tmp_path):
    job = Job(4, {"tp-0": [0, 1], "tp-1": [2, 3]})
    job.collective(group="tp-0")
    job.collective(group="tp-1")
    logs = read_logs([job.write(tmp_path / "logs", "inspector")])
    assert sorted(logs.groups.values()) == [(0, 1), (2, 3)]
    assert any("numbered by host and process" in note for note in logs.notes)


# Real dumps


def test_a_dump_of_a_job_with_gloo(shared):
    folder = shared / "traces" / "gloo_flight_recorder"
    if not folder.is_dir():
        pytest.skip("the shared dump of gloo is not here")
    logs = read_logs([folder])
    names = [op.name for op in logs.ranks[0].ops]
    assert len(names) == 57
    assert set(names) == {"scatter", "broadcast", "all_gather", "all_reduce"}
    assert all(op.completed for op in logs.ranks[0].ops)
    with pytest.raises(TraceError, match="do not list all ranks of mesh_dp"):
        convert_logs([folder])
