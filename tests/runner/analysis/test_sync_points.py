"""Measured jobs whose ranks wait for each other: their path crosses ranks, and what-ifs shorten the waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import CollectiveType
from chakrascope.runner import get_backend, prepare
from chakrascope.runner._sync_points import SyncPoints
from chakrascope.runner.analysis import Target, critical_path, slack, what_if

MS = 1_000_000
few = settings(max_examples=25, deadline=None, derandomize=True)


def looped(work, tails, transfers, repeats=40):
    """Return begin and arrivals of each rank in the last of many steps, its ends, and the step time.

    A rank computes for *work* (by rank and collective) before each collective, and for its tail after the
    last one. A collective ends for all ranks its transfer time after the last arrival.
    """
    begin = np.zeros(len(tails), np.int64)
    for repeat in range(repeats):
        before, now, arrivals, ends = begin, begin, [], []
        for place, transfer in enumerate(transfers):
            arrivals.append(now + work[:, place])
            ends.append(arrivals[-1].max() + transfer)
            now = np.full(len(tails), ends[-1])
        begin = now + tails
        if repeat == repeats // 2:
            half = begin
    period = float((begin - half).max()) / (repeats - 1 - repeats // 2)
    return before, np.array(arrivals).T, np.array(ends), period


def captured(work, tails, transfers, clocks):
    """Return the workload that a capture of the last step of `looped` yields, and the mean step time."""
    begin, arrivals, ends, period = looped(work, tails, transfers)
    ranks = []
    for rank in range(len(tails)):
        nodes, last = [], ()
        for place in range(len(transfers)):
            took = int(ends[place] - arrivals[rank, place])
            nodes.append(comp(len(nodes), int(work[rank, place]), last, operator=f"work of {rank}"))
            nodes.append(coll(len(nodes), 1 << 20, (len(nodes) - 1,), duration_ns=took))
            last = (len(nodes) - 1,)
        ranks.append([*nodes, comp(len(nodes), int(tails[rank]), last, operator=f"tail of {rank}")])
    began = {str(rank): int(ns) for rank, ns in enumerate(begin + clocks)}
    return workload(*ranks, metadata={"steps": [3], "began_ns": began}), period


def replayed(program):
    experiment = prepare(program, "default", None, backend="replay", semantics="trace")
    return experiment, get_backend("replay").run(experiment)


@st.composite
def jobs(draw):
    ranks, collectives = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    times = st.integers(1000, 100_000)
    work = np.array([[draw(times) for _ in range(collectives)] for _ in range(ranks)])
    tails = np.array([draw(times) for _ in range(ranks)])
    return work, tails, [draw(times) for _ in range(collectives)]


@few
@given(jobs(), st.data())
def test_a_faster_rank_gains_what_the_job_gains(job, data):
    work, tails, transfers = job
    clocks = np.array([data.draw(st.integers(0, 10**6)) for _ in tails])
    rank = data.draw(st.integers(0, len(tails) - 1))
    program, period = captured(work, tails, transfers, clocks)
    assume(len({tuple(row) for row in np.c_[work, tails].tolist()}) > 1)
    experiment, result = replayed(program)
    after = what_if(experiment, [(Target("operator", f"work of {rank}"), 2.0)])
    faster = work.copy()
    faster[rank] = np.rint(work[rank] / 2)
    gain = period - looped(faster, tails, transfers)[-1]
    assert result.makespan_ns - after.makespan_ns == pytest.approx(gain, abs=0.025 * period)


@few
@given(jobs(), st.data())
def test_the_path_goes_through_late_ranks_and_never_waits(job, data):
    work, tails, transfers = job
    clocks = np.array([data.draw(st.integers(0, 10**6)) for _ in tails])
    program, _ = captured(work, tails, transfers, clocks)
    _, result = replayed(program)
    path = critical_path(result, program)
    assert path.segments["duration_ns"].sum() == path.makespan_ns == result.makespan_ns
    assert (path.segments["start_ns"].to_numpy()[1:] == path.segments["end_ns"].to_numpy()[:-1]).all()
    sent = path.segments[path.segments["kind"] == "communication"]
    longest = sent.groupby("node_id")["duration_ns"].max()
    assert all(took <= transfers[node // 2] for node, took in longest.items())
    assert "idle" not in set(path.segments["kind"])
    table = slack(result, program)
    room = result.nodes["end_ns"].max() - result.nodes["end_ns"]
    assert ((table["slack_ns"] >= 0) & (table["slack_ns"] <= room)).all()
    assert (path.segments.merge(table, on=["rank", "node_id"])["slack_ns"] == 0).all()


def sleeping_after(sleep_ns):
    """Return a job of two ranks, of which rank 1 sleeps after the collective, so that it begins later."""
    return np.array([[10 * MS], [10 * MS]]), np.array([MS, MS + sleep_ns]), [2 * MS]


def test_a_rank_that_begins_late_was_in_its_step_before():
    program, period = captured(*sleeping_after(60 * MS), np.zeros(2, np.int64))
    experiment, result = replayed(program)
    assert result.makespan_ns == period == 73 * MS
    path = critical_path(result, program)
    by_operator = path.breakdown("operator").set_index("key")["duration_ns"].to_dict()
    assert by_operator["tail of 1"] >= 60 * MS
    after = what_if(experiment, [(Target("operator", "tail of 1"), float("inf"))])
    assert after.makespan_ns == 13 * MS


def test_waits_are_known_where_clocks_are_not():
    program, _ = captured(*sleeping_after(60 * MS), np.array([5 * MS, 0]))
    _, result = replayed(program)
    sync = SyncPoints.of(result, program)
    assert sync.begin_ns.tolist() == [0, 60 * MS]
    assert sync.wait_ns[sync.rank == 0].tolist() == [60 * MS]
    assert sync.waits_of(0, np.arange(3)).tolist() == [0, 60 * MS, 0]
    assert sync.waits_of(1, np.arange(3)).tolist() == [0, 0, 0]


def pipeline(first_ns, *, buffered):
    """Return two stages: the second waits for results of the first."""
    sent_ns = MS // 10 if buffered else MS
    first = [comp(0, first_ns), send(1, 0, 1, after=(0,), duration_ns=sent_ns, stream=1)]
    second = [recv(0, 0, 1, duration_ns=first_ns + MS, stream=1), comp(1, 2 * MS, (0,))]
    return workload(first, second, metadata={"began_ns": {"0": 0, "1": 0}})


@pytest.mark.parametrize("buffered", [True, False])
def test_a_receive_waits_for_its_sender(buffered):
    program = pipeline(8 * MS, buffered=buffered)
    experiment, result = replayed(program)
    path = critical_path(result, program)
    assert path.segments["rank"].tolist() == [0, 1, 1]
    assert path.segments["duration_ns"].tolist() == [8 * MS, MS, 2 * MS]
    assert path.segments["reason"][1] == "Waited 8.00 ms for rank 0 to reach 'send' (node 1)."
    # In a loop, the first stage computes the next step in the meantime, so it is the bound.
    after = what_if(experiment, [(Target("operator", "aten::mm"), 2.0)])
    assert result.makespan_ns - after.makespan_ns == 4 * MS


@pytest.mark.parametrize("removed_ns", [0, 4 * MS])
def test_waits_are_those_of_the_traces_from_which_recording_was_taken_out(removed_ns):
    """The second rank came 0.5 ms after the first, regardless of the overhead of recording."""
    came = {"measured_start_ns": 8 * MS + MS // 2}
    first = [comp(0, 8 * MS, measured_start_ns=0), send(1, 0, 1, after=(0,), duration_ns=MS, stream=1)]
    second = [comp(0, MS, measured_start_ns=0),
              comp(1, 7 * MS + MS // 2 - removed_ns, (0,), measured_start_ns=MS),
              comp(2, MS, (1,), **came),
              recv(3, 0, 1, after=(1,), duration_ns=MS // 2, stream=1, **came)]  # fmt: skip
    accounting = {"0": {"profiler_ns": 0}, "1": {"profiler_ns": removed_ns}}
    program = workload(first, second, metadata={"began_ns": {"0": 0, "1": 0}, "accounting": accounting})
    _, result = replayed(program)
    sync = SyncPoints.of(result, program)
    waits = dict(zip(zip(sync.rank.tolist(), sync.node_id.tolist(), strict=True), sync.wait_ns, strict=True))
    assert waits == {(0, 1): MS // 2, (1, 3): 0}
    assert critical_path(result, program).segments["duration_ns"].sum() == result.makespan_ns


def test_device_collectives_have_device_times():
    """Half of the host time of the second rank was recording, which did not delay the device."""

    def rank(removed_ns):
        nodes, before = [], ()
        for number in range(16):
            after = (number - 1,) if number else ()
            nodes.append(comp(number, MS - removed_ns, after, kind="host", measured_start_ns=number * MS))
        for number in range(8):
            node_id, start = 100 + 2 * number, {"measured_start_ns": (1 + 4 * number) * MS, "stream": 1007}
            nodes.append(comp(node_id, 3 * MS, (number, *before), **start))
            start["measured_start_ns"] += 3 * MS
            nodes.append(coll(node_id + 1, 1 << 20, (node_id,), duration_ns=MS, **start))
            before = (node_id + 1,)
        return nodes

    accounting = {"0": {"profiler_ns": 0}, "1": {"profiler_ns": 8 * MS}}
    began = {"0": 0, "1": 0}
    program = workload(rank(0), rank(MS // 2), metadata={"began_ns": began, "accounting": accounting})
    _, result = replayed(program)
    assert SyncPoints.of(result, program).wait_ns.tolist() == [0] * 16


@pytest.mark.parametrize("figures", [[], {"0": 1}, {"x": {"profiler_ns": 5}}, {"7": {"profiler_ns": 5}}])
def test_zero_overhead_changes_no_time(figures):
    program = pipeline(8 * MS, buffered=False)
    program.metadata["accounting"] = figures
    _, result = replayed(program)
    assert SyncPoints.of(result, program).wait_ns.tolist() in ([8 * MS, 0], [0, 8 * MS])


def test_what_is_received_before_it_was_sent_moves_the_clock():
    first = [comp(0, 8 * MS), send(1, 0, 1, after=(0,), duration_ns=MS, stream=1)]
    second = [recv(0, 0, 1, duration_ns=MS, stream=1), comp(1, 2 * MS, (0,))]
    program = workload(first, second, metadata={"began_ns": {"0": 0, "1": 0}})
    _, result = replayed(program)
    sync = SyncPoints.of(result, program)
    assert (sync.begin_ns - sync.begin_ns[0]).tolist() == [0, 7 * MS]


def test_the_root_of_a_broadcast_may_leave_before_the_others_come():
    def rank(early_ns, late_ns):
        first = [comp(0, early_ns), coll(1, 4096, (0,), CollectiveType.BROADCAST, duration_ns=MS)]
        return [*first, comp(2, late_ns, (1,)), coll(3, 4096, (2,), duration_ns=MS)]

    program = workload(rank(MS, 9 * MS), rank(9 * MS, MS))
    _, result = replayed(program)
    sync = SyncPoints.of(result, program)
    waits = dict(zip(zip(sync.rank.tolist(), sync.node_id.tolist(), strict=True), sync.wait_ns, strict=True))
    assert waits == {(0, 1): -1, (1, 1): 0, (0, 3): 0, (1, 3): 0}


def test_lagging_ranks_are_replayed_separately():
    """If the waits explain nothing, the gain of a change is its gain on the rank itself."""
    ranks = [[comp(0, 9 * MS), coll(1, 4096, (0,), duration_ns=MS), comp(2, MS, (1,))],
             [comp(0, MS), coll(1, 4096, (0,), duration_ns=MS), comp(2, 9 * MS, (1,))]]  # fmt: skip
    program = workload(*ranks)
    experiment, result = replayed(program)
    after = what_if(experiment, [(Target("operator", "aten::mm"), 2.0)])
    assert result.makespan_ns == 11 * MS
    assert after.makespan_ns == 6 * MS


def test_one_rank_and_equal_ranks_are_replayed_as_they_are():
    nodes = [comp(0, 9 * MS), coll(1, 4096, (0,), duration_ns=MS)]
    for program in (workload(nodes), workload(nodes, nodes)):
        experiment, _ = replayed(program)
        assert what_if(experiment, [(Target("operator", "aten::mm"), 2.0)]).makespan_ns == 5_500_000


@pytest.mark.parametrize("began", ["soon", {}, {"0": 1.5, "1": 0}, {"0": True, "1": 0}, {"0": 2**63, "1": 0}])
def test_missing_times_are_ignored(began):
    program = pipeline(8 * MS, buffered=False)
    program.metadata["began_ns"] = began
    _, result = replayed(program)
    assert SyncPoints.of(result, program).begin_ns.tolist() == [0, 0]
    assert critical_path(result, program).segments["duration_ns"].sum() == result.makespan_ns


def test_the_alignment_of_clocks_is_stated():
    work, tails, transfers = np.array([[MS], [2 * MS]]), np.array([MS, MS]), [MS]
    program, _ = captured(work, tails, transfers, np.array([0, 5_000 * MS]))
    sync = SyncPoints.of(replayed(program)[1], program)
    assert sync.clocks.startswith(
        "aligned at the ends of 1 collective, with a remaining difference of 0 ns (median)"
    )
    assert np.ptp(sync.begin_ns) == 0
    stages = pipeline(8 * MS, buffered=True)
    assert "assumed to begin the step together" in SyncPoints.of(replayed(stages)[1], stages).clocks
    stages.metadata["began_ns"] = {"0": 0, "1": 5_000 * MS}
    assert "as recorded between ranks" in SyncPoints.of(replayed(stages)[1], stages).clocks


def test_ranks_with_distant_clocks_have_a_path():
    program = pipeline(8 * MS, buffered=False)
    program.metadata["began_ns"] = {"0": 2**60, "1": -(2**60)}
    _, result = replayed(program)
    assert critical_path(result, program).segments["duration_ns"].sum() == result.makespan_ns
