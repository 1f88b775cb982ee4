"""The trainers' callbacks, driven as their libraries document.

The libraries themselves are large and stay out of the test environment; the events and their order below are
those of transformers 5 and lightning 2.6, with which both callbacks were tried.
"""

import sys

import pytest

from chakrascope.errors import CaptureError
from chakrascope.tracer import TraceSet
from chakrascope.tracer.callbacks import hugging_face_callback, lightning_callback

pytestmark = pytest.mark.torch

STAND_IN = """
import sys, types
sys.path.insert(0, {path!r})
for name, base in (("transformers", "TrainerCallback"), ("lightning", ""), ("lightning.pytorch", "Callback")):
    module = sys.modules[name] = types.ModuleType(name)
    if base:
        setattr(module, base, type(base, (), {{}}))
from chakrascope.tracer.callbacks import hugging_face_callback, lightning_callback
"""

HUGGING_FACE = """
callback = hugging_face_callback(sys.argv[1], warmup=2, steps=2)
callback.on_train_begin(None, None, None, model=model)
for _ in range(6):
    train(1)
    callback.on_step_end(None, None, None, model=model)
callback.on_train_end(None, None, None, model=model)
"""

LIGHTNING = """
callback = lightning_callback(sys.argv[1], warmup=2, steps=2)
trainer = types.SimpleNamespace(global_step=0)
callback.on_train_start(trainer, model)
for batch in range(12):
    model(torch.ones(4, 8)).sum().backward()
    if batch % 2:
        optimizer.step()
        trainer.global_step += 1
    callback.on_train_batch_end(trainer, model, None, None, batch)
    if batch == {last}:
        callback.on_exception(trainer, model, KeyboardInterrupt())
        break
else:
    callback.on_train_end(trainer, model)
"""


def captured(tmp_path, run_ranks, path):
    done = run_ranks(path, tmp_path / "unused", warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    (rank,) = trace_set.ranks
    return trace_set, [rank["trigger"], rank["structure_step"]["index"], *(s["index"] for s in rank["steps"])]


def test_a_hugging_face_trainer_s_steps_are_captured(tmp_path, script, run_ranks, package_path):
    path = script(STAND_IN.format(path=package_path) + HUGGING_FACE)
    trace_set, steps = captured(tmp_path, run_ranks, path)
    assert (trace_set.partial, steps) == (False, ["manual", 2, 3, 4])


@pytest.mark.parametrize("last", [99, 8])
def test_a_lightning_trainer_s_steps_are_captured(tmp_path, script, run_ranks, package_path, last):
    path = script(STAND_IN.format(path=package_path) + LIGHTNING.format(last=last))
    trace_set, steps = captured(tmp_path, run_ranks, path)
    assert steps == ["manual", 2, 3, 4] if last == 99 else ["manual", 2, 3]
    assert trace_set.partial == (last == 8)


@pytest.mark.parametrize(
    ("make", "package"), [(hugging_face_callback, "transformers"), (lightning_callback, "lightning")]
)
def test_a_missing_library_is_named(tmp_path, monkeypatch, make, package):
    for name in ("transformers", "lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CaptureError, match=f"needs {package}.*chakrascope trace"):
        make(tmp_path)
