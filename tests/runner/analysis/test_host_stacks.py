"""Host calls by stack: totals, self times, and the part of the critical path."""

from __future__ import annotations

import numpy as np
import pytest
from studies import make_captured_study

from chakrascope.cli._views import _stacks_shown, print_stacks
from chakrascope.converter.readers import HostCalls
from chakrascope.errors import BackendError
from chakrascope.runner import measured_result
from chakrascope.runner.analysis import analyse_run, host_stack_table
from chakrascope.runner.analysis._host_stacks import stacks_of_calls

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
    study, _ = make_captured_study(tmp_path, data_dir)
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
    print_stacks(run, [0], (0, 1 << 62), "table")
    assert "ProfilerStep#4" in capsys.readouterr().out
    study.trace_dir("mlp").rename(tmp_path / "elsewhere")
    with pytest.raises(BackendError, match="device traces of this run's workload are not here"):
        print_stacks(analyse_run(study, None), [0], (0, 1 << 62), "table")
