"""The search for the best plan: all possible plans, no impossible ones, and a correct order."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.cli._predict import predict_command
from chakrascope.errors import ConfigError, StudyError, UsageError
from chakrascope.runner import NetworkConfig, Study, read_sweep
from chakrascope.runner.chips import find_chip, list_chips, save_chip
from chakrascope.runner.planning import (
    Cluster,
    Limits,
    Request,
    plan_command,
    possible_degrees,
    search_plans,
)
from chakrascope.runner.planning._estimate import _Works
from chakrascope.runner.planning._simulate import front, simulated_step
from chakrascope.runner.prediction import (
    Batch,
    Links,
    Setting,
    StepWork,
    coefficients,
    predict,
    usual_network,
    work_of,
)
from chakrascope.runner.prediction.models import (
    RECOMPUTATIONS,
    Plan,
    find_model,
    fullest_memory,
    in_flight,
    rank_memory,
    schedule,
)
from chakrascope.runner.sweep import front_table, sweep_experiment

SMALL = replace(find_model("llama3-8b"), layers=8, name="small")
H100 = Cluster(find_chip("h100"), NetworkConfig.preset("hgx-h100-2x8"))
REQUEST = Request(SMALL, (H100,), 32)


@pytest.fixture(scope="module")
def found():
    return search_plans(REQUEST, most=8)


def test_every_split_of_the_ranks_that_the_model_allows_is_there():
    degrees, refused = possible_degrees(REQUEST)
    numbers = [number for number in range(1, 17) if 16 % number == 0]
    allowed = {
        (tp, pp, dp, cp)
        for tp, pp, dp, cp in itertools.product(numbers, repeat=4)
        if tp * pp * dp * cp == 16 and SMALL.heads % tp == 0 and pp <= SMALL.layers
    }
    assert {(each.tp, each.pp, each.dp, each.cp) for each in degrees} == allowed
    assert sum(refused.values()) + len(allowed) == math.comb(4 + 3, 3)


def test_every_plan_is_one_that_a_prediction_takes(found):
    table = found.table
    assert not table.duplicated(
        ["tp", "pp", "dp", "cp", "zero", "schedule", "chunks", "micro_batch", "recompute"]
    ).any()
    assert (table["tp"] * table["pp"] * table["dp"] * table["cp"] == 16).all()
    assert (table["memory_bytes"] <= H100.chip.memory_bytes * 0.95).all()
    layers = set(table["recompute"]) - set(RECOMPUTATIONS)
    assert set(table["recompute"]) >= set(RECOMPUTATIONS)
    assert layers
    assert all(map(str.isdecimal, layers))
    assert set(table["schedule"]) == {"1f1b", "interleaved"}  # zero-bubble only if it is requested
    for setting in found.settings:
        setting.check()


def test_best_plan_equals_its_prediction(found):
    best = found.table.iloc[0]
    alone = predict(found.settings[0])
    assert best["simulated"]
    assert (alone.step_ns, alone.memory_bytes) == (best["step_ns"], best["memory_bytes"])
    assert alone.range_ns == (best["step_low_ns"], best["step_high_ns"])
    assert alone.tokens_per_s == pytest.approx(best["tokens_per_s"])
    assert alone.utilisation == pytest.approx(best["utilisation"])


EXPERTS = replace(SMALL, experts=8, top_k=2, expert_ffn=4096, dense_layers=1, name="small experts")


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        (EXPERTS, Plan(dp=16, ep=8, deduplicate=True)),
        (SMALL, Plan(tp=4, pp=2, dp=2, sequence_parallel=True, tensor_overlap=True)),
        (SMALL, Plan(dp=16, recompute="offload:4")),
    ],
    ids=["dispatch", "tensor overlap", "offload"],
)
def test_every_amount_of_work_grows_with_the_micro_batch(model, plan):
    links = Links.of(H100.network)
    plan = replace(plan, micro_batch=4, global_batch=64)
    found, expected = _Works(replace(REQUEST, model=model), links).work(plan), work_of(model, plan, links)
    for each in fields(StepWork):
        assert np.allclose(getattr(found, each.name), getattr(expected, each.name)), each.name


def estimated_ns(setting: Setting) -> float:
    price = coefficients(setting.chip, setting.costs, setting.plan.precision)
    work = work_of(setting.model, setting.plan, Links.of(setting.network))
    return float(Batch([work]).step_ns(price, setting.costs)[0])


@pytest.mark.parametrize("recompute", ["none", "offload"])
def test_hops_of_the_shorter_transfer_of_a_dispatch_cost_nothing(recompute):
    """Transfers within and between nodes run at the same time, in the graph and in the estimate."""
    model = replace(EXPERTS, experts=16)
    plan = Plan(dp=16, ep=16, global_batch=32, frozen=True, recompute=recompute)
    near, far = (
        Setting(model, plan, H100.chip, replace(H100.network, latency=(latency, 2000)), "megatron")
        for latency in (500, 5000)
    )
    assert estimated_ns(near) == pytest.approx(estimated_ns(far), rel=1e-9)
    simulated = simulated_step(near)["makespan_ns"]
    assert simulated == simulated_step(far)["makespan_ns"]
    assert estimated_ns(near) == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (Plan(dp=16, zero=2, global_batch=64, sequence=4096), 0.03),
        (Plan(dp=16, zero=3, global_batch=64, sequence=4096), 0.07),
        (Plan(dp=16, micro_batch=2, global_batch=128, recompute="offload:1", fused_attention=False), 0.03),
        (
            Plan(
                pp=2, dp=8, global_batch=64, sequence=1024, recompute="offload", chunks=2,
                schedule="interleaved",
            ),
            0.04,
        ),
    ],
    ids=["gradients", "weights", "one layer", "chunks"],
)  # fmt: skip
def test_estimate_counts_what_layers_wait_for(plan, error):
    """Layers wait for sharded weights after reductions, and for copies that take longer than a layer."""
    setting = Setting(SMALL, plan, H100.chip, H100.network, "megatron")
    assert estimated_ns(setting) == pytest.approx(simulated_step(setting)["makespan_ns"], rel=error)


@pytest.mark.parametrize(
    ("model", "only", "limit"),
    [
        (SMALL, {"zero": (1, 3)}, 16 << 30),
        (EXPERTS, {"micro_batch": (1,), "recompute": ("none", "full")}, None),
    ],
    ids=["tight", "experts"],
)
def test_no_plan_that_was_left_out_is_faster_than_the_best(model, only, limit):
    """Simulate all plans of a small space: the search, which simulates few, finds the same best plan."""
    request = replace(
        REQUEST,
        model=model,
        limits=Limits(memory_bytes=limit),
        only={"tp": (1, 2), "pp": (1, 2), "cp": (1,), "micro_batch": (1, 2), "zero": (1,)} | only,
    )
    everything = search_plans(request, most=10_000, top=10_000)
    assert everything.simulated == len(everything.table)
    few = search_plans(request, most=16)
    assert few.is_certain
    assert few.table["step_ns"].iloc[0] == everything.table["step_ns"].iloc[0]
    assert few.possible == everything.possible == len(everything.table)
    assert few.error <= everything.error < 0.15


def test_experts_are_on_all_ranks_of_tensor_parallelism_or_on_one():
    degrees, _ = possible_degrees(replace(REQUEST, model=EXPERTS))
    usual = {(each.tp, each.expert_tp) for each in degrees}
    assert {(1, 0), (2, 0), (2, 1), (4, 0), (4, 1)} <= usual
    assert {split for _, split in usual} == {0, 1}
    assert (8, 1) in usual
    assert (16, 1) not in usual  # across nodes
    asked, refused = possible_degrees(replace(REQUEST, model=EXPERTS, only={"expert_tp": (2,)}))
    assert {(each.tp, each.expert_tp) for each in asked} == {(2, 0), (4, 2), (8, 2), (16, 2)}
    assert refused["--expert-tp divides neither --tp nor the columns of an expert"] > 0
    widest = max(each.ep for each in asked if each.tp == 8 and each.pp == 1)
    assert widest == EXPERTS.experts == 8


def test_widths_that_tensor_parallelism_does_not_divide_are_counted():
    odd = replace(SMALL, ffn=SMALL.heads * 3 // 4)
    degrees, refused = possible_degrees(replace(REQUEST, model=odd))
    assert degrees
    assert all(odd.ffn % each.tp == 0 for each in degrees)
    assert any("columns of a feed-forward part" in reason for reason in refused)


@settings(max_examples=5, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 3, 4]),
    micro_batches=st.integers(48, 64),
    schedule=st.sampled_from(("1f1b", "interleaved", "zero-bubble")),
    zero=st.sampled_from([0, 1]),
)
def test_a_long_step_is_that_of_its_whole_simulation(tp, pp, micro_batches, schedule, zero):
    if schedule != "1f1b" and pp == 1:
        schedule = "1f1b"
    if schedule == "interleaved":
        micro_batches -= micro_batches % pp
    plan = Plan(
        tp=tp, pp=pp, dp=4, global_batch=4 * micro_batches, schedule=schedule, zero=zero,
        chunks=2 if schedule == "interleaved" else 1, sequence_parallel=tp > 1,
    )  # fmt: skip
    model = replace(SMALL, layers=12)
    network = replace(NetworkConfig.preset("hgx-h100-2x8"), npus_count=(2 * tp, 2 * pp))
    setting = Setting(model, plan, H100.chip, network, "megatron")
    whole = simulated_step(setting)
    assert "id" in whole
    rounds = simulated_step(setting, long=0)
    assert "id" not in rounds
    # A round that takes half a ns more than whole ns adds sums that alternate by 1 ns.
    sums = {name: abs(rounds.pop(name) - whole[name]) for name in ("comm_ns", "overlap_ns")}
    assert max(sums.values()) <= micro_batches // 8
    assert {name: rounds[name] for name in rounds} == {name: whole[name] for name in rounds}


def test_steps_of_sharded_weights_are_simulated_whole():
    plan = Plan(dp=16, global_batch=16 * 64, zero=3)
    assert "id" in simulated_step(Setting(SMALL, plan, H100.chip, H100.network, "fsdp"), long=0)


def test_the_front_is_what_no_plan_beats(found):
    figures = found.table[["step_ns", "memory_bytes", "cost"]].to_numpy(dtype=float)
    for row, is_front in zip(figures, found.table["front"], strict=True):
        beaten = ((figures <= row).all(axis=1) & (figures < row).any(axis=1)).any()
        first = np.flatnonzero((figures == row).all(axis=1))[0]
        assert is_front == (not beaten and (figures[first] == row).all() and is_front) or beaten != is_front
    assert found.table["front"].iloc[0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=40))
def test_pareto_front_has_undominated_rows(rows):
    figures = np.array(rows, dtype=float)
    chosen = figures[front(figures)]
    beaten = [(chosen <= row).all(axis=1).any() for row in figures]
    assert all(beaten)
    assert len(np.unique(chosen, axis=0)) == len(chosen)
    for row in chosen:
        assert ((chosen <= row).all(axis=1)).sum() == 1


def test_convolutions_are_spread_over_data_alone():
    found = search_plans(replace(REQUEST, model=find_model("resnet50"), global_batch=512), most=4)
    assert set(found.table["dp"]) == {16}
    assert found.error < 0.2


def test_what_does_not_fit_is_counted():
    roomy, tight = (
        search_plans(
            replace(REQUEST, limits=Limits(memory_bytes=size << 30), only={"cp": (1,), "zero": (1,)}), most=1
        )
        for size in (80, 20)
    )
    assert len(tight.table) < len(roomy.table)
    assert tight.refused["more memory than a rank has"] > 0
    assert (tight.table["memory_bytes"] <= 20 << 30).all()
    same = len(roomy.table) + roomy.refused.get("more memory than a rank has", 0)
    assert len(tight.table) + tight.refused["more memory than a rank has"] == same


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"limits": Limits(memory_bytes=1 << 20)}, "more memory than a rank has"),
        ({"limits": Limits(step_ns=1)}, "a longer step than the limit"),
        ({"only": {"tp": (3,)}}, "options allow none"),
        ({"global_batch": 31, "only": {"dp": (16,)}}, "global batch of 31"),
    ],
)
def test_a_search_without_an_answer_says_why(change, words):
    with pytest.raises(UsageError, match=words):
        search_plans(replace(REQUEST, **change))


def test_values_that_no_plan_has_are_told():
    with pytest.raises(UsageError, match="--recompute can be none, selective, full"):
        replace(REQUEST, only={"recompute": ("some",)})


def test_a_cheaper_chip_is_on_the_front():
    older = Cluster(find_chip("a100-80"), NetworkConfig.preset("dgx-a100-2x8"), price=0.5)
    only = {"pp": (1,), "cp": (1,), "zero": (1,), "recompute": ("none",)}
    both = search_plans(replace(REQUEST, clusters=(replace(H100, price=4.0), older), only=only))
    assert set(both.table["chip"][both.table["front"]]) == {"h100", "a100-80"}
    assert both.table["chip"].iloc[0] == "h100"
    row = both.table.iloc[0]
    assert row["cost"] == pytest.approx(16 * row["step_ns"] / 3.6e12 * 4.0)


def test_search_resumes(tmp_path):
    study = Study.create(tmp_path / "s")
    request = replace(REQUEST, only={"pp": (1, 2), "cp": (1,), "zero": (1,)})
    first = search_plans(request, study=study, most=3)
    assert (first.simulated, first.reused) == (3, 0)
    again = search_plans(request, study=study, most=5)
    assert (again.simulated, again.reused) == (5, 3)
    assert set(first.table["step_ns"].head(3)) <= set(again.table["step_ns"].head(5))
    with pytest.raises(StudyError, match="another --name"):
        search_plans(replace(request, global_batch=64), study=study, name=first.name)


def test_estimates_of_version_0_2_are_removed(tmp_path):
    study = Study.create(tmp_path / "s")
    old = study.sweep_dir("old") / "estimates.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("{}\n")
    search_plans(replace(REQUEST, only={"cp": (1,), "zero": (1,)}), study=study, name="old", most=1)
    assert not old.exists()


@pytest.mark.parametrize("change", [lambda text: text[:-20], lambda text: text.replace("], [", "1], [", 1)])
def test_a_search_that_was_cut_off_loses_its_damaged_lines(tmp_path, change):
    study = Study.create(tmp_path / "s")
    request = replace(REQUEST, only={"cp": (1,), "zero": (1,)})

    def stop(what: str, done: int, total: int) -> None:
        if what == "estimate" and done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_plans(request, study=study, name="cut", progress=stop)
    file = study.sweep_dir("cut") / "estimates.txt"
    content = file.read_text()
    file.write_text(change(content))
    assert file.read_text() != content
    after = search_plans(request, study=study, name="cut", most=4)
    assert after.table.drop(columns="simulated").equals(
        search_plans(request, most=4).table.drop(columns="simulated")
    )


def test_processes_answer_as_this_one_does(tmp_path):
    request = replace(REQUEST, only={"cp": (1,), "zero": (1,), "recompute": ("none",)})
    here, there = (search_plans(request, most=4, workers=workers) for workers in (0, 1))
    assert set(here.table["step_ns"]) == set(there.table["step_ns"])


def test_what_was_found_is_a_sweep(tmp_path):
    study = Study.create(tmp_path / "s")
    made = search_plans(replace(REQUEST, only={"zero": (1,)}), study=study, most=12)
    sweep = read_sweep(study, made.name)
    assert len(sweep.points) == 12
    assert "points.parquet" in (study.sweep_dir(made.name) / "SHA256SUMS").read_text()
    assert sweep.points["makespan_ns"].iloc[0] == made.table["step_ns"].iloc[0]
    assert sweep.points["memory_bytes"].max() <= H100.chip.memory_bytes
    assert len(front_table(sweep.points, "memory_bytes")) > 1
    with pytest.raises(StudyError, match="--keep"):
        sweep_experiment(study, made.name, sweep.points["id"].iloc[0])


def search(*arguments: str) -> Result:
    return CliRunner().invoke(predict_command, ["search", *arguments], catch_exceptions=False)


COMMAND = ["--model", "mpt-125m", "--chip", "a100-40", "--gpus", "8", "--cp", "1", "--zero", "0,1"]


def test_the_command_keeps_the_best_as_a_run(tmp_path):
    folder = tmp_path / "s"
    answer = search(*COMMAND, "-o", str(folder), "--keep", "1", "--format", "json", "--rows", "3")
    told = json.loads(answer.stdout[answer.stdout.index("{") :])
    study = Study.open(folder)
    assert study.run_info().makespan_ns == told["plans"][0]["step_ns"]
    name = next(iter(study.sweeps_dir.glob("plans-*"))).name
    points = read_sweep(study, name).points  # of plans with equal times, any may be the first
    assert study.run_info().id in set(points["id"][points["makespan_ns"] == points["makespan_ns"].min()])
    assert sweep_experiment(study, name, study.run_info().id).backend == "analytical-unaware"
    assert len(told["plans"]) == 3
    assert told["possible_plans"] > told["simulated"]


def test_the_command_of_a_row_predicts_that_row():
    answer = search(*COMMAND, "--format", "csv", "--rows", "1")
    command = answer.stdout.splitlines()[1].rsplit(",", 1)[1].split()
    again = CliRunner().invoke(predict_command, [*command[2:], "--format", "json"], catch_exceptions=False)
    step = answer.stdout.splitlines()[1].split(",")[answer.stdout.splitlines()[0].split(",").index("step_ns")]
    assert json.loads(again.stdout[again.stdout.index("{") :])["step_ns"] == int(step)


def test_command_of_a_row_states_no_sharding():
    """Software that shards the optimizer by default does so unless an option disables it."""
    only = ["--chip", "h100", "--zero", "0", "--micro-batch", "1", "--recompute", "none", "--simulate", "1"]
    answer = search("--model", "mpt-125m", "--gpus", "8", *only, "--format", "json", "--rows", "1")
    (row,) = json.loads(answer.stdout[answer.stdout.index("{") :])["plans"]
    again = CliRunner().invoke(predict_command, [*row["command"].split()[2:], "--format", "json"])
    found = json.loads(again.stdout[again.stdout.index("{") :])
    assert (found["step_ns"], found["memory_bytes_per_rank"]) == (row["step_ns"], row["memory_bytes"])


def test_search_prints_omitted_plans():
    shown = search(*COMMAND, "--simulate", "2").stdout
    assert "2 plans were simulated, the others (~) only estimated" in shown
    assert "Details of the first plan: chakrascope predict --model mpt-125m" in shown


def test_commands_name_the_files_of_the_search(tmp_path):
    """The name of a chip or model differs from its file's name, and may be the file name of another."""
    chip, plan = tmp_path / "ours.yml", tmp_path / "best.yml"
    save_chip(find_chip("a100-40"), chip)
    given = ["--model", "mpt-125m", "--chip", str(chip), "--network", "dgx-a100-8", "--tp", "1", "--pp", "1"]
    shown = search(*given, "--cp", "1", "--zero", "0", "--simulate", "1", "--save-plan", str(plan)).stdout
    command = shown.partition("Details of the first plan: ")[2].splitlines()[0]
    assert f"--chip {chip} --network dgx-a100-8" in command
    assert predicted(*command.split()[2:]) == predicted("--plan", str(plan))


def test_search_on_a_machine_equals_chip_and_gpus(tmp_path):
    only = ["--tp", "1", "--pp", "1", "--cp", "1", "--zero", "0", "--simulate", "1", "--format", "json"]
    plan = tmp_path / "best.yml"
    named, split = (
        json.loads(answer.stdout[answer.stdout.index("{") :])
        for answer in (
            search("--model", "mpt-125m", "--on", "8xa100-40", *only, "--save-plan", str(plan)),
            search("--model", "mpt-125m", "--chip", "a100-40", "--gpus", "8", *only),
        )
    )
    command = named["plans"][0]["command"].split()
    assert "--on 8xa100-40" in " ".join(command)
    for row in (*named["plans"], *split["plans"]):
        del row["command"]
    assert named == split
    assert predicted(*command[2:]) == predicted("--plan", str(plan))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "12"], "--gpus 16"),
        (["--gpus", "0"], "must be from 1 to 1,000,000, not 0. Next: use --gpus 8"),
        (["--network", "hgx-h100-2x8", "--gpus", "8"], "leave one of them out"),
        (["--gpus", "8", "--limit", "memroy=80GiB"], "memory"),
        (["--gpus", "8", "--limit", "memory=lots"], "memory=80GiB"),
        (["--gpus", "8", "--keep", "2"], "-o STUDY"),
        (["--gpus", "8", "--price", "cheap"], "--price 2.5"),
        (["--gpus", "8", "--price", "a100-80=2"], "--price h100=NUMBER"),
        ([], "--gpus 512"),
        (["--on", "8xh100", "--gpus", "8"], "leave out --chip, --gpus and --network"),
        (["--on", "8xh100", "--chip", "a100-80"], "leave out --chip, --gpus and --network"),
        (["--on", "cpu-cluster-2"], "names no chip"),
        (["--gpus", "64", "--chip", "tpu-v2"], "--network NAME"),
        (["--gpus", "8", "--expert-tp", "1"], "has no experts"),
    ],
)
def test_invalid_search_gets_a_next_step(arguments, words):
    with pytest.raises(UsageError, match=words):
        search("--model", "mpt-125m", *arguments)


def test_predict_has_its_own_help_and_that_of_search():
    help_text = CliRunner().invoke(predict_command, ["--help"]).stdout
    assert "Commands:\n  search" in help_text
    assert "Usage: predict [OPTIONS] [ARGUMENTS]...\n" in help_text
    assert "predict search [OPTIONS]" in search("--help").stdout


def test_usual_networks_of_chips_are_shipped():
    names = [find_chip(name).network for name in list_chips()]
    assert [NetworkConfig.preset(name).name for name in names if name] == [name for name in names if name]


def test_presets_have_nodes_as_they_are_sold():
    assert usual_network(find_chip("h100"), 8).name == "hgx-h100-8"
    assert usual_network(find_chip("gb200"), 144).npus_count == (72, 2)
    assert usual_network(find_chip("b200"), 1024).npus_count == (8, 128)
    assert usual_network(find_chip("v100"), 32).npus_count == (16, 2)
    row = {"chip": "h100", "gpus": 16, "tp": 2, "pp": 2, "dp": 4, "cp": 1, "ep": 1, "expert_tp": 0, "zero": 1,
           "schedule": "interleaved", "chunks": 2, "micro_batch": 1, "recompute": "none"}  # fmt: skip
    command = plan_command(REQUEST, row)
    assert "--tp 2 --pp 2 --dp 4 --zero 1 --schedule interleaved --interleave 2" in command
    assert "--recompute" not in command


@pytest.mark.parametrize("pp", range(1, 9))
@pytest.mark.parametrize(("kind", "chunks"), [("1f1b", 1), ("zero-bubble", 1), ("interleaved", 3)])
def test_micro_batches_in_flight_match_the_schedule(pp, kind, chunks):
    for count in (1, 2, 3, 8, 24):
        if kind == "interleaved" and count % pp:
            continue
        plan = Plan(pp=pp, global_batch=count, schedule=kind, chunks=chunks)
        for stage in range(pp):
            steps = [{"F": 1, "B": -1, "I": 0, "W": -1}[turn.kind] for turn in schedule(plan, stage)]
            assert in_flight(plan, stage) == max(itertools.accumulate(steps))


@pytest.mark.parametrize("name", ["llama3-405b", "deepseek-v3"])
def test_the_fullest_rank_is_found_without_looking_at_every_stage(name):
    model = find_model(name)
    for pp, kind, chunks in ((1, "1f1b", 1), (7, "1f1b", 1), (16, "zero-bubble", 1), (4, "interleaved", 3)):
        plan = Plan(pp=pp, dp=8, global_batch=8 * 4 * pp, schedule=kind, chunks=chunks)
        every = max(rank_memory(model, plan, stage).total for stage in range(pp))
        assert fullest_memory(model, plan).total == every


def predicted(*arguments: str) -> dict[str, Any]:
    answer = CliRunner().invoke(predict_command, [*arguments, "--format", "json"], catch_exceptions=False)
    found: dict[str, Any] = json.loads(answer.stdout[answer.stdout.index("{") :])
    return found


def test_the_saved_plan_is_the_best_and_the_command_line_precedes_it(tmp_path):
    file, copy = str(tmp_path / "best.yml"), str(tmp_path / "copy.yml")
    answer = search(*COMMAND, "--save-plan", file, "--format", "json", "--rows", "1")
    (row,) = json.loads(answer.stdout[answer.stdout.index("{") :])["plans"]
    assert predicted("--plan", file, "--save-plan", copy)["step_ns"] == row["step_ns"]
    assert yaml.safe_load(Path(copy).read_text()) == yaml.safe_load(Path(file).read_text())
    longer = predicted("--plan", file, "--sequence", "4096")
    assert longer["step_ns"] > row["step_ns"]
    assert longer == predicted(*row["command"].split()[2:], "--sequence", "4096")


def test_a_plan_file_restricts_a_search(tmp_path):
    file = tmp_path / "plan.yml"
    file.write_text("model: mpt-125m\nchip: [a100-40]\ngpus: 8\ntp: [1, 2]\npp: 1\ncp: 1\nzero: 1\n")
    answer = search("--plan", str(file), "--format", "json")
    plans = json.loads(answer.stdout[answer.stdout.index("{") :])["plans"]
    assert {plan["tp"] for plan in plans} == {1, 2}
    assert {(plan["pp"], plan["zero"]) for plan in plans} == {(1, 1)}


def test_the_key_on_of_a_plan_file_needs_no_quotes(tmp_path):
    file = tmp_path / "plan.yml"
    file.write_text("model: mpt-125m\non: 8xa100-40\n")
    assert predicted("--plan", str(file)) == predicted("--model", "mpt-125m", "--on", "8xa100-40")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("off: 2", "unknown key 'False'"),
        ("tpp: 2", "unknown key 'tpp' - did you mean 'tp'?"),
        ("steps: 3", "unknown key 'steps'. Allowed: "),
        ("cuda-graphs: 3", "'cuda-graphs' must be true or false, not 3"),
        ("tp: true", "'tp' must be a value, not True"),
        ("plan: other.yml", "unknown key 'plan'"),
        ("script: other.py", "unknown key 'script'"),
        ("- tp", "must be a mapping"),
    ],
)
def test_a_wrong_plan_file_is_refused(tmp_path, text, message):
    file = tmp_path / "plan.yml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        predicted("--plan", str(file), "--model", "mpt-125m")
