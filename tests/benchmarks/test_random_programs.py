"""Random programs that can run do run on the default system; the others are told as deadlocks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import random_programs

PROGRAMS = 100


@pytest.mark.parametrize("network", random_programs.NETWORKS)
def test_no_program_stalls_that_can_run(network):
    eased = 0
    for seed in range(PROGRAMS):
        program = random_programs.draw(seed)
        output = random_programs.simulate(program, network)
        assert output.unfinished == [], f"seed {seed}"
        assert output.nodes_executed == sum(map(len, program["ranks"])), f"seed {seed}"
        eased += output.overtaking > 0
    assert eased > PROGRAMS // 4  # else the programs do not show anything


def test_folding_changes_no_answer():
    for seed in range(0, PROGRAMS, 10):
        program = random_programs.draw(seed)
        folded, whole = (random_programs.simulate(program, fold=fold) for fold in (True, False))
        assert folded.rank_finish_ns.tolist() == whole.rank_finish_ns.tolist(), f"seed {seed}"


def test_what_cannot_run_is_told_as_the_cycle_that_stops_it():
    for seed in range(PROGRAMS):
        program = random_programs.draw(seed, possible=False)
        output = random_programs.simulate(program)
        assert output.unfinished, f"seed {seed}"
        assert {step["name"] for step in output.deadlock} >= set(program["inverted"]), f"seed {seed}"


def test_a_seed_gives_the_same_program():
    assert random_programs.draw(3) == random_programs.draw(3) != random_programs.draw(4)


def test_a_program_has_one_answer():
    """Of this one, a rank has nothing to receive of a collective that others have not begun."""
    program = random_programs.draw(8)
    outputs = [random_programs.simulate(program, "analytical-aware") for _ in range(20)]
    assert {output.rank_finish_ns.max() for output in outputs} == {11_580_605}
    assert {int(output.overtaken) for output in outputs} == {101}
