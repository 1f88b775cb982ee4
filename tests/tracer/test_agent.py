"""The agent's pure parts, without torch: ends of rounds of steps, and the outermost module."""

import ast
import json
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope import tracer
from chakrascope.tracer._agent import phases
from chakrascope.tracer._agent.install import INSTALLATIONS, ForwardCounter
from chakrascope.tracer._agent.optimizers import OptimizerOrder, Owners
from chakrascope.tracer._agent.process import entries_of_rank, write_or_overwrite
from chakrascope.tracer._agent.sources import SourceFiles, function_name, outer_function


def test_waiting_for_buffers_of_another_rank_is_waiting_for_a_collective(monkeypatch):
    class Model:
        def register_comm_hook(self):
            """Do nothing."""

        def _sync_buffers(self):
            time.sleep(0.01)

    INSTALLATIONS["torch.nn.parallel.distributed"](types.SimpleNamespace(DistributedDataParallel=Model))
    clock = phases.PHASES
    monkeypatch.setattr(clock, "thread", threading.get_ident())
    before = clock.end_step(time.time_ns())
    Model()._sync_buffers()
    waited = clock.end_step(time.time_ns())[phases.COLLECTIVE] - before[phases.COLLECTIVE]
    assert waited >= 10_000_000


def test_a_generator_expression_outside_functions_belongs_to_its_module():
    code = compile("sum(value for value in ())", "train.py", "exec")
    nested = next(one for one in code.co_consts if isinstance(one, types.CodeType))
    known = hasattr(nested, "co_qualname")  # from Python 3.11 on
    assert function_name(nested) == ("<module>" if known else "<genexpr>")


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Block.__init__.<locals>.<lambda>", "Block.__init__.<locals>.<lambda>"),
        ("train.<locals>.<listcomp>", "train"),
        ("train.<locals>.<genexpr>.<locals>.<genexpr>", "train"),
        ("train.<locals>.<lambda>.<locals>.<genexpr>", "train.<locals>.<lambda>"),
        ("<lambda>", "<lambda>"),
    ],
)
def test_a_lambda_is_not_the_function_that_makes_it(name, function):
    assert outer_function(name) == function


def test_the_import_hook_knows_each_module_that_the_agent_changes():
    source = (Path(tracer.__file__).parent / "_inject" / "sitecustomize.py").read_text()
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    targets = next(node.value for node in assigned if node.targets[0].id == "_TARGETS")
    assert ast.literal_eval(targets) == set(INSTALLATIONS)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6, unique=True), st.integers(2, 5))
def test_every_round_of_optimizers_ends_once_after_the_first(optimizers, rounds):
    order = OptimizerOrder()
    ends = [[order.ends_step(optimizer) for optimizer in optimizers] for _ in range(rounds)]
    assert ends[0] == [False] * len(optimizers)
    assert ends[1:] == [[False] * (len(optimizers) - 1) + [True]] * (rounds - 1)


def test_an_optimizer_that_steps_again_without_a_backward_pass_ends_no_step():
    order = OptimizerOrder()
    steps = [(1, 1), (1, 1), (1, 1), (1, 2), (2, 2), (1, 2), (2, 2), (1, 3)]
    repeats = [order.repeats(*step) for step in steps]
    assert repeats == [False, True, True, False, False, True, True, False]


@pytest.mark.parametrize("passes", [0, 5])
def test_optimizers_without_backward_passes_end_steps_at_last(passes):
    """For example, the script computes the gradients itself, from the first step on or later."""
    order = OptimizerOrder()
    ended = [not order.repeats(1, passes) for _ in range(40)]
    assert ended[0]
    assert sum(ended) == (8 if passes else 40)


def test_late_optimizer_is_distinguished():
    order = OptimizerOrder()
    assert order.empty
    order.ends_step(1)
    assert not order.is_late(2)
    order.ends_step(1)
    assert (order.is_late(1), order.is_late(2)) == (False, True)


@pytest.fixture
def torch():
    """Return the parts of torch that the counter needs."""

    class Module:
        def __init__(self, *children, state=True):
            self.children, self.state = children, state

        def __call__(self, value):
            for child in self.children:
                value = child(value)
            return value + 1

        def parameters(self):
            return [self] if self.state else []

        def buffers(self):
            return []

    state = types.SimpleNamespace(compiling=False)
    fake = types.SimpleNamespace(state=state, nn=types.SimpleNamespace(Module=Module))
    fake.compiler = types.SimpleNamespace(is_compiling=lambda: state.compiling)
    fake._C = types.SimpleNamespace(_get_tracing_state=lambda: None)
    return fake


@pytest.fixture
def counted(torch):
    """Return a started counter, and the list to which it adds an entry at each step."""
    steps = []
    counter = ForwardCounter(torch, lambda: steps.append(len(steps)), list)
    counter.start()
    return counter, steps


def test_the_first_module_called_twice_from_outside_counts(torch, counted):
    _, steps = counted
    inner = torch.nn.Module()
    model, transform = torch.nn.Module(inner, inner), torch.nn.Module(state=False)
    for _ in range(4):
        assert model(transform(transform(0))) == 5
        inner(0)
    assert len(steps) == 3


def test_a_loss_that_cannot_be_hashed_runs_as_usual(torch, counted):
    class Loss(torch.nn.Module):
        __hash__ = None  # as in a dataclass

    _, steps = counted
    assert [Loss()(0) for _ in range(3)] == [1, 1, 1]
    assert steps == []


def test_backward_gets_all_tensors_of_an_iterator(monkeypatch):
    engine = types.SimpleNamespace(queue_callback=list)
    autograd = types.SimpleNamespace(Variable=types.SimpleNamespace(_execution_engine=engine))
    torch = types.SimpleNamespace(autograd=autograd, Tensor=int)
    monkeypatch.setattr(phases, "_has_peers", lambda: True)
    monkeypatch.setattr(phases.PHASES, "thread", threading.get_ident())
    autograd.backward = list
    phases.watch_backward.__wrapped__(torch)
    assert autograd.backward(iter("abc")) == ["a", "b", "c"]


def test_places_are_described_without_a_working_directory(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert SourceFiles().number(str(tmp_path / "train.py")) == 0
    assert SourceFiles().number("train.py") == 0


def test_status_files_that_vanish_or_are_half_written_are_no_peers(tmp_path):
    folder = tmp_path / "status"
    folder.mkdir()
    entry = {"rank": 3, "trigger": "step"}
    (folder / "host.1.json").write_text(json.dumps({"pid": -1, "rank": entry}))
    (folder / "host.2.json").symlink_to(tmp_path / "merged")
    (folder / "host.3.json").write_text('{"pid": -1, "ra')
    assert entries_of_rank(tmp_path, 3, "step") == [entry]


def test_a_module_called_once_at_the_start_is_not_waited_for(torch, counted):
    _, steps = counted
    encoder, decoder = torch.nn.Module(), torch.nn.Module()
    encoder(0)
    for _ in range(5):
        decoder(0)
    assert len(steps) == 4


def test_calls_made_by_a_compiler_do_not_count(torch, counted):
    _, steps = counted
    model = torch.nn.Module()
    model(0)
    torch.state.compiling = True
    model(0)
    assert not steps


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_stopping_leaves_every_class_as_it_was(torch, calls):
    class Own(torch.nn.Module):
        def __call__(self, value):
            return super().__call__(value) * 2

    before = [vars(cls)["__call__"] for cls in (torch.nn.Module, Own)]
    counter = ForwardCounter(torch, list, list)
    counter.start()
    model = Own()
    assert [model(0) for _ in range(calls)] == [2] * calls
    counter.stop()
    assert [vars(cls)["__call__"] for cls in (torch.nn.Module, Own)] == before


def test_an_error_in_the_model_passes_and_counting_goes_on(torch, counted):
    _, steps = counted
    model = torch.nn.Module()
    with pytest.raises(TypeError):
        model(None)
    model(0)
    model(0)
    assert len(steps) == 2


def test_a_wrapper_of_someone_else_s_around_ours_is_left_in_place(torch, counted):
    counter, _ = counted
    ours = torch.nn.Module.__call__

    def theirs(module, value):
        return ours(module, value)

    torch.nn.Module.__call__ = theirs
    counter.stop()
    assert torch.nn.Module.__call__ is theirs
    assert torch.nn.Module()(1) == 2


def test_where_no_new_file_can_be_made_an_existing_one_is_overwritten(tmp_path):
    file = tmp_path / "status.json"
    write_or_overwrite(file, b'{"closed": false}')
    (tmp_path / f".status.json.{os.getpid()}.tmp").mkdir()  # where the new one would be written first
    write_or_overwrite(file, b'{"closed": 1}')
    assert json.loads(file.read_bytes()) == {"closed": 1}
    (tmp_path / f".other.json.{os.getpid()}.tmp").mkdir()
    with pytest.raises(OSError, match="other"):
        write_or_overwrite(tmp_path / "other.json", b"{}")


def test_an_interrupt_while_the_process_ends_does_not_cost_the_capture():
    """Ctrl-C twice: the second may come before saving has begun to hold signals back."""
    code = (
        "from chakrascope.tracer._agent.process import at_process_end\n"
        "calls = []\n"
        "def save():\n"
        "    calls.append(1)\n"
        "    if len(calls) == 1:\n"
        "        raise KeyboardInterrupt\n"
        "    print('saved')\n"
        "at_process_end(save)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("saved\n", "")


def test_an_optimizer_created_anew_replaces_the_deleted_one():
    """A second optimizer for other parameters, or next to the first one, has a separate number."""
    import torch

    layers, owners = [torch.nn.Linear(4, 4) for _ in range(2)], Owners()
    other = torch.optim.SGD(layers[1].parameters())
    numbers = [(owners.add(torch.optim.Adam(layers[0].parameters())), owners.add(other)) for _ in range(3)]
    assert numbers == [(0, 1)] * 3
    optimizers = [torch.optim.SGD(layers[1].parameters()) for _ in range(2)]
    assert [*map(owners.add, optimizers), *map(owners.add, optimizers)] == [2, 3, 2, 3]


def test_a_wrapper_of_an_optimizer_without_parameters_has_a_number():
    """It inherits the patched step, but never calls the constructor of its base class."""
    import torch

    class Wrapper(torch.optim.SGD):
        def __init__(self):
            """Leave the parameters to the wrapped optimizer."""

    wrappers, owners = [Wrapper(), Wrapper()], Owners()
    assert [owners.add(one) for one in wrappers * 2] == [0, 1, 0, 1]
    assert owners.note([("weight", torch.ones(1))]) == ""


@pytest.mark.parametrize(("trained", "is_noted"), [(1, True), (2, False), (0, False)])
def test_gradients_that_no_optimizer_uses_are_noted(trained, is_noted):
    """Unless it has none of them: it may work on copies."""
    import torch

    from chakrascope.tracer._agent.modules import ModuleRanges

    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    copies = [torch.nn.Parameter(torch.ones(1))]
    own = [one for layer in layers[2 - trained :] for one in layer.parameters()] if trained else copies
    ranges, owners = ModuleRanges(), Owners()
    optimizer = torch.optim.SGD(own)
    owners.add(optimizer)
    assert ranges.enable()
    layers(torch.ones(2, 4)).sum().backward()
    ranges.disable()
    note = owners.note(ranges.with_gradients())
    expected = "gradients of 2 parameters (7.63e-05 MiB, such as 0.weight) that no optimizer uses"
    assert (expected in note) == is_noted
    assert bool(note) == is_noted
