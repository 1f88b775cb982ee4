"""The notebooks of the examples run, and show what they have stored; results show themselves safely."""

from __future__ import annotations

import importlib.util
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from studies import HOSTILE, make_study

from chakrascope.runner import compare, critical_path, diff_steps, measured_result
from chakrascope.runner.analysis import side_of

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
ALLOWED = {"div", "table", "thead", "tbody", "tr", "th", "td", "svg", "text", "rect", "title"}


@pytest.fixture(scope="module")
def runner():
    specification = importlib.util.spec_from_file_location("run_notebook", ROOT / "scripts/run_notebook.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def outputs(notebook):
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_shows_what_it_has_stored(file, runner):
    """After a change on purpose: ``python scripts/run_notebook.py examples/notebooks/*.ipynb``."""
    stored = nbformat.read(file, as_version=4)
    nbformat.validate(stored)
    assert outputs(runner.run(file)) == outputs(stored)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.attributes = [], set()

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    made = make_study(tmp_path_factory.mktemp("notebook") / "study")
    workload, result = made.study.run_workload(made.run_a), made.study.result(made.run_a)
    path = critical_path(result, workload)
    comparison = compare([measured_result(workload), result], workload)
    difference = diff_steps(side_of(made.study, made.run_a, name=HOSTILE), side_of(made.study, made.run_b))
    return [
        result,
        path,
        path.figure("operator"),
        comparison,
        comparison.figure(),
        difference,
        difference.figure(),
    ]


def test_names_of_others_are_text_and_nothing_is_loaded(shown):
    for value in shown:
        html = value._repr_html_()
        tags = Tags()
        tags.feed(html)
        assert set(tags.found) <= ALLOWED
        assert not tags.attributes & {"src", "href", "onerror", "onload"}
        assert "\u202e" not in html
        assert "url(" not in html
        assert len(html) < 60_000, "a name of 10,000 characters is cut"


def test_colours_are_the_notebooks_own(shown):
    """Neither ink nor ground is set, so that what is shown is legible on light and dark ones."""
    for value in shown:
        html = value._repr_html_()
        assert "color:inherit" in html or 'fill="currentColor"' in html
        for ground in ("background:#", "background-color", "color:#000", "color:black"):
            assert ground not in html


def test_figures_are_written_as_pictures(shown, tmp_path):
    figure = shown[2]
    figure.save(tmp_path / "path.svg")
    assert (tmp_path / "path.svg").read_text().startswith("<svg")


def test_a_table_that_lacks_values_shows_nothing_there():
    from chakrascope.runner._notebook import html_table

    html = html_table(pd.DataFrame({"a_ns": [1_500, None], "share": [0.5, None]}))
    assert "1.50 µs" in html
    assert "nan" not in html.lower()
