"""The proof and an independent interpreter agree: on the samples, and on copies with one mistake in them."""

from __future__ import annotations

import pytest
from differential import fault, judged, mutant, text_of
from program_samples import NAMES, path_of

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
    text = text_of(path_of(name))
    found = {}
    for seed in range(12):
        changed, mistake = mutant(text, seed)
        found[seed, mistake] = judged(changed, seed, schedules=8)
    assert not [(key, why) for key, (verdict, why) in found.items() if verdict == "unsound"]
    assert {verdict for verdict, _ in found.values()} & {"refuted", "unread"}
