"""Large results are written and read by rank and column, with the same results as tables in memory."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload
from chakrascope.errors import BackendError, StudyError
from chakrascope.runner import NetworkConfig, Result, critical_path, simulate, summarize
from chakrascope.runner import _node_tables as node_tables
from chakrascope.runner import _result as results
from chakrascope.runner.analysis import (
    collective_overview,
    layer_table,
    rank_standings,
    read_step,
)
from chakrascope.runner.backends import _outcome
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import Setting, predict
from chakrascope.runner.prediction.models import Plan, find_model

RANKS, LAYERS = 4, 30


@pytest.fixture(scope="module")
def workload():
    return job(LAYERS)


def job(layers):
    """Return a workload with this number of *layers* on each rank; all layers have different durations."""

    def nodes(rank):
        for layer in range(layers):
            duration = 1000 * (1 + (7 * rank + 3 * layer) % 11)
            yield {"node_id": 2 * layer, "name": f"mm {layer % 5}", "type": NodeType.COMP,
                   "duration_ns": duration, "module": f"layers.{layer}", "stream": 7}  # fmt: skip
            yield {"node_id": 2 * layer + 1, "name": "all_reduce", "type": NodeType.COMM_COLL, "stream": 20,
                   "comm_type": CollectiveType.ALL_REDUCE, "comm_size_bytes": 1 << 16}  # fmt: skip

    edges = [(number, number + 1, 0) for number in range(2 * layers - 1)]
    graphs = tuple(Graph.build(rank, [*nodes(rank)], edges) for rank in range(RANKS))
    return Workload(graphs, np.arange(RANKS, dtype=np.int32), {}, {"lanes": "streams"})


@pytest.fixture(scope="module")
def result(workload):
    return simulated(workload)


def simulated(workload):
    return simulate(workload, "default", NetworkConfig(("Switch",), (RANKS,), (100.0,), (500.0,)))


@pytest.fixture
def by_rank(monkeypatch):
    """Treat every result as a large one, and every rank as a piece of its file."""
    monkeypatch.setattr(results, "MANY_NODES", 1)
    monkeypatch.setattr(_outcome, "MANY_NODES", 1)
    monkeypatch.setattr(node_tables, "MIN_ROWS", LAYERS)


def test_each_rank_is_a_piece_of_the_file_and_all_are_the_table(result, by_rank, tmp_path):
    result.save(tmp_path / "r")
    assert pyarrow.parquet.ParquetFile(tmp_path / "r" / "nodes.parquet").num_row_groups == RANKS
    loaded = Result.load(tmp_path / "r")
    assert loaded.num_nodes == len(result.nodes)
    assert not loaded.table("nodes").in_memory
    pd.testing.assert_frame_equal(loaded.nodes, result.nodes)
    assert loaded.table("nodes").in_memory


def test_what_the_engine_recorded_is_written_and_pickled_without_a_table_of_all(
    workload, result, by_rank, tmp_path
):
    large = simulated(workload)
    large.save(tmp_path / "r")
    assert not large.table("nodes").in_memory
    assert large.num_nodes == len(result.nodes)
    assert pyarrow.parquet.ParquetFile(tmp_path / "r" / "nodes.parquet").num_row_groups == RANKS
    for other in (Result.load(tmp_path / "r"), pickle.loads(pickle.dumps(large)), large):
        pd.testing.assert_frame_equal(other.nodes, result.nodes)
        pd.testing.assert_frame_equal(other.collectives, result.collectives)


def test_answers_match_the_unread_table(result, workload, by_rank, tmp_path):
    result.save(tmp_path / "r")
    loaded = Result.load(tmp_path / "r")
    pd.testing.assert_frame_equal(
        critical_path(loaded, workload).segments, critical_path(result, workload).segments
    )
    assert summarize(loaded, workload).headline == summarize(result, workload).headline
    assert not loaded.table("nodes").in_memory


@pytest.mark.parametrize("times", [1, 4])
def test_no_answer_reads_a_node_twice_however_many_there_are(times, by_rank, monkeypatch, tmp_path):
    read = []
    reading = node_tables.SavedNodes.read

    def counted(self, names, pieces):
        columns = reading(self, names, pieces)
        read.append(len(columns[names[0]]))
        return columns

    monkeypatch.setattr(node_tables.SavedNodes, "read", counted)
    workload = job(times * LAYERS)
    simulated(workload).save(tmp_path / "r")
    saved = Result.load(tmp_path / "r")
    path = summarize(saved, workload).path
    assert 0 < sum(read) <= saved.num_nodes
    read.clear()
    layers = layer_table(saved, workload, path)
    assert sum(read) == saved.num_nodes
    read.clear()
    assert rank_standings(saved, workload)["same_as"].tolist() == [*range(RANKS)]
    assert not read
    assert not saved.table("nodes").in_memory
    pd.testing.assert_frame_equal(layers, layer_table(simulated(workload), workload, path))


def test_rows_in_any_order_give_the_same_path(result, workload):
    shuffled = result.nodes.sample(frac=1, random_state=3, ignore_index=True)
    mixed = Result(result.backend, result.makespan_ns, result.ranks, nodes=shuffled)
    pd.testing.assert_frame_equal(
        critical_path(mixed, workload).segments, critical_path(result, workload).segments
    )


def test_records_that_contradict_each_other_are_refused(result, workload):
    last = result.nodes["end_ns"].idxmax()
    for column, value, said in (
        ("cause_node", 999, "node 999 of rank"),
        ("origin_rank", 77, "of rank 77, which it does not hold"),
    ):
        nodes = result.nodes.copy()
        nodes.loc[nodes["rank"] == nodes.loc[last, "rank"], column] = value
        broken = Result(result.backend, result.makespan_ns, result.ranks, nodes=nodes)
        with pytest.raises(BackendError, match=said):
            critical_path(broken, workload)
    nodes = result.nodes.assign(cause_node=result.nodes["node_id"])
    circular = Result(result.backend, result.makespan_ns, result.ranks, nodes=nodes)
    with pytest.raises(BackendError, match="form a cycle"):
        critical_path(circular, workload)


def test_damage_in_the_middle_of_a_large_file_is_named(result, workload, by_rank, tmp_path):
    result.save(tmp_path / "r")
    path = tmp_path / "r" / "nodes.parquet"
    loaded = Result.load(tmp_path / "r")
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 2] = b"\xff" * (len(data) // 2 - 4)
    path.write_bytes(data)
    with pytest.raises(StudyError, match=r"nodes\.parquet is missing or damaged"):
        critical_path(loaded, workload)
    with pytest.raises(StudyError, match=r"nodes\.parquet is missing or damaged"):
        len(loaded.nodes)


# The analyses of a run are the same whether all its ranks were recorded or one of each kind.


# Four of eight ranks have equal programs: two of each of the two pipeline stages.
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
