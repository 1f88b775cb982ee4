"""Network files that a study keeps: what is taken, what it becomes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from chakrascope.errors import ConfigError
from chakrascope.runner import Study
from chakrascope.runner.study import add_network, network_names, read_network_file

SAMPLES = Path(__file__).parents[1] / "data" / "runner" / "infragraph"
PLAIN = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [10.0], "latency": [500.0]}


@pytest.fixture
def study(tmp_path):
    return Study.create(tmp_path / "s")


def content(**more):
    return yaml.safe_dump(PLAIN | more).encode()


def test_a_network_yaml_is_kept_and_read_as_it_is(study):
    failures = [{"link": [0, 4], "at": "5ms"}]
    assert network_names(study) == []
    assert add_network(study, "mine.yaml", content(failures=failures)) == "mine.yml"
    assert network_names(study) == ["mine.yml"]
    kept = read_network_file(study, "mine.yml")
    assert (kept.name, kept.to_dict()) == ("mine", PLAIN | {"failures": failures})
    assert add_network(study, "mine.yml", content(npus_count=[8])) == "mine-2.yml"
    assert read_network_file(study, "mine-2.yml").num_ranks == 8


def test_json_is_one_too_and_an_infragraph_is_written_out(study):
    assert add_network(study, "a.json", json.dumps(PLAIN).encode()) == "a.yml"
    data = json.loads((SAMPLES / "mi300x.json").read_text(encoding="utf-8"))
    with pytest.raises(ConfigError, match=r"^pod\.json: links without figures"):
        add_network(study, "pod.json", json.dumps(data).encode())
    for link in data["links"]:
        link["physical"] = {"bandwidth": {"gigabits_per_second": 400}, "latency": {"ns": 100}}
    assert add_network(study, "pod.json", json.dumps(data).encode()) == "pod.yml"
    pod = read_network_file(study, "pod.yml")
    assert pod.num_ranks == 8
    assert len(pod.links) == 41


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("../mine.yml", {}, "has a plain name"),
        ("/etc/mine.yml", {}, "has a plain name"),
        (".yml", {}, "has a plain name"),
        ("config.txt", {}, "use the command line"),
        ("mine.yml", {"infragraph": "/etc/passwd"}, "names another file .'infragraph'"),
        ("mine.yml", {"tcp": {"pcap": "/tmp/packets"}}, "names another file .'pcap of tcp'"),
        ("mine.yml", {"bandwidth": [0]}, "'bandwidth' must be more than 0"),
    ],
)
def test_what_is_refused_leaves_nothing(study, name, more, words):
    with pytest.raises(ConfigError, match=words) as caught:
        add_network(study, name, content(**more))
    assert "/tmp/" not in caught.value.message
    assert not study.networks_dir.exists()


@pytest.mark.parametrize("broken", [b"topology: [", b"\xff\xfe\x00", b"[1, 2]", b"", b"a: " + b"[" * 5000])
def test_what_is_no_network_is_refused(study, broken):
    with pytest.raises(ConfigError):
        add_network(study, "mine.yml", broken)


def test_only_files_of_the_study_are_read(study, tmp_path):
    add_network(study, "mine.yml", content())
    (tmp_path / "other.yml").write_bytes(content())
    for name in ("../../other.yml", str(tmp_path / "other.yml")):
        with pytest.raises(ConfigError, match="has no network file"):
            read_network_file(study, name)
    with pytest.raises(ConfigError, match=r"did you mean 'mine\.yml'"):
        read_network_file(study, "mien.yml")
