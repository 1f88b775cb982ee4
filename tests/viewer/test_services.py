"""Only the services that the user has noted can be chosen in the browser."""

import json

import pytest

from chakrascope.viewer.pages._configure import _backends
from chakrascope.viewer.queries import decode_form

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
