"""Nodes by what they are called."""

import pytest

from chakrascope.runner.analysis import search_nodes


@pytest.mark.parametrize(
    ("text", "first"), [("LAYERS.3", 10), ("allreduce", 2), ("4", 4), ("", None), ("%", None)]
)
def test_search_finds_names_and_numbers(run, text, first):
    found = search_nodes(run.nodes, run.words, text)
    assert (None if found.empty else int(found["node_id"].iloc[0])) == first


def test_search_lists_the_longest_first(run):
    found = search_nodes(run.nodes, run.words, "layers", count=5)
    lengths = (found["end_ns"] - found["start_ns"]).tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert len(found) == 5
