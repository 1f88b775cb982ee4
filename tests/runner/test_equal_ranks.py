"""Of equal ranks one is recorded, and every answer is the one with all of them recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from chakrascope.converter import Workload
from chakrascope.errors import StudyError, WorkloadError
from chakrascope.runner import NetworkConfig, Result, Study, critical_path, prepare, summarize
from chakrascope.runner.analysis import collective_overview, layer_table
from chakrascope.runner.backends import EngineBackend
from chakrascope.support.table import Table

from .workloads import coll, comp, workload

NETWORK = NetworkConfig(("Switch",), (6,), (100.0,), (500.0,))


class _Unfolded(EngineBackend):
    def scenario(self, experiment, **settings):
        return super().scenario(experiment, **settings, fold=False)


def _job(*, own_groups: bool = False):
    """Return six ranks of two kinds, which alternate; with *own_groups* each kind has its group."""

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
    columns = [name for name in equal.nodes if name != "origin_rank"]  # of equal ranks any came last
    pd.testing.assert_frame_equal(equal.nodes[columns], every.nodes[columns])
    computes = equal.nodes["node_id"] % 2 == 0
    assert (equal.nodes["origin_rank"] == every.nodes["origin_rank"])[computes].all()
    assert ((equal.nodes["origin_rank"] % 2) == (every.nodes["origin_rank"] % 2)).all()


def test_rows_of_one_rank_are_those_of_the_whole_table(both):
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
    with pytest.raises(StudyError, match="equal to one that is not there"):
        Result.load(tmp_path / "run")


def test_equal_ranks_share_a_file_in_a_study_and_have_their_own_elsewhere(tmp_path):
    prefix = Study.create(tmp_path / "study").add_workload(_job(), "job")
    files = [prefix.with_name(f"{prefix.name}.{rank}.et") for rank in range(6)]
    assert [file.samefile(files[0]) for file in files] == [True, False] * 3
    _job().save(tmp_path / "job")
    assert not (tmp_path / "job.0.et").samefile(tmp_path / "job.2.et")
    for rank, file in enumerate(files):
        assert file.read_bytes() == (tmp_path / f"job.{rank}.et").read_bytes()


def test_what_was_saved_is_imported_as_it_is_and_what_was_changed_is_read(tmp_path):
    study, prefix = Study.create(tmp_path / "study"), tmp_path / "job"
    _job(own_groups=True).save(prefix)
    copied = study.import_workload(prefix, name="copied")
    assert Workload.load(copied).groups == _job(own_groups=True).groups
    assert [file.name for file in sorted(copied.parent.iterdir())] == [
        file.name.replace("job", copied.name, 1) for file in sorted(tmp_path.glob("job.*"))
    ]
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
