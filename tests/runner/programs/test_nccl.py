"""NCCL's algorithms as programs: proved, shaped as NCCL says, and chosen by size as its tuner does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import (
    NCCL_ALGORITHMS,
    NCCL_PROTOCOLS,
    builtin_program,
    inspect_program,
    nccl_choice,
    nccl_program,
    prove,
    write_msccl,
)

MIB = 1 << 20


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(name, kind) for name, kinds in NCCL_ALGORITHMS.items() for kind in kinds]),
    st.sampled_from(NCCL_PROTOCOLS),
    st.integers(2, 9),
    st.integers(1, 3),
)
def test_every_program_holds(algorithm, protocol, ranks, channels):
    name, collective = algorithm
    protocol = "Simple" if name == "nvls" else protocol
    proof = prove(nccl_program(name, collective, ranks, protocol, channels))
    assert proof.holds, proof.problems[0].message
    # A connection has four slots of a slice, which must do.
    assert proof.depth <= 4


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3))
def test_trees_of_several_nodes_hold(nodes, per_node, channels):
    if nodes * per_node < 2:
        return
    program = nccl_program("tree", "all-reduce", nodes * per_node, "LL", channels, per_node)
    proof = prove(program)
    assert proof.holds, proof.problems[0].message


def parents(program, channel):
    """Return who each rank sends its sum to: the peer of its step ``s`` or ``rrs`` that is sent first."""
    found = {}
    for rank in program.ranks:
        for block in rank.thread_blocks:
            up = block.channel == channel and block.ops[0].name in {"s", "rrs"} and block.send >= 0
            if up and block.ops[-1].name != "rcs":
                found.setdefault(rank.rank, block.send)
    return found


def test_a_tree_is_a_chain_within_a_node():
    program = nccl_program("tree", "all-reduce", 8, "LL")
    assert {rank: parents(program, 0)[rank] for rank in range(1, 8)} == {
        rank: rank - 1 for rank in range(1, 8)
    }
    # Up and down again: as many messages wait for each other as the tuner counts steps.
    assert inspect_program(program, 1 << 10).steps == 14


def test_the_two_trees_between_nodes():
    # The trees that NCCL draws for 12 nodes: leaves of one are inner nodes of the other.
    even = nccl_program("tree", "all-reduce", 12, "LL", 2, 1)
    leaves = [
        {rank.rank for rank in even.ranks if sum(b.channel == tree for b in rank.thread_blocks) == 2}
        for tree in (0, 1)
    ]
    assert leaves[0] == {1, 3, 5, 7, 9, 11}
    assert leaves[1] == {0, 2, 4, 6, 8, 10}


def test_a_ring_on_one_channel_with_ll_is_the_built_in_ring():
    ours = inspect_program(nccl_program("ring", "all-reduce", 6, "Simple"), 12 * MIB)
    built_in = inspect_program(builtin_program("ring", "all-reduce", 6), 12 * MIB)
    assert ours.most_sent_bytes == built_in.most_sent_bytes
    assert ours.least_bytes == built_in.least_bytes


def test_rings_are_exported():
    assert 'proto="LL128"' in write_msccl(nccl_program("ring", "all-gather", 4, "LL128", 2))


@pytest.mark.parametrize(("ranks", "warps"), [(8, (7, 4 * 4, 7)), (7, (7, 4 * 4, 7)), (6, (6, 6 * 4, 6))])
def test_thread_blocks_of_nvls_share_the_warps_of_a_channel(ranks, warps):
    """Copy in, reduce with four loads in flight per thread, copy out; two of NCCL's 20 warps only signal."""
    blocks = nccl_program("nvls", "all-reduce", ranks, channels=2).ranks[0].thread_blocks
    assert [block.threads // 32 for block in blocks] == [*warps, *warps]


def test_the_tuner_of_h100():
    found = [nccl_choice("all-reduce", 8, 1 << bits) for bits in range(10, 31)]
    names = [(choice.algorithm, choice.protocol) for choice in found]
    assert names == [("ring", "LL")] * 11 + [("nvls", "Simple")] * 10
    # The latency of a ring with LL: 6.6 us and 14 steps of 0.6 us, and then bandwidth.
    assert found[0].expected_ns == pytest.approx(15_000, rel=0.01)
    assert [choice.channels for choice in found[:12]] == [1] * 6 + [2, 4, 8, 16, 24, 16]
    # NCCL's peak with NVLS is 480 GB/s of bus bandwidth.
    assert found[-1].expected_ns == pytest.approx((1 << 30) / (480 * 8 / 14), rel=0.02)
    assert [choice.unit_bytes for choice in found[13:]] == [32768] * 3 + [65536] * 4 + [131072]


def test_the_tuner_without_the_switch():
    for bits, expected in ((16, "LL"), (20, "LL"), (24, "LL128"), (28, "Simple")):
        choice = nccl_choice("all-reduce", 8, 1 << bits, "a100")
        assert choice.algorithm in {"ring", "tree"}
        assert choice.protocol == expected, bits
    allowed = nccl_choice("all-reduce", 8, 1 << 24, algorithms=["ring"], protocols=["LL", "Simple"])
    assert (allowed.algorithm, allowed.protocol, allowed.channels) == ("ring", "Simple", 24)
    # Gathering through the switch sends more one way than a ring does: NCCL takes the ring.
    assert nccl_choice("all-gather", 8, 1 << 28).algorithm == "ring"


def test_a_choice_is_a_program():
    program = nccl_choice("reduce-scatter", 8, 1 << 16).program
    assert (program.num_ranks, program.collective) == (8, "reduce-scatter")
    assert prove(program).holds


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rings", "all-reduce", 8), "did you mean 'ring'"),
        (("ring", "all-to-all", 8), "has no program here for all-to-all"),
        (("ring", "all-reduce", 1), "at least 2 ranks"),
        (("ring", "all-reduce", 8, "LL12"), "did you mean 'LL128'"),
        (("ring", "all-reduce", 8, "LL", 65), "1 to 64 channels"),
        (("tree", "all-reduce", 9, "LL", 1, 4), "nodes of 4"),
        (("nvls", "all-reduce", 8, "LL"), "Simple alone"),
    ],
)
def test_what_nccl_does_not_have(arguments, words):
    with pytest.raises(ConfigError, match=words):
        nccl_program(*arguments)


def test_what_nccl_does_not_choose():
    with pytest.raises(ConfigError, match="did you mean 'h100'"):
        nccl_choice("all-reduce", 8, MIB, "h10")
    with pytest.raises(ConfigError, match="NCCL has nothing for all-gather"):
        nccl_choice("all-gather", 8, MIB, algorithms=["tree"])
    with pytest.raises(ConfigError, match="did you mean 'nvls'"):
        nccl_choice("all-reduce", 8, MIB, algorithms=["nvl"])
