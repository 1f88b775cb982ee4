"""Help, errors of wrong usage, and failures of the operating system on the command line."""

import json
import os
import py_compile
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import command_line
import pytest
from command_line import answer, run_and_read
from studies import make_study

import chakrascope.cli
from chakrascope.cli import cli
from chakrascope.cli._main import _ELSEWHERE, _GUESSED
from chakrascope.runner import NetworkConfig, Workspace


def test_the_commands_are_a_frozen_surface():
    assert sorted(cli.list_commands(click.Context(cli))) == [
        "algorithm",
        "calibrate",
        "compare",
        "convert",
        "critical-path",
        "demo",
        "diagnose",
        "diff",
        "doctor",
        "emulate",
        "generate",
        "graph",
        "import",
        "network",
        "predict",
        "profile",
        "query",
        "report",
        "rescale",
        "run",
        "runs",
        "summary",
        "sweep",
        "timeline",
        "trace",
        "view",
        "what-if",
    ]


VERBS = {
    "Capture", "Check", "Compare", "Convert", "Count", "Describe", "Find", "Fit", "Import", "Inspect", "List",
    "Name", "Open", "Predict", "Print", "Prove", "Query", "Run", "Scale", "Send", "Show", "Simulate", "Turn",
    "Write",
}  # fmt: skip
# Options whose meaning depends on the command; all others are explained in the same words.
BY_COMMAND = {
    "--as", "--backend", "--by", "--check", "--chip", "--dp", "--find", "--host", "--hosts", "--keep",
    "--label", "--measured", "--name", "--network", "--node", "--note", "--on", "--output", "--port", "--pp",
    "--rank", "--ranks", "--run", "--size", "--steps", "--system", "--tag", "--tp", "--view", "--workers",
    "--workload",
}  # fmt: skip


def helps() -> Iterator[tuple[str, click.Command, str]]:
    """Yield every command that is listed, with its name and its help for 80 columns."""
    with click.Context(cli, info_name="chakrascope") as top:
        todo = [(name, cli.get_command(top, name)) for name in cli.list_commands(top)]
    for name, command in todo:
        with click.Context(command, info_name=name, terminal_width=80, max_content_width=80) as context:
            yield name, command, command.get_help(context)
        if isinstance(command, click.Group):
            todo += [(f"{name} {each}", command.commands[each]) for each in command.commands]


def test_help_fits_80_columns_and_begins_with_a_verb():
    for name, command, text in helps():
        assert max(map(len, text.splitlines())) <= 80, name
        first = [command.short_help or "", command.help or ""]
        assert all(line.split()[0].strip(",") in VERBS for line in first if line), (name, first)


def test_an_option_is_explained_and_in_the_same_words_everywhere():
    words: dict[str, set[str]] = {}
    for name, command, _ in helps():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, (name, option.opts)
                if name != "predict search":  # its options are lists of values to try
                    words.setdefault(max(option.opts, key=len), set()).add(option.help)
    assert {option for option, texts in words.items() if len(texts) > 1} <= BY_COMMAND


def test_help_documents_the_exit_codes(capsys):
    assert command_line.run("--help") == 0
    shown = capsys.readouterr().out
    assert "Exit codes" in shown
    assert "53: deadlock" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["run", "study"], 2, "--network"),
        (["run", "--network", "ring-2"], 2, "--workload-configuration"),
        (["profile", "--backend", "packet", "--", "python", "train.py"], 2, "--network"),
        (["critical-path", "no-such-study"], 60, "no-such-study"),
        (["convert", "no-such-study"], 60, "no-such-study"),
        (["view", "no-such-study"], 60, "no-such-study"),
        (["runs", "no-such-folder", "--studies"], 60, "no-such-folder"),
        (["summary", "no-such-study", "--view", "layers"], 60, "no-such-study"),
        (["import", "study", "no-such-folder"], 60, "no-such-folder"),
        (["timeline", "study", "--ranks", "3-1"], 2, "such as 3 or 0-7"),
        (["runs", ".", "--studies", "--note", "x"], 2, "--study NAME"),
        (["runs", "no-such-study", "--jobs"], 60, "no-such-study"),
        (["runs", "--study", "x"], 2, "--study needs a STUDY or a FOLDER"),
        (["runs", "--find", "x"], 2, "--find needs a STUDY or a FOLDER"),
        (["runs", ".", "--studies", "--run", "x"], 2, "--run applies to runs, but this call lists studies"),
        (["runs", ".", "--studies", "--jobs"], 2, "Next: chakrascope runs FOLDER/NAME --jobs ..."),
        (["runs", "study", "--jobs", "--label", "x"], 2, "call lists background jobs. Next: leave it out."),
        (["runs", "study", "--clear-traces", "--jobs"], 2, "call lists cached studies. Next: leave it out."),
        (
            ["run", "--queue", "--workload-configuration", "w", "--network", "ring-2"],
            2,
            "--queue needs a STUDY",
        ),
        (["sweep", "no-such-study", "--over", "network=ring-2"], 60, "no-such-study"),
        (["sweep", "no-such-study"], 2, "--over"),
        (["what-if", "no-such-study", "--faster", "kind:host=2"], 60, "no-such-study"),
        (["generate", "all-reduce", "-o", "w", "--ranks", "2", "--size", "-5"], 2, "not a size"),
        (["generate", "all-reduce", "-o", "w", "--ranks", "2", "--size", "5 miles"], 2, "25 MiB"),
        (
            ["generate", "all-reduce", "-o", "w", "--ranks", "2", "--compute-ns", "0.5"],
            2,
            "whole number of nanoseconds",
        ),
        (["timeline", "study", "--from", "-1"], 2, "not a duration"),
        (["network", "dgx2", "--print"], 2, "dgx-2-16"),
        (["profil"], 2, "profil"),
        (["run", "--workload-configuration", "no/such", "--network", "rng-2"], 40, "ring-2"),
    ],
)
def test_wrong_usage_has_a_next_step(arguments, code, hint, capsys):
    assert command_line.run(*arguments) == code
    shown = capsys.readouterr().err.replace("\n", " ")
    assert hint in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("folders", [(), (".",), ("no-such-folder",), (".", "..")])
def test_cached_studies_are_deleted_whatever_the_folder(folders, capsys, monkeypatch):
    monkeypatch.setattr("chakrascope.runner.clear_cached_traces", lambda: 2048)
    assert "Deleted 2.00 KiB of cached studies" in answer(capsys, "runs", *folders, "--clear-traces")


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "--format", "{}"],
        ["summary", "{}"],
        ["summary", "study", "--{}"],
        ["summary", "study", "--top={}"],
        ["{}"],
    ],
)
@pytest.mark.parametrize("value", ["x" * 70_000, "x y " * 20_000], ids=["a word", "words"])
def test_a_very_long_value_is_shown_in_short(arguments, value, capsys):
    assert command_line.run(*(word.format(value) for word in arguments)) > 0
    shown = capsys.readouterr().err
    assert len(shown) < 3000
    assert "Traceback" not in shown


def test_presets_are_described_and_printed_as_a_file(tmp_path, capsys):
    assert command_line.run("network", "--format", "json") == 0
    presets = json.loads(capsys.readouterr().out)
    assert {preset["kind"] for preset in presets} == {"network", "system", "memory"}
    assert next(p for p in presets if p["name"] == "dgx-2-16x16")["ranks"] == 256
    assert command_line.run("network", "dgx-2-16x16", "--print") == 0
    file = tmp_path / "mine.yml"
    file.write_text(capsys.readouterr().out)
    assert NetworkConfig.load(file) == NetworkConfig.preset("dgx-2-16x16")


def test_failed_capture_creates_no_study(tmp_path, capfd):
    study = tmp_path / "study"
    assert command_line.run("trace", "-o", str(study), "--", sys.executable, "-c", "raise SystemExit(3)") == 3
    assert "exit code 3" in capfd.readouterr().err.replace("\n", " ")
    assert not study.exists()
    assert command_line.run("trace", "-o", str(study), "--collect", str(tmp_path / "absent")) == 20
    assert not study.exists()


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("simulate", "Next: chakrascope run STUDY"),
        ("analyze", "Next: chakrascope summary TRACE"),
        ("stragglers", "Next: chakrascope diagnose STUDY"),
        ("ui", "Next: chakrascope view STUDY"),
        ("flamegraph", "Next: chakrascope timeline STUDY --host"),
        ("summry", "did you mean 'summary'?"),
    ],
)
def test_a_word_of_another_tool_leads_to_a_command(word, hint, capsys):
    assert command_line.run(word, "study") == 2
    assert f"There is no command '{word}'" in (err := capsys.readouterr().err)
    assert hint in err


def test_each_guessed_word_leads_to_one_command_that_exists():
    words = [word for line in _GUESSED.values() for word in line.split()]
    assert len(words) == len(set(words))
    commands = set(cli.list_commands(click.Context(cli)))
    assert not commands & set(words)
    assert {line.split()[0] for line in _GUESSED} <= commands | {"--help"}


@pytest.mark.parametrize(("command", "option"), _ELSEWHERE)
def test_an_option_of_another_command_leads_to_it(capsys, command, option):
    assert command_line.run(*command.split(), option, "1") == 2
    assert capsys.readouterr().err.endswith(f"Next: {_ELSEWHERE[command, option]}\n")


@pytest.mark.parametrize("command", [["algorithm", "prove"], ["emulate"], ["predict"], ["compare"]])
def test_the_help_does_not_break_names_at_hyphens(command, capsys):
    assert command_line.run(*command, "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.endswith("-")]
    assert "\u2011" not in "".join(lines)


def test_an_unknown_choice_suggests_the_closest_value(made, capsys):
    for option, wrong, hint in (("--view", "advic", "advice"), ("--format", "jsn", "json")):
        assert command_line.run("summary", made, option, wrong) == 2
        assert f"'{wrong}' is not available - did you mean '{hint}'?" in capsys.readouterr().err


def test_unknown_name_suggests_the_closest_name(capsys):
    job = ["--chip", "h100", "--network", "hgx-h100-2x8"]
    assert command_line.run("predict", "--model", "lama3-8b", *job) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "did you mean 'llama3-8b'? `chakrascope predict --list-models` lists all." in told
    assert command_line.run("predict", "--list-models") == 0
    assert "llama3-8b" in capsys.readouterr().out
    for wrong, hint in (("hgx-h100-64", "hgx-h100-8x8"), ("ring-4", "ring-8"), ("tpu-v2-4x4", "tpu-v2-8x8")):
        assert command_line.run("network", wrong, "--print") == 2
        assert f"did you mean '{hint}'? `chakrascope network` lists all." in capsys.readouterr().err
    assert command_line.run("network", "dgx-a10-8", "--print") == 2
    assert "did you mean 'dgx-a100-8'? `chakrascope network` lists all." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            (),
            "Assumed: the text workload does not contain the ranks that share a layer: all",
        ),
        (("--model-group", "2"), "Assumed: 2 consecutive ranks are assumed to share a layer"),
    ],
)
def test_generate_prints_assumed_groups(tmp_path, capsys, monkeypatch, options, told):
    monkeypatch.setenv("COLUMNS", "400")
    text = tmp_path / "w.txt"
    text.write_text("HYBRID_DATA_MODEL\n1\na -1 1 ALLGATHER 8 1 NONE 0 1 ALLREDUCE 8 1\n")
    arguments = ["generate", "text", "--file", str(text), "-o", str(tmp_path / "o"), "--ranks", "4"]
    assert command_line.run(*arguments, *options) == 0
    assert told in capsys.readouterr().out


# Next steps in the output: commands to copy, about the objects of the finished command.


def next_step(said):
    (line,) = [line for line in said.splitlines() if line.startswith("Next: ")]
    program, *arguments = shlex.split(line.removeprefix("Next: "))
    assert program == "chakrascope"
    return arguments


def test_the_next_step_of_a_run_answers_about_it_after_others(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "40")
    study = make_study(tmp_path / "a study $HOME").study
    said = answer(capsys, "run", study.path, "--network", "ring-2")
    first = {run.id for run in study.runs()}
    again = next_step(said)
    assert answer(capsys, "run", study.path, "--network", "cpu-cluster-2")
    (made,) = [run for run in study.runs() if run.id == again[-1]]
    assert made.id in first
    told = json.loads(answer(capsys, *again, "--format", "json"))
    assert told["makespan_ns"] == made.makespan_ns


def test_the_next_step_of_a_conversion_names_the_workload(capsys, tmp_path, data_dir):
    traces = data_dir / "converter" / "dlrm_v100_8" / "kineto_{rank}.json.gz"
    said = answer(capsys, "convert", tmp_path / "s", "--device-trace", traces)
    assert next_step(said) == [
        "run", str(tmp_path / "s"), "--workload", "dlrm_v100_8", "--network", "PRESET"
    ]  # fmt: skip
    said = answer(capsys, "convert", "-o", tmp_path / "w", "--device-trace", traces)
    assert next_step(said)[:3] == ["run", "--workload-configuration", str(tmp_path / "w")]


def test_a_sweep_names_the_run_that_it_kept(capsys, tmp_path):
    study = make_study(tmp_path / "s").study
    axes = ("--network", "ring-2", "--over", "network.bandwidth=25,50", "--workers", "0")
    said = answer(capsys, "sweep", study.path, *axes)
    assert next_step(said) == ["view", str(study.path), "--run", study.runs()[-1].id]


def test_the_viewer_opens_at_the_run_it_is_given(capsys, monkeypatch, tmp_path):
    made = make_study(tmp_path / "s")
    opened = []

    def serve(_what, *, ready, **_options):
        ready("http://127.0.0.1:1/?token=secret")
        opened.append(True)

    monkeypatch.setattr("chakrascope.viewer.serve", serve)
    said = answer(capsys, "view", made.study.path, "--run", made.run_a[:6])
    assert f"http://127.0.0.1:1/?token=secret&run={made.run_a}\n" in said
    code = command_line.run("view", made.study.path, "--run", "none")
    assert code != 0
    assert opened == [True]


def test_commands_to_copy_are_printed_by_one_function():
    """The function quotes names, keeps commands on one line, and accepts arguments as separate words."""
    for file in Path(chakrascope.cli.__file__).parent.glob("*.py"):
        found = re.findall(r'print\(\s*f"(?:Next|Open it): .*chakrascope', file.read_text())
        assert not found, file.name


# Calls that the system refuses, or whose output is closed, end with a sentence or silently.

PROGRAM = [sys.executable, "-m", "chakrascope.cli"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("odd") / "study").study.path


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("timeline", "STUDY", "-o", "/"), 2, "/ cannot be written (Is a directory); add the name of a file"),
        (("report", "STUDY", "-o", "/"), 60, "The report / cannot be written (Is a directory); add the name"),
        (("generate", "all-reduce", "--ranks", "2", "-o", "/"), 2, "/ is a folder, but graphs need"),
        (
            ("generate", "all-reduce", "--ranks", "2", "-o", "STUDY"),
            2,
            "start of their file names. Next: write ",
        ),
        (("what-if", "STUDY", "--faster", "operator:x=1e400"), 2, "'operator:x=1e400' is not a valid change"),
        (("what-if", "STUDY", "--faster", "operator:x=nan"), 2, "'operator:x=nan' is not a valid change"),
        (("what-if", "STUDY", "--each", "1e999"), 2, "'1e999' is not a number of 0 or more"),
        (("what-if", "STUDY", "--each", "0"), 2, "Contributors cannot be made 0 times as fast. Next: give"),
        (("sweep", "STUDY", "--over", "network.bandwidth=1,1e400"), 40, "the number 1e400 is too large"),
        (
            ("trace", "--steps", "-4", "-o", "x", "--", "true"),
            2,
            "neither number can be negative. Next: use, for example, --steps 2 --warmup 3.",
        ),
        (
            ("network", "ring-2", "--as", "yaml", "-o", "STUDY/study.json"),
            2,
            "exists); a file has the name",
        ),
        (("timeline", "STUDY", "--from", "10s"), 2, "The window begins after the end of the step at "),
        (
            ("sweep", "STUDY", "--on", "0xa100"),
            2,
            "number of chips must be 1 or more. Next: use --on 8xa100.",
        ),
        (
            ("sweep", "STUDY", "--over", "network=ring-2", "--least", "makespn"),
            2,
            "did you mean 'makespan_ns'",
        ),
        (
            ("sweep", "STUDY", "--over", "network=ring-2", "--price", "1", "--price", "ring2=2"),
            40,
            "--price ring2: no network of this name is compared - did you mean 'ring-2'",
        ),
        (("predict", "--model", "mpt-125m", "--replays", "1000000000"), 2, "the range 1<=x<=10000"),
        (("query", "STUDY", "select 1", "--timeout", "1e30"), 2, "1e30 is too large"),
        (("query", "STUDY", "select 1", "--timeout", "2e6"), 2, "must be a day or less"),
        (("generate", "all-reduce", "--ranks", "2", "--compute-ns", "1e30", "-o", "g"), 2, "too large"),
        (("predict", "search", "--model", "m", "--dp", "9" * 5000), 2, "not a list of whole numbers"),
        (("run", "STUDY", "--network", "ring-2", "--fail", "²@1us"), 40, "²"),
        (("timeline", "STUDY", "--ranks", "9" * 5000), 2, "is not a range of ranks, such as 3 or 0-7"),
        (("what-if", "STUDY", "--faster", "bandwidth:²=2"), 2, "has no dimension '²'"),
        (("sweep", "STUDY", "--trials", "100001"), 2, "100001 is not in the range"),
        (("sweep", "STUDY", "--over", "network=ring-2", "--cluster", "SCHEDULER"), 40, "scheduler.json"),
        (("graph", "none"), 30, "No workload at none"),
        (("demo", "--port", "65536"), 2, "65536 is not in the range"),
    ],
)
def test_impossible_requests_are_one_sentence(made, arguments, code, message, capsys):
    scheduler = made.parent / "scheduler.json"
    scheduler.write_text("[" * 5000)
    words = [word.replace("STUDY", str(made)).replace("SCHEDULER", str(scheduler)) for word in arguments]
    ended, _, err = run_and_read(capsys, *words)
    assert ended == code
    assert message in err


@pytest.mark.parametrize(
    "name", ["ring", "direct", "nccl-ring:Simple:2", "nccl", "all-pairs-put", "nccl-tree"]
)
@pytest.mark.parametrize("command", ["inspect", "prove", "export"])
def test_a_program_without_an_end_is_refused_with_its_size(name, command, tmp_path, capsys):
    collective = "all-gather" if name == "all-pairs-put" else "all-reduce"
    asked = ["algorithm", command, name, "--collective", collective, "--ranks", "99999999999999"]
    code, _, message = run_and_read(
        capsys, *asked, *(["-o", tmp_path / "set"] if command == "export" else [])
    )
    assert code == 40
    assert "among 99,999,999,999,999 ranks has about" in message
    assert "GB" in message


def test_a_text_workload_without_an_end_is_refused_with_its_size(tmp_path, capsys):
    text = tmp_path / "job.txt"
    text.write_text("DATA\n1\nlayer -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n")
    asked = ["generate", "text", "--file", text, "-o", tmp_path / "job"]
    code, _, message = run_and_read(capsys, *asked, "--ranks", "2", "--repeats", "1000000000")
    assert code == 2
    assert "make about 6,000,000,000 nodes a rank, which need about 6,000 GB" in message
    code, _, message = run_and_read(capsys, *asked, "--ranks", "999999999999")
    assert code == 2
    assert "999,999,999,999 ranks are too many" in message


def test_packets_without_an_end_are_refused(tmp_path, capsys):
    prefix = tmp_path / "huge"
    asked = ("generate", "all-reduce", "--ranks", "2", "--size", "900000000000000000", "-o", prefix)
    code, _, message = run_and_read(capsys, *asked)
    assert code == 0, message
    asked = ["run", "--workload-configuration", prefix, "--network-configuration", "ring-2"]
    code, _, message = run_and_read(capsys, *asked, "--backend", "packet")
    assert code == 50
    assert "takes days" in message


def test_a_full_disk_names_the_file_and_leaves_no_part_of_a_set(tmp_path):
    code = (
        "import resource, sys\n"
        "from chakrascope.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))\n"
        "main(sys.argv[1:])\n"
    )
    prefix = tmp_path / "set"
    asked = ["algorithm", "export", "ring", "--collective", "all-reduce", "--ranks", "8", "-o", str(prefix)]
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *asked], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert str(prefix) in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_system_names_the_file(made, monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr("chakrascope.runner.Study.open", refuse)
    code, _, message = run_and_read(capsys, "runs", made)
    assert code == 1
    assert message == ("Error: /some/file: Permission denied; check the path and its permissions.\n")


@pytest.mark.parametrize("words", [["critical-path"], ["runs", "--format", "json"]])
def test_closed_pipe_ends_the_command_silently(made, words):
    reading, writing = os.pipe()
    os.close(reading)
    command = [*PROGRAM, *words, str(made)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_closed_standard_streams_are_no_error(made):
    script = f"exec {' '.join([*PROGRAM, 'runs', str(made)])} <&- >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", script], check=False).returncode == 0


def test_a_study_whose_name_is_no_text_breaks_no_list(made, tmp_path):
    shutil.copytree(made, tmp_path / os.fsdecode(b"s\xff"))
    table = Workspace(tmp_path).table()
    assert table["name"].tolist() == ["s\ufffd"]
    assert table["problem"].tolist() == [""]


def test_a_workload_whose_name_is_no_text_is_written_checked_and_simulated(tmp_path, capsys):
    prefix = tmp_path / "n\udcff"
    for words in (
        ("generate", "all-reduce", "--ranks", "2", "-o", prefix),
        ("doctor", prefix),
        ("run", "--workload", prefix, "--network", "ring-2"),
        ("graph", prefix),
    ):
        code, _, err = run_and_read(capsys, *words)
        assert code == 0, err


def test_a_study_whose_name_is_no_text_is_explained(made, tmp_path, capsys):
    study = shutil.copytree(made, tmp_path / "n\udcff")
    for words in (
        ("report", study, "-o", tmp_path / "r\udcff.html"),
        ("what-if", study, "--faster", "kind:compute=2"),
    ):
        code, _, err = run_and_read(capsys, *words)
        assert code == 0, err
    assert (tmp_path / "r\udcff.html").read_text(encoding="utf-8").startswith("<!")


def test_byte_code_cut_short_by_a_full_disk_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    source = Path(chakrascope.cli.__file__).with_name("_network.py")
    code = Path(py_compile.compile(str(source)))
    code.write_bytes(code.read_bytes()[:600])
    # Modules that are already imported keep their bytecode.
    start = f"import sys, chakrascope.runner, chakrascope.cli; sys.pycache_prefix = {str(tmp_path)!r}"
    command = [sys.executable, "-c", f"{start}; chakrascope.cli.main(['network'])"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ends too early" in done.stderr
    assert "__pycache__" in done.stderr
    assert "Cancelled" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("studies", "FOLDER"), ("runs", "FOLDER", "--studies")),
        (("jobs", "STUDY"), ("runs", "STUDY", "--jobs")),
        (("presets", "ring-2"), ("network", "ring-2", "--print")),
        (("inspect", "STUDY", "--node", "1"), ("graph", "STUDY", "--content", "--node", "1")),
        (("find", "STUDY", "mm", "--format", "csv"), ("graph", "STUDY", "mm", "--format", "csv")),
        (("slack", "STUDY"), ("summary", "STUDY", "--view", "slack")),
        (("links", "STUDY", "--view", "dimensions"), ("summary", "STUDY", "--view", "dimensions")),
        (("layers", "STUDY"), ("summary", "STUDY", "--view", "layers")),
        (("collectives", "STUDY"), ("summary", "STUDY", "--view", "collectives")),
    ],
)
def test_an_old_name_warns_and_does_the_same(made, old, new, capsys):
    folders = {"STUDY": made, "FOLDER": made.parent}
    before, after = (
        run_and_read(capsys, *(folders.get(word, word) for word in words)) for words in (old, new)
    )
    assert before[:2] == after[:2]
    assert before[0] == 0
    assert f"'{old[0]}' is now '{new[0]}" in before[2].replace("\n", " ")


def test_fsdp_is_an_old_name_of_zero_3(capsys):
    command = ("predict", "--model", "llama3-8b", "--on", "16xh100", "--format", "json")
    before, after = (run_and_read(capsys, *command, *words) for words in (["--fsdp"], ["--zero", "3"]))
    assert before[:2] == after[:2]
    assert before[0] == 0
    assert "'--fsdp' is now '--zero 3'" in before[2].replace("\n", " ")
    refused = run_and_read(capsys, *command, "--fsdp", "--zero", "1")
    assert "leave out one of the two options" in refused[2].replace("\n", " ")


def test_a_report_replaces_no_file_unless_asked_to(made, tmp_path, capsys):
    file = tmp_path / "report.html"
    file.write_text("mine")
    code, _, err = run_and_read(capsys, "report", made, "-o", file)
    assert (code, file.read_text()) == (2, "mine")
    assert "add --overwrite" in err
    assert command_line.run("report", made, "-o", file, "--overwrite") == 0
    assert "Chakrascope report of " in file.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "STUDY", "-o"),
        ("timeline", "STUDY", "-o"),
        ("graph", "STUDY", "--as", "json", "-o"),
        ("doctor", "STUDY", "--junit"),
        ("algorithm", "export", "ring", "--collective", "all-reduce", "--ranks", "2", "--as", "msccl", "-o"),
    ],
)
def test_folders_of_outputs_are_created(made, arguments, tmp_path, capsys):
    file = tmp_path / "new" / "folder" / "out.svg"
    words = [made if word == "STUDY" else word for word in arguments]
    answer(capsys, *words, file)
    assert file.stat().st_size > 0


def test_the_table_of_collectives_begins_with_a_verdict(made, capsys):
    line = answer(capsys, "summary", made, "--view", "collectives").splitlines()[1]
    assert line.startswith("6 collectives take ")
    assert "The slowest is all_reduce of 6.00 MiB" in line


def test_a_bandwidth_that_grows_leaves_latencies(made, capsys):
    run = answer(capsys, "run", made, "--network", "cpu-cluster-8").split("--run ")[1].split()[0]
    said = answer(capsys, "what-if", made, "--run", run, "--faster", "bandwidth:0=2")
    assert "Network latencies are unchanged" in said
    assert "kind:communication=inf" in said


def test_times_of_measured_ranks_name_their_clock(tmp_path, capsys):
    made = make_study(tmp_path / "study")
    clock = "are relative to the start of the step on this rank"
    for options in ((), ("--view", "collectives"), ("--view", "ranks")):
        measured, simulated = (
            " ".join(answer(capsys, "summary", made.study.path, "--run", run, *options).split())
            for run in (made.run_a, made.run_b)
        )
        assert clock in measured
        assert clock not in simulated
