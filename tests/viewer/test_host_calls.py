"""The timeline shows what host threads called in the captured step, nested by call, below measured rows."""

from __future__ import annotations

import re
import shutil

import pytest

from chakrascope.runner import Study, find_items, measured_result
from chakrascope.runner.analysis import CapturedCalls
from chakrascope.runner.study import import_item
from chakrascope.viewer import create_app

from .conftest import follow, serving


def test_calls_lie_below_the_measured_rows_of_their_rank(captured):
    study, run = captured
    client = create_app(study).server.test_client()
    asked = f"run={run}&measured=1&nested=1"
    found = client.get(f"/api/lanes?{asked}").json
    lanes = [lane for lane in found["lanes"] if lane["rank"] == 0]
    levels = [(lane["level"] == "call", lane["measured"]) for lane in lanes]
    assert sorted(set(levels), key=levels.index) == [(False, True), (True, True), (False, False)]
    assert not [
        lane for lane in client.get(f"/api/lanes?run={run}&nested=1").json["lanes"] if lane["measured"]
    ]
    calls = [lane["lane"] for lane in lanes if lane["level"] == "call"]
    wide = f"lanes={calls[0]}-{calls[-1]}&t0=0&t1={found['makespan_ns']}"
    summed = client.get(f"/api/area?{asked}&{wide}").json
    by_name = {row["name"]: row for row in summed["rows"]}
    assert by_name["ProfilerStep#4"]["row"] == "call"
    assert by_name["ProfilerStep#4"]["measured_ns"] == measured_result(study.workload("mlp")).makespan_ns
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


def test_runs_without_their_traces_have_no_calls(captured):
    study, run = captured
    kept = study.trace_dir("mlp").rename(study.path / "elsewhere")
    try:
        lanes = create_app(study).server.test_client().get(f"/api/lanes?run={run}&measured=1&nested=1").json
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
def test_the_way_leads_from_a_slice_to_the_host_and_from_a_call_to_what_it_called(captured, page):
    study, run = captured
    app = create_app(study)
    node = app.server.test_client().get(f"/api/seek?run={run}&seek=aten::addmm&ranks=0").json["node"]
    with serving(app) as address:
        page.goto(f"{address}/timeline?run={run}&measured=1&rows=nested&rank=0&node={node}")
        page.wait_for_selector(f"#timeline[data-selected='0:{node}'][data-slices]")
        page.keyboard.press("h")
        page.wait_for_selector(f"#timeline:not([data-selected='0:{node}']):not([data-selected=''])")
        page.locator("#timeline-details dd", has_text="DistributedDataParallel.forward").wait_for()
        # Rows move while ranks are being read, and the calls of a row that comes into sight follow it.
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
        follow(page, "/critical-path", f"?run={run}")
        page.locator("#path-stacks").get_by_role("figure", name=re.compile("ProfilerStep#4")).wait_for()
    assert page.complaints == []
