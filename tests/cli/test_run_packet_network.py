"""``chakrascope run`` on ASTRA-sim's packet-level files: config.txt and the logical topology beside it."""

from __future__ import annotations

import json
from pathlib import Path

import command_line
import pytest

TOPOLOGY = "5 1 4\n4\n" + "".join(f"{host} 4 400Gbps 0.0005ms 0\n" for host in range(4))


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return a folder with a config.txt, its topology of four hosts and a logical topology of two by two."""
    (tmp_path / "topology.txt").write_text(TOPOLOGY)
    (tmp_path / "config.txt").write_text("CC_MODE 12 TOPOLOGY_FILE topology.txt L2_ACK_INTERVAL 1\n")
    (tmp_path / "logical.json").write_text('{"logical-dims": ["2", "2"]}')
    return tmp_path


@pytest.mark.parametrize("option", ["--logical-topology", "--logical-topology-configuration"])
def test_the_logical_topology_arranges_the_hosts(
    cluster: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert command_line.run("generate", "all-reduce", "-o", str(cluster / "w"), "--ranks", "4") == 0
    arguments = ["run", "--workload-configuration", str(cluster / "w"), "--format", "json"]
    arguments += ["--network", str(cluster / "config.txt")]
    capsys.readouterr()
    assert command_line.run(*arguments) == 0
    flat = json.loads(capsys.readouterr().out)
    assert command_line.run(*arguments, option, str(cluster / "logical.json")) == 0
    arranged = json.loads(capsys.readouterr().out)
    # Two dimensions of two ranks take other steps than one of four.
    assert arranged["makespan_ns"] != flat["makespan_ns"]
    # Such a file describes packets, so packets are what answers unless another backend is named.
    assert flat["backend"] == arranged["backend"] == "packet"


@pytest.mark.parametrize("network", [["--network", "hgx-h100-8"], []])
def test_a_logical_topology_needs_a_config_txt(
    cluster: Path, capsys: pytest.CaptureFixture[str], network: list[str]
) -> None:
    arguments = ["run", "study", "--backend", "replay", "--logical-topology", str(cluster / "logical.json")]
    assert command_line.run(*arguments, *network) == 2
    assert "--network config.txt" in capsys.readouterr().err.replace("\n", " ")


def test_a_wrong_logical_topology_is_named(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "logical.json").write_text('{"logical-dims": ["2", "x"]}')
    arguments = ["run", "study", "--network", str(cluster / "config.txt")]
    assert command_line.run(*arguments, "--logical-topology", str(cluster / "logical.json")) == 40
    assert "logical-dims" in capsys.readouterr().err.replace("\n", " ")
