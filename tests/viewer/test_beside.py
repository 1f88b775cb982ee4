"""Runs and captures of another study on the timeline of a run: before and after a change of the code."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
from studies import make_study
from werkzeug.test import Client

from chakrascope.converter import convert
from chakrascope.runner import Study, Workspace, get_backend, prepare
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._site import Site
from chakrascope.viewer._state import Surroundings
from chakrascope.viewer.queries import Sides
from chakrascope.viewer.timeline import SliceIndex

from .conftest import serving, watched
from .test_accessibility import KEY_MS, serious, tab_to


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two studies served together, the second with a capture that was converted."""
    folder = tmp_path_factory.mktemp("beside")
    made = make_study(folder / "before")
    shutil.copytree(made.study.path, folder / "after")
    after = Study.open(folder / "after")
    workload = after.workloads()[-1]
    (after.trace_dir(workload)).mkdir(parents=True)
    (after.trace_dir(workload) / "manifest.json").write_text("{}")
    site = Site(Workspace(folder))
    return SimpleNamespace(made=made, site=site, folder=folder, capture=workload, client=Client(site))


def ask(two, query, route="api/lanes"):
    return two.client.get(f"/study/before/{route}?{query}")


def test_another_study_answers_as_it_would_for_itself(two):
    run = two.made.run_b
    there = two.client.get(f"/study/after/api/lanes?run={run}&nested=1").json
    assert ask(two, f"run=after@{run}&nested=1").json == there
    window = f"run=after@{run}&px=900&t0=0&t1={there['makespan_ns']}"
    assert ask(two, window, "api/slices").data == ask(two, window.replace("after@", ""), "api/slices").data
    area = ask(two, f"run=after@{run}&t0=0&t1=9000000&lanes=0-3", "export/area.csv")
    assert area.data.startswith(b"operator,kind,slices")
    found = ask(two, f"run={two.made.run_a}&beside=after@{run}&rank=1&node=4", "api/counterpart").json
    assert (found["rank"], found["node"]) == (1, 4)


def test_a_converted_capture_is_shown_as_measured(two):
    lanes = ask(two, f"run=after@{two.capture}").json
    assert (
        lanes["makespan_ns"]
        == StudyView(Study.open(two.folder / "after")).open_capture(two.capture).info.makespan_ns
    )
    assert len(lanes["ranks"]) == 2
    # It has a timeline only: pages of runs do not know it.
    assert ask(two, f"run={two.capture}", "api/find").status_code == 404


@pytest.mark.parametrize(
    "value", ["after@nonsense", "elsewhere@{run}", "../after@{run}", "@@", "after@", "{capture}"]
)
def test_what_is_not_there_is_not_found(two, value):
    asked = value.format(run=two.made.run_a, capture=two.capture)
    expected = 200 if asked == "after@" else 404
    assert ask(two, f"run={asked}").status_code == expected


@pytest.mark.parametrize("colour", ["operator", "module"])
def test_names_keep_the_colours_they_have_in_the_run_shown(run, colour):
    nodes = run.nodes
    # What takes longest comes last in the changed run, and there is something new.
    changed = nodes.assign(
        end_ns=nodes["start_ns"] + nodes["end_ns"].max() // (1 + nodes["end_ns"] - nodes["start_ns"])
    )
    changed.loc[changed.index[0], colour] = "new"
    shown, beside = SliceIndex(nodes), SliceIndex(changed)
    known = dict(shown.colours(colour).legend)
    alone, alike = dict(beside.colours(colour).legend), dict(beside.colours(colour, shown).legend)
    assert {name: hue for name, hue in alike.items() if name in known} == known
    assert "new" in alike
    assert alone != alike


def test_sides_of_a_difference_lead_to_the_timeline(two):
    near = Surroundings("before", Workspace(two.folder))
    sides = Sides(StudyView(two.made.study, near))
    run, capture = two.made.run_a, two.capture
    assert sides.on_timeline(f"@{run}", f"after@{run}") == f"?run={run}&beside=after%40{run}"
    assert sides.on_timeline(f"@{capture}", f"after@{capture}").endswith(
        f"&beside=after%40{capture}&measured=1"
    )
    for before, after in (
        (f"after@{run}", f"@{run}"),
        ("@all", f"@{run}"),
        (f"@{run}", "after@x"),
        (f"@{run}", "x@y"),
    ):
        assert sides.on_timeline(before, after) == ""


@pytest.mark.browser
def test_a_run_of_another_study_is_chosen_and_aligned(two, page):
    with serving(SimpleNamespace(server=two.site)) as address:
        page.goto(f"{address}/study/before/timeline?run={two.made.run_a}&rank=1&node=13&rows=flat")
        page.wait_for_selector("#timeline[data-selected='1:13']")
        page.select_option("#timeline-beside-run", f"after@{two.made.run_b}")
        page.wait_for_selector("#timeline-details dt:text-is('Beside')")
        page.wait_for_url("**beside=after%40**")
        page.locator("#timeline-align").click()
        places = "() => { const t = document.getElementById('timeline').timeline; return %s; }"
        assert (
            page.evaluate(
                places % "t.sources[1].counterpart.start_ns + t.sources[1].shift - t.selection.node.start_ns"
            )
            == 0
        )
        assert page.evaluate(
            places % "t.rows.all.some((row) => row.source === t.sources[1]) && t.sources[1].name === 'after'"
        )
    assert page.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_lies_beside_is_chosen_and_aligned_by_keyboard_alone(two, browser, scheme):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 720})
    page = watched(context)
    with serving(SimpleNamespace(server=two.site)) as address:
        page.goto(f"{address}/study/before/timeline?run={two.made.run_a}&rank=1&node=13&rows=flat")
        page.wait_for_selector("#timeline[data-selected='1:13']")
        tab_to(page, "timeline-beside-run")
        page.keyboard.type("after", delay=KEY_MS)
        page.wait_for_url("**beside=after%40**")
        page.wait_for_selector("#timeline-details dt:text-is('Beside')")
        tab_to(page, "timeline-align")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.getElementById('timeline').timeline.settings.align")
        shown = page.evaluate("document.getElementById('timeline').timeline.view.t1")
        page.keyboard.press("w")
        page.wait_for_function("t1 => document.getElementById('timeline').timeline.view.t1 !== t1", arg=shown)
        page.wait_for_load_state("networkidle")
        assert serious(page) == []
        assert page.complaints == []
    context.close()


@pytest.fixture(scope="module")
def stepped(tmp_path_factory, data_dir):
    """A study of all three captured steps of a job, as measured, and the run's id."""
    study = Study.create(tmp_path_factory.mktemp("stepped") / "study")
    prefix = study.add_workload(convert(data_dir / "converter" / "loaded_2", step="all"), "loaded")
    experiment = prepare(prefix, "default", None, backend="replay")
    return study, study.add_run(experiment, get_backend("replay").run(experiment), workload="loaded")


@pytest.mark.browser
def test_several_steps_lie_side_by_side_and_slices_are_compared(stepped, page):
    study, run = stepped
    app = create_app(study)
    first, *rest = app.server.test_client().get(f"/api/lanes?run={run}").json["steps"]
    assert [step["step"] for step in rest] == [5, 6]
    state = "() => { const t = document.getElementById('timeline').timeline; return %s; }"
    with serving(app) as address:
        page.goto(f"{address}/timeline?run={run}&rank=0&node=100&rows=flat")
        page.wait_for_selector("#timeline[data-selected='0:100'][data-slices]")
        page.select_option("#timeline-beside-run", label="step 5")
        page.wait_for_selector("#timeline-details dt:text-is('Step 5')")
        page.select_option("#timeline-beside-run", label="and step 6")
        page.wait_for_selector("#timeline-details dt:text-is('Step 6')")
        page.wait_for_url("**beside=%405%2C%406**")
        # All begin together, and the longest is in sight.
        shifts = page.evaluate(state % "t.sources.map((source) => source.shift)")
        assert shifts == [0, *(first["start_ns"] - step["start_ns"] for step in rest)]
        low, high = page.evaluate(state % "[t.view.t0, t.view.t1]")
        assert low <= first["start_ns"]
        assert high - first["start_ns"] >= max(s["end_ns"] - s["start_ns"] for s in [first, *rest])
        # Every step has its own rows, and the slice that does the same begins where the selected one does.
        assert page.evaluate(state % "new Set(t.rows.all.map((row) => row.source.name)).size") == 3
        page.locator("#timeline-align").click()
        aligned = "t.sources.slice(1).map((each) => each.counterpart.start_ns + each.shift)"
        start = page.evaluate(state % "t.selection.node.start_ns")
        assert page.evaluate(state % aligned) == [start, start]
        page.wait_for_url("**align=**")
        page.reload()
        page.wait_for_selector("#timeline-details dt:text-is('Step 6')")
        assert page.evaluate(state % aligned) == [start, start]
        page.wait_for_load_state("networkidle")
        assert serious(page) == []
    assert page.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize("value", ["@x", "@5,@5,@99", "@", "@5,,@1e9"])
def test_steps_that_are_not_there_leave_the_timeline_whole(stepped, page, value):
    study, run = stepped
    with serving(create_app(study)) as address:
        page.goto(f"{address}/timeline?run={run}&beside={value}")
        page.wait_for_selector("#timeline[data-slices]")
        names = (
            "[...new Set(document.getElementById('timeline').timeline.rows.all.map((r) => r.source.name))]"
        )
        assert "this run" in page.evaluate(names)
    assert page.complaints == []
