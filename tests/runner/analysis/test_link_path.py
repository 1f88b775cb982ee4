"""The critical path by single links: every message that a communication waited for, and nothing else."""

import dataclasses

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from studies import ring_links

from chakrascope.runner.analysis import RunAnalysis, why_no_links


def with_flows(run, rows, links=None):
    """Return *run* as if its backend had recorded the messages *rows*."""
    flows = pd.DataFrame(rows, columns=["src", "dst", "bytes", "start_ns", "end_ns"]).astype("int64")
    linked = run.result.links if links is None else links
    result = dataclasses.replace(run.result, flows=flows, links=linked)
    return RunAnalysis(run.study, run.info, result, run.workload)


def longest_communication(run):
    segments = run.path.segments
    return segments[segments["kind"] == "communication"].nlargest(1, "duration_ns").iloc[0]


def test_a_communication_is_walked_back_from_message_to_message(simulated):
    segment = longest_communication(simulated)
    rank, start, end = int(segment["rank"]), int(segment["start_ns"]), int(segment["end_ns"])
    before, beside = (rank - 1) % 8, (rank - 2) % 8
    half = (start + end) // 2
    rows = [
        (before, rank, 1, half, end - 10),  # reached it last, a little before the end
        (beside, rank, 1, start, end - 20),  # reached it earlier: nobody waited for it
        (beside, before, 1, start + 100, half),  # what the sender had waited for
        (before, rank, 1, end - 5, end + 5),  # came too late
    ]
    table = with_flows(simulated, rows, ring_links(8)).breakdown("link").set_index("key")["duration_ns"]
    assert table[f"rank {before} to rank {rank}"] == end - half
    assert table[f"rank {beside} to rank {before}"] == half - start - 100
    assert table.sum() == simulated.result.makespan_ns
    communication = simulated.path.breakdown("kind").set_index("key")["duration_ns"]["communication"]
    assert table["no communication"] == simulated.result.makespan_ns - communication


def test_the_only_switch_between_two_ranks_is_named(simulated):
    segment = longest_communication(simulated)
    other = (int(segment["rank"]) + 3) % 8
    row = (other, int(segment["rank"]), 1, int(segment["start_ns"]), int(segment["end_ns"]))
    keys = set(with_flows(simulated, [row]).breakdown("link")["key"])
    assert f"rank {other} to rank {segment['rank']} through switch 0" in keys


RANKS = st.integers(0, 7)
MESSAGES = st.tuples(RANKS, RANKS, st.just(1), st.integers(0, 10**7), st.integers(1, 10**6))


@given(st.lists(MESSAGES, min_size=1, max_size=30))
def test_whatever_was_recorded_the_parts_sum_to_the_step(simulated, rows):
    flows = [(source, target, size, start, start + length) for source, target, size, start, length in rows]
    table = with_flows(simulated, flows).breakdown("link")
    assert table["duration_ns"].sum() == simulated.result.makespan_ns
    assert (table["duration_ns"] > 0).all()


def test_a_backend_without_messages_says_what_it_knows(run, simulated):
    assert "what each link carries in all, not when" in why_no_links(simulated.result)
    assert "nothing of single messages" in why_no_links(run.result)
    assert run.breakdown("link").empty
