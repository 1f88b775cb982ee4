"""``--machine``: the machine of the backend ``gpu``, by name or by file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakrascope.cli import main
from chakrascope.converter import microbenchmark
from chakrascope.runner import Study, gpu

H100 = Path(gpu.__file__).parent / "machines" / "h100.yml"
ON_GPU = ("--backend", "gpu", "--network", "hgx-h100-8")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    study = Study.create(tmp_path_factory.mktemp("machines") / "study")
    study.add_workload(microbenchmark("all-reduce", 8, 1 << 14), "job")
    return study


def run(capsys, command, study, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([command, str(study.path), *arguments])
    out, err = capsys.readouterr()
    return stop.value.code, out, " ".join(err.split())


def slower(tmp_path, key="latency_ns", factor=4):
    """A machine file that is the H100 with one figure of its links changed."""
    lines = H100.read_text().splitlines()
    start = lines.index("scale_up:")
    place = next(n for n in range(start, len(lines)) if lines[n].lstrip().startswith(f"{key}:"))
    name, _, value = lines[place].partition(":")
    lines[place] = f"{name}: {float(value.split('#')[0]) * factor}"
    path = tmp_path / "slower.yml"
    path.write_text("\n".join(lines))
    return path


def test_run_takes_a_name_and_a_file(study, tmp_path, capsys):
    code, _, _ = run(capsys, "run", study, *ON_GPU, "--machine", "a100", "--format", "json")
    assert code == 0
    assert study.experiment(study.runs()[-1].id).machine.name == "a100"
    times = []
    for machine in ("h100", str(slower(tmp_path))):
        code, _, _ = run(capsys, "run", study, *ON_GPU, "--machine", machine, "--format", "json")
        assert code == 0
        times.append(study.runs()[-1].makespan_ns)
    assert times[0] < times[1]
    assert study.experiment(study.runs()[-1].id).machine.name == "slower"


@pytest.mark.parametrize("command", [("run",), ("sweep", "--workers", "0", "--over", "system=default")])
def test_what_is_no_machine_is_refused(command, study, tmp_path, capsys):
    name, *more = command
    code, _, err = run(capsys, name, study, *more, *ON_GPU, "--machine", "h10")
    assert code != 0
    assert "did you mean 'h100'" in err
    broken = tmp_path / "broken.yml"
    broken.write_text(H100.read_text().replace("  units:", "  unit:"))
    code, _, err = run(capsys, name, study, *more, *ON_GPU, "--machine", str(broken))
    assert code != 0
    assert "broken.yml: compute: unknown key 'unit'" in err
    assert "did you mean 'units'" in err
    code, _, err = run(capsys, name, study, *more, "--network", "hgx-h100-8", "--machine", "h100")
    assert code == 2
    assert "Next: add --backend gpu" in err


def test_sweep_runs_on_the_machine(study, tmp_path, capsys):
    axes = ("--workers", "0", "--keep", "0", "--format", "json", "--over", "algorithm.all-reduce=ring,direct")
    times = []
    for machine in ("h100", str(slower(tmp_path))):
        code, out, _ = run(capsys, "sweep", study, *axes, *ON_GPU, "--machine", machine)
        assert code == 0
        times.append({row["algorithm.all-reduce"]: row["makespan_ns"] for row in json.loads(out)})
    assert set(times[0]) == {"ring", "direct"}
    assert all(times[0][name] < times[1][name] for name in times[0])


def test_what_if_changes_a_figure_of_the_machine(study, tmp_path, capsys):
    assert run(capsys, "run", study, *ON_GPU, "--machine", str(slower(tmp_path)))[0] == 0
    kept = study.runs()[-1].id
    changes = ("--run", kept, "--format", "json", "--faster")
    code, out, _ = run(capsys, "what-if", study, *changes, "machine:scale_up.latency_ns=4")
    assert code == 0
    assert json.loads(out)[0]["delta_ns"] < 0
    code, _, err = run(capsys, "what-if", study, *changes, "machine:scale_up.latency=4")
    assert code != 0
    assert "did you mean 'scale_up.latency_ns'" in err
