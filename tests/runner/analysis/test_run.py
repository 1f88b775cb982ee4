"""A run with every answer derived from it, opened without a page."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from chakrascope.errors import ConfigError, StudyError
from chakrascope.runner.analysis import (
    COMPARISONS,
    OVERVIEWS,
    RUN_BREAKDOWNS,
    TABLES,
    ComputedOnce,
    analyse_run,
)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_of_a_run_can_be_made(run, simulated, name):
    for each in (run, simulated):
        assert isinstance(TABLES[name](each), pd.DataFrame)


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


def test_without_a_name_the_newest_run_is_opened(made):
    assert analyse_run(made.study).info.id == made.run_b


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
