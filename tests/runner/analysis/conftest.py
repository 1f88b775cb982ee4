"""One study for all tests of analyses, which do not change its runs."""

import pytest
from studies import make_study

from chakrascope.runner.analysis import analyse_run


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("analysis") / "study")


@pytest.fixture(scope="session")
def run(made):
    """Return the first run: 2 ranks, as measured."""
    return analyse_run(made.study, made.run_a)


@pytest.fixture(scope="session")
def simulated(made):
    """Return the second run: 8 ranks, simulated."""
    return analyse_run(made.study, made.run_b)
