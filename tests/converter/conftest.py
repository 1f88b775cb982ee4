"""Captures that several tests convert once, or change in a copy."""

import shutil

import pytest

from chakrascope.converter import convert, convert_files


@pytest.fixture(scope="session")
def captured(data_dir):
    """Return the workload of a capture of two ranks."""
    return convert(data_dir / "converter" / "mlp_2")


@pytest.fixture(scope="session")
def dlrm(data_dir):
    """Return the workload of two of a job's eight ranks, from host and device traces."""
    folder = data_dir / "converter" / "dlrm_v100_8"
    return convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz")


@pytest.fixture
def trace_set(data_dir, tmp_path):
    """Return a copy of the capture of two ranks."""
    return shutil.copytree(data_dir / "converter" / "mlp_2", tmp_path / "set")
