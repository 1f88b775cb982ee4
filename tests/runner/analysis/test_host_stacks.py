"""Host calls by stack: totals, self times, and the part of the critical path."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from chakrascope.cli._views import _stacks_shown, print_view
from chakrascope.converter.readers import HostCalls
from chakrascope.errors import BackendError
from chakrascope.runner import Study, find_items, get_backend, measured_result, prepare
from chakrascope.runner.analysis import analyse_run, host_stack_table
from chakrascope.runner.analysis._host_stacks import stacks_of_calls
from chakrascope.runner.study import import_item

NONE = np.zeros((0, 2), np.int64)


def calls_of(*rows):
    """Return calls of (thread, start, end, name)."""
    thread, start, end, name = zip(*rows, strict=True)
    names = sorted({*name})
    numbers = [names.index(each) for each in name]
    columns = [np.array(column, np.int64) for column in (thread, range(len(rows)), start, end, numbers)]
    return HostCalls(*columns, threads=["main", "autograd"], names=names)


def rows_of(table):
    columns = ["thread", "depth", "name", "calls", "total_ns", "self_ns", "on_path_ns"]
    return list(table[columns].itertuples(index=False, name=None))


NESTED = calls_of(
    (0, 0, 100, "step"),
    (0, 10, 40, "forward"),
    (0, 15, 25, "mm"),
    (0, 50, 90, "forward"),
    (0, 60, 70, "mm"),
    (1, 20, 60, "backward"),
)


def test_equal_stacks_are_summed_below_their_callers():
    path = np.array([[12, 20], [65, 95]])
    assert rows_of(stacks_of_calls(NESTED, path)) == [
        ("main", 0, "step", 1, 100, 30, 38),
        ("main", 1, "forward", 2, 70, 50, 33),
        ("main", 2, "mm", 2, 20, 20, 10),
        ("autograd", 0, "backward", 1, 40, 40, 0),
    ]


def test_a_window_counts_only_what_lies_in_it():
    assert rows_of(stacks_of_calls(NESTED, NONE, (20, 65))) == [
        ("main", 0, "step", 1, 45, 10, 0),
        ("main", 1, "forward", 2, 35, 25, 0),
        ("main", 2, "mm", 2, 10, 10, 0),
        ("autograd", 0, "backward", 1, 40, 40, 0),
    ]
    assert rows_of(stacks_of_calls(NESTED, NONE, (200, 300))) == []


def test_a_call_that_outlasts_its_caller_ends_with_it_and_calls_of_no_time_count():
    calls = calls_of((0, 0, 10, "a"), (0, 5, 15, "b"), (0, 12, 14, "c"), (0, 6, 6, "d"))
    assert rows_of(stacks_of_calls(calls, NONE)) == [
        ("main", 0, "a", 1, 10, 5, 0),
        ("main", 1, "b", 1, 5, 5, 0),
        ("main", 2, "d", 1, 0, 0, 0),
        ("main", 0, "c", 1, 2, 2, 0),
    ]


def test_a_terminal_leaves_out_the_frames_that_only_lead_to_the_work():
    frames = ((0, 0, 1000, "main"), (0, 1, 1000, "run"), (0, 2, 900, "step"))
    table = stacks_of_calls(calls_of(*frames, (0, 2, 500, "mm"), (0, 600, 900, "mm")), NONE)
    shown = _stacks_shown(table.assign(rank=0))
    assert shown["name"].tolist() == ["main: run", " step", "  mm"]


def test_the_stacks_of_a_capture_sum_to_its_step(data_dir, tmp_path, capsys):
    study = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "mlp_2", tmp_path / "from" / "mlp")
    (item,) = find_items(tmp_path / "from")
    import_item(study, tmp_path / "from", item.id, "mlp", lambda _done, _of: None)
    experiment = prepare(study.workload("mlp"), "default", None, backend="replay")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="mlp")
    run = analyse_run(study, None)
    table = host_stack_table(run)
    first = table[(table["rank"] == 0) & (table["name"] == "ProfilerStep#4")].iloc[0]
    assert first["total_ns"] == measured_result(run.workload).makespan_ns
    path = run.path.unreasoned
    of_host = (path["kind"] == "host") & (path["rank"] == 0)
    assert first["on_path_ns"] == path.loc[of_host, "duration_ns"].sum() > 0
    for _, rows in table.groupby(["rank", "thread"]):
        assert rows["self_ns"].min() >= 0
        assert rows["self_ns"].sum() == rows.loc[rows["depth"] == 0, "total_ns"].sum()
    print_view(run, "host", "table", rank=0)
    assert "ProfilerStep#4" in capsys.readouterr().out
    study.trace_dir("mlp").rename(tmp_path / "elsewhere")
    with pytest.raises(BackendError, match="device traces of this run's workload are not here"):
        print_view(analyse_run(study, None), "host", "table")
