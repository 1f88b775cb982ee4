"""Commands that print the same results as pages of the viewer, on one small study."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import command_line
import numpy as np
import pandas as pd
import pytest
from command_line import answer
from rich.console import Console
from studies import run_in

from chakrascope.cli import main
from chakrascope.cli._compare import _is_attributable
from chakrascope.cli._output import _cell, console, error_console, print_frame
from chakrascope.converter import CollectiveType, Graph, NodeType, Workload
from chakrascope.errors import did_you_mean
from chakrascope.runner import NetworkConfig, Study
from chakrascope.runner.analysis import TIME_FORMULA, comparison_text

NETWORK = NetworkConfig(("Switch",), (4,), (10.0,), (500.0,), name="switch-4")


def rank_nodes(rank):
    def node(number, name, duration_ns, **facts):
        plain = {"type": NodeType.COMP, "kind": "compute", "operator": name, "phase": "forward"}
        return (
            {"node_id": number, "name": name, "duration_ns": duration_ns, "module": f"layers.{number // 3}"}
            | plain
            | facts
        )

    reduce = {
        "type": NodeType.COMM_COLL,
        "kind": "communication",
        "comm_type": CollectiveType.ALL_REDUCE,
        "comm_size_bytes": 1 << 20,
        "stream": 1,
    }
    return [
        node(0, "python before aten::mm", 10_000, kind="host"),
        node(1, "aten::mm", 400_000 + 50_000 * rank),
        node(2, "c10d::allreduce_", 300_000, **reduce),
        node(3, "aten::add", 20_000),
    ]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    edges = [(0, 1, 0), (1, 2, 0), (2, 3, 0)]
    graphs = tuple(Graph.build(rank, rank_nodes(rank), edges) for rank in range(4))
    made = Study.create(tmp_path_factory.mktemp("answers") / "study")
    program = Workload(graphs, np.arange(4, dtype=np.int32), {}, {"measured_step_ns": {}})
    for backend in ("analytical-unaware", "analytical-aware"):
        run_in(made, program, NETWORK, backend=backend)
    return made


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["run", "--network", "hgx-h100-8"], "measured on CPUs, but the machine is one of H100s"),
        (["sweep", "--over", "network=hgx-h100-8", "--workers", "0"], "the job was captured on CPUs"),
    ],
    ids=["run", "sweep"],
)
def test_compute_of_a_cpu_on_accelerators_is_warned_of(study, tmp_path, capfd, command, words):
    shutil.copytree(study.path, tmp_path / "study")
    command_line.run(command[0], tmp_path / "study", *command[1:])
    shown = capfd.readouterr()
    assert words in shown.out + shown.err


def test_compute_scaled_to_a_chip_is_not_warned_of_and_a_run_is_of_its_workload(study, tmp_path, capfd):
    shutil.copytree(study.path, tmp_path / "study")
    made = Study.open(tmp_path / "study")
    job = made.workload("job")
    graphs = tuple(
        graph.with_columns(duration_ns=graph.node_columns["duration_ns"] // 9) for graph in job.graphs
    )
    made.add_workload(replace(job, graphs=graphs, metadata=job.metadata | {"computed_for": "h100"}), "scaled")
    assert command_line.run("run", made.path, "--network", "hgx-h100-8") == 0
    assert "measured on CPUs" not in capfd.readouterr().err
    assert command_line.run("run", made.path, "--network", "hgx-h100-8", "--workload", "job") == 0
    assert "measured on CPUs" in capfd.readouterr().err
    assert [info.workload for info in made.runs()][-2:] == ["scaled", "job"]


@pytest.mark.parametrize(
    "command",
    [
        ["summary"],
        ["critical-path"],
        ["summary", "--view", "slack"],
        ["summary", "--view", "collectives"],
        ["summary", "--view", "links"],
        ["summary", "--view", "dimensions"],
        ["summary", "--view", "traffic"],
        ["summary", "--view", "traffic-busy"],
        ["summary", "--view", "loads"],
        ["summary", "--view", "layers"],
        ["timeline"],
        ["timeline", "--nested"],
        ["timeline", "--from", "0.1", "--to", "0.4", "--ranks", "1-2"],
        ["graph", "--hops", "2"],
        ["graph", "--rank", "2", "--node", "1", "--hops", "1", "--edge", "data"],
        *(["graph", "--fold", fold] for fold in ("modules", "phases", "streams", "ranks")),
        ["graph", "--view", "edges"],
        ["graph", "aten::mm"],
        ["runs"],
        ["what-if", "--faster", "bandwidth:0=2"],
        ["compare"],
        ["compare", "--view", "kinds"],
    ],
)
def test_every_answer_comes_as_a_table_json_and_csv(study, capfd, command):
    name, *options = command
    assert "───" in answer(capfd, name, study.path, *options)
    assert json.loads(answer(capfd, name, study.path, *options, "--format", "json"))
    assert "," in answer(capfd, name, study.path, *options, "--format", "csv").splitlines()[0]


def test_table_begins_with_its_subject(study, capfd):
    first = answer(capfd, "summary", study.path).splitlines()[0]
    run = f"Run {study.run_info().id[:8]}: job, 4 ranks, analytical-aware on switch-4"
    assert first == f"{run} (the newest of 2 runs; --run chooses another)"


def test_a_study_without_a_run_answers_for_the_capture(tmp_path, capfd):
    made = Study.create(tmp_path / "study")
    assert command_line.run("summary", made.path) == 60
    capfd.readouterr()
    measured = [(0, 1, 0), (1, 2, 0)]
    nodes = [
        {"node_id": number, "name": "aten::mm", "type": NodeType.COMP, "kind": "compute"}
        | {"duration_ns": 1000, "measured_start_ns": 1000 * number, "measured_end_ns": 1000 * (number + 1)}
        for number in range(3)
    ]
    graphs = (Graph.build(0, nodes, measured),)
    ranks = pd.Series([0], dtype="int32").to_numpy()
    made.add_workload(Workload(graphs, ranks, {}, {"measured_step_ns": {"0": 3000}}), "job")
    first = answer(capfd, "summary", made.path).splitlines()[0]
    assert first == f"Run {made.run_info().id[:8]}: job, 1 rank, as measured"
    assert answer(capfd, "summary", made.path, "--run", "measured").splitlines()[0] == first
    assert len(made.runs()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rank", "1"], "add --view"),
        (["--view", "layers", "--rank", "1"], "has no ranks"),
        (["--view", "ranks", "--rank", "9"], "no row with --rank 9"),
        (["--view", "slack", "--rank", "0", "--node", "999"], "--rank 0 --node 999"),
        (["--view", "layer"], "layers"),
    ],
)
def test_a_view_says_which_rows_it_has(study, capfd, options, words):
    assert command_line.run("summary", study.path, *options) == 2
    assert words in " ".join(capfd.readouterr().err.split())


def test_summary_prints_advice(study, capfd):
    said = json.loads(answer(capfd, "summary", study.path, "--format", "json"))
    assert said["headline"].startswith("The step takes ")
    assert said["advice"][0]["gain_ns"] == max(item["gain_ns"] for item in said["advice"])
    for row in said["ranks"]:
        assert row["compute_ns"] + row["exposed_comm_ns"] + row["idle_ns"] == said["makespan_ns"]


def test_all_commands_agree_on_the_bound(study, capfd):
    summary, path = (answer(capfd, command, study.path) for command in ("summary", "critical-path"))
    assert path.split("Critical path by kind")[0] == summary.split("Changes that would help")[0]


def test_slack_of_one_node_of_a_rank_that_waits(study, capfd):
    options = ["--rank", "0", "--node", "1", "--format", "json"]
    (row,) = json.loads(answer(capfd, "summary", study.path, "--view", "slack", *options))
    assert row["slack_ns"] == 150_000
    assert (row["name"], row["module"]) == ("aten::mm", "layers.0")


def test_the_traffic_matrix_holds_every_byte_of_the_links(study, capfd):
    matrix = json.loads(answer(capfd, "summary", study.path, "--view", "traffic", "--format", "json"))
    links = json.loads(answer(capfd, "summary", study.path, "--view", "links", "--format", "json"))
    total = sum(value for row in matrix for value in row.values() if not isinstance(value, str))
    assert total == sum(link["bytes"] for link in links) > 0


def test_more_bandwidth_and_one_thing_less_to_wait_for(study, capfd):
    options = ["--faster", "bandwidth:0=2", "--drop", "0/0-1", "--format", "json"]
    (row,) = json.loads(answer(capfd, "what-if", study.path, *options))
    assert row["delta_ns"] < 0
    assert row["key"] == "bandwidth:0=2 edge:0/0-1"


def test_how_much_faster_has_to_be_said(study, capfd):
    assert command_line.run("what-if", study.path, "--faster", "bandwidth:0") == 2
    assert "'bandwidth:0' has no speed-up factor. Next: write bandwidth:0=2." in " ".join(
        capfd.readouterr().err.split()
    )


def test_each_contributor_in_turn(study, capfd):
    rows = json.loads(answer(capfd, "what-if", study.path, "--format", "json"))
    assert {"operator:aten::mm", "kind:host", "bandwidth:0"} <= {row["key"] for row in rows}
    assert rows == sorted(rows, key=lambda row: row["makespan_ns"])


def test_runs_are_labelled_annotated_found_and_deleted(study, capfd):
    first, second = (info.id for info in study.runs())
    answer(
        capfd,
        "runs",
        study.path,
        "--run",
        first[:8],
        "--label",
        "the base",
        "--tag",
        "final",
        "--tag",
        "a100",
        "--note",
        "for Zoe",
    )
    (found,) = json.loads(answer(capfd, "runs", study.path, "--find", "ZOE", "--format", "json"))
    assert (found["id"], found["label"], found["note"]) == (first, "the base", "for Zoe")
    assert found["tags"] == "a100, final"
    assert json.loads(answer(capfd, "runs", study.path, "--find", "zz", "--format", "json")) == []
    experiment, result = study.experiment(second), study.result(second)
    left = json.loads(answer(capfd, "runs", study.path, "--delete", second, "--format", "json"))
    assert [row["id"] for row in left] == [first]
    study.add_run(experiment, result)


def test_comparison_with_the_measurement_is_written_as_parquet_too(study, capfd, tmp_path):
    options = ["--measured", "-o", str(tmp_path / "tables"), "--format", "json"]
    said = answer(capfd, "compare", study.path, *options)
    tables = json.loads(said[said.index("{") :])
    assert [row["result"] for row in tables["overview"]] == [
        "measured",
        "analytical-unaware",
        "analytical-aware",
    ]
    assert "communication - overlap" in tables["formula"]
    for file in (tmp_path / "tables").iterdir():
        assert len(pd.read_parquet(file)) == len(tables[file.stem])
    assert {row["of"] for row in tables["errors"]} == {"nodes", "collectives"}


def test_compare_begins_with_the_answer_and_the_settings_that_differ(study, capfd):
    said = answer(capfd, "compare", study.path)
    answered = next(line for line in said.splitlines() if line.startswith("analytical-"))
    assert re.fullmatch(r"(\S+): \S+ \S+; (?!\1)\S+: \S+ \S+ \([+-]\S+ %\)\.", answered)
    assert said.index(answered) < said.index("Settings that differ")
    assert said.index("│ backend") < said.index("Step time of each result")
    assert "network" not in said[said.index("Settings") : said.index("Step time of each result")]
    assert "--why simulates how much each differing setting contributes" in said
    assert "--why" not in answer(capfd, "compare", study.path, "--measured")
    command_line.run("compare", study.path, "--run", study.run_info().id)
    assert "another --run" in capfd.readouterr().err


def test_compare_names_why_only_for_two_simulations():
    aware, replay = SimpleNamespace(backend="analytical-aware"), SimpleNamespace(backend="replay")
    settings = pd.DataFrame({"differs": [True]})
    for results, expected in (((aware, aware), True), ((aware,) * 3, False), ((aware, replay), False)):
        assert _is_attributable(SimpleNamespace(results=results, settings=settings)) is expected


def test_compare_answers_without_a_change_that_is_unknown():
    rows = [("measured", 5_000_000, 0.0), ("other", 4_000_000, math.nan), ("third", 6_000_000, 0.2)]
    overview = pd.DataFrame(rows, columns=["result", "makespan_ns", "relative"])
    assert (
        comparison_text(overview["result"], overview)
        == "measured: 5.00 ms; other: 4.00 ms, third: 6.00 ms (+20.0 %)."
    )


def test_answers_in_pipes_are_whole_lines(study, tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    for command in ("summary", "compare"):
        said = answer(capfd, command, study.path)
        assert TIME_FORMULA in said.splitlines()
    assert re.search("^Reference run: .* choose another\\.$", said, re.MULTILINE)
    assert re.search("^Next: `chakrascope network NAME` .* file\\.$", answer(capfd, "network"), re.MULTILINE)
    copied = shutil.copytree(study.path, tmp_path / "study")  # its runs are shared by all tests
    output = answer(capfd, "run", copied, "--network", "hgx-h100-8")
    remarks = re.findall("^(?:Warning|Assumed): .*$", output, re.MULTILINE)
    assert max(map(len, remarks)) > 80
    assert all(remark.endswith(".") for remark in remarks)


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--why"], "a measurement has no such settings"), ([], "makes the measured step the reference run")],
)
def test_compare_refuses_the_measurement_as_a_run(study, capfd, options, reason):
    run = study.run_info().id
    assert command_line.run("compare", study.path, *options, "--run", "measured", "--run", run) == 2
    assert reason in capfd.readouterr().err


def test_sentences_are_printed_whole_and_endless_names_are_not():
    assert _cell("cause", "word " * 60) == "word " * 60
    assert len(_cell("name", "x" * 10_000)) < 400


def test_tables_are_whole_on_a_narrow_terminal_and_empty_ones_a_word(capsys, monkeypatch):
    monkeypatch.setattr("chakrascope.cli._output.console", Console(width=72))
    print_frame(pd.DataFrame({f"figure_{number}_ns": [123_456_789] for number in range(6)}), "table")
    shown = capsys.readouterr().out
    assert (shown.count("123 ms"), shown.count("ms")) == (6, 6)
    print_frame(pd.DataFrame(columns=["figure_ns"]), "table", title="Figures")
    assert capsys.readouterr().out == "Figures: none\n"


def test_a_terminal_without_these_signs_is_told_the_same(study):
    command = [sys.executable, "-m", "chakrascope.cli", "summary", str(study.path)]
    shown = {
        encoding: subprocess.run(
            command, capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": encoding}
        ).stdout.decode(encoding)
        for encoding in ("ascii", "latin-1")
    }
    assert "899 us" in shown["ascii"]
    assert "899 µs" in shown["latin-1"]


def test_links_of_a_backend_without_messages_say_which_has_them(study, capfd):
    assert answer(capfd, "summary", study.path, "--view", "link-use", "--format", "csv").startswith(
        "src,dst,start_ns"
    )
    for view in ("flows", "packets", "traffic-flows"):
        assert command_line.run("summary", study.path, "--view", view) == 50
        assert "'packet'" in capfd.readouterr().err


def test_timeline_counts_the_window_and_is_exported_completely(study, capfd, tmp_path):
    trace = tmp_path / "t.json"
    options = ["--from", "0", "--to", "0.01", "--ranks", "0", "--format", "json", "-o", trace]
    (row,) = json.loads(answer(capfd, "timeline", study.path, *options))
    assert (row["operator"], row["slices"], row["total_ns"]) == ("python before aten::mm", 1, 10_000)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} >= {"rank 3"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ranks", "7"], "the run has 0 to 3"),
        (["--from", "0.5", "--to", "0.2"], "is empty"),
    ],
)
def test_missing_timeline_is_an_error(study, capfd, options, said):
    assert command_line.run("timeline", study.path, *options) == 2
    assert said in capfd.readouterr().err.replace("\n", " ")


def test_the_graph_around_a_node_names_its_edges(study, capfd):
    options = ["--rank", "2", "--node", "1", "--hops", "1", "--format", "json"]
    found = json.loads(answer(capfd, "graph", study.path, *options))
    assert [node["node_id"] for node in found["nodes"]] == [0, 1, 2]
    assert {(edge["src"], edge["dst"], edge["why"]) for edge in found["edges"]} == {
        (0, 1, "data"), (1, 2, "data"),
    }  # fmt: skip
    assert command_line.run("graph", study.path, "--rank", "9") == 2
    assert "ranks 0 to 3" in capfd.readouterr().err


def test_studies_are_listed_begun_and_described(study, capfd):
    folder = study.path.parent
    told = ["--study", "empty", "--tag", "for later", "--note", "none yet"]
    listed = json.loads(answer(capfd, "runs", folder, "--new", "empty", *told, "--format", "json"))
    assert [(row["name"], row["runs"], row["note"]) for row in listed] == [
        ("empty", 0, "none yet"), ("study", 2, ""),
    ]  # fmt: skip
    (found,) = json.loads(answer(capfd, "runs", folder, "--find", "LATER", "--format", "json"))
    assert found["tags"] == "for later"
    assert "empty" in answer(capfd, "runs", folder)
    assert "no matching study" in answer(capfd, "runs", folder, "--find", "nothing of the kind")


def test_what_lies_in_a_folder_is_listed_looked_over_and_imported(capfd, tmp_path):
    given = Path(__file__).parent.parent / "data" / "converter"
    target = tmp_path / "new"
    listed = json.loads(answer(capfd, "import", target, given, "--format", "json"))
    assert not target.exists()
    places = {row["place"]: row for row in listed}
    assert places["mlp_2"]["kind"] == "trace set"
    assert "nothing is wrong" in answer(capfd, "import", target, given, "mlp_2", "--check")
    assert not target.exists()
    said = answer(capfd, "import", target, given, "mlp_2", "--name", "two")
    assert "workload 'two'" in said
    assert Study.open(target).workload("two").num_ranks == 2
    assert command_line.run("import", target, given, "mlp_3") == 60
    assert "did you mean 'mlp_2'" in capfd.readouterr().err.replace("\n", " ")


def test_nothing_but_view_needs_dash(study, tmp_path):
    """All other commands must work without the extra [viewer]."""
    code = (
        "import sys\n"
        "for name in ('dash', 'plotly', 'flask', 'dash_mantine_components', 'dash_ag_grid'):\n"
        "    sys.modules[name] = None\n"
        "import click, importlib, pkgutil\n"
        "from chakrascope.cli import cli, main\n"
        "import chakrascope.viewer.queries as queries\n"
        "for module in pkgutil.iter_modules(queries.__path__):\n"
        "    importlib.import_module(f'chakrascope.viewer.queries.{module.name}')\n"
        "for name in cli.list_commands(click.Context(cli)):\n"
        "    assert cli.get_command(click.Context(cli), name) is not None\n"
        f"main(['report', {str(study.path)!r}, '-o', {str(tmp_path / 'report.html')!r}])\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (tmp_path / "report.html").is_file()


def test_a_run_is_checked_before_it_is_made(study, capfd):
    before = [run.id for run in study.runs()]
    options = ["--network", "hgx-h100-8", "--backend", "analytical-aware", "--backend", "replay", "--check"]
    said = json.loads(answer(capfd, "run", study.path, *options, "--format", "json"))
    assert {found["severity"] for found in said["findings"]} == {"note", "warning"}
    assert "measured on CPUs, but the machine is one of H100s" in said["findings"][0]["cause"]
    assert "repeated 2 times" in said["findings"][1]["cause"]
    assert "repeated 2 times" in answer(capfd, "run", study.path, *options)
    assert answer(capfd, "run", study.path, *options, "--format", "csv").startswith(
        "severity,place,cause,remedy"
    )
    assert [run.id for run in study.runs()] == before


def test_a_run_asks_for_an_error(study, capfd):
    options = ["--network", "hgx-h100-8", "--backend", "auto", "--error", "5%", "--format", "json"]
    told = json.loads(answer(capfd, "run", study.path, *options))["provenance"]["auto"]
    assert told["asked"] == 0.05
    assert told["answered"] == "flow"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["STUDY", "--network", "hgx-h100-8", "--error", "2%"], 2, "add --backend auto"),
        (["STUDY", "--network", "cpu-cluster-2", "--check"], 40, "4 ranks but the network only 2"),
        (["STUDY", "--network", "hgx-h100-8", "--workload", "absent", "--check"], 2, "chakrascope import"),
        (["--workload", "absent", "--network", "hgx-h100-8", "--check"], 2, "--check needs a STUDY"),
    ],
)
def test_impossible_run_fails_its_check(study, capfd, options, code, said):
    assert (
        command_line.run("run", *(str(study.path) if option == "STUDY" else option for option in options))
        == code
    )
    assert said in capfd.readouterr().err.replace("\n", " ")


HOSTILE = "=1+1 \x1b]0;taken over\x07\x1b[2J"


def test_a_terminal_obeys_no_name_of_others_and_a_spreadsheet_computes_none(capfd):
    frame = pd.DataFrame({"name": [HOSTILE], "bytes": [-1]})
    print_frame(frame, "table", title=HOSTILE)
    console.print(HOSTILE)
    error_console.print(f"[red]{HOSTILE}[/]", soft_wrap=True)
    print_frame(frame, "csv")
    shown = capfd.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\x07" not in shown.out + shown.err
    assert shown.err == "=1+1 \\x1b]0;taken over\\x1b[2J\n"
    assert shown.out.endswith("name,bytes\n'=1+1 \\x1b]0;taken over\\x07\\x1b[2J,-1\n")


def test_an_error_shows_neither_escapes_nor_all_of_a_long_value(tmp_path, capfd):
    assert command_line.run("runs", tmp_path / "\x1b[31mred") == 60
    assert r"\x1b[31mred. Next: check the path" in capfd.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["runs", "x" * 70_000])
    shown = capfd.readouterr().err
    assert stop.value.code == 60
    assert len(shown) < 2_100
    assert "xxx … xxx" in shown


def test_names_to_choose_from_are_not_listed_without_end():
    text = did_you_mean("nothing", [f"run-{number:04}" for number in range(1000)])
    assert text.endswith("run-0039 and 960 more.")
