"""A job of one process, such as one GPU: one rank in every answer."""

from __future__ import annotations

import json

import command_line
import numpy as np
import pytest

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload
from chakrascope.runner import NetworkConfig, Study

COMPUTE_NS, COLLECTIVE_NS = 400_000, 30_000


def job() -> Workload:
    """Return a captured step of one rank, with a collective that it has with nobody."""
    plain = {"type": NodeType.COMP, "kind": "compute", "phase": "forward", "module": "layers.0"}
    reduce = {"comm_type": CollectiveType.ALL_REDUCE, "comm_size_bytes": 1 << 20, "stream": 1}
    nodes = [
        plain | {"node_id": 0, "name": "aten::mm", "operator": "aten::mm", "duration_ns": COMPUTE_NS},
        plain
        | reduce
        | {"node_id": 1, "name": "c10d::allreduce_", "operator": "c10d::allreduce_"}
        | {"type": NodeType.COMM_COLL, "kind": "communication", "duration_ns": COLLECTIVE_NS},
    ]
    measured = {"measured_step_ns": {"0": COMPUTE_NS + COLLECTIVE_NS}}
    return Workload((Graph.build(0, nodes, [(0, 1, 0)]),), np.zeros(1, dtype=np.int32), {}, measured)


@pytest.fixture
def study(tmp_path):
    made = Study.create(tmp_path / "study")
    made.add_workload(job(), "job")
    return made


def answer(capsys, *words):
    assert command_line.run(*words, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_an_answer_says_how_many_of_the_ranks_were_measured(tmp_path, capsys):
    """The traces of one rank of eight are repeated for the others."""
    one = job()
    study = Study.create(tmp_path / "eight")
    study.add_workload(Workload(one.graphs, np.zeros(8, dtype=np.int32), {}, one.metadata), "job")
    _, out, _ = command_line.run_and_read(capsys, "summary", study.path)
    assert "job, 1 of 8 ranks, as measured" in out


def ranks_in(value):
    """Yield every rank a JSON answer names."""
    if isinstance(value, dict):
        yield from (entry for key, entry in value.items() if key == "rank")
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from ranks_in(item)


def test_a_replay_is_of_one_rank_in_every_answer(study, capsys):
    path = str(study.path)
    replay = answer(capsys, "run", path, "--backend", "replay")
    assert (len(replay["ranks"]), replay["makespan_ns"]) == (1, COMPUTE_NS + COLLECTIVE_NS)
    for command in ("summary", "critical-path", "diagnose", "graph", "timeline"):
        assert set(ranks_in(answer(capsys, command, path))) <= {0}, command
    measured = answer(capsys, "compare", path, "--measured")
    assert set(ranks_in(measured)) == {0}


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware"])
def test_one_rank_is_simulated_on_its_own(study, tmp_path, capsys, backend):
    """Without a partner its collectives are done at once."""
    network = tmp_path / "alone.yml"
    NetworkConfig(("Ring",), (1,), (50.0,), (500.0,)).save(network)
    alone = answer(capsys, "run", str(study.path), "--network", str(network), "--backend", backend)
    assert (len(alone["ranks"]), alone["makespan_ns"]) == (1, COMPUTE_NS)
