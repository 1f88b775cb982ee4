"""The doctor: healthy input is clean, and each kind of damage is found, placed and explained."""

import gzip
import json
import shutil

import numpy as np
import pytest

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
from chakrascope.errors import UsageError

from ..step_times import part, recording


@pytest.fixture
def trace_set(data_dir, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(data_dir / "converter" / "mlp_2", folder)
    return folder


def _edit(folder, change):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


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


def test_all_eight_dlrm_ranks_are_clean(shared, tmp_path):
    import tarfile

    for name in ("dlrm_8gpu_kineto.tar.gz", "dlrm_8gpu_host_et.tar.gz"):
        with tarfile.open(shared / "traces" / name) as archive:
            archive.extractall(tmp_path, filter="data")
    convert_files(
        f"{tmp_path}/dlrm_pytorch_et/dlrm_eg_{{rank}}.json",
        f"{tmp_path}/dlrm_kineto/worker{{rank}}_*.json",
        tmp_path / "w",
    )
    assert doctor(tmp_path / "w") == []


def test_a_recording_of_all_steps_lacks_no_traces(tmp_path):
    """What `trace --steps 0` leaves is whole, and the finding leads to the command that reads it."""
    step = (1, 20, 40, 10, 5, 78)
    (finding,) = doctor(recording(tmp_path, [part(rank, [step] * 3) for rank in (0, 1)]))
    assert finding.severity == "note"
    assert "no traces (--steps 0)" in finding.cause
    assert f"chakrascope diagnose {tmp_path}" in finding.remedy


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
        (lambda m: m["ranks"].pop(1), "1 of the job's 2 ranks left nothing"),
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
    _edit(trace_set, change)
    assert cause in " ".join(finding.cause for finding in doctor(trace_set))


def _edit_device(folder, change):
    path = folder / "rank1.device.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    change(document)
    path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))


def test_files_of_different_ranks_runs_and_clocks(trace_set):
    def other_run(document):
        for event in document["traceEvents"]:
            if "Record function id" in event.get("args", {}):
                event["args"]["Record function id"] += 1

    def later(document):
        document["distributedInfo"] = {"rank": 0, "world_size": 2}
        document["baseTimeNanoseconds"] += 10**10

    _edit_device(trace_set, other_run)
    assert "different runs" in _only(doctor(trace_set)).cause
    _edit_device(trace_set, later)
    causes = " ".join(finding.cause for finding in doctor(trace_set))
    assert "It is the trace of rank 0, but stands for rank 1" in causes
    assert "clocks disagree" in causes


def test_a_partial_capture_is_warned_of(trace_set):
    _edit(trace_set, lambda manifest: manifest.update(partial=True, reasons=["rank 1 was killed."]))
    assert "partial: rank 1 was killed." in _only(doctor(trace_set), "warning").cause


def test_what_is_nothing_to_look_over_is_said(tmp_path):
    with pytest.raises(UsageError, match="is no study"):
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
        (([_comm(0, group=1)], [_comm(0, group=1)]), {1: (0,)}, "group 1, which has it not as a member"),
        (([_comm(0)], [_comm(0)]), {1: (0, 7)}, "It lists rank 7"),
        (([_comm(0)], [_comm(0)]), {1: (0, 0)}, "It lists a rank twice"),
        (([_comm(0, is_cpu_op=True)], [_comm(0)]), {}, "marked as a CPU operation"),
        (([_comm(0, kind=CollectiveType.BARRIER)],) * 2, {}, "on which ASTRA-sim stops"),
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
    assert "of 12 bytes on rank 1 (node 0): it is uneven, and ASTRA-sim waits there for ever" in finding.cause


def test_the_shortest_cycle_is_told_with_its_reasons(tmp_path):
    nodes = [{**COMP, "node_id": number, "name": f"k{number}"} for number in range(6)]
    ring = [(1, 2), (2, 3), (3, 4), (4, 1), (4, 3), (4, 5)]
    edges = [(src, dst, EdgeKind.STREAM_ORDER) for src, dst in ring]
    finding = _only(_findings(tmp_path, nodes, edges=edges))
    assert finding.place.endswith("node 3")
    assert "node 3 'k3' waits for node 4 (stream order); node 4 'k4' waits for node 3" in finding.cause
    assert "5 nodes never run" in finding.cause


def test_dangling_dependencies_are_placed(tmp_path):
    finding = _only(_findings(tmp_path, [COMP], edges=[(7, 0, EdgeKind.DATA)]))
    assert finding.place.endswith("node 0")
    assert "waits for node 7, which does not exist" in finding.cause


def _notes(findings):
    assert {finding.severity for finding in findings} <= {"note"}
    return " ".join(finding.cause for finding in findings)


def test_traces_of_others_are_looked_over_and_what_they_lack_is_noted(data_dir):
    folder = data_dir / "converter"
    assert "No host trace was given" in _notes(doctor(f"{folder}/mlp_2/rank{{rank}}.device.json.gz"))
    assert "2 of 8 ranks were given" in _notes(doctor(folder / "dlrm_v100_8"))
    assert "Linked traces were converted" in _notes(doctor(folder / "linked" / "linked_0.json.gz"))
    assert "Linked traces were converted" in _notes(doctor(folder / "linked"))


def test_damaged_traces_of_others_are_all_named(data_dir, tmp_path):
    for rank in range(2):
        whole = (data_dir / "converter" / "mlp_2" / f"rank{rank}.device.json.gz").read_bytes()
        (tmp_path / f"rank{rank}.json.gz").write_bytes(whole[:-100])
    findings = doctor(f"{tmp_path}/rank{{rank}}.json.gz")
    assert [finding.severity for finding in findings] == ["error", "error"]
    assert [finding.place for finding in findings] == [f"{tmp_path}/rank{rank}.json.gz" for rank in range(2)]
    shutil.copy(data_dir / "converter" / "mlp_2" / "rank0.host.json.gz", tmp_path / "host.json.gz")
    assert "holds no times" in _only(doctor(tmp_path / "host.json.gz")).cause


def test_traces_of_others_without_steps_or_of_other_runs(data_dir, tmp_path):
    source = data_dir / "converter" / "mlp_2"
    document = json.loads(gzip.decompress((source / "rank0.device.json.gz").read_bytes()))
    document["traceEvents"] = [e for e in document["traceEvents"] if "ProfilerStep" not in str(e.get("name"))]
    for event in document["traceEvents"]:
        if "Record function id" in event.get("args", {}):
            event["args"]["Record function id"] += 1
    (tmp_path / "rank0.device.json").write_text(json.dumps(document))
    findings = doctor(tmp_path)
    assert ["No step is marked" in finding.cause for finding in findings] == [True, False, False]
    shutil.copy(source / "rank0.host.json.gz", tmp_path / "rank0.host.json.gz")
    assert "different runs" in doctor(tmp_path)[0].cause


def test_collectives_that_differ_may_be_of_groups_that_nobody_named(tmp_path):
    graphs = tuple(Graph.build(rank, [_comm(0, size=8 + rank)], []) for rank in range(2))
    note = "the trace names no process group for some collectives: all ranks are assumed"
    for assumptions, told in (([], False), ([note], True)):
        metadata = {"assumptions": assumptions}
        Workload(graphs, np.arange(2, dtype=np.int32), {}, metadata).save(tmp_path / "w")
        assert ("may be of different groups" in _only(doctor(tmp_path / "w")).cause) == told
