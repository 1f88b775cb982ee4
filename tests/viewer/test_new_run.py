import dataclasses
import json
import re
import zipfile
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.utils import PlotlyJSONEncoder
from studies import make_study, make_workload

from chakrascope.errors import ConfigError
from chakrascope.runner import (
    Job,
    NetworkConfig,
    SystemConfig,
    Traits,
    about_backend,
    backend_names,
    communication_of,
    list_presets,
)
from chakrascope.runner.backends import _base
from chakrascope.runner.config import EXTENSIONS
from chakrascope.runner.engine import COLLECTIVES
from chakrascope.runner.gpu import list_machines
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _configure
from chakrascope.viewer.pages._configure_form import field_states, meanings, read_setup, setup_rows
from chakrascope.viewer.pages._jobs import job_list
from chakrascope.viewer.pages._sweep_start import start_card
from chakrascope.viewer.queries import (
    NUMBER_FIELDS,
    Setup,
    check,
    chosen_backends,
    command_line,
    decode_form,
    differences,
    encode_form,
    fixed_keys_text,
    typed_text,
)

from .conftest import follow, tab_of

# A ring of so many ranks and chunks that messages queue for minutes.
LONG = {
    "dimensions": [["Ring", 1024, 1.0, 500.0, "ring", "ring", "ring", "ring"]],
    "keys": {"preferred-dataset-splits": 64},
    "backends": ["analytical-aware"],
    "label": "endless",
}


def setup_of(network="cpu-cluster-8", **changes):
    setup = Setup.of_presets(network, "default")
    first = dataclasses.replace(setup.dimensions[0], **changes)
    return dataclasses.replace(setup, dimensions=(first, *setup.dimensions[1:]))


def found_in(setup, ranks, backends):
    return check(setup, communication_of(make_workload(ranks)), backends)


def test_failures_are_read_and_wrong_ones_are_errors():
    assert read_setup(typed(), [], setup_of(), " 0,8 ; 1,8=0.5@1ms;").failed == (
        "0,8", "1,8=0.5@1ms",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="Failures: 'a,b,c' is not A,B"):
        read_setup(typed(), [], setup_of(), "0,8; a,b,c")


@pytest.mark.parametrize("network", list_presets("network"))
@pytest.mark.parametrize("system", list_presets("system"))
def test_untouched_presets_give_back_their_files(network, system):
    setup = Setup.of_presets(network, system)
    preset = NetworkConfig.preset(network)
    assert setup.network_mapping() == preset.to_dict()
    assert setup.system_mapping() == SystemConfig.preset(system, preset.dimensions).to_dict()
    assert differences(setup) == []
    assert network in command_line(setup, ["replay"])


def test_changed_preset_is_omitted_from_the_command():
    setup = setup_of(bandwidth=10.0)
    assert differences(setup) == ["dimension 1, bandwidth: 1.164 → 10.0"]
    assert command_line(setup, ["replay"]) == (
        "chakrascope run STUDY --network network.yml --system system.json --backend replay"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": 6, "algorithms": ("halvingDoubling",) * 4}, "power of two"),
        ({"size": 0}, "at least 2"),
        ({"bandwidth": 0.0}, "more than 0"),
        ({"latency": -1.0}, "0 or more"),
        ({"topology": "Torus"}, "Torus"),
        ({"algorithms": ("rign",) * 4}, "ring"),
    ],
)
def test_impossible_setup_is_an_error_with_reason(changes, words):
    found = found_in(setup_of(**changes), 2, ["analytical-unaware"])
    assert found[0].severity == "error"
    assert words in found[0].text


WHOLE = {
    "topology": ["Switch"],
    "npus_count": [2],
    "bandwidth": [10.0],
    "latency": [500.0],
    "links": [[0, 2, 10.0, 500.0], [1, 2, 10.0, 500.0], [0, 3, 10.0, 500.0], [1, 3, 10.0, 500.0]],
    "devices": ["gpu0", "gpu1", "leaf0", "leaf1"],
    "assumptions": ["Links 'nvlink' have 10 GB/s, as given."],
    "failures": [{"link": ["gpu0", "leaf0"], "rate": 0.5}, {"link": [1, 3]}],
    "dimensions": "logical",
    "packet": {"CC_MODE": 1},
    "tcp": {"buffer": "1MiB"},
    "efficiency": {"wire": 0.9415},
    "calibration": {"fitted-on": "the capture capture-1"},
}


def test_nothing_a_network_can_have_is_lost_in_the_form():
    assert {*EXTENSIONS} <= {*WHOLE}
    network = NetworkConfig.from_mapping(WHOLE, "here")
    setup = Setup.of_configs(network, SystemConfig.preset("default", 1))
    assert setup.configs()[0] == network
    assert setup.network_mapping() == WHOLE
    told = fixed_keys_text(setup)
    for words in (
        "4 links",
        "4 named devices",
        "1 assumption",
        "2 failures",
        "only arrange",
        "a part tcp (buffer)",
        "a part efficiency (wire)",
        "a part calibration (fitted-on)",
    ):
        assert words in told
    assert fixed_keys_text(setup_of()) == ""


def test_backends_are_listed_with_reasons_if_unusable(monkeypatch):
    rows = [
        {"backend": "packet", "usable": "yes", "what": "", "found": "built in"},
        {"backend": "ns3", "usable": "no", "what": "", "found": "no ns-3 here"},
    ]
    monkeypatch.setattr(_configure, "backend_report", lambda: rows)
    choice = _configure._backend_list(["packet"])
    assert [entry["disabled"] for entry in choice.data] == [False, True]
    assert choice.data[1]["label"] == "ns3: no ns-3 here"
    assert "every packet of a RoCE network" in str(choice.description)
    assert "TCP" not in str(choice.description)
    assert "TCP" in str(meanings())


def test_every_backend_of_the_command_line_is_offered(monkeypatch):
    monkeypatch.setattr(_base, "_BACKENDS", dict(_base._BACKENDS))
    monkeypatch.setattr("chakrascope.runner._traits._REGISTERED", {})
    entries = _configure._backend_list([]).data
    before = {entry["value"] for entry in entries}
    ours = {"analytical-aware", "analytical-unaware", "auto", "flow", "gpu", "packet", "replay"}
    assert ours <= {entry["value"] for entry in entries if not entry["disabled"]}
    assert before == {*backend_names()} - {"fake"}
    _base.register("newest", _base.get_backend("fake"), Traits("a few words", "What it models."))
    choice = _configure._backend_list(["newest"])
    assert {entry["value"] for entry in choice.data} == {*before, "newest"}
    assert "newest: What it models." in str(choice.description)


def test_own_backends_are_described():
    shipped = [name for name in backend_names() if not name.startswith("astra-sim:")]
    for name in shipped:
        about = about_backend(name)
        assert about.details.endswith(".") == about.offered, name


def test_machine_of_the_gpu_backend_is_part_of_the_form():
    chosen = chosen_backends(["flow", "gpu"], "mi300x")
    assert chosen == ("flow", "gpu:mi300x")
    choice, machine = _configure._backends(chosen).children
    assert (choice.value, machine.value, machine.disabled) == (["flow", "gpu"], "mi300x", False)
    assert machine.data == list_machines()
    assert _configure._backends(["flow"]).children[1].disabled
    assert command_line(setup_of(), chosen).endswith("--backend flow --backend gpu --machine mi300x")
    assert chosen_backends(["gpu"], "h100") == ("gpu",)
    assert chosen_backends(["gpu"], "/etc/passwd") == ()
    text = json.dumps({"backends": ["gpu:mi300x", "gpu", "gpu:/etc/machine.yml", 3]})
    form = decode_form(text, ["job"])
    assert form.backends == ("gpu:mi300x",)
    assert [sentence.split("'")[1] for sentence in form.ignored] == ["gpu", "gpu:/etc/machine.yml", "3"]
    assert decode_form(encode_form(form, ["job"]), ["job"]).backends == form.backends


@given(st.integers(1, 4), st.integers(2, 64))
def test_any_number_of_dimensions_is_a_network(count, size):
    setup = setup_of(size=size)
    setup = dataclasses.replace(setup, dimensions=setup.dimensions[:1] * count)
    assert len(setup.dimensions) == count
    assert NetworkConfig.from_mapping(setup.network_mapping(), "test").num_ranks == setup.num_ranks
    assert all(len(setup.system_mapping()[f"{name}-implementation"]) == count for name in COLLECTIVES)


def test_fields_the_form_does_not_have_are_ignored():
    start = setup_of()
    rows = [
        {"id": {"form": "dimension", "field": name, "number": 0}, "value": value}
        for name, value in (("topology", "Ring"), ("size", 4), ("bandwidth", 2.0), ("latency", "0"))
    ]
    rows += [{"id": {"field": name, "number": 0}, "value": "ring"} for name in COLLECTIVES]
    sent = [
        {"id": {"field": "all-reduce-implementation-custom"}, "value": ["/etc/passwd"]},
        {"id": {"field": "endpoint-delay"}, "value": 7},
    ]
    setup = read_setup(rows, sent, start)
    assert setup.system == {**start.system, "endpoint-delay": 7}
    assert setup.dimensions[0].latency == 0.0
    assert setup.dimensions[0].size == 4


def typed(number=0, **values):
    """Return the fields of one dimension as Dash lists them."""
    row = {"topology": "Ring", "size": "4", "bandwidth": "2", "latency": "10"} | dict.fromkeys(
        COLLECTIVES, "ring"
    )
    return [
        {"id": {"field": name, "number": number}, "value": value} for name, value in (row | values).items()
    ]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("bandwidth", "10 GB/s", 10e9 / 2**30),
        ("bandwidth", "80Gb/s", 10e9 / 2**30),
        ("bandwidth", "9.5 GiB/s", 9.5),
        ("bandwidth", "1e5", 1e5),
        ("bandwidth", "1.164", 1.164),
        ("latency", "1.5 us", 1500),
        ("latency", "2 ms", 2_000_000),
        ("latency", "0", 0),
        ("size", "1e3", 1000),
        ("size", "1,024 ranks", 1024),
    ],
)
def test_numbers_are_taken_as_typed(field, text, value):
    setup = read_setup(typed(**{field: text}), [], setup_of())
    assert getattr(setup.dimensions[0], field) == value


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("bandwidth", "-5"), ("bandwidth", "0"), ("bandwidth", "10 GB"), ("bandwidth", "1e30"),
        ("latency", "-100"), ("latency", ""), ("latency", "1 mile"), ("latency", None),
        ("size", "0"), ("size", "2.5"), ("size", "-3"), ("size", "1e99"), ("size", "nan"),
    ],
)  # fmt: skip
def test_invalid_number_is_an_error_at_its_field(field, text):
    fields = typed(**{field: text})
    wrong, understood = field_states(fields)
    named = dict(zip([item["id"]["field"] for item in fields], wrong, strict=True))
    assert [name for name, problem in named.items() if problem] == [field]
    assert sum(not text for text in understood) == 1
    with pytest.raises(ConfigError, match="Dimension 1, "):
        read_setup(fields, [], setup_of())


@pytest.mark.parametrize("network", list_presets("network"))
def test_fields_filled_from_a_preset_read_back_as_the_preset(network):
    start = Setup.of_presets(network, "default")
    fields = [
        {"id": {"field": name, "number": number}, "value": value}
        for number, row in enumerate(setup_rows(start.dimensions))
        for name, value in row.items()
    ]
    keys = [{"id": {"field": name}, "value": typed_text(start.system.get(name))} for name in NUMBER_FIELDS]
    assert differences(read_setup(fields, keys, start)) == []


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """Return a study to which these tests may add runs."""
    return make_study(tmp_path_factory.mktemp("jobs") / "study").study


@pytest.fixture(scope="module")
def tab(context, mine):
    with tab_of(context, create_app(mine)) as page:
        yield page


@pytest.mark.browser
def test_configure_run_and_open_the_result(visit):
    page = visit("/new-run")
    page.wait_for_selector("#new-start:not([disabled])")
    page.get_by_label("Name of the run").fill("from the browser")
    page.get_by_label("size of dimension 1").fill("15")
    page.wait_for_selector("#new-start[disabled]")
    page.wait_for_selector("#findings :text('multiple of 2')")
    page.get_by_label("size of dimension 1").fill("4")
    page.keyboard.press("Control+Enter")  # before the server has checked the new size
    page.wait_for_selector("#findings :text('repeated 2 times')")
    page.wait_for_selector(".job:has-text('from the browser')")
    page.reload()
    page.wait_for_selector(".job:has-text('from the browser'):has-text('done')")
    page.locator(".job:has-text('from the browser')").get_by_role("link").click()
    page.wait_for_selector("#ranks-table .ag-row[row-index='3']")
    assert page.locator("#run-select").input_value().startswith("from the browser")


@pytest.mark.browser
def test_form_is_in_the_address(visit):
    """Every user of the link sees the same form; Back undoes a change; a preset resets the form."""
    page = visit("/new-run")
    page.wait_for_selector("#new-start:not([disabled])")
    assert "setup" not in page.url
    page.get_by_label("Chunks", exact=True).fill("7")
    page.wait_for_url("**setup=*")
    page.get_by_label("size of dimension 1").fill("8")
    page.locator("#new-dimensions").click()
    page.get_by_role("option", name="2", exact=True).click()
    page.get_by_label("latency of dimension 2").fill("1234")
    page.get_by_label("Name of the run").fill('<b>"x"</b> \u202e&=#')
    page.keyboard.press("Tab")
    page.wait_for_url("**%3Cb%3E*")
    page.reload()
    page.wait_for_selector("#findings :text('multiply to 16 ranks')")
    assert page.get_by_label("latency of dimension 2").input_value() == "1234"
    assert page.get_by_label("Chunks", exact=True).input_value() == "7"
    assert page.get_by_label("Name of the run").input_value() == '<b>"x"</b> \u202e&=#'
    page.get_by_label("size of dimension 1").fill("4")
    page.wait_for_selector("#findings :text('multiply to 8 ranks')")
    page.wait_for_url("**%22Switch%22%2C4*")
    page.go_back()
    page.wait_for_selector("#findings :text('multiply to 16 ranks')")
    assert page.get_by_label("size of dimension 1").input_value() == "8"
    page.locator("#new-network").click()
    page.get_by_role("option", name="hgx-h100-4x8").click()
    page.wait_for_selector("#findings :text('multiply to 32 ranks')")
    assert page.get_by_label("Chunks", exact=True).input_value() == "4"
    page.wait_for_url(lambda url: "dimensions" not in url)


@pytest.mark.browser
def test_what_is_typed_is_never_changed(visit):
    """An invalid field is marked and no run can start; the text stays, and units are accepted and shown."""
    page = visit("/new-run")
    page.wait_for_selector("#new-start:not([disabled])")
    for field, texts in {"bandwidth": ("10 GX/s",), "size": ("",)}.items():
        box = page.get_by_label(f"{field} of dimension 1")
        before = box.input_value()
        for text in texts:
            box.fill(text)
            page.wait_for_selector("#new-start[disabled]")
            page.wait_for_selector(f"#dimension-rows [aria-invalid=true][aria-label^={field}]")
            page.wait_for_selector("#new-zip:has-text('Correct the field')")
            page.keyboard.press("Tab")
            assert box.input_value() == text
            assert page.locator("#new-yaml").is_disabled()
        box.fill(before)
        page.wait_for_selector("#new-start:not([disabled])")
    page.get_by_label("bandwidth of dimension 1").fill("10 GB/s")
    page.wait_for_selector("#dimension-rows .understood:has-text('9.31 GiB/s = 10.0 GB/s')")
    page.get_by_label("latency of dimension 1").fill("1.5us")
    page.wait_for_selector("#dimension-rows .understood:text-is('1.50 µs')")
    page.get_by_label("Endpoint delay").fill("0.5 ns")
    page.wait_for_selector("#system-fields :text('Must be whole')")
    page.get_by_label("Endpoint delay").fill("2 us")
    page.wait_for_selector("#findings :text('endpoint-delay: 10 → 2000')")
    page.wait_for_selector("#findings :text('bandwidth: 1.164 → 9.313225746154785')")


def test_broken_setup_in_the_address_is_told(study):
    asked = Selection().with_option("setup", '{"dimensions":[["Ri')
    for drawn in (_configure.layout(StudyView(study), asked, "light"), start_card(StudyView(study), asked)):
        assert "could not be read" in str(drawn)


UPDATES = re.compile("_dash-update-component")
WATCH_REWRITES = """() => {
    const shown = window.dash_clientside.chakrascope, rewrite = shown.rewrite;
    window.rewrites = [];
    shown.rewrite = (written) => {
        const search = rewrite(written);
        if (written && written.path === "/new-run") { window.rewrites.push(typeof search); }
        return search;
    };
}"""


@pytest.mark.browser
def test_an_answer_after_its_page_was_left_leaves_the_address(visit):
    held = []

    def hold(route):
        late = "new-written.data" in (route.request.post_data or "")
        held.append(route) if late else route.continue_()

    page = visit("/runs")
    page.evaluate(WATCH_REWRITES)
    page.route(UPDATES, hold)
    follow(page, "/new-run", "?setup=" + quote('{"network":"gone"}'))
    page.wait_for_selector("#new-ignored:has-text('could not be read')")
    follow(page, "/sweep")
    page.wait_for_selector("#sweep-new")
    assert page.evaluate("() => window.rewrites") == []
    for route in held[:1]:
        route.continue_()
    page.wait_for_function("() => window.rewrites.length > 0")
    assert "string" not in page.evaluate("() => window.rewrites")
    assert "setup" not in page.url
    page.unroute(UPDATES)


CLICK_AS_THE_LIST_IS_REPLACED = """() => {
    document.querySelector("[aria-label^='Log of job']").click();
    window.dash_clientside.set_props("job-list", {children: null});
}"""


PRESS_AS_THE_LIST_IS_REPLACED = """button => {
    const told = type => new PointerEvent(type, {bubbles: true});
    const other = button.cloneNode(true);
    button.dispatchEvent(told("pointerdown"));
    button.replaceWith(other);
    window.dash_clientside.set_props("jobs-clock", {n_intervals: 1e6});
    other.dispatchEvent(told("pointerup"));
    other.replaceWith(button);
}"""


@pytest.mark.browser
def test_running_job_is_cancelled_and_its_log_is_read(visit):
    """A simulation of minutes: its progress is shown, the page is left, another one stops it."""
    page = visit("/new-run", "?setup=" + quote(json.dumps(LONG)))
    page.locator("#new-start").click()
    page.wait_for_selector(".job:has-text('endless'):has-text('simulated so far')")
    page.reload()
    job = page.locator(".job:has-text('endless')")
    job.get_by_role("button", name="Log").wait_for()
    page.evaluate(CLICK_AS_THE_LIST_IS_REPLACED)
    page.wait_for_selector("#job-log:has-text('log is empty')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#job-log", state="hidden")
    visit("/new-run")
    # A click counts even if the list is redrawn at the same moment.
    job.get_by_role("button", name="Cancel").evaluate(PRESS_AS_THE_LIST_IS_REPLACED)
    page.wait_for_selector(".job:has-text('endless'):has-text('Cancelled.')")


@pytest.mark.browser
def test_setup_is_downloaded_as_the_files_astra_sim_reads(visit, tmp_path):
    page = visit("/new-run")
    page.wait_for_selector("#new-start:not([disabled])")
    for button, load in (("new-yaml", NetworkConfig.load), ("new-json", SystemConfig.load)):
        with page.expect_download() as caught:
            page.locator(f"#{button}").click()
        caught.value.save_as(tmp_path / caught.value.suggested_filename)
        load(tmp_path / caught.value.suggested_filename)
    with page.expect_download() as caught:
        page.get_by_role("link", name="All files as a zip").click()
    with zipfile.ZipFile(caught.value.path()) as archive:
        assert archive.testzip() is None
        assert {"README.txt", "memory.json", "network.yml", "system.json"} <= set(archive.namelist())
        # The setup is that of the shown run, the newest of any previous test.
        assert "workload/workload.0.et" in archive.namelist()
    command = page.locator("#new-command").inner_text()
    assert re.match(r"chakrascope run STUDY --network [\w.-]+ --system [\w.-]+ --backend", command)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("queued", ["queued", "Cancel", "Waiting for other jobs"]),
        ("running", ["running", "Cancel", "1.50 ms simulated so far, 3 of 8 ranks finished"]),
        ("done", ["done", "Open the result"]),
        ("failed", ["failed", "no such link"]),
        ("cancelled", ["cancelled"]),
    ],
)
def test_job_shows_its_current_state(state, words):
    job = Job(
        id=7, kind="simulation", experiment="abc", label="", workload="w", backend="fake", network="net",
        state=state,
        message="no such link" if state == "failed" else "", attempts=1, cancel_asked=0.0, pid=0,
        simulated_ns=1_500_000, done=3, total=8, created=0.0, started=0.0, ended=0.0,
    )  # fmt: skip
    shown = json.dumps(job_list([job], {"abc"}), cls=PlotlyJSONEncoder)
    assert all(word in shown for word in ["fake on net", *words])
    assert ("Open the result" in shown) == (state == "done")
    assert ("Cancel" in shown) == (state in ("queued", "running"))


def test_without_jobs_no_list_is_shown():
    assert job_list([], set()) is None
