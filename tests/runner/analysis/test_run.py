"""An open run with all analyses derived from it, without the viewer."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import comp, workload

from chakrascope.converter.building import StepTimes
from chakrascope.converter.chakra import TextColumn
from chakrascope.errors import ConfigError, StudyError, UsageError
from chakrascope.runner import NetworkConfig, SystemConfig, simulate, summarize
from chakrascope.runner.analysis import (
    COMPARISONS,
    OVERVIEWS,
    RUN_BREAKDOWNS,
    ComputedOnce,
    Target,
    Words,
    analyse_run,
    search_nodes,
    sensitivity,
    simulate_faster,
    targets,
)
from chakrascope.support import spreadsheet_text
from chakrascope.support.table import csv_pieces, csv_text


def test_tables_of_several_runs_can_be_made(run, simulated):
    for name, make in COMPARISONS.items():
        if name != "causes":  # needs two simulations: test_attribution
            assert len(make(run, simulated)) > 0
    for name in ("overview", "kinds"):
        assert set(OVERVIEWS[name]([run, simulated])["run"]) == {run.info.id, simulated.info.id}
    configurations = OVERVIEWS["configurations"]([run, simulated])
    assert configurations.loc[configurations["differs"], "setting"].tolist()
    assert len(configurations.columns) == 4


@pytest.mark.parametrize("by", [by for by in RUN_BREAKDOWNS if by != "link"])
def test_every_breakdown_of_the_path_sums_to_the_step(simulated, by):
    table = simulated.breakdown(by)
    assert table["duration_ns"].sum() == simulated.result.makespan_ns
    assert table["duration_ns"].is_monotonic_decreasing


def test_unknown_breakdowns_and_runs_are_refused(made, run):
    with pytest.raises(ConfigError, match="did you mean 'kind'"):
        run.breakdown("kinds")
    with pytest.raises(StudyError, match="no runs whose id begins with"):
        analyse_run(made.study, "nonsense")


def test_what_several_threads_ask_for_is_computed_once():
    class Slow:
        lock = threading.RLock()
        asked = 0

        @ComputedOnce
        def answer(self):
            self.asked += 1
            return object()

    slow = Slow()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: slow.answer, range(64)))
    assert all(answer is answers[0] for answer in answers)
    assert slow.asked == 1


# Nodes are looked up by name and number.


@pytest.mark.parametrize(
    ("text", "first"), [("LAYERS.3", 10), ("allreduce", 2), ("4", 4), ("", None), ("%", None)]
)
def test_search_finds_names_and_numbers(run, text, first):
    found = search_nodes(run.nodes, Words.of(run.nodes), text)
    assert (None if found.empty else int(found["node_id"].iloc[0])) == first


def test_search_lists_the_longest_first(run):
    found = search_nodes(run.nodes, Words.of(run.nodes), "layers", count=5)
    lengths = (found["end_ns"] - found["start_ns"]).tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert len(found) == 5


# Columns become the same CSV as a table of them.


TEXTS = st.text(st.sampled_from(' ,"\n\r\t=+-@a1é'), max_size=5)
ROW = st.tuples(TEXTS, st.integers(-(1 << 62), 1 << 62), st.floats(allow_infinity=False), st.booleans())


@given(st.lists(ROW, min_size=1, max_size=12), st.data())
def test_columns_are_written_as_their_table_is(rows, data):
    text, number, share, flag = zip(*rows, strict=True)
    columns = {
        "=name": TextColumn.of(text),
        "number": np.array(number, np.int64),
        "share": np.array(share),
        "flag": np.array(flag),
    }
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    frame = pd.DataFrame({"=name": pd.Series(text, dtype=object), **{
        name: columns[name] for name in ("number", "share", "flag")
    }})  # fmt: skip
    safe = frame.assign(**{"=name": frame["=name"].map(spreadsheet_text)}).rename(columns=spreadsheet_text)
    expected = safe.iloc[order].to_csv(index=False)
    assert "".join(csv_pieces(columns, order)) == csv_text(frame.iloc[order]) == expected


# Possible changes of a run's step, and the step times with them.


def test_targets_are_what_the_backend_can_change(run, simulated):
    measured = [target.key for target in targets(run.path, "replay", 1)]
    assert {"operator:aten::mm", "operator:c10d::allreduce_", "kind:host"} <= set(measured)
    assert not any(key.startswith(("bandwidth", "latency")) for key in measured)
    on_network = [target.key for target in targets(simulated.path, "analytical-aware", 1)]
    assert {"operator:aten::mm", "bandwidth:0", "latency:0"} <= set(on_network)
    assert "operator:c10d::allreduce_" not in on_network


def test_sensitivity_lists_the_most_helpful_first(simulated):
    chosen = [Target("kind", "host"), Target("bandwidth", "0")]
    table = sensitivity(simulated.experiment(), simulated.result.makespan_ns, chosen)
    assert table["target"].tolist() == [chosen[1].label, chosen[0].label]
    assert (table["delta_ns"] < 0).all()


@pytest.mark.parametrize(
    ("target", "times"),
    [("kind:host", 0.0), ("kind:host", -1.0), ("kind:host", math.nan), ("bandwidth:0", math.inf)],
)
def test_impossible_speeds_are_refused(run, target, times):
    with pytest.raises(UsageError, match=r"0\.01 to 1000"):
        simulate_faster(run.experiment(), Target.parse(target), times)


@pytest.mark.parametrize("times", [0.0, math.nan, 1e9])
def test_an_impossible_speed_of_all_contributors_blames_none_of_them(run, times):
    with pytest.raises(UsageError, match=r"^Contributors cannot be made .* 0\.01 to 1000"):
        run.each_faster(times)


def test_host_work_can_be_taken_away(run):
    gone = simulate_faster(run.experiment(), Target("kind", "host"), math.inf)
    assert gone < run.result.makespan_ns


def test_waits_of_a_node_can_be_dropped(simulated):
    (only,) = simulated.drops(3, 4)
    assert only.key == "edge:3/3-4"
    assert simulate_faster(simulated.experiment(), only, 1.0) <= simulated.result.makespan_ns
    assert simulated.drops(99, 4) == []


def test_elasticity_is_simulated_once(simulated):
    assert simulated.elasticity is simulated.elasticity
    assert set(simulated.elasticity["key"]) <= {target.key for target in simulated.changes()}


TIMES = StepTimes(
    steps=24, least_ns=40_000_000, median_ns=50_000_000, p90_ns=250_000_000, most_ns=260_000_000,
    long_count=8, every=3, long_ns=250_000_000, gain_ns=66_000_000, cause="checkpoint",
    place="train (t.py:8)",
)  # fmt: skip
TEXT = "Every third step takes 250 ms instead of 50.0 ms: checkpoint in train (t.py:8)."


@pytest.mark.parametrize(
    ("times", "backend", "told"),
    [
        (TIMES, "replay", True),
        (TIMES, "analytical-unaware", False),
        (TIMES._replace(gain_ns=1_000_000), "replay", False),
    ],
)
def test_the_headline_names_what_recurs(times, backend, told):
    program = workload([comp(0, 8_000_000)], [comp(0, 8_000_000)])
    program = replace(program, metadata={"step_times": times._asdict()})
    result = simulate(program, SystemConfig.preset("default"), NetworkConfig.preset("ring-2"))
    headline = summarize(replace(result, backend=backend), program).headline
    assert headline.endswith(TEXT) == told
