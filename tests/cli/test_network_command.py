"""``chakrascope network``: the figures, the links, and the files it writes."""

from __future__ import annotations

import json

import pytest
import yaml

from chakrascope.cli import main
from chakrascope.runner import NetworkConfig


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["network", *map(str, arguments)])
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def test_a_preset_in_figures(capsys):
    code, out, _ = run(capsys, "clos-2tier-64", "--format", "json")
    facts = json.loads(out)
    assert not code
    assert (facts["ranks"], facts["tiers"], facts["diameter_links"]) == (64, [8, 8], 4)
    code, out, _ = run(capsys, "clos-2tier-64")
    assert "16, by tier 8, 8" in out


def test_links_are_listed_with_their_devices(capsys):
    _, out, _ = run(capsys, "clos-2tier-64", "--links", "--format", "json", "--fail", "64,72")
    rows = json.loads(out)
    assert len(rows) == 127
    assert [rows[0][key] for key in ("a", "b", "name_a", "name_b")] == [0, 64, "rank 0", "switch 64"]
    assert (rows[0]["GB/s"], rows[0]["latency_ns"]) == (49.999861776375, 500.0)


def test_an_infragraph_becomes_our_yaml(capsys, tmp_path, data_dir):
    source = data_dir / "runner" / "infragraph" / "clos.json"
    code, _, err = run(capsys, source)
    assert code
    assert "links without figures" in err
    options = ["--link-default", "*=100Gb/s,1us", "--link-default", "server.nvlink=300GB/s"]
    code, out, _ = run(capsys, source, *options, "--as", "yaml", "-o", tmp_path / "made")
    assert not code
    made = NetworkConfig.load(tmp_path / "made" / "clos.yml")
    assert made.num_ranks == 8
    assert "Assumed: Ranks (xpu) do not forward" in " ".join(out.split())
    assert yaml.safe_load((tmp_path / "made" / "clos.yml").read_text())["devices"][0] == "host.0.xpu.0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["clos-2tier-64", "--as", "yaml"], "--as says what to write and -o where"),
        (["clos-2tier-65"], "did you mean 'clos-2tier-64'"),
        (["clos-2tier-64", "--link-default", "pcie"], "is not LINK=BANDWIDTH,LATENCY"),
        (["ring-8", "--link-default", "pcie=fast"], "'fast' is no bandwidth"),
        (["ring-8", "--fail", "0,5"], "no link between 0 and 5"),
        (["ring-8", "--fail", "0-5"], "no link between 0 and 5"),
        (["ring-8", "--as", "yaml", "-o", "/proc/none"], "cannot be written"),
    ],
)
def test_what_does_not_go_is_said(arguments, words, capsys):
    code, _, err = run(capsys, *arguments)
    assert code
    assert words in " ".join(err.split())
