"""Generated training steps: models, plans, schedules, and consistency of their graphs."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import Prices

from chakrascope.cli._predict import predict_command
from chakrascope.converter import CollectiveType, NodeType, Workload, doctor
from chakrascope.errors import ChakrascopeError, UsageError
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.prediction import predicted_system
from chakrascope.runner.prediction.models import (
    SCHEDULES,
    Operator,
    Plan,
    Routing,
    Spread,
    Transformer,
    find_model,
    fullest_memory,
    in_flight,
    list_models,
    pass_over_layer,
    phases,
    rank_memory,
    read_model,
    schedule,
    spread,
    training_step,
)

TINY = Transformer(name="tiny", layers=4, hidden=64, heads=4, ffn=256, vocab=100, sequence=32, tied=True)
GIB = 1 << 30


# Parameters in units of 10^9, as in the models' names or cards.
@pytest.mark.parametrize(
    ("name", "params", "active"),
    [
        ("gpt3-175b", 175, 175),
        ("llama3-8b", 8.03, 8.03),
        ("llama3-405b", 405.8, 405.8),
        ("mixtral-8x7b", 46.7, 12.9),
        ("deepseek-v3", 671, 37.6),
        ("mpt-7b", 6.66, 6.66),
        ("grok1", 314, 84),
        ("llama4-maverick", 400, 17.2),
        ("llama4-scout", 108, 17.2),
        ("nemotron4-340b", 341, 341),
        ("vit-b16", 0.0866, 0.0866),
        ("resnet50", 0.02556, 0.02556),
        ("vgg16", 0.13836, 0.13836),
    ],
)
def test_models_have_the_parameters_they_are_known_for(name: str, params: float, active: float):
    model = find_model(name)
    assert model.params() / 1e9 == pytest.approx(params, rel=0.012)
    assert model.params(active=True) / 1e9 == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize("name", list_models())
def test_every_model_can_be_trained_on_one_rank(name: str):
    model = find_model(name)
    model = replace(model, layers=4, convolutions=model.convolutions[:4])
    workload = training_step(model, Plan(), Prices(), 8)
    assert workload.num_ranks == 1
    assert workload.graphs[0].num_nodes >= 4 * 4  # a matmul and pointwise operators, forward and backward


def test_a_hugging_face_config_gives_the_sizes(tmp_path: Path):
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert replace(read_model(path), name="llama3-8b") == find_model("llama3-8b")


def test_a_hugging_face_config_with_experts_in_every_other_layer(tmp_path: Path):
    text = {
        "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "interleave_moe_layer_step": 2, "num_local_experts": 128, "num_experts_per_tok": 1,
        "vocab_size": 202048, "max_position_embeddings": 8192,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama4", "text_config": text}))
    assert replace(read_model(path), name="llama4-maverick") == find_model("llama4-maverick")
    assert [find_model("llama4-maverick").is_expert_layer(layer) for layer in range(4)] == [False, True] * 2


def test_an_all_to_all_across_nodes_uses_the_links_of_both():
    """Each of 32 ranks in 4 nodes keeps a 4th of its bytes in the node, and sends 3 of 4 by its NIC."""
    near, far = phases(CollectiveType.ALL_TO_ALL, 3200.0, Spread(8, 4))
    assert (near.level, near.size_bytes, far.level, far.size_bytes) == ("within", 800.0, "across", 3200.0)
    # The bytes that leave a rank: to 7 peers of its node and to 24 elsewhere, 100 bytes each.
    assert near.size_bytes * 7 / 8 + far.size_bytes * 3 / 4 == 31 * 100.0
    model = replace(TINY, experts=32, top_k=1, expert_ffn=64, layers=1)
    plan = Plan(dp=32, global_batch=32, ep=32, deduplicate=False)
    workload = training_step(model, plan, Prices(), 8)
    nodes = workload.graphs[0].nodes
    exchanged = {
        int(size): len(workload.groups[group])
        for kind, size, group in zip(
            nodes["comm_type"], nodes["comm_size_bytes"], nodes["group"], strict=True
        )
        if kind == CollectiveType.ALL_TO_ALL
    }
    assert exchanged == {1024: 8, 4096: 4}  # 32 tokens of 64 numbers of two bytes


def test_token_is_sent_once_per_node():
    """Of 4 experts in 2 nodes a token uses 2: in a third of the 6 pairs both are in one node."""
    near, far = phases(CollectiveType.ALL_TO_ALL, 1200.0, Spread(2, 2), Routing(4, 2))
    assert far.size_bytes == pytest.approx(1200.0 * (1 / 3 * 1 + 2 / 3 * 2) / 2)
    assert near.size_bytes == pytest.approx(1200.0)  # an expert a rank: two ranks for each token
    (alone,) = phases(CollectiveType.ALL_TO_ALL, 1200.0, Spread(2, 1), Routing(4, 2))
    assert alone.size_bytes == pytest.approx(1200.0 * (1 / 3 * 1 + 2 / 3 * 2) / 2)
    (every,) = phases(CollectiveType.ALL_TO_ALL, 1200.0, Spread(2, 1), Routing(4, 4))
    assert every.size_bytes == 600.0
    # Of 8 experts in 4 nodes a token uses 2, in 2 of 4 groups: as of 4 experts in 2 nodes.
    assert Routing(8, 2, 4, 2).places(4) == pytest.approx(Routing(4, 2).places(2))
    assert Routing(8, 2, 4, 2).places(2) == Routing(8, 2).places(2)  # groups share a node


def test_overlapped_experts_take_the_longer_of_exchange_and_computation():
    model = replace(TINY, experts=32, top_k=4, expert_ffn=64, layers=2)

    def run(plan: Plan) -> tuple[int, int, int]:
        workload = training_step(model, plan, Prices(), 4)
        nodes = workload.graphs[0].nodes
        computed = int(nodes["duration_ns"][nodes["stream"] == 0].sum())
        return (
            simulate(workload, predicted_system(NETWORK.topology), NETWORK).makespan_ns,
            int(nodes["comm_size_bytes"].clip(lower=0).sum()),
            computed,
        )

    alone = Plan(dp=8, ep=8, global_batch=8)
    (slow, sent, compute), (fast, sent_beside, joined) = (
        run(plan) for plan in (alone, replace(alone, expert_overlap=True))
    )
    assert compute < fast < slow
    assert sent == sent_beside
    assert joined == compute


def test_low_precisions_cast_what_their_products_read():
    def nodes(precision: str) -> Counter[str]:
        frame = training_step(TINY, Plan(precision=precision), Prices(), 4).graphs[0].nodes
        return frame.groupby("operator")["tensor_size_bytes"].sum()

    half, low, lower = (nodes(precision) for precision in ("bf16", "fp8", "nvfp4"))
    assert "cast" not in half
    assert "half_gemm" not in half
    assert low["half_gemm"] > 0  # the logits
    assert lower["gemm"] < low["gemm"] < half["gemm"] - low["half_gemm"]
    assert lower["cast"] < low["cast"]


def test_ranks_cast_their_rows_before_they_gather_them():
    """Transformer Engine gathers operands in a low precision, so ranks cast only their own rows."""
    plan = Plan(tp=4, sequence_parallel=True, tensor_overlap=True, precision="fp8")
    names = [item.name for item in pass_over_layer(TINY, plan, 0)]
    for cast, gather, product in (
        ("qkv cast", "attention all_gather", "qkv"),
        ("up cast", "mlp all_gather", "up"),
    ):
        place = names.index(cast)
        assert names[place : place + 3] == [cast, gather, product]

    def casts(changed: Plan) -> dict[str, float]:
        items = pass_over_layer(TINY, changed, 0)
        return {item.name: item.moved_bytes for item in items if isinstance(item, Operator)}

    own, whole = casts(plan), casts(replace(plan, sequence_parallel=False, tensor_overlap=False))
    assert own["qkv cast"] == whole["qkv cast"] / 4
    assert own["up cast"] == whole["up cast"] / 4
    assert own["down cast"] == whole["down cast"]


@pytest.mark.parametrize("expert_tp", [1, 0])
def test_ranks_cast_their_rows_of_shared_experts_before_they_gather_them(expert_tp: int):
    model = replace(TINY, experts=4, top_k=2, expert_ffn=64, shared_experts=1)
    plan = Plan(tp=4, sequence_parallel=True, precision="fp8", expert_tp=expert_tp)
    items = [item for item in pass_over_layer(model, plan, 0) if item.module.endswith(".shared")]
    cast = next(item for item in items if item.name == "up cast")
    rows = model.sequence / plan.tp
    assert isinstance(cast, Operator)
    assert cast.moved_bytes == rows * model.hidden * (2 + 2)  # half precision is read, two FP8 copies written


@pytest.mark.parametrize("expert_tp", [2, 0])
def test_ranks_that_share_an_expert_exchange_tokens_in_half_precision(expert_tp: int):
    """Megatron's dispatchers gather and reduce tokens before the experts' matmuls cast them."""
    model = replace(TINY, experts=4, top_k=2, expert_ffn=64)

    def exchanged(precision: str) -> list[tuple[str, float]]:
        plan = Plan(tp=4, sequence_parallel=True, precision=precision, expert_tp=expert_tp)
        items = [*pass_over_layer(model, plan, 0), *pass_over_layer(model, plan, 0, backward=True)]
        return [(item.name, item.size_bytes) for item in items if getattr(item, "axes", ()) == ("etp",)]

    assert exchanged("fp8") == exchanged("bf16")
    names = ["mlp all_gather", "mlp reduce_scatter"]
    assert [name for name, _ in exchanged("fp8")] == [*names, *(f"{name} gradient" for name in names[::-1])]


def test_adapters_gather_their_own_input():
    plan = Plan(tp=2, sequence_parallel=True, frozen=True)
    counts = Counter(training_step(TINY, plan, Prices(), 8).graphs[0].nodes["name"])
    trained = Counter(training_step(TINY, replace(plan, frozen=False), Prices(), 8).graphs[0].nodes["name"])
    assert counts["adapter all_gather"] == counts["adapter all_gather gradient"] == TINY.layers
    assert not trained["adapter all_gather"]


def test_adapters_of_a_rank_are_trained_and_nothing_else_is():
    plan = Plan(tp=2, dp=4, global_batch=8, zero=1, frozen=True, lora=4)
    params = TINY.layers * 4 * (TINY.hidden + 3 * TINY.hidden) / 2  # queries, keys and values, of two ranks
    nodes = training_step(TINY, plan, Prices(), 8).graphs[0].nodes.set_index("name")
    # Two matmuls, each with both its gradients; frozen ones have only the gradient of the input.
    layer = nodes[nodes["module"] == "layers.0.attention"]["num_ops"]
    for name, gradients in (("adapter down", 2), ("adapter up", 2), ("qkv", 1), ("projection", 1)):
        micro_batches = 2
        assert layer[f"{name} gradient"].sum() == gradients * layer[name].sum(), name
        assert len(layer[[name]]) == micro_batches
    assert layer["adapter down"].iloc[0] == 2 * TINY.sequence * TINY.hidden * 4 / 2
    assert nodes.loc["adapters", "comm_size_bytes"] == params * plan.grad_bytes
    assert nodes.loc["optimizer", "tensor_size_bytes"] == params / 4 * 30
    memory, none = (rank_memory(TINY, replace(plan, lora=rank), 0) for rank in (4, 0))
    assert (none.gradients, none.optimizer) == (0, 0)
    assert (memory.gradients, memory.optimizer) == (params * 4, params / 4 * 12)
    assert memory.weights - none.weights == params * 2
    whole = replace(plan, frozen=False, lora=0)
    assert memory.activations < rank_memory(TINY, whole, 0).activations
    # FSDP also shards frozen weights.
    sharded = rank_memory(TINY, replace(plan, tp=1, zero=3), 0)
    assert sharded.weights == pytest.approx((TINY.params() / 4 + 2 * params) * 2)
    with pytest.raises(UsageError, match="need a rank of 1 or more"):
        replace(whole, lora=4).check(TINY)
    with pytest.raises(UsageError, match="leave out --lora"):
        replace(plan, tp=1).check(find_model("resnet50"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers: 2\nhidden: 64\nheads: 4\nvocab: 10\n", "'sequence' is missing"),
        ("layers: 2\nhidden: 64\nheads: 5\nvocab: 10\nsequence: 8\n", "must divide the hidden units"),
        ("layer: 2\n", "did you mean 'layers'"),
        ("layers: two\n", "must be a whole number"),
        ("- 1\n", "must be a mapping"),
        ("layers: [", "is not valid YAML"),
        ("layers: 2\nlayers: 4\n", "the key 'layers' occurs twice"),
        ("layers: 1e400\n", "the number 1e400 is too large"),
    ],
)
def test_errors_of_a_model_file_are_named(text: str, words: str, tmp_path: Path):
    path = tmp_path / "mine.yml"
    path.write_text(text)
    with pytest.raises(ChakrascopeError, match=words):
        read_model(path)


def test_a_misspelt_model_is_told_the_closest():
    with pytest.raises(UsageError, match="did you mean 'llama3-8b'"):
        find_model("llama3-8")
    with pytest.raises(UsageError, match="did you mean 'gpt3-175b'"):
        find_model("gpt-3-175b")


@pytest.mark.parametrize("name", ["llama3-8b", "resnet50"])
def test_a_step_of_endless_micro_batches_is_refused(name: str):
    answer = CliRunner().invoke(
        predict_command, ["--model", name, "--on", "8xh100", "--global-batch", "1000000000000"]
    )
    assert isinstance(answer.exception, UsageError)
    assert "A step of 125,000,000,000 micro-batches makes about" in answer.exception.message


def test_a_model_of_another_family_is_no_suggestion():
    with pytest.raises(UsageError, match=r"There is no model 'gpt-oss-120b'\. `chakrascope predict"):
        find_model("gpt-oss-120b")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(tp=3), "--tp 2"),
        (Plan(pp=8), "reduce --pp"),
        (Plan(dp=4, micro_batch=2, global_batch=12), "--global-batch 16|--global-batch 8"),
        (Plan(ep=2, dp=2, global_batch=2), "has no experts"),
        (Plan(pp=2, chunks=2, schedule="interleaved", global_batch=3), "multiple of --pp 2"),
        (Plan(dp=0), "--dp must be 1 or more"),
        (Plan(cp=16, sequence=48), "--sequence 32"),
        (Plan(tp=4, sequence_parallel=True, sequence=18), "--no-sequence-parallel"),
    ],
)
def test_impossible_plans_get_a_next_step(plan: Plan, words: str):
    with pytest.raises(UsageError, match=words):
        plan.check(TINY)


@pytest.mark.parametrize(
    ("kv_heads", "tp", "is_legal"), [(8, 3, False), (8, 16, True), (6, 3, True), (2, 3, False)]
)
def test_heads_of_keys_and_values_are_shared_equally(kv_heads: int, tp: int, is_legal: bool):
    model = replace(TINY, heads=48, hidden=48 * 64, ffn=48 * 64, kv_heads=kv_heads, head_size=64)
    with (
        nullcontext() if is_legal else pytest.raises(UsageError, match=rf"{kv_heads} heads of .*--tp [12]\.")
    ):
        Plan(tp=tp).check(model)


def test_tensor_parallelism_divides_the_feed_forward_part():
    with pytest.raises(UsageError, match="columns in a feed-forward part, which --tp 2 does not divide"):
        Plan(tp=2).check(replace(TINY, ffn=1001))


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_every_micro_batch_passes_every_stage_once_each_way(kind: str, stages: int):
    chunks = 2 if kind == "interleaved" and stages > 1 else 1
    plan = Plan(pp=stages, chunks=chunks, schedule=kind, global_batch=8)
    for stage in range(stages):
        turns = schedule(plan, stage)
        assert len(set(turns)) == len(turns)
        kinds = Counter(turn.kind for turn in turns)
        assert kinds["F"] == 8 * chunks
        assert kinds["B"] + kinds["I"] == 8 * chunks
        assert kinds["I"] == kinds["W"]
        for turn in turns:
            if turn.kind in "BI":
                assert turns.index(turn._replace(kind="F")) < turns.index(turn)


def test_first_1f1b_stage_holds_one_micro_batch_per_stage():
    plan = Plan(pp=4, global_batch=16)
    assert [in_flight(plan, stage) for stage in range(4)] == [4, 3, 2, 1]


@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.permutations(["tp", "cp", "dp", "pp"]),
)
@settings(max_examples=20, deadline=None)
def test_ranks_and_places_belong_together(tp: int, pp: int, cp: int, order: list[str]):
    plan = Plan(tp=tp, pp=pp, cp=cp, dp=2, placement=tuple(order))
    for rank in range(plan.world):
        assert sum(plan.position(rank, axis) * plan.strides[axis] for axis in order) == rank
        for axes in (("tp",), ("cp", "dp")):
            group = plan.group(rank, *axes)
            assert rank in group
            assert all(plan.group(other, *axes) == group for other in group)
            assert len(group) == plan.degree(*axes)


def test_groups_of_several_nodes_work_within_them_first():
    assert spread(tuple(range(16)), 8) == (8, 2)
    assert spread((0, 8, 16), 8) == (1, 3)
    assert spread((0, 1, 8), 8) == (1, 3)
    steps = phases(CollectiveType.ALL_REDUCE, 800, Spread(8, 2))
    assert [(step.level, step.size_bytes) for step in steps] == [
        ("within", 800),
        ("across", 100),
        ("within", 100),
    ]
    gather = phases(CollectiveType.ALL_GATHER, 1600, Spread(8, 2))
    assert [(step.level, step.size_bytes) for step in gather] == [("across", 100), ("within", 200)]
    assert phases(CollectiveType.ALL_REDUCE, 800, Spread(1, 1)) == []


PLANS = {
    "data": Plan(dp=8, global_batch=16),
    "sharded": Plan(dp=8, zero=3, global_batch=16),
    "sharded optimizer": Plan(dp=8, zero=1, global_batch=16),
    "tensor": Plan(tp=2, dp=4, global_batch=8, sequence_parallel=True),
    "pipeline": Plan(pp=2, tp=2, dp=2, global_batch=8, recompute="full", fused_attention=False),
    "interleaved": Plan(pp=2, dp=4, chunks=2, schedule="interleaved", global_batch=16),
    "zero bubble": Plan(pp=4, dp=2, schedule="zero-bubble", global_batch=16),
    "context": Plan(cp=2, dp=4, global_batch=8),
    "tensor beside": Plan(tp=2, dp=4, global_batch=8, sequence_parallel=True, tensor_overlap=True),
    "adapters": Plan(pp=2, dp=4, global_batch=8, frozen=True),
}
NETWORK = NetworkConfig(("Switch", "Switch"), (4, 2), (100.0, 10.0), (500.0, 1500.0))


@pytest.mark.parametrize("name", PLANS)
def test_representative_ranks_equal_all_ranks(name: str):
    plan = PLANS[name]
    system = predicted_system(NETWORK.topology)
    alone = training_step(TINY, plan, Prices(), 4)
    every = training_step(TINY, plan, Prices(), 4, every_rank=True)
    assert len(alone.graphs) == plan.pp
    assert len(every.graphs) == every.num_ranks == alone.num_ranks == 8
    few, all_ = simulate(alone, system, NETWORK), simulate(every, system, NETWORK)
    assert few.makespan_ns == all_.makespan_ns
    assert few.ranks["finish_ns"].tolist() == all_.ranks["finish_ns"].tolist()
    assert set(few.nodes["rank"]) == set(alone.own_ranks.tolist())


def test_experts_are_exchanged_and_reduced_apart():
    model = replace(TINY, experts=4, top_k=2, expert_ffn=128)
    workload = training_step(model, Plan(dp=4, ep=2, global_batch=4), Prices(), 4)
    nodes = workload.graphs[0].nodes
    assert (nodes["comm_type"] == CollectiveType.ALL_TO_ALL).sum() == 4 * 4  # there and back, both ways
    sizes = {len(ranks) for ranks in workload.groups.values()}
    assert sizes == {2, 4}
    every = training_step(model, Plan(dp=4, ep=2, global_batch=4), Prices(), 4, every_rank=True)
    node = NetworkConfig(("Switch",), (4,), (10.0,), (500.0,))
    steps = {simulate(each, predicted_system(("Switch",)), node).makespan_ns for each in (workload, every)}
    assert len(steps) == 1
    assert (
        simulate(
            workload, predicted_system(("Switch",)), NetworkConfig(("Switch",), (4,), (10.0,), (500.0,))
        ).makespan_ns
        > 0
    )


def test_whole_experts_are_shared_out_by_tensor_parallel_ranks_too():
    model = replace(TINY, experts=4, top_k=2, expert_ffn=128)
    cut = Plan(tp=2, dp=4, ep=4, global_batch=4, sequence_parallel=True)
    whole = replace(cut, expert_tp=1)
    assert cut.group(1, "ep") == (1, 3, 5, 7)
    assert [whole.group(rank, "ep") for rank in (1, 6)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert whole.group(1, "edp") == (1, 5)
    assert whole.degree("edp") == 2

    def amounts(plan: Plan) -> tuple[int, int, int]:
        nodes = training_step(model, plan, Prices(), 8).graphs[0].nodes
        gathers = nodes["comm_type"] == CollectiveType.ALL_GATHER
        sent = nodes["comm_size_bytes"][nodes["comm_type"] == CollectiveType.ALL_TO_ALL]
        products = np.isin(nodes["name"], ["up", "down"])
        return int(gathers.sum()), int(sent.sum()), int(nodes["num_ops"][products].sum())

    # The same tokens and operations, and no gathers for the experts.
    assert amounts(whole)[0] < amounts(cut)[0]
    assert amounts(whole)[1:] == amounts(cut)[1:]
    steps = set()
    for every in (False, True):
        workload = training_step(model, whole, Prices(), 4, every_rank=every)
        steps.add(simulate(workload, predicted_system(NETWORK.topology), NETWORK).makespan_ns)
    assert len(steps) == 1
    for plan, words in ((whole, "needs sequence parallelism"), (cut, "as in Megatron.*--sequence-parallel")):
        with pytest.raises(UsageError, match=words):
            training_step(model, replace(plan, sequence_parallel=False), Prices(), 8)


@pytest.mark.parametrize("expert_tp", [1, 2, 4])
@pytest.mark.parametrize(("cp", "ep"), [(1, 2), (2, 4), (2, 1)])
def test_groups_of_experts_are_those_of_megatron(expert_tp: int, cp: int, ep: int):
    """Megatron numbers the ranks of a stage for experts: one expert's ranks, then others', then copies."""
    plan = Plan(tp=4, cp=cp, dp=4, pp=2, ep=ep, expert_tp=expert_tp, global_batch=8, sequence_parallel=True)
    copies = plan.world // plan.pp // expert_tp // ep

    def place(rank: int) -> tuple[int, int, int, int]:
        return (
            rank % expert_tp,
            rank // expert_tp % ep,
            rank // expert_tp // ep % copies,
            rank // expert_tp // ep // copies,
        )

    for rank in range(plan.world):
        own = place(rank)
        for axis, free in (("etp", 0), ("ep", 1), ("edp", 2)):
            others = [
                other
                for other in range(plan.world)
                if all(
                    mine == its
                    for i, (mine, its) in enumerate(zip(own, place(other), strict=True))
                    if i != free
                )
            ]
            assert plan.group(rank, axis) == tuple(others)


def test_fewer_ranks_for_an_expert_exchange_less_and_compute_the_same():
    model = replace(TINY, experts=4, top_k=2, expert_ffn=128)
    layout = {"tp": 4, "dp": 2, "ep": 2, "global_batch": 2, "sequence_parallel": True}
    plans = [Plan(**layout, expert_tp=size) for size in (1, 2, 4)]
    gathered, computed, steps = [], [], []
    for plan in plans:
        nodes = training_step(model, plan, Prices(), 8).graphs[0].nodes
        within = nodes["name"].isin(["mlp all_gather", "mlp reduce_scatter"])
        sizes = nodes["comm_size_bytes"][within] * np.where(
            nodes["comm_type"][within] == CollectiveType.ALL_GATHER, plan.expert_split, 1
        )
        gathered.append(int(sizes.sum()))
        computed.append(int(nodes["num_ops"][nodes["name"].isin(["up", "down"])].sum()))
        every = (training_step(model, plan, Prices(), 4, every_rank=every) for every in (False, True))
        steps.append(
            {simulate(each, predicted_system(NETWORK.topology), NETWORK).makespan_ns for each in every}
        )
    assert computed[0] == computed[1] == computed[2]
    assert all(len(each) == 1 for each in steps)
    assert gathered[1] < gathered[2]
    # Without the option, the experts use all of tensor parallelism.
    assert steps[2] == {
        simulate(
            training_step(model, replace(plans[2], expert_tp=0), Prices(), 4),
            predicted_system(NETWORK.topology), NETWORK,
        ).makespan_ns
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"expert_tp": 3}, "--expert-tp 3 does not divide --tp 8. Next: use --expert-tp 2."),
        ({"expert_tp": 16}, "--expert-tp 16 does not divide --tp 8. Next: use --expert-tp 8."),
        ({"expert_tp": 2, "placement": ("cp", "tp", "dp", "pp"), "cp": 2}, "(--placement tp-cp-dp-pp)"),
        ({"expert_tp": 2, "ep": 64}, "--tp 8 x --dp 8 / --expert-tp 2, 32 ranks"),
    ],
)
def test_indivisible_expert_tp_suggests_a_size(change: dict[str, Any], words: str):
    plan = Plan(tp=8, dp=8, global_batch=8, sequence_parallel=True)
    with pytest.raises(UsageError, match=re.escape(words)):
        replace(plan, **change).check(find_model("deepseek-v3"))


def test_experts_are_shared_out_over_context_parallelism_as_in_megatron():
    plan = Plan(tp=2, cp=2, dp=4, pp=2, ep=8, global_batch=8)
    assert plan.group(3, "ep") == tuple(range(1, 16, 2))
    assert plan.degree("edp") == 1
    half = replace(plan, ep=4)
    assert [half.group(rank, "ep") for rank in (0, 10)] == [(0, 2, 4, 6), (8, 10, 12, 14)]
    assert half.group(2, "edp") == (2, 10)
    # Of one rank per axis, as along data parallelism alone.
    assert replace(plan, cp=1, dp=8, ep=4).group(1, "ep") == (1, 3, 5, 7)
    # The experts of a rank are the same part, whether its neighbours hold other tokens or other sequences.
    deepseek = find_model("deepseek-v3")
    sizes = [
        rank_memory(deepseek, Plan(tp=2, pp=2, cp=cp, dp=16 // cp, ep=16, global_batch=16, zero=1), 0)
        for cp in (1, 2)
    ]
    assert sizes[0].weights == sizes[1].weights
    assert sizes[0].optimizer == sizes[1].optimizer


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(dp=8, ep=3), "--ep 3 does not divide the 256 experts of deepseek-v3. Next: use --ep 2."),
        (
            Plan(dp=8, cp=2, ep=64),
            "over --cp 2 x --dp 8, 16 ranks, which --ep 64 does not divide. Next: use --ep 16.",
        ),
        (
            Plan(tp=8, dp=8, ep=64, sequence_parallel=True),
            "Next: use --ep 8, or --expert-tp 1, which distributes experts over all 64 ranks of a stage.",
        ),
        (Plan(cp=2, pp=2, dp=4, ep=4, placement=("tp", "cp", "pp", "dp")), "which are not adjacent"),
    ],
)
def test_indivisible_experts_suggest_a_divisor(plan: Plan, words: str):
    with pytest.raises(UsageError, match=re.escape(words)):
        replace(plan, global_batch=8).check(find_model("deepseek-v3"))


def test_the_embedding_and_the_loss_are_layers_where_that_makes_parts_even():
    plan = Plan(pp=16, chunks=8, schedule="interleaved", global_batch=16)
    plan.check(find_model("llama3-405b"))
    parts = [plan.layers_of(part % 16, part // 16, 126) for part in range(128)]
    assert [layer for part in parts for layer in part] == list(range(126))
    assert [len(part) for part in parts] == [0, *[1] * 126, 0]
    # If the layers can be divided evenly, only they count, and every stage has layers.
    assert [len(Plan(pp=4).layers_of(stage, 0, 4)) for stage in range(4)] == [1, 1, 1, 1]
    with pytest.raises(UsageError, match="too few for 6 pipeline stages"):
        Plan(pp=6, global_batch=6).check(replace(TINY, layers=4))
    small = replace(TINY, layers=6)
    uneven = Plan(pp=2, chunks=4, schedule="interleaved", global_batch=4)
    few, every = (training_step(small, uneven, Prices(), 2, every_rank=every) for every in (False, True))
    network = NetworkConfig(("Switch",), (2,), (10.0,), (500.0,))
    times = {simulate(each, predicted_system(("Switch",)), network).makespan_ns for each in (few, every)}
    assert len(times) == 1
    assert min(times) > 0


def test_a_step_too_large_for_a_graph_is_refused():
    with pytest.raises(UsageError, match=r"reduce --sequence"):
        training_step(find_model("llama3-8b"), Plan(sequence=10**8), Prices(), 8)


def test_overlapped_tensor_parallelism_costs_less():
    def run(plan: Plan) -> tuple[int, int, int]:
        workload = training_step(TINY, plan, Prices(), 4)
        nodes = workload.graphs[0].nodes
        computed = int(nodes["duration_ns"][nodes["stream"] == 0].sum())
        step = simulate(workload, predicted_system(NETWORK.topology), NETWORK).makespan_ns
        return step, int(nodes["comm_size_bytes"].sum()), computed

    alone = PLANS["tensor"]
    (slow, bytes_alone, compute), (fast, bytes_beside, same) = (
        run(plan) for plan in (alone, replace(alone, tensor_overlap=True))
    )
    assert fast < slow
    assert (bytes_beside, same) == (bytes_alone, compute)
    assert fast > compute
    # Inputs are gathered in 8 bits; sums are not.
    assert bytes_alone * 0.6 < run(replace(alone, precision="fp8"))[1] < bytes_alone


def test_what_is_kept_is_not_computed_again_and_documents_attend_to_themselves():
    def flops(plan: Plan, name: str) -> int:
        nodes = training_step(TINY, plan, Prices(), 4).graphs[0].nodes
        return int(nodes["num_ops"][nodes["name"] == name].sum())

    plan = Plan(recompute="full", saved=("qkv", "down"))
    assert not flops(plan, "qkv again")
    assert flops(plan, "up again") == flops(replace(plan, saved=()), "up again") == flops(plan, "up")
    packed = replace(plan, document=TINY.sequence // 4)
    assert flops(packed, "attention") * 4 == flops(plan, "attention")
    assert flops(replace(plan, document=10**6), "attention") == flops(plan, "attention")


def test_zero_bubble_is_shorter_and_recomputation_longer():
    def step(plan: Plan) -> int:
        return simulate(
            training_step(TINY, plan, Prices(), 4), predicted_system(NETWORK.topology), NETWORK
        ).makespan_ns

    plain = Plan(pp=4, dp=2, global_batch=16)
    assert step(replace(plain, schedule="zero-bubble")) < step(plain)
    assert step(replace(plain, recompute="full")) > step(replace(plain, recompute="selective")) > step(plain)


def test_work_does_not_change_with_tensor_parallelism():
    def flops(tp: int) -> float:
        graph = training_step(TINY, Plan(tp=tp, sequence_parallel=tp > 1), Prices(), 4).graphs[0]
        nodes = graph.nodes
        return float(nodes["num_ops"][nodes["operator"] == "gemm"].sum()) * tp

    assert flops(2) == pytest.approx(flops(1), rel=1e-6)


def test_a_workload_of_representatives_survives_being_saved(tmp_path: Path):
    workload = training_step(TINY, PLANS["pipeline"], Prices(), 4)
    workload.save(tmp_path / "w")
    assert sorted(path.name for path in tmp_path.glob("*.et")) == ["w.0.et", "w.4.et"]
    loaded = Workload.load(tmp_path / "w")
    assert loaded == workload
    again = simulate(tmp_path / "w", predicted_system(NETWORK.topology), NETWORK)
    assert again.makespan_ns == simulate(workload, predicted_system(NETWORK.topology), NETWORK).makespan_ns


def test_the_doctor_finds_nothing_wrong_with_representatives(tmp_path: Path):
    workload = training_step(TINY, PLANS["pipeline"], Prices(), 4)
    workload.save(tmp_path / "w")
    assert doctor(tmp_path / "w") == []


def test_messages_meet():
    workload = training_step(TINY, PLANS["interleaved"], Prices(), 4, every_rank=True)
    sent, received = Counter(), Counter()
    for rank in range(workload.num_ranks):
        nodes = workload.graph_of(rank).nodes
        for row in nodes[nodes["type"] == NodeType.COMM_SEND].itertuples():
            sent[rank, row.comm_dst, row.comm_tag, row.comm_size_bytes] += 1
        for row in nodes[nodes["type"] == NodeType.COMM_RECV].itertuples():
            received[row.comm_src, rank, row.comm_tag, row.comm_size_bytes] += 1
    assert sent
    assert sent == received
    assert set(sent.values()) == {1}


# PyTorch's peak reserved memory for torchtitan's Llama 3 (benchmarks/llama3_h100_202412_torchtitan.md).
@pytest.mark.parametrize(
    ("model", "change", "gib"),
    [
        ("llama3-8b", {"dp": 8, "micro_batch": 2, "global_batch": 16, "recompute": "selective"}, 77.0),
        ("llama3-8b", {"dp": 128, "micro_batch": 2, "global_batch": 256, "recompute": "selective"}, 62.0),
        ("llama3-8b", {"dp": 8, "global_batch": 8, "sequence": 32768}, 83.9),
        ("llama3-8b", {"cp": 8, "sequence": 262144}, 84.5),
        ("llama3-70b", {"dp": 32, "tp": 8, "micro_batch": 16, "global_batch": 512}, 71.9),
        ("llama3-405b", {"dp": 8, "tp": 8, "pp": 8, "global_batch": 64, "sequence": 32768}, 75.3),
        ("llama3-405b", {"cp": 4, "dp": 2, "tp": 8, "pp": 8, "global_batch": 16, "sequence": 131072}, 77.1),
    ],
)
def test_memory_is_within_a_tenth_of_what_torchtitan_reserves(model: str, change: dict[str, Any], gib: float):
    usual = Plan(sequence=8192, zero=3, recompute="full", sequence_parallel="tp" in change, eager=True)
    plan = replace(usual, **change)
    assert fullest_memory(find_model(model), plan).total / GIB == pytest.approx(gib, rel=0.1)


@pytest.mark.parametrize(("ranks", "gib"), [(32, 47.96), (64, 46.97)])
def test_a_compiled_loss_holds_logits_and_their_gradient(ranks: int, gib: float):
    """torchtitan does so since 2025 (its benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md)."""
    model = replace(find_model("llama3-8b"), loss_bytes=4)
    plan = Plan(dp=ranks, micro_batch=2, global_batch=2 * ranks, sequence=8192, zero=3, eager=True,
                recompute="selective", precision="fp8")  # fmt: skip
    assert rank_memory(model, plan, 0).total / GIB == pytest.approx(gib, rel=0.05)


def test_fsdp_reserves_buffers_of_collectives():
    """The embedding is larger than a layer here: both have a buffer for their all-gather."""
    model = replace(TINY, vocab=1000)
    layer, ends = model.layer_params(0), model.embedding_params
    plan = Plan(dp=4, zero=3, eager=True, global_batch=4)
    memory = rank_memory(model, plan, 0)
    assert memory.buffers == 2 * (layer + ends)
    # Whole weights, their gradients, and two copies of these in single precision.
    assert memory.working == 2 * (ends + layer) + (2 + 2 * 4) * layer
    assert rank_memory(model, replace(plan, eager=False), 0).buffers == 0


def test_fsdp_over_pipeline_stages_has_buffers_for_messages():
    plan = Plan(pp=2, dp=2, zero=3, eager=True, global_batch=16)
    more = replace(plan, global_batch=24)
    # The second stage receives an input for each micro-batch, and keeps its logits until the step ends.
    message, logits = 2 * TINY.sequence * TINY.hidden, 2 * TINY.sequence * TINY.vocab
    for stage, size in enumerate((message, message + logits)):
        grown = rank_memory(TINY, more, stage).buffers - rank_memory(TINY, plan, stage).buffers
        assert grown == 4 * size, stage
    # Only one part at a time has whole gradients, unless each part has several rounds of backward passes.
    parts = replace(plan, chunks=2, schedule="interleaved", global_batch=4)
    rounds = replace(parts, global_batch=8)
    assert rank_memory(TINY, parts, 0).gradients * 2 == rank_memory(TINY, rounds, 0).gradients


def test_a_last_product_that_is_not_repeated_needs_no_memory():
    plan = Plan(recompute="full", saved=("qkv",))
    usual, kept = (rank_memory(TINY, replace(plan, saved=names), 0) for names in (("qkv",), ("qkv", "down")))
    assert usual == kept


def test_activations_are_those_of_the_formula_of_korthikanti():
    model = find_model("gpt3-22b")
    s, b, h, a, t = 2048, 4, 6144, 64, 8
    plan = Plan(tp=8, micro_batch=4, global_batch=4, fused_attention=False)
    each = rank_memory(model, plan, 0).activations / model.layers
    assert each == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), rel=1e-6)
    whole = replace(plan, sequence_parallel=True, recompute="selective")
    assert rank_memory(model, whole, 0).activations / model.layers == pytest.approx(
        s * b * h * 34 / t, rel=1e-6
    )
    assert np.isclose(
        rank_memory(model, replace(plan, recompute="full"), 0).activations / model.layers, 2 * s * b * h
    )


def test_low_precisions_keep_operands_and_experts_a_copy_of_each_token():
    model = replace(find_model("llama3-8b"), layers=1)
    tokens, hidden = model.sequence, model.hidden

    def held(model: Transformer, precision: str) -> float:
        plan = Plan(precision=precision, sequence=tokens)
        return rank_memory(model, plan, 0).activations / tokens / hidden

    gated = 3 * model.ffn / hidden
    heads = (2 * model.query_size + 2 * model.kv_size) / hidden
    assert held(model, "bf16") == pytest.approx(8 + 2 * heads + 2 * gated)
    # One byte less for both inputs of a layer's parts and of the last matmul, one more for attention's
    # output.
    less = 2 + model.ffn / hidden - 1
    assert held(model, "fp8") == pytest.approx(held(model, "bf16") - less)
    experts = replace(model, experts=8, top_k=4, expert_ffn=model.ffn // 4)
    assert held(experts, "bf16") == pytest.approx(held(model, "bf16") + 3 * 2)
