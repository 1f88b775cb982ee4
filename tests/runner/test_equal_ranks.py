"""The content of a result: totals, tables by column, and one copy of equal ranks."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.converter import Workload
from chakrascope.errors import StudyError, WorkloadError
from chakrascope.runner import (
    Detail,
    NetworkConfig,
    Result,
    Study,
    critical_path,
    get_backend,
    prepare,
    run_sweep,
    summarize,
)
from chakrascope.runner._framed import coded, rows_of, sums_by
from chakrascope.runner.analysis import collective_overview, layer_table
from chakrascope.runner.backends import EngineBackend, FakeBackend, register
from chakrascope.runner.backends._base import _BACKENDS
from chakrascope.support.table import Table, TextColumn

NETWORK = NetworkConfig(("Switch",), (6,), (100.0,), (500.0,))


class _Unfolded(EngineBackend):
    def scenario(self, experiment, **settings):
        return super().scenario(experiment, **settings, fold=False)


def _job(*, own_groups: bool = False):
    """Return six ranks of two kinds, which alternate; with *own_groups*, each kind has a group."""

    def rank(number):
        kind = number % 2
        group = {"group": 1 + kind} if own_groups else {}
        return [
            comp(0, 4_000 + 3_000 * kind),
            coll(1, 1 << 16, after=[0], **group),
            comp(2, 2_000, after=[0]),
            coll(3, 1 << 18, after=[1, 2], **group),
            comp(4, 1_000, after=[3]),
        ]

    groups = {1: (0, 2, 4), 2: (1, 3, 5)} if own_groups else {}
    kinds = workload(rank(0), rank(1), groups=groups)
    return replace(kinds, program_of_rank=np.arange(6, dtype=np.int32) % 2)


@pytest.fixture(scope="module", params=[False, True], ids=["all ranks", "groups"])
def job(request):
    return _job(own_groups=request.param)


@pytest.fixture(scope="module")
def both(job):
    experiment = prepare(job, "default", NETWORK)
    return [backend.run(experiment) for backend in (EngineBackend(), _Unfolded())]


def test_only_one_rank_of_each_kind_is_recorded(both):
    equal, every = both
    assert equal.table("nodes").distinct.num_rows == 10
    assert equal.num_nodes == every.num_nodes == every.table("nodes").distinct.num_rows == 30


def test_their_tables_have_the_rows_of_every_rank(both):
    equal, every = both
    pd.testing.assert_frame_equal(equal.collectives, every.collectives)
    columns = [name for name in equal.nodes if name != "origin_rank"]  # any of the equal ranks was last
    pd.testing.assert_frame_equal(equal.nodes[columns], every.nodes[columns])
    computes = equal.nodes["node_id"] % 2 == 0
    assert (equal.nodes["origin_rank"] == every.nodes["origin_rank"])[computes].all()
    assert ((equal.nodes["origin_rank"] % 2) == (every.nodes["origin_rank"] % 2)).all()


def test_rows_of_one_rank_match_the_table(both):
    equal, _ = both
    names = ["start_ns", "end_ns", "origin_rank"]
    for rank, columns in equal.table("nodes").by_rank(names):
        own = equal.nodes[equal.nodes["rank"] == rank]
        for name in ("node_id", *names):
            assert columns[name].tolist() == own[name].tolist()
        assert equal.table("nodes").of_rank(rank, ["end_ns"])["end_ns"].tolist() == own["end_ns"].tolist()
    assert not len(equal.table("nodes").of_rank(99, ["end_ns"])["end_ns"])


def test_every_answer_is_the_same(both, job, tmp_path):
    equal, every = both
    equal.save(tmp_path / "run")
    answers = []
    for recorded in (equal, Result.load(tmp_path / "run"), every):
        result = recorded.with_columns(provenance={})
        path = critical_path(result, job)
        calls = collective_overview(result, job.node_table(), path)
        layers = layer_table(result, job, path)
        answers.append((summarize(result, job).to_json(), path.segments, calls, layers))
    for answer in answers[:2]:
        assert answer[0] == answers[2][0]
        for own, other in zip(answer[1:], answers[2][1:], strict=True):
            pd.testing.assert_frame_equal(own, other)


def test_a_file_holds_each_class_once_and_opens_as_all(both, tmp_path):
    equal, _ = both
    equal.save(tmp_path / "run")
    assert pyarrow.parquet.read_metadata(tmp_path / "run" / "nodes.parquet").num_rows == 10
    loaded = Result.load(tmp_path / "run")
    for name in ("nodes", "collectives", "ranks"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(equal, name))


def test_a_rank_that_equals_none_is_refused(tmp_path):
    result = EngineBackend().run(prepare(_job(), "default", NETWORK))
    ranks = result.ranks.assign(representative=np.full(6, 6))
    result.with_columns(ranks=Table.of(ranks)).save(tmp_path / "run")
    with pytest.raises(StudyError, match="equal to a missing rank"):
        Result.load(tmp_path / "run")


def test_equal_ranks_share_a_file_in_a_study_and_have_their_own_elsewhere(tmp_path):
    prefix = Study.create(tmp_path / "study").add_workload(_job(), "job")
    files = [prefix.with_name(f"{prefix.name}.{rank}.et") for rank in range(6)]
    assert [file.samefile(files[0]) for file in files] == [True, False] * 3
    _job().save(tmp_path / "job")
    assert not (tmp_path / "job.0.et").samefile(tmp_path / "job.2.et")
    for rank, file in enumerate(files):
        assert file.read_bytes() == (tmp_path / f"job.{rank}.et").read_bytes()


def test_saved_equal_ranks_are_imported_unless_edited(tmp_path):
    study, prefix = Study.create(tmp_path / "study"), tmp_path / "job"
    _job(own_groups=True).save(prefix)
    copied = study.import_workload(prefix, name="copied")
    assert Workload.load(copied).groups == _job(own_groups=True).groups
    assert {file.name for file in copied.parent.iterdir()} == {
        "SHA256SUMS",
        *(file.name.replace("job", copied.name, 1) for file in tmp_path.glob("job.*")),
    }
    for rank in range(6):
        assert Workload.load(copied).graph_of(rank) == _job(own_groups=True).graph_of(rank)
    assert copied.with_name(f"{copied.name}.0.et").samefile(copied.with_name(f"{copied.name}.2.et"))
    assert not (tmp_path / "job.0.et").samefile(copied.with_name(f"{copied.name}.0.et"))

    (tmp_path / "job.1.et").write_bytes((tmp_path / "job.0.et").read_bytes())
    read = Workload.load(study.import_workload(prefix, name="read"))
    assert read.program_of_rank.tolist() == [0, 0, 0, 1, 0, 1]
    (tmp_path / "job.5.et").unlink()
    with pytest.raises(WorkloadError, match=r"job\.5\.et is missing"):
        study.import_workload(prefix, name="incomplete")
    assert study.workloads() == ["copied", "read"]


# Simulations that return only totals, for sweeps.

TABLES = ("nodes", "collectives", "links")


def totals_job(late_ns=0):
    return workload(
        *[[comp(0, 500 + late_ns * rank), coll(1, 1 << 20, (0,)), comp(2, 9, (1,))] for rank in range(8)]
    )


def totals_both(backend, late_ns=0):
    experiment = prepare(totals_job(late_ns), "default", "ring-8", backend=backend, semantics="trace")
    asked = replace(experiment, detail=Detail.TOTALS)
    assert asked.content_hash == experiment.content_hash
    return get_backend(backend).run(experiment), get_backend(backend).run(asked)


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "replay"])
@pytest.mark.parametrize("late_ns", [0, 700])
def test_totals_are_those_of_the_whole_result(backend, late_ns):
    whole, totals = totals_both(backend, late_ns)
    assert totals.makespan_ns == whole.makespan_ns
    assert totals.ranks.equals(whole.ranks)
    assert totals.provenance == whole.provenance
    assert len(whole.nodes) == 24
    assert all(len(getattr(totals, name)) == 0 for name in TABLES)


def test_packets_have_totals_too():
    whole, totals = totals_both("packet")
    assert (totals.makespan_ns, len(totals.nodes)) == (whole.makespan_ns, 0)
    assert totals.ranks.equals(whole.ranks)


class Own:
    """A backend of a plug-in: one method, without support for details."""

    def __init__(self):
        self.asked = []

    def run(self, experiment, progress=None):
        self.asked.append(experiment.detail)
        return FakeBackend(communication_ns=1000).run(experiment, progress)


def test_a_backend_is_one_method(tmp_path, monkeypatch):
    monkeypatch.setattr("chakrascope.runner.backends._base._BACKENDS", dict(_BACKENDS))
    own = Own()
    register("own", own)
    study = Study.create(tmp_path / "study")
    study.add_workload(totals_job(), "job")
    network = NetworkConfig.preset("ring-8")
    found = run_sweep(study, {"network.latency": [1, 2]}, network=network, backend="own", workers=0, keep=1)
    assert found.points["makespan_ns"].tolist() == [1509, 1509]
    assert own.asked.count(Detail.TOTALS) == 2
    # The study stores the complete results.
    assert own.asked.count(Detail.EVERYTHING) == len(found.kept) > 0
    assert len(study.result(found.kept[0]).nodes) == 24


# Tables stored by column: converted to pandas when needed, summed by key.


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3), st.integers(0, 1 << 60)), max_size=30))
def test_sums_are_those_of_pandas(rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "ns"]).astype({"a": object, "b": "int64", "ns": object})
    frame["ns"] = frame["ns"].astype("int64") % (1 << 55)
    sums = sums_by(frame["ns"].to_numpy(), frame["a"].to_numpy(), frame["b"].to_numpy())
    assert [*sums.items()] == [*frame.groupby(["a", "b"])["ns"].sum().items()]


@given(
    st.lists(st.tuples(st.integers(0, 3) | st.integers(-(1 << 60), 1 << 60), st.integers(0, 3)), max_size=30)
)
def test_integers_are_coded_as_objects_are(rows):
    columns = [np.array([row[place] for row in rows], np.int64) for place in (0, 1)]
    for keys in (columns[:1], columns):
        numbers, names = coded(*keys)
        expected_numbers, expected_names = coded(*(key.astype(object) for key in keys))
        assert numbers.tolist() == expected_numbers.tolist()
        assert names == expected_names


@pytest.fixture
def result():
    names = ["finish_ns", "exposed_comm_ns", "compute_ns", "comm_ns", "overlap_ns"]
    ranks = {"rank": np.array([0, 1]), **{name: np.array([1, 2]) for name in names}}
    return Result("fake", 7, ranks)


def test_a_result_given_columns_has_tables(result):
    assert rows_of(result.columns("ranks"))[1]["rank"] == 1
    assert isinstance(result.ranks, pd.DataFrame)
    assert result.columns("ranks")["finish_ns"].tolist() == [1, 2]
    assert result.links.empty
    assert result.links["bytes"].dtype == "int64"
    assert replace(result, makespan_ns=9).ranks.equals(result.ranks)
    assert pickle.loads(pickle.dumps(result)).ranks.equals(result.ranks)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
def test_the_extremes_of_integers_are_coded(kind):
    limits = np.iinfo(kind)
    keys = np.array([limits.max, limits.min, limits.max, 3] * 70, kind)
    numbers, names = coded(keys, keys)
    assert numbers.tolist() == [0, 1, 0, 2] * 70
    assert names == [(int(limits.max),) * 2, (int(limits.min),) * 2, (3, 3)]


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3)), max_size=30))
def test_columns_of_texts_are_coded_as_objects_are(rows):
    texts = [text for text, _ in rows]
    numbers = np.array([number for _, number in rows], np.int64)
    objects = np.array([*texts, None], object)[:-1]
    for keys, others in (
        ([TextColumn.of(texts)], [objects]),
        ([TextColumn.of(texts), numbers], [objects, numbers]),
    ):
        indices, names = coded(*keys)
        expected_indices, expected_names = coded(*others)
        assert indices.tolist() == expected_indices.tolist()
        assert names == expected_names
