"""Damaged configurations and studies raise only Chakrascope's errors, which name the change; full disks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import command_line
import et
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import files_up_to
from studies import as_version_0_2, make_study
from workloads import coll, comp, workload

from chakrascope.cli import main as cli_main
from chakrascope.converter import Workload, decode_graph, doctor, read_et
from chakrascope.errors import ChakrascopeError, ConfigError, StudyError, WorkloadFormatError
from chakrascope.runner import (
    Experiment,
    JobStore,
    MemoryConfig,
    NetworkConfig,
    Result,
    Study,
    SystemConfig,
    WorkloadSource,
    check_setup,
    check_study,
    communication_of,
    get_backend,
    load_groups,
    prepare,
    simulate,
)
from chakrascope.runner.config import preset_text
from chakrascope.runner.study import add_network
from chakrascope.runner.sweep import Prices, parse_axis, read_points, run_sweep

MEMORY = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 9, "num-nodes": 2}
READERS = {
    "system.json": (SystemConfig.load, json.loads(preset_text("system", "default"))),
    "network.yml": (
        NetworkConfig.load,
        {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500]},
    ),
    "memory.json": (MemoryConfig.load, MEMORY),
    "groups.json": (load_groups, {"1": [0, 1], "2": [2, 3, 4]}),
    "points.jsonl": (read_points, {"network.bandwidth": [25, 50], "system.endpoint-delay": 3}),
    "prices.yml": (lambda path: Prices.parse([str(path)]), {"ring-8": 0.5}),
}
DEEP = "[" * 4000


def check(read, argument):
    message = ""
    try:
        read(argument)
    except ChakrascopeError as error:
        message = error.message
    assert len(message) < 20_000


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        '{"a":' * 4000,
        "&a [*a, *a]",
        "x: 2001-13-45",
        "x: !!bool y",
        "x: !!timestamp y",
        "x: 0x",
        "\udcff",
    ],
    ids=lambda content: content[:9],
)
def test_hostile_text_is_refused_soon(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    check(READERS[name][0], path)


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_changes_nothing(tmp_path, name):
    read, content = READERS[name]
    answers = []
    for mark in ("", "\ufeff"):
        (tmp_path / name).write_text(mark + json.dumps(content), encoding="utf-8")
        answers.append(repr(read(tmp_path / name)))
    assert answers[0] == answers[1]


def test_a_trace_in_place_of_a_network_is_refused_soon(tmp_path):
    events = [{"ph": "X", "name": "aten::mm", "ts": number, "args": {}} for number in range(20_000)]
    (tmp_path / "network.yml").write_text(json.dumps({"traceEvents": events}, indent=1))
    with pytest.raises(ConfigError, match="the key 'topology' is missing"):
        NetworkConfig.load(tmp_path / "network.yml")
    (tmp_path / "network.yml").write_text("a:\n" + "- b\n" * (1 << 22))
    with pytest.raises(ConfigError, match="more than 16 MiB of YAML"):
        NetworkConfig.load(tmp_path / "network.yml")


@pytest.mark.parametrize("name", READERS)
def test_a_named_pipe_is_refused_instead_of_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{name}.* named pipe"):
        READERS[name][0](tmp_path / name)


def test_a_value_that_repeats_itself_is_shown_in_short(tmp_path):
    lines = [
        "a0: &a0 [x, x, x, x, x, x, x, x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9)),
    ]
    path = tmp_path / "network.yml"
    path.write_text(
        "\n".join([*lines, "topology: *a8", "npus_count: [4]", "bandwidth: [50]", "latency: [5]"])
    )
    with pytest.raises(ConfigError) as caught:
        NetworkConfig.load(path)
    assert len(caught.value.message) < 2000


@given(st.text(max_size=40))
def test_an_axis_is_parsed_or_refused(text):
    check(parse_axis, text)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a study with one run, and the settings files of both with their content."""
    job = workload([comp(1, 100)], [comp(1, 100)])
    prefix = tmp_path_factory.mktemp("job") / "workload"
    job.save(prefix)
    study = Study.create(tmp_path_factory.mktemp("study") / "study")
    experiment = Experiment(
        WorkloadSource.of_model(job), SystemConfig(), NetworkConfig.preset("ring-2"), MemoryConfig()
    )
    run_id = study.add_run(experiment, simulate(job, SystemConfig(), NetworkConfig.preset("ring-2")))
    study.import_workload(prefix)
    # As version 0.2 wrote it, without checksums: what is behind them has to notice by itself.
    as_version_0_2(study.path / "runs" / run_id)
    files = [study.path / "study.json"]
    files += [study.path / "runs" / run_id / f"{name}.json" for name in ("run", "experiment", "result")]
    return study, {file: json.loads(file.read_text()) for file in files}


def use(path):
    study = Study.open(path)
    study.result(study.runs()[0].id)
    study.experiment(study.runs()[0].id)


@pytest.mark.parametrize("content", [DEEP, "{}", "[]", '{"groups": 1, "backend": 2, "options": 3}'])
def test_a_damaged_file_of_a_run_is_named(run, content):
    study, files = run
    for file, seed in files.items():
        try:
            file.write_text(content)
            with pytest.raises(StudyError, match=file.parent.name):
                use(study.path)
        finally:
            file.write_text(json.dumps(seed))


@pytest.mark.parametrize(
    "name", ["run.json", "result.json", "nodes.parquet", "ranks.parquet", "experiment.json", "SHA256SUMS"]
)
def test_a_named_pipe_in_a_run_is_named(run, name):
    study, _ = run
    folder = study.path / "runs" / study.runs()[0].id
    file, saved = folder / name, folder / "saved"
    if file.exists():
        file.rename(saved)
    os.mkfifo(file)
    try:
        with pytest.raises(StudyError, match=folder.name):
            use(study.path)
    finally:
        file.unlink()
        if saved.exists():
            saved.rename(file)


@pytest.mark.parametrize("ranks", [3, 10**9, 10**30])
def test_run_with_wrong_number_of_ranks_is_refused(run, ranks):
    study, files = run
    run_id = study.runs()[0].id
    file = study.path / "runs" / run_id / "run.json"
    try:
        file.write_text(json.dumps(files[file] | {"num_ranks": ranks}))
        for read in (study.result, study.run_workload):
            with pytest.raises(StudyError, match=r"run\.json (states .* ranks, but|is damaged)"):
                read(run_id)
    finally:
        file.write_text(json.dumps(files[file]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.rename(columns={"finish_ns": "finish"}), "has no column finish_ns"),
        (lambda table: table.assign(rank="x"), "column rank of ranks.parquet does not hold whole numbers"),
        (lambda table: table.assign(comm_ns=0.5), "column comm_ns of ranks.parquet does not hold whole"),
    ],
)
def test_a_damaged_column_of_a_result_is_named(run, change, message):
    study, _ = run
    run_id = study.runs()[0].id
    file = study.path / "runs" / run_id / "ranks.parquet"
    whole = file.read_bytes()
    try:
        change(pd.read_parquet(file)).to_parquet(file)
        with pytest.raises(StudyError, match=message):
            study.result(run_id)
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("makespan_ns", [10**30, -1])
@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_makespan_beyond_64_bits_is_refused(run, name, makespan_ns):
    study, files = run
    file = study.path / "runs" / study.runs()[0].id / name
    try:
        file.write_text(json.dumps(files[file] | {"makespan_ns": makespan_ns}))
        with pytest.raises(StudyError, match="makespan"):
            use(study.path)
    finally:
        file.write_text(json.dumps(files[file]))


# A result has checksums: every change is reported by `doctor` and by all readers.

RESULT = ("result.json", "ranks.parquet", "nodes.parquet", "collectives.parquet", "links.parquet")
INPUTS = ("experiment.json", "system.json", "network.yml", "memory.json")


@pytest.fixture
def study(tmp_path):
    """Return a study with one run."""
    nodes = [comp(1, 100), coll(2, 4096, (1,))]
    job, network = workload(nodes, nodes), NetworkConfig.preset("ring-2")
    job.save(tmp_path / "job" / "workload")
    made = Study.create(tmp_path / "study")
    made.import_workload(tmp_path / "job" / "workload")
    system = SystemConfig.preset("default")
    experiment = Experiment(WorkloadSource.of_model(job), system, network, MemoryConfig())
    made.add_run(experiment, simulate(job, system, network))
    return made


def folder_of(study):
    """Return the folder of the only run."""
    (folder,) = study.run_dirs()
    return folder


def errors(study):
    """Return the errors that `doctor` finds."""
    return [finding.cause for finding in check_study(study) if finding.severity == "error"]


def test_a_whole_result_is_read_and_sha256sum_agrees(study):
    assert errors(study) == []
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=folder_of(study), capture_output=True, check=True
    )
    assert len(done.stdout.splitlines()) == len(list(folder_of(study).iterdir())) - 1


@pytest.mark.parametrize("name", [*RESULT, *INPUTS, "run.json"])
@pytest.mark.parametrize("how", ["one byte", "one byte less", "missing"])
def test_any_change_is_named_by_doctor(study, name, how):
    file = folder_of(study) / name
    content = file.read_bytes()
    middle = len(content) // 2
    if how == "missing":
        file.unlink()
    elif how == "one byte":
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        file.write_bytes(content[:-1])
    (finding,) = (finding for finding in check_study(study) if finding.severity == "error")
    if (name, how) == ("run.json", "missing"):  # then no command lists it
        assert finding.place == str(file.parent)
        assert name in finding.cause
    else:
        assert str(file) in finding.cause
        readers = (
            [study.runs] if name == "run.json" else [study.result] if name in RESULT else [study.experiment]
        )
        for read in readers:
            with pytest.raises(StudyError, match=name):
                read()


@pytest.mark.parametrize("name", ["workload.0.et", "workload.workload.json", "start.json", "points.parquet"])
@pytest.mark.parametrize("how", ["one byte", "missing"])
def test_a_change_of_a_workload_or_a_sweep_is_named_by_doctor(study, name, how):
    run_sweep(study, [{"backend": "analytical-unaware"}], network="ring-2")
    (file,) = study.path.glob(f"*/*/{name}")
    content = file.read_bytes()
    file.unlink()  # links of saved graphs share their content
    if how == "one byte":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert any(f"{file} is" in cause for cause in errors(study))
    if (name, how) == ("workload.workload.json", "one byte"):
        with pytest.raises(StudyError, match=r"workload\.workload\.json is"):
            study.workload()


@pytest.mark.parametrize("name", ["workload.0.et", "workload.nodes.parquet", "workload.workload.json"])
def test_a_changed_workload_is_not_simulated(study, name):
    prefix = study.workload_prefix()
    file = prefix.parent / name
    content = file.read_bytes()
    file.unlink()  # links of saved graphs share their content
    file.write_bytes(content + b"\n" if name.endswith("json") else content[:-1] + b"~")
    for read in (study.workload, lambda: simulate(prefix, "default", "ring-2")):
        with pytest.raises(StudyError, match=f"{name} is damaged"):
            read()


@pytest.mark.parametrize(
    ("part", "name", "read"),
    [
        ("runs", "result.json", Study.result),
        ("runs", "run.json", Study.runs),
        ("runs", "network.yml", Study.run_configs),
        ("workloads", "workload.workload.json", Study.workload),
    ],
)
def test_checksums_that_lack_a_file_are_damaged(study, part, name, read):
    (folder,) = (study.path / part).iterdir()
    lines = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in lines if not line.endswith(f" {name}\n")))
    with pytest.raises(StudyError, match=f"SHA256SUMS is damaged .it lacks {name}"):
        read(study)


def test_damaged_networks_and_defaults_are_named_by_doctor(study):
    add_network(study, "mine.yml", preset_text("network", "ring-2").encode())
    files = (study.network_file("mine.yml"), study.current_file, study.findings_file("item"))
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{", encoding="utf-8")
    causes = [finding.cause for finding in check_study(study) if finding.severity != "note"]
    for file in files:
        assert any(str(file) in cause for cause in causes)


def test_advice_of_a_changed_cache_is_not_printed(tmp_path, capsys):
    study = make_study(tmp_path / "study").study
    undamaged = command_line.answer(capsys, "summary", study.path)
    for name in ("kept-answer.json", "kept-advice.json"):  # the answer is made from the advice
        (file,) = study.path.rglob(name)
        stored = json.loads(file.read_text())
        stored["content"]["advice"][0]["gain_ns"] += 1_000_000
        file.write_text(json.dumps(stored))
        assert command_line.answer(capsys, "summary", study.path) == undamaged
        file.unlink()


def test_a_cached_summary_hides_no_damage(tmp_path, capsys):
    study = make_study(tmp_path / "study").study
    command_line.answer(capsys, "summary", study.path)
    table = study.run_dir(study.run_info().id) / "nodes.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert command_line.run("summary", study.path) == 60
    assert "nodes.parquet is damaged" in capsys.readouterr().err


def test_a_sweep_that_continues_has_checksums_of_its_new_table(study):
    for backends in (["analytical-unaware"], ["analytical-unaware", "flow"]):
        run_sweep(study, [{"backend": name} for name in backends], network="ring-2", name="two")
        assert errors(study) == []
    table = study.sweep_dir("two") / "points.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(StudyError, match=r"points\.parquet is damaged"):
        run_sweep(study, [{"backend": "flow"}], network="ring-2", name="two")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": "chakrascope study", "version": 9}'])
def test_a_damaged_head_of_a_study_is_named_by_doctor(study, content):
    (study.path / "study.json").write_bytes(content)
    (cause,) = errors(study)
    assert "study.json" in cause


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"x" * 5000, b"x" * 5000])
def test_a_damaged_job_store_is_named_and_not_written(study, content):
    file = study.jobs_dir / "jobs.sqlite"
    file.parent.mkdir()
    file.write_bytes(content)
    (cause,) = errors(study)
    assert f"{file} is damaged" in cause
    assert file.read_bytes() == content


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda file: file.symlink_to("nowhere")])
def test_a_job_store_that_is_no_file_is_named(study, make):
    file = study.jobs_dir / "jobs.sqlite"
    file.parent.mkdir()
    make(file)
    with pytest.raises(StudyError, match=f"{file} is damaged"):
        JobStore(study).jobs()
    assert any(f"{file} is damaged" in cause for cause in errors(study))


def test_a_check_of_the_job_store_keeps_the_lock_of_a_transaction(study):
    """Closing a descriptor of a file releases all locks that the process holds on it."""
    database = JobStore(study).database
    with database.transaction():
        pass  # creates the tables
    begin = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with database.transaction():
        assert not errors(study)
        done = subprocess.run(
            [sys.executable, "-c", begin, str(database.path)], capture_output=True, text=True, check=False
        )
    assert "database is locked" in done.stderr


def test_a_job_with_a_value_of_another_type_is_named(study):
    database = JobStore(study).database
    with database.transaction() as connection:
        columns = "experiment, label, workload, backend, network, request, state, simulated_ns"
        connection.execute(f"INSERT INTO jobs ({columns}) VALUES ('', '', '', '', '', '', 'done', x'00ff')")
    with pytest.raises(StudyError, match="simulated_ns of a job is b"):
        JobStore(study).jobs()
    (cause,) = errors(study)
    assert "simulated_ns" in cause


@pytest.mark.parametrize("missing_bytes", [1, 4095, 4096, 9000])
def test_a_job_store_without_its_end_is_named(study, missing_bytes):
    database = JobStore(study).database
    with database.transaction():
        pass
    assert errors(study) == []
    database.path.write_bytes(database.path.read_bytes()[:-missing_bytes])
    (cause,) = errors(study)
    assert f"{database.path} is damaged" in cause


@pytest.mark.parametrize("name", ["run.json", "result.json"])
@pytest.mark.parametrize("checked", [True, False])
def test_another_makespan_is_named_by_every_command(study, name, checked, capsys):
    file = folder_of(study) / name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"makespan_ns": 1}))
    if not checked:
        as_version_0_2(folder_of(study))
    for command in ("summary", "critical-path", "doctor"):
        with pytest.raises(SystemExit):
            cli_main([command, str(study.path)])
        said = capsys.readouterr()
        assert f"{name}" in said.err + said.out
        assert "Traceback" not in said.err


def test_a_damaged_run_is_deleted_by_its_id(study):
    file = folder_of(study) / "run.json"
    file.write_text("{}")
    study.delete_run(file.parent.name)
    assert study.runs() == []


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"0  run.json", b"0" * 64 + b"  ../../study.json\n", b"\0" * 9]
)
def test_damaged_checksums_are_named(study, content):
    (folder_of(study) / "SHA256SUMS").write_bytes(content)
    with pytest.raises(StudyError, match="SHA256SUMS is damaged"):
        study.result()
    assert "SHA256SUMS is damaged" in errors(study)[0]


def test_a_damaged_run_leaves_the_others_checked(study):
    (damaged,) = study.run_dirs()
    whole = damaged.with_name("0" * 16)
    whole.mkdir()
    for file in damaged.iterdir():
        (whole / file.name).write_bytes(file.read_bytes())
    (damaged / "run.json").write_text("{}")
    (cause,) = errors(study)
    assert str(damaged / "run.json") in cause


def test_a_damaged_note_is_a_finding_and_gives_way_to_a_new_label(study):
    folder = folder_of(study)
    study.annotate(folder.name, label="mine", note="text")
    (folder / "note.json").write_text('{"label": "mi')
    (finding,) = (
        finding
        for finding in check_study(study)
        if finding.severity == "warning" and finding.place.endswith(folder.name)
    )
    assert f"note.json of {folder.name} is damaged" in finding.cause
    assert "note.json" in study.runs()[0].note
    info = study.annotate(folder.name, label="again")
    assert (info.label, info.note) == ("again", "")


def test_a_result_without_its_checksums_is_refused(study):
    (folder_of(study) / "SHA256SUMS").unlink()
    file = folder_of(study) / "links.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).slice(1), file)
    with pytest.raises(StudyError, match="SHA256SUMS is missing"):
        study.result()
    assert "SHA256SUMS is missing" in errors(study)[0]


def test_results_of_earlier_versions_are_a_note(study):
    as_version_0_2(folder_of(study))
    assert [finding.cause for finding in check_study(study) if finding.severity == "note"] == [
        f"1 run has no checksums, which version 0.3 introduced: {folder_of(study).name}."
    ]


def test_a_result_without_a_study_is_checked_too(study, tmp_path):
    study.result().save(tmp_path / "alone")
    assert Result.load(tmp_path / "alone").makespan_ns == study.result().makespan_ns
    with pytest.raises(StudyError, match="never overwritten"):
        study.result().save(tmp_path / "alone")
    (tmp_path / "alone" / "result.json").write_text("{}")
    with pytest.raises(StudyError, match=r"result\.json is damaged: it differs from its checksum"):
        Result.load(tmp_path / "alone")


# A study on a full disk: an error that says so, and no partial files.


ROOM_BYTES = 1000


def job():
    return workload(*[[comp(0, 5), *[coll(number, 4096, (number - 1,)) for number in range(1, 200)]]] * 2)


def test_a_run_that_does_not_fit_is_no_run(tmp_path):
    study = Study.create(tmp_path / "study")
    experiment = prepare(study.add_workload(job(), "job"), "default", "ring-2")
    result = get_backend(experiment.backend).run(experiment)
    with files_up_to(ROOM_BYTES), pytest.raises(StudyError, match=r"cannot be written.*free some disk space"):
        study.add_run(experiment, result)
    with files_up_to(ROOM_BYTES), pytest.raises(StudyError, match=r"cannot be written.*free some disk space"):
        result.save(tmp_path / "result")
    assert study.runs() == []
    assert list((study.path / "runs").glob(".*")) == []
    assert not (tmp_path / "result").exists()


def test_a_study_that_does_not_fit_leaves_no_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    for folder in ("new", "mine"):
        with files_up_to(10), pytest.raises(StudyError, match="cannot be created"):
            Study.create(tmp_path / folder)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_workload_that_does_not_fit_is_no_workload(tmp_path):
    study = Study.create(tmp_path / "study")
    with files_up_to(ROOM_BYTES), pytest.raises(StudyError, match=r"cannot be written.*free some disk space"):
        study.add_workload(job(), "job")
    assert study.workloads() == []
    assert list((study.path / "workloads").iterdir()) == []


def test_endless_nesting_in_a_study_is_damage(tmp_path, capsys):
    study = make_study(tmp_path / "study").study
    assert command_line.run("summary", study.path) == 0  # stores its advice, too
    files = sorted(study.path.rglob("*.json"))
    assert {"kept-advice.json", "kept-answer.json", "result.json", "workload.workload.json"} <= {
        file.name for file in files
    }
    for file in files:
        content = file.read_bytes()
        file.write_text(DEEP, encoding="utf-8")
        for command in ("summary", "runs"):
            assert command_line.run(command, study.path) in {0, 30, 31, 40, 60}, (command, file)
        file.write_bytes(content)
    capsys.readouterr()


# Graphs of other tools in which an attribute contradicts itself or the groups.


def write_graphs(folder, more=b"", **facts):
    """Write the graphs of two ranks, each with a collective that has *facts* and the fields *more*."""
    node = {"id": 3, "name": "call", "type": "COLL", "comm_type": "ALL_REDUCE", "comm_size": 4096} | facts
    body = et.node(node) + more
    head = et.program([])
    for rank in range(2):
        (folder / f"w.{rank}.et").write_bytes(head + et.varint(len(body)) + body)
    return folder / "w"


@pytest.mark.parametrize(
    ("facts", "more", "words"),
    [
        ({"comm_type": "BROADCAST", "comm_src": 7}, b"", r"has rank 7 as its root \(comm_src\)"),
        ({"comm_type": "REDUCE", "comm_src": 1, "pg_name": 1}, b"", "which is not one of group 1"),
        ({"involved_dim": [0, 0, 0, 0]}, b"", "takes part in no dimension of the network"),
        ({"involved_dim": []}, b"", "takes part in no dimension of the network"),
        ({}, et.attribute_of_int64("involved_dim", 1), "not a list of booleans"),
        ({"comm_type": "ALL_TO_ALL", "comm_splits": [1, 2, 3]}, b"", "lists bytes for 3 members"),
        ({"comm_type": "ALL_TO_ALL", "comm_splits": [1, 2], "pg_name": 1}, b"", "but group 1 has 1 ranks"),
        ({}, et.attribute("comm_size", 5), "has the attribute comm_size twice"),
        ({}, et.attribute("is_cpu_op", True), "has the attribute is_cpu_op twice"),
        ({"pg_name": 1}, et.attribute("pg_name", 0), "has the attribute pg_name twice"),
        ({"involved_dim": [1]}, et.attribute("involved_dim", [0]), "has the attribute involved_dim twice"),
        ({}, et.attribute_of_int64("pg_name", 1), "an attribute pg_name that is not a text"),
    ],
)
def test_an_ambiguous_or_impossible_collective_is_refused_wherever_it_comes_from(
    facts, more, words, tmp_path
):
    prefix = write_graphs(tmp_path, more, **facts)
    (tmp_path / "w.groups.json").write_text(json.dumps({"1": [0]}))
    message = rf"w\.0\.et, rank 0: node 3 \('call'\) .*{words}"
    with pytest.raises(WorkloadFormatError, match=message):
        simulate(prefix, "default", "ring-2")
    with pytest.raises(WorkloadFormatError, match=message):
        Workload.load(prefix)
    with pytest.raises(WorkloadFormatError, match=rf"Rank 0: node 3 \('call'\) .*{words}"):
        simulate(in_memory(prefix, {1: (0,)}), "default", "ring-2")
    assert [finding.severity for finding in doctor(prefix)] == ["error"]


@pytest.mark.parametrize(
    ("facts", "more"),
    [
        ({"comm_type": "BROADCAST", "comm_src": 1}, b""),
        ({"involved_dim": [1, 0, 0, 0]}, b""),
        ({"involved_dim": [0], "pg_name": 1}, b""),
        ({"comm_type": "ALL_TO_ALL", "comm_splits": [1, 4095]}, b""),
        ({}, b"\x52\x10\x0a\x06vendor\xea\x01\x05\x0a\x03abc" * 2),
    ],
)
def test_graphs_whose_attributes_fit_are_simulated(facts, more, tmp_path):
    (tmp_path / "w.groups.json").write_text(json.dumps({"1": [0, 1]}))
    prefix = write_graphs(tmp_path, more, **facts)
    made = simulate(prefix, "default", "ring-2")
    assert made.makespan_ns > 0
    assert simulate(in_memory(prefix, {1: (0, 1)}), "default", "ring-2").makespan_ns == made.makespan_ns


def in_memory(prefix, groups):
    """Return the graphs of two ranks, decoded without the checks of `Workload.load`."""
    graphs = (decode_graph(read_et(f"{prefix}.{rank}.et"), rank=rank) for rank in range(2))
    return Workload(tuple(graphs), np.arange(2, dtype=np.int32), groups)


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "packet"])
def test_a_collective_without_a_dimension_of_the_network_is_refused(saved, backend, tmp_path):
    prefix = write_graphs(tmp_path, involved_dim=[0, 1, 0, 0])
    if saved:  # files of Chakrascope are not decoded again
        Workload.load(prefix).save(prefix)
    message = r"Rank 0: node 3 takes part only in dimensions that the network 'ring-2' lacks"
    with pytest.raises(ConfigError, match=message):
        simulate(prefix, "default", "ring-2", backend=backend)
    (finding,) = (
        each
        for each in check_setup(
            NetworkConfig.preset("ring-2"),
            SystemConfig.preset("default", 1),
            communication_of(prefix),
            [backend],
        )
        if each.severity == "error"
    )
    assert finding.cause == "Node 3 takes part only in dimensions that the network lacks."
    assert simulate(prefix, "default", None, backend="replay").makespan_ns >= 0
