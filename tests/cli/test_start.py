"""Modules that commands import at startup, and processes that outlive a command (none)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from processes import descendants, is_running, wait_for
from studies import make_study

from chakrascope.cli._options import LateChoice
from chakrascope.converter import microbenchmark
from chakrascope.runner import Study, simulate

LARGE = ["networkx", "numpy", "pandas", "pyarrow", "scipy"]
LOADED = (
    f"import json; print(json.dumps([name for name in {LARGE!r} if name in sys.modules]), file=sys.stderr)"
)


def loaded_by(code: str, **environment: str) -> tuple[str, list[str]]:
    """Return the output of *code* in a separate process, and the large libraries that it loaded."""
    code = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n{LOADED}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout, json.loads(done.stderr.splitlines()[-1])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Study.create(tmp_path_factory.mktemp("start") / "study")
    prefix = made.add_workload(microbenchmark("all-reduce", 2, 1024), "job")
    from chakrascope.runner import prepare

    experiment = prepare(prefix, "default", "ring-2")
    made.add_run(experiment, simulate(prefix, "default", "ring-2"), label="of old")
    return made.path


def test_the_list_of_commands_loads_no_large_library():
    text, loaded = loaded_by("from chakrascope.cli import main; main(['--help'])")
    assert "critical-path" in text
    assert loaded == []


@pytest.mark.parametrize("output_format", ["table", "json"])
def test_the_list_of_runs_loads_no_large_library(study, output_format):
    code = f"from chakrascope.cli import main; main(['runs', {str(study)!r}, '--format', {output_format!r}])"
    text, loaded = loaded_by(code)
    assert "of old" in text
    assert loaded == []


def test_completion_loads_no_large_library():
    words = {"COMP_WORDS": "chakrascope critical-path --b", "COMP_CWORD": "2"}
    text, loaded = loaded_by(
        "from chakrascope.cli import main; main([])", _CHAKRASCOPE_COMPLETE="bash_complete", **words
    )
    assert text == "plain,--by\n"
    assert loaded == []


def test_the_package_loads_its_names_when_they_are_used():
    text, _ = loaded_by("import chakrascope as c; print(all(hasattr(c, name) for name in c.__all__))")
    assert text.strip() == "True"
    assert loaded_by("import chakrascope")[1] == []


def test_no_command_loads_a_table_library_before_it_is_used():
    code = (
        "import click; from chakrascope.cli import cli; context = click.Context(cli); "
        "print(*[name for name in cli.list_commands(context) if cli.get_command(context, name)])"
    )
    text, loaded = loaded_by(code)
    assert "what-if" in text.split()
    assert set(loaded) <= {"numpy"}, "import it in the function that uses it"


def test_frequent_commands_import_no_pandas(study, tmp_path):
    system = tmp_path / "system.json"
    system.write_text('{"all-reduce-implementation": ["halvingDoubling"]}')
    place = str(study)
    commands = {
        "makespan": ["run", place, "--network", "ring-2", "--system", str(system)],
        "Critical path by kind": ["summary", place],
        "Longest of the path's": ["critical-path", place],
        "Slack": ["summary", place, "--view", "slack"],
        "rank,node_id,name": ["summary", place, "--view", "slack", "--format", "csv"],
    }
    code = "import contextlib; from chakrascope.cli import main\n"
    for words in commands.values():
        code += f"    with contextlib.suppress(SystemExit): main({words!r})\n"
    text, loaded = loaded_by(code)
    assert [output for output in commands if output not in text] == []
    assert set(loaded) <= {"numpy", "pyarrow"}, "keep to columns where no pandas is asked for"


def test_a_cached_trace_is_answered_without_a_large_library(data_dir, tmp_path):
    trace = data_dir / "converter" / "kineto" / "bert_small_h100.json.gz"
    code = f"from chakrascope.cli import main; main(['summary', {str(trace)!r}])"
    computed, imported = loaded_by(code, XDG_CACHE_HOME=str(tmp_path))
    assert "is bound by" in computed
    assert "numpy" in imported
    assert loaded_by(code, XDG_CACHE_HOME=str(tmp_path)) == (computed, [])


def test_a_late_choice_asks_once_and_refuses_the_rest():
    asked = []

    def known():
        asked.append(1)
        return ["dot", "json"]

    choice = LateChoice(known)
    assert asked == []
    assert choice.convert("dot", None, None) == "dot"
    with pytest.raises(Exception, match="Allowed: dot, json"):
        choice.convert("xml", None, None)
    assert asked == [1]


# No process outlives the command that started it, even if the command is killed.


def convert(_):
    """Workers of a conversion whose ranks never end."""
    code = "import time; from chakrascope.converter.building import _workers;"
    return ["-c", f"{code} list(_workers._mapped(time.sleep, [600] * 3, 2))"], 3


def sweep(folder):
    """Workers of a sweep that wait for work."""
    code = "import time, pathlib; from chakrascope.runner.sweep import _pool;"
    code += f"here = pathlib.Path({str(folder)!r});"
    return ["-c", f"{code} kept = [_pool._Worker(here, here / 'log') for _ in range(2)]; time.sleep(600)"], 2


def foreign(folder):
    """A program outside of this project, and its child processes."""
    code = "import time, pathlib; from chakrascope.runner.backends import _process;"
    command = ["/bin/sh", "-c", "sleep 600 & sleep 600"]
    code += f"kept = _process.Guarded({command}, pathlib.Path({str(folder)!r})); time.sleep(600)"
    return ["-c", code], 4


def query(folder):
    """A query that never ends."""
    made = make_study(folder / "study")
    sql = "select count(*) from nodes a, range(100000000) b, range(100000000) c"
    return ["-m", "chakrascope.cli", "query", made.study.path, sql, "--timeout", "600"], 1


def trace(folder):
    """A training command that starts other processes, one of them in a separate session."""
    script = folder / "train.py"
    script.write_text(
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '600'])\n"
        "subprocess.Popen(['sh', '-c', 'sleep 600; sleep 600'], start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    command = ["-m", "chakrascope.cli", "trace", "-o", folder / "study", "--", sys.executable, script]
    return command, 5  # the command, its three children, and the guard


COMMANDS = {"convert": convert, "foreign": foreign, "query": query, "sweep": sweep, "trace": trace}
ENDS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}


@pytest.mark.parametrize(
    ("name", "end"),
    [*((name, "kill") for name in COMMANDS), ("foreign", "terminate"), ("convert", "interrupt")],
)
def test_no_helper_outlives_its_command(tmp_path, name, end):
    arguments, least = COMMANDS[name](tmp_path)
    command = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    helpers = []
    try:
        wait_for(lambda: len(descendants(command.pid)) >= least or command.poll() is not None)
        assert command.poll() is None, command.stderr.read()
        helpers = descendants(command.pid)
        if end == "interrupt":  # Ctrl-C reaches all processes of a terminal
            os.killpg(command.pid, ENDS[end])
        else:
            command.send_signal(ENDS[end])
        wait_for(lambda: not any(map(is_running, helpers)))
        wait_for(lambda: command.poll() is not None)
        assert b"SpawnProcess" not in command.stderr.read()
    finally:
        command.kill()
        for left in filter(is_running, helpers):
            os.kill(left, signal.SIGKILL)
        command.communicate()


@pytest.mark.parametrize("module", ["click", "chakrascope.cli._runs", "pandas"])
def test_ctrl_c_while_modules_are_imported_is_quiet(module):
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from chakrascope.cli import main\n"
        "sys.argv = ['chakrascope', 'runs']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_ctrl_c_while_a_command_exits_is_quiet():
    code = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "from chakrascope.cli import main\n"
        "sys.argv = ['chakrascope', 'network', '--help']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")
    assert b"List the presets" in done.stdout


def test_support_loads_the_standard_library_alone():
    code = "before = set(sys.modules); import chakrascope.support; print(*set(sys.modules) - before)"
    text, _ = loaded_by(code)
    imported = {name.partition(".")[0] for name in text.split()}
    assert imported - set(sys.stdlib_module_names) == {"chakrascope"}
