"""Tables of timed operations: reading, and errors that name column and row."""

import gzip
import json
import zlib

import numpy as np
import pandas as pd
import pytest

from chakrascope.converter.readers import (
    OPERATION_TYPES,
    is_operation_table,
    read_operation_table,
    recorded_operations,
)
from chakrascope.errors import TraceError, TraceFormatError
from chakrascope.tracer import TraceSet

from ..step_times import part, recording

ROWS = {
    "dp_rank": [0, 0, 1, 1],
    "stage": [0, 0, 0, 0],
    "rank": [4, 4, 5, 5],
    "step": [7, 7, 7, 7],
    "optype": ["backward-compute", "forward-compute"] * 2,
    "start_ts": [0.5, 0.25, 0.5, 0.0],
    "duration": [1.5, 0.125, 1.5, 0.125],
    "seq_id": [0, 0, 0, 0],
    "mc": [0, 0, 0, 0],
    "mb_id": [0, 0, 0, 0],
    "gmc": [0, 0, 0, 0],
}


def written(path, **columns):
    """Write `ROWS` with other *columns*, None for none, to *path*."""
    table = pd.DataFrame({name: column for name, column in (ROWS | columns).items() if column is not None})
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["job.parquet", "job.csv", "job.csv.gz"])
def test_rows_are_sorted_and_times_are_integer_nanoseconds(tmp_path, name):
    path = written(tmp_path / name)
    assert is_operation_table(path)
    columns = read_operation_table(path).columns
    assert columns["row"].tolist() == [2, 1, 4, 3]
    assert columns["rank"].tolist() == [4, 4, 5, 5]
    assert columns["start_ns"].tolist() == [250_000_000, 500_000_000, 0, 500_000_000]
    assert columns["duration_ns"].tolist() == [125_000_000, 1_500_000_000] * 2
    assert [OPERATION_TYPES[code] for code in columns["type"]] == ["forward-compute", "backward-compute"] * 2
    assert all(column.dtype == np.int64 for column in columns.values())


def test_optional_columns_follow_from_the_others(tmp_path):
    path = written(
        tmp_path / "job.csv",
        optype=["forward-compute"] * 4,
        stage=[1, 1, 1, 1],
        **dict.fromkeys(("rank", "seq_id", "mc", "mb_id", "gmc")),
    )
    columns = read_operation_table(path).columns
    assert columns["row"].tolist() == [2, 1, 4, 3]
    assert columns["number"].tolist() == [0, 1, 0, 1]
    assert columns["rank"].tolist() == [1, 1, 3, 3]
    assert columns["model_chunk"].tolist() == [1] * 4
    assert columns["micro_batch"].tolist() == [-1] * 4


def test_other_files_are_no_tables(tmp_path):
    for name, content in (
        ("notes.csv", b"a,b\n1,2\n"),
        ("empty", b""),
        ("damaged.gz", b"\x1f\x8b\x08\x00" + b"\x00" * 30),
        ("trace.json", b'{"traceEvents": []}'),
    ):
        (tmp_path / name).write_bytes(content)
        assert not is_operation_table(tmp_path / name)
    assert not is_operation_table(tmp_path)
    assert not is_operation_table(tmp_path / "missing.parquet")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"duration": None}, r"has no column 'duration'; it has .*optype"),
        ({"duration": [1, -0.5, 1, 1]}, r"row 2, column 'duration': -0.5 s is not from 0 to 1e\+06"),
        ({"duration": [1, 1, np.nan, 1]}, r"row 3, column 'duration': the value is missing or not finite"),
        ({"start_ts": [0, 0, 0, np.inf]}, r"row 4, column 'start_ts': the value is missing or not finite"),
        ({"start_ts": [0, 0, 0, 1e12]}, r"row 4, column 'start_ts': 1e\+12 s"),
        ({"start_ts": ["0", "soon", "0", "0"]}, r"row 2, column 'start_ts': 'soon' is not a number"),
        ({"step": [7, 7, 7.5, 7]}, r"row 3, column 'step': 7.5 is not a whole number"),
        ({"stage": [0, 0, -1, 0]}, r"row 3, column 'stage': -1 is not a whole number from 0"),
        ({"dp_rank": [0, 0, 1, 10**9]}, r"row 4, column 'dp_rank': 1e\+09 is not a whole number"),
        ({"mc": [0, -2, 0, 0]}, r"row 2, column 'mc': -2 is not a whole number from -1"),
        (
            {"optype": ["forward-compute", "forward-compote"] * 2},
            r"row 2, column 'optype': 'forward-compote' is not .* did you mean 'forward-compute'\?",
        ),
        ({"optype": ["forward-compute", None] * 2}, r"row 2, column 'optype': '(nan|None)' is not"),
        (
            {"optype": ["forward-compute"] * 4},
            r"rows 1 and 2: both are forward-compute 0 \(seq_id\) of step 7, rank 4",
        ),
        ({"rank": [4, 4, 5, 6]}, r"rows 3 and 4: ranks 5 and 6 both have dp_rank 1 and stage 0"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_by_column_and_row(tmp_path, suffix, columns, message):
    path = written(tmp_path / f"job.{suffix}", **columns)
    with pytest.raises(TraceFormatError, match=message) as error:
        read_operation_table(path)
    assert str(error.value).startswith(str(path))
    assert "Next: " in str(error.value) or "did you mean" in str(error.value) or "Allowed" in str(error.value)


def test_a_number_too_large_for_any_is_refused(tmp_path):
    path = written(tmp_path / "job.csv", step=[7, 7, "9" * 400, 7])
    with pytest.raises(TraceFormatError, match="row 3, column 'step'"):
        read_operation_table(path)


def test_damaged_files_are_refused(tmp_path):
    whole = written(tmp_path / "job.parquet").read_bytes()
    path = tmp_path / "cut.parquet"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceFormatError, match="cannot be read as a table"):
        read_operation_table(path)
    path.write_bytes(gzip.compress(b"step,optype\n1,forward-compute\n"))
    with pytest.raises(TraceFormatError, match=r"cannot be read as a table|has no column"):
        read_operation_table(path)
    empty = written(tmp_path / "empty.csv", **{name: [] for name in ROWS})
    with pytest.raises(TraceFormatError, match="has no rows"):
        read_operation_table(empty)


# Operations from the step times of a recording, and recordings that are damaged or incomplete.


STEP = (1, 20, 40, 10, 5, 78)  # two of the 78 ms belong to no phase


def read(folder):
    return recorded_operations(TraceSet.load(folder))


def named(table, **where):
    rows = np.logical_and.reduce([table.columns[name] == value for name, value in where.items()])
    kinds = [OPERATION_TYPES[code] for code in table.columns["type"][rows]]
    times = zip(table.columns["start_ns"][rows], table.columns["duration_ns"][rows], strict=True)
    return {kind: (start / 1e6, taken / 1e6) for kind, (start, taken) in zip(kinds, times, strict=True)}


def test_phases_follow_each_other_and_the_rest_is_garbage_collection(tmp_path):
    table = read(recording(tmp_path, [part(0, [STEP, STEP])]))
    assert named(table, step=1) == {
        "input": (78, 1), "forward-compute": (79, 20), "backward-compute": (99, 40), "gc": (139, 2),
        "descheduled": (141, 0), "collectives": (141, 10), "optimizer": (151, 5),
    }  # fmt: skip
    assert set(table.columns["replica"]) == set(table.columns["stage"]) == {0}


def test_only_steps_of_all_ranks_after_the_warm_up_count(tmp_path):
    split = part(1, [STEP] * 2, first=2) + part(1, [STEP] * 3, first=5)  # step 4 lies between
    table = read(recording(tmp_path, [part(0, [STEP] * 7), split], warmup=3))
    assert sorted(set(table.columns["step"])) == [3, 5, 6]
    assert set(table.columns["rank"]) == set(table.columns["replica"]) == {0, 1}


def test_ranks_that_exchange_messages_are_stages(tmp_path):
    files = [part(rank, [STEP], sends=[peer]) for rank, peer in enumerate((2, 3, 0, 1))]
    table = read(recording(tmp_path, files))
    places = {
        int(rank): (int(replica), int(stage))
        for rank, replica, stage in zip(
            *(table.columns[name] for name in ("rank", "replica", "stage")), strict=True
        )
    }
    assert places == {0: (0, 0), 2: (0, 1), 1: (1, 0), 3: (1, 1)}


def test_profiled_steps_and_those_in_which_the_clock_was_set_are_left_out(tmp_path):
    profiled = part(0, [STEP] * 3, recorded=[0, 1, 0, 0])
    assert sorted(set(read(recording(tmp_path, [profiled])).columns["step"])) == [1, 2]
    shorter = part(0, [STEP, (1, 20, 40, 10, 5, 60)])
    assert set(read(recording(tmp_path, [shorter])).columns["step"]) == {0}


@pytest.mark.parametrize("lost", [1, 8, 40])
def test_a_part_that_a_killed_rank_left_incomplete_is_dropped(tmp_path, lost):
    whole, torn = part(0, [STEP] * 2), part(0, [STEP] * 2, first=3)
    table = read(recording(tmp_path, [whole + torn[:-lost]]))
    assert set(table.columns["step"]) == {0, 1}


@pytest.mark.parametrize(
    ("delay_ms", "cpu_ms", "taken_ms"),
    [
        (0, 0, 0),
        (7, 0, 7),
        (1000, 0, 68),
        (1000, 20, 48),
        (7, 20, 7),
        (1000, 68, 0),
        (1000, 75, 3),
        (2, 75, 2),
    ],
)
def test_the_wait_for_a_processor_is_taken_from_the_work(tmp_path, delay_ms, cpu_ms, taken_ms):
    readings = {"delay_ns": [0, delay_ms * 1_000_000], "cpu_ns": [0, cpu_ms * 1_000_000]}
    table = read(recording(tmp_path, [part(0, [STEP], **readings)]))
    times = {kind: duration for kind, (_, duration) in named(table, step=0).items()}
    work = 68  # all but the wait for peers
    assert times["descheduled"] == pytest.approx(taken_ms, abs=1e-5)
    assert times["collectives"] == 10
    assert sum(times.values()) == pytest.approx(78, abs=1e-5)
    assert times["backward-compute"] == pytest.approx(40 * (1 - taken_ms / work), abs=1e-5)


def altered(**changes):
    document = json.loads(gzip.decompress(part(0, [STEP])))
    return gzip.compress(json.dumps(document | changes).encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "rank 0 has no times of complete steps"),
        (part(0, []), "rank 0 has no times of complete steps"),
        (b"no gzip", "cannot be decompressed"),
        (gzip.compress(b"[]", mtime=0), "Expected `object`"),
        (altered(version=2), "Invalid enum value 2"),
        (altered(rank=1), "belongs to rank 1, but the manifest"),
        (part(0, [STEP], index=[1, 0]), "not in order"),
        (part(0, [STEP], gc_ns=[0]), "have \\[1, 2\\] rows"),
        (part(0, [STEP], gc_ns=[0, "x"]), "Expected `int`"),
        (part(0, [STEP], forward_ns=[]), "have \\[0, 2\\] rows"),
    ],
)
def test_damaged_files_are_refused_by_name(tmp_path, content, message):
    with pytest.raises((TraceError, TraceFormatError), match=message) as error:
        read(recording(tmp_path, [content]))
    assert str(tmp_path) in error.value.message


def test_too_large_unpacked_part_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("chakrascope.tracer._evidence._MAX_BYTES", 1000)
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    with pytest.raises(TraceFormatError, match="unpacks to over"):
        read(recording(tmp_path, [packer.compress(b" " * 100_000) + packer.flush()]))


def test_ranks_without_a_step_in_common_are_refused(tmp_path):
    with pytest.raises(TraceError, match="no step was recorded on all of its ranks"):
        read(recording(tmp_path, [part(0, [STEP]), part(1, [STEP], first=4)]))
