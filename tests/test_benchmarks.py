"""The benchmarks work on experiments and traces that are small enough for tests."""

import gzip
import json
import sys

import command_line
import numpy as np
import pytest

from chakrascope.cli import _run as run_command
from chakrascope.converter import NodeType
from chakrascope.runner import Study

from .pages import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "benchmarks" / "planted_bottlenecks"))

import astra_sim_fuzz
import plants
import random_experiments
import random_programs
import scale
import trace_edits

# The random experiments that are compared manually with the reference simulator.


@pytest.mark.parametrize("seed", range(30))
def test_the_engine_has_an_answer_to_whatever_is_drawn(seed, tmp_path):
    experiment = random_experiments.draw(seed)
    random_experiments.write(experiment, tmp_path)
    answer = astra_sim_fuzz.ours(tmp_path, "unaware", experiment["options"])
    assert answer["status"] in {"finishes", "stalls", "refuses"}, answer["message"]


def test_shrinking_keeps_the_difference():
    experiment = random_experiments.draw(1)
    kept = experiment["workload"][0][0]["id"]

    def differs(candidate):
        return any(node["id"] == kept for node in candidate["workload"][0])

    small = astra_sim_fuzz.shrink(experiment, differs, tries=500)
    assert [node["id"] for node in small["workload"][0]] == [kept]


# Random programs that can run do run on the default system; the others are reported as deadlocks.

PROGRAMS = 100


@pytest.mark.parametrize("network", random_programs.NETWORKS)
def test_no_program_stalls_that_can_run(network):
    eased = 0
    for seed in range(PROGRAMS):
        program = random_programs.draw(seed)
        output = random_programs.simulate(program, network)
        assert output.unfinished == [], f"seed {seed}"
        assert output.nodes_executed == sum(map(len, program["ranks"])), f"seed {seed}"
        eased += output.overtaking > 0
    assert eased > PROGRAMS // 4  # else the programs test nothing


def test_folding_changes_no_answer():
    for seed in range(0, PROGRAMS, 10):
        program = random_programs.draw(seed)
        folded, whole = (random_programs.simulate(program, fold=fold) for fold in (True, False))
        assert folded.rank_finish_ns.tolist() == whole.rank_finish_ns.tolist(), f"seed {seed}"


def test_impossible_program_is_reported_as_its_cycle():
    for seed in range(PROGRAMS):
        program = random_programs.draw(seed, possible=False)
        output = random_programs.simulate(program)
        assert output.unfinished, f"seed {seed}"
        assert {step["name"] for step in output.deadlock} >= set(program["inverted"]), f"seed {seed}"


def test_a_program_has_one_answer():
    """A rank has nothing to receive from a collective that others have not begun."""
    program = random_programs.draw(8)
    outputs = [random_programs.simulate(program, "analytical-aware") for _ in range(20)]
    assert {output.rank_finish_ns.max() for output in outputs} == {11_580_605}
    assert {int(output.overtaken) for output in outputs} == {101}


# The workloads of the scale benchmark are as described: large, without equal ranks.


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return scale.made(tmp_path_factory.mktemp("scale"), nodes=200, ranks=16, collectives=10)


def test_every_rank_has_a_program_of_its_own_with_the_collectives_of_all(study):
    workload = Study.open(study).workload()
    assert len(workload.graphs) == workload.num_ranks == 16
    for graph in workload.graphs:
        assert graph.num_nodes == 200
        assert (graph.node_columns["type"] == NodeType.COMM_COLL).sum() == 10
        # Every dependency of a rank comes before it, so that no rank stalls.
        assert (graph.edge_columns["src"] < graph.edge_columns["dst"]).all()
    first, second = (workload.graphs[rank].node_columns["duration_ns"] for rank in (0, 1))
    assert not np.array_equal(first, second)


def test_run_of_distinct_ranks_explains_its_duration(study, capsys, monkeypatch):
    monkeypatch.setattr(run_command, "_MANY_PROGRAMS", 16)
    assert command_line.run("run", study, "--network", study / "network.yml") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "16 of 16 ranks run different programs, so each of these ranks is simulated separately" in said


# Edits of a real GPU trace keep its order, and events that depend on a change come later.

TRACE = ROOT / "tests/data/converter/dlrm_v100_8/kineto_0.json.gz"


@pytest.fixture(scope="module")
def events():
    timed = trace_edits.timed_events(json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"])
    timed = [event for event in timed if event.get("cat") != "gpu_user_annotation"]
    first = min(event["ts"] for event in timed)
    return [event | {"ts": event["ts"] - first} for event in timed]


def in_order(events):
    """Return whether the device's events of each stream do not overlap."""
    streams = {}
    for event in sorted((e for e in events if e.get("cat") in trace_edits.DEVICE), key=plants.starts):
        if event["ts"] < streams.get(event["args"]["stream"], 0.0) - 1e-6:
            return False
        streams[event["args"]["stream"]] = event["ts"] + event["dur"]
    return True


def test_an_edit_keeps_the_order_of_the_trace(events):
    middle = plants.leaves(events, plants.steps(events)[0])[100]["ts"]
    later = trace_edits.edited(events, trace_edits.Edit([(middle, 500.0)], lambda event: 0.5 * event["dur"]))
    assert in_order(later)
    pairs = list(zip(events, later, strict=True))
    assert all(new["ts"] >= old["ts"] - 1e-6 for old, new in pairs)
    on_device = [pair for pair in pairs if pair[0]["cat"] in trace_edits.DEVICE]
    assert all(new["dur"] == pytest.approx(1.5 * old["dur"]) for old, new in on_device)
    assert any(new["ts"] >= old["ts"] + 500 for old, new in pairs)


def test_an_added_synchronisation_returns_after_the_work_that_was_issued_before_it(events):
    place = plants.outermost(events, plants.steps(events)[0])[-40]["ts"] - 1e-3
    issued = trace_edits.launches_of(events)
    before = {number for number, call in issued.items() if call["ts"] < place}
    slow = [e for e in plants.kernels(events, communication=False) if e["args"]["correlation"] in before][-5:]

    def synchronise(ts, number):
        args = {"correlation": number, trace_edits.PLANTED: True}
        own = {key: slow[0][key] for key in ("pid", "tid")}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "ts": ts + 2, "dur": 4}
        return [own | call | {"args": args}]

    added = trace_edits.with_calls(events, [place], 24.0, synchronise)
    later = plants.longer(added, [e for e in added if e["args"].get("correlation") in before], 5_000.0)
    (call,) = [e for e in later if trace_edits.PLANTED in (e.get("args") or {})]
    ends = [
        event["ts"] + event["dur"]
        for event in later
        if event.get("cat") in trace_edits.DEVICE and event["args"].get("correlation") in before
    ]
    assert in_order(later)
    assert call["ts"] + call["dur"] == pytest.approx(max(ends), abs=0.01)
    assert call["dur"] > 100  # 4 us without any wait


def test_a_kernel_waits_for_no_kernel_that_was_issued_after_it():
    """A queued kernel that began just after a later-issued one had ended did not wait for it."""
    trace = []
    for number, (call, start, stream) in enumerate([(0.0, 200.0, 20), (100.0, 110.0, 7)]):
        shared = {"ph": "X", "pid": 1, "args": {"correlation": number + 1, "stream": stream}}
        trace.append(shared | {"cat": "cuda_runtime", "name": "launch", "tid": 1, "ts": call, "dur": 5.0})
        length = 85.0 if stream == 7 else 10.0
        trace.append(shared | {"cat": "kernel", "name": "k", "tid": stream, "ts": start, "dur": length})
    later = trace_edits.edited(trace, trace_edits.Edit([(50.0, 1000.0)]))
    assert [event["ts"] for event in later] == [0.0, 200.0, 1100.0, 1100.0]
