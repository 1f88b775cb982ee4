"""Network commands: properties of networks, calibration, and emulation."""

import json
import shutil
from pathlib import Path

import command_line
import pytest
import yaml
from command_line import run

from chakrascope.errors import ConfigError, UsageError
from chakrascope.runner import NetworkConfig, Study
from chakrascope.runner.programs import read_program

# ``chakrascope network``: the properties of a network, its links, and the written files.


def network_run(capsys, *arguments):
    return command_line.run_and_read(capsys, "network", *arguments)


def test_a_preset_in_figures(capsys):
    code, out, _ = network_run(capsys, "clos-2tier-64", "--format", "json")
    facts = json.loads(out)
    assert not code
    assert (facts["ranks"], facts["tiers"], facts["diameter_links"]) == (64, [8, 8], 4)
    code, out, _ = network_run(capsys, "clos-2tier-64")
    assert "16, by tier 8, 8" in out


def test_links_are_listed_with_their_devices(capsys):
    _, out, _ = network_run(capsys, "clos-2tier-64", "--links", "--format", "json", "--fail", "64,72")
    rows = json.loads(out)
    assert len(rows) == 127
    assert [rows[0][key] for key in ("a", "b", "name_a", "name_b")] == [0, 64, "rank 0", "switch 64"]
    assert (rows[0]["GB/s"], rows[0]["latency_ns"]) == (49.999861776375, 500.0)


def test_an_infragraph_becomes_our_yaml(capsys, tmp_path, data_dir):
    source = data_dir / "runner" / "infragraph" / "clos.json"
    code, _, err = network_run(capsys, source)
    assert code
    assert "links without figures" in err
    options = ["--link-default", "*=100Gb/s,1us", "--link-default", "server.nvlink=300GB/s"]
    code, out, _ = network_run(capsys, source, *options, "--as", "yaml", "-o", tmp_path / "made")
    assert not code
    made = NetworkConfig.load(tmp_path / "made" / "clos.yml")
    assert made.num_ranks == 8
    assert "Assumed: Ranks (xpu) do not forward" in " ".join(out.split())
    assert yaml.safe_load((tmp_path / "made" / "clos.yml").read_text())["devices"][0] == "host.0.xpu.0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["clos-2tier-64", "--as", "yaml"], "--as and -o must be given together"),
        (["clos-2tier-65"], "did you mean 'clos-2tier-64'"),
        (["clos-2tier-64", "--link-default", "pcie"], "is not LINK=BANDWIDTH,LATENCY"),
        (["ring-8", "--link-default", "pcie=fast"], "'fast' is not a bandwidth"),
        (["ring-8", "--fail", "0,5"], "no link between 0 and 5"),
        (["ring-8", "--fail", "0-5"], "no link between 0 and 5"),
        (["ring-8", "--as", "yaml", "-o", "/proc/none"], "cannot be written"),
    ],
)
def test_impossible_network_requests_are_errors(arguments, words, capsys):
    code, _, err = network_run(capsys, *arguments)
    assert code
    assert words in " ".join(err.split())


# ``chakrascope calibrate`` on the command line.


@pytest.fixture
def logs(data_dir):
    return str(data_dir / "converter" / "logs")


def test_logs_become_a_network_file_with_a_picture(logs, tmp_path, capsys):
    path = tmp_path / "network.yml"
    assert not run("calibrate", logs, "-o", path)
    told = capsys.readouterr().out
    assert "Network, fitted to flight logs" in told
    assert "Next: chakrascope run STUDY --network" in told
    network = NetworkConfig.load(path)
    assert network.npus_count == (2,)
    assert network.calibration["fitted-on"] == "flight logs"
    assert path.with_suffix(".svg").read_text().startswith("<svg")


@pytest.mark.parametrize("obstacle", [".yml", ".svg"])
def test_a_network_file_and_its_picture_are_written_together_or_not_at_all(logs, obstacle, tmp_path, capsys):
    path = tmp_path / "network.yml"
    path.with_suffix(obstacle).mkdir()
    assert run("calibrate", logs, "-o", path)
    assert f"{path.with_suffix(obstacle)} cannot be written" in " ".join(capsys.readouterr().err.split())
    assert [*tmp_path.iterdir()] == [path.with_suffix(obstacle)]


def test_a_capture_becomes_a_network_file_that_its_study_runs_on(data_dir, tmp_path, capsys):
    study = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "mlp_2", study.path / "traces" / "capture-1")
    path = tmp_path / "network.yml"
    assert not run("calibrate", study.path, "-o", path)
    assert "Not determined" in capsys.readouterr().out
    assert not run("convert", study.path)
    assert not run("run", study.path, "--network", path)
    assert "capture-1" in capsys.readouterr().out


def test_json_and_csv_have_the_figures_of_the_file(logs, tmp_path, capsys):
    path = tmp_path / "network.yml"
    assert not run("calibrate", logs, "-o", path, "--format", "json")
    told = json.loads(capsys.readouterr().out)
    stored = yaml.safe_load(path.read_text())["calibration"]
    assert stored.pop("when")
    assert told == stored
    assert not run("calibrate", logs, "--format", "csv")
    assert capsys.readouterr().out.startswith("dimension,operation,ranks,size_bytes,count")


def test_fixed_figures_are_not_fitted(logs, capsys):
    options = ("--bandwidth", "8Gb/s", "--latency", "1us", "--wire", "1448/1538", "--format", "json")
    assert not run("calibrate", logs, *options)
    (dimension,) = json.loads(capsys.readouterr().out)["dimensions"]
    assert dimension["bandwidth-bytes-per-ns"] == {"known": "given", "value": 1.0}
    assert dimension["latency-ns"] == {"known": "given", "value": 1000.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give a STUDY, LOGS or --hosts"),
        (("LOGS", "--hosts", "loopback"), "LOGS or --hosts"),
        (("LOGS", "--workload", "x"), "--workload names a workload of a STUDY"),
        (("LOGS", "--wire", "2"), "at most 1"),
        (("LOGS", "--wire", "1/0"), "not a fraction"),
        (("LOGS", "--bandwidth", "fast"), "is not a bandwidth"),
        (("LOGS", "--latency", "soon"), "is not a duration"),
        (("LOGS", "--system", "none"), "no system preset"),
        (("LOGS", "-o", "network.txt"), "that ends in .yml"),
        (("nowhere",), "nowhere"),
        (("--hosts", "loopback", "--largest", "5"), "1KiB or more"),
        (("--hosts", "none.yml"), "none.yml"),
    ],
)
def test_bad_input_is_named(arguments, said, logs, capsys):
    assert run("calibrate", *(logs if word == "LOGS" else word for word in arguments))
    told = " ".join(capsys.readouterr().err.split())
    assert said in told
    assert "Traceback" not in told


def test_study_without_measurements_gets_a_next_step(tmp_path, capsys):
    Study.create(tmp_path / "study")
    assert run("calibrate", tmp_path / "study")
    assert "contains no measurements" in capsys.readouterr().err


# ``chakrascope emulate`` on the command line.


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    place = tmp_path_factory.mktemp("workload") / "PREFIX"
    command = [
        "generate",
        "all-reduce",
        "--ranks",
        "2",
        "--size",
        "100KB",
        "--repeats",
        "3",
        "-o",
        str(place),
    ]
    command_line.run(*command)
    return str(place)


def said(capsys, *arguments):
    """Run the command; return its exit status and its whole output as one line."""
    code, out, err = command_line.run_and_read(capsys, "emulate", *arguments)
    return code or 0, " ".join((out + err).split())


def test_a_study_keeps_the_workload_and_each_measurement(prefix, tmp_path, capsys):
    status, told = said(
        capsys, "--workload", prefix, "-o", tmp_path / "study", "--repeat", 2, "--label", "first"
    )
    assert status == 0
    assert "Measured step" in told
    assert "The messages use" in told
    assert "2 repetitions: median" in told
    status, told = said(capsys, tmp_path / "study", "--format", "json")
    assert status == 0
    study = Study.open(tmp_path / "study")
    assert {run.label for run in study.runs()} == {"emulation:loopback on real", "first"}
    assert study.workloads() == ["PREFIX"]


def test_a_program_runs_the_collectives(prefix, tmp_path, capsys):
    chosen = ("--algorithm", "all-reduce=nccl-ring:LL:1")
    status, told = said(capsys, "--workload", prefix, "-o", tmp_path / "study", *chosen)
    assert (status, "Measured step" in told) == (0, True)
    study = Study.open(tmp_path / "study")
    (run,) = study.runs()
    assert study.experiment(run.id).system.all_reduce_programs == ("nccl-ring:LL:1",)
    sent = study.result(run.id).flows["bytes"].sum()
    assert sent == 2 * 2 * 3 * 100_000  # by each of two ranks in three collectives, twice with LL
    status, told = said(capsys, "--workload", prefix, "--algorithm", "ring")
    assert (status, "the collective is missing" in told) == (UsageError.exit_code, True)


def test_without_a_study_nothing_is_kept(prefix, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = command_line.run("emulate", "--workload", prefix, "--format", "json")
    assert not code
    found = json.loads(capsys.readouterr().out)
    assert found["backend"] == "emulation:loopback"
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give a STUDY folder"),
        (["study", "-o", "other"], "STUDY and --output both name a study"),
        (["--workload", "x", "--hosts", "h.yml", "--namespaces", "2"], "--hosts uses a real network"),
        (["--workload", "x", "--link", "1Mbit"], "need --namespaces N"),
        (["--workload", "x", "--namespaces", "2", "--slow", "1"], "--slow must be HOST=RATE"),
    ],
)
def test_contradicting_options_are_errors(arguments, sentence, capsys):
    status, told = said(capsys, *arguments)
    assert status == UsageError.exit_code
    assert sentence in told


def test_a_missing_hosts_file_is_told(prefix, capsys):
    status, told = said(capsys, "--workload", prefix, "--hosts", "nowhere")
    assert status == ConfigError.exit_code
    assert "There is no hosts file 'nowhere'" in told


# `chakrascope algorithm`: inspect, prove and export.


SAMPLES = Path(__file__).parents[1] / "data" / "runner" / "programs"
PLAN = str(SAMPLES / "multi_node_allgather.json.gz")
RING = ["ring", "--collective", "all-reduce", "--ranks", "4"]


def program(capsys, *arguments):
    return command_line.run_and_read(capsys, "algorithm", *arguments)


def test_inspect(capsys):
    code, out, _ = program(capsys, "inspect", PLAN, "--size", "64KiB")
    assert code == 0
    for words in ("all-gather among 8 ranks", "MSCCL++ plan, Simple", "4 in sequence", "holds"):
        assert words in out
    code, out, _ = program(capsys, "inspect", PLAN, "--size", "64KiB", "--format", "json")
    found = json.loads(out)
    assert (found["steps"], found["proof"]["holds"]) == (4, True)
    assert (
        sum(item["size_bytes"] for item in found["traffic"] if item["from"] == 0) == found["most_sent_bytes"]
    )


def test_inspect_traffic(capsys):
    _, out, _ = program(capsys, "inspect", *RING, "--view", "traffic", "--format", "csv", "--size", "4KiB")
    rows = out.split()
    assert rows[0] == "step,from,to,messages,size_bytes"
    assert rows[1] == "1,0,1,1,1024"
    assert len(rows) == 1 + 6 * 4


def test_prove(capsys, tmp_path):
    code, out, _ = program(capsys, "prove", PLAN, str(SAMPLES / "allgather_ring.xml.gz"))
    assert code == 0
    assert out.replace("\n", " ").count("correct in") == 2


def test_prove_prints_errors(capsys, tmp_path):
    path = tmp_path / "ring.xml"
    assert program(capsys, "export", *RING, "--as", "msccl", "-o", str(path))[0] == 0
    assert read_program(path).num_ranks == 4
    path.write_text(path.read_text().replace('type="rrs"', 'type="rcs"', 1))
    code, out, _ = program(capsys, "prove", str(path))
    assert code == 1
    assert "result: rank" in out
    code, out, _ = program(capsys, "prove", str(path), "--format", "json")
    assert json.loads(out)["problems"][0]["kind"] == "result"
    code, _, err = program(capsys, "export", str(path), "-o", str(tmp_path / "none"))
    assert code == 2
    assert "is incorrect" in err
    assert not list(tmp_path.glob("none*"))


def test_export(capsys, tmp_path):
    code, out, _ = program(capsys, "export", PLAN, "--size", "64KiB", "-o", str(tmp_path / "gather"))
    assert code == 0
    assert "8 ranks" in " ".join(out.split())
    assert len(list(tmp_path.glob("gather.*.et"))) == 8


def test_what_a_command_cannot_mean(capsys):
    assert "add --collective and --ranks" in program(capsys, "inspect", "ring")[2].replace("\n", " ")
    refusal = program(capsys, "prove", PLAN, "--ranks", "8")[2].replace("\n", " ")
    assert "apply only to built-in programs" in refusal
    code, _, err = program(capsys, "inspect", "direct", "--collective", "broadcast", "--ranks", "4")
    assert code == 40
    assert "does not support broadcast" in err
    assert program(capsys, "inspect", PLAN, "--size", "much")[0] == 2
