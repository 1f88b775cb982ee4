"""Advice that a replay confirms: fused chains, repeated copies, accumulated gradients and messages."""

import math

import command_line
import numpy as np
import pytest
from studies import analysis_of, study_of
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import CollectiveType
from chakrascope.converter.building import StepTimes
from chakrascope.converter.chakra import DEVICE_LANE
from chakrascope.errors import UsageError
from chakrascope.runner import NetworkConfig, prepare
from chakrascope.runner.analysis import Target, analyse_run, what_if
from chakrascope.runner.analysis._advised import REMEDIES
from chakrascope.runner.analysis._links import messages_on_path
from chakrascope.runner.analysis._memory_traffic import accesses, chains_of_nodes, fusible_chains
from chakrascope.support.table import TextColumn

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
def test_chain_reads_a_shared_tensor_once(rank, saved):
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
        ("aten::mul", "aten::sum"),  # reads less than was written
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


def test_waits_for_a_processor_shrink_with_the_work():
    made = program("aten::mul", "aten::relu", "aten::mul", "aten::mul", "aten::to")
    made.graphs[0].node_columns["tensor_size_bytes"][3] = 1
    waits = np.array([0, 0, 0, 1, 0])
    kinds, causes = TextColumn(waits, ("compute", "host")), TextColumn(waits, ("", "descheduled"))
    graph = made.graphs[0].with_columns(kind=kinds, cause=causes)
    found = fusible_chains(graph, accesses(METADATA))
    assert found.rows.tolist() == [0, 1, 2, 3]
    assert found.fused_ns.tolist() == [1_000_000, 0, 1_000_000, 1_000_000]
    assert found.moved_bytes.tolist()[3] == 0


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
    study = study_of(tmp_path, program("aten::mm", "aten::mul", "aten::relu", "aten::mul"))
    run = analyse_run(study)
    advice = next(item for item in run.advices() if item.key == "fusion:elementwise=inf")
    assert advice.what.startswith("1 chain of 3 elementwise operators, especially aten::mul")
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


# Casts and copies that a step repeats, and their replay.


REPEATED = Target("repeated", "copies")


def copying(*operators, repeated):
    nodes = [
        comp(number, 1_500_000, [number - 1] if number else [], operator=name)
        for number, name in enumerate(operators)
    ]
    return workload(nodes, metadata={"repeated": repeated})


def test_the_advice_on_copies_promises_what_its_replay_gains(tmp_path, capsys):
    made = copying("aten::mm", "aten::copy_", "aten::mm", "aten::copy_", repeated={"0": [3]})
    study = study_of(tmp_path, made)
    run = analyse_run(study)
    advice = next(item for item in run.advices() if item.key == "repeated:copies=inf")
    assert advice.what == "Repeated casts and copies of unchanged data, especially aten::copy_"
    once = what_if(run.experiment(), [(REPEATED, math.inf)])
    assert advice.gain_ns == run.result.makespan_ns - once.makespan_ns == pytest.approx(1_500_000, abs=10)
    command_line.run("what-if", str(study.path), "--faster", "repeated:casts=inf")
    assert "has no repeated 'casts'" in capsys.readouterr().err


@pytest.mark.parametrize("repeated", [{}, {"1": [0]}, {"0": [99]}, {"0": "all"}, ["0"], None])
def test_a_workload_without_repeated_copies_has_no_such_advice(repeated):
    run = prepare(copying("aten::copy_", "aten::copy_", repeated=repeated), "default", None, backend="replay")
    with pytest.raises(UsageError, match="no casts or copies that repeat"):
        what_if(run, [(REPEATED, math.inf)])


# Operators in double precision, and their replay.


@pytest.mark.parametrize("precisions", [("fp64", "fp32"), ("fp64", "fp16")])
def test_the_advice_on_double_precision_promises_half_of_its_time(precisions):
    kinds = [["aten::mm", "gemm", one, "", 9, 60, 40 * (1 + place)] for place, one in enumerate(precisions)]
    nodes = [
        comp(number, 2_000_000, [number - 1] if number else [], operator="aten::mm", tensor_size_bytes=size)
        for number, size in enumerate((100, 140, 100, 1))
    ]
    made = workload(nodes, metadata={"operators": {"kinds": kinds, "ranks": {}}})
    advice = next(item for item in analysis_of(made).advices() if "double" in item.what)
    assert advice.what == "2 operators in double precision, especially aten::mm"
    assert (advice.key, advice.gain_ns) == ("precision:double=2", 2_000_000)
    assert REMEDIES["precision"] in advice.how


def test_page_faults_come_after_the_operators_in_double_precision_that_cause_them():
    """Single precision gains 2 ms of their 4 ms, and the faults take 3 ms."""
    kinds = [["aten::mm", "gemm", "fp64", "", 9, 60, 40]]
    times = StepTimes(30, 5_000_000, 6_000_000, 6_500_000, 7_000_000, faults=9, fault_ns=3_000_000)
    facts = {"operators": {"kinds": kinds, "ranks": {}}, "step_times": times._asdict()}
    nodes = [
        comp(number, 2_000_000, [number - 1] if number else [], operator="aten::mm", tensor_size_bytes=100)
        for number in range(2)
    ]
    causes = [(item.key, item.cause) for item in analysis_of(workload(nodes, metadata=facts)).advices()]
    assert causes == [("precision:double=2", ""), ("", "page_faults")]


def test_page_faults_with_a_large_gain_are_advice_after_many_operators():
    times = StepTimes(30, 5_000_000, 20_000_000, 26_500_000, 27_000_000, faults=9, fault_ns=3_000_000)
    nodes = [
        comp(number, 4_000_000 + number, [number - 1] if number else [], operator=name, name=name)
        for number, name in enumerate(f"aten::{one}" for one in ("mm", "bmm", "gelu", "cumsum", "sort"))
    ]
    items = analysis_of(workload(nodes, metadata={"step_times": times._asdict()})).advices()
    assert [item.cause for item in items] == ["", "", "", "page_faults"]


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_an_optimizer_in_double_precision_is_no_cause_besides_its_precision(precision):
    kinds = [[f"aten::{name}", "elementwise", precision, "", 9, 60, 40] for name in ("mul", "sqrt", "add")]
    nodes = [
        comp(number, 2_000_000, [number - 1] if number else [], operator=f"aten::{name}", phase="optimizer",
             name=f"aten::{name}", tensor_size_bytes=100)
        for number, name in enumerate(("mul", "sqrt", "mul", "add"))
    ]  # fmt: skip
    made = workload(nodes, metadata={"operators": {"kinds": kinds, "ranks": {}}})
    keys = [item.key for item in analysis_of(made).advices()]
    assert ("precision:double=2" in keys) == (precision == "fp64")
    assert any(key.startswith("phase:optimizer") for key in keys) == (precision == "fp32")


@pytest.mark.parametrize(
    ("name", "message"),
    [("bfloat16", "no operators in bfloat16"), ("half", "no precision 'half'.*Allowed: bfloat16, double")],
)
def test_a_precision_that_no_operator_has_is_refused(name, message):
    run = prepare(copying("aten::copy_", "aten::mm", repeated={}), "default", None, backend="replay")
    with pytest.raises(UsageError, match=message):
        what_if(run, [(Target("precision", name), 2.0)])


@pytest.mark.parametrize("has_units", [True, False])
def test_bfloat16_is_avoided_on_a_processor_that_emulates_it(has_units):
    kinds = [["aten::mm", "gemm", "bf16", "", 9, 60, 40]]
    metadata = {"operators": {"kinds": kinds, "ranks": {}}, "bfloat16": has_units}
    nodes = [
        comp(number, 2_000_000, [number - 1] if number else [], operator="aten::mm", tensor_size_bytes=size)
        for number, size in enumerate((100, 100, 140))
    ]
    items = analysis_of(workload(nodes, metadata=metadata)).advices()
    found = [item for item in items if "in bfloat16" in item.what]
    assert [(item.key, item.half_ns) for item in found] == [("precision:bfloat16=inf", 2_000_000)] * (
        not has_units
    )
    assert all(REMEDIES["bfloat16"] in item.how for item in found)


@pytest.mark.parametrize(
    ("operator", "has_units", "end"),
    [
        ("aten::add", True, "(torch.compile), in-place operators, or lower precision"),
        ("aten::add", False, "(torch.compile), or in-place operators"),
        ("aten::native_layer_norm", False, "fusing it with its neighbours (torch.compile)"),
    ],
)
def test_lower_precision_is_no_remedy_on_a_processor_that_emulates_it(operator, has_units, end):
    nodes = [comp(0, 2_000_000, operator=operator), comp(1, 1000, [0], operator="aten::mm")]
    first = analysis_of(workload(nodes, metadata={"bfloat16": has_units})).advices()[0]
    assert first.how.endswith(end)


# Communication that each micro-batch repeats.


MS = 1_000_000
GATHER, SCATTER = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER


def advised(ranks):
    """Return the advice on a replay of *ranks*."""
    return analysis_of(workload(*ranks), semantics="trace").advices()


def step(*batches, copied=""):
    """Return two ranks with a chain of nodes: a forward pass with its collectives, then a backward pass.

    The operands of each collective are *copied* at this place, and the host is inside the call.
    """
    nodes = []

    def add(node, *arguments, **facts):
        number = len(nodes)
        nodes.append(node(number, *arguments, after=[number - 1] if number else [], **facts))

    for forward, backward in batches:
        for phase, messages in (("forward", forward), ("backward", backward)):
            add(comp, MS, phase=phase)
            for kind, size in messages:
                if copied:
                    add(comp, MS, place=copied, phase=phase)
                    add(comp, MS, kind="host", module="", cause="communication_call")
                add(coll, size, comm_type=kind, duration_ns=4 * MS, phase="communication")
    add(comp, MS, phase="optimizer", module="")
    return [nodes, nodes]


REDUCED = ([], [(CollectiveType.ALL_REDUCE, 1 << 20)])
SHARDED = ([(GATHER, 512)], [(GATHER, 512), (SCATTER, 1024)])
TENSOR_PARALLEL = ([(CollectiveType.ALL_REDUCE, 512)], [(CollectiveType.ALL_REDUCE, 512)])


@pytest.mark.parametrize(
    ("batch", "what", "key", "waits"),
    [
        (REDUCED, "all_reduce in each of 4 micro-batches", "collective:all_reduce=4", 4),
        (SHARDED, "all_gather and reduce_scatter in each of 4 micro-batches", "kind:communication=4", 12),
    ],
)
def test_gradients_need_to_be_reduced_once_a_step(batch, what, key, waits):
    first = advised(step(*[batch] * 4))[0]
    assert (first.what, first.key, first.is_bound) == (what, key, False)
    assert first.gain_ns == pytest.approx(waits * 4 * MS * 3 / 4, rel=0.01)
    assert "no_sync()" in first.how


@pytest.mark.parametrize(("place", "gain_ms"), [("gathered parameters of FSDP", 6), ("", 4)])
def test_many_small_collectives_do_not_hide_that_they_are_repeated(place, gain_ms):
    items = advised(step(*[SHARDED] * 10, copied=place))
    assert items[0].what == "30 small collectives (all_gather, reduce_scatter)"
    assert not [item for item in items if item.what.startswith(("all_gather of", "Host time in calls"))]
    repeated = next(item for item in items if item.what.endswith("in each of 10 micro-batches"))
    assert repeated.gain_ns == pytest.approx(30 * gain_ms * MS * 9 / 10, rel=0.01)


@pytest.mark.parametrize(("place", "gain_ms"), [("gathered parameters of FSDP", 6), ("elsewhere", 5)])
def test_calls_and_copies_are_part_of_repeated_communication(place, gain_ms):
    first = advised(step(*[SHARDED] * 4, copied=place))[0]
    assert first.gain_ns == pytest.approx(12 * gain_ms * MS * 3 / 4, rel=0.01)


@pytest.mark.parametrize(
    "batches",
    [
        [REDUCED],
        [TENSOR_PARALLEL] * 4,
        [REDUCED, ([], [(CollectiveType.ALL_REDUCE, 2 << 20)])],
        [([], []), ([], []), REDUCED],
    ],
    ids=["one batch", "activations", "two models", "once per step"],
)
def test_other_communication_is_no_accumulation(batches):
    assert not [one for one in advised(step(*batches)) if "micro-batches" in one.what]


# Sends and receives: their size, the bandwidth they reached and the wait before them.


def pipeline(size_bytes):
    first = [comp(0, 200_000), send(1, 0, 1, size_bytes, (0,), name="c10d::send")]
    second = [recv(0, 0, 1, size_bytes, name="c10d::recv_"), comp(1, 1000, (0,))]
    return workload(first, second, metadata={"measured_step_ns": {"0": 1, "1": 1}})


def analysed(size_bytes, latency_ns):
    network = NetworkConfig(("Switch",), (2,), (10.0,), (latency_ns,))
    return analysis_of(pipeline(size_bytes), network, backend="analytical-unaware")


@pytest.mark.parametrize(
    ("size_bytes", "latency_ns", "hint"),
    [(24 * 1024, 4_000_000.0, "latency"), (1 << 28, 500.0, "communication")],
)
def test_advice_on_a_message_follows_from_its_figures(size_bytes, latency_ns, hint):
    run = analysed(size_bytes, latency_ns)
    (item,) = (item for item in run.advices() if item.what.startswith("Sends and receives"))
    assert REMEDIES[hint] in item.how


def test_figures_of_messages_leave_the_wait_for_the_sender_out():
    run = analysed(1 << 28, 500.0)
    table = messages_on_path(run.nodes, run.path).set_index("name")
    received = table.loc["recv of 256 MiB"]
    assert received["waited_ns"] == 200_000
    assert received["bytes_per_ns"] == pytest.approx(10 * 2**30 / 1e9, rel=0.01)
    assert received["size_bytes"] == 1 << 28
