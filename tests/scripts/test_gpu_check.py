"""The check of GPUs, where there is none: its refusal, its table, and its smallest job on the CPU."""

import os
import subprocess
import sys

import pytest

from .conftest import SCRIPTS


@pytest.fixture
def script(module_of):
    return module_of("gpu_check")


def test_without_a_gpu_one_sentence_and_exit_code_2(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "has_gpu", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_a_job_that_fails_is_in_the_table_with_its_error(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "JOBS_FILE", tmp_path / "absent.py")
    answer = script.check(script.SMALLEST, tmp_path / "out", "cpu", script.Hta(None, None))
    assert "absent.py" in answer.failed
    assert answer.failed in script.table([answer])


@pytest.mark.torch
def test_the_smallest_job_on_the_cpu(tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "check"
    done = subprocess.run(
        [SCRIPTS / "gpu_check", "--cpu", "-o", folder],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if "on the CPU" in line)
    captured, replayed, unprofiled, *of_device = (cell.strip() for cell in row.split("|")[2:-1])
    # How far apart they are depends on what else the machine does.
    assert all(float(cell.removesuffix(" ms")) > 0 for cell in (captured, replayed, unprofiled))
    assert of_device == ["-", "-"]
    assert list(folder.rglob("rank0.device.json.gz"))
