"""Systems with custom algorithms: what they are known by, and how their files travel with a study."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import yaml
from processes import wait_for
from workloads import coll, comp, workload

from chakrascope.converter import Graph, NodeType, encode_graph
from chakrascope.errors import ConfigError
from chakrascope.runner import JobStore, Study, SystemConfig, get_backend, prepare, run_sweep

SIZE = 1 << 20


def write_algorithm(prefix, repeats=1):
    """Write an exchange of two ranks: each sends all it has to the other, so many times."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for position in range(2):
        nodes, edges = [], []
        for turn in range(repeats):
            peer = 1 - position
            sends = {"comm_src": position, "comm_dst": peer, "comm_tag": turn, "comm_size_bytes": SIZE}
            gets = sends | {"comm_src": peer, "comm_dst": position}
            nodes.append({"node_id": 2 * turn, "name": "send", "type": NodeType.COMM_SEND, **sends})
            nodes.append({"node_id": 2 * turn + 1, "name": "recv", "type": NodeType.COMM_RECV, **gets})
            if turn:
                edges += [(2 * turn - 1, 2 * turn, 0), (2 * turn - 1, 2 * turn + 1, 0)]
        file = prefix.with_name(f"{prefix.name}.{position}.et")
        file.write_bytes(encode_graph(Graph.build(position, nodes, edges)))


def system_in(folder, name="mine", repeats=1):
    write_algorithm(folder / name, repeats)
    (folder / "system.json").write_text(json.dumps({"all-reduce-implementation-custom": [name]}))
    return folder / "system.json"


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[comp(0, 500), coll(1, SIZE, (0,)), coll(2, SIZE, (1,))]] * 2), "job")
    return study


def experiment(study, system):
    return prepare(study.workload_prefix(), system, "ring-2")


def makespan(asked):
    return get_backend(asked.backend).run(asked).makespan_ns


def test_an_experiment_is_known_by_what_algorithms_hold_and_not_by_where_they_are(study, tmp_path):
    one = experiment(study, system_in(tmp_path / "a"))
    same = experiment(study, system_in(tmp_path / "b", "other/name"))
    more = experiment(study, system_in(tmp_path / "c", repeats=3))
    assert one.content_hash == same.content_hash != more.content_hash
    assert one.content_hash != experiment(study, "default").content_hash
    assert makespan(one) == makespan(same) < makespan(more)


def test_a_job_simulates_a_system_with_custom_algorithms(study, tmp_path):
    asked = experiment(study, system_in(tmp_path / "mine", repeats=2))
    expected = makespan(asked)
    store = JobStore(study, launch=lambda *_: 0)
    store.submit(asked)
    shutil.rmtree(tmp_path / "mine")
    moved = study.path.rename(tmp_path / "moved")
    store = JobStore(Study.open(moved))
    store.resume()
    wait_for(lambda: not store.jobs()[0].is_active)
    (job,) = store.jobs()
    assert (job.state, job.message) == ("done", "")
    assert store.study.result(job.experiment).makespan_ns == expected


def test_a_run_keeps_its_algorithms_and_can_be_repeated(study, tmp_path):
    asked = experiment(study, system_in(tmp_path / "mine"))
    run = study.add_run(asked, get_backend(asked.backend).run(asked))
    shutil.rmtree(tmp_path / "mine")
    again = study.experiment(run)
    assert again.content_hash == run
    assert makespan(again) == study.result(run).makespan_ns
    texts = [file.read_text() for file in (study.path / "runs" / run).glob("*.json")]
    assert not any(str(tmp_path) in text for text in texts)


def test_algorithms_of_single_nodes_travel_too(study, tmp_path):
    write_algorithm(tmp_path / "slow", repeats=4)
    (tmp_path / "nodes.yml").write_text(yaml.safe_dump({2: str(tmp_path / "slow")}))
    (tmp_path / "system.json").write_text(
        json.dumps({"per-node-custom-implementation": "nodes.yml", "all-reduce-implementation": ["ring"]})
    )
    asked = experiment(study, tmp_path / "system.json")
    run = study.add_run(asked, get_backend(asked.backend).run(asked))
    shutil.rmtree(tmp_path / "slow", ignore_errors=True)
    assert (study.experiment(run).content_hash, makespan(study.experiment(run))) == (run, makespan(asked))
    assert makespan(asked) > makespan(experiment(study, "default"))


def test_a_sweep_over_systems_with_custom_algorithms(study, tmp_path):
    systems = [str(system_in(tmp_path / name, repeats=repeats)) for name, repeats in (("a", 1), ("b", 3))]
    found = run_sweep(study, {"system": systems}, network="ring-2", workers=1, keep=1)
    assert found.points["system"].tolist() == systems
    assert study.experiment(found.kept[0]).content_hash == found.kept[0]


def test_algorithms_are_looked_for_from_the_working_directory_first(study, tmp_path, monkeypatch):
    """As ASTRA-sim does: its examples name algorithms from the folder it is started in."""
    write_algorithm(tmp_path / "here" / "examples" / "mine", repeats=3)
    beside = system_in(tmp_path / "there", "examples/mine")
    monkeypatch.chdir(tmp_path / "here")
    asked = experiment(study, beside)
    run = study.add_run(asked, get_backend(asked.backend).run(asked))
    monkeypatch.chdir(tmp_path)
    other = experiment(study, beside)
    assert makespan(asked) == makespan(study.experiment(run)) > makespan(other)
    assert study.experiment(run).content_hash == run != other.content_hash


def test_algorithms_without_files_are_named(study, tmp_path):
    asked = replace(
        experiment(study, "default"), system=SystemConfig(all_gather_implementation_custom=("mine",))
    )
    with pytest.raises(ConfigError, match="'mine' has no files"):
        JobStore(study).submit(asked)


def test_an_algorithm_may_end_with_a_receive_whose_bytes_are_there(study, tmp_path):
    """Where bytes are matched by arrival, as in ASTRA-sim's packet networks, it completes at once."""
    for position in range(2):
        to = {"comm_src": position, "comm_dst": 1 - position, "comm_tag": 0, "comm_size_bytes": SIZE}
        back = to | {"comm_src": 1 - position, "comm_dst": position}
        nodes = [
            {"node_id": 0, "name": "send", "type": NodeType.COMM_SEND, **to},
            {"node_id": 1, "name": "reduce", "type": NodeType.COMP, "duration_ns": 10**9},
            {"node_id": 2, "name": "recv", "type": NodeType.COMM_RECV, **back},
        ]
        graph = Graph.build(position, nodes, [(0, 1, 0), (1, 2, 0)])
        (tmp_path / f"late.{position}.et").write_bytes(encode_graph(graph))
    (tmp_path / "system.json").write_text(json.dumps({"all-reduce-implementation-custom": ["late"]}))
    asked = prepare(
        study.workload_prefix(), tmp_path / "system.json", "ring-2", backend="flow", semantics="astra-sim"
    )
    assert 2 * 10**9 < makespan(asked) < 2 * 10**9 + 10**6
