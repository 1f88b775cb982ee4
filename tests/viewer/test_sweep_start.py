"""Starting a sweep in the browser: what it goes over, what that amounts to, and that nobody names a path."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner import JobStore, list_presets
from chakrascope.viewer import create_app
from chakrascope.viewer.queries.configure import Setup, differences
from chakrascope.viewer.queries.estimate import Load
from chakrascope.viewer.queries.form import Form
from chakrascope.viewer.queries.sweep_form import (
    axis_names,
    decode_axes,
    encode_axes,
    plan_of,
    request_of,
    setup_at,
    suggested,
)

from .conftest import serving
from .studies import make_study

MANY = ",".join(map(str, range(1, 80)))
LOAD = Load(2, 2, 36, (("all-reduce", 6.0, 6e6),))


def form_of(network="cpu-cluster-8", backends=("analytical-unaware",)):
    return Form("w", Setup.of_presets(network, "default"), backends)


@pytest.mark.parametrize("network", list_presets("network"))
def test_every_axis_has_values_to_begin_with_and_they_can_be_swept(network):
    form = form_of(network)
    for key in axis_names(form.setup):
        plan = plan_of(form, [(key, suggested(form.setup, key))], LOAD)
        assert plan.points >= 2, (key, plan)
        for value in plan.over[key]:
            setup_at(form.setup, {key: value})


def test_plan_counts_points_and_time():
    axes = [("network.bandwidth", "1, 2, 4"), ("network.npus_count", "4, 8"), ("", "")]
    plan = plan_of(form_of(), axes, LOAD)
    assert (plan.points, plan.problem, plan.note) == (6, "", "")
    assert plan.over == {"network.bandwidth": [1, 2, 4], "network.npus_count": [4, 8]}
    slower = plan_of(form_of(backends=("ns3",)), axes, LOAD)
    assert slower.seconds > plan.seconds > 1
    assert "33 % of them cannot run" in plan_of(form_of(), [("network.npus_count", "4, 7, 8")], LOAD).note


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ([], "Choose something"),
        ([("network.bandwidth", "fast")], "is no number"),
        ([("network.bandwidth", "1..9")], "a range is for a search"),
        ([("network.bandwidth", "true")], "is no number"),
        ([("network.bandwidth", "[1,2]")], "is no number"),
        ([("network.bandwidth", "1"), ("network.bandwidth", "2")], "chosen twice"),
        ([("network", "/etc/passwd")], "choose from"),
        ([("network", "../net.yml")], "choose from"),
        ([("system.all-reduce-implementation", "rign")], "choose from"),
        ([("system.per-node-custom-implementation", "x")], "cannot be swept over here"),
        ([("network.npus_count", "3, 5")], "No point can run"),
        ([("network.bandwidth", MANY), ("network.latency", MANY)], "6,241 points"),
    ],
)  # fmt: skip
def test_what_cannot_be_swept_says_why(axes, words):
    assert words in plan_of(form_of(), axes, LOAD).problem


@given(
    st.text(max_size=60)
    | st.recursive(st.text(), lambda x: st.lists(x, max_size=6), max_leaves=9).map(json.dumps)
)
def test_address_that_means_nothing_is_no_axis(text):
    names = axis_names(form_of().setup)
    axes = decode_axes(text, names)
    assert decode_axes(encode_axes(axes), names) == [axis for axis in axes if any(axis)]


def test_changed_setup_is_what_the_sweep_starts_from():
    form = form_of("hgx-h100-4x8")
    plan = plan_of(form, [("network.bandwidth[1]", "10, 20")], LOAD)
    assert request_of(form, plan, "s", 1).system == "default"
    changed = Form("w", setup_at(form.setup, {"system.endpoint-delay": 7}), ("ns3",))
    assert differences(changed.setup)
    assert "network" not in axis_names(changed.setup)
    request = request_of(changed, plan, "s", 1)
    assert request.system["endpoint-delay"] == 7
    assert request.backend == "ns3"
    request.arguments()


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("start") / "study").study


@pytest.mark.browser
def test_sweep_is_begun_followed_and_kept_in_the_address(page, mine):
    with serving(create_app(mine)) as address:
        page.goto(f"{address}/new-run?setup=" + quote(json.dumps({"network": "cpu-cluster-8"})))
        page.wait_for_selector("#new-start:not([disabled])")
        page.get_by_role("link", name="Sweep over its settings").click()
        page.wait_for_selector("#sweep-new :text('cpu-cluster-8')")
        choose_axis(page, 0, "Bandwidth (GiB/s)")
        page.wait_for_selector("#sweep-plan :text('4 points')")
        choose_axis(page, 1, "Algorithm of all-reduce")
        page.wait_for_selector("#sweep-plan :text('16 points')")
        page.reload()
        page.wait_for_selector("#sweep-plan :text('16 points')")
        page.locator("#sweep-title").fill("../x")
        page.locator("#sweep-go").click()
        page.wait_for_selector("text=cannot name a sweep")
        page.locator("#sweep-title").fill("by hand")
        page.locator("#sweep-go").click()
        page.wait_for_selector(".job:has-text('Sweep by hand')")
        page.goto("about:blank")
        page.goto(f"{address}/sweep")
        page.wait_for_selector(".job:has-text('Sweep by hand'):has-text('has 16 points')")
        page.wait_for_selector("#sweep-best:has-text('The shortest step is')")
        page.wait_for_selector("#sweep-table .ag-row[row-index='7']")
    assert page.complaints == []
    assert page.foreign == []


@pytest.mark.browser
def test_running_sweep_is_cancelled(page, mine):
    setup = {"backends": ["analytical-aware"], "dimensions": [["Ring", 256, 1.0, 500.0, *["ring"] * 4]]}
    over = [["network.bandwidth", ", ".join(map(str, range(1, 60)))]]
    query = f"setup={quote(json.dumps(setup))}&over={quote(json.dumps(over))}"
    with serving(create_app(mine)) as address:
        page.goto(f"{address}/sweep?{query}")
        page.wait_for_selector("#sweep-go:not([disabled])")
        page.locator("#sweep-title").fill("too long")
        page.locator("#sweep-go").click()
        job = page.locator(".job:has-text('Sweep too long')")
        job.get_by_role("button", name="Cancel").click()
        page.wait_for_selector(".job:has-text('Sweep too long'):has-text('Cancelled')")
    assert page.complaints == []
    assert not [job for job in JobStore(mine).jobs() if job.is_active]


def choose_axis(page, number, title):
    field = f'[id*=\'"field":"key"\'][id*=\'"number":{number}\']'
    page.locator(field).first.click()
    page.get_by_role("option", name=title, exact=True).click()
