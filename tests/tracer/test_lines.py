"""Which line of the script runs is marked in the first captured step, so that operators have a place."""

import contextlib
import os
import sys
import threading
import weakref

import pytest

from chakrascope.converter import convert
from chakrascope.tracer import TraceSet
from chakrascope.tracer._agent import lines
from chakrascope.tracer._agent.lines import ScriptLines

pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces the tests")
MARK = "chakrascope::line "


def batch(count):
    total = 0
    for number in range(count):
        total += square(number)
    return [one + total for one in range(3)]


def square(number):
    return number * number


def long_line(count):
    numbers = [-number for number in range(count)]
    return square(len(numbers))


@pytest.fixture(autouse=True)
def marks(monkeypatch):
    """Return the list of the marks that are made."""
    marks = []

    def quick_range():
        return lambda name: contextlib.nullcontext(marks.append(name))

    monkeypatch.setattr(lines, "quick_range", quick_range)
    return marks


@pytest.fixture
def marked(marks):
    """Return a function that runs another one and returns the marks, as functions with lines."""

    def run(function, *args):
        own = ScriptLines()
        own.enable()
        function(*args)
        own.disable()
        assert sys.gettrace() is None
        assert all(mark.startswith(MARK) for mark in marks)
        own_marks = [mark.removeprefix(MARK) for mark in marks if "run" not in mark]
        return [mark.replace(" (", ":").split(":")[::2] if mark else "" for mark in own_marks]

    return run


def named(*pairs):
    return [[name, f"{batch.__code__.co_firstlineno + line})"] for name, line in pairs]


def test_every_line_is_marked_once_until_another_runs(marked):
    loop = [("batch", 2), ("batch", 3), ("square", 8), ("batch", 3)]
    assert marked(batch, 2) == [*named(("batch", 1), *loop, *loop, ("batch", 2), ("batch", 4)), ""]


def test_a_function_with_many_marks_has_the_line_of_its_definition(marked, monkeypatch):
    monkeypatch.setattr(lines, "MAX_MARKS_OF_FUNCTION", 3)
    found = marked(batch, 50)
    assert found[:5] == named(("batch", 1), ("batch", 2), ("batch", 3), ("square", 8), ("batch", 0))
    assert found[-4:-1] == named(("batch", 0), ("square", 7), ("batch", 0))


@pytest.mark.parametrize("limit", ["MAX_MARKS", "MAX_EVENTS"])
def test_after_a_limit_the_line_is_unknown(marked, monkeypatch, limit):
    monkeypatch.setattr(lines, limit, 20)
    found = marked(batch, 1000)
    assert len(found) <= 21
    assert found[-1] == ""
    assert "" not in found[:-1]


def test_a_long_loop_in_one_line_reaches_the_limit(marked, monkeypatch):
    monkeypatch.setattr(lines, "MAX_EVENTS", 20)
    assert marked(long_line, 1000) == [["long_line", f"{long_line.__code__.co_firstlineno + 1})"], ""]


def test_outside_the_script_the_line_is_unknown(marks):
    own = ScriptLines()

    def called_by_a_library():
        own.enable()

    thread = threading.Thread(target=called_by_a_library)
    thread.start()
    thread.join()
    own.disable()
    assert "called_by_a_library" in marks[-2]
    assert marks[-1] == MARK


def test_a_debugger_keeps_the_thread():
    own = ScriptLines()
    sys.settrace(debugger)
    try:
        own.enable()
        own.disable()
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(None)


def debugger(_frame, _event, _argument):
    return None


class Batch:
    """Data that a function refers to while the trace starts in it."""


def test_data_of_a_function_that_has_ended_is_freed_while_lines_are_traced():
    own = ScriptLines()

    def starts():
        data = Batch()
        own.enable()
        return weakref.ref(data)

    data = starts()
    try:
        assert data() is None
    finally:
        own.disable()


def counting(frames):
    """Yield numbers; the function's frame is appended to *frames*."""
    frames.append(sys._getframe())
    for number in range(100):
        square(number)
        yield number


def test_after_the_end_no_frame_is_traced(monkeypatch):
    monkeypatch.setattr(lines, "MAX_MARKS_OF_FUNCTION", 3)
    frames, own = [sys._getframe()], ScriptLines()
    numbers = counting(frames)
    own.enable()
    for _ in range(10):
        next(numbers)
    own.disable()
    sys.settrace(debugger)  # calls the functions that trace frames
    try:
        next(numbers)
    finally:
        sys.settrace(None)
    assert [(frame.f_trace, frame.f_trace_lines) for frame in frames] == [(None, True)] * 2


def test_a_thread_is_not_traced_after_another_thread_ended_the_trace():
    own = ScriptLines()
    own.enable()
    other = threading.Thread(target=own.disable)
    other.start()
    other.join()
    square(1)
    assert sys.gettrace() is None


def test_a_trace_that_the_script_restores_after_the_end_ends_again():
    own = ScriptLines()
    own.enable()
    before = sys.gettrace()
    sys.settrace(debugger)
    own.disable()
    assert sys.gettrace() is debugger
    sys.settrace(before)
    square(1)
    assert sys.gettrace() is None


def test_a_fork_is_not_traced():
    own = ScriptLines()
    own.enable()
    child = os.fork()
    if not child:
        os._exit(sys.gettrace() is not None)
    own.disable()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# A batch of short operators, for which the sampler rarely gets the interpreter lock, and a long operator of
# the model, during which the sampler always gets it.
SHORT = """
import torch
data = torch.arange(100_000)
def get_batch():
    starts = torch.randint(90_000, (64,))
    return torch.stack([data[at : at + 64] for at in starts]).float()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 2048)
    def forward(self, batch):
        return self.layer(batch).exp()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-9)
for step in range(9):
    loss = net(get_batch()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.torch
def test_operators_have_the_line_of_the_script_that_calls_them(tmp_path, script, run_ranks):
    done = run_ranks(script(SHORT, start=""), warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    assert len(TraceSet.load(tmp_path / "out").ranks) == 1
    nodes = convert(tmp_path / "out").graphs[0].nodes
    places = nodes.groupby("operator")["place"].agg(set)
    assert places["aten::randint"] == {"get_batch (train.py:5)"}
    for operator in ("aten::slice", "aten::item", "aten::_local_scalar_dense", "aten::stack", "aten::cat"):
        assert places[operator] == {"get_batch (train.py:6)"}
    for operator in ("aten::linear", "aten::addmm", "aten::exp", "ExpBackward0", "AddmmBackward0"):
        assert places[operator] == {"Net.forward (train.py:12)"}
    optimized = nodes[(nodes["phase"] == "optimizer") & (nodes["operator"] != "")]
    assert set(optimized["place"]) == {"<module> (train.py:19)"}
