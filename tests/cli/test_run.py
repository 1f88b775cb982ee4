"""``chakrascope run``: one rank, each step, packet networks, machines, and failed runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import command_line
import numpy as np
import pytest
import yaml
from command_line import run, run_and_read
from studies import make_workload

from chakrascope.cli import main
from chakrascope.cli._output import counter, stage
from chakrascope.converter import CollectiveType, Graph, NodeType, Workload, convert, microbenchmark
from chakrascope.runner import NetworkConfig, Study, get_backend, gpu, simulate

from ..step_times import part, recording

# ``chakrascope run`` with ASTRA-sim's packet-level files: config.txt and a logical topology.

TOPOLOGY = "5 1 4\n4\n" + "".join(f"{host} 4 400Gbps 0.0005ms 0\n" for host in range(4))


@pytest.fixture
def cluster(tmp_path):
    """Return a folder with a config.txt, its topology of four hosts and a logical topology of two by two."""
    (tmp_path / "topology.txt").write_text(TOPOLOGY)
    (tmp_path / "config.txt").write_text("CC_MODE 12 TOPOLOGY_FILE topology.txt L2_ACK_INTERVAL 1\n")
    (tmp_path / "logical.json").write_text('{"logical-dims": ["2", "2"]}')
    return tmp_path


@pytest.mark.parametrize("option", ["--logical-topology", "--logical-topology-configuration"])
def test_the_logical_topology_arranges_the_hosts(cluster, capsys, option):
    assert command_line.run("generate", "all-reduce", "-o", str(cluster / "w"), "--ranks", "4") == 0
    arguments = ["run", "--workload-configuration", str(cluster / "w"), "--format", "json"]
    arguments += ["--network", str(cluster / "config.txt")]
    capsys.readouterr()
    assert command_line.run(*arguments) == 0
    flat = json.loads(capsys.readouterr().out)
    assert command_line.run(*arguments, option, str(cluster / "logical.json")) == 0
    arranged = json.loads(capsys.readouterr().out)
    # Two dimensions of two ranks take a different number of steps than one dimension of four.
    assert arranged["makespan_ns"] != flat["makespan_ns"]
    # A config.txt describes packets, so the backend packet is the default.
    assert flat["backend"] == arranged["backend"] == "packet"


@pytest.mark.parametrize("network", [["--network", "hgx-h100-8"], []])
def test_a_logical_topology_needs_a_config_txt(cluster, capsys, network):
    arguments = ["run", "study", "--backend", "replay", "--logical-topology", str(cluster / "logical.json")]
    assert command_line.run(*arguments, *network) == 2
    assert "--network config.txt" in capsys.readouterr().err.replace("\n", " ")


# ``run --steps all``: each captured step, and the distribution of their times.

NETWORK = ("--network", "cpu-cluster-2")


@pytest.fixture
def study(tmp_path, data_dir):
    made = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "loaded_2", made.new_trace_dir(), dirs_exist_ok=True)
    return made


def test_every_step_is_simulated_as_if_alone(capfd, study):
    code, out, _ = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK, "--format", "json")
    assert code == 0
    answer = json.loads(out)
    folder = study.latest_trace_set()
    alone = {
        row["step"]: simulate(convert(folder, step=row["step"]), "default", "cpu-cluster-2").makespan_ns
        for row in answer["steps"]
    }
    assert len(alone) == 3
    assert {row["step"]: row["makespan_ns"] for row in answer["steps"]} == alone
    (spread,) = answer["distribution"].values()
    assert spread["shortest"] == min(alone.values())
    assert spread["p50"] == np.median([*alone.values()])
    assert spread["longest"] == max(alone.values())
    assert study.workloads() == []
    assert study.runs() == []


def test_the_longest_step_is_next(capfd, study):
    _, out, _ = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK, "--format", "csv")
    steps = [line.split(",") for line in out.splitlines()[1:]]
    longest = max(steps, key=lambda row: int(row[2]))[0]
    _, out, _ = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK)
    assert f"convert {study.path} --step {longest}" in out


def test_a_recording_without_traces_leads_to_diagnose(capfd, study):
    shutil.rmtree(study.latest_trace_set())
    recording(study.path / "traces" / "capture-2", [part(0, [(1, 2, 3, 4, 5, 15)] * 3)])
    code, _, err = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK)
    assert code != 0
    assert "chakrascope diagnose" in err


def test_incompatible_options_are_errors(capfd, study):
    for more in (["--queue"], ["--check"], ["--workload", "x"]):
        code, _, err = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK, *more)
        assert code != 0
        assert "--steps all needs a STUDY" in err
    empty = Study.create(study.path.parent / "empty").path
    code, _, err = run_and_read(capfd, "run", empty, "--steps", "all", *NETWORK)
    assert code != 0
    assert "has no trace set yet" in err


# A job of one process, such as one GPU: one rank in every answer.

COMPUTE_NS, COLLECTIVE_NS = 400_000, 30_000


def job() -> Workload:
    """Return a captured step of one rank, with a collective of a group without other ranks."""
    plain = {"type": NodeType.COMP, "kind": "compute", "phase": "forward", "module": "layers.0"}
    reduce = {"comm_type": CollectiveType.ALL_REDUCE, "comm_size_bytes": 1 << 20, "stream": 1}
    nodes = [
        plain | {"node_id": 0, "name": "aten::mm", "operator": "aten::mm", "duration_ns": COMPUTE_NS},
        plain
        | reduce
        | {"node_id": 1, "name": "c10d::allreduce_", "operator": "c10d::allreduce_"}
        | {"type": NodeType.COMM_COLL, "kind": "communication", "duration_ns": COLLECTIVE_NS},
    ]
    measured = {"measured_step_ns": {"0": COMPUTE_NS + COLLECTIVE_NS}}
    return Workload((Graph.build(0, nodes, [(0, 1, 0)]),), np.zeros(1, dtype=np.int32), {}, measured)


@pytest.fixture
def one_rank_study(tmp_path):
    made = Study.create(tmp_path / "study")
    made.add_workload(job(), "job")
    return made


def answer(capsys, *words):
    assert command_line.run(*words, "--format", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_an_answer_says_how_many_of_the_ranks_were_measured(tmp_path, capsys):
    """The traces of one rank of eight represent all ranks."""
    one = job()
    study = Study.create(tmp_path / "eight")
    study.add_workload(Workload(one.graphs, np.zeros(8, dtype=np.int32), {}, one.metadata), "job")
    _, out, _ = command_line.run_and_read(capsys, "summary", study.path)
    assert "job, 1 of 8 ranks, as measured" in out


def ranks_in(value):
    """Yield every rank in a JSON answer."""
    if isinstance(value, dict):
        yield from (entry for key, entry in value.items() if key == "rank")
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from ranks_in(item)


def test_a_replay_is_of_one_rank_in_every_answer(one_rank_study, capsys):
    path = str(one_rank_study.path)
    replay = answer(capsys, "run", path, "--backend", "replay")
    assert (len(replay["ranks"]), replay["makespan_ns"]) == (1, COMPUTE_NS + COLLECTIVE_NS)
    for command in (["summary"], ["critical-path"], ["diagnose"], ["graph", "--hops", "2"], ["timeline"]):
        assert set(ranks_in(answer(capsys, command[0], path, *command[1:]))) <= {0}, command
    measured = answer(capsys, "compare", path, "--measured")
    assert set(ranks_in(measured)) == {0}
    _, out, _ = command_line.run_and_read(capsys, "diagnose", path)
    assert "The run has one rank, so there is no other rank to compare it with. The step takes 430 µs" in out


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware"])
def test_one_rank_is_simulated_on_its_own(one_rank_study, tmp_path, capsys, backend):
    """Without peers, the rank's collectives take no time."""
    network = tmp_path / "alone.yml"
    NetworkConfig(("Ring",), (1,), (50.0,), (500.0,)).save(network)
    alone = answer(capsys, "run", str(one_rank_study.path), "--network", str(network), "--backend", backend)
    assert (len(alone["ranks"]), alone["makespan_ns"]) == (1, COMPUTE_NS)
    _, _, err = command_line.run_and_read(capsys, "summary", one_rank_study.path, "--view", "links")
    assert ("such as 'analytical-aware'" in err) == (backend != "analytical-aware")


# ``--machine``: the machine of the backend ``gpu``, by name or by file.

H100 = yaml.safe_load(Path(gpu.__file__).with_name("machines.yml").read_text())["h100"]
ON_GPU = ("--backend", "gpu", "--network", "hgx-h100-8")


@pytest.fixture(scope="module")
def machine_study(tmp_path_factory):
    machine_study = Study.create(tmp_path_factory.mktemp("machines") / "study")
    machine_study.add_workload(microbenchmark("all-reduce", 8, 1 << 14), "job")
    return machine_study


def machine_run(capsys, command, machine_study, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([command, str(machine_study.path), *arguments])
    out, err = capsys.readouterr()
    return stop.value.code, out, " ".join(err.split())


def slower(tmp_path, key="latency_ns", factor=4):
    """A machine file that is the H100 with one figure of its links changed."""
    links = H100["scale_up"]
    path = tmp_path / "slower.yml"
    path.write_text(yaml.safe_dump(H100 | {"scale_up": links | {key: links[key] * factor}}))
    return path


def test_run_takes_a_name_and_a_file(machine_study, tmp_path, capsys):
    code, _, _ = machine_run(capsys, "run", machine_study, *ON_GPU, "--machine", "a100", "--format", "json")
    assert code == 0
    assert machine_study.experiment(machine_study.runs()[-1].id).machine.name == "a100"
    times = []
    for machine in ("h100", str(slower(tmp_path))):
        code, _, _ = machine_run(
            capsys, "run", machine_study, *ON_GPU, "--machine", machine, "--format", "json"
        )
        assert code == 0
        times.append(machine_study.runs()[-1].makespan_ns)
    assert times[0] < times[1]
    assert machine_study.experiment(machine_study.runs()[-1].id).machine.name == "slower"


@pytest.mark.parametrize("command", [("run",), ("sweep", "--workers", "0", "--over", "system=default")])
def test_what_is_no_machine_is_refused(command, machine_study, tmp_path, capsys):
    name, *more = command
    code, _, err = machine_run(capsys, name, machine_study, *more, *ON_GPU, "--machine", "h10")
    assert code != 0
    assert "did you mean 'h100'" in err
    broken = tmp_path / "broken.yml"
    broken.write_text(yaml.safe_dump(H100).replace("  units:", "  unit:"))
    code, _, err = machine_run(capsys, name, machine_study, *more, *ON_GPU, "--machine", str(broken))
    assert code != 0
    assert "broken.yml: compute: there is no key 'unit'" in err
    assert "did you mean 'units'" in err
    code, _, err = machine_run(
        capsys, name, machine_study, *more, "--network", "hgx-h100-8", "--machine", "h100"
    )
    assert code == 2
    assert "Next: add --backend gpu" in err


def test_the_figures_of_a_workload_are_whole_numbers(tmp_path, capsys):
    node = {"node_id": 0, "name": "one", "type": NodeType.COMP, "duration_ns": 5}
    graphs = [Graph.build(rank, [node | {"phase": phase}], []) for rank, phase in enumerate(("a", "b"))]
    Workload(tuple(graphs), np.arange(2, dtype=np.int32), {}, {}).save(tmp_path / "job")
    _, out, _ = run_and_read(capsys, "graph", tmp_path / "job", "--format", "csv")
    assert {"nodes,1,1", "by_phase a,1,0", "by_phase b,0,1"} <= set(out.splitlines())


def test_two_backends_are_one_table(machine_study, capsys):
    unaware, aware = (("--backend", f"analytical-{name}") for name in ("unaware", "aware"))
    backends = (*unaware, *aware, *unaware, "--format", "csv")
    code, out, _ = machine_run(capsys, "run", machine_study, "--network", "hgx-h100-8", *backends)
    assert code == 0
    names = [line.rpartition(",")[2] for line in out.splitlines()]
    assert names == ["backend", *["analytical-unaware"] * 8, *["analytical-aware"] * 8]


def test_sweep_runs_on_the_machine(machine_study, tmp_path, capsys):
    axes = ("--workers", "0", "--keep", "0", "--format", "json", "--over", "algorithm.all-reduce=ring,direct")
    times = []
    for machine in ("h100", str(slower(tmp_path))):
        code, out, _ = machine_run(capsys, "sweep", machine_study, *axes, *ON_GPU, "--machine", machine)
        assert code == 0
        times.append({row["algorithm.all-reduce"]: row["makespan_ns"] for row in json.loads(out)})
    assert set(times[0]) == {"ring", "direct"}
    assert all(times[0][name] < times[1][name] for name in times[0])


def test_what_if_changes_a_figure_of_the_machine(machine_study, tmp_path, capsys):
    assert machine_run(capsys, "run", machine_study, *ON_GPU, "--machine", str(slower(tmp_path)))[0] == 0
    kept = machine_study.runs()[-1].id
    changes = ("--run", kept, "--format", "json", "--faster")
    code, out, _ = machine_run(capsys, "what-if", machine_study, *changes, "machine:scale_up.latency_ns=4")
    assert code == 0
    assert json.loads(out)[0]["delta_ns"] < 0
    code, _, err = machine_run(capsys, "what-if", machine_study, *changes, "machine:scale_up.latency=4")
    assert code != 0
    assert "did you mean 'scale_up.latency_ns'" in err


# A command that fails removes the study that it created, but keeps a study that already existed.


@pytest.fixture
def prefix(tmp_path):
    microbenchmark("all-reduce", 2, 1 << 10).save(tmp_path / "w")
    return tmp_path / "w"


@pytest.mark.parametrize(
    "wrong",
    [
        ("--network", "rng-2"),
        ("--network", "ring-2", "--system", "defualt"),
        ("--network", "ring-2", "--backend", "fluid"),
        ("--network", "ring-8"),
    ],
)
def test_a_run_that_cannot_be_leaves_no_study(tmp_path, prefix, wrong):
    assert run("run", tmp_path / "new" / "s", "--workload", prefix, *wrong)
    assert not (tmp_path / "new" / "s").exists()
    (tmp_path / "empty").mkdir()
    assert run("run", tmp_path / "empty", "--workload", prefix, *wrong)
    assert list((tmp_path / "empty").iterdir()) == []


def test_missing_workload_creates_no_study(tmp_path):
    assert run("run", tmp_path / "s", "--workload", tmp_path / "none", "--network", "ring-2")
    assert not (tmp_path / "s").exists()


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        "run STUDY --workload PREFIX --network rng-2",
        "run STUDY --workload PREFIX --network ring-8",
        "run STUDY --workload PREFIX --network ring-2 --backend fluid",
        "run STUDY --network ring-2 --backend analytical-aware --backend fluid",
        "run STUDY --network ring-2 --backend analytical-aware --backend fluid --queue",
        "emulate STUDY --workload PREFIX --network rng-2",
        "emulate NEW --workload PREFIX --network rng-2",
        "what-if STUDY --faster nonsense",
        "runs STUDY --run RUN --label new --delete none",
        "runs FOLDER --new new --study none --note text",
        "profile -o NEW --network rng-2 -- touch NEW",
        "profile -o NEW --network ring-2 --system defualt -- touch NEW",
        "profile -o NEW --network ring-2 --backend fluid -- touch NEW",
        "predict --model llama --on 8xh100 --save-plan NEW",
        "predict --model llama3-8b --on 8xh100 --backend fluid -o NEW",
        "predict --script SCRIPT --on 8xh100 --backend fluid -o NEW",
        "predict --script SCRIPT --on 8xh100 --software none -o NEW",
        "predict --script SCRIPT --on 8xh100 --precision none -o NEW",
        "predict --script SCRIPT --on 8xh100 --world 4 -o NEW",
        "predict search --model llama3-8b --gpus 8 --tp 3 -o NEW",
    ],
)
def test_wrong_options_change_nothing(tmp_path, prefix, one_rank_study, words):
    run_id = ""
    if "RUN" in words:
        assert run("run", one_rank_study.path, "--network", "ring-2") == 0
        run_id = one_rank_study.run_info().id
    (tmp_path / "script.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    places = {
        "STUDY": one_rank_study.path,
        "PREFIX": prefix,
        "RUN": run_id,
        "FOLDER": tmp_path,
        "NEW": tmp_path / "new",
        "SCRIPT": tmp_path / "script.py",
    }
    before = files(tmp_path)
    assert run(*(places.get(word, word) for word in words.split()))
    assert files(tmp_path) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        "convert FOLDER --device-trace TRACES/rank{rank}.device.json.gz",
        "import FOLDER TRACES .",
        "predict --model llama3-8b --on 8xh100 -o FOLDER",
        "predict search --model llama3-8b --gpus 8 -o FOLDER",
    ],
)
def test_a_folder_that_is_no_study_is_refused_at_once(tmp_path, monkeypatch, capsys, data_dir, words):
    for name in ("converter.convert_files", "runner.study.check_item", "runner.prediction.predict"):
        monkeypatch.setattr(f"chakrascope.{name}", None)
    (tmp_path / "file").touch()
    traces = data_dir / "converter" / "ring_2"
    places = {"FOLDER": str(tmp_path), "TRACES": str(traces)}
    code, _, err = run_and_read(
        capsys, *(places.get(word, word.replace("TRACES", str(traces))) for word in words.split())
    )
    assert code == 60
    assert f"{tmp_path} exists and is not a study" in err


def test_a_plan_file_that_cannot_be_written_does_not_hide_the_prediction(tmp_path, capsys):
    words = ["--model", "llama3-8b", "--on", "8xh100", "--save-plan", tmp_path]
    code, out, err = run_and_read(capsys, "predict", *words)
    assert code == 40
    assert "tokens/s" in out
    assert "add the name of a file" in err


def test_a_run_named_twice_is_deleted_once(one_rank_study):
    assert run("run", one_rank_study.path, "--network", "ring-2") == 0
    run_id = one_rank_study.run_info().id
    assert run("runs", one_rank_study.path, "--delete", run_id, "--delete", run_id[:8]) == 0
    assert one_rank_study.runs() == []


def test_runs_before_an_error_are_stored(tmp_path, prefix):
    Study.create(tmp_path / "old")
    assert run("run", tmp_path / "old", "--workload", prefix, "--network", "rng-2")
    assert Study.open(tmp_path / "old").runs() == []
    assert not run("run", tmp_path / "new", "--workload", prefix, "--network", "ring-2")
    assert run("run", tmp_path / "new", "--workload", prefix, "--network", "rng-2")
    assert len(Study.open(tmp_path / "new").runs()) == 1


# Simulations report their progress, on a terminal and in a log file.


class Slow:
    """The unaware backend with progress reports at the times of a fake clock."""

    def __init__(self, clock):
        self.clock = clock

    def run(self, experiment, progress=None):
        for second in (0.5, 1.5, 1.9, 3.0, 5.0, 40.0):
            self.clock[0] = second
            assert progress(round(second * 1e9), int(second)) is True
        return get_backend("analytical-unaware").run(experiment, progress)


def test_a_log_has_a_line_after_a_second_and_ever_fewer(capsys, monkeypatch, tmp_path):
    clock = [0.0]
    monkeypatch.setattr("chakrascope.cli._output.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("chakrascope.runner.get_backend", lambda _name: Slow(clock))
    make_workload().save(tmp_path / "w")
    assert command_line.run("run", "--workload-configuration", tmp_path / "w", "--network", "ring-2") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if " simulated, " in line]
    assert [line.split(": ", 2)[2] for line in lines] == [
        "1.50 s simulated, 1 of 2 ranks finished",
        "3.00 s simulated, 3 of 2 ranks finished",
        "5.00 s simulated, 5 of 2 ranks finished",
        "40.0 s simulated, 40 of 2 ranks finished",
    ]


def test_a_count_says_how_long_the_rest_will_take(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("chakrascope.cli._output.time.monotonic", lambda: clock[0])
    with stage("simulated") as status:
        progress = counter(status, "runs")
        for done in (1, 2, 4):
            clock[0] = 30.0 * done
            progress(done, 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "simulated: 1 of 4 runs, about 90.0 s left",
        "simulated: 2 of 4 runs, about 60.0 s left",
        "simulated: 4 of 4 runs",
    ]
