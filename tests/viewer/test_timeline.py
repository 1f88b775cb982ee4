"""The timeline in a browser: its keys, its rows, search, areas and ranks."""

import re

import pytest

pytestmark = pytest.mark.browser
TYPED_MS = 40


def test_click_on_the_timeline_selects_the_node(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&rows=flat")
    page.wait_for_selector("#timeline[data-slices]")
    box = page.locator("#timeline-canvas").bounding_box()
    page.mouse.click(box["x"] + 204 + (box["width"] - 204) / 2, box["y"] + 48 + 11)
    page.wait_for_url(re.compile(r"rank=0&node=\d+"))
    page.wait_for_selector("#timeline-details dt")


def test_timeline_window_is_in_the_address(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&t0=1000000&t1=2000000")
    page.wait_for_selector("#timeline[data-slices]")
    page.keyboard.press("w")
    page.wait_for_url(re.compile(r"t0=1150000&t1=1850000"))


def test_back_restores_the_window_of_the_timeline(visit):
    page = visit("/timeline", "")
    page.wait_for_selector("#timeline[data-slices]")
    page.keyboard.press("w")
    end = "String(Math.round(timeline.timeline.view.t1))"
    zoomed = page.evaluate(end)
    page.wait_for_url(re.compile(rf"run=\w+&.*t1={zoomed}"))
    page.keyboard.press(".")
    page.wait_for_url("**node=*")
    page.keyboard.press("d")
    page.wait_for_function(f"() => !location.search.includes('t1={zoomed}')")
    page.go_back()
    page.wait_for_selector("#timeline[data-selected='']")
    page.wait_for_function(f"() => {end} === '{zoomed}'")


def test_timeline_measures_an_area_and_walks_to_the_cause(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&rank=1&node=4&rows=flat")
    page.wait_for_selector("#timeline[data-selected='1:4']")
    for key, node in (("[", 3), ("[", 2), ("]", 3)):
        page.keyboard.press(key)
        page.wait_for_selector(f"#timeline[data-selected='1:{node}']")
    box = page.locator("#timeline-canvas").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 336, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 536, box["y"] + 80)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.wait_for_selector("#timeline-details .area-table td:has-text('aten::mm')")
    with page.expect_download() as caught:
        page.locator("#timeline-details a").first.click()
    assert caught.value.path().read_text().startswith("operator,kind,slices,total_ns")


def test_timeline_is_walked_by_keyboard(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&rank=0&node=1")
    page.wait_for_selector("#timeline[data-selected='0:1'][data-slices]")
    for key, node in ((".", 3), (".", 4), (",", 3)):
        page.keyboard.press(key)
        page.wait_for_selector(f"#timeline[data-selected='0:{node}']")


def test_details_link_to_predecessors_and_successors(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&rank=1&node=4")
    details = page.locator("#timeline-details")
    details.get_by_role("link", name="node 5").click()
    page.wait_for_selector("#timeline[data-selected='1:5']")
    page.wait_for_url("**node=5*")
    details.get_by_role("link", name="node 4").press("Enter")
    page.wait_for_selector("#timeline[data-selected='1:4']")


def test_measured_times_are_in_the_address(visit, made):
    page = visit("/timeline", f"?run={made.run_b}")
    page.wait_for_selector("#timeline[data-slices]")
    ends = "() => document.getElementById('timeline').timeline.view.makespan"
    simulated, rows = page.evaluate(ends), page.locator("#timeline").get_attribute("data-rows")
    page.locator("#timeline-measured").check()
    page.wait_for_url("**measured=1*")
    page.wait_for_function(f"{ends} !== {simulated}")
    assert page.locator("#timeline").get_attribute("data-rows") == rows
    assert page.locator("#timeline-calls").is_disabled()


@pytest.fixture
def timeline(visit, made):
    """Open the timeline of a run, the first unless said otherwise, and return its page."""

    def opened(search="", run=None):
        page = visit("/timeline", f"?run={run or made.run_a}{search}")
        page.wait_for_selector("#timeline[data-slices]")
        return page

    return opened


TIMELINE = "const t = document.getElementById('timeline').timeline;"


def state(page, expression):
    """Return the value of *expression* for the timeline ``t``."""
    return page.evaluate(f"() => {{ {TIMELINE} return {expression}; }}")


def wait_until(page, expression):
    page.wait_for_function(f"() => {{ {TIMELINE} return {expression}; }}")


def texts(page):
    """Return the text on the canvas, with its vertical position."""
    return page.evaluate(
        f"""() => {{
          {TIMELINE}
          const write = t.context.fillText, found = [];
          t.context.fillText = function (text, x, y, ...more) {{
            found.push([text, y]);
            write.call(this, text, x, y, ...more);
          }};
          t.draw();
          delete t.context.fillText;
          return found;
        }}"""
    )


def slice_at(page, level="slice"):
    """Return a point of the page on the widest visible slice in the first row of a *level*."""
    found = page.evaluate(
        f"""() => {{
          {TIMELINE}
          const row = t.rows.all.find((row) => row.source.lanes[row.lane].level === '{level}');
          const batch = row.source.batch;
          const own = [...batch.lane.keys()].filter((i) => batch.lane[i] === row.lane);
          const from = (i) => Math.max(batch.start[i], t.view.t0);
          const to = (i) => Math.min(batch.end[i], t.view.t1);
          const i = own.sort((a, b) => (to(b) - from(b)) - (to(a) - from(a)))[0];
          return {{ x: t.view.x((from(i) + to(i)) / 2), y: t.rows.y(row) + row.height / 2 }};
        }}"""
    )
    box = page.locator("#timeline-canvas").bounding_box()
    return box["x"] + found["x"], box["y"] + found["y"]


def test_keys_work_without_a_click_at_typing_speed(timeline):
    page = timeline("&t0=1000000&t1=3000000")
    page.keyboard.type("wwdsa", delay=TYPED_MS)
    span = state(page, "t.view.t1 - t.view.t0")
    assert span == pytest.approx(2_000_000 * 0.7, rel=1e-6)
    assert page.locator("#node-search").input_value() == ""


def test_address_follows_while_a_key_is_held(timeline):
    addresses = timeline().evaluate(
        """async () => {
          const seen = new Set();
          for (let i = 0; i < 12; i++) {
            document.dispatchEvent(new KeyboardEvent("keydown", { key: "w", repeat: i > 0 }));
            await new Promise((resolve) => setTimeout(resolve, 60));
            seen.add(location.search);
          }
          return seen.size;
        }"""
    )
    assert addresses > 2


def test_zoom_stays_where_the_pointer_is(timeline):
    page = timeline("&t0=1000000&t1=3000000")
    x, y = slice_at(page)
    page.mouse.move(x, y)
    box = page.locator("#timeline-canvas").bounding_box()
    before = state(page, f"t.view.t({x - box['x']})")
    page.keyboard.type("ww", delay=TYPED_MS)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    wait_until(page, "t.view.t1 - t.view.t0 < 900000")
    assert state(page, f"t.view.t({x - box['x']})") == pytest.approx(before, abs=1_500)  # a pixel


def test_f_fits_the_selection_then_everything(timeline):
    page = timeline("&rank=1&node=4")
    page.wait_for_selector("#timeline[data-selected='1:4']")
    page.keyboard.press("f")
    assert state(page, "[t.view.t0 < t.selection.node.start_ns, t.view.t1 > t.selection.node.end_ns]") == [
        True,
        True,
    ]
    assert state(
        page, "(t.view.t1 - t.view.t0) / (t.selection.node.end_ns - t.selection.node.start_ns)"
    ) == pytest.approx(1.2)
    page.keyboard.press("f")
    assert state(page, "(t.view.t1 - t.view.t0) / t.view.makespan") == pytest.approx(1.02)


@pytest.mark.parametrize("after", ["click", "[", "Escape", "wheel"])
def test_tooltip_goes_away(timeline, after):
    page = timeline("&rank=1&node=4&rows=flat")
    page.wait_for_selector("#timeline[data-selected='1:4']")
    x, y = slice_at(page)
    page.mouse.move(x, y)
    page.wait_for_selector(".timeline-tip", state="visible")
    if after == "click":
        page.mouse.click(x, y)
    elif after == "wheel":
        page.mouse.wheel(0, 40)
    else:
        page.keyboard.press(after)
    page.wait_for_selector(".timeline-tip", state="hidden")
    page.wait_for_timeout(300)
    assert not page.locator(".timeline-tip").is_visible()
    page.mouse.move(5, 5)


def test_area_and_its_label_move_with_the_rows(timeline, made):
    page = timeline("&rows=nested&same=apart&fit=off", made.run_b)
    state(page, "t.mark(0, 2e6, t.rows.all.slice(4, 6))")
    label = dict(texts(page))["2.00 ms"]
    page.keyboard.press("ArrowDown")
    moved = state(page, "t.rows.scroll")
    assert moved > 0
    assert dict(texts(page)).get("2.00 ms") in (None, max(label - moved, state(page, "t.rows.top") + 8))
    page.keyboard.press("Escape")
    assert state(page, "t.area") is None


def test_axis_has_three_digits_at_any_zoom(timeline):
    page = timeline()
    for _ in range(4):
        ticks = [text for text, y in texts(page) if y == 34]
        assert len({*ticks}) == len(ticks) > 2
        assert all(len(re.sub(r"\D", "", text).strip("0")) <= 3 for text in ticks if not text.endswith("+"))
        page.keyboard.type("wwwwwwww", delay=5)


@pytest.mark.parametrize("rows", ["flat", "nested"])
def test_page_has_no_empty_space_below(timeline, rows):
    page = timeline(f"&rows={rows}")
    bottom = page.evaluate("() => document.getElementById('timeline-panel').getBoundingClientRect().bottom")
    assert 0 <= 800 - bottom < 40
    between = page.evaluate(
        "() => document.getElementById('timeline-panel').getBoundingClientRect().top"
        " - document.getElementById('timeline').getBoundingClientRect().bottom"
    )
    assert between < 20


def test_rows_and_colours_are_chosen_and_in_the_address(timeline):
    page = timeline()
    levels = "[...new Set(t.rows.all.map((row) => row.source.lanes[row.lane].level))]"
    assert state(page, levels) == ["phase", "module", "slice"]
    page.select_option("#timeline-colour", "operator")
    page.wait_for_selector("#timeline-legend :text('aten::mm')")
    page.select_option("#timeline-rows", "flat")
    page.wait_for_function("() => document.getElementById('timeline').dataset.rows === '4'")
    page.wait_for_url(re.compile("rows=flat.*colour=operator|colour=operator.*rows=flat"))
    page.reload()
    page.wait_for_selector("#timeline[data-slices][data-rows='4']")
    assert page.locator("#timeline-colour").input_value() == "operator"
    page.wait_for_selector("#timeline-legend :text('aten::mm')")


def test_search_marks_all_hits_and_steps_through_them(timeline):
    page = timeline()
    page.keyboard.press("/")
    page.keyboard.type("allreduce", delay=TYPED_MS)
    assert page.locator("#timeline-find").input_value() == "allreduce"
    page.wait_for_selector("#timeline-found:text-is('12 found')")
    page.wait_for_function(
        "() => document.getElementById('timeline').timeline.main.batch.found.some(Boolean)"
    )
    for key, shown in (
        ("Enter", "1 of 12"),
        ("Enter", "2 of 12"),
        ("Shift+Enter", "1 of 12"),
        ("Shift+Enter", "12 of 12"),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(f"#timeline-found:text-is('{shown}')")
        page.wait_for_selector("#timeline-details :text('c10d::allreduce_')")
    page.wait_for_url("**seek=allreduce*")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_selector("#timeline-found:text-is('')", state="attached")


def test_module_slice_sums_its_content(timeline):
    page = timeline("&rows=nested")
    page.mouse.click(*slice_at(page, "module"))
    page.wait_for_selector("#timeline-details .area-table td:text-is('aten::mm')")
    rows = page.locator("#timeline-details .area-table td:nth-child(2)").all_inner_texts()
    assert {"phase", "module", "slice"} <= set(rows)
    page.keyboard.press("Escape")


def test_help_names_the_keys(timeline):
    page = timeline()
    page.keyboard.press("?")
    page.wait_for_selector("#timeline-keys:has-text('fit the selection or the marked area')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#timeline-keys", state="detached")
    page.keyboard.press("w")
    assert state(page, "(t.view.t1 - t.view.t0) / t.view.makespan") < 0.8


def test_equal_ranks_are_one_row_until_expanded(timeline, made):
    page = timeline("&rows=flat", made.run_b)
    assert state(page, "t.rows.all.length") == 4
    assert "ranks 0, 2 … 6" in dict(texts(page))
    page.locator("#timeline-same").click()
    page.wait_for_selector("#timeline[data-rows='16']")
    page.locator("#timeline-filter").type("1-2, 5", delay=TYPED_MS)
    page.wait_for_selector("#timeline[data-rows='6']")
    page.select_option("#timeline-order", "waiting")
    order = "[...new Set(t.rows.all.map((row) => row.group.facts.waiting_ns))]"
    assert state(page, order) == sorted(state(page, order), reverse=True)
    page.get_by_role("button", name="Pin rank 5").click()
    assert state(page, "[t.rows.all[0].group.rank, t.rows.all[0].pinned, t.rows.pinnedCount]") == [5, True, 2]
    page.get_by_role("button", name="Hide rank 2").click()
    page.wait_for_selector("#timeline[data-rows='4']")
    page.wait_for_url(re.compile("(?=.*hidden=2)(?=.*pinned=5)(?=.*same=apart)(?=.*order=waiting)"))


def test_who_came_when_is_drawn_and_leads_to_the_slice(timeline):
    page = timeline()
    page.get_by_role("tab", name="Arrivals").click()
    page.wait_for_selector("#timeline-arrivals svg")
    assert page.locator("#timeline-arrivals circle").count() == 12
    page.locator("#timeline-arrivals circle.last").first.click()
    page.wait_for_selector("#timeline-details :text('all_reduce')")


def test_notes_are_kept_with_the_run_and_lead_back(timeline, made):
    page = timeline("&rank=1&node=4")
    page.wait_for_selector("#timeline[data-selected='1:4']")
    folder = made.study.run_dir(made.run_a)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    page.keyboard.press("t")
    page.keyboard.type("why so late?", delay=TYPED_MS)
    page.keyboard.press("Enter")
    page.wait_for_selector("#timeline[data-notes='1']")
    page.keyboard.type("ffw", delay=TYPED_MS)
    assert {name: (folder / name).read_bytes() for name in before} == before
    page.reload()
    page.get_by_role("tab", name="Notes").click()
    link = page.locator("#timeline-notes a")
    assert re.search(r"rank=1&node=4", link.get_attribute("href"))
    link.click()
    wait_until(page, "t.view.t1 - t.view.t0 < t.view.makespan / 2")
    page.get_by_role("button", name="Remove the note").click()
    page.wait_for_selector("#timeline[data-notes='0']")


def test_note_on_a_range_belongs_to_its_times(timeline, made):
    page = timeline("&measured=1&t0=0&t1=2000000", made.run_b)
    page.keyboard.press("t")
    page.keyboard.type("slow here", delay=TYPED_MS)
    page.keyboard.press("Enter")
    page.wait_for_selector("#timeline[data-notes='1']")
    try:
        link = page.locator("#timeline-notes a")
        assert "times" not in link.inner_text()
        assert not state(page, "t.notes.isElsewhere(t.notes.all[0])")
        page.locator("#timeline-measured").uncheck()
        page.wait_for_selector("#timeline-notes a:has-text('measured times')")
        assert state(page, "t.notes.isElsewhere(t.notes.all[0])")
        assert "measured=1" in link.get_attribute("href")
        link.click()
        wait_until(page, "t.main.measured && t.view.t1 < 5000000")
    finally:
        page.get_by_role("button", name="Remove the note").click()
        page.wait_for_selector("#timeline[data-notes='0']")


def test_second_run_is_drawn_on_the_same_clock(timeline, made):
    page = timeline("&rank=1&node=13&rows=flat")
    page.wait_for_selector("#timeline[data-selected='1:13']")
    page.select_option("#timeline-beside-run", made.run_b)
    wait_until(page, "t.sources.length === 2")
    page.wait_for_selector("#timeline-details dt:text-is('Compared')")
    page.locator("#timeline-align").click()
    assert state(page, "t.sources[1].counterpart.start_ns + t.sources[1].shift") == state(
        page, "t.selection.node.start_ns"
    )
    page.wait_for_url(re.compile("beside="))
    page.locator("#timeline-starts").click()
    assert state(page, "t.sources[1].shift") == 0


def test_keys_go_on_after_an_answer_that_failed(timeline):
    page = timeline("&rank=1&node=4")
    page.wait_for_selector("#timeline[data-selected='1:4']")
    page.route("**/api/node?*", lambda route: route.abort())
    with page.expect_event("requestfailed"):
        page.keyboard.press("[")
    page.unroute("**/api/node?*")
    page.keyboard.type("..", delay=TYPED_MS)
    page.wait_for_function(
        "() => !['', '1:4'].includes(document.getElementById('timeline').dataset.selected)"
    )
    page.complaints.clear()
