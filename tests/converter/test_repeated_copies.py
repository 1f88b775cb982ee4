"""Casts and copies that repeat an earlier one of the same data, detected in traces."""

import json

import numpy as np
import pytest
from kineto_trace import KinetoTrace, host_trace

from chakrascope.converter import convert_files
from chakrascope.converter.building._repeated import shared_inputs
from chakrascope.converter.readers import HostOp

CAST, COPY, ADD, EMPTY = "aten::_to_copy", "aten::copy_", "aten::add_", "aten::empty"
SCHEMAS = {COPY: "copy_(Tensor(a!) self, Tensor src)", ADD: "add_(Tensor(a!) self)"}


def tensor(storage, offset=0, elements=64):
    return [storage, storage, offset, elements, 4, "cpu"]


def call(name, inputs, outputs, *, shape=(8, 8)):
    return name, inputs, outputs, [list(shape)] * len(inputs)


def cast(source, result, **more):
    return call(CAST, [source], [tensor(result)], **more)


def repeated(tmp_path, *steps, on_device=False):
    """Return by operator the number of nodes that repeat a copy, in traces of *steps* of calls."""
    trace, nodes, time, record = KinetoTrace(), [], 1_000.0, 0
    for number, calls in enumerate(steps):
        begin = time
        for name, inputs, outputs, shapes in calls:
            record += 1
            attrs = [
                {"name": "rf_id", "value": record},
                {"name": "op_schema", "value": SCHEMAS.get(name, "")},
            ]
            sides = {
                "inputs": {"values": inputs, "shapes": shapes, "types": []},
                "outputs": {"values": outputs, "shapes": [], "types": []},
            }
            nodes.append({"id": record, "name": name, "attrs": attrs, **sides})
            trace.op(name, time, 50.0, record)
            if on_device:
                trace.launch((time + 5, 1.0), [(time + 60, 9.0)])
            time += 100.0
        trace.add("user_annotation", f"ProfilerStep#{number}", begin, time - begin)
        time += 10.0
    host, device = tmp_path / "host.json", trace.write(tmp_path / "device.json")
    host.write_text(json.dumps({"schema": "1.1.1", "nodes": nodes}))
    made = convert_files(str(host), str(device), step="all")
    numbers = made.metadata["repeated"].get("0", [])
    nodes = made.graphs[0].nodes.set_index("node_id").loc[numbers]
    assert (nodes["kind"] == "compute").all()
    return nodes["operator"].tolist()


@pytest.mark.parametrize("on_device", [False, True])
def test_the_second_cast_of_the_same_tensor_is_repeated(tmp_path, on_device):
    calls = [cast(tensor(1), 2), cast(tensor(1), 3), cast(tensor(1), 4)]
    assert repeated(tmp_path, calls, on_device=on_device) == [CAST, CAST]


@pytest.mark.parametrize(
    "calls",
    [
        [cast(tensor(1), 2), cast(tensor(9), 3)],  # another tensor
        [cast(tensor(1), 2), cast(tensor(1, offset=64), 3)],  # a different part of it, such as query and key
        [cast(tensor(1), 2), cast(tensor(1), 3, shape=(4, 16))],
        [cast(tensor(1), 2), call(ADD, [tensor(1)], []), cast(tensor(1), 3)],  # changed between them
        [
            cast(tensor(1), 2),
            call("aten::mm", [tensor(5)], [tensor(1)]),
            cast(tensor(1), 3),
        ],  # reused address
        [cast(tensor(1), 2), call(ADD, [tensor(2)], []), cast(tensor(1), 3)],  # a result changed in place
        [cast(tensor(1), 2), cast(tensor(1), 3), call(ADD, [tensor(3)], [])],
    ],
)
def test_copies_of_other_or_changed_data_are_needed(tmp_path, calls):
    assert repeated(tmp_path, calls) == []


def test_a_view_changes_nothing_and_a_freed_result_was_reusable(tmp_path):
    view = call("aten::view", [tensor(1)], [tensor(1)])
    reused = [call(EMPTY, [], [tensor(2)]), call(ADD, [tensor(2)], [])]
    assert repeated(tmp_path, [cast(tensor(1), 2), view, *reused, cast(tensor(1), 3)]) == [CAST]


def test_each_step_needs_its_first_copy(tmp_path):
    assert repeated(tmp_path, [cast(tensor(1), 2)], [cast(tensor(1), 3)]) == []


# Tensors that consecutive elementwise operators read, detected in traces.


MIB = 1 << 20


def memory(storage, *, offset=0, elements=MIB // 4):
    return [0, storage, offset, elements, 4, "cpu"]


def operator(name, reads, writes, schema=""):
    sides = [[memory(one) if type(one) is int else one for one in side] for side in (reads, writes)]
    shapes = [[[MIB // 4]] * len(side) for side in sides]
    return HostOp(name, *sides, schema, *shapes)


def shared(*calls):
    operators = dict(enumerate(calls, start=10))
    return shared_inputs(np.arange(10, 10 + len(calls)), host_trace(operators)).tolist()


MUL = operator("aten::mul", [1, 2], [3])
SUM = operator("aten::add", [3, 1], [4])


def test_a_second_reader_is_listed_with_the_first_one_and_the_bytes():
    assert shared(MUL, SUM) == [[1, 0, MIB]]


def test_each_reader_is_listed_with_the_one_before_it():
    assert shared(MUL, SUM, operator("aten::sub", [4, 1], [5])) == [[1, 0, MIB], [2, 1, MIB]]


def test_asking_for_a_view_is_no_access():
    assert shared(MUL, operator("aten::view", [1], [1]), SUM) == [[2, 0, MIB]]


@pytest.mark.parametrize(
    "between",
    [
        operator("aten::mm", [1, 8], [9]),  # reads it, and no kernel does both
        operator("aten::add_", [1, 8], [], "add_(Tensor(a!) self, Tensor other)"),
        operator("aten::mm", [7, 8], [1]),  # a new tensor at the same address
    ],
)
def test_another_access_between_two_readers_separates_them(between):
    assert [2, 0, MIB] not in shared(MUL, between, SUM)


@pytest.mark.parametrize(
    "calls",
    [
        (MUL, operator("aten::add", [3, memory(1, offset=64)], [4])),  # a different part of it
        (MUL, operator("aten::mm", [3, 1], [4])),
        (operator("aten::mul", [1, 1], [3]),),
        (MUL, operator("aten::relu", [3], [4])),  # a result that is passed on
    ],
)
def test_other_reads_are_not_shared(calls):
    assert shared(*calls) == []


def test_without_the_identity_of_tensors_nothing_is_shared():
    host = host_trace({})
    assert shared_inputs(np.arange(3), host).tolist() == []
