"""Steps by the annotations that mark them: names, occurrences, globs, and batches of inference engines."""

import pytest
from engine_traces import Engine

from chakrascope.converter import convert_files
from chakrascope.converter.building._batches import Batch, batch_of
from chakrascope.errors import UsageError


@pytest.fixture
def served(tmp_path):
    """Return a trace of two prefills and five decodes of different lengths, without profiler's steps."""
    engine = Engine()
    for count in (40, 44):
        engine.step(f"step[EXTEND bs=2 toks={count}]", [50.0] * count, pause_us=900)
    for count in (11, 15, 13, 12, 14):
        engine.step("step[DECODE bs=4]", [30.0] * count, pause_us=400, inner="sampling")
    return engine.write(tmp_path / "trace.json")


def kernels(workload):
    return int((workload.graphs[0].nodes["name"] == "gemm").sum())


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("execute_context_2(6144)_generation_3(3)", Batch("mixed", 5, 6147)),
        ("execute_context_0(0)_generation_64(64)", Batch("decode", 64, 64)),
        ("execute_context_1(888_788544)_generation_0(0)", Batch("prefill", 1, 888)),
        ("execute_new_2_cached_0", Batch("prefill", 2)),
        ("execute_new_0_cached_7", Batch("decode", 7)),
        (
            "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk9sqsq3sqsk9)",
            Batch("mixed", 5, 6147),
        ),
        ("step[DECODE bs=32]", Batch("decode", 32, 32)),
        ("step[EXTEND bs=15 toks=15360]", Batch("prefill", 15, 15360)),
        ("step[MIXED bs=2]", Batch("mixed", 2)),
        ("step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2048 g_sq=64 g_sk=9]", Batch("mixed", 66, 2112)),
        ("step[mixed bs=3 ext=20 dec=2]", Batch("mixed", 3, 22)),
        ("step[TARGET_VERIFY bs=8]", Batch("decode", 8)),
        ("step[idle]", Batch("idle")),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", Batch("prefill", 2, 14721)),
        ("decode[bs=117/128 tok=117 d=117]", Batch("decode", 117, 117)),
        ("decode[bs=128 tok=384 p=2 d=126]", Batch("mixed", 128, 384)),
        ("execute_diffusion_1_256x256", Batch("diffusion", 1)),
    ],
)
def test_batches_of_engines_tell_their_kind_and_sizes(name, batch):
    assert batch_of(name) == batch


@pytest.mark.parametrize(
    "name", ["ProfilerStep#3", "step", "step[", "decode", "execute_context", "nccl:send"]
)
def test_other_annotations_are_no_batches(name):
    assert batch_of(name) is None


def test_batches_are_steps_by_themselves(served):
    workload = convert_files(None, str(served), step="all")
    assert workload.metadata["steps"] == [*range(7)]
    assert workload.metadata["step_names"]["2"] == "step[DECODE bs=4]"
    assert kernels(workload) == 40 + 44 + 11 + 15 + 13 + 12 + 14
    assert kernels(convert_files(None, str(served), step=1)) == 44


@pytest.mark.parametrize(
    ("step", "count"),
    [
        ("step[DECODE bs=4]", 13),  # the median
        ("step[DECODE bs=4]#1", 15),  # counted from 0
        ("step[DECODE bs=4]#all", 65),
        ("step[EXTEND*", 40),
        ("step[[]EXTEND*#1", 44),
        ("step[EXTEND bs=2 toks=44]", 44),
        ("*DECODE*#4", 14),
        ("sampling#3", 12),
    ],
)
def test_an_annotation_marks_its_steps(served, step, count):
    assert kernels(convert_files(None, str(served), step=step)) == count


def test_a_name_as_it_is_goes_before_a_number_or_a_glob(tmp_path):
    engine = Engine()
    for name, count in (("phase#1", 3), ("phase", 4), ("phase", 5), ("phase[ab]", 6), ("phasea", 7)):
        engine.step(name, [10.0] * count)
    trace = str(engine.write(tmp_path / "trace.json"))
    assert kernels(convert_files(None, trace, step="phase#1")) == 3
    assert kernels(convert_files(None, trace, step="phase[ab]")) == 6


def test_profiler_steps_go_before_batches_and_are_called_after_them(tmp_path):
    engine = Engine()
    for number in range(3):
        engine.step(f"ProfilerStep#{number + 7}", [20.0] * 5, inner=f"step[DECODE bs={number + 1}]")
    metadata = convert_files(None, str(engine.write(tmp_path / "trace.json")), step=8).metadata
    assert (metadata["steps"], metadata["step_names"]) == ([8], {"8": "step[DECODE bs=2]"})


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "step[DECOD bs=4]",
            "did you mean 'step[DECODE bs=4]'? Most frequent: 'step[DECODE bs=4]' (5 times)",
        ),
        ("verify*", "has no annotation 'verify*'. Most frequent: "),
        ("step[DECODE bs=4]#99", "occurs 5 times, so 'step[DECODE bs=4]#99' does not exist: occurrences"),
        ("step[EXTEND*#2", "occurs 2 times"),
        ("aten::mm", "has no annotation 'aten::mm'"),  # an operator
    ],
)
def test_an_annotation_that_is_not_there_is_refused(served, step, message):
    with pytest.raises(UsageError) as refused:
        convert_files(None, str(served), step=step)
    assert message in str(refused.value)
    assert f"{served} (rank 0)" in str(refused.value)


def test_a_trace_without_annotations_says_what_to_do(tmp_path):
    engine = Engine()
    engine.step("x", [10.0] * 4)
    engine.events = [event for event in engine.events if event["cat"] != "user_annotation"]
    with pytest.raises(UsageError, match=r"holds none\. Mark the steps in the script"):
        convert_files(None, str(engine.write(tmp_path / "trace.json")), step="x")


def two_ranks(tmp_path, *names):
    for rank, own in enumerate(names):
        engine = Engine(now=1000.0 + rank)
        for name in own:
            engine.step(name, [20.0] * 6)
        engine.write(tmp_path / f"rank{rank}.json", rank, 2)
    return str(tmp_path / "rank{rank}.json")


def test_a_rank_without_the_annotation_is_named(tmp_path):
    traces = two_ranks(tmp_path, ["forward", "forward"], ["warm-up"])
    with pytest.raises(UsageError, match=r"rank1\.json \(rank 1\) has no annotation 'forward'"):
        convert_files(None, traces, step="forward")
    with pytest.raises(UsageError, match=r"rank1\.json \(rank 1\)"):
        convert_files(None, traces, step="forward#1")


def test_ranks_that_call_a_step_differently_are_named(tmp_path):
    traces = two_ranks(tmp_path, ["step[DECODE bs=2]"], ["step[DECODE bs=3]"])
    note = "step 0 is 'step[DECODE bs=2]' on rank 0 and 'step[DECODE bs=3]' on rank 1"
    assert any(note in told for told in convert_files(None, traces).metadata["assumptions"])
