"""What CONTRIBUTING says of a new backend: one file, and everything asks its traits."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
from workloads import coll, comp, workload

from chakrascope.errors import ConfigError
from chakrascope.runner import (
    NetworkConfig,
    SystemConfig,
    Traits,
    about_backend,
    check_setup,
    communication_of,
    simulate,
)
from chakrascope.runner import backends as backends_of
from chakrascope.runner.analysis import summarize
from chakrascope.runner.backends import FakeBackend

TOY = '''
"""A backend in one file: every message takes a microsecond."""

from chakrascope.runner import Traits, register
from chakrascope.runner.backends import FakeBackend

register(
    "toy",
    FakeBackend(communication_ns=1000),
    Traits(what="every message takes 1 us", charges="charges every message 1 us", dimensions_only=True),
)
'''
JOB = workload(*[[comp(0, 500), coll(1, 1 << 20, (0,)), comp(2, 9, (1,))] for _ in range(4)])


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setattr("chakrascope.runner.backends._base._BACKENDS", {})
    monkeypatch.setattr("chakrascope.runner._traits._REGISTERED", {})
    (tmp_path / "toy_backend.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_backend", raising=False)
    import_module("toy_backend")


@pytest.mark.usefixtures("toy")
def test_a_backend_of_one_file_simulates_and_its_traits_are_asked():
    result = simulate(JOB, "default", NetworkConfig(("Ring",), (4,), (50.0,), (500.0,)), backend="toy")
    assert result.makespan_ns == 1509
    assert summarize(result, JOB).makespan_ns == 1509
    assert "toy" in backends_of.backend_names()
    assert {row["backend"]: row["what"] for row in backends_of.backend_report()}["toy"] == (
        "every message takes 1 us"
    )
    assert about_backend("toy").dimensions_only
    # It sees no links: who checks a setup for it says so, without knowing its name.
    failing = NetworkConfig.from_mapping(
        {
            "topology": ["Switch"],
            "npus_count": [4],
            "bandwidth": [50.0],
            "latency": [500.0],
            "failures": [{"device": 4}],
        },
        "toy",
    )
    found = check_setup(failing, SystemConfig.preset("default"), communication_of(JOB), ["toy"])
    assert any("'toy' knows no links" in finding.text for finding in found)


@pytest.mark.usefixtures("toy")
def test_its_name_is_taken_once():
    with pytest.raises(ConfigError, match="already a backend called 'toy'"):
        backends_of.register("toy", FakeBackend())


def test_a_backend_that_says_nothing_of_itself_has_traits_all_the_same(monkeypatch):
    monkeypatch.setattr("chakrascope.runner.backends._base._BACKENDS", {})
    backends_of.register("own", FakeBackend())
    assert about_backend("own") == Traits()
