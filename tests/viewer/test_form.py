"""The form of a new run as text in an address, what is made of it, and how long it would take."""

import dataclasses
import json
import zipfile
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner import NetworkConfig, Study, SystemConfig, list_presets, load_groups
from chakrascope.runner.engine import ALGORITHMS, TOPOLOGIES
from chakrascope.runner.study import add_network
from chakrascope.viewer import create_app
from chakrascope.viewer.queries import (
    Dimension,
    Form,
    Networks,
    Setup,
    command_line,
    decode_form,
    differences,
    encode_form,
)
from chakrascope.viewer.queries._form import first_form

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


def test_zip_holds_what_astra_sim_reads(study, tmp_path):
    client = create_app(study).server.test_client()
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


def test_zip_of_what_cannot_run_says_why(study):
    client = create_app(study).server.test_client()
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
def test_what_an_address_says_in_vain_is_named_and_never_given_out(study, setup):
    assert decode_form(setup, NAMES).ignored
    answer = create_app(study).server.test_client().get("/export/new-run.zip", query_string={"setup": setup})
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
