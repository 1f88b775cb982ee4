"""``--on`` sets chips and their network, in every command that accepts a cluster."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command_line import answer, run_and_read
from studies import make_workload

from chakrascope.errors import BackendError
from chakrascope.runner import NetworkConfig, Study
from chakrascope.runner._simulate import load_memory, load_system
from chakrascope.runner.prediction import find_machine
from chakrascope.runner.sweep._point import Solver, failure

MEASURED = {"measured_step_ns": {"0": 4_920_000}, "captured": True}


def add(study, name, chips=None, ops=1 << 30, **facts):
    """Add a workload of two ranks whose compute times were measured on *chips*."""
    workload = make_workload()
    graphs = tuple(
        graph.with_columns(
            num_ops=np.where(graph.node_columns["kind"] == "compute", ops, 1),
            tensor_size_bytes=np.where(graph.node_columns["kind"] == "compute", min(ops, 1 << 20), 1),
        )
        for graph in workload.graphs
    )
    origin = {} if chips is None else {"chips": {"0": chips, "1": chips}}
    study.add_workload(replace(workload, graphs=graphs, metadata={**MEASURED, **origin, **facts}), name)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Study.create(tmp_path_factory.mktemp("on") / "study")
    add(made, "gpu", "Tesla V100-SXM2-32GB")
    # With equal graphs, the workloads would have the same runs.
    add(made, "cpu", "", ops=1 << 31)
    add(made, "unsized", "", ops=1)
    add(made, "predicted", ops=1 << 32, computed_for="h100")
    add(made, "unknown", ops=1 << 33)
    return made


@pytest.mark.parametrize(
    ("workload", "machine", "text"),
    [
        (
            "gpu",
            "8xh100",
            "from the bf16 peaks of h100, a lower bound (100.0 % of the compute time measured on v100",
        ),
        ("gpu", "16xv100", "compute times as measured on v100\n"),
        ("cpu", "8xh200", "8 x h200 (hgx-h100-8): compute times from the bf16 peaks of h200"),
        ("cpu", "cpu-cluster-8", "on cpu-cluster-8: compute times as measured on a CPU\n"),
        ("unsized", "8xh100", "compute times as measured on a CPU, not h100\n"),
        ("predicted", "8xb200", "compute times as predicted for h100, not b200\n"),
        ("predicted", "8xh100", "compute times as predicted for h100\n"),
        ("unknown", "8xh100", "compute times from the workload, for an unknown chip\n"),
    ],
)
def test_the_first_line_names_the_machine_and_where_compute_times_are_from(
    study, workload, machine, text, capfd
):
    printed = answer(capfd, "run", study.path, "--workload", workload, "--on", machine)
    assert text in printed.splitlines()[0] + "\n"
    system = study.experiment(study.runs()[-1].id).system
    assert bool(system.roofline_enabled) == ("peaks" in text)


@pytest.mark.parametrize(
    ("machine", "hint"),
    [
        ("16h100", "write 16xh100."),
        ("h100x16", "write 16xh100."),
        ("64 x h100", "write 64xh100."),
        ("64*H100", "write 64xh100."),
        ("h100", "Next: use --on 8xh100."),
        ("12xh100", "Next: use --on 16xh100"),
        ("99999999999xh100", "must be from 1 to 1,000,000, not 99999999999. Next: use --on 8xh100"),
        ("8xh10", "did you mean 'h100'?"),
        ("8xt4", "'chip: t4' and 'network: PRESET_OR_FILE'"),
        ("64xtpu-v2", "Next: use --on tpu-v2-16x16, --on tpu-v2-8x8, or --on FILE, a YAML file with"),
        (
            "16xmi300x",
            "Nodes of 'mi300x' have 8 GPUs, and no preset connects several nodes. Next: use --on 8xmi300x",
        ),
        ("hgx-h10-8", "did you mean 'hgx-h100-8'?"),
    ],
)
def test_a_misspelt_machine_gets_the_right_spelling(study, machine, hint, capfd):
    code, _, err = run_and_read(capfd, "run", study.path, "--on", machine)
    assert code == 2
    assert hint in err


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--on", "8xh100", "--network", "ring-8"], "leave out --network"),
        (["--on", "8xh100", "--system", "direct"], "leave out --system"),
        (
            ["--network", "dgx-a100-8", "--system", "roofline-h100"],
            "Next: use --on 8xh100, or --on dgx-a100-8 for a100-80.",
        ),
        (
            ["--network", "hgx-h100-8", "--system", "roofline-tpu-v2"],
            "Next: use a network of tpu-v2, or --on",
        ),
    ],
)
def test_pairs_that_cannot_be_are_refused(study, options, hint, capfd):
    code, _, err = run_and_read(capfd, "run", study.path, *options)
    assert code == 2
    assert hint in err


def test_a_preset_of_a_torus_and_its_peaks_are_one_machine(study, capfd):
    options = ("--network", "tpu-v2-8x8", "--system", "roofline-tpu-v2")
    assert "64 ranks" in answer(capfd, "run", study.path, "--workload", "cpu", *options)


def test_a_file_in_the_working_directory_does_not_replace_a_shipped_one(study, tmp_path, monkeypatch, capfd):
    before = find_machine("8xh100").network, load_system("default", 2), load_memory("none")
    monkeypatch.chdir(tmp_path)
    for name in ("h100", "default", "none", "hgx-h100-8", "hgx-h100-64x8"):
        (tmp_path / name).write_text("not a configuration")
    assert (find_machine("8xh100").network, load_system("default", 2), load_memory("none")) == before
    assert NetworkConfig.find("hgx-h100-64x8").num_ranks == 512
    assert "8 ranks" in answer(capfd, "run", study.path, "--workload", "cpu", "--on", "hgx-h100-8")


def test_a_file_names_chip_and_network(study, tmp_path, capfd):
    file = tmp_path / "mine.yml"
    file.write_text("chip: t4\nnetwork: ring-8\n")
    assert "8 x t4 (ring-8)" in answer(capfd, "run", study.path, "--workload", "cpu", "--on", file)
    file.write_text("chip: h100\nnetwork: dgx-a100-8\n")
    assert "has the links of a100-80, not of h100" in run_and_read(capfd, "run", study.path, "--on", file)[2]
    file.write_text("chip: h100\nnetwrk: ring-8\n")
    assert "did you mean 'network'?" in run_and_read(capfd, "run", study.path, "--on", file)[2]


def test_a_network_alone_warns_of_compute_times_of_another_chip(study, capfd):
    code, _, err = run_and_read(capfd, "run", study.path, "--workload", "gpu", "--network", "hgx-h100-8")
    assert code == 0
    assert "measured on v100, but the links are those of h100" in err
    assert "run STUDY --on 8xh100" in err
    for workload, network in (("predicted", "hgx-h100-8"), ("gpu", "dgx-2-16"), ("gpu", "ring-8")):
        err = run_and_read(capfd, "run", study.path, "--workload", workload, "--network", network)[2]
        assert "Compute times" not in err


def test_run_stores_origin_of_compute_times(study, capfd):
    said = answer(capfd, "run", study.path, "--workload", "gpu", "--on", "8xh100")
    run = said.split("--run ")[1].split()[0]
    qualifiers = json.loads(answer(capfd, "summary", study.path, "--run", run, "--format", "json"))[
        "qualifiers"
    ]
    assert any("bf16 peaks of h100, a lower bound" in line for line in qualifiers)


def test_a_sweep_compares_machines_by_their_names_and_work(study, capfd):
    options = ("--workload", "gpu", "--on", "8xh100,16xv100", "--workers", "0")
    out = answer(capfd, "sweep", study.path, *options)
    text = " ".join(out.split())
    assert out.index("8xh100") < out.index("16xv100")
    assert "8 x h100 (hgx-h100-8): compute times from the bf16 peaks" in text
    assert "16 x v100 (dgx-2-16): compute times as measured on v100" in text
    assert "A step does the work of several captured steps" in text
    assert "2 captured ranks: 4 on 8, 8 on 16 ranks" in text
    assert "do not rank" not in text
    rows = json.loads(answer(capfd, "sweep", study.path, *options, "--format", "json"))
    for row in rows:
        assert row["captured_steps"] == row["ranks"] / 2
        per_s = 1e9 * row["captured_steps"] / row["makespan_ns"]
        assert row["captured_steps_per_s"] == pytest.approx(per_s)
        assert row["captured_steps_per_s_per_rank"] == pytest.approx(per_s / row["ranks"])


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--on", "8xh100,8xb200"), "compute times are lower bounds from the peaks of each chip"),
        (("--over", "network=dgx-a100-8,hgx-h100-8"), "only communication is simulated"),
        (("--over", "network=cpu-cluster-8,ring-8"), ""),
    ],
)
def test_a_sweep_of_a_capture_on_cpus_ranks_no_accelerators(study, options, cause, capfd):
    options = ("sweep", study.path, "--workload", "cpu", *options, "--workers", "0")
    out = " ".join(answer(capfd, *options).split())
    assert ("These makespans do not rank the clusters, because the job was captured on CPUs" in out) == bool(
        cause
    )
    assert cause in out
    (caveat,) = {row["caveats"] for row in json.loads(answer(capfd, *options, "--format", "json"))}
    assert caveat == "" if not cause else caveat in out
    name = out.split("/sweeps/")[1].split("/")[0]
    again = " ".join(answer(capfd, "sweep", study.path, "--show", name).split())
    assert ("do not rank the clusters" in again) == bool(cause)


def test_the_front_of_a_sweep_is_per_captured_step(study, capfd):
    options = ("--workload", "gpu", "--over", "network=ring-8,dgx-2-16", "--price", "1", "--workers", "0")
    out = answer(capfd, "sweep", study.path, *options, "--front", "--against", "cost")
    assert "Pareto front per captured step" in " ".join(out.split())


@pytest.mark.parametrize(
    ("against", "text"),
    [("network.bandwith", "did you mean 'network.bandwidth'"), ("cost", "cannot be 'cost'"), ("id", "'id'")],
)
@pytest.mark.parametrize("trials", [(), ("--trials", "2")])
def test_an_unknown_objective_is_refused_before_the_sweep(study, against, text, trials, capfd):
    over = ("--workload", "gpu", "--network", "ring-8", "--over", "network.bandwidth=8,9", "--workers", "0")
    code, _, err = run_and_read(
        capfd, "sweep", study.path, *over, *trials, "--against", against, "--name", "refused"
    )
    assert code
    assert text in " ".join(err.split())
    assert not (study.sweeps_dir / "refused").exists()


@pytest.mark.parametrize("against", ["ranks", "network.latency"])
def test_the_front_of_an_objective_with_one_value_is_the_fastest_point(study, against, capfd):
    over = ("--over", "network.bandwidth=8,9", "--over", "network.latency=500", "--workers", "0")
    options = ("--workload", "gpu", "--network", "ring-8", *over, "--against", against, "--format", "json")
    (row,) = json.loads(answer(capfd, "sweep", study.path, *options))
    assert row["network.bandwidth"] == 9


@pytest.mark.parametrize("against", ["exposed_comm_ns", "makespan_ns", "network.latency"])
def test_the_front_of_a_stored_sweep_needs_an_objective_that_all_points_have(study, against, capfd, tmp_path):
    points = tmp_path / "points.jsonl"
    points.write_text('{"network.latency": 500}\n{"network.bandwidth": 8}\n')
    options = ("--workload", "gpu", "--network", "ring-8", "--list", points, "--workers", "0")
    answer(capfd, "sweep", study.path, *options, "--name", "mine")
    code, _, err = run_and_read(capfd, "sweep", study.path, "--show", "mine", "--against", against)
    assert code
    assert f"cannot be '{against}'" in " ".join(err.split())


@pytest.mark.parametrize("against", ["ranks", "network.bandwidth"])
def test_the_front_of_points_that_all_fail_has_their_error(study, against, capfd):
    over = ("--over", "network.bandwidth=-1,-2", "--against", against, "--workers", "0")
    code, _, err = run_and_read(capfd, "sweep", study.path, "--workload", "gpu", "--network", "ring-8", *over)
    assert code == BackendError.exit_code
    assert "No point of the sweep has a result: " in " ".join(err.split())


def test_the_error_of_all_points_is_printed_once(study, capfd):
    over = ("--over", "network=foo", "--workers", "0")
    code, _, err = run_and_read(capfd, "sweep", study.path, "--workload", "gpu", *over)
    assert code == BackendError.exit_code
    assert err.count("'foo'") == 1


@pytest.mark.parametrize("pairs", [(), ("--pairs",)])
@pytest.mark.parametrize("reasons", [("", ""), ("one", "one", "two")])
def test_points_that_all_fail_fail_the_sweep_whatever_their_errors(study, reasons, pairs, capfd, monkeypatch):
    given = iter(reasons)
    monkeypatch.setattr(Solver, "simulate", lambda *_: failure(next(given)))
    over = ("--over", f"network.latency={','.join(map(str, range(1, len(reasons) + 1)))}", "--workers", "0")
    over += ("--name", f"all-fail{len(reasons)}{len(pairs)}", *pairs)
    code, _, err = run_and_read(capfd, "sweep", study.path, "--workload", "gpu", "--network", "ring-8", *over)
    assert code == BackendError.exit_code
    text = " ".join(err.split())
    if "two" in reasons:
        assert "1 failed: two" in text
        assert "No point of the sweep has a result: 2 failed: one" in text
    else:
        assert "0 failed" not in text
        assert "No point of the sweep has a result" in text


def test_sweep_on_links_of_another_chip_has_a_note(study, capfd):
    options = ("--workload", "gpu", "--over", "network=hgx-h100-8", "--keep", "0", "--workers", "0")
    out = " ".join(answer(capfd, "sweep", study.path, *options).split())
    assert "Compute times were measured on v100, but the links are those of h100" in out


def test_a_prediction_takes_the_machine_in_one_word(capfd):
    options = ("--model", "llama3-8b", "--tp", "8")
    one = answer(capfd, "predict", *options, "--on", "8xh100", "--format", "json")
    two = answer(capfd, "predict", *options, "--chip", "h100", "--network", "hgx-h100-8", "--format", "json")
    assert one == two
    assert "names no chip" in run_and_read(capfd, "predict", *options, "--on", "ring-8")[2]
    assert "did you mean 'h100'" in run_and_read(capfd, "predict", *options, "--chip", "h10")[2]


@pytest.mark.parametrize(
    ("command", "given", "advice"),
    [
        ("predict", (), "add --on 64xh100, or both --chip and --network."),
        ("predict", ("--chip", "a100-80"), "add --network PRESET_OR_FILE."),
        ("predict", ("--network", "hgx-a100-80-8"), "add --chip NAME."),
        ("predict search", (), "add --on 512xh100, or --gpus 512."),
        ("predict search", ("--chip", "a100-80"), "add --gpus 512, or --network."),
    ],
)
def test_a_missing_cluster_is_completed_by_options_that_fit(capfd, command, given, advice):
    code, _, err = run_and_read(capfd, *command.split(), "--model", "llama3-8b", *given)
    assert code == 2
    assert err.rstrip().endswith(f"Next: {advice}")


def test_a_model_without_its_option_gets_the_whole_command(capfd):
    for machine in ((), ("--on", "64xh100")):
        code, _, err = run_and_read(capfd, "predict", "llama3-8b", *machine)
        assert code == 2
        assert err.rstrip().endswith("Next: chakrascope predict --model llama3-8b --on 64xh100")


@pytest.mark.parametrize(
    ("before", "after", "options"),
    [
        ((), ("--on=8xa100-80",), "--on=8xa100-80"),
        (("--on", "8xa100-80", "--no-overlap"), ("--tp", "2"), "--tp 2 --on 8xa100-80 --no-overlap"),
        (("--chip", "a100-80"), ("--network", "ring-8"), "--network ring-8 --chip a100-80"),
        (("--tp", "2"), (), "--tp 2 --on 64xh100"),
        (
            ("-o", "STUDY", "--format", "json", "--save-plan", "p.yml"),
            ("--on", "8xh100"),
            "--on 8xh100 --save-plan p.yml --output STUDY --format json",
        ),
    ],
)
def test_the_whole_command_keeps_the_given_options(capfd, before, after, options):
    _, _, err = run_and_read(capfd, "predict", *before, "llama3-8b", *after)
    assert err.rstrip().endswith(f"Next: chakrascope predict --model llama3-8b {options}")
