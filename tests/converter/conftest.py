"""Captures that are converted once for several tests, or changed in a copy."""

import gzip
import json
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


@pytest.fixture(scope="session")
def device_traces(data_dir, tmp_path_factory):
    """Return a function that writes a folder of device traces of ranks in one group."""

    def make(ranks):
        folder, source = tmp_path_factory.mktemp("ranks") / "traces", data_dir / "converter" / "mlp_2"
        folder.mkdir()
        everyone = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}]
        for rank in range(ranks):
            trace = json.loads(gzip.decompress((source / f"rank{rank % 2}.device.json.gz").read_bytes()))
            trace["distributedInfo"] |= {"rank": rank, "world_size": ranks, "pg_config": everyone}
            trace["baseTimeNanoseconds"] += rank * 1000  # ranks with equal times would be equal
            (folder / f"rank{rank}.json").write_text(json.dumps(trace))
        return folder

    return make
