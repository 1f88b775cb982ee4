"""The time of each stream of a device: its parts add up to its span."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict

import command_line
import pytest
from workloads import coll, comp, workload

from chakrascope.converter import convert_files
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import TABLES, analyse_run

PARTS = ["compute_ns", "comm_ns", "copy_ns", "idle_ns"]


def streams_of(folder, program, network=None):
    backend = "analytical-unaware" if network else "replay"
    study = Study.create(folder / "study")
    experiment = prepare(
        study.add_workload(program, "job"), "default", network, backend=backend, semantics="trace"
    )
    study.add_run(experiment, get_backend(backend).run(experiment), workload="job")
    table = TABLES["streams"](analyse_run(study))
    assert (table[PARTS].sum(axis=1) == table["span_ns"]).all()
    return table


def test_each_stream_has_its_parts_and_its_idle_time(tmp_path):
    copy = {"kind": "copy", "name": "Memcpy HtoD"}
    nodes = [
        comp(0, 500, kind="host", operator="", is_cpu_op=True, stream=0),
        comp(1, 2_000, (0,), stream=1007),
        comp(2, 700, (1,), stream=1007, kind="idle", name="device latency before op3"),
        comp(3, 1_000, (2,), stream=1007, **copy),
        comp(4, 900, (1,), stream=1020),
        comp(5, 400, (3, 4), stream=1020, kind="communication", name="all_reduce of unknown size"),
        comp(6, 3_000, (0,), stream=2007),
    ]
    table = streams_of(tmp_path, workload(nodes)).set_index(["device", "stream"])
    columns = ["nodes", "span_ns", *PARTS]
    assert {key: tuple(row) for key, row in table[columns].iterrows()} == {
        (0, "stream 7"): (2, 3_700, 2_000, 0, 1_000, 700),
        (0, "stream 20"): (2, 2_100, 900, 400, 0, 800),
        (1, "stream 7"): (1, 3_000, 3_000, 0, 0, 0),
    }


def test_communication_of_a_simulated_network_is_a_row_of_each_rank(tmp_path):
    ranks = [[comp(0, 1_000 * (rank + 1)), coll(1, 1 << 20, (0,))] for rank in range(2)]
    table = streams_of(tmp_path, workload(*ranks), "ring-2")
    assert list(zip(table["rank"], table["stream"], strict=True)) == [
        (0, "compute"), (0, "communication"), (1, "compute"), (1, "communication"),
    ]  # fmt: skip
    assert table["compute_ns"].tolist() == [1_000, 0, 2_000, 0]
    assert table["comm_ns"].tolist()[1] >= table["comm_ns"].tolist()[3] > 0


def test_streams_of_a_public_trace_are_its_plain_sums(data_dir, tmp_path):
    path = data_dir / "converter" / "kineto" / "alexnet.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    sums, ends = defaultdict(int), defaultdict(list)
    for event in events:
        column = {"kernel": "compute_ns", "gpu_memcpy": "copy_ns", "gpu_memset": "copy_ns"}.get(
            event.get("cat")
        )
        if column:
            stream = f"stream {event['args']['stream']}"
            sums[stream, column] += round(event["dur"] * 1000)
            ends[stream] += [event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000]
    table = streams_of(tmp_path, convert_files(None, str(path))).set_index("stream")
    assert set(table.index) == set(ends)
    for stream, row in table.iterrows():
        for column in ("compute_ns", "copy_ns"):
            assert row[column] == sums[stream, column]
        assert row["span_ns"] == pytest.approx(max(ends[stream]) - min(ends[stream]), rel=0.01)


def test_a_run_without_device_work_says_so(tmp_path, capsys):
    assert streams_of(tmp_path, workload([comp(0, 500, kind="host", is_cpu_op=True)])).empty
    code = command_line.run("summary", tmp_path / "study", "--view", "streams")
    assert code != 0
    assert "No rank of this run computes on a device" in capsys.readouterr().err
