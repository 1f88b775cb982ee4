"""What is said of a run is the same whether all its ranks were recorded or one of each kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakrascope.runner import NetworkConfig
from chakrascope.runner.analysis import collective_overview, critical_path, layer_table, read_step
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import Setting, predict
from chakrascope.runner.prediction.models import Plan, find_model

# Of eight ranks, four do the same: two of each of the two pipeline stages.
SETTING = Setting(
    replace(find_model("llama3-8b"), layers=4),
    Plan(tp=2, pp=2, dp=2, global_batch=8),
    find_chip("h100"),
    NetworkConfig.preset("hgx-h100-8"),
    "megatron",
)


@pytest.fixture(scope="module")
def both():
    return [predict(SETTING, every_rank=every_rank) for every_rank in (False, True)]


def test_fewer_ranks_are_recorded(both):
    alike, every = (found.result for found in both)
    assert alike.nodes["rank"].nunique() < every.nodes["rank"].nunique() == 8
    assert alike.makespan_ns == every.makespan_ns


def test_collectives_count_the_ranks_of_their_group(both):
    tables = []
    for found in both:
        path = critical_path(found.result, found.workload)
        table = collective_overview(found.result, found.workload.node_table(), path)
        tables.append(
            table[["operation", "size_bytes", "ranks", "algorithm_bytes_per_ns", "bus_bytes_per_ns"]]
        )
    alike, every = (table.drop_duplicates().round(6) for table in tables)
    assert {*map(tuple, alike.to_numpy())} <= {*map(tuple, every.to_numpy())}
    assert (alike["ranks"] == 2).all()
    assert (alike["bus_bytes_per_ns"] > 0).all()


def test_means_are_over_all_ranks(both):
    alike, every = (
        read_step(found.result, found.workload, name="step", start="", exact=True) for found in both
    )
    for table, keys in (("operators", ["key", "class"]), ("modules", ["key", "kind"])):
        pair = [getattr(step, table).set_index(keys)["time_ns"] for step in (alike, every)]
        assert (pair[0] - pair[1]).abs().max() <= 1
    figures = ("compute", "communication", "exposed", "overlap", "bytes", "nodes")
    assert [alike.figures[name] for name in figures] == [every.figures[name] for name in figures]


def test_layers_are_means_over_all_ranks(both):
    alike, every = (
        layer_table(found.result, found.workload, critical_path(found.result, found.workload)).set_index(
            "module"
        )[["forward_ns", "backward_ns", "communication_ns", "other_ns"]]
        for found in both
    )
    assert (alike - every).abs().max().max() <= 1
