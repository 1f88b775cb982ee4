"""Chains of elementwise operators that could be fused: which ones, what that saves, and its replay."""

from __future__ import annotations

import math

import command_line
import numpy as np
import pytest
from workloads import comp, workload

from chakrascope.converter.chakra import DEVICE_LANE
from chakrascope.errors import UsageError
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import Target, analyse_run, what_if
from chakrascope.runner.analysis._fusion import accesses, chains_of_nodes, fusible_chains

# Operator -> class, bytes read, bytes written.
MODELS = {
    "aten::mul": ("elementwise", 200, 100),
    "aten::relu": ("elementwise", 100, 100),
    "aten::add_": ("elementwise", 200, 100),
    "aten::mean": ("reduction", 100, 1),
    "aten::clone": ("copy", 100, 100),
    "aten::sum": ("elementwise", 50, 50),
}
METADATA = {
    "operators": {
        "kinds": [
            [name, kind, "fp32", "", 1, read, written] for name, (kind, read, written) in MODELS.items()
        ],
        "ranks": {},
    }
}


def program(*operators, **facts):
    nodes = [
        comp(number, 1_500_000, [number - 1] if number else [], operator=name,
             tensor_size_bytes=sum(MODELS[name][1:]) if name in MODELS else 300) | facts
        for number, name in enumerate(operators)
    ]  # fmt: skip
    return workload(nodes, metadata=METADATA)


def chains_of(made):
    return fusible_chains(made.graphs[0], accesses(made.metadata))


def test_intermediate_results_of_a_chain_are_neither_written_nor_read():
    found = chains_of(program("aten::mul", "aten::relu", "aten::mul"))
    assert found.rows.tolist() == [0, 1, 2]
    assert found.moved_bytes.tolist() == [300, 200, 300]
    assert found.saved_bytes.tolist() == [100, 200, 100]
    assert found.fused_ns.tolist() == [1_000_000, 0, 1_000_000]


@pytest.mark.parametrize(("rank", "saved"), [("0", 200), ("1", 100)])
def test_a_chain_reads_a_tensor_once_that_several_of_its_operators_read(rank, saved):
    made = program("aten::mul", "aten::relu", "aten::mul", "aten::mm", "aten::mul")
    shared = [[2, 0, 100], [4, 2, 100], [7, 2, 100]]  # in the chain, outside of it, of no node
    metadata = METADATA | {"shared_inputs": {rank: shared}}
    found = fusible_chains(made.graphs[0], accesses(metadata))
    assert found.saved_bytes.tolist() == [100, 200, saved]


@pytest.mark.parametrize("shared", [None, 7, {"0": [[1, 2]]}, {"x": []}, {"0": [["a", 1, 2]]}])
def test_edited_metadata_shares_nothing(shared):
    assert not accesses(METADATA | {"shared_inputs": shared}).shared


@pytest.mark.parametrize(
    "operators",
    [
        ("aten::mul", "aten::mm", "aten::relu"),  # a product between them
        ("aten::mul", "aten::mean", "aten::relu"),
        ("aten::clone", "aten::clone"),  # two copies of different tensors
        ("aten::add_", "aten::add_"),
        ("aten::mul", "aten::sum"),  # reads less than what was written
    ],
)
def test_neighbours_that_pass_nothing_on_are_no_chain(operators):
    assert not len(chains_of(program(*operators)).rows)


def test_all_parts_of_an_operator_that_lost_its_processor_are_fused():
    made = program("aten::mul", "aten::relu", "aten::relu", "aten::mul", "aten::to")
    made.graphs[0].node_columns["tensor_size_bytes"][[2, 4]] = 1
    found = chains_of(made)
    assert found.rows.tolist() == [0, 1, 2, 3]
    assert found.moved_bytes.tolist() == [300, 200, 0, 300]
    assert found.saved_bytes.tolist() == [100, 200, 0, 100]
    assert found.fused_ns.tolist() == [1_000_000, 0, 0, 1_000_000]


def test_a_product_ends_a_chain():
    found = chains_of(program("aten::mul", "aten::relu", "aten::mm", "aten::relu", "aten::mul"))
    assert len(np.unique(found.chain)) == 2
    assert found.saved_bytes.tolist() == [100, 100, 100, 100]


@pytest.mark.parametrize("facts", [{"phase": "optimizer"}, {"kind": "host"}, {"tensor_size_bytes": 77}])
def test_optimizers_and_operators_without_model_are_left_out(facts):
    assert not len(chains_of(program("aten::mul", "aten::relu", **facts)).rows)


def test_work_between_two_operators_on_another_stream_does_not_end_a_chain():
    made = program("aten::mul", "aten::relu")
    nodes = made.graphs[0].nodes.to_dict("records")
    nodes = [node | {"after": []} for node in nodes]
    nodes.insert(1, comp(5, 10, operator="aten::mm", stream=9) | {"node_id": 5})
    assert (
        len(chains_of(workload(sorted(nodes, key=lambda node: node["node_id"]), metadata=METADATA)).rows) == 2
    )


@pytest.mark.parametrize(("stream", "chained"), [(0, 2), (DEVICE_LANE + 7, 0)])
def test_conversions_of_scalars_on_a_host_do_not_end_a_chain(stream, chained):
    made = program("aten::mul", "aten::to", "aten::relu", stream=stream)
    made.graphs[0].node_columns["tensor_size_bytes"][1] = 12
    assert len(chains_of(made).rows) == chained


def test_the_advice_promises_what_its_replay_gains(tmp_path, capsys):
    study = Study.create(tmp_path / "study")
    made = program("aten::mm", "aten::mul", "aten::relu", "aten::mul")
    experiment = prepare(study.add_workload(made, "job"), "default", None, backend="replay")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="job")
    run = analyse_run(study)
    advice = next(item for item in run.advices() if item.key == "fusion:elementwise=inf")
    assert advice.what.startswith("1 chain of 3 elementwise operators, most for aten::mul")
    assert "400 B of 800 B need not be moved" in advice.how
    fused = what_if(run.experiment(), [(Target("fusion", "elementwise"), math.inf)])
    assert advice.gain_ns == run.result.makespan_ns - fused.makespan_ns
    assert advice.gain_ns == pytest.approx(2_500_000, abs=10)
    command_line.run("what-if", study.path, "--faster", "fusion:products=inf")
    assert "has no fusion 'products'" in capsys.readouterr().err


def test_a_workload_without_chains_has_nothing_to_fuse():
    run = prepare(program("aten::mm", "aten::mm"), "default", None, backend="replay")
    with pytest.raises(UsageError, match="no chains of elementwise operators"):
        what_if(run, [(Target("fusion", "elementwise"), math.inf)])


def test_a_node_that_is_on_the_path_twice_counts_twice():
    made = program("aten::mm", "aten::mul", "aten::relu")
    places, chains = chains_of_nodes(made, np.zeros(5, np.int64), np.array([2, 1, 0, 2, -1]))
    assert places.tolist() == [0, 1, 3]
    assert chains.saved_bytes.tolist() == [100, 100, 100]
