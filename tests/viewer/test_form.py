"""The form of a new run: its fields, networks and services, and the runs that it starts."""

import dataclasses
import json
import shutil
import zipfile
from io import BytesIO

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from studies import make_study, make_workload, run_in

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import (
    NetworkConfig,
    Study,
    SystemConfig,
    backend_report,
    find_items,
    get_backend,
    list_presets,
    load_groups,
    prepare,
)
from chakrascope.runner.analysis import link_table
from chakrascope.runner.chips import find_chip, save_chip
from chakrascope.runner.engine import ALGORITHMS, TOPOLOGIES
from chakrascope.runner.prediction import Origin, find_machine
from chakrascope.runner.study import add_network, import_item
from chakrascope.viewer import OpenRun, StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _configure
from chakrascope.viewer.pages import _network as network
from chakrascope.viewer.pages._configure import _backends
from chakrascope.viewer.pages._configure_form import read_system, setup_rows
from chakrascope.viewer.pages._sweep_start import start_card
from chakrascope.viewer.queries import (
    Dimension,
    Form,
    Networks,
    Setup,
    axis_names,
    begun_from,
    command_line,
    decode_form,
    differences,
    encode_form,
    experiment_of,
    link_map,
    machine_text,
    systems_for,
)
from chakrascope.viewer.queries._form import first_form

from .conftest import serving

NAMES = ["older", "newest"]
dimensions = st.builds(
    Dimension,
    st.sampled_from(TOPOLOGIES),
    st.integers(0, 1 << 20),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.tuples(*[st.sampled_from(ALGORITHMS)] * 4),
)


@given(
    st.sampled_from(list_presets("network")),
    st.sampled_from(list_presets("system")),
    st.lists(dimensions, min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["endpoint-delay", "peak-perf"]), st.floats(0, 1e6)),
    st.tuples(
        st.lists(st.sampled_from(["replay", "packet", "analytical-aware"]), unique=True),
        st.text(max_size=120),
    ),
)
def test_form_survives_its_address(network, system, rows, keys, others):
    assume(system in systems_for(network))
    setup, (backends, label) = Setup.of_presets(network, system), others
    setup = dataclasses.replace(setup, dimensions=tuple(rows), system=setup.system | keys)
    form = Form("older", setup, tuple(backends), label)
    assert decode_form(encode_form(form, NAMES), NAMES) == form
    assert decode_form(encode_form(form, NAMES), NAMES).ignored == ()


def test_form_nobody_changed_needs_no_text():
    assert encode_form(first_form(NAMES), NAMES) == ""
    assert first_form(NAMES).workload == "newest"


def test_addresses_saved_with_0_1_0_are_read_as_they_were():
    text = (
        '{"workload":"older","network":"hgx-h100-2x8","system":"direct","dimensions":[["Switch",8,100,500,'
        '"ring","ring","ring","direct"],["Ring",2,25.5,1500.0,"direct","ring","ring","direct"]],'
        '"keys":{"endpoint-delay":20,"local-mem-bw":null,"roofline-enabled":1},'
        '"backends":["analytical-aware"],"label":"slower \u00b5"}'
    )
    form = decode_form(text, NAMES)
    assert form.ignored == ()
    assert [row.bandwidth for row in form.setup.dimensions] == [100.0, 25.5]
    assert (form.workload, form.backends, form.label) == ("older", ("analytical-aware",), "slower \u00b5")
    assert (form.setup.system["endpoint-delay"], form.setup.system["roofline-enabled"]) == (20, 1)
    assert "local-mem-bw" not in form.setup.system


def test_a_chip_is_read_again_only_after_its_file_changed(tmp_path):
    assert find_chip("h100") is find_chip("h100")
    own = tmp_path / "own.yml"
    save_chip(find_chip("t4"), own)
    before = find_chip(own)
    save_chip(dataclasses.replace(before, title="Mine"), own)
    assert (find_chip(own) is before, find_chip(own).title) == (False, "Mine")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
PARTS = ("workload", "network", "system", "dimensions", "keys", "backends", "label")
OBJECTS = st.fixed_dictionaries({}, optional=dict.fromkeys(PARTS, JSON))


@given(st.text(max_size=50) | JSON.map(json.dumps) | OBJECTS.map(json.dumps))
def test_address_that_means_nothing_is_the_first_form_or_a_form(text):
    form = decode_form(text, NAMES)
    assert form.workload in NAMES
    assert 1 <= len(form.setup.dimensions) <= 4
    assert len(form.label) <= 120


def test_keys_the_form_does_not_have_stay_the_presets():
    text = json.dumps({"keys": {"all-reduce-implementation-custom": ["/etc/passwd"], "endpoint-delay": 7}})
    system = decode_form(text, NAMES).setup.system
    assert system["endpoint-delay"] == 7
    assert "all-reduce-implementation-custom" not in system


def test_zip_holds_what_astra_sim_reads(client, tmp_path):
    setup = json.dumps({"network": "dgx-a100-8", "keys": {"endpoint-delay": 7}})
    answer = client.get("/export/new-run.zip", query_string={"setup": setup})
    assert answer.data == client.get("/export/new-run.zip", query_string={"setup": setup}).data
    with zipfile.ZipFile(BytesIO(answer.data)) as archive:
        archive.extractall(tmp_path)
    assert NetworkConfig.load(tmp_path / "network.yml").npus_count == (8,)
    assert SystemConfig.load(tmp_path / "system.json").endpoint_delay == 7
    assert sorted(file.name for file in (tmp_path / "workload").iterdir()) == [
        f"workload.{rank}.et" for rank in range(8)
    ]
    readme = (tmp_path / "README.txt").read_text()
    assert "--network-configuration=network.yml" in readme
    assert "chakrascope run STUDY --network network.yml" in readme
    if (tmp_path / "groups.json").exists():
        load_groups(tmp_path / "groups.json")


def test_zip_of_an_invalid_setup_is_explained(client):
    setup = json.dumps({"dimensions": [["Ring", 0, 1.0, 1.0, *["ring"] * 4]]})
    answer = client.get("/export/new-run.zip", query_string={"setup": setup})
    assert (answer.status_code, "at least 2" in answer.text) == (400, True)


@pytest.mark.parametrize(
    "setup",
    [
        "{", "[]", "null", '{"netwrok":"ring-2"}', '{"network":"gone"}', '{"workload":"gone"}',
        '{"dimensions":[["Ring",2.5,1,1,"ring","ring","ring","ring"]]}', '{"dimensions":[]}',
        '{"keys":{"endpoint-delay":[1]}}', '{"keys":{"unknown":1}}', '{"keys":3}', '{"backends":["gone"]}',
    ],
)  # fmt: skip
def test_ignored_keys_of_an_address_are_listed_and_dropped(client, setup):
    assert decode_form(setup, NAMES).ignored
    answer = client.get("/export/new-run.zip", query_string={"setup": setup})
    assert answer.status_code == 400


@pytest.fixture
def networks(tmp_path):
    """Return the networks of a study that keeps a file."""
    own = Study.create(tmp_path / "own")
    text = "topology: [Switch]\nnpus_count: [4]\nbandwidth: [10]\nlatency: [500]\n"
    add_network(own, "mine.yml", (text + "links: [[0, 4, 10, 1], [1, 4, 10, 1]]\n").encode())
    return Networks(own)


def test_an_own_network_and_failures_survive_the_address(networks):
    setup = Setup.of_presets("mine.yml", "default", networks)
    setup = dataclasses.replace(setup, failed=("0,4=0.25@5ms..8ms", "1"))
    form = Form("older", setup, ("packet",))
    again = decode_form(encode_form(form, NAMES), NAMES, networks)
    assert (again, again.ignored) == (form, ())
    assert not again.setup.changed
    assert differences(again.setup) == ["failure: 0,4=0.25@5ms..8ms", "failure: 1"]
    assert again.setup.network_mapping()["failures"] == [
        {"link": [0, 4], "rate": 0.25, "at": "5ms", "until": "8ms"},
        {"device": 1},
    ]
    command = command_line(again.setup, ["packet"])
    assert "--network STUDY/networks/mine.yml" in command
    assert "--fail 0,4=0.25@5ms..8ms --fail 1 --backend packet" in command


def test_a_file_that_has_gone_is_named(networks):
    text = encode_form(Form("older", Setup.of_presets("mine.yml", "default", networks)), NAMES)
    form = decode_form(text, NAMES)
    assert form.ignored == ("There is no network 'mine.yml' here.",)


@pytest.mark.parametrize("failures", ['"0,4"', "[1]", '["a,b,c"]', '["0,4@soon"]', '[""]'])
def test_failures_in_an_address_that_make_no_sense_are_named(failures):
    form = decode_form('{"failures":' + failures + "}", NAMES)
    assert form.setup.failed == ()
    assert len(form.ignored) == 1


# The forms New run and Sweep begin with the settings of the shown run, not of the newest run.


def run_on(study, prefix, network, backend="analytical-aware", workload="hand-made"):
    experiment = prepare(prefix, "default", network, backend=backend)
    return study.add_run(experiment, get_backend(backend).run(experiment), workload=workload)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A study with runs of its first workload, and a newer workload without any."""
    made = make_study(tmp_path_factory.mktemp("begun") / "study")
    own = made.study.path / "own.yml"
    own.write_text("topology: [Ring]\nnpus_count: [4]\nbandwidth: [12.5]\nlatency: [700]\n", encoding="utf-8")
    changed = run_on(made.study, made.study.workload_prefix(None), own)
    made.study.add_workload(make_workload(4), "newer")
    return made, changed


def test_a_form_begins_from_the_run_on_screen(imported):
    made, changed = imported
    begun = begun_from(made.study, made.run_b, Networks(made.study))
    assert (begun.form.workload, begun.form.backends) == ("hand-made", ("analytical-aware",))
    assert begun.form.setup.network_preset == "cpu-cluster-8"
    assert begun.notes == ()
    own = begun_from(made.study, changed, Networks(made.study))
    network, _ = own.form.setup.configs()
    assert network.to_dict() == NetworkConfig.load(made.study.path / "own.yml").to_dict()
    assert own.form.backends == ("analytical-aware",)


def test_a_measurement_has_no_network_to_begin_from_and_says_so(imported):
    made, _ = imported
    begun = begun_from(made.study, made.run_a, Networks(made.study))
    assert begun.form.workload == "hand-made"
    assert "was measured and has no network" in " ".join(begun.notes)
    assert begun_from(made.study, "gone", Networks(made.study)).of == ""


def test_an_address_names_its_workload(imported):
    made, changed = imported
    names = made.study.workloads()
    assert names[-1] == "newer"
    form = begun_from(made.study, changed, Networks(made.study)).form
    text = encode_form(form, names)
    assert json.loads(text)["workload"] == "hand-made"
    assert decode_form(text, names) == form
    assert encode_form(form, names, form) == ""
    assert decode_form("", names, begun=form) == form


def test_new_run_and_sweep_show_what_they_begin_from(imported):
    made, _ = imported
    view = StudyView(made.study)
    shown = str(_configure.layout(view, Selection(made.run_b), "light"))
    for part in ("Based on the run on screen", "run-b", "value='hand-made'", "value='cpu-cluster-8'"):
        assert part in shown
    assert "hand-made on cpu-cluster-8, by analytical-aware" in str(start_card(view, Selection(made.run_b)))
    setup = json.dumps({"workload": "newer", "network": "cpu-cluster-2"})
    selection = Selection(made.run_b).with_option("setup", setup)
    assert "newer on cpu-cluster-2" in str(start_card(view, selection))


# A machine names chips and their network together, as ``--on`` of the command line.


@pytest.fixture(scope="module")
def on_h100(tmp_path_factory, data_dir):
    """A study of a step that was captured on one H100."""
    folder = tmp_path_factory.mktemp("h100")
    (folder / "loose").mkdir()
    shutil.copy(data_dir / "converter" / "kineto" / "bert_small_h100.json.gz", folder / "loose")
    study = Study.create(folder / "study")
    (item,) = find_items(folder / "loose")
    import_item(study, folder / "loose", item.id, "bert", lambda _done, _total: None)
    return study


def test_a_machine_of_another_chip_models_the_compute_times(on_h100):
    networks, prefix = Networks(on_h100), on_h100.workload_prefix("bert")
    own = networks.start("", "", "8xh100", "bert")
    assert "roofline-enabled" not in own.system
    assert machine_text(own) == "8 x h100 (hgx-h100-8): compute times as measured on h100."
    setup = networks.start("", "", "16xa100-80", "bert")
    assert machine_text(setup).startswith(
        "16 x a100-80 (dgx-a100-2x8): compute times from the bf16 peaks of a100-80, a lower bound (100.0 % of"
    )
    assert command_line(setup, ["replay"]) == "chakrascope run STUDY --on 16xa100-80 --backend replay"
    made = experiment_of(setup, prefix, "analytical-unaware")
    machine, origin = find_machine("16xa100-80"), Origin.of(on_h100.workload("bert"))
    assert made.content_hash == prepare(prefix, machine.system(origin), machine.network).content_hash
    assert made.assumptions[0] == machine_text(setup)
    assert "network" not in axis_names(setup)

    changed = dataclasses.replace(setup, system=setup.system | {"peak-perf": 1.0})
    assert "differ from those of 16xa100-80" in machine_text(changed)
    assert "--system system.json" in command_line(changed, ["replay"])
    assert experiment_of(changed, prefix, "analytical-unaware").assumptions == made.assumptions[1:]


def test_a_machine_survives_the_address_and_its_run(on_h100):
    networks = Networks(on_h100)
    setup = networks.start("", "", "8xa100-80", "bert")
    form = Form("bert", setup, ("analytical-unaware",))
    text = encode_form(form, ["bert"])
    assert json.loads(text) == {"workload": "bert", "machine": "8xa100-80"}
    assert decode_form(text, ["bert"], networks) == form
    shown = str(_configure.layout(StudyView(on_h100), Selection().with_option("setup", text), "light"))
    assert "value='8xa100-80'" in shown
    assert decode_form(text, ["bert"]).ignored == ("There is no machine '8xa100-80' here.",)
    experiment = experiment_of(setup, on_h100.workload_prefix("bert"), "analytical-unaware")
    result = get_backend("analytical-unaware").run(experiment)
    run = on_h100.add_run(experiment, result, workload="bert")
    assert begun_from(on_h100, run, networks).form == form


def test_only_machines_and_pairs_that_exist_are_offered(on_h100):
    machines = Networks(on_h100).machines
    assert {"8xh100", "16xh100", "1024xh100"} <= {*machines["h100"]}
    for names in machines.values():
        for name in (names[0], names[-1]):
            assert find_machine(name).chip is not None
    assert {*systems_for("cpu-cluster-8")} == {*list_presets("system")}
    assert [name for name in systems_for("hgx-h100-8") if "roofline" in name] == ["roofline-h100"]
    assert "roofline-tpu-v2" in systems_for("tpu-v2-8x8")
    form = decode_form('{"network":"hgx-h100-8","system":"roofline-v100"}', NAMES)
    assert form.ignored == ("No machine has the network hgx-h100-8 and the peaks of roofline-v100.",)
    assert form.setup.system_preset == "default"


@pytest.mark.parametrize("name", ["/etc/passwd", "../chip.yml", "chip.yml", "x" * 5000, "8xh100.yml"])
def test_a_machine_from_the_browser_is_never_a_path(on_h100, name):
    with pytest.raises(ConfigError, match="There is no machine"):
        Networks(on_h100).start("", "", name)


@pytest.mark.browser
def test_a_machine_is_chosen_in_the_browser(on_h100, page):
    with serving(create_app(on_h100)) as address:
        page.goto(f"{address}/new-run")
        page.wait_for_selector("#new-start:not([disabled])")
        page.locator("#new-cluster").fill("16xa100-80")
        page.get_by_role("option", name="16xa100-80").click()
        page.wait_for_selector("#new-scaling:has-text('from the bf16 peaks of a100-80, a lower bound')")
        page.wait_for_selector("#new-command:has-text('--on 16xa100-80')")
        page.wait_for_selector("#findings:has-text('Changes to 16xa100-80')")
        assert page.locator("#new-network").input_value() == "dgx-a100-2x8"
        assert page.locator("#new-network").is_disabled()
        page.wait_for_url("**%22machine%22%3A%2216xa100-80%22*")
        page.get_by_label("Peak rate").fill("100")
        page.wait_for_selector("#new-scaling:has-text('differ from those of 16xa100-80')")
        page.wait_for_selector("#new-command:has-text('--system system.json')")
        page.locator("#new-cluster").locator("..").locator("button").click()
        page.wait_for_selector("#new-command:has-text('--network dgx-a100-2x8 --system default')")
        page.wait_for_selector("#new-scaling:empty", state="attached")
        page.locator("#new-system").click()
        page.get_by_role("option", name="roofline-a100").wait_for()
        assert not page.get_by_role("option", name="roofline-v100").count()


# The form New run is filled in from a user's system file.

ROWS = setup_rows(Setup.of_presets("hgx-h100-4x8", "default").dimensions)
OWN = {
    "scheduling-policy": "FIFO", "endpoint-delay": 25, "preferred-dataset-splits": 16,
    "all-reduce-implementation": ["direct", "halvingDoubling"], "all-gather-implementation": ["ring", "ring"],
    "reduce-scatter-implementation": ["ring", "ring"], "all-to-all-implementation": ["direct", "direct"],
}  # fmt: skip


def test_a_system_file_fills_the_form_in():
    found = read_system(json.dumps(OWN), "mine.json", ROWS)
    assert [row["all-reduce"] for row in found.rows] == ["direct", "halvingDoubling"]
    assert [row["size"] for row in found.rows] == [row["size"] for row in ROWS]
    assert found.system["endpoint-delay"] == 25
    assert found.remarks == (
        "Loaded from mine.json. Not loaded, as the form has no fields for them: scheduling-policy."
    )
    fewer = read_system(json.dumps(OWN), "mine.json", ROWS[:1])
    assert "The file is for 2 dimensions, but the network has 1." in fewer.remarks


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"endpoint-delay": -1}', '{"endpoint-delay": "x"}', "[" * 5000]
)
def test_what_is_no_system_file_is_refused(text):
    with pytest.raises(ConfigError):
        read_system(text, "mine.json", ROWS)


@pytest.mark.browser
def test_a_system_file_is_chosen_in_the_browser(visit, made, tmp_path):
    own = tmp_path / "mine.json"
    own.write_text(json.dumps(OWN | {"all-reduce-implementation": ["direct"]}), encoding="utf-8")
    page = visit("/new-run", f"?run={made.run_b}")
    page.wait_for_selector("#new-start:not([disabled])")
    page.locator("#new-system-upload input[type=file]").set_input_files(own)
    page.wait_for_selector("#new-uploaded:has-text('Loaded from mine.json')")
    page.wait_for_selector("#findings:has-text('endpoint-delay: 10 → 25')")
    page.wait_for_url("**endpoint-delay*")


# Only services in the user's configuration can be chosen in the browser.

NOTED = "service://127.0.0.1:1/analytical-aware"


@pytest.fixture(autouse=True)
def _noted(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("CHAKRASCOPE_SERVICE", "127.0.0.1:1")


def test_noted_services_are_listed_but_cannot_be_chosen_while_they_do_not_answer():
    choice, _ = _backends(()).children
    listed = {item["value"]: item["disabled"] for item in choice.data}
    assert listed[NOTED] is True
    assert listed["analytical-aware"] is False


def test_an_address_cannot_name_another_host():
    told = json.dumps({"backends": [NOTED, "service://elsewhere.example:80", "service://127.0.0.1:1@x:1"]})
    assert decode_form(told, ["job"]).backends == (NOTED,)


# The Network page of packet-level runs: without links, as for ASTRA-sim's ns-3, and with links.


def test_packets_are_shown_without_links(tmp_path):
    made = make_study(tmp_path / "study")
    run = StudyView(made.study).open(made.run_a)
    facts = {"pause_frames": 7, "drops": 0}
    result = dataclasses.replace(run.result, provenance=run.result.provenance | {"packets": facts})
    shown = str(network.layout(OpenRun(run.view, run.info, result, run.workload), Selection(), "light"))
    assert "records no links" in shown
    assert "Pause frames" in shown


NAMED = {
    "topology": ["Switch"],
    "npus_count": [4],
    "bandwidth": [46.5],
    "latency": [500.0],
    "dimensions": "logical",
    "devices": ["gpu.0", "gpu.1", "gpu.2", "gpu.3", "leaf.0", "leaf.1", "spine.0", "spine.1"],
    "links": [[rank, 4 + rank // 2, 46.5, 500.0] for rank in range(4)]
    + [[leaf, spine, 46.5, 500.0] for leaf in (4, 5) for spine in (6, 7)],
    "packet": {},
}


def packet_run(tmp_path, *failures):
    study = Study.create(tmp_path / "study")
    config = NetworkConfig.from_mapping(NAMED | {"failures": [*failures]}, "here", "fabric")
    run = run_in(study, microbenchmark("all-reduce", 4, 4096), config, backend="packet")
    return StudyView(study).open(run)


def test_switches_have_their_names_and_what_is_down_is_seen(tmp_path):
    run = packet_run(tmp_path, {"link": ["leaf.0", "spine.1"]})
    links = link_table(run.result)
    assert {"leaf.0", "leaf.1", "spine.0", "spine.1"} < {*links["source"]}
    drawn = link_map(run.result, links)
    assert drawn.down["text"].tolist() == ["Failure: link leaf.0 - spine.1 is down from the start."]
    shown = str(network.layout(run, Selection(), "light"))
    assert "link leaf.0 - spine.1 is down" in shown
    assert "1 collective takes" in shown


def test_failed_switch_does_not_renumber_others(tmp_path):
    run = packet_run(tmp_path, {"device": 6})
    links = link_table(run.result)
    assert "spine.0" not in {*links["source"], *links["target"]}
    assert "spine.1" in {*links["source"]}
    assert link_map(run.result, links).down.empty
    assert "every link of spine.0 is down" in str(network.layout(run, Selection(), "dark"))


# ns-3 and ASTRA-sim, which are compiled or installed elsewhere, have separate tests.

BUILT_IN = [row["backend"] for row in backend_report() if row["found"] == "built in"]


@pytest.mark.parametrize(("network", "ranks"), [("cpu-cluster-2", 2), ("dgx-a100-2x8", 16)])
@pytest.mark.parametrize("backend", BUILT_IN)
def test_every_backend_of_the_list_simulates_one_and_two_dimensions(tmp_path, backend, network, ranks):
    microbenchmark("all-reduce", ranks, 4096).save(tmp_path / "job")
    experiment = experiment_of(Setup.of_presets(network, "default"), tmp_path / "job", backend)
    assert get_backend(backend).run(experiment).makespan_ns > 0
