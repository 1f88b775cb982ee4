"""Conversion on a Dask cluster of two worker processes on loopback yields the same graphs."""

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import command_line
import msgspec
import pytest

from chakrascope.converter import convert, convert_files
from chakrascope.converter.building import _conversion, _workers, finished_ranks
from chakrascope.converter.building._rank import open_ranks
from chakrascope.converter.building._rank_graph import Selection
from chakrascope.converter.building._workers import _Task
from chakrascope.converter.readers import find_rank_traces
from chakrascope.errors import BackendError, BackendUnavailable, ConfigError, TraceFormatError
from chakrascope.runner import Study
from chakrascope.support import cluster as _dask
from chakrascope.support.cluster import connected

pytestmark = pytest.mark.dask

RANKS = 9  # more than the eight that are in flight at once


@pytest.fixture(scope="module")
def address(cluster):
    return cluster.scheduler_address


@pytest.fixture
def captured(data_dir, tmp_path):
    return shutil.copytree(data_dir / "converter" / "mlp_2", tmp_path / "mlp_2")


@pytest.fixture(scope="module")
def many(device_traces):
    """A pattern for device traces of many ranks."""
    return str(device_traces(RANKS) / "rank{rank}.json")


@pytest.fixture(scope="module")
def made_here(many, tmp_path_factory):
    """The bytes of all files of a conversion of *many* in this process."""
    return saved(convert_files(None, many, step="all"), tmp_path_factory.mktemp("here") / "w")


def saved(workload, folder):
    """Return the bytes of every file of *workload*."""
    folder.mkdir()
    workload.save(folder / "w")
    return written(folder)


def written(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_graphs_are_those_made_here_to_the_byte(captured, address, tmp_path):
    here, there = convert(captured), convert(captured, cluster=address)
    assert there.metadata == here.metadata
    assert saved(there, tmp_path / "there") == saved(here, tmp_path / "here")


def test_a_worker_killed_midway_costs_its_ranks_only(many, made_here, cluster, tmp_path, monkeypatch):
    """The other worker sleeps, so that results are lost which the scheduler has, but did not fetch."""
    monkeypatch.setattr(_workers, "_WORTH_KEEPING_BYTES", 1)
    address = cluster.scheduler_address
    killed, told = [], []

    def kill(finished, ranks):
        told.append(finished)
        if finished >= 3 and not killed:
            one, other = (worker.pid for worker in list(cluster.workers.values())[:2])
            killed.append(one)
            os.kill(other, signal.SIGSTOP)
            os.kill(one, signal.SIGKILL)
            threading.Timer(1.5, os.kill, (other, signal.SIGCONT)).start()
            time.sleep(0.5)

    output = tmp_path / "there" / "w"
    convert_files(None, many, output, step="all", cluster=address, progress=kill)
    assert killed
    assert told == list(range(1, RANKS + 1))
    assert written(output.parent) == made_here


@pytest.mark.parametrize("shared", [True, False])
def test_workers_write_where_they_see_the_folder_and_else_send_graphs_back(
    captured, shared, address, tmp_path, monkeypatch
):
    monkeypatch.setattr(_workers, "_WORTH_KEEPING_BYTES", 1)
    if not shared:  # workers see a different folder
        elsewhere = {"_mark": tmp_path / "elsewhere", "_lock": None, "folder": tmp_path}
        monkeypatch.setattr(_workers.FinishedRanks, "__getstate__", lambda _: elsewhere)
    came_back = []
    keep = _workers.FinishedRanks.keep
    monkeypatch.setattr(
        _workers.FinishedRanks, "keep", lambda own, *rank: came_back.append(1) or keep(own, *rank)
    )
    with finished_ranks(tmp_path / "target") as finished:
        there = convert(captured, cluster=address, finished=finished)
        assert finished.count == 2
        saved(there, tmp_path / "there")
    assert len(came_back) == (0 if shared else 2)
    assert written(tmp_path / "there") == saved(convert(captured), tmp_path / "here")


@pytest.mark.parametrize("shared", [True, False])
def test_workers_open_what_they_convert(captured, shared, address, tmp_path, monkeypatch):
    monkeypatch.setattr(_workers, "_WORTH_KEEPING_BYTES", 1)
    if not shared:
        elsewhere = {"_mark": tmp_path / "elsewhere", "_lock": None, "folder": tmp_path}
        monkeypatch.setattr(_workers.FinishedRanks, "__getstate__", lambda _: elsewhere)
    opened, open_here = [], _conversion.open_ranks
    monkeypatch.setattr(
        _conversion, "open_ranks", lambda ranks, **how: opened.extend(ranks) or open_here(ranks, **how)
    )
    pattern = str(captured / "rank{rank}.device.json.gz")
    convert_files(None, pattern, tmp_path / "there" / "w", step="all", cluster=address)
    assert opened == []
    assert written(tmp_path / "there") == saved(convert_files(None, pattern, step="all"), tmp_path / "here")


def test_a_relative_path_is_the_same_to_the_workers(captured, address, tmp_path, monkeypatch):
    monkeypatch.chdir(captured.parent)
    assert convert(captured.relative_to(tmp_path), cluster=address).num_ranks == 2


def test_of_damaged_ranks_the_first_is_named_as_it_is_here(captured, address):
    for rank in (0, 1):
        file = next(captured.glob(f"rank{rank}.device*"))
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(TraceFormatError) as here:
        convert(captured)
    with pytest.raises(TraceFormatError) as there:
        convert(captured, cluster=address)
    assert there.value.message == here.value.message
    assert "rank0" in there.value.message


def test_missing_rank_is_named_as_without_dask(captured, address):
    next(captured.glob("rank1.device*")).unlink()
    found = []
    for cluster in (None, address):
        with pytest.raises(Exception, match="rank1") as error:
            convert(captured, cluster=cluster)
        found.append((error.type, error.value.message))
    assert found[0] == found[1]


def test_worker_without_the_traces_is_an_error(captured, address):
    (rank,) = open_ranks(find_rank_traces(None, str(captured / "rank0.device.json.gz"), None), keep=False)
    selection = Selection(frozenset({rank.steps[0].index}), 2)
    task = _Task.of(0, rank, selection, _workers.FinishedRanks.nowhere())
    rank.traces.device_path.unlink()  # it exists on the machine of the command
    with connected(address, 1, "conversion") as place:
        ((_, answer),) = filter(None, place.answers(_Task.answer, iter([task])))
    assert isinstance(answer, BackendError)
    assert str(rank.traces.device_path) in answer.message
    assert "all workers see at the same path" in answer.message


def test_all_files_of_a_task_have_absolute_paths(captured, monkeypatch):
    """A worker has another working directory, in which a relative path does not exist."""
    monkeypatch.chdir(captured)
    traces = find_rank_traces(None, "rank0.device.json.gz", None)[0]
    names = ("flight_path", "evidence_path")
    files = {name: Path(f"{name}.json") for name in names} | {"capture_paths": (Path("capture.json"),)}
    (rank,) = open_ranks([traces], keep=False)
    rank.traces = msgspec.structs.replace(rank.traces, **files)
    selection = Selection(frozenset({rank.steps[0].index}), 2)
    sent = _Task.of(0, rank, selection, _workers.FinishedRanks.nowhere()).opened.traces
    paths = [sent.device_path, *(getattr(sent, name) for name in names), *sent.capture_paths]
    assert all(path.is_absolute() and path.parent == captured for path in paths)


def test_ctrl_c_ends_the_conversion_and_leaves_the_cluster_usable(many, address):
    def stop(finished, ranks):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_files(None, many, cluster=address, progress=stop)
    assert len(convert_files(None, many, cluster=address).graphs) == RANKS


def test_the_command_converts_on_a_scheduler_file(captured, address, tmp_path, capsys):
    study = Study.create(tmp_path / "study")
    shutil.copytree(captured, study.path / "traces" / "mlp_2")
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}))
    assert command_line.run("convert", study.path, "--cluster", file) == 0
    assert "2 ranks" in capsys.readouterr().out


def test_a_cluster_that_is_not_there_is_named(captured, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed (the extra [dask])")
    monkeypatch.setattr(_dask, "_CONNECT_S", 0.5)
    for cluster, hint in (
        ("tcp://127.0.0.1:1", "does not answer"),
        ("absent.json", "no Dask scheduler file"),
    ):
        with pytest.raises(BackendError, match=hint):
            convert(captured, cluster=cluster)


@pytest.mark.parametrize("content", ["{}", '{"address": null}', '{"address": [1]}', "[]", "{", "\0"])
def test_a_file_without_an_address_is_no_scheduler_file(captured, tmp_path, content):
    pytest.importorskip("distributed", reason="Dask is not installed (the extra [dask])")
    file = tmp_path / "scheduler"
    file.write_text(content)
    with pytest.raises(ConfigError, match=re.escape(str(file))):
        convert(captured, cluster=str(file))


def test_missing_dask_names_the_package(captured, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BackendUnavailable, match=r"A conversion on a cluster .*chakrascope\[dask\]"):
        convert(captured, cluster="tcp://127.0.0.1:1")
