"""``chakrascope diagnose`` on runs, tables of operations and production logs."""

import csv
import io
import json
import shutil
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import command_line
import pytest
from command_line import run_and_read
from kineto_trace import KinetoTrace
from log_files import Job, straggling_job
from noisy_runs import star, training
from studies import make_study, run_in

from chakrascope.converter import CollectiveType, Workload
from chakrascope.converter.chakra import GAP
from chakrascope.runner import Study
from chakrascope.runner.analysis import TABLES, analyse_run

from ..step_times import data_parallel_job


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Study.create(tmp_path_factory.mktemp("diagnose") / "study")
    for slow, backend in ((None, "flow"), (2, "flow"), (None, "analytical-unaware")):
        run_in(made, training(4, 8, CollectiveType.ALL_REDUCE), star(4, slow, 0.5), backend=backend)
    return made


def run_of(study, *, backend="flow", slow=False):
    for info in study.runs():
        rates = {link.bandwidth for link in study.experiment(info.id).network.links}
        if info.backend == backend and (len(rates) > 1) == slow:
            return info.id
    raise AssertionError


def shown(capsys, study, *options):
    assert command_line.run("diagnose", study.path, *options) == 0
    return capsys.readouterr().out


def test_slow_nic_is_reported_with_a_next_step(study, capsys):
    run = run_of(study, slow=True)
    text = shown(capsys, study, "--run", run)
    for part in ("NIC of rank 2", "slow NIC", "of its peers' rate", "Check the negotiated speed"):
        assert part in text
    assert f"--run {run} --view flows" in text


def test_json_holds_the_messages_that_show_it(study, capsys):
    run = run_of(study, slow=True)
    told = json.loads(shown(capsys, study, "--run", run, "--format", "json"))
    (one,) = told["anomalies"]
    assert (one["what"], one["hosts"]) == ("slow NIC", ["rank 2"])
    flows = study.result(run).flows.loc[[row["flow"] for row in one["evidence"]]]
    assert ((flows["src"] == 2) | (flows["dst"] == 2)).all()
    assert one["cost_low_ns"] <= one["cost_ns"] <= one["cost_high_ns"]


def test_csv_is_the_table_of_the_run(study, capsys):
    run = run_of(study, slow=True)
    rows = list(csv.DictReader(io.StringIO(shown(capsys, study, "--run", run, "--format", "csv"))))
    table = TABLES["anomalies"](analyse_run(study, run))
    assert [row["where"] for row in rows] == table["where"].tolist() == ["NIC of rank 2"]


def test_a_sound_run_has_none(study, capsys):
    assert "No slow host, NIC or link stands out from the noise in " in shown(
        capsys, study, "--run", run_of(study)
    )


def test_a_run_without_messages_says_so(study, capsys):
    text = shown(capsys, study, "--run", run_of(study, backend="analytical-unaware"))
    assert "no records of messages" in text


# Tables of operations on the command line: output, formats, and refused options.

DATA = Path(__file__).parents[1] / "data" / "runner" / "stragglers"
TABLE = DATA / "slow-worker.parquet"


def test_kineto_traces_are_diagnosed_without_a_study(data_dir, capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    traces = sorted((data_dir / "converter" / "mlp_2").glob("*.device.json.gz"))
    code, out, _ = run_and_read(capfd, "diagnose", *traces, "--format", "json")
    assert code == 0
    assert json.loads(out)["slowest_rank"]["rank"] in (0, 1)
    assert Study.is_study(next(tmp_path.glob("chakrascope/replays/*/*")))


def test_the_answer_names_the_slow_worker(capfd):
    code, out, _ = run_and_read(capfd, "diagnose", TABLE)
    assert code == 0
    first, *lines = out.splitlines()
    assert first == (
        "Stragglers make the job 1.975 times as slow as it is without them "
        "(16 workers: 4 replicas of 4 stages; 2 steps)."
    )
    assert "(M_W): 0.985, without the last stage (M_S): -0.001." in out
    assert any(
        line.startswith("1. Slow worker: rank 0 (dp_rank 0, stage 0), in all steps.") for line in lines
    )
    assert "    rank 0 ##" in lines
    assert "   rank 60 -." in out
    assert lines[-1] == f"Next: chakrascope diagnose {TABLE} --view steps"


def test_json_and_csv(capfd):
    _, out, _ = run_and_read(capfd, "diagnose", DATA / "long-stage.parquet", "--format", "json")
    facts = json.loads(out)
    expected = json.loads((DATA / "expected.json").read_text())["long-stage"]
    assert facts["kind"] == "operations"
    assert facts["slowdown"] == pytest.approx(expected["slowdown"], rel=1e-5)
    assert facts["causes"][0]["kind"] == "stage"
    assert facts["causes"][0]["steps"] == [23, 263, 1048]
    assert {row["step"]: row["stage 3"] for row in facts["steps"]} == pytest.approx(
        {int(step): by["3"] for step, by in expected["by_stage"].items()}, rel=1e-5
    )
    assert len(facts["heat-map"]) == len(facts["workers"]) == 8
    _, out, _ = run_and_read(capfd, "diagnose", TABLE, "--view", "heat-map", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 16
    assert float(rows[0]["step 27"]) > 1.9
    _, out, _ = run_and_read(capfd, "diagnose", TABLE, "--view", "workers", "--format", "json")
    assert json.loads(out)[0]["rank"] == 0


def test_refused(tmp_path, capfd):
    code, _, err = run_and_read(capfd, "diagnose", TABLE, "--view", "speeds")
    assert code == 2
    assert "causes, types, workers, steps, heat-map" in err
    for wrong in ([TABLE, TABLE], [TABLE, "--run", "measured"]):
        code, _, err = run_and_read(capfd, "diagnose", *wrong)
        assert code == 2
        assert "name one TABLE without --run" in err
    code, _, err = run_and_read(capfd, "diagnose", TABLE, "--format", "csv")
    assert code == 2
    assert "CSV holds one table" in err
    (tmp_path / "bad.csv").write_text("step,optype\n1,forward-compute\n")
    code, _, err = run_and_read(capfd, "diagnose", tmp_path / "bad.csv")
    assert code == 21
    assert "has no column 'dp_rank'" in err


def every_tenth(number):
    return number % 10 == 5


@pytest.mark.parametrize(
    ("planted", "sentence"),
    [
        ({"slow": 2}, "Slow worker: rank 2 (dp_rank 2, stage 0), in all steps."),
        (
            {"slow": 2, "wanted": every_tenth},
            "Slow worker: rank 2 (dp_rank 2, stage 0), in 4 of 40 steps, every 10th.",
        ),
        ({"slow": 1, "phase": "loader"}, "Late input: rank 1 (dp_rank 1, stage 0), in all steps."),
        (
            {"slow": 3, "phase": "pause", "wanted": every_tenth},
            "Garbage collection: rank 3 (dp_rank 3, stage 0), in 4 of 40 steps, every 10th.",
        ),
        (
            {"slow": 9, "wanted": lambda number: number >= 20},
            "Slow transfer: collectives of stage 0, in 20 of 40 steps, since step 20.",
        ),
        ({}, ""),
    ],
)
def test_recorded_steps_name_the_cause_alone(capfd, tmp_path, planted, sentence):
    study = tmp_path / "study"
    Study.create(study)
    data_parallel_job(study / "traces" / "capture-1", **planted)
    _, out, _ = run_and_read(capfd, "diagnose", study)
    assert (f"\n1. {sentence}" if sentence else "No worker, stage, link or host makes") in out
    assert "\n2. " not in out
    _, of_folder, _ = run_and_read(capfd, "diagnose", study / "traces" / "capture-1")
    assert of_folder == out


def test_a_recording_that_has_not_ended_is_named(capfd, tmp_path):
    recording = data_parallel_job(Study.create(tmp_path / "job").new_trace_dir())
    (recording / "manifest.json").unlink()
    code, _, err = run_and_read(capfd, "diagnose", tmp_path / "job")
    assert code == 20
    assert "capture-1 has no manifest yet: its job is still running" in " ".join(err.split())


def test_a_run_is_explained_where_it_is_named(capfd, tmp_path):
    Study.create(tmp_path / "study")
    data_parallel_job(tmp_path / "study" / "traces" / "capture-1")
    code, _, err = run_and_read(capfd, "diagnose", tmp_path / "study", "--run", "abc")
    assert code != 0
    assert "has no run yet" in err
    code, _, err = run_and_read(capfd, "convert", tmp_path / "study")
    assert code != 0
    assert "chakrascope diagnose" in err


# Production logs on the command line: output, formats, and refused options.


@pytest.fixture
def logs(tmp_path):
    return straggling_job().write(tmp_path / "logs")


@pytest.fixture
def hang(tmp_path):
    job = Job(2)
    job.collective()
    job.collective(missing=(1,))
    return job.write(tmp_path / "hang")


def test_inspect_names_the_straggler_and_prints_all_tables(logs, capfd):
    code, out, _ = run_and_read(capfd, "diagnose", logs)
    assert code == 0
    assert "Rank 3 comes last in " in out
    for title in ("Ranks that arrive last", "Collectives", "Speed by size, for calibration"):
        assert title in out
    assert out.splitlines()[-1] == f"Next: chakrascope convert {logs} -o PREFIX"
    code, out, _ = run_and_read(capfd, "diagnose", *sorted(logs.iterdir()), "--view", "speeds")
    assert "Ranks that arrive last" not in out
    assert "Speed by size" in out


def test_inspect_as_json_and_csv(logs, capfd):
    _, out, _ = run_and_read(capfd, "diagnose", logs, "--format", "json")
    facts = json.loads(out)
    assert facts["ranks"] == [0, 1, 2, 3]
    assert facts["groups"]["tp-1"] == [2, 3]
    assert facts["clocks"] == {"source": "ends", "ahead_ns": {}, "spread_ns": 0}
    assert facts["stragglers"][0]["rank"] == 3
    assert facts["findings"] == []
    assert len(facts["collectives"]) == 20
    for show, rows in (("collectives", 20), ("stragglers", len(facts["stragglers"])), ("speeds", 3)):
        _, out, _ = run_and_read(capfd, "diagnose", logs, "--view", show, "--format", "csv")
        assert len(list(csv.DictReader(io.StringIO(out)))) == rows
    code, _, err = run_and_read(capfd, "diagnose", logs, "--format", "csv")
    assert code == 2
    assert "CSV holds one table" in err


def test_json_has_no_rate_of_collectives_that_take_no_time(tmp_path, capfd):
    job = Job(2)
    job.collective(floats=4, transfer_us=0)
    _, out, _ = run_and_read(capfd, "diagnose", job.write(tmp_path / "logs"), "--format", "json")
    (speed,) = json.loads(out, parse_constant=pytest.fail)["speeds"]
    assert (speed["transfer_ns"], speed["bus_bytes_per_ns"]) == (0, None)


def test_a_hang_is_named_by_every_command(hang, capfd, tmp_path):
    said = "did not complete: rank 0 issued it, rank 1 never did."
    out = run_and_read(capfd, "diagnose", hang)[1]
    assert said in out
    assert "Next: " not in out  # the findings include the remedy
    code, out, _ = run_and_read(capfd, "doctor", hang)
    assert (code, said in out) == (1, True)
    code, _, err = run_and_read(capfd, "convert", hang, "-o", tmp_path / "w")
    assert (code, said in err) == (20, True)
    assert run_and_read(capfd, "convert", hang, "-o", tmp_path / "w", "--cut-unfinished")[0] == 0
    assert Workload.load(tmp_path / "w").num_ranks == 2


def test_a_study_from_logs_answers(logs, capfd, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    study = tmp_path / "study"
    code, out, _ = run_and_read(capfd, "convert", study, logs)
    assert code == 0
    assumed = [line for line in out.splitlines() if line.startswith("Assumed: ")]
    assert max(map(len, assumed)) > 80
    assert all(line.endswith(".") for line in assumed)
    network = tmp_path / "net.yml"
    network.write_text("topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n")
    assert run_and_read(capfd, "run", study, "--network", network)[0] == 0
    _, out, _ = run_and_read(capfd, "summary", study)
    assert "gap between collectives, not profiled" in " ".join(out.split())
    code, out, _ = run_and_read(capfd, "timeline", study, "--measured", "--format", "json")
    assert code == 0
    assert {row["operator"] for row in json.loads(out)} >= {"all_reduce", GAP}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["convert", "LOGS"], "is not a study. Next: `chakrascope summary"),
        (["convert", "STUDY", "--back-to-back"], "apply only to production logs"),
        (["convert", "LOGS", "-o", "w", "--step", "3"], "--step does not apply to production logs"),
        (["convert", "LOGS", "-o", "w", "--rescale-host"], "--rescale-host does not apply"),
        (["convert", "LOGS", "-o", "w", "--device-trace", "x"], "--device-trace does not apply"),
        (["convert", "nowhere", "-o", "w"], "There is no file or folder nowhere"),
        (["convert"], "Give a STUDY"),
        (["graph", "LOGS", "--node", "3"], "chakrascope diagnose"),
        (["diagnose", "w", "--view", "speeds"], "holds no logs"),
        (["diagnose", "LOGS", "--run", "measured"], "name LOGS without --run"),
    ],
)
def test_what_makes_no_sense_is_refused(logs, capfd, monkeypatch, arguments, said):
    monkeypatch.chdir(logs.parent)
    code, _, err = run_and_read(capfd, *(str(logs) if word == "LOGS" else word for word in arguments))
    assert code == 2
    assert said in " ".join(err.split())


def test_a_folder_of_traces_with_logs_is_not_one_of_logs(logs, tmp_path, capfd):
    mixed = shutil.copytree(logs, tmp_path / "mixed")
    trace = KinetoTrace()
    trace.op("aten::mm", 0, 10)
    trace.write(mixed / "zz.pt.trace.json")
    for arguments in ((mixed, "-o", tmp_path / "w"), (tmp_path / "study", mixed)):
        code, _, err = run_and_read(capfd, "convert", *arguments)
        assert (code, f"chakrascope import STUDY {mixed}" in " ".join(err.split())) == (2, True)
    assert "contains 2 sets" in run_and_read(capfd, "diagnose", mixed)[2]
    for name in ("zz.pt.trace.json", "aa.pt.trace.json"):
        (mixed / "zz.pt.trace.json").rename(mixed / name)
        out = run_and_read(capfd, "doctor", mixed)[1]
        assert "No step is marked" in out
        assert "Logs contain no dependencies" in out
    (mixed / "aa.pt.trace.json").rename(mixed / "zz.pt.trace.json")
    assert run_and_read(capfd, "convert", *mixed.glob("nccl*"), "-o", tmp_path / "w")[0] == 0


def test_log_instead_of_a_graph_is_an_error(logs, capfd):
    code, _, err = run_and_read(capfd, "run", "--workload-configuration", logs / "nccl_trace_rank_0.json")
    assert code != 0
    assert "Traceback" not in err


def test_names_in_logs_do_not_reach_the_terminal(tmp_path, capfd):
    job = Job(2, {"\x1b[31mred": [0, 1]})
    for _ in range(3):
        job.collective(group="\x1b[31mred")
    _, out, err = run_and_read(capfd, "diagnose", job.write(tmp_path / "logs"))
    assert "\x1b[31mred" not in out + err
    assert "red" in out


# ``chakrascope diff`` and its limits, and JUnit files of ``diff`` and ``doctor``.


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("diff") / "study")


@pytest.fixture
def runs(made):
    return f"{made.study.path}@{made.run_b}", f"{made.study.path}@{made.run_b}"


def test_the_same_run_twice_is_no_change(runs, capsys):
    assert command_line.run("diff", *runs, "--fail-if", "step > +0%", "--fail-if", "compute > +0ns") == 0
    shown = capsys.readouterr().out
    assert "no difference" in shown
    assert "there is no noise" in shown


def test_a_passed_limit_has_an_exit_code_and_a_junit_file_of_its_own(made, tmp_path, capsys):
    sides = [f"{made.study.path}@{run}" for run in (made.run_a, made.run_b)]
    file = tmp_path / "junit.xml"
    limits = ["--fail-if", "bytes > +1GiB", "--fail-if", "step > 1us", "--junit", str(file)]
    assert command_line.run("diff", *sides, *limits, "--format", "json") == 70
    document = json.loads(capsys.readouterr().out)
    assert [one["fails"] for one in document["limits"]] == [False, True]
    assert sum(row["delta_ns"] for row in document["waterfall"]) == document["delta_ns"]
    suite = ElementTree.parse(file).getroot()
    assert suite.attrib["tests"] == "2"
    assert suite.attrib["failures"] == "1"
    failed = [case.attrib["name"] for case in suite if case.find("failure") is not None]
    assert failed == ["step > 1us"]


def test_one_measured_step_is_undecided_unless_strict(made, tmp_path, capsys):
    sides = [f"{made.study.path}@{run}" for run in (made.run_b, made.run_a)]
    file = tmp_path / "junit.xml"
    arguments = ["diff", *sides, "--fail-if", "step < +5s", "--junit", str(file)]
    assert command_line.run(*arguments) == 71
    out = capsys.readouterr().out
    assert "add --strict to fail" in " ".join(out.split())
    assert "unknown" in out
    assert ElementTree.parse(file).getroot().attrib["skipped"] == "1"
    assert command_line.run(*arguments, "--strict") == 70
    assert "--strict" not in capsys.readouterr().out
    assert ElementTree.parse(file).getroot().attrib["failures"] == "1"


@pytest.mark.parametrize("view", ["waterfall", "classes", "operators", "paths"])
def test_the_printed_rows_of_a_difference_add_up_to_the_step(made, view, capsys, monkeypatch):
    sides = [f"{made.study.path}@{run}" for run in (made.run_a, made.run_b)]
    printed = []
    monkeypatch.setattr("chakrascope.cli._diff.print_frame", lambda table, *_, **__: printed.append(table))
    assert command_line.run("diff", *sides, "--view", view) == 0
    (table,) = printed
    capsys.readouterr()
    for column in ("base_ns", "other_ns", "delta_ns"):
        assert table[column].iloc[:-1].sum() == table[column].iloc[-1]
    assert table.iloc[-1, 0] == "the step"
    assert len(table) <= 12


@pytest.mark.parametrize(
    ("view", "output_format"),
    [("figures", "csv"), ("modules", "table"), ("collectives", "json")],
)
def test_every_table_prints(runs, view, output_format, capsys):
    assert command_line.run("diff", *runs, "--view", view, "--format", output_format) == 0
    assert capsys.readouterr().out


def test_wrong_usage_has_a_next_step(runs, capsys):
    assert command_line.run("diff", *runs, "--strict") == 2
    assert command_line.run("diff", *runs, "--fail-if", "step > 3%") == 2
    assert "+3%" in capsys.readouterr().err
    assert command_line.run("diff", "no-such-study", runs[0]) == 60


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["no-such-study"], (60, "no-such-study")),
        (["STUDY@no-such-run"], (60, "no-such-run")),
        (["STUDY", "--fail-if", "steps > +3%"], (2, "did you mean 'step'")),
        (["STUDY", "--fail-if", "kind:computes > +3%"], (2, "did you mean 'compute'")),
    ],
)
def test_wrong_names_are_errors_before_the_sides_are_read(made, words, error, capsys, monkeypatch):
    monkeypatch.setattr("chakrascope.runner.read_side", lambda *_: pytest.fail("a side is read"))
    named = [word.replace("STUDY", str(made.study.path)) for word in words]
    assert command_line.run("diff", made.study.path, *named) == error[0]
    assert error[1] in capsys.readouterr().err


def test_the_doctor_writes_junit(tmp_path, capsys):
    graph = Path(__file__).parent.parent / "data" / "converter" / "chakra" / "public"
    file = tmp_path / "junit.xml"
    assert command_line.run("doctor", str(graph), "--junit", str(file)) == 1
    suite = ElementTree.parse(file).getroot()
    assert int(suite.attrib["failures"]) > 0
    assert "does not exist" in ElementTree.tostring(suite, "unicode")
    assert command_line.run("doctor", "backends", "--junit", str(file)) == 2
    capsys.readouterr()


def test_a_sound_study_is_one_passed_check(made, tmp_path, capsys):
    file = tmp_path / "junit.xml"
    assert command_line.run("doctor", str(made.study.path), "--junit", str(file)) == 0
    suite = ElementTree.parse(file).getroot()
    assert suite.attrib["failures"] == "0"
    assert int(suite.attrib["tests"]) >= 1
    capsys.readouterr()


def test_an_archive_of_traces_is_no_archive_of_logs(data_dir, tmp_path, capfd):
    archive = tmp_path / "job.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for rank in range(2):
            packed.add(data_dir / f"converter/dlrm_v100_8/kineto_{rank}.json.gz", f"kineto_{rank}.json.gz")
    code, out, err = run_and_read(capfd, "diagnose", archive)
    assert code == 0, err
    assert "as measured" in out.splitlines()[0]
