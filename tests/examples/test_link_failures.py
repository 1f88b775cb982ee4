"""The example of failures gives the figures its page has."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "link_failures"


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("link_failures_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    """Return the figures of the page, by failure and column."""
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [
        [cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"
    ]
    header, _, *body = rows
    return {
        (row[0], column): float(value)
        for row in body
        for column, value in zip(header[1:], row[1:], strict=True)
    }


@pytest.mark.parametrize("backend", ["analytical-aware", "packet"])
def test_the_page_has_the_figures(example, page, backend):
    table = example.costs([backend])
    found = {(name, column): value for column in table for name, value in table[column].items()}
    assert found == {place: value for place, value in page.items() if place[1].endswith(backend)}
    assert len(found) == 2 * len(example.FAILURES)
