"""All pairs by puts, gets and packets: proved, and they move what they must and no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import ALL_PAIRS, all_pairs_program, inspect_program, prove

CASES = [(way, collective) for way, kinds in ALL_PAIRS.items() for collective in kinds]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(CASES), st.integers(2, 6), st.integers(1, 12))
def test_every_program_holds(case, ranks, workgroups):
    proof = prove(all_pairs_program(*case, ranks, workgroups))
    assert proof.holds, proof.problems[0].message


@pytest.mark.parametrize("case", CASES)
def test_what_they_send_is_what_must_be_sent(case):
    way, collective = case
    found = inspect_program(all_pairs_program(way, collective, 4, 6), 1 << 20)
    data = found.least_bytes * (2 if way == "packet" else 1)
    # The rest are handshakes of eight bytes, and requests of gets.
    assert data <= found.most_received_bytes <= data + 8 * 100


def test_workgroups_share_peers_and_data():
    program = all_pairs_program("put", "all-gather", 4, 6)
    puts = [op for block in program.ranks[0].thread_blocks for op in block.ops if op.name == "put"]
    assert [op.share for op in puts] == [(0, 2)] * 3 + [(1, 2)] * 3
    few = all_pairs_program("get", "all-to-all", 5, 2)
    counts = [sum(op.name == "get" for op in block.ops) for block in few.ranks[0].thread_blocks]
    assert counts == [2, 2]


def test_what_there_is_not():
    with pytest.raises(ConfigError, match="did you mean 'packet'"):
        all_pairs_program("packets", "all-gather", 4)
    with pytest.raises(ConfigError, match="no program by packet for reduce-scatter"):
        all_pairs_program("packet", "reduce-scatter", 4)
    with pytest.raises(ConfigError, match="at least 2 ranks"):
        all_pairs_program("put", "all-gather", 1)
