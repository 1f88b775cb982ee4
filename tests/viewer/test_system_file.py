"""A system file of one's own fills the form New run in."""

from __future__ import annotations

import json

import pytest

from chakrascope.errors import ConfigError
from chakrascope.viewer.pages._configure_form import read_system, setup_rows
from chakrascope.viewer.queries import Setup

ROWS = setup_rows(Setup.of_presets("hgx-h100-4x8", "default").dimensions)
OWN = {
    "scheduling-policy": "FIFO", "endpoint-delay": 25, "preferred-dataset-splits": 16,
    "all-reduce-implementation": ["direct", "halvingDoubling"], "all-gather-implementation": ["ring", "ring"],
    "reduce-scatter-implementation": ["ring", "ring"], "all-to-all-implementation": ["direct", "direct"],
}  # fmt: skip


def test_a_system_file_fills_the_form_in():
    found = read_system(json.dumps(OWN), "mine.json", ROWS)
    assert [row["all-reduce"] for row in found.rows] == ["direct", "halvingDoubling"]
    assert [row["size"] for row in found.rows] == [row["size"] for row in ROWS]
    assert found.system["endpoint-delay"] == 25
    assert found.remarks == (
        "Loaded from mine.json. Not loaded, as the form has no fields for them: scheduling-policy."
    )
    fewer = read_system(json.dumps(OWN), "mine.json", ROWS[:1])
    assert "It is for 2 dimensions, the network has 1." in fewer.remarks


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"endpoint-delay": -1}', '{"endpoint-delay": "x"}', "[" * 5000]
)
def test_what_is_no_system_file_is_refused(text):
    with pytest.raises(ConfigError):
        read_system(text, "mine.json", ROWS)


@pytest.mark.browser
def test_a_system_file_is_chosen_in_the_browser(visit, made, tmp_path):
    own = tmp_path / "mine.json"
    own.write_text(json.dumps(OWN | {"all-reduce-implementation": ["direct"]}), encoding="utf-8")
    page = visit("/new-run", f"?run={made.run_b}")
    page.wait_for_selector("#new-start:not([disabled])")
    page.locator("#new-system-upload input[type=file]").set_input_files(own)
    page.wait_for_selector("#new-uploaded:has-text('Loaded from mine.json')")
    page.wait_for_selector("#findings:has-text('endpoint-delay: 10 → 25')")
    page.wait_for_url("**endpoint-delay*")
    assert page.complaints == []
