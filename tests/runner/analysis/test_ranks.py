"""The slowest rank, arrivals at collectives, and equal ranks."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from studies import analysis_of
from workloads import coll, comp, workload

from chakrascope.converter import Workload, convert_files
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import (
    Target,
    analyse_run,
    collective_arrivals,
    counterpart,
    rank_standings,
    slowest_rank,
    what_if,
)
from chakrascope.support import duration_text

MS = 1_000_000
DELAYED = "descheduled"


class Recorded:
    """The columns of a result that the analysis reads."""

    backend = "analytical-aware"
    makespan_ns = 10_000

    def __init__(self, works, arrivals):
        count = len(works)
        self.tables = {
            "ranks": {
                "rank": np.arange(count),
                "finish_ns": np.full(count, 10_000),
                "exposed_comm_ns": 10_000 - np.asarray(works),
            },
            "collectives": {
                "collective": np.repeat(np.arange(len(arrivals)), count),
                "rank": np.tile(np.arange(count), len(arrivals)),
                "start_ns": np.asarray(arrivals, np.int64).reshape(-1),
            },
        }

    def columns(self, name):
        return self.tables[name]


def test_the_rank_that_the_others_wait_for_is_the_slowest():
    found = slowest_rank(Recorded([8_000, 9_000, 8_200], [[10, 300, 20], [700, 900, 710]]))
    assert (found.rank, found.work_ns, found.median_ns) == (1, 9_000, 8_100)
    assert (found.last_at, found.collectives, found.waited_ns) == (2, 2, 280 + 190)
    assert "rank 1 needs 9.00 µs for its work, 11.1 % more" in found.sentence
    assert "4.7 % of the step. `what-if --faster skew:1=inf` simulates an even load." in found.sentence
    assert found.to_json()["gain_ns"] is None


@pytest.mark.parametrize(("delayed_ns", "is_named"), [(4_000, True), (400, False)])
def test_waits_for_a_processor_are_named(delayed_ns, is_named):
    found = replace(slowest_rank(Recorded([8_000, 9_000], [[10, 300]])), delayed_ns=delayed_ns)
    assert ("for 4.00 µs of this time it waits for a processor." in found.sentence) == is_named


def test_a_rank_that_is_waited_for_may_work_less():
    found = slowest_rank(Recorded([8_000, 5_000], [[10, 900]]))
    assert (
        "rank 1 needs 5.00 µs for its work, 37.5 % less than the median of its peers (8.00 µs)"
        in found.sentence
    )


def test_measured_ranks_are_waited_for_on_one_clock(run):
    found, calls = slowest_rank(run.result), run.collectives
    waited_ns = calls.groupby("rank")["skew_ns"].sum()
    assert (found.rank, found.waited_ns) == (waited_ns.idxmax(), waited_ns.max())
    assert found.last_at == (calls[calls["skew_ns"] > 0]["rank"] == found.rank).sum()


def test_a_late_rank_with_little_more_work_does_not_explain_its_lateness():
    found = slowest_rank(Recorded([8_000, 8_100, 8_000], [[10, 3_000, 20]]))
    assert found.waited_ns == 2_980
    assert "explains at most 100 ns of this wait" in found.sentence
    assert "--faster skew:1=inf" in found.sentence
    busy = slowest_rank(Recorded([5_000, 8_100, 5_000], [[10, 3_000, 20]]))
    assert "explains at most" not in busy.sentence


def test_the_gain_of_an_even_load_is_that_of_the_what_if():
    late = [comp(0, 6 * MS), coll(1, 1024, (0,))]
    run = analysis_of(workload([comp(0, MS), coll(1, 1024, (0,), duration_ns=5 * MS)], late))
    gain_ns = run.result.makespan_ns - what_if(run.experiment(), [(Target("skew", "1"), inf)]).makespan_ns
    assert (run.slowest_rank.rank, run.slowest_rank.gain_ns) == (1, gain_ns)
    assert f"this step would be {duration_text(gain_ns)} shorter (`what-if --faster skew:1=inf`)" in (
        run.slowest_rank.sentence
    )


@pytest.mark.parametrize(
    ("gain_ns", "text"),
    [
        (0, "An even load would shorten this step by less than 1 % (`what-if --faster skew:1=inf`)."),
        (2_000, "With an even load, this step would be 2.00 µs shorter (`what-if --faster skew:1=inf`)."),
    ],
)
def test_a_rank_without_additional_work_begins_late(gain_ns, text):
    found = replace(slowest_rank(Recorded([8_000, 8_000], [[10, 3_000]])), gain_ns=gain_ns)
    assert found.sentence.endswith(f"It starts later, or works in another order. {text}")


def test_equal_replicas_of_the_slowest_rank_count_as_last_together():
    found = slowest_rank(Recorded([8_000, 9_000] * 2 + [8_000], [[10, 300, 10, 300, 10]]))
    assert (found.rank, found.last_at, found.waited_ns) == (1, 1, 290)


SCALED = {"scaled_from_ranks": 2}
GIVEN = {"stand_ins": "the traces of 2 of 4 ranks were given"}


def scaled(facts, *programs):
    """Return a job of two measured ranks, whose other ranks repeat the measured ranks by *programs*."""
    graphs = tuple(workload([comp(0, 5, cause=cause, kind="host")]).graphs[0] for cause in ("", DELAYED))
    return Workload(graphs, np.array(programs), {}, facts)


@pytest.mark.parametrize("facts", [SCALED, GIVEN])
def test_copies_of_a_measured_rank_are_no_peers(facts):
    recorded = Recorded([8_000, 8_000, 9_000, 9_000], [[10, 10, 300, 300]])
    found = slowest_rank(recorded, scaled(facts, 0, 0, 1, 1))
    assert (found.rank, found.copies, found.median_ns, found.delayed_ns) == (2, 1, 8_000, 5)
    assert "rank 2 (1 other rank repeats its times) needs 9.00 µs for its work, 12.5 % more" in found.sentence
    assert slowest_rank(Recorded([8_000] * 4, [[10] * 4]), scaled(facts, 0, 0, 0, 0)) is None
    alone = slowest_rank(Recorded([8_000] * 4, [[10, 10, 10, 300]]), scaled(facts, 0, 0, 0, 0))
    assert (alone.rank, alone.copies) == (3, 0)


def test_slow_rank_without_waiters_does_not_matter():
    found = slowest_rank(Recorded([8_000, 8_400], [[10, 10]]))
    assert found.rank == 1
    assert found.sentence.endswith("too little to matter.")
    assert slowest_rank(Recorded([8_000], [[1]])) is None


@pytest.mark.parametrize("ranks", [2, 5])
def test_ranks_without_a_collective_are_compared_by_their_work(ranks):
    found = slowest_rank(Recorded([5_000] * (ranks - 1) + [6_000], []))
    assert found.rank == ranks - 1
    assert "have no collective in common" in found.sentence


def test_ranks_of_one_program_that_did_the_same_are_one(simulated):
    table = rank_standings(simulated.result, simulated.workload)
    programs = np.asarray(simulated.workload.program_of_rank)
    for program in np.unique(programs):
        members = table[programs[table["rank"]] == program]
        assert members["same_as"].nunique() == 1
        assert members["same_as"].iloc[0] == members["rank"].min()
    assert (table["apart_ns"] <= 0.001 * simulated.result.makespan_ns).all()


def test_late_rank_is_not_merged(simulated):
    nodes = simulated.result.nodes.copy()
    late = nodes["rank"] == 2
    nodes.loc[late, "end_ns"] += simulated.result.makespan_ns // 100
    table = rank_standings(replace(simulated.result, nodes=nodes), simulated.workload).set_index("rank")
    assert table.loc[2, "same_as"] == 2
    assert table.loc[4, "same_as"] == 0


def test_waiting_times_come_from_collectives(run):
    table = rank_standings(run.result, run.workload).set_index("rank")
    waits = run.result.collectives.groupby("rank")["wait_ns"].sum()
    assert table["waiting_ns"].to_dict() == waits.to_dict()


def measured(tmp_path, *, ahead_ns=0):
    """Analyse the replay of three ranks; rank 1 computes 6 ms longer and has a separate clock."""

    def rank(late_ns, waited_ns, begin_ns=0):
        nodes = [comp(0, 3 * MS + late_ns + begin_ns), coll(1, 1 << 20, (0,), duration_ns=MS + waited_ns)]
        return [*nodes, comp(2, MS, (1,)), coll(3, 1 << 20, (2,), duration_ns=2 * MS)]

    study = Study.create(tmp_path / "study")
    ranks = rank(0, 6 * MS), rank(6 * MS, 0, ahead_ns), rank(2 * MS, 4 * MS)
    prefix = study.add_workload(workload(*ranks), "job")
    experiment = prepare(prefix, "default", None, backend="replay", semantics="trace")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="job")
    return analyse_run(study)


@pytest.mark.parametrize("ahead_ns", [0, 4 * MS])
def test_a_measured_collective_is_divided_at_the_last_arrival(tmp_path, ahead_ns):
    run = measured(tmp_path, ahead_ns=ahead_ns)
    calls = run.result.collectives.sort_values(["collective", "rank"])
    assert calls["wait_ns"].tolist() == [6 * MS, 0, 4 * MS, 0, 0, 0]
    assert calls["transfer_ns"].tolist() == [MS] * 3 + [2 * MS] * 3
    assert rank_standings(run.result, run.workload)["waiting_ns"].tolist() == [6 * MS, 0, 4 * MS]


def test_the_path_of_a_measured_run_goes_on_through_the_late_rank(tmp_path):
    run = measured(tmp_path)
    path = run.path
    assert path.segments["duration_ns"].sum() == path.makespan_ns == 13 * MS
    assert path.segments[["rank", "node_id"]].to_numpy().tolist() == [[1, 0], [0, 1], [0, 2], [0, 3]]
    assert path.segments["duration_ns"].tolist() == [9 * MS, MS, MS, 2 * MS]
    assert path.segments["reason"][1] == "Waited 6.00 ms for rank 1 to reach 'coll1' (node 1)."


def test_arrivals_are_counted_from_the_first(run):
    table = collective_arrivals(run.result, run.nodes)
    skew = table.groupby("collective")["late_ns"].max()
    assert skew.tolist() == run.collectives.set_index("collective").loc[skew.index, "skew_ns"].tolist()
    assert (table.groupby("collective")["late_ns"].min() == 0).all()
    assert set(table["operation"]) == {"all_reduce"}


def test_late_start_delays_only_the_first_collective(data_dir, tmp_path):
    folder = data_dir / "converter" / "dlrm_v100_8"
    study = Study.create(tmp_path / "study")
    prefix = study.add_workload(convert_files(device_trace=f"{folder}/kineto_{{rank}}.json.gz"), "dlrm")
    experiment = prepare(prefix, "default", None, backend="replay", semantics="trace")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="dlrm")
    run = analyse_run(study)
    # By the ends of the collectives, rank 0 began its step 4.14 ms after rank 1.
    assert run.collectives["skew_ns"].iloc[0] == pytest.approx(5_490_000, rel=0.02)
    assert run.collectives["rank"].iloc[0] == 0
    assert (run.collectives["skew_ns"].iloc[1:] < 100_000).all()
    arrivals = collective_arrivals(run.result, run.nodes).groupby("collective")["late_ns"]
    assert arrivals.max().tolist() == run.collectives["skew_ns"].tolist()
    assert (arrivals.min() == 0).all()


def test_the_fifth_of_one_run_is_the_fifth_of_the_other(run, simulated):
    row = run.row(1, 13)
    found = counterpart(run.nodes, row, simulated.nodes)
    assert (simulated.nodes["rank"].iloc[found], simulated.nodes["node_id"].iloc[found]) == (1, 13)


@pytest.mark.parametrize(("step", "expected"), [(0, 13), (7, None)])
def test_only_nodes_of_the_step_asked_for_are_alike(run, step, expected):
    found = counterpart(run.nodes, run.row(1, 13), run.nodes, step)
    assert found == (-1 if expected is None else run.row(1, expected))
