"""Every backend that the page New run offers is run from the browser."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from studies import make_study

from chakrascope.runner import backend_report
from chakrascope.viewer import create_app

from .conftest import serving


@pytest.mark.browser
def test_every_backend_of_the_list_simulates_a_preset(page, tmp_path):
    """ns-3 and ASTRA-sim, which are compiled or installed elsewhere, have tests of their own."""
    made = make_study(tmp_path / "study")
    built_in = [row["backend"] for row in backend_report() if row["found"] == "built in"]
    setup = quote(json.dumps({"network": "cpu-cluster-2", "backends": built_in}))
    with serving(create_app(made.study)) as address:
        page.goto(f"{address}/new-run?run={made.run_b}&setup={setup}")
        page.locator("#new-start:not([disabled])").click()
        page.locator(".job a").nth(len(built_in) - 1).wait_for()
        assert page.locator(".job:has-text('done')").count() == len(built_in)
    backends = {info.backend.partition(":")[0] for info in made.study.runs()}
    assert backends == {*built_in}
    assert page.complaints == []
