"""The documentation site is complete, can be searched offline, and loads nothing from other hosts."""

import os
import re
import subprocess
import sys

import pytest

from chakrascope.cli import cli

from .pages import ROOT

# What loads when a page is shown; links are for readers to follow.
LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="(?P<address>[^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_of_the_documentation_is_in_the_navigation(site):
    text = (site / "index.html").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert f'href="{address}"' in text, f"{address} is not in the nav of mkdocs.yml"


def test_every_command_is_in_the_reference(site):
    text = (site / "reference" / "commands.html").read_text("utf-8")
    for name in cli.list_commands(None):
        assert f'id="chakrascope-{name}"' in text


def test_what_the_runner_exports_is_in_the_reference(site):
    text = (site / "reference" / "chakrascope.runner.html").read_text("utf-8")
    for name in ("simulate", "critical_path", "Study", "Result"):
        assert f'id="chakrascope.runner.{name}"' in text


def test_nothing_loads_from_a_foreign_host(site):
    for page in site.rglob("*.html"):
        for found in LOADED.finditer(page.read_text("utf-8")):
            if 'rel="canonical"' not in found[0]:
                assert not found["address"].startswith(("http:", "https:", "//")), f"{page}: {found[0]}"


@pytest.mark.browser
def test_search_works_from_the_disk(site, browser):
    page = browser.new_page()
    foreign = []
    page.on("request", lambda request: foreign.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").fill("critical path")
    page.locator(".md-search-result__item").first.wait_for()
    assert not [url for url in foreign if url.startswith("http")]
    page.close()


def test_the_tables_of_a_result_are_described_with_all_their_columns():
    from chakrascope.runner._result import COLUMNS

    text = (ROOT / "docs" / "reference" / "file-formats.md").read_text("utf-8")
    for table, columns in COLUMNS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{table}` |"))
        assert set(columns) <= set(re.findall(r"`(\w+)`", row)), table
