"""Stragglers of a job: the published figures, properties of what-ifs, and planted causes."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_job import TrainingJob

from chakrascope.converter.readers import read_operation_table
from chakrascope.errors import TraceError
from chakrascope.runner.analysis import STRAGGLER_TABLES, find_stragglers
from chakrascope.runner.analysis.stragglers import _replay
from chakrascope.runner.analysis.stragglers._causes import HostDelay, StragglerCause
from chakrascope.runner.analysis.stragglers._dependencies import dependencies
from chakrascope.runner.analysis.stragglers._layout import Operation, lay_out
from chakrascope.runner.analysis.stragglers._series import pattern_text
from chakrascope.runner.analysis.stragglers._slowdowns import mask

DATA = Path(__file__).parents[2] / "data" / "runner" / "stragglers"
MODEST = settings(max_examples=15, deadline=None)


def found(path):
    return find_stragglers(read_operation_table(path))


@pytest.fixture
def answer(tmp_path):
    """Return the analysis of a synthetic job."""
    return lambda **job: found(TrainingJob(**job).write(tmp_path / "job.parquet"))


def only_for(wanted, factor, least_step=0, other=1.0):
    """Return a factor for one worker, from a given step on."""
    return lambda step, replica, stage, _: (
        factor if (replica, stage) == wanted and step >= least_step else other
    )


# What is published


@pytest.mark.parametrize("name", ["slow-worker", "long-stage", "interleaved"])
def test_the_artifacts_own_answers(name):
    expected = json.loads((DATA / "expected.json").read_text())[name]
    answer = found(DATA / f"{name}.parquet")
    slowdowns = answer.slowdowns
    assert slowdowns.overall == pytest.approx(expected["slowdown"], rel=1e-5)
    assert slowdowns.worker_share == pytest.approx(expected["m_w"], abs=1e-5)
    assert slowdowns.last_stage_share == pytest.approx(expected["m_s"], abs=1e-5)
    for place, step in enumerate(map(str, answer.layout.steps)):
        assert slowdowns.recorded_ns[place] == pytest.approx(expected["recorded_s"][step] * 1e9, rel=1e-5)
        assert slowdowns.replayed_ns[place] == pytest.approx(expected["replayed_s"][step] * 1e9, rel=1e-5)
        assert slowdowns.by_step[place] == pytest.approx(expected["by_step"][step], rel=1e-5)
        types = {kind: series[place] for kind, series in slowdowns.by_type.items()}
        assert types == pytest.approx(expected["by_type"][step], rel=1e-5)
        for series, of_step in (
            (slowdowns.by_replica, expected["by_replica"][step]),
            (slowdowns.by_stage, expected["by_stage"][step]),
        ):
            assert {str(at): by[place] for at, by in enumerate(series)} == pytest.approx(of_step, rel=1e-5)


@pytest.mark.parametrize("name", ["AR", "ST"])
def test_the_published_answers_of_whole_jobs(name, shared):
    folder = shared / "reference" / "stragglers"
    expected = json.loads((folder / f"result-{name}.json").read_text())
    slowdowns = found(folder / f"trace-{name}.parquet").slowdowns
    assert slowdowns.overall == pytest.approx(expected["blocking_slowdown"], rel=1e-5)
    assert 1 + slowdowns.replay_error == pytest.approx(expected["launch_slowdown"], rel=1e-5)
    by_stage = {str(stage): series.mean() for stage, series in enumerate(slowdowns.by_stage)}
    assert by_stage == pytest.approx(expected["blocking_decompose_by_stage"], rel=1e-5)


def test_published_culprits():
    (slow,) = found(DATA / "slow-worker.parquet").causes
    assert (slow.kind, slow.rank, slow.when) == ("worker", 0, "in all steps")
    stage, *others = found(DATA / "long-stage.parquet").causes
    assert (stage.kind, stage.stage) == ("stage", 3)
    assert {cause.kind for cause in others} <= {"network"}


# Properties

jobs = st.fixed_dictionaries(
    {
        "replicas": st.integers(1, 4),
        "stages": st.integers(1, 4),
        "micro_batches": st.integers(1, 6),
        "steps": st.integers(1, 3),
    }
)


def test_the_replay_is_compared_with_the_recorded_steps(answer):
    job = answer(replicas=1, stages=1, micro_batches=2, steps=3)
    for times, told in ((2, "50.0 % shorter"), (0.5, "100.0 % longer")):
        recorded = np.rint(job.slowdowns.replayed_ns * times).astype(np.int64)
        changed = dataclasses.replace(job.slowdowns, recorded_ns=recorded)
        assert f"changes is {told} than" in dataclasses.replace(job, slowdowns=changed).sentences[-1]


@MODEST
@given(jobs)
def test_an_even_job_has_no_straggler(tmp_path_factory, job):
    answer = found(TrainingJob(**job).write(tmp_path_factory.mktemp("even") / "job.parquet"))
    slowdowns = answer.slowdowns
    assert slowdowns.overall == pytest.approx(1, abs=1e-6)
    assert slowdowns.replay_error == pytest.approx(0, abs=1e-6)
    assert answer.causes == ()
    assert slowdowns.by_worker == pytest.approx(1, abs=1e-6)


@MODEST
@given(jobs, st.data())
def test_slowdown_of_a_worker_equals_its_replay(tmp_path_factory, job, data):
    replica = data.draw(st.integers(0, job["replicas"] - 1))
    stage = data.draw(st.integers(0, job["stages"] - 1))
    factor = data.draw(st.floats(1.1, 4))
    path = tmp_path_factory.mktemp("slow") / "job.parquet"
    slow = found(TrainingJob(**job, compute=only_for((replica, stage), factor)).write(path))
    even = found(TrainingJob(**job).write(path))
    replayed, recorded = slow.slowdowns.replayed_ns, slow.slowdowns.recorded_ns
    assert replayed == pytest.approx(recorded, rel=1e-6)
    assert (recorded >= even.slowdowns.recorded_ns - 10).all()
    slowest = np.unravel_index(slow.slowdowns.by_worker.mean(axis=2).argmax(), slow.layout.ranks.shape)
    if job["replicas"] > 1 and job["stages"] > 1 and slow.slowdowns.overall > 1.05:
        assert tuple(map(int, slowest)) == (replica, stage)


@MODEST
@given(jobs, st.sampled_from([1, 64, 2**24]), st.integers(0, 2**32 - 1))
def test_single_replica_equals_masks_of_all_replicas(tmp_path_factory, job, numbers, seed):
    table = read_operation_table(
        TrainingJob(**job, noise=0.3, seed=seed).write(tmp_path_factory.mktemp("alone") / "job.parquet")
    )
    layout = lay_out(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_replay, "_MAX_NUMBERS", numbers)  # a block of one what-if and step, of some, of all
        replay = _replay.Replay(layout, dependencies(layout))
        alone = replay.step_ns_of_replicas()
        masks = np.array([mask(layout, replica=replica) for replica in range(layout.replicas)])
        assert (alone == replay.step_ns(masks)).all()


def test_scaling_all_times_changes_no_slowdown(answer):
    compute = only_for((1, 0), 1.5)
    one = answer(compute=compute, noise=0.05)
    ten = answer(
        compute=compute, noise=0.05, forward_s=0.1, backward_s=0.2, message_s=0.01, collective_s=0.05
    )
    assert ten.slowdowns.overall == pytest.approx(one.slowdowns.overall, rel=0.02)


# Planted causes

BASE = {"replicas": 4, "stages": 3, "micro_batches": 6, "steps": 30, "noise": 0.01}
LENGTHS = np.random.default_rng(3).lognormal(0, 0.5, (30, 4, 6))


@pytest.mark.parametrize(
    ("job", "place", "when"),
    [
        ({"compute": only_for((2, 1), 1.5)}, ("worker", 6, 1), "in all steps"),
        ({"compute": only_for((2, 1), 1.5, 12)}, ("worker", 6, 1), "in 18 of 30 steps, since step 22"),
        (
            {"compute": lambda step, r, s, _: 2.0 if (r, s) == (0, 2) and step % 7 == 1 else 1.0},
            ("worker", 8, 2), "in 5 of 30 steps, every 7th",
        ),
        ({"compute": lambda _, __, stage, ___: 1.5 if stage == 2 else 1.0}, ("stage", -1, 2), "in all steps"),
        ({"compute": lambda step, r, _, m: float(LENGTHS[step, r, m])}, ("sequence", -1, -1), None),
        ({"link": only_for((1, 0), 20.0)}, ("network", -1, 0), "in all steps"),
        ({"reduce": only_for((1, 0), 8.0)}, ("network", -1, 0), "in all steps"),
        ({"late": only_for((1, 0), 0.05, other=0.0)}, ("host", 1, 0), "in all steps"),
        (
            {"pause": lambda step, r, s, m: 0.08 if (r, s, m, step % 6) == (3, 1, 2, 4) else 0.0},
            ("host", 7, 1), "in 5 of 30 steps, every 6th",
        ),
    ],
)  # fmt: skip
def test_a_planted_cause_is_the_only_one_named(answer, job, place, when):
    (cause,) = answer(**BASE, **job).causes
    assert (cause.kind, cause.rank, cause.stage) == place
    assert when is None or cause.when == when


def test_a_late_rank_is_named_where_collectives_have_no_chunk(tmp_path):
    table = TrainingJob(**BASE, late=only_for((1, 0), 0.05, other=0.0)).table()
    table.loc[table["optype"] == "params-all-gather", "mc"] = -1
    table.to_parquet(tmp_path / "job.parquet", index=False)
    (cause,) = find_stragglers(read_operation_table(tmp_path / "job.parquet")).causes
    assert (cause.kind, cause.replica, cause.stage) == ("host", 1, 0)


@pytest.mark.parametrize("block", [False, True])
def test_nothing_is_late_in_a_job_without_pauses(tmp_path, block):
    job = TrainingJob(**BASE | {"noise": 0.1}, block=block)
    layout = lay_out(read_operation_table(job.write(tmp_path / "job.parquet")))
    assert _replay.Replay(layout, dependencies(layout)).delays_ns().max() < 10


@pytest.mark.parametrize("number", [0, 2, 5])
def test_each_receive_may_be_late(tmp_path, number):
    job = TrainingJob(**BASE, block=True).write(tmp_path / "job.parquet")
    layout = lay_out(read_operation_table(job))
    place = layout.operations.index(Operation(1, "forward-recv", number))
    own = np.array([op.stage == 1 for op in layout.operations])[:, None, None]
    starts = layout.start_ns
    late = dataclasses.replace(layout, start_ns=starts + 10**9 * (own & (starts >= starts[place])))
    assert _replay.Replay(late, dependencies(layout)).delays_ns()[place].min() > 5 * 10**8


@pytest.mark.parametrize(
    ("rank", "is_regular", "is_cause"), [(-1, True, False), (1, False, False), (1, True, True)]
)
def test_only_regular_waits_of_one_rank_for_a_processor_are_a_cause(
    answer, monkeypatch, rank, is_regular, is_cause
):
    cause = StragglerCause(
        "descheduled", "some ranks", 1.5, 10, "in 2 of 4 steps (1, 3)", "", (1, 3),
        rank=rank, is_regular=is_regular,
    )  # fmt: skip
    monkeypatch.setattr("chakrascope.runner.analysis.stragglers._stragglers.causes", lambda *_: [cause])
    found = answer(**BASE)
    assert found.causes == (cause,) * is_cause
    notes = [remark for remark in found.remarks if "waited for a processor in 2 of 4 steps" in remark]
    assert len(notes) == (not is_cause)


def test_host_is_named_only_for_explained_time(answer, monkeypatch):
    job = BASE | {"late": only_for((1, 0), 0.05, other=0.0)}
    assert [cause.kind for cause in answer(**job).causes] == ["host"]
    short = HostDelay("gc", 1, 0, is_first=False, median_ns=10_000, total_ns=20_000_000)
    monkeypatch.setattr("chakrascope.runner.analysis.stragglers._causes.host_delay", lambda *_: short)
    answer = answer(**job)
    assert answer.causes == ()
    assert "times and dependencies contradict each other" in answer.remarks[-1]


def test_a_late_onset_and_an_early_end_are_dated(answer):
    for compute, text in (
        (only_for((2, 1), 1.6, 26), "in 4 of 30 steps, since step 36"),
        (
            lambda step, r, s, _: 1.6 if (r, s) == (2, 1) and step < 5 else 1.0,
            "in 5 of 30 steps, until step 15",
        ),
    ):
        (cause,) = answer(**BASE, compute=compute).causes
        assert cause.when == text


def test_two_slow_workers_that_hide_each_other_are_both_named(answer):
    answer = answer(**BASE, compute=lambda _, r, s, __: 1.4 if (r, s) in ((0, 0), (3, 2)) else 1.0)
    assert {cause.rank for cause in answer.causes} == {0, 11}


def test_without_a_cause_steps_take_what_they_would_have_taken(answer):
    slow, even = answer(**BASE, compute=only_for((2, 1), 1.5)), answer(**BASE)
    (cause,) = slow.causes
    assert cause.without_ns == pytest.approx(even.slowdowns.recorded_ns.mean(), rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_noisy_job_has_no_cause(answer, seed):
    assert answer(**BASE | {"noise": 0.03}, seed=seed).causes == ()


def test_delays_of_less_than_a_few_milliseconds_are_no_cause(answer):
    slow = {"compute": only_for((2, 1), 1.5)} | BASE
    short = {"forward_s": 1e-4, "backward_s": 2e-4, "message_s": 1e-5, "collective_s": 5e-5}
    assert [cause.kind for cause in answer(**slow).causes] == ["worker"]
    assert answer(**slow | short).causes == ()


def test_the_step_at_which_step_times_change(answer):
    change = answer(**BASE, compute=lambda step, *_: 1.3 if step >= 17 else 1.0).change
    assert change.step == 27
    assert change.after > 1.2 * change.before
    assert answer(**BASE).change is None


@pytest.mark.parametrize(
    ("slow", "text"),
    [
        ({5, 15, 25, 35, 45, 55}, "every 10th"),
        ({5, 15, 22, 25, 35, 45, 55}, "every 10th"),  # and one more
        ({4, 8, 12, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56}, "every 4th"),  # but one
        ({*range(1, 60, 3)}, "every 3rd"),
        ({*range(1, 60, 12)}, "every 12th"),
        ({*range(40, 60)}, "since step 40"),
        ({*range(0, 40, 7), *range(40, 60)}, "since step 40"),
        ({*range(20), *range(23, 60, 8)}, "until step 20"),
        ({0, 5, 13, 17, 26, 31, 40, 44, 53, 57, 58, 59}, ""),  # three in a row after others at random
        ({3, 4, 9, 17, 29, 30, 44, 58}, ""),
        ({10, 39}, ""),
    ],
)
def test_steps_with_a_pattern(slow, text):
    steps = np.arange(60)
    assert pattern_text(steps, np.isin(steps, [*slow])) == text


def test_few_long_steps_at_random_have_no_cause(answer):
    late = {4, 17, 21}
    answer = answer(**BASE, compute=lambda step, *_: 1.6 if step - 10 in late else 1.0)
    assert answer.causes == ()


# Tables


def test_tables_of_a_job(answer):
    answer = answer(**BASE, compute=only_for((2, 1), 1.5))
    tables = {name: table(answer) for name, table in STRAGGLER_TABLES.items()}
    assert list(tables) == ["causes", "types", "workers", "steps", "heat-map"]
    assert len(tables["workers"]) == 12
    assert tables["workers"]["rank"][0] == 6
    assert tables["types"]["slowdown"].is_monotonic_decreasing
    assert len(tables["steps"]) == 30
    assert (tables["steps"]["slowest_rank"] == 6).all()
    heat = tables["heat-map"].set_index("rank")
    assert heat.shape == (12, 30)
    assert heat.loc[6].min() > heat.drop(6).to_numpy().max()


# Tables that lack something


def changed(tmp_path, change, **job):
    table = change(TrainingJob(**BASE | {"steps": 3, **job}).table())
    path = tmp_path / "changed.csv"
    table.to_csv(path, index=False)
    return path


def test_an_incomplete_step_is_left_out_and_named(tmp_path):
    def without_one(table):
        wrong = (table.step == 11) & (table.dp_rank == 1) & (table.optype == "forward-compute")
        return table[~(wrong & (table.seq_id == 2) & (table.stage == 0))]

    answer = found(changed(tmp_path, without_one))
    assert answer.layout.steps.tolist() == [10, 12]
    assert answer.remarks == ("left out: step 11, in which dp_rank 1 lacks forward-compute 2 of stage 0",)


def test_no_whole_step_at_all(tmp_path):
    path = changed(tmp_path, lambda table: table[(table.dp_rank != 1) | (table.optype != "optimizer")])
    with pytest.raises(
        TraceError, match=r"in no step do all replicas have the same operations.*dp_rank 1 lacks"
    ):
        found(path)


def test_messages_that_do_not_pair(tmp_path):
    def without_sends(table):
        return table[(table.optype != "forward-send") | (table.stage != 0)]

    with pytest.raises(TraceError, match=r"Stage 0 has 0 forward-send, stage 1 has 6 forward-recv"):
        found(changed(tmp_path, without_sends))


def test_operations_that_take_no_time(tmp_path):
    with pytest.raises(TraceError, match="duration of 0"):
        found(changed(tmp_path, lambda table: table.assign(start_ts=0.0, duration=0.0)))
    path = changed(tmp_path, lambda table: table.assign(duration=table.duration * (table.mb_id < 0)))
    assert found(path).slowdowns.overall > 0


def test_a_stage_without_computations(tmp_path):
    def without(table):
        return table[(table.stage != 1) | ~table.optype.str.endswith(("-compute", "-send", "-recv"))]

    with pytest.raises(TraceError, match="Stage 1 has no forward-compute"):
        found(changed(tmp_path, without))


def test_clocks_that_differ_are_noted(tmp_path):
    def shifted(table):
        return table.assign(start_ts=table.start_ts + 0.04 * (table.dp_rank == 1))

    (remark,) = found(changed(tmp_path, shifted, noise=0.0)).remarks
    assert remark.endswith("clocks of the ranks differ")


def test_times_that_fit_no_schedule_are_noted(tmp_path):
    def stretched(table):
        return table.assign(duration=table.duration + 0.1 * (table.optype == "params-all-gather"))

    (remark,) = found(changed(tmp_path, stretched)).remarks
    assert "contradict each other" in remark


def test_only_required_columns_give_the_same(tmp_path):
    table = TrainingJob(**BASE | {"steps": 3}, compute=only_for((2, 1), 1.5)).table()
    required = ["step", "dp_rank", "stage", "optype", "start_ts", "duration"]
    slowdowns = []
    for columns in (list(table.columns), required):
        path = tmp_path / f"{len(columns)}.parquet"
        pd.DataFrame(table[columns]).to_parquet(path, index=False)
        slowdowns.append(found(path).slowdowns)
    assert slowdowns[0].overall == slowdowns[1].overall
    assert (slowdowns[0].by_worker == slowdowns[1].by_worker).all()
