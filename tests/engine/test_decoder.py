"""The engine's representation of programs: its decoder, columns and containers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import et
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import build
from chakrascope import errors
from chakrascope.errors import BackendError, ChakrascopeError, DependencyError, WorkloadFormatError
from chakrascope.runner import engine

GOOD = et.program([build.comp(0), build.coll(1, after=(0,), pg_name="1"), build.send(2, 0, 1, after=(1,))])


def decode(data: bytes):
    return build.engine.simulate(
        build.config(npus_count=[2], groups={1: [0, 1]}), [data, et.program([build.comp(0)])], [0, 1]
    )


def answer_or_refusal(data: bytes) -> str:
    """Return the decoder's error; any other exception fails the test."""
    try:
        decode(data)
    except ChakrascopeError as error:
        return str(error)
    return ""


def test_unknown_fields_and_attributes_are_skipped():
    plain = et.node(build.comp(7, micros=3))
    unknown = et.varint(200 << 3 | 2) + et.varint(3) + b"abc" + et.varint(201 << 3 | 5) + b"1234"
    message = plain + unknown
    header = et.varint(0)
    output = decode(header + et.varint(len(message)) + message)
    assert output.rank_finish_ns.tolist() == [3000, 1000]


@pytest.mark.parametrize("order", [(0, 1, 2, 2), (2, 0, 1, 2), (2, 2, 1, 0)])
def test_a_repeated_id_is_refused(order):
    with pytest.raises(WorkloadFormatError, match=r"program 0, node 2 at byte \d+: another node has this id"):
        decode(et.program([build.comp(number) for number in order]))


def test_zeros_are_no_graph():
    with pytest.raises(WorkloadFormatError, match="another node has this id"):
        decode(bytes(64))


def test_a_dependency_that_is_listed_twice_is_one():
    nodes = [build.comp(0, 5), build.comp(1, 9, after=(0, 0)) | {"data_deps": (0,)}]
    assert build.finish([nodes, nodes]) == [14_000] * 2


@pytest.mark.parametrize("number", [65_535, 65_536])
def test_nodes_may_have_more_names_than_two_bytes_count(number):
    nodes = [build.comp(place, after=(place - 1,) if place else ()) for place in range(number)]
    lost = et.program([*nodes, build.coll(number, after=(number - 1,), pg_name="9")])
    with pytest.raises(WorkloadFormatError, match=f"'coll{number}'"):
        build.engine.simulate(build.config(npus_count=[2]), [lost], [0, 0])


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_truncated_files_are_refused_or_shorter(length):
    message = answer_or_refusal(GOOD[:length])
    assert not message or "program 0" in message


def test_missing_dependency_names_both_nodes():
    with pytest.raises(DependencyError, match=r"node 3 depends on node 77"):
        decode(et.program([build.comp(3, after=(77,)), build.comp(4)]))


def test_a_cycle_without_a_start_is_refused():
    with pytest.raises(DependencyError, match="dependency cycle"):
        decode(et.program([build.comp(0, after=(1,)), build.comp(1, after=(0,))]))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (build.coll(0, pg_name="abc"), "pg_name"),
        (build.coll(0, pg_name="5"), "group 5, which does not exist"),
        (build.coll(0) | {"comm_size": None}, "comm_size"),
        (build.coll(0) | {"comm_type": None}, "comm_type"),
        (build.send(0, 0, 9), "names rank 9"),
        (build.send(0, 1, 0), "another rank"),
        (build.coll(0, is_cpu_op=True), "is_cpu_op"),
        ({"id": 0, "type": "MEM_LOAD", "tensor_size": 8}, "NO_MEMORY_EXPANSION"),
        ({"id": 0, "type": 99}, "its type 99 is unknown"),
        (build.comp(1 << 63), "its id is above"),
        (build.comp(3, after=(3,)), r"node 3 at byte \d+: it depends on itself"),
        (build.comp(0, after=(1 << 63,)), "it waits for an id above"),
        (build.comp(0, 1 << 60), "its duration is 1152921504606846976 us"),
        (build.comp(0) | {"duration_ns": 1 << 63}, "duration_ns is 9223372036854775808"),
        (build.comp(0) | {"num_ops": 1 << 63}, "num_ops is"),
        (build.coll(0) | {"comm_size": 1 << 63}, "comm_size is 9223372036854775808, above"),
        (build.coll(0) | {"comm_type": 99}, "comm_type 99 is not a collective"),
    ],
)
def test_impossible_nodes_are_refused(node, message):
    with pytest.raises(ChakrascopeError, match=message):
        decode(et.program([node]))


def test_a_negative_size_is_refused():
    node = et.node(build.coll(0) | {"comm_size": None}) + et.attribute_of_int64("comm_size", -5)
    with pytest.raises(WorkloadFormatError, match=r"node 0 at byte \d+: comm_size is -5, below 0"):
        decode(et.varint(0) + et.varint(len(node)) + node)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(WorkloadFormatError, match=r"nothing\.0\.et"):
        build.engine.simulate(build.config(npus_count=[2]), [str(tmp_path / "nothing.0.et")], [0, 0])


def test_names_that_are_no_text_are_shown_all_the_same():
    node = et.node(build.coll(0, pg_name="5")).replace(b"coll0", b"co\x80l0")
    with pytest.raises(WorkloadFormatError, match="co\ufffdl0"):
        decode(et.varint(0) + et.varint(len(node)) + node)


@given(st.binary(max_size=200))
@settings(max_examples=75, deadline=None)
def test_any_bytes_are_answered_or_refused(data):
    assert isinstance(answer_or_refusal(data), str)


@given(st.data())
@settings(max_examples=75, deadline=None)
def test_damaged_files_are_answered_or_refused(data):
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(answer_or_refusal(bytes(damaged)), str)


# Programs and records are stored compactly; nodes that do not fit have the same results.

DAY_NS = 24 * 3600 * 10**9
EACH = st.sampled_from([0, 1, 255, 2**32 // 1000 - 1, 2**32 // 1000, 2**32 // 1000 + 1, DAY_NS // 1000])


def alone(nodes, **settings):
    """Return the start and end of *nodes* on one rank, by node id."""
    columns = build.run([nodes], build.config(npus_count=[1], **settings)).nodes(0, 1)
    names = ("node_id", "start_ns", "end_ns")
    return {
        node: (start, end) for node, start, end in zip(*(columns[n].tolist() for n in names), strict=True)
    }


@given(st.lists(EACH, min_size=1, max_size=6))
def test_nodes_of_any_length_follow_each_other_for_days(micros):
    found = alone([build.comp(place, each, (place - 1,) * (place > 0)) for place, each in enumerate(micros)])
    now = 0
    for place, each in enumerate(micros):
        length = 1000 * each or 1
        assert found[place] == (now, now + length)
        now += length


@pytest.mark.parametrize("parents", [1, 254, 255, 256, 600])
def test_a_node_waits_for_any_number_of_others(parents):
    nodes = [build.comp(place, 1, is_cpu_op=place % 2 == 0) for place in range(parents)]
    found = alone([*nodes, build.comp(parents, 1, range(parents))])
    assert found[parents][0] == max(end for node, (_, end) in found.items() if node < parents)


@pytest.mark.parametrize("ids", [(0, 1, 2), (7, 8, 9), (3, 10, 11), (5, 900, 1 << 40), (9, 4, 6)])
def test_ids_may_have_gaps_and_any_order(ids):
    first, second, third = ids
    found = alone([build.comp(first, 1), build.comp(second, 2, (first,)), build.comp(third, 3, (second,))])
    assert found == {first: (0, 1000), second: (1000, 3000), third: (3000, 6000)}


@given(st.integers(1, 40), st.randoms(use_true_random=False), st.booleans())
def test_room_is_the_least_that_any_way_to_the_end_allows(events, draw, in_order):
    waits = sorted(
        (event, draw.randrange(event + 1, events), draw.randrange(9))
        for event in range(events - 1)
        for _ in range(draw.randrange(3))
    )
    first = np.searchsorted([event for event, *_ in waits], np.arange(events + 1))
    room = np.array([draw.randrange(100) for _ in range(events)])
    expected = room.tolist()
    for event, waiting, gap in reversed(waits):
        expected[event] = min(expected[event], expected[waiting] + gap)
    order = np.arange(events, dtype=np.int32)
    if not in_order:
        draw.shuffle(order)
    waiting, gap = (np.array([wait[i] for wait in waits], kind) for i, kind in ((1, np.int32), (2, np.int64)))
    engine.lower_room(errors, room, order, first, waiting, gap)
    assert room.tolist() == expected


@pytest.mark.parametrize(
    ("order", "first", "waiting"),
    [
        *(([0, 1], first, place) for first in ([0, 1, 2], [0, 2, 1], [1, 1, 1], [0, 1]) for place in (2, -1)),
        ([0, 1], [0, 1, 1], 2),
        ([0, 2], [0, 1, 1], 1),
        ([0], [0, 1, 1], 1),
    ],
)
def test_waits_for_events_that_there_are_not_are_refused(order, first, waiting):
    room, gap = np.zeros(2, np.int64), np.zeros(1, np.int64)
    columns = np.array(order, np.int32), np.array(first), np.array([waiting], np.int32)
    with pytest.raises(BackendError, match="run it again"):
        engine.lower_room(errors, room, *columns, gap)


# The engine's containers, compared with simple implementations in C++.

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "runner" / "engine" / "src"
PARTS = [SOURCES / "flow" / name for name in ("sharing.cc", "clusters.cc")]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler on the PATH")
    built = tmp_path_factory.mktemp("native") / "containers"
    command = [compiler, "-std=c++20", "-O1", "-I", SOURCES, HERE / "native" / "containers.cc", *PARTS]
    done = subprocess.run([*command, "-o", built], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("name", ["agenda", "ends", "kept", "sharing"])
def test_containers_match_a_plain_implementation(program, name):
    done = subprocess.run([program, name], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
