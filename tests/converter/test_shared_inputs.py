"""Tensors that elementwise operators read after each other, as traces show it."""

from __future__ import annotations

import numpy as np
import pytest

from chakrascope.converter.building._shared_inputs import shared_inputs
from chakrascope.converter.readers._host_trace import HostOp, host_trace

MIB = 1 << 20


def tensor(storage, *, offset=0, elements=MIB // 4):
    return [0, storage, offset, elements, 4, "cpu"]


def call(name, reads, writes, schema=""):
    sides = [[tensor(one) if type(one) is int else one for one in side] for side in (reads, writes)]
    shapes = [[[MIB // 4]] * len(side) for side in sides]
    return HostOp(name, *sides, schema, *shapes)


def shared(*calls):
    operators = dict(enumerate(calls, start=10))
    return shared_inputs(np.arange(10, 10 + len(calls)), host_trace(operators)).tolist()


MUL = call("aten::mul", [1, 2], [3])
ADD = call("aten::add", [3, 1], [4])


def test_a_second_reader_is_listed_with_the_first_one_and_the_bytes():
    assert shared(MUL, ADD) == [[1, 0, MIB]]


def test_each_reader_is_listed_with_the_one_before_it():
    assert shared(MUL, ADD, call("aten::sub", [4, 1], [5])) == [[1, 0, MIB], [2, 1, MIB]]


def test_asking_for_a_view_is_no_access():
    assert shared(MUL, call("aten::view", [1], [1]), ADD) == [[2, 0, MIB]]


@pytest.mark.parametrize(
    "between",
    [
        call("aten::mm", [1, 8], [9]),  # reads it, and no kernel does both
        call("aten::add_", [1, 8], [], "add_(Tensor(a!) self, Tensor other)"),
        call("aten::mm", [7, 8], [1]),  # a new tensor at the same address
    ],
)
def test_another_access_between_two_readers_separates_them(between):
    assert [2, 0, MIB] not in shared(MUL, between, ADD)


@pytest.mark.parametrize(
    "calls",
    [
        (MUL, call("aten::add", [3, tensor(1, offset=64)], [4])),  # another part of it
        (MUL, call("aten::mm", [3, 1], [4])),
        (call("aten::mul", [1, 1], [3]),),
        (MUL, call("aten::relu", [3], [4])),  # a result that is passed on
    ],
)
def test_other_reads_are_not_shared(calls):
    assert shared(*calls) == []


def test_without_the_identity_of_tensors_nothing_is_shared():
    host = host_trace({})
    assert shared_inputs(np.arange(3), host).tolist() == []
