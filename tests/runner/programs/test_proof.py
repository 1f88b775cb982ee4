"""The proof: samples and programs of NCCL are correct, and every planted mistake is located."""

from __future__ import annotations

import gzip
import re

import pytest
from differential import fault, judged, mutant, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import NAMES, SAMPLES, changed_plan, drop, ops_of, path_of, sample

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import (
    ALL_PAIRS,
    BUILTIN_PROGRAMS,
    NCCL_ALGORITHMS,
    PROTOCOLS,
    all_pairs_program,
    builtin_program,
    inspect_program,
    nccl_choice,
    nccl_program,
    parse_program,
    prove,
    read_program,
    write_msccl,
)


@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_misspelled_attributes_of_msccl_are_refused(chance):
    content = gzip.decompress(path_of("allgather_ring").read_bytes())
    attribute = chance.choice([*re.finditer(rb' (\w{3,})="', content)])
    place = chance.randrange(attribute.start(1), attribute.end(1))
    with pytest.raises(ConfigError, match="did you mean"):
        parse_program(content[:place] + b"q" + content[place:], "p.xml")


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_hold(name):
    proof = prove(sample(name))
    assert proof.holds, proof.problems[0].message


def test_all_programs_of_the_reference_hold(shared):
    folder = shared / "reference" / "collectives"
    files = sorted(folder.glob("msccl*/*.gz"))
    assert len(files) >= 25
    for path in files:
        if path.name not in {each.name for each in SAMPLES}:
            assert prove(read_program(path)).holds, path.name


def first(program):
    return prove(program).problems[0]


def test_a_dropped_signal():
    # Rank 2 never signals to its peers that it is ready.
    program = changed_plan("multi_node_allgather", lambda ranks: drop(ranks, 2, 0, "rlxsignal"))
    problem = first(program)
    # Its last signal replaces this one, so its peers continue too early and lack a signal at the end.
    assert (problem.kind, problem.op) == ("deadlock", "18")
    assert problem.rank in {0, 1, 3}
    assert "a signal of rank 2 on memory channel 0, and no remaining op provides it" in problem.message


def test_a_missing_wait():
    # Rank 4 forwards data from rank 0 without waiting for it.
    program = changed_plan("multi_node_allgather", lambda ranks: drop(ranks, 4, 0, "wait", 1))
    problems = prove(program).problems
    race = next(problem for problem in problems if problem.kind == "race" and problem.rank == 4)
    assert race.op == "13"
    assert "reads chunk 0 of the output buffer of rank 4 before rank 0" in race.message
    assert "nothing makes it wait" in race.message
    *before, early, late = race.interleaving
    assert "rank 4" in early
    assert late.endswith("comes too late")
    # Rank 4 reads its own buffer: only signals of other ranks to it matter.
    assert not any("op 13 (put)" in step and "rank 0" in step for step in before)
    assert any(problem.kind == "leftover" for problem in problems)


def test_a_dropped_first_handshake():
    # Rank 0 puts into buffers of ranks that may not have begun.
    def change(ranks):
        for rank in range(8):
            drop(ranks, rank, 0, "rlxsignal")
            drop(ranks, rank, 0, "rlxwait")

    problem = first(changed_plan("multi_node_allgather", change))
    assert (problem.kind, problem.block) == ("race", 0)
    assert "before that rank has begun" in problem.message


def test_a_swapped_chunk():
    def change(ranks):
        put = next(op for op in ops_of(ranks, 3, 2) if op["name"] == "put")
        put["src_buff"][0]["index"] ^= 1

    problems = prove(changed_plan("alltoall_alltoall", change)).problems
    assert {problem.kind for problem in problems} >= {"result"}
    wrong = next(problem for problem in problems if problem.kind == "result")
    assert "it must hold chunk" in wrong.message
    assert wrong.interleaving


def test_a_dropped_nop():
    # Without it, some threads still store when one of them signals.
    def change(ranks):
        ops = ops_of(ranks, 1, 0)
        names = [op["name"] for op in ops]
        signal = names.index("signal", names.index("put"))
        del ops[signal - 1]

    problem = first(changed_plan("alltoall_alltoall", change))
    assert problem.kind == "race"
    assert problem.interleaving[-1].endswith("comes too late")


def test_a_barrier_that_one_thread_block_misses():
    program = changed_plan("single_node_allgather_tbg", lambda ranks: drop(ranks, 1, 3, "barrier", 1))
    problem = first(program)
    assert problem.kind == "deadlock"
    assert "barrier 0" in problem.message


def test_a_reduction_that_counts_one_rank_twice():
    def change(ranks):
        reduce = next(op for op in ops_of(ranks, 5, 0) if op["name"] == "repkt")
        reduce["src_buff"][4] = dict(reduce["src_buff"][3])

    problem = first(changed_plan("multi_node_reducescatter_pkt", change))
    assert problem.kind == "result"
    assert "more than once" in problem.message
    assert problem.rank == 5


def test_two_that_take_one_signal_in_no_order():
    def change(ranks):
        for rank in (0, 1):
            blocks = ranks[rank]["threadblocks"]
            blocks[1]["ops"].insert(0, {"name": "wait", "channel_ids": [0], "channel_type": "memory"})
            blocks[0]["ops"].insert(0, {"name": "signal", "channel_ids": [0], "channel_type": "memory"})

    problem = first(changed_plan("single_node_allgather_tbg", change))
    assert problem.kind in {"order", "deadlock"}
    found = {each.kind for each in prove(changed_plan("single_node_allgather_tbg", change)).problems}
    assert "order" in found


@given(
    st.sampled_from([(name, kind) for name, kinds in BUILTIN_PROGRAMS.items() for kind in kinds]),
    st.integers(2, 9),
)
def test_the_built_in_algorithms_hold(algorithm, ranks):
    name, collective = algorithm
    if name in {"halvingDoubling", "doubleBinaryTree"}:
        ranks = 1 << ranks.bit_length() - 1
    proof = prove(builtin_program(name, collective, ranks))
    assert proof.holds, proof.problems[0].message
    assert proof.depth in {1, 2}


def test_a_program_that_is_too_large_to_be_followed():
    def change(ranks):
        for rank in ranks:
            rank["semaphores"][2]["init_value"] = 1 << 30

    with pytest.raises(ConfigError, match="it is too large to check"):
        prove(changed_plan("allreduce_pipeline", change))


def test_assumptions_are_listed():
    assert any("to have 32 units for each" in text for text in prove(sample("allreduce_pipeline")).cautions)
    ahead = prove(sample("single_node_allreduce_pipeline"))
    assert ahead.holds
    assert any("must have room for all of the data" in text for text in ahead.cautions)
    assert any("rlxsignal" in text for text in prove(sample("single_node_allreduce_nvls_zero_copy")).cautions)
    assert not prove(sample("allgather_ring")).cautions


def test_a_pipeline_that_runs_too_far_ahead():
    # Scratch has room for 32 units, but nothing keeps the first stage from filling a 33rd.
    def change(ranks):
        ops = ops_of(ranks, 0, 0)
        ops.pop(next(place for place, op in enumerate(ops) if op["name"] == "sem_acquire"))

    assert "race" in {problem.kind for problem in prove(changed_plan("allreduce_pipeline", change)).problems}


NEEDED = {"signal", "wait", "rlxsignal", "rlxwait", "sem_acquire", "sem_release", "barrier", "put", "pwsf"}


@pytest.mark.parametrize(
    "name",
    [
        "multi_node_allgather",
        "multi_node_send_recv",
        "single_node_allgather_tbg",
        "single_node_allreduce_pipeline",
    ],
)
def test_no_signal_wait_or_put_of_a_sample_can_be_left_out(name):
    program = sample(name)
    for block in program.ranks[1].thread_blocks:
        counts: dict[str, int] = {}
        for op in block.walk():
            number = counts.get(op.name, 0)
            counts[op.name] = number + 1
            if op.name not in NEEDED:
                continue

            def change(ranks, op=op, number=number, block=block):
                drop(ranks, 1, block.id, op.name, number)

            try:
                assert not prove(changed_plan(name, change)).holds, (block.id, op.place, op.name)
            except ConfigError as error:  # found while the program was read
                assert "goes negative" in error.message  # noqa: PT017 - either way it is found


# The proof and an independent interpreter agree: on the samples, and on copies with one mistake in them.

# Samples of few threads, so that an interpreter takes a fraction of a second.
SMALL = [
    "allgather_ring",
    "allreduce_packet",
    "allreduce_recursive_doubling_halving",
    "multi_node_allgather",
    "multi_node_reducescatter_pkt",
    "multi_node_send_recv",
    "single_node_allgather_tbg",
    "single_node_allreduce_pipeline",
]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "single_node_allreduce_pkt"])
def test_the_interpreters_find_the_samples_right(name):
    assert not fault(text_of(path_of(name)), seed=1, schedules=2)


@pytest.mark.parametrize("name", SMALL)
def test_no_wrong_mutant_is_proved(name):
    """Many orders are needed to show that a refused mutant is wrong; `make fuzz` searches for them."""
    text = text_of(path_of(name))
    found = {}
    for seed in range(12):
        changed, mistake = mutant(text, seed)
        found[seed, mistake] = judged(changed, seed, schedules=8, longer=0)
    assert not [(key, why) for key, (verdict, why) in found.items() if verdict == "unsound"]
    assert {verdict for verdict, _ in found.values()} & {"refuted", "unread"}


# All pairs by puts, gets and packets: proved, and they move exactly the required bytes.

CASES = [(way, collective) for way, kinds in ALL_PAIRS.items() for collective in kinds]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(CASES), st.integers(2, 6), st.integers(1, 12))
def test_every_program_holds(case, ranks, workgroups):
    proof = prove(all_pairs_program(*case, ranks, workgroups))
    assert proof.holds, proof.problems[0].message


@pytest.mark.parametrize("case", CASES)
def test_sent_chunks_are_the_required_chunks(case):
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


def test_missing_names_are_errors():
    with pytest.raises(ConfigError, match="did you mean 'packet'"):
        all_pairs_program("packets", "all-gather", 4)
    with pytest.raises(ConfigError, match="'packet' does not support reduce-scatter"):
        all_pairs_program("packet", "reduce-scatter", 4)
    with pytest.raises(ConfigError, match="at least 2 ranks"):
        all_pairs_program("put", "all-gather", 1)


# NCCL's algorithms as programs: proved, shaped as in NCCL, and chosen by size as by NCCL's tuner.

MIB = 1 << 20


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(name, kind) for name, kinds in NCCL_ALGORITHMS.items() for kind in kinds]),
    st.sampled_from(PROTOCOLS),
    st.integers(2, 9),
    st.integers(1, 3),
)
def test_nccl_every_program_holds(algorithm, protocol, ranks, channels):
    name, collective = algorithm
    protocol = "Simple" if name == "nvls" else protocol
    proof = prove(nccl_program(name, collective, ranks, protocol, channels))
    assert proof.holds, proof.problems[0].message
    # A connection has four slots of a slice, which must suffice.
    assert proof.depth <= 4


def parents(program, channel):
    """Return the peer to which each rank sends its sum: the peer of its first sent step ``s`` or ``rrs``."""
    found = {}
    for rank in program.ranks:
        for block in rank.thread_blocks:
            up = block.channel == channel and block.ops[0].name in {"s", "rrs"} and block.send >= 0
            if up and block.ops[-1].name != "rcs":
                found.setdefault(rank.rank, block.send)
    return found


def test_a_tree_is_a_chain():
    program = nccl_program("tree", "all-reduce", 8, "LL")
    assert {rank: parents(program, 0)[rank] for rank in range(1, 8)} == {
        rank: rank - 1 for rank in range(1, 8)
    }
    # Up and down the tree: the longest chain of messages has as many steps as in NCCL's tuner.
    assert inspect_program(program, 1 << 10).steps == 14


def test_a_ring_on_one_channel_with_ll_is_the_built_in_ring():
    ours = inspect_program(nccl_program("ring", "all-reduce", 6, "Simple"), 12 * MIB)
    built_in = inspect_program(builtin_program("ring", "all-reduce", 6), 12 * MIB)
    assert ours.most_sent_bytes == built_in.most_sent_bytes
    assert ours.least_bytes == built_in.least_bytes


def test_rings_are_exported():
    assert 'proto="LL128"' in write_msccl(nccl_program("ring", "all-gather", 4, "LL128", 2))


@pytest.mark.parametrize(("ranks", "warps"), [(8, (7, 4 * 8, 7)), (7, (7, 4 * 8, 7)), (6, (6, 6 * 8, 6))])
def test_thread_blocks_of_nvls_share_the_warps_of_a_channel(ranks, warps):
    """Copy in, reduce with eight loads in flight per thread, copy out; two of NCCL's 20 warps only signal."""
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
    # Gathering through the switch sends more data in one direction than a ring, so NCCL uses the ring.
    assert nccl_choice("all-gather", 8, 1 << 28).algorithm == "ring"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rings", "all-reduce", 8), "did you mean 'ring'"),
        (("ring", "all-to-all", 8), "does not support all-to-all"),
        (("ring", "all-reduce", 1), "at least 2 ranks"),
        (("ring", "all-reduce", 8, "LL12"), "did you mean 'LL128'"),
        (("ring", "all-reduce", 8, "LL", 65), "1 to 64 channels"),
        (("nvls", "all-reduce", 8, "LL"), "only with the protocol Simple"),
    ],
)
def test_what_nccl_does_not_have(arguments, words):
    with pytest.raises(ConfigError, match=words):
        nccl_program(*arguments)


def test_what_nccl_does_not_choose():
    with pytest.raises(ConfigError, match="did you mean 'h100'"):
        nccl_choice("all-reduce", 8, MIB, "h10")
    with pytest.raises(ConfigError, match="NCCL has no program for all-gather"):
        nccl_choice("all-gather", 8, MIB, algorithms=["tree"])
    with pytest.raises(ConfigError, match="did you mean 'nvls'"):
        nccl_choice("all-reduce", 8, MIB, algorithms=["nvl"])
