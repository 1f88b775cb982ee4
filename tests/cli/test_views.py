"""Output of single views: steps, host stacks, workloads, and tables on narrow terminals."""

from __future__ import annotations

import dataclasses
import io
import json

import command_line
import numpy as np
import pandas as pd
import pytest
from command_line import run, run_and_read
from studies import make_captured_study, make_study, make_workload

from chakrascope.cli import _output
from chakrascope.cli._graph import _figure_text
from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.runner import Study
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer.pages import _summary

# Captured steps side by side: ``summary --view steps``, its JSON, and the cards of the Summary page.

NAMES = {"0": "step[EXTEND bs=2 toks=64]", "1": "step[DECODE bs=2]", "2": "step[DECODE bs=2]"}
SHARES = [[0, 0, 5_000_000], [1, 5_000_000, 6_000_000], [2, 6_500_000, 8_000_000]]


def served() -> Workload:
    """Return a captured prefill and two decodes of one rank."""
    nodes = [
        {"node_id": step, "type": NodeType.COMP, "name": "gemm", "kind": "compute", "stream": 1007,
         "step": step, "measured_start_ns": start, "duration_ns": 900_000}
        for step, start, _ in SHARES
    ]  # fmt: skip
    told = {"measured_step_ns": {"0": 8_000_000}, "steps": [0, 1, 2]}
    told |= {"step_names": NAMES, "step_shares": {"0": SHARES}}
    edges = [(0, 1, 0), (1, 2, 0)]
    return Workload((Graph.build(0, nodes, edges),), np.zeros(1, dtype=np.int32), {}, told)


@pytest.fixture
def study(tmp_path, capsys):
    made = Study.create(tmp_path / "study")
    made.add_workload(served(), "job")
    assert run("run", str(made.path), "--backend", "replay") == 0
    capsys.readouterr()
    return made


def test_steps_are_shown_by_kind_and_each(study, capsys):
    assert run("summary", str(study.path), "--view", "steps") == 0
    out = capsys.readouterr().out
    assert "Converted steps by kind" in out
    assert "Each converted step" in out
    assert "tokens" in out
    assert "`convert --step all` converts every captured step" in " ".join(out.split())
    assert run("summary", str(study.path), "--view", "steps", "--format", "csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step,name,kind,requests,tokens,rank,duration_ns,gap_before_ns,compute_ns")
    assert lines[3].startswith("2,step[DECODE bs=2],decode,2,2,0,1500000,500000,900000")


def test_steps_without_annotations_have_no_sizes(tmp_path, capsys):
    made = Study.create(tmp_path / "study")
    plain = served()
    plain.metadata["step_names"] = {}
    made.add_workload(plain, "job")
    assert run("run", str(made.path), "--backend", "replay") == 0
    capsys.readouterr()
    assert run("summary", str(made.path), "--view", "steps") == 0
    out = capsys.readouterr().out
    assert "tokens" not in out
    assert "-1" not in out
    assert "bound_by" not in out


def test_the_summary_s_json_has_steps_and_their_spread(study, capsys):
    assert run("summary", str(study.path), "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["duration_ns"] for row in told["steps"]] == [5_000_000, 1_000_000, 1_500_000]
    decode = told["steps_by_kind"][1]
    assert (decode["kind"], decode["min_ns"], decode["max_ns"]) == ("decode", 1_000_000, 1_500_000)
    assert told["steps_by_kind"][0]["bound_by"] == "host"


def test_the_page_has_the_same_steps(study):
    run = StudyView(study).open(study.run_info().id)
    kinds, each = _summary._steps(run, "light")
    assert "prefill" in str(kinds)
    assert "Captured steps" in str(each)


def test_a_workload_without_captured_steps_says_so(tmp_path, capsys):
    made = Study.create(tmp_path / "study")
    plain = served()
    plain.metadata.pop("step_shares")
    made.add_workload(plain, "job")
    assert run("run", str(made.path), "--backend", "replay") == 0
    for output_format in ("table", "json"):
        assert run("summary", str(made.path), "--view", "steps", "--format", output_format) == 50
        assert "no captured steps" in capsys.readouterr().err


# ``timeline --host`` prints the call stacks that the viewer draws for a window.


@pytest.fixture(scope="module")
def captured(tmp_path_factory, data_dir):
    return make_captured_study(tmp_path_factory.mktemp("captured"), data_dir)


def test_the_stacks_of_a_window_are_those_of_the_page(captured, capfd):
    study, run = captured
    window = "--from", "1ms", "--to", "4ms", "--ranks", "1"
    code, out, _ = run_and_read(capfd, "timeline", study.path, "--host", *window, "--format", "csv")
    assert code == 0
    asked = f"/export/host.csv?run={run}&ranks=1&t0=1000000&t1=4000000"
    exported = create_app(study).server.test_client().get(asked).text
    stacks, page = pd.read_csv(io.StringIO(out)), pd.read_csv(io.StringIO(exported))
    pd.testing.assert_frame_equal(stacks, page)
    assert set(stacks["rank"]) == {1}
    assert stacks.loc[stacks["depth"] == 0, "total_ns"].max() == 3_000_000
    code, out, _ = run_and_read(capfd, "timeline", study.path, "--host", *window)
    assert (code, "__next__" in out) == (0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nested"], "leave out --nested and --measured"),
        (["--from", "100s", "--to", "101s"], "widen the window"),
        (["--ranks", "2"], "the run has 0 to 1"),
    ],
)
def test_what_has_no_host_calls_is_refused(captured, capfd, options, message):
    study, _ = captured
    code, _, err = run_and_read(capfd, "timeline", study.path, "--host", *options)
    assert code == 2
    assert message in " ".join(err.split())


def test_a_run_without_traces_has_none(tmp_path, capfd):
    made = make_study(tmp_path / "study")
    code, _, err = run_and_read(capfd, "timeline", made.study.path, "--host")
    assert code not in {0, 2}
    assert "its host calls are unknown" in " ".join(err.split())


# Output of ``graph`` for workloads of many ranks fits a terminal of 80 columns.


def inspected(capsys, monkeypatch, workload, path, *options):
    monkeypatch.setattr(_output.OutputConsole, "wraps", True)
    monkeypatch.setenv("COLUMNS", "80")
    workload.save(path)
    assert command_line.run("graph", path, *options) == 0
    return capsys.readouterr().out


def test_a_graph_that_cannot_run_has_no_time():
    for name in ("replay_ns", "longest_chain_nodes"):
        assert _figure_text(name, -1) == "cannot run"
    assert _figure_text("replay_ns", 0) == "0 ns"


def test_ranks_with_the_same_figures_share_a_column(capsys, monkeypatch, tmp_path):
    said = inspected(capsys, monkeypatch, make_workload(16), tmp_path / "w")
    assert "ranks 0-14" in said
    assert "rank 15" in said
    facts = json.loads(inspected(capsys, monkeypatch, make_workload(16), tmp_path / "w", "--format", "json"))
    assert facts["ranks"]["0"]["ranks"] == list(range(15))


def test_of_many_different_ranks_the_extremes_are_told_in_80_columns(capsys, monkeypatch, tmp_path):
    made = make_workload(16)
    graphs = tuple(
        graph.with_columns(duration_ns=graph.node_columns["duration_ns"] + 1000 * rank)
        for rank, graph in enumerate(made.graphs)
    )
    said = inspected(capsys, monkeypatch, dataclasses.replace(made, graphs=graphs), tmp_path / "w")
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    (replay,) = [line for line in lines if "replay" in line]
    assert replay.replace("\u2502", " ").split() == ["replay", "4.32", "ms", "0", "5.19", "ms", "15"]
    (nodes,) = [line for line in lines if line.startswith("│ nodes ")]
    assert nodes.replace("\u2502", " ").split() == ["nodes", "18", "all", "18", "all"]


# Line breaks in tables on narrow terminals.


@pytest.fixture
def printed(monkeypatch, capfd):
    """Return a function that prints rows on a terminal of a given width, and returns the lines."""

    def lines(rows, width):
        monkeypatch.setattr(_output.console, "_width", width)
        _output.print_rows(rows)
        return capfd.readouterr().out.splitlines()

    return lines


ROW = {"operation": "all_reduce", "what": "a gap between collectives", "size_bytes": 4_204_593}


def test_words_and_numbers_are_not_broken(printed):
    lines = printed([ROW], 48)
    assert max(map(len, lines)) <= 48
    assert any("all_reduce" in line and "4.01 MiB" in line for line in lines)
    assert not any(
        "collectives" in line and "a gap" in line for line in lines
    )  # the text between them breaks


def test_lines_between_columns_go_before_a_number_breaks(printed):
    lines = printed([ROW], 37)
    assert max(map(len, lines)) <= 37
    assert any("all_reduce" in line and "4.01 MiB" in line and "│" not in line for line in lines)


def test_numbers_break_before_their_unit_where_they_must(printed):
    lines = printed([ROW], 32)
    assert max(map(len, lines)) <= 32
    assert any("all_reduce" in line and "4.01" in line for line in lines)
    assert any("MiB" in line and "4.01" not in line for line in lines)


def test_names_break_between_their_words_where_they_must(printed):
    lines = printed([{"result": "base", "exposed_communication_ns": 9_130_000, "worst_is": "rank 3"}], 36)
    assert max(map(len, lines)) <= 36
    assert any("exposed" in line and "communication" not in line for line in lines)
    assert any("communication" in line for line in lines)


def test_long_names_break_after_dots_before_a_column_is_left_out(printed):
    row = {"key": "compute: GptOss.TransformerBlock_0.Attention_0.Linear_0", "base_ns": 9_130_000}
    lines = printed([row | {"delta_ns": 1_234_567}], 56)
    assert max(map(len, lines)) <= 56
    assert any("9.13 ms" in line and "1.23 ms" in line for line in lines)
    names = [line.strip("│ ").split()[0] for line in lines if "_0" in line or "GptOss" in line]
    assert all(name.endswith((".", "Linear_0")) for name in names), names


@pytest.mark.parametrize("width", [20, 30])
def test_columns_that_do_not_fit_are_named(printed, width):
    text = "".join(sign for line in printed([ROW], width) for sign in line if sign.isalnum())
    assert sorted(text) == sorted(
        sign for sign in "operationwhatsizeall_reduceagapbetweencollectives401MiB" if sign.isalnum()
    )


def test_columns_with_equal_cells_are_left_out_before_those_that_differ(printed):
    same = {"result": "base", "compute_ns": 9_130_000, "copy_ns": 12_345_678, "overlap_ns": 3_456_789}
    rows = [same | {"idle_ns": 4_000_000}, same | {"result": "other", "idle_ns": 7_000_000}]
    table, _, left_out = " ".join(printed(rows, 34)).partition("Too wide to print: ")
    assert "4.00 ms" in table
    assert "7.00 ms" in table
    assert left_out.startswith("copy, overlap;")
    assert "Too wide to print: overlap, idle;" in " ".join(printed(rows[:1], 34))


def test_settings_of_every_run_are_printed_on_a_narrow_terminal(monkeypatch, capfd):
    table = pd.DataFrame([{"setting": "network"} | {f"run {name}": f"network-{name}" for name in "abcdef"}])
    monkeypatch.setattr(_output.console, "_width", 40)
    _output.print_frame(table, "table", all_columns=True)
    out = capfd.readouterr().out
    assert "Too wide" not in out
    assert max(map(len, out.splitlines())) <= 40
