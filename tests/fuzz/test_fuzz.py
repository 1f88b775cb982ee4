"""The fuzzer of readers finds, reports and stores crashes; stored cases stay fixed."""

from __future__ import annotations

import functools
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command_line import script
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import ConfigError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import targets  # noqa: E402 - run as scripts, beside each other
from mutate import damaged  # noqa: E402

seeds_of = functools.cache(lambda name: targets.TARGETS[name].seeds())


@pytest.fixture(scope="module")
def fuzzer():
    return script(HERE / "__main__.py")


def test_known_fuzz_cases_are_refused_or_read(fuzzer, tmp_path):
    crashes = []
    for name, target in targets.TARGETS.items():
        for case, files in targets.saved_cases(name).items():
            fuzzer.write(tmp_path / name / case, files)
            _, text = fuzzer.outcome(target.use, tmp_path / name / case)
            crashes += [f"{name}/{case}", text] * bool(text)
    assert not crashes, "\n".join(crashes)
    with zipfile.ZipFile(targets.CORPUS) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} <= targets.TARGETS.keys()


def test_fuzz_seeds_are_valid(fuzzer, tmp_path):
    ended = {}
    for name, target in targets.TARGETS.items():
        fuzzer.write(tmp_path / name, target.seeds()[0])
        ended[name] = fuzzer.outcome(target.use, tmp_path / name)
    # A connection without the secret is refused, as it should be.
    assert {name: end for name, end in ended.items() if end[0] != "read"} == {"handshake": ("Refused", "")}


@pytest.mark.parametrize("name", targets.TARGETS)
@given(seed=st.integers(0, 1 << 64))
@settings(max_examples=8, deadline=None)
def test_damaged_files_are_read_or_refused(fuzzer, tmp_path_factory, name, seed):
    target, chance = targets.TARGETS[name], random.Random(seed)
    files = dict(chance.choice(seeds_of(name)))
    changed = chance.choice([each for each in files if not target.changed or each in target.changed])
    files[changed] = damaged(changed, files[changed], chance)
    folder = tmp_path_factory.getbasetemp() / name
    fuzzer.write(folder, files)
    _, crash = fuzzer.outcome(target.use, folder)
    assert not crash, crash


@pytest.mark.parametrize("name", ["a.json", "a.yml", "a.et", "a.txt"])
def test_the_same_seed_damages_alike(fuzzer, name):
    content = b'{"a": [1, 2, {"b": "text"}]}'
    made = [[damaged(name, content, random.Random(seed)) for seed in range(40)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 20


def test_only_errors_for_people_are_no_crash(fuzzer, tmp_path):
    def refuse(folder):
        raise ConfigError(f"{folder} is wrong. Correct it.")

    def fail(folder):
        raise KeyError(folder)

    assert fuzzer.outcome(refuse, tmp_path) == ("ConfigError", "")
    ended, text = fuzzer.outcome(fail, tmp_path)
    assert ended == "crash"
    assert "KeyError" in text


def test_a_crash_is_kept_once_with_its_input(fuzzer, tmp_path, capsys):
    fuzzer.write(tmp_path / "worker" / "kept", {"in/a.json": b"[}"})
    (tmp_path / "worker" / "target").write_text("groups")
    for _ in range(2):
        fuzzer.keep(tmp_path / "worker", 'File "x.py", line 3\nKeyError: 7')
    (kept,) = tmp_path.glob("groups-*")
    assert (kept / "input" / "in" / "a.json").read_bytes() == b"[}"
    assert "KeyError: 7" in (kept / "traceback.txt").read_text()
    assert capsys.readouterr().err.count("--again") == 1


def test_a_short_run_counts_its_inputs(tmp_path):
    command = [
        sys.executable,
        HERE,
        "--seconds",
        "300",
        "--inputs",
        "40",
        "--seed",
        "3",
        "--only",
        "groups,text",
    ]
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True, check=True)
    rows = {line.split()[0]: line.split()[1:5] for line in done.stdout.splitlines()[2:]}
    inputs, read, refused, crashes = map(int, rows["all"])
    assert list(rows) == ["groups", "text", "all"]
    assert inputs == read + refused == 40
    assert crashes == 0


# The fuzzer of commands generates calls, and detects faults.


@pytest.fixture(scope="module")
def commands():
    return script(HERE / "commands.py")


def test_hostile_calls_end_with_a_message():
    command = [sys.executable, HERE / "commands.py", "--calls", "20", "--seed", "1", "--first", "8000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^20 calls, 0 faults; exit codes 0: \d+, ", done.stdout, re.MULTILINE)


def test_every_command_has_right_arguments_to_start_from(commands):
    import calls

    assert set(commands.commands_of([])) == set(calls._BASES) | set(calls._ENDLESS)


def test_a_call_depends_on_its_seed_alone(commands):
    import random

    found = commands.commands_of([])
    made = [[commands.make_call(found, random.Random(f"7 {n}")) for n in range(200)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 150


@pytest.mark.parametrize(
    ("code", "out", "err", "fault"),
    [
        (0, "", "", ""),
        (1, "2 problems", "", ""),
        (40, "", "Error: no such network", ""),
        (141, "", "", ""),
        (40, "", "", "without a message"),
        (120, "", "broken pipe", "exit code 120"),
        (-11, "", "", "signal 11"),
        (1, "", 'Traceback (most recent call last)\n  File "x.py", line 3\nKeyError: 7', "KeyError: 7"),
        (40, "", "x" * 30_000, "30000 characters"),
    ],
)
def test_faults_are_recognised(commands, code, out, err, fault):
    assert bool(commands.fault_of(code, out, err)) == bool(fault)
    assert fault in commands.fault_of(code, out, err)
