"""The doctor: correct input has no findings, and each kind of damage is found and explained."""

import gzip
import itertools
import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_trace import Engine, edit_json

from chakrascope.converter import (
    CollectiveType,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    convert,
    convert_files,
    doctor,
)
from chakrascope.converter.chakra import circular_wait
from chakrascope.converter.checks import step_kinds, step_rows
from chakrascope.errors import SimulationStalled, UsageError
from chakrascope.runner import NetworkConfig, simulate

from ..step_times import part, recording


def _only(findings, severity="error"):
    (finding,) = [finding for finding in findings if finding.severity == severity]
    return finding


def test_healthy_captures_are_clean(trace_set, data_dir, tmp_path):
    assert doctor(trace_set) == []
    convert(trace_set).save(tmp_path / "w")
    assert doctor(tmp_path / "w") == []
    folder = data_dir / "converter" / "dlrm_v100_8"
    convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz", tmp_path / "dlrm")
    assert doctor(tmp_path / "dlrm") == []


def test_a_recording_of_all_steps_lacks_no_traces(tmp_path):
    """The files of `trace --steps 0` are complete, and a finding names the command that reads them."""
    step = (1, 20, 40, 10, 5, 78)
    (finding,) = doctor(recording(tmp_path, [part(rank, [step] * 3) for rank in (0, 1)]))
    assert finding.severity == "note"
    assert "no traces (--steps 0)" in finding.cause
    assert f"chakrascope diagnose {tmp_path}" in finding.remedy


@pytest.mark.parametrize("content", [b"", b"{}", None])
def test_a_damaged_recording_of_all_steps_is_an_error(tmp_path, content):
    folder = recording(tmp_path, [part(rank, [(1, 20, 40, 10, 5, 78)] * 3) for rank in (0, 1)])
    file = folder / "rank1.steps.json.gz"
    file.write_bytes(file.read_bytes()[:-9] if content is None else content)
    assert [finding.severity for finding in doctor(folder)] == ["error", "note"]


def test_a_truncated_file_is_named(trace_set):
    path = trace_set / "rank1.host.json.gz"
    path.write_bytes(path.read_bytes()[:1000])
    finding = _only(doctor(trace_set))
    assert finding.place.endswith("rank1.host.json.gz")
    assert "truncated" in finding.cause
    assert finding.to_dict()["remedy"] == finding.remedy


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda m: m["ranks"].pop(1), "1 of the job's 2 ranks left no traces"),
        (lambda m: m["ranks"][1].update(rank=0), "rank 0 is listed twice"),
        (lambda m: m["ranks"][1].update(host_trace=None), "There is no host trace"),
        (lambda m: m["ranks"][1].update(device="cuda:1"), "no kernel was recorded"),
        (
            lambda m: m["ranks"][0].update(steps=[{"index": 4, "start_ns": 5, "end_ns": 9}]),
            "clocks of manifest",
        ),
    ],
)
def test_manifests(trace_set, change, cause):
    edit_json(trace_set / "manifest.json", change)
    assert cause in " ".join(finding.cause for finding in doctor(trace_set))


def test_a_partial_capture_is_warned_of(trace_set):
    edit_json(
        trace_set / "manifest.json",
        lambda manifest: manifest.update(partial=True, reasons=["rank 1 was killed."]),
    )
    assert "partial: rank 1 was killed." in _only(doctor(trace_set), "warning").cause


def test_unknown_target_of_doctor_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="is not a study"):
        doctor(tmp_path / "nothing")


def _comm(node_id, size=8, kind=CollectiveType.ALL_REDUCE, **columns):
    node = {"node_id": node_id, "name": "c", "type": NodeType.COMM_COLL, "comm_type": kind}
    return {**node, "comm_size_bytes": size, "group": 0, **columns}


def _peer(node_id, node_type, **columns):
    return {
        "node_id": node_id,
        "name": "p",
        "type": node_type,
        "comm_size_bytes": 4,
        "comm_tag": 1,
        **columns,
    }


def _findings(tmp_path, *programs, groups=None, edges=()):
    graphs = tuple(Graph.build(rank, nodes, list(edges)) for rank, nodes in enumerate(programs))
    Workload(graphs, np.arange(len(graphs), dtype=np.int32), groups or {}).save(tmp_path / "w")
    return doctor(tmp_path / "w")


COMP = {"node_id": 0, "name": "k", "type": NodeType.COMP}


@pytest.mark.parametrize(
    ("programs", "groups", "cause"),
    [
        (([_comm(0)], [_comm(0), _comm(1)]), {}, "Rank 0 issues 1 collectives, rank 1 2"),
        (
            ([_comm(0)], [_comm(5, size=9)]),
            {},
            r"all_reduce of 8 bytes on rank 0 (node 0) but all_reduce of 9",
        ),
        (([_comm(0)], [_comm(0, kind=CollectiveType.ALL_GATHER)]), {}, "but all_gather of 8 bytes on rank 1"),
        (([_comm(0)], [COMP]), {}, "Rank 0 issues collectives and rank 1 issues none"),
        (([_comm(0, group=1)], [_comm(0, group=1)]), {}, "group 1, which does not exist"),
        (([_comm(0, group=1)], [_comm(0, group=1)]), {1: (0,)}, "group 1, which does not contain this rank"),
        (([_comm(0)], [_comm(0)]), {1: (0, 7)}, "It lists rank 7"),
        (([_comm(0)], [_comm(0)]), {1: (0, 0)}, "It lists a rank twice"),
        (([_comm(0, is_cpu_op=True)], [_comm(0)]), {}, "marked as a CPU operation"),
        (([_comm(0, kind=CollectiveType.BARRIER)],) * 2, {}, "at which ASTRA-sim stops"),
        (([_comm(0, size=-1)],) * 2, {}, "without a size"),
        (([{**COMP, "type": NodeType.METADATA}],), {}, "METADATA"),
        (([COMP], [COMP]), {}, "never communicate"),
        (([],), {}, "nothing to simulate"),
        (
            ([_peer(0, NodeType.COMM_SEND, comm_dst=1)], [COMP]),
            {},
            "1 receive(s) are missing for messages from rank 0 to rank 1 with tag 1",
        ),
        (
            ([COMP], [_peer(0, NodeType.COMM_RECV, comm_src=0)]),
            {},
            "1 send(s) are missing for messages from rank 0 to rank 1",
        ),
        (([_peer(0, NodeType.COMM_SEND)], [COMP]), {}, "without a destination"),
    ],
)
def test_workloads_that_cannot_be_simulated(tmp_path, programs, groups, cause):
    assert cause in " ".join(finding.cause for finding in _findings(tmp_path, *programs, groups=groups))


@pytest.mark.parametrize("kind", ["ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER"])
def test_uneven_collectives_without_their_splits_are_told(tmp_path, kind):
    kind = CollectiveType[kind]
    first = [_comm(0, kind=kind), _peer(1, NodeType.COMM_SEND, comm_dst=1)]
    second = [_comm(0, size=12, kind=kind), _peer(1, NodeType.COMM_RECV, comm_src=0)]
    finding = _only(_findings(tmp_path, first, second), "warning")
    assert f"Collective 0 is {kind.name.lower()} of 8 bytes on rank 0 (node 0)" in finding.cause
    assert "on rank 1 (node 0): the collective is uneven, and ASTRA-sim never completes it" in finding.cause


def test_the_shortest_cycle_is_told_with_its_reasons(tmp_path):
    nodes = [{**COMP, "node_id": number, "name": f"k{number}"} for number in range(6)]
    ring = [(1, 2), (2, 3), (3, 4), (4, 1), (4, 3), (4, 5)]
    edges = [(src, dst, EdgeKind.STREAM_ORDER) for src, dst in ring]
    finding = _only(_findings(tmp_path, nodes, edges=edges))
    assert finding.place.endswith("node 3")
    assert "node 3 'k3' waits for node 4 (stream order); node 4 'k4' waits for node 3" in finding.cause
    assert "5 nodes never run" in finding.cause


def _notes(findings):
    assert {finding.severity for finding in findings} <= {"note"}
    return " ".join(finding.cause for finding in findings)


def test_traces_of_others_are_looked_over_and_what_they_lack_is_noted(data_dir):
    folder = data_dir / "converter"
    assert "No host trace was given" in _notes(doctor(f"{folder}/mlp_2/rank{{rank}}.device.json.gz"))
    assert "2 of 8 ranks were given" in _notes(doctor(folder / "dlrm_v100_8"))
    assert "Linked traces were converted" in _notes(doctor(folder / "linked" / "linked_0.json.gz"))
    assert "Linked traces were converted" in _notes(doctor(folder / "linked"))


def test_damaged_files_of_others_are_all_named(data_dir, tmp_path):
    for rank in range(2):
        whole = (data_dir / "converter" / "mlp_2" / f"rank{rank}.device.json.gz").read_bytes()
        (tmp_path / f"rank{rank}.json.gz").write_bytes(whole[:-100])
    findings = doctor(f"{tmp_path}/rank{{rank}}.json.gz")
    assert [finding.severity for finding in findings] == ["error", "error"]
    assert [finding.place for finding in findings] == [f"{tmp_path}/rank{rank}.json.gz" for rank in range(2)]
    shutil.copy(data_dir / "converter" / "mlp_2" / "rank0.host.json.gz", tmp_path / "host.json.gz")
    assert "has no times" in _only(doctor(tmp_path / "host.json.gz")).cause


def test_traces_of_others_without_steps_or_of_other_runs(data_dir, tmp_path):
    source = data_dir / "converter" / "mlp_2"
    document = json.loads(gzip.decompress((source / "rank0.device.json.gz").read_bytes()))
    document["traceEvents"] = [e for e in document["traceEvents"] if "ProfilerStep" not in str(e.get("name"))]
    for event in document["traceEvents"]:
        if "Record function id" in event.get("args", {}):
            event["args"]["Record function id"] += 1
    (tmp_path / "rank0.device.json").write_text(json.dumps(document))
    findings = doctor(tmp_path)
    assert ["No step is marked" in finding.cause for finding in findings] == [True, True, False, False]
    assert "2 intervals that end with 'Optimizer.step#AdamW.step'" in findings[1].cause
    shutil.copy(source / "rank0.host.json.gz", tmp_path / "rank0.host.json.gz")
    assert "different runs" in doctor(tmp_path)[0].cause


def test_differing_collectives_may_have_unnamed_groups(tmp_path):
    graphs = tuple(Graph.build(rank, [_comm(0, size=8 + rank)], []) for rank in range(2))
    note = "the trace names no process group for some collectives: all ranks are assumed"
    for assumptions, told in (([], False), ([note], True)):
        metadata = {"assumptions": assumptions}
        Workload(graphs, np.arange(2, dtype=np.int32), {}, metadata).save(tmp_path / "w")
        assert ("may belong to different groups" in _only(doctor(tmp_path / "w")).cause) == told


# Time of each captured step by kind of work, and differences between steps of one kind.


US = 1000


@pytest.fixture
def served(tmp_path):
    """Return the workload of two prefills and three decodes; decodes are bound by the host."""
    engine = Engine()
    for count in (40, 44):
        engine.step(f"step[EXTEND bs=2 toks={count}]", [50.0] * count)
    engine.now = engine.free + 500
    for count in (11, 15, 13):
        engine.step("step[DECODE bs=4]", [5.0] * count, pause_us=400)
    return convert_files(None, str(engine.write(tmp_path / "trace.json")), step="all")


def test_each_step_s_time_is_added_up(served):
    rows = step_rows(served)
    assert [row["step"] for row in rows] == [*range(5)]
    for row in rows:
        busy = row["compute_ns"] + row["communication_ns"] + row["copy_ns"]
        assert busy + row["idle_ns"] == row["duration_ns"]
    assert [row["kernels"] for row in rows] == [row["launches"] for row in rows] == [40, 44, 11, 15, 13]
    assert [row["compute_ns"] for row in rows] == [2000 * US, 2200 * US, 55 * US, 75 * US, 65 * US]
    assert [row["duration_ns"] for row in rows[2:]] == pytest.approx([226 * US, 306 * US, 266 * US], abs=US)
    assert rows[3]["gap_before_ns"] == pytest.approx(400 * US, abs=10 * US)
    assert rows[3]["longest_gap_ns"] == pytest.approx(20 * US, abs=5 * US)
    assert rows[3]["host_ns"] == pytest.approx((300 + 400) * US, rel=0.02)


def test_kinds_of_steps_have_spread_and_bound(served):
    prefill, decode = step_kinds(step_rows(served))
    assert (prefill["kind"], prefill["steps"], prefill["bound_by"]) == ("prefill", 2, "compute")
    assert (decode["kind"], decode["steps"], decode["bound_by"]) == ("decode", 3, "host")
    assert (decode["requests"], decode["tokens"], decode["kernels"]) == (4, 4, 13)
    times = [decode[name] for name in ("min_ns", "median_ns", "max_ns")]
    assert times == pytest.approx([226 * US, 266 * US, 306 * US], abs=US)


def test_step_table_shows_the_slowest_rank(tmp_path):
    for rank, kernel_us in enumerate((30.0, 90.0)):
        engine = Engine(now=1000.0 + rank)
        for number in range(2):
            engine.step(f"ProfilerStep#{number}", [kernel_us] * 12)
        engine.write(tmp_path / f"rank{rank}.json", rank, 2)
    rows = step_rows(convert_files(None, str(tmp_path / "rank{rank}.json"), step="all"))
    assert [(row["rank"], row["kind"], row["compute_ns"]) for row in rows] == [(1, "", 12 * 90 * US)] * 2
    assert [row["tokens"] for row in rows] == [-1, -1]


def test_a_step_that_overlaps_is_the_same_alone_and_among_others(tmp_path):
    engine = Engine()
    for number in range(4):
        engine.step(f"ProfilerStep#{number}", [60.0] * (20 + number))
    trace = str(engine.write(tmp_path / "trace.json"))
    among = step_rows(convert_files(None, trace, step="all"))[2]
    (alone,) = step_rows(convert_files(None, trace, step=2))
    for name in ("duration_ns", "compute_ns", "idle_ns", "kernels", "launches"):
        assert alone[name] == among[name], name


# Ranks that deadlock are found before a simulation stalls.


def message(node_id, source, target, rank, tag=0):
    kind, end, peer = (
        (NodeType.COMM_SEND, "comm_dst", target)
        if rank == source
        else (NodeType.COMM_RECV, "comm_src", source)
    )
    name = "send" if rank == source else "recv"
    node = {"node_id": node_id, "name": name, "type": kind, "comm_size_bytes": 8, "comm_tag": tag, end: peer}
    return node | {"stream": node_id, "duration_ns": 1}


def collective(node_id, group=0):
    node = {"node_id": node_id, "name": "all_reduce", "type": NodeType.COMM_COLL, "comm_size_bytes": 8}
    return node | {
        "comm_type": CollectiveType.ALL_REDUCE,
        "group": group,
        "stream": node_id,
        "duration_ns": 1,
    }


def workload(*programs, groups=None):
    graphs = tuple(Graph.build(rank, nodes, edges) for rank, (nodes, edges) in enumerate(programs))
    return Workload(graphs, np.arange(len(graphs), dtype=np.int32), groups or {})


def before(*ids):
    return [(one, other, EdgeKind.STREAM_ORDER) for one, other in itertools.pairwise(ids)]


def test_receives_before_their_sends_are_reported(tmp_path):
    first = [message(0, 1, 0, 0), message(1, 0, 1, 0)]
    second = [message(0, 0, 1, 1), message(1, 1, 0, 1)]
    workload((first, before(0, 1)), (second, before(0, 1))).save(tmp_path / "w")
    (finding,) = doctor(tmp_path / "w")
    assert finding.severity == "error"
    for wait in (
        "rank 0's node 1 'send' waits for rank 0's node 0 'recv' (stream order)",
        "rank 1's node 0 'recv' waits for rank 0's node 1 'send' (message)",
    ):
        assert wait in finding.cause
    assert circular_wait(dict(enumerate(workload((first, []), (second, [])).graphs))) is None


@st.composite
def programs(draw):
    """Two or three ranks that exchange messages and all-reduce twice, with random dependencies."""
    ranks = draw(st.integers(2, 3))
    pair = st.permutations(range(ranks)).map(lambda order: order[:2])
    sent = draw(st.lists(pair, min_size=1, max_size=5))
    made = []
    for rank in range(ranks):
        own = [(source, target, tag) for tag, (source, target) in enumerate(sent) if rank in (source, target)]
        order = draw(st.permutations([*own, None, None]))
        nodes = [
            collective(at) if what is None else message(at, *what[:2], rank, what[2])
            for at, what in enumerate(order)
        ]
        ends = st.tuples(st.integers(0, len(nodes) - 1), st.integers(0, len(nodes) - 1))
        pairs = {(min(edge), max(edge)) for edge in draw(st.lists(ends, max_size=6)) if edge[0] != edge[1]}
        first, second = (at for at, what in enumerate(order) if what is None)
        made.append((nodes, [(*edge, EdgeKind.CTRL) for edge in sorted(pairs | {(first, second)})]))
    return workload(*made)


@settings(max_examples=25)
@given(programs())
def test_checks_find_programs_that_stall(job):
    network = NetworkConfig(("Ring",), (job.num_ranks,), (50.0,), (500.0,))
    if circular_wait(dict(enumerate(job.graphs))) is None:
        simulate(job, "default", network, semantics="trace")
    else:
        with pytest.raises(SimulationStalled):
            simulate(job, "default", network, semantics="trace")
