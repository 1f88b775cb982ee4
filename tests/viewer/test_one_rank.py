"""A job of one process, such as one GPU: every page opens, and shows one rank."""

from __future__ import annotations

import pytest
from studies import make_workload

from chakrascope.runner import NetworkConfig, Study, get_backend, prepare
from chakrascope.viewer import create_app

from .conftest import READY, serving, watched

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Serve a study with the replay of one rank, and its simulation."""
    study = Study.create(tmp_path_factory.mktemp("alone") / "study")
    prefix = study.add_workload(make_workload(1), "job")
    network = NetworkConfig(("Switch",), (1,), (50.0,), (500.0,))
    for backend in ("replay", "analytical-unaware"):
        experiment = prepare(prefix, "default", network, backend=backend)
        study.add_run(experiment, get_backend(backend).run(experiment), workload="job")
    with serving(create_app(study)) as address:
        yield address


@pytest.mark.parametrize("path", READY)
def test_a_page_of_one_rank_opens_quietly(context, alone, path):
    page = watched(context)
    page.goto(f"{alone}{path}")
    page.wait_for_selector(READY[path], state="attached")
    page.wait_for_load_state("networkidle")
    text = page.locator("body").inner_text()
    page.close()
    assert page.complaints == []
    assert "2 ranks" not in text
    assert "rank 1" not in text.lower()
