"""The forms New run and Sweep begin from the run on screen; their addresses do not depend on the newest."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from studies import make_study, make_workload

from chakrascope.runner import NetworkConfig, get_backend, prepare
from chakrascope.viewer import create_app
from chakrascope.viewer.queries import Networks, begun_from, decode_form, encode_form

from .conftest import follow, serving


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
    assert "being measured" in " ".join(begun.notes)
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


@pytest.mark.browser
def test_new_run_and_sweep_show_what_they_begin_from(page, imported):
    made, _ = imported
    with serving(create_app(made.study)) as address:
        page.goto(f"{address}/new-run?run={made.run_b}")
        page.wait_for_selector(".begun:has-text('run-b')")
        page.wait_for_selector("#new-start:not([disabled])")
        assert page.locator("#new-workload").input_value() == "hand-made"
        assert page.locator("#new-network").input_value() == "cpu-cluster-8"
        follow(page, "/sweep", f"?run={made.run_b}")
        page.wait_for_selector("#sweep-begins:has-text('hand-made on cpu-cluster-8, by analytical-aware')")
        told = quote(json.dumps({"workload": "newer", "network": "cpu-cluster-2"}))
        follow(page, "/sweep", f"?run={made.run_b}&setup={told}")
        page.wait_for_selector("#sweep-begins:has-text('newer on cpu-cluster-2')")
        follow(page, "/runs")
        page.wait_for_selector("#runs-table [col-id=workload]:has-text('hand-made')")
    assert page.complaints == []
