import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fidelity_report.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("fidelity_report", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(script):
    grid = script.run_grid(
        ["all-reduce", "incast"], {"1 KiB": 1024}, ["ring-8", "clos-16"], script.BACKENDS[:2]
    )
    return script.errors(grid.assign(packet=2 * grid["analytical-unaware"]))


def test_errors_are_relative_to_the_measure(table):
    assert len(table) == 2 * 2 * 2
    assert (table.loc[table["backend"] == "analytical-unaware", "error"] == -0.5).all()
    aware = table[table["backend"] == "analytical-aware"]
    # Fifteen messages share the last link to the first rank.
    assert aware.set_index(["network", "pattern"]).loc[("clos-16", "incast"), "error"] > -0.5


def test_the_page_has_every_experiment(script, table):
    lines = script.report(table).splitlines()
    assert (
        sum(line.startswith(("| ring-8 | all-reduce | 1 KiB", "| clos-16 | incast |")) for line in lines) == 2
    )
    assert "| ring-8 | analytical-unaware | 2 | 50.0% | 50.0% | 0 |" in lines


def test_the_figure_has_a_cell_for_each_error(script, table):
    cells = ET.fromstring(script.draw(table)).findall("{*}rect")
    assert len(cells) == 1 + len(table)


def test_every_network_of_the_grid_exists(script):
    assert {script.load(name).num_ranks for name in script.NETWORKS} == {8, 16}
