"""Steps side by side, and the host calls below them."""

import re
import shutil
import threading
from types import SimpleNamespace

import pytest
from studies import make_study, run_in
from werkzeug.test import Client

from chakrascope.converter import NodeType, convert
from chakrascope.runner import Study, Workspace, find_items, get_backend, measured_result, prepare
from chakrascope.runner.analysis import CapturedCalls
from chakrascope.runner.study import import_item
from chakrascope.support import duration_text
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._server import Site
from chakrascope.viewer._state import Surroundings
from chakrascope.viewer.pages import _timeline
from chakrascope.viewer.queries import Sides
from chakrascope.viewer.timeline import _index as timeline

from .conftest import follow, serving, settle, tab_of, whole
from .test_accessibility import KEY_MS, settled_violations, tab_to


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
    # It has only a timeline, without links to pages of runs.
    assert ask(two, f"run={two.capture}", "api/find").status_code == 404


@pytest.mark.parametrize(
    "value", ["after@nonsense", "elsewhere@{run}", "../after@{run}", "@@", "after@", "{capture}"]
)
def test_missing_run_is_not_found(two, value):
    asked = value.format(run=two.made.run_a, capture=two.capture)
    expected = 200 if asked == "after@" else 404
    assert ask(two, f"run={asked}").status_code == expected


@pytest.mark.parametrize("colour", ["operator", "module"])
def test_names_keep_the_colours_they_have_in_the_run_shown(run, colour):
    nodes = run.nodes
    # The longest entries are last in the changed run, and there is a new entry.
    changed = nodes.assign(
        end_ns=nodes["start_ns"] + nodes["end_ns"].max() // (1 + nodes["end_ns"] - nodes["start_ns"])
    )
    changed.loc[changed.index[0], colour] = "new"
    shown, beside = whole(nodes), whole(changed)
    known = dict(shown.colours(colour).legend)
    alone, alike = dict(beside.colours(colour).legend), dict(beside.colours(colour, shown).legend)
    assert {name: hue for name, hue in alike.items() if name in known} == known
    assert "new" in alike
    assert alone != alike


def test_two_runs_in_the_colours_of_each_other_do_not_wait_for_each_other(run, monkeypatch):
    both, totals = threading.Barrier(2, timeout=120), timeline.name_totals

    def totals_of_both(*given):
        both.wait()
        return totals(*given)

    monkeypatch.setattr(timeline, "name_totals", totals_of_both)
    one, other = whole(run.nodes), whole(run.nodes)
    threads = [
        threading.Thread(target=each.colours, args=("operator", like), daemon=True)
        for each, like in ((one, other), (other, one))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads)


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


STATE = "() => { const t = document.getElementById('timeline').timeline; return %s; }"


@pytest.mark.browser
def test_a_run_of_another_study_is_chosen_and_aligned_by_keyboard(two, page):
    with serving(SimpleNamespace(server=two.site)) as address:
        page.goto(f"{address}/study/before/timeline?run={two.made.run_a}&rank=1&node=13&rows=flat")
        page.wait_for_selector("#timeline[data-selected='1:13']")
        tab_to(page, "timeline-beside-run")
        page.keyboard.type("after", delay=KEY_MS)
        page.wait_for_url("**beside=after%40**")
        page.wait_for_selector("#timeline-details dt:text-is('Compared')")
        tab_to(page, "timeline-align")
        page.keyboard.press("Enter")
        page.wait_for_function(STATE % "t.settings.align")
        begins = "t.sources[1].counterpart.start_ns + t.sources[1].shift - t.selection.node.start_ns"
        assert page.evaluate(STATE % begins) == 0
        assert page.evaluate(STATE % "t.rows.all.some((row) => row.source === t.sources[1])")
        assert page.evaluate(STATE % "t.sources[1].name") == "after"
        shown = page.evaluate(STATE % "t.view.t1")
        page.keyboard.press("w")
        page.wait_for_function(STATE % f"t.view.t1 !== {shown}")
        settle(page)
        assert settled_violations(page) == []


@pytest.fixture(scope="module")
def stepped(tmp_path_factory, data_dir):
    """A study of all three captured steps of a job, as measured, and the run's id."""
    study = Study.create(tmp_path_factory.mktemp("stepped") / "study")
    return study, run_in(study, convert(data_dir / "converter" / "loaded_2", step="all"), workload="loaded")


@pytest.mark.browser
def test_several_steps_lie_side_by_side_and_slices_are_compared(stepped, page):
    study, run = stepped
    app = create_app(study)
    first, *rest = app.server.test_client().get(f"/api/lanes?run={run}").json["steps"]
    assert [step["step"] for step in rest] == [5, 6]
    with serving(app) as address:
        page.goto(f"{address}/timeline?run={run}&rank=0&node=100&rows=flat")
        page.wait_for_selector("#timeline[data-selected='0:100'][data-slices]")
        page.select_option("#timeline-beside-run", label="step 5")
        page.wait_for_selector("#timeline-details dt:text-is('Step 5')")
        page.select_option("#timeline-beside-run", label="and step 6")
        page.wait_for_selector("#timeline-details dt:text-is('Step 6')")
        page.wait_for_url("**beside=%405%2C%406**")
        # All begin together, and the longest is visible.
        shifts = page.evaluate(STATE % "t.sources.map((source) => source.shift)")
        assert shifts == [0, *(first["start_ns"] - step["start_ns"] for step in rest)]
        low, high = page.evaluate(STATE % "[t.view.t0, t.view.t1]")
        assert low <= first["start_ns"]
        assert high - first["start_ns"] >= max(s["end_ns"] - s["start_ns"] for s in [first, *rest])
        # Every step has separate rows, and the same slice begins at the same position in all steps.
        assert page.evaluate(STATE % "new Set(t.rows.all.map((row) => row.source.name)).size") == 3
        page.locator("#timeline-align").click()
        aligned = "t.sources.slice(1).map((each) => each.counterpart.start_ns + each.shift)"
        start = page.evaluate(STATE % "t.selection.node.start_ns")
        assert page.evaluate(STATE % aligned) == [start, start]
        page.wait_for_url("**align=**")
        page.reload()
        page.wait_for_selector("#timeline-details dt:text-is('Step 6')")
        assert page.evaluate(STATE % aligned) == [start, start]
        settle(page)
        assert settled_violations(page) == []
        for value in ("@x", "@5,,@1e9"):  # missing steps leave the whole timeline
            follow(page, "/nonsense")
            page.wait_for_selector("#notice")
            follow(page, "/timeline", f"?run={run}&beside={value}")
            page.wait_for_selector("#timeline[data-slices]")
            assert "this run" in page.evaluate(STATE % "t.rows.all.map((row) => row.source.name)"), value
            assert page.complaints == [], value


# The timeline shows the calls of host threads in the captured step, nested by call, below its nodes.


@pytest.fixture(scope="module")
def tab(context, captured):
    with tab_of(context, create_app(captured[0])) as page:
        yield page


def test_calls_lie_below_the_measured_nodes_of_their_rank(captured):
    study, run = captured
    client = create_app(study).server.test_client()
    asked = f"run={run}&calls=1&nested=1"
    found = client.get(f"/api/lanes?{asked}").json
    assert found["measured"]
    lanes = [lane for lane in found["lanes"] if lane["rank"] == 0]
    levels = [lane["level"] == "call" for lane in lanes]
    assert levels == sorted(levels)
    assert client.get(f"/api/lanes?run={run}&nested=1").json["measured"]
    simulated = client.get(f"/api/lanes?{asked}&measured=0").json
    assert not simulated["measured"]
    assert not [lane for lane in simulated["lanes"] if lane["level"] == "call"]
    calls = [lane["lane"] for lane in lanes if lane["level"] == "call"]
    wide = f"lanes={calls[0]}-{calls[-1]}&t0=0&t1={found['makespan_ns']}"
    summed = client.get(f"/api/area?{asked}&{wide}").json
    by_name = {row["name"]: row for row in summed["rows"]}
    assert by_name["ProfilerStep#4"]["row"] == "call"
    assert by_name["ProfilerStep#4"]["total_ns"] == measured_result(study.workload("mlp")).makespan_ns
    named = client.get(f"/api/slices?{asked}&{wide}&px=1000").data
    assert b"Optimizer.step#AdamW.step" in named


def test_the_calls_of_a_window_are_exported_by_stack(captured):
    study, run = captured
    client = create_app(study).server.test_client()
    whole = client.get(f"/export/host.csv?run={run}&ranks=0").text.splitlines()
    part = client.get(f"/export/host.csv?run={run}&ranks=0&t0=0&t1=4000000").text.splitlines()
    assert whole[0] == "rank,thread,depth,name,calls,total_ns,self_ns,on_path_ns"
    total = measured_result(study.workload("mlp")).makespan_ns
    for rows, total_ns in ((whole, total), (part, 4_000_000)):
        step = next(row for row in rows if ",ProfilerStep#4," in row)
        assert int(step.split(",")[5]) == total_ns
    assert len(part) < len(whole)


def test_the_host_work_that_a_node_waited_for_lies_in_its_calls(captured):
    study, run = captured
    client = create_app(study).server.test_client()
    shown = client.get(f"/api/seek?run={run}&seek=aten::addmm&ranks=0").json
    host = client.get(f"/api/host?run={run}&rank=0&node={shown['node']}").json["node"]
    assert 0 <= host < shown["node"]
    details = dict(client.get(f"/api/node?run={run}&rank=0&node={host}&flows=1").json["details"])
    assert details["Kind"] == "Host work"
    assert details["Called in"].startswith("ProfilerStep#4 › DistributedDataParallel.forward")
    assert client.get(f"/api/host?run={run}&rank=0&node=99999").json == {"node": -1}
    assert client.get(f"/api/host?run={run}&rank=7&node=1").json == {"node": -1}


@pytest.fixture(scope="module")
def launched(tmp_path_factory, data_dir):
    """A run of a public trace of one GPU, taken with_stack, in which a monitor of tqdm waits in a thread."""
    folder = tmp_path_factory.mktemp("launched")
    (folder / "from").mkdir()
    shutil.copy(data_dir / "converter/kineto/bert_small_h100.json.gz", folder / "from")
    study = Study.create(folder / "study")
    (item,) = find_items(folder / "from")
    import_item(study, folder / "from", item.id, "bert", lambda _done, _total: None)
    experiment = prepare(study.workload("bert"), "default", None, backend="replay")
    run = study.add_run(experiment, get_backend("replay").run(experiment), workload="bert")
    return StudyView(study).open(run)


def test_kernels_and_host_work_have_the_frames_of_their_own_thread(launched):
    client = create_app(launched.study).server.test_client()
    nodes = launched.nodes[(launched.nodes["kind"] == "host") | (launched.nodes["operator"] == "aten::addmm")]
    labels = {"host": "Called in", "compute": "Launched in"}
    for node in nodes.groupby("kind", observed=True).head(40).to_dict("records"):
        asked = f"run={launched.info.id}&rank=0&node={node['node_id']}&flows=1"
        details = dict(client.get(f"/api/node?{asked}").json["details"])
        assert details[labels[node["kind"]]].startswith("<string>(1): <module> › multiprocessing/spawn.py")
        assert ("nn.Module: Linear" in details.get("Launched in", "")) == (node["kind"] == "compute")


@pytest.mark.browser
def test_host_calls_of_a_slice_are_those_at_its_measured_time(launched, page):
    nodes = launched.nodes[launched.nodes["operator"] == "aten::addmm"]
    node = nodes[nodes["measured_start_ns"] > nodes["start_ns"] + 1_000].iloc[0]
    began = int(node["measured_start_ns"])
    ends = [duration_text(began), duration_text(began + int(node["duration_ns"]))]
    with serving(create_app(launched.study)) as address:
        page.goto(f"{address}/timeline?rank=0&node={node['node_id']}")
        page.wait_for_selector(f"#timeline[data-selected='0:{node['node_id']}']")
        page.get_by_role("tab", name="Host calls").click()
        shown = f"from {ends[0]} to {ends[1]} of the captured step"
        page.locator("#timeline-stacks", has_text=shown).wait_for()


@pytest.mark.browser
def test_host_calls_of_a_small_capture_are_shown_unasked_at_measured_times(captured, visit):
    _, run = captured
    rows = "document.getElementById('timeline').timeline.rows.all"
    called, uncalled = (f"() => {test}{rows}.some((row) => row.thread)" for test in ("", "!"))
    page = visit("/timeline", f"?run={run}")
    page.wait_for_selector("#timeline[data-slices]")
    page.wait_for_function(called)
    shown = page.evaluate(f"{rows}.map((row) => Boolean(row.thread))")
    assert not shown[0]
    assert shown.count(True) > 2
    assert page.locator("#timeline-calls").is_checked()
    assert page.locator("#timeline-measured").is_checked()
    assert not {"measured=", "calls="} & set(re.findall(r"\w+=", page.url))
    page.locator("#timeline-calls").uncheck()
    page.wait_for_url("**calls=0*")
    page.wait_for_function(uncalled)
    page.locator("#timeline-calls").check()
    page.wait_for_function(called)
    page.locator("#timeline-measured").uncheck()
    page.wait_for_url("**measured=0*")
    page.wait_for_function(uncalled)
    assert page.locator("#timeline-calls").is_disabled()


@pytest.mark.browser
def test_all_ranks_are_in_sight_with_host_calls_until_all_rows_are_asked_for(captured, visit):
    _, run = captured
    in_sight = """() => window.rowsOf().all.filter((row) => !row.isGroup).every(
      (row) => row.height && window.rowsOf().y(row) + row.height <= window.rowsOf().timeline.view.height)"""
    calls = "() => window.rowsOf().all.filter((row) => row.thread && row.height).length"
    page = visit("/timeline", f"?run={run}&same=apart")
    page.wait_for_selector("#timeline[data-slices]")
    page.evaluate("window.rowsOf = () => document.getElementById('timeline').timeline.rows")
    page.wait_for_function("() => window.rowsOf().all.some((row) => row.thread)")
    shown = []
    for width, height in ((1280, 600), (1280, 800), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(in_sight)
        shown.append(page.evaluate(calls))
    assert shown == sorted(shown)
    page.locator("#timeline-fit").uncheck()
    page.wait_for_url("**fit=off*")
    page.wait_for_function("() => window.rowsOf().all.every((row) => row.height)")
    assert page.evaluate(calls) > shown[0]


def test_large_traces_and_many_ranks_are_read_when_asked(captured, monkeypatch):
    study, run = captured
    opened = StudyView(study).open(run)
    assert _timeline._default_calls(opened) == "1"
    monkeypatch.setattr(_timeline, "_MAX_DEFAULT_BYTES", opened.calls.size_bytes - 1)
    assert _timeline._default_calls(opened) == "0"


def test_host_calls_of_a_simulated_window_are_those_at_its_measured_times(captured):
    study, run = captured
    opened = StudyView(study).open(run)
    own = opened.nodes_of(1)
    on_host = own[(own["stream"] == 0) & (own["type"] == NodeType.COMP)]
    node = on_host.loc[on_host["duration_ns"].idxmax()]
    late = {name: own[name] + 10**9 for name in ("start_ns", "end_ns")}
    opened._ranks_kept[1] = own.assign(**late)
    start, began = int(node["start_ns"]) + 10**9, int(node["measured_start_ns"])
    assert _timeline._measured_window(opened, [1], (start + 5, start + 25)) == (began + 5, began + 25)
    assert _timeline._measured_window(opened, [1], (5, 25)) == (5, 5)


def test_runs_without_their_traces_have_no_calls(captured):
    study, run = captured
    kept = study.trace_dir("mlp").rename(study.path / "elsewhere")
    try:
        lanes = create_app(study).server.test_client().get(f"/api/lanes?run={run}&calls=1&nested=1").json
        assert not [lane for lane in lanes["lanes"] if lane["level"] == "call"]
    finally:
        kept.rename(study.trace_dir("mlp"))


def test_traces_that_were_imported_are_read_where_they_are(tmp_path, data_dir):
    loose = tmp_path / "loose"
    loose.mkdir()
    for rank in (0, 1):
        shutil.copy(
            data_dir / "converter" / "mlp_2" / f"rank{rank}.device.json.gz", loose / f"{rank}.json.gz"
        )
    study = Study.create(tmp_path / "study")
    (item,) = find_items(loose)
    import_item(study, loose, item.id, "loose", lambda _done, _total: None)
    calls = CapturedCalls(study, study.workload("loose"))
    assert "ProfilerStep#4" in calls.of_rank(1).names
    assert calls.of_rank(2) is None
    shutil.rmtree(loose)
    assert not CapturedCalls(study, study.workload("loose"))


@pytest.mark.browser
def test_slices_link_to_host_calls_and_back(captured, visit):
    study, run = captured
    node = (
        create_app(study)
        .server.test_client()
        .get(f"/api/seek?run={run}&seek=aten::addmm&ranks=0")
        .json["node"]
    )
    page = visit("/timeline", f"?run={run}&calls=1&rows=nested&fit=off&rank=0&node={node}")
    page.wait_for_selector(f"#timeline[data-selected='0:{node}'][data-slices]")
    page.keyboard.press("h")
    page.wait_for_selector(f"#timeline:not([data-selected='0:{node}']):not([data-selected=''])")
    page.locator("#timeline-details dd", has_text="› DistributedDataParallel.forward").wait_for()
    # Rows move while ranks are read, and the calls of a row that becomes visible move with it.
    place = page.wait_for_function(
        """() => {
          const { canvas, pointer, rows, view } = document.getElementById('timeline').timeline;
          const row = rows.all.find((each) => each.thread);
          if (rows.scroll) { rows.scrollBy(-rows.scroll); }
          const x = view.x((view.t0 + view.t1) / 2), y = row ? rows.y(row) + row.height / 2 : 0;
          if (!row || !pointer.hit(x, y)) { return null; }
          const box = canvas.getBoundingClientRect();
          return [box.left + x, box.top + y];
        }"""
    ).json_value()
    page.mouse.click(*place)
    page.wait_for_selector("#timeline-details .area-table td:has-text('Optimizer.step#AdamW.step')")
    page.get_by_role("tab", name="Host calls").click()
    page.locator("#timeline-stacks").get_by_role("figure", name=re.compile("ProfilerStep#4")).wait_for()
    settle(page)
    assert settled_violations(page, within="#timeline-stacks") == []
    follow(page, "/critical-path", f"?run={run}")
    page.locator("[id*=path-stacks]").get_by_role("figure", name=re.compile("ProfilerStep#4")).wait_for()
    page.emulate_media(color_scheme="dark")
    settle(page)
    assert settled_violations(page, within="[id*=path-stacks]") == []
