"""The proof: every sample holds, and every mistake put into one is found where it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_samples import NAMES, changed_plan, changed_xml, drop, ops_of, sample

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import BUILTIN_PROGRAMS, builtin_program, prove, read_program


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_hold(name):
    proof = prove(sample(name))
    assert proof.holds, proof.problems[0].message


def test_all_programs_of_the_reference_hold(shared):
    folder = shared / "reference" / "collectives"
    files = sorted(folder.glob("msccl*/*.gz"))
    assert len(files) >= 25
    for path in files:
        assert prove(read_program(path)).holds, path.name


def first(program):
    return prove(program).problems[0]


def test_a_dropped_signal():
    # Rank 2 never tells its peers that it is ready.
    program = changed_plan("multi_node_allgather", lambda ranks: drop(ranks, 2, 0, "rlxsignal"))
    problem = first(program)
    # Its last signal passes for it, so that its peers go on too early and lack one in the end.
    assert (problem.kind, problem.op) == ("deadlock", "18")
    assert problem.rank in {0, 1, 3}
    assert "a signal of rank 2 on memory channel 0, and no op that is left brings it" in problem.message


def test_a_missing_wait():
    # Rank 4 sends on what rank 0 sends it without waiting for it.
    program = changed_plan("multi_node_allgather", lambda ranks: drop(ranks, 4, 0, "wait", 1))
    problems = prove(program).problems
    race = next(problem for problem in problems if problem.kind == "race" and problem.rank == 4)
    assert race.op == "13"
    assert "reads chunk 0 of the output buffer of rank 4 before rank 0" in race.message
    assert "nothing makes it wait" in race.message
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


def test_an_early_overwrite():
    # Each rank takes what its peers read before the barrier that says they have read it.
    def change(ranks):
        ops = ops_of(ranks, 0, 2)
        names = [op["name"] for op in ops]
        copy = names.index("copy")
        ops.insert(0, ops.pop(copy))

    problem = first(changed_plan("single_node_allreduce_pipeline", change))
    assert problem.kind in {"race", "unwritten"}
    assert (problem.rank, problem.block) == (0, 2)


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


def test_a_semaphore_that_is_released_too_early():
    def change(ranks):
        ops = ops_of(ranks, 0, 0)
        release = next(place for place, op in enumerate(ops) if op["name"] == "sem_release")
        ops.insert(0, ops.pop(release))

    problem = first(changed_plan("single_node_allreduce_pipeline", change))
    assert problem.kind in {"race", "unwritten"}


def test_a_reduction_that_counts_one_rank_twice():
    def change(ranks):
        reduce = next(op for op in ops_of(ranks, 5, 0) if op["name"] == "repkt")
        reduce["src_buff"][4] = dict(reduce["src_buff"][3])

    problem = first(changed_plan("multi_node_reducescatter_pkt", change))
    assert problem.kind == "result"
    assert "more than once" in problem.message
    assert problem.rank == 5


def test_a_dropped_dependency():
    # Rank 0 sends a chunk that it has not finished reducing.
    def change(root):
        step = root[0][0][0]
        assert (step.get("type"), step.get("depid")) == ("s", "1")
        step.set("depid", "-1")
        step.set("deps", "-1")

    problem = first(changed_xml("allreduce_recursive_doubling_halving", change))
    assert problem.kind == "race"
    assert problem.rank == 0


def test_a_receive_too_many():
    def change(root):
        step = root[3][0][0]
        step.set("type", "nop")
        step.set("cnt", "0")

    problems = prove(changed_xml("allgather_ring", change)).problems
    assert problems[0].kind == "deadlock"
    assert "message" in problems[0].message


def test_a_wait_for_each_other():
    def change(root):
        for block in root[0]:
            for step in block:
                step.set("hasdep", "1")
        root[0][0][0].set("depid", "1")
        root[0][0][0].set("deps", "3")

    problem = first(changed_xml("allreduce_recursive_doubling_halving", change))
    assert problem.kind == "deadlock"


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


def test_the_interleaving_is_what_must_come_before_and_no_more():
    program = changed_plan("multi_node_allgather", lambda ranks: drop(ranks, 4, 0, "wait", 1))
    found = [problem for problem in prove(program).problems if problem.kind == "race" and problem.rank == 4]
    race = found[0]
    *before, early, late = race.interleaving
    assert "rank 4" in early
    assert late.endswith("comes too late")
    # Rank 4 reads its own buffer: of others, nothing but their signals to it matters.
    assert not any("op 13 (put)" in step and "rank 0" in step for step in before)


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

    with pytest.raises(ConfigError, match="it is too large to be followed"):
        prove(changed_plan("allreduce_pipeline", change))


def test_what_was_taken_for_granted_is_said():
    assert any("room for 32 units" in text for text in prove(sample("allreduce_pipeline")).cautions)
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
            except ConfigError as error:  # found while it was read
                assert "goes negative" in error.message  # noqa: PT017 - either way it is found
