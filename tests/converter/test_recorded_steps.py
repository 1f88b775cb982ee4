"""Operations from the step times of a recording, and recordings that are damaged or incomplete."""

import gzip
import json
import zlib

import numpy as np
import pytest

from chakrascope.converter.readers import OPERATION_TYPES, recorded_operations
from chakrascope.errors import TraceError, TraceFormatError
from chakrascope.tracer import TraceSet

from ..step_times import part, recording

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


@pytest.mark.parametrize("delay_ms", [0, 7, 1000])
def test_the_wait_for_a_processor_is_taken_from_the_work(tmp_path, delay_ms):
    delays = [0, delay_ms * 1_000_000]
    table = read(recording(tmp_path, [part(0, [STEP], delay_ns=delays)]))
    times = {kind: duration for kind, (_, duration) in named(table, step=0).items()}
    work = 68  # all but the wait for peers
    assert times["descheduled"] == pytest.approx(min(delay_ms, work), abs=1e-5)
    assert times["collectives"] == 10
    assert sum(times.values()) == pytest.approx(78, abs=1e-5)
    assert times["backward-compute"] == pytest.approx(40 * (1 - min(delay_ms / work, 1)), abs=1e-5)


def altered(**changes):
    document = json.loads(gzip.decompress(part(0, [STEP])))
    return gzip.compress(json.dumps(document | changes).encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "of rank 0 there are no times of whole steps"),
        (part(0, []), "of rank 0 there are no times of whole steps"),
        (b"no gzip", "cannot be decompressed"),
        (gzip.compress(b"[]", mtime=0), "Expected `object`"),
        (altered(version=2), "Invalid enum value 2"),
        (altered(rank=1), "it is of rank 1, not 0"),
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


def test_a_part_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("chakrascope.tracer._step_times._MOST_BYTES", 1000)
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    with pytest.raises(TraceFormatError, match="unpacks to over"):
        read(recording(tmp_path, [packer.compress(b" " * 100_000) + packer.flush()]))


def test_ranks_without_a_step_in_common_are_refused(tmp_path):
    with pytest.raises(TraceError, match="no step was recorded on all of its ranks"):
        read(recording(tmp_path, [part(0, [STEP]), part(1, [STEP], first=4)]))
