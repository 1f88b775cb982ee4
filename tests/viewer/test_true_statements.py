"""Small statements of the pages that were not true."""

from __future__ import annotations

import json

import pytest
from plotly.utils import PlotlyJSONEncoder
from studies import LAYERS

from chakrascope.runner.jobs import Job
from chakrascope.viewer._state import Selection
from chakrascope.viewer._theme import kind_colour
from chakrascope.viewer.pages import _critical_path, _graph, _jobs, _summary


def text_of(component):
    return json.dumps(component, cls=PlotlyJSONEncoder)


def named(component, wanted):
    """Return the part of the plain *component* whose id is *wanted*."""
    if isinstance(component, dict):
        if component.get("id") == wanted:
            return component
        component = list(component.values())
    if not isinstance(component, list):
        return None
    found = (named(part, wanted) for part in component)
    return next((part for part in found if part is not None), None)


def test_bars_by_collective_are_collectives_and_the_rest_is_told(run):
    shown = text_of(_critical_path._breakdown(run, "collective", "light"))
    assert "of the path is in no collective." in shown
    assert "(none)" not in shown
    assert shown.count("all_reduce of") >= LAYERS
    assert kind_colour("communication") in shown
    assert kind_colour("compute") not in shown


def test_modules_that_bound_it_say_what_they_leave_out(run, simulated):
    for opened in (run, simulated):
        shown = text_of(_summary._bars(opened, "collective", "light"))
        assert "of the path is in no collective." in shown


@pytest.mark.parametrize(("fold", "hidden"), [("nodes", False), ("modules", True), ("ranks", True)])
def test_hops_are_asked_for_only_where_they_count(fold, hidden):
    selection = Selection.parse(f"?fold={fold}&hops=1")
    field = named(json.loads(text_of(_graph._controls(selection))), {"default": "2", "option": "hops"})
    assert field["value"] == 1
    assert "suffix" not in field
    assert (field["style"] == {"display": "none"}) == hidden


@pytest.mark.parametrize("asked", ["0", "9", "12345"])
def test_hops_that_cannot_be_drawn_stay_in_their_field_and_are_told(run, asked):
    selection = Selection.parse(f"?hops={asked}")
    field = named(json.loads(text_of(_graph._controls(selection))), {"default": "2", "option": "hops"})
    assert field["value"] == int(asked)
    assert f"not with '{asked}'; here are 2:" in text_of(_graph._notices(run, selection))


def test_job_that_does_not_know_its_size_yet_is_starting():
    job = Job(
        id=7, kind="import", experiment="", label="traces", workload="", backend="", network="",
        state="running", message="", attempts=1, cancel_asked=0.0, pid=0, simulated_ns=0, done=0, total=0,
        created=0.0, started=0.0, ended=0.0,
    )  # fmt: skip
    shown = text_of(_jobs.job_list([job], set()))
    assert "Starting." in shown
    assert "0 of 0" not in shown
