"""Only `Study` builds paths inside a study, and what it builds is where format 0.1 has it."""

from __future__ import annotations

import ast
import json
import os
import shutil
from pathlib import Path

import pytest
from workloads import coll, comp, workload

from chakrascope.cli import main as cli_main
from chakrascope.runner import Study, check_study
from chakrascope.runner.study._layout import StudyLayout

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cli", "converter", "errors", "runner", "support", "tracer", "viewer")
FOLDERS = ("jobs", "runs", "sweeps", "traces", "workloads")
FILES = ("study.json", "run.json")


def literal(node):
    """Return the text of a constant, or what an f-string begins with."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def names_part(node):
    text = literal(node)
    return text in FILES or text.split("/")[0] in FOLDERS


def layout_literals(source):
    """Yield the lines of *source* that join the name of a study's part to a path, or look for one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            found = names_part(node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            joins = node.func.attr in ("glob", "rglob", "joinpath", "with_name")
            found = joins and any(
                names_part(part) or set(literal(part).split("/")) & set(FILES) for part in node.args
            )
        else:
            found = False
        if found:
            yield node.lineno


def test_no_module_but_the_study_s_knows_its_layout():
    found = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            place = file.relative_to(ROOT)
            if place.parts[:2] != ("runner", "study"):
                found += [f"{place}:{line}" for line in layout_literals(file.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'study.path / "runs" / identity',
        'path = Path(target) / "study.json"',
        'list(folder.glob("traces/*/manifest.json"))',
        'folder.glob("*/run.json")',
        'study.path / f"jobs/{name}"',
        'study.path.joinpath("sweeps", name)',
    ],
)
def test_the_search_finds_what_it_is_for(line):
    assert list(layout_literals(line)) == [1]


def test_in_the_study_only_the_layout_knows_the_names():
    folder = ROOT / "runner" / "study"
    files = [file for file in folder.rglob("*.py") if file.name != "_layout.py"]
    found = [f"{file.name}:{line}" for file in files for line in layout_literals(file.read_text())]
    assert found == []


def test_everything_is_where_the_format_has_it(tmp_path):
    study = StudyLayout(tmp_path)
    assert {
        study.head_file,
        study.traces_dir,
        study.trace_dir("a"),
        study.prefix_in(study.workload_dir("b")),
        study.run_file("c"),
        study.sweep_dir("d"),
        study.jobs_dir,
    } == {
        tmp_path / part
        for part in (
            "study.json",
            "traces",
            "traces/a",
            "workloads/b/workload",
            "runs/c/run.json",
            "sweeps/d",
            "jobs",
        )
    }


def job():
    return workload(*[[comp(0, 500), coll(1, 1 << 20, (0,))] for _ in range(2)])


def test_names_are_those_of_what_is_there(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(job(), "job")
    (study.new_trace_dir("captured") / "manifest.json").write_text("{}")
    study.new_trace_dir("unfinished")
    assert study.taken_names() == {"job", "captured", "unfinished"}
    assert study.unfinished_trace_dirs() == [study.trace_dir("unfinished")]
    assert study.trace_set_dirs() == [study.latest_trace_set()]
    assert study.graph_prefixes() == [study.workload_prefix("job")]
    before = study.last_change()
    os.utime(study.workloads_dir, (before + 5, before + 5))
    assert study.last_change() == before + 5


def test_what_a_dead_process_left_of_a_run_goes(tmp_path):
    study = Study.create(tmp_path / "study")
    left, other = (study.runs_dir / f".abc.0123abcd-{pid}-89abcdef.tmp" for pid in (77, 78))
    left.mkdir(parents=True)
    other.mkdir()
    study.discard_unfinished_run("abc", 77)
    assert (left.exists(), other.exists()) == (False, True)


def test_a_study_is_looked_over_whole(tmp_path, data_dir):
    study = Study.create(tmp_path / "study")
    (finding,) = check_study(study)
    assert (finding.severity, "no trace set" in finding.cause) == ("warning", True)
    study.new_trace_dir("unfinished")
    shutil.copytree(data_dir / "converter" / "ring_2", study.trace_dir("one"))
    study.add_workload(job(), "job")
    first = study.graph_prefixes()[0].with_name("workload.0.et")
    assert [finding.place for finding in check_study(study)] == [str(study.trace_dir("unfinished"))]
    first.write_bytes(b"no graph")
    worst, other = check_study(study)
    assert (worst.severity, other.severity) == ("error", "warning")
    assert str(first) in worst.place or str(first) in worst.cause


def test_of_a_study_the_newest_capture_is_collected(tmp_path, data_dir):
    study = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "ring_2", study.trace_dir("z"))
    manifest = study.trace_dir("z") / "manifest.json"
    whole = {"command": [], "reasons": [], "notes": [], "options": {}, "exit_code": 0} | json.loads(
        manifest.read_text()
    )
    manifest.write_text(json.dumps(whole))
    old = study.new_trace_dir("old") / "manifest.json"
    old.write_text("{}")
    os.utime(old, (1, 1))
    with pytest.raises(SystemExit) as ended:
        cli_main(["trace", "--output", str(tmp_path / "all"), "--collect", str(study.path)])
    assert ended.value.code == 0
    (collected,) = Study.open(tmp_path / "all").trace_set_dirs()
    assert {file.name for file in study.trace_dir("z").iterdir()} == {
        file.name for file in collected.iterdir()
    }
