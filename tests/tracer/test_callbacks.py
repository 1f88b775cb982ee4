"""The real trainers of Hugging Face and Lightning, with and without our callbacks."""

import pickle
import sys

import pytest

from chakrascope.converter import CollectiveType, convert
from chakrascope.errors import CaptureError
from chakrascope.tracer import TraceSet
from chakrascope.tracer.callbacks import hugging_face_callback, lightning_callback

from .conftest import serving

pytestmark = pytest.mark.torch
LIBRARIES = {"transformers": hugging_face_callback, "lightning": lightning_callback}


@pytest.fixture(scope="module")
def rank_server(tmp_path_factory, package_path):
    """Return the address of a process that has imported both libraries."""
    for library in (*LIBRARIES, "accelerate"):
        pytest.importorskip(library, reason=f"{library} is not installed; `pip install .[dev]` brings it")
    modules = ("transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "lightning.pytorch")
    with serving(tmp_path_factory.mktemp("trainers"), package_path, *modules) as address:
        yield address


@pytest.fixture
def importable(monkeypatch, package_path):
    """Let the jobs import chakrascope, as they can where it is installed."""
    monkeypatch.setenv("PYTHONPATH", package_path)


def steps(trace_set):
    return [(rank.trigger, [step.index for step in rank.steps]) for rank in trace_set.ranks]


@pytest.mark.parametrize(
    ("job", "module"),
    [
        (["hugging_face.py"], "transformer.h.0.mlp.c_fc"),
        (["lightning_module.py", "2", "", "-1"], "layers.0"),
    ],
)
def test_an_unmodified_trainer_on_two_ranks_becomes_a_graph(tmp_path, run_ranks, job, module):
    done = run_ranks(*job, ranks=2, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.partial, steps(trace_set)) == (False, [("optimizer", [3, 4])] * 2)
    nodes = convert(trace_set.path).graphs[0].nodes
    assert CollectiveType.ALL_REDUCE in set(nodes["comm_type"])
    assert module in set(nodes["module"])


@pytest.mark.parametrize(
    ("job", "numbers", "notes"),
    [
        (["hugging_face.py", "profiled"], [3, 4], ["its own profile of steps 2-4 is used"]),
        # The trainer's profiler stops in the middle of a step, after its third batch; our capture begins one
        # step later.
        (["lightning_module.py", "2", "", "-1", "pytorch"], [7, 8], []),
    ],
)
def test_a_trainer_that_profiles_itself_is_captured_all_the_same(tmp_path, run_ranks, job, numbers, notes):
    done = run_ranks(*job, ranks=2, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.partial, steps(trace_set)) == (False, [("optimizer", numbers)] * 2)
    assert [note in told for note, told in zip(notes, trace_set.notes, strict=True)] == [True] * len(notes)
    assert CollectiveType.ALL_REDUCE in set(convert(trace_set.path).graphs[0].nodes["comm_type"])


@pytest.mark.parametrize("job", [["hugging_face.py", "own"], ["lightning_module.py", "2", "own", "-1"]])
def test_a_callback_captures_both_ranks_without_a_launcher(tmp_path, run_ranks_alone, importable, job):
    done = run_ranks_alone(*job, ranks=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "own")
    assert (trace_set.partial, steps(trace_set)) == (False, [("manual", [3, 4])] * 2)


def test_failed_training_run_keeps_error_and_steps(tmp_path, run_ranks_alone, importable):
    done = run_ranks_alone("lightning_module.py", "1", "own", "8")
    assert done.returncode == 1
    assert "ValueError: bad batch" in done.stderr
    assert steps(TraceSet.load(tmp_path / "own")) == [("manual", [3])]


def test_a_training_run_too_short_to_be_captured_does_not_fail(tmp_path, script, run_ranks_alone, importable):
    path = script("", start=SHORT)
    done = run_ranks_alone(path)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "needs one complete step" in done.stderr
    assert not (tmp_path / "own" / "manifest.json").exists()


SHORT = """
from chakrascope.tracer.callbacks import hugging_face_callback
callback = hugging_face_callback("own")
callback.on_train_begin(None, None, None)
callback.on_step_end(None, None, None)
callback.on_train_end(None, None, None)
print("trained")
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_callback_is_recreated_in_a_spawned_rank(tmp_path, library):
    pytest.importorskip(library)
    copy = pickle.loads(pickle.dumps(LIBRARIES[library](tmp_path, steps=5)))
    assert type(copy).__name__ == "ChakrascopeCallback"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_is_named(tmp_path, monkeypatch, library):
    for name in ("transformers", "lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CaptureError, match=f"needs {library}.*chakrascope trace"):
        LIBRARIES[library](tmp_path)
