"""Bounds of the step and advice: summed before they are ranked, and checked by replays."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from studies import LAYERS, analysis_of, study_of
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType, NodeType
from chakrascope.converter.building import StepTimes
from chakrascope.converter.chakra import HOST_CAUSES, HOST_END
from chakrascope.runner import NetworkConfig, summarize
from chakrascope.runner.analysis import Target, advice_text, analyse_run, common_steps, gain_text, what_if
from chakrascope.runner.analysis._advice import advise
from chakrascope.runner.analysis._advised import COPY_REMEDIES, PINNED_REMEDIES, REMEDIES
from chakrascope.runner.analysis._candidate import most_for
from chakrascope.runner.analysis._critical_path import SEGMENT_COLUMNS, CriticalPath
from chakrascope.runner.analysis._summary import _network_cannot_matter
from chakrascope.support import duration_text
from chakrascope.support.table import Table, TextColumn

MS = 1_000_000
MM = "aten::mm"


def _path(rows, makespan_ns):
    """Return a path of consecutive (kind, operator, collective, duration)."""
    filled, start = [], 0
    for number, (kind, operator, collective, duration) in enumerate(rows):
        filled.append((number, 0, number, operator, kind, start, start + duration, duration, "Because.",
                       operator, "", collective, "", "", ""))  # fmt: skip
        start += duration
    segments = pd.DataFrame(filled, columns=list(SEGMENT_COLUMNS)).astype(SEGMENT_COLUMNS)
    columns = {
        name: TextColumn.of(segments[name]) if kind == "object" else segments[name].to_numpy()
        for name, kind in SEGMENT_COLUMNS.items()
    }
    return CriticalPath(Table.of(columns), makespan_ns, np.zeros(1, dtype=np.int32))


def host(node_id, duration_ns, after=(), **facts):
    return (
        comp(node_id, duration_ns, after, kind="host", operator="", module="")
        | {"name": f"host before op{node_id + 1}"}
        | facts
    )


def kernel(node_id, duration_ns, after=(), **facts):
    return comp(node_id, duration_ns, after, stream=7, name="sgemm_128x64") | facts


def analysed(program, backend="replay", network=None):
    return analysis_of(program, network, backend=backend, semantics="trace")


def run_in_study(folder, program):
    return analyse_run(study_of(folder, program, semantics="trace"))


def launched(stall_ns=0, slow_ns=0, more=()):
    """Return a program of one rank: a host thread that launches 40 kernels of 30 us, each in 10 us."""
    nodes = []
    for number in range(40):
        before = [nodes[-2]["node_id"]] if nodes else []
        own_ns = 10_000 + (stall_ns if number == 20 else 0)
        nodes.append(host(2 * number, own_ns, before, name=f"host before aten::op{number}"))
        slow = slow_ns if number % 2 else 0
        name = "slow_kernel<float>" if slow else "sgemm_128x64"
        nodes.append(
            kernel(2 * number + 1, 30_000 + slow, [2 * number], name=name, operator=f"aten::op{number % 2}")
        )
    return workload([*nodes, *more])


def test_every_gain_equals_its_what_if():
    run = analysed(launched(stall_ns=2 * MS, slow_ns=50_000))
    assert len(run.advices()) >= 2
    for item in run.advices():
        key, _, times = item.key.rpartition("=")
        after = what_if(run.experiment(), [(Target.parse(key), float(times))])
        assert (item.is_bound, item.gain_ns) == (False, run.result.makespan_ns - after.makespan_ns)
        assert item.gain_ns >= run.result.makespan_ns // 100
    gains = [item.half_ns or item.gain_ns for item in run.advices()]
    assert gains == sorted(gains, reverse=True)


def test_host_stall_is_named_with_its_gain():
    plain, stalled = launched(), launched(stall_ns=5 * MS)
    run = analysed(stalled)
    first = run.advices()[0]
    assert first.what == "Host stall: host before aten::op20"
    cost_ns = run.result.makespan_ns - analysed(plain).result.makespan_ns
    assert first.gain_ns == pytest.approx(cost_ns, rel=0.01)
    assert "host stall: host before aten::op20" in run.summary.headline
    assert run.node(first.rank, first.node_id)["duration_ns"] == 5 * MS + 10_000


def test_a_gap_of_ordinary_length_is_no_stall_in_short_steps():
    """The start of a backward pass has the same duration."""
    nodes = [
        host(number, 150_000 if number == 20 else 2_000, [number - 1] * (number > 0)) for number in range(40)
    ]
    advice = analysed(workload(nodes)).advices()
    assert not [one.what for one in advice if "stall" in one.what]


@pytest.mark.parametrize(
    ("operator", "what"),
    [
        ("aten::normal_", "aten::normal_, computed by the host"),  # and none of it on the device
        ("aten::op1", "Host stall in aten::op1"),
        ("aten::empty", "Host stall in aten::empty"),  # computes nothing
    ],
)
def test_an_operator_that_the_host_computes_is_no_stall(operator, what):
    more = host(80, 5 * MS, [78], name=operator, operator=operator)
    first = analysed(launched(more=[more])).advices()[0]
    assert (first.what, first.key) == (what, f"stall:{operator}=inf")


@pytest.mark.parametrize(
    ("operator", "remedy"), [("aten::mul", "launch_stall"), ("Torch-Compiled Region: 0/0", "compiled")]
)
def test_a_stalling_operator_of_the_device_is_a_stall(operator, remedy):
    nodes = [
        host(80, 5 * MS, [78], name=operator, operator=operator),
        kernel(81, 10, [80], operator=operator),
    ]
    first = analysed(launched(more=nodes)).advices()[0]
    assert first.what == f"Host stall in {operator}"
    assert REMEDIES[remedy] in first.how


def test_host_work_before_an_operator_is_a_stall_whatever_the_operator():
    """The operator could run elsewhere, but not the script's work before it."""
    name = "host before aten::layer_norm"
    first = analysed(launched(more=[host(80, 5 * MS, [78], name=name, operator=name)])).advices()[0]
    assert first.what == f"Host stall: {name}"
    assert REMEDIES["stall"] in first.how


@pytest.mark.parametrize(
    ("device_ns", "cause", "together"),
    [
        (8 * MS, "sleep", "Together they gain 2.00 ms"),
        (0, "sleep", ""),
        (8 * MS, "worker_wait", ""),  # its gain is its time in the mean step, for which there is no replay
    ],
)
def test_combined_gain_is_stated_if_below_the_sum(device_ns, cause, together):
    """The device works for 8 of 10 ms: halving or removing the host's work gains 2 ms."""
    waits = recurring(every=0, cause="python", worker_wait_ns=2 * MS)
    metadata = waits if cause == "worker_wait" else {}
    nodes = [host(0, 1_000), kernel(1, device_ns, [0])] if device_ns else [host(0, 1_000)]
    for number, own in ((2, "io"), (3, cause)):
        name = f"aten::op{number}"
        nodes.append(
            host(number, 5 * MS, [nodes[-1]["node_id"] if number == 3 else 0], name=name, operator=name)
        )
        nodes[-1]["cause"] = own
    summary = analysed(workload(nodes, metadata=metadata)).summary
    assert [item.cause for item in summary.advice] == ["io", cause]
    assert summary.together.startswith(together)
    assert bool(summary.together) == bool(together)
    assert summary.to_json()["together"] == summary.together


def test_a_kernel_is_one_entry_over_its_launches():
    run = analysed(launched(slow_ns=500_000))
    first = run.advices()[0]
    assert first.what == "aten::op1 (kernel slow_kernel<float>)"
    assert first.key == "kernel:slow_kernel<float>=inf"
    assert first.path_ns == 20 * 530_000
    # Without it, the host's 40 launches of 10 us remain, and the last kernel of 30 us.
    assert (first.gain_ns, first.half_ns) == (run.result.makespan_ns - 20 * 30_000 - 10_000, 20 * 265_000)
    assert advice_text(first).startswith("5.30 ms if 2 times as fast: ")
    assert "bound by computation" in run.summary.headline


def test_operator_dominated_by_one_kernel_is_one_entry():
    """One kernel is three quarters of an operator: name, time, key and gain are the operator's."""
    nodes, before = [], []
    for number in range(8):
        nodes.append(host(2 * number, 1_000, before))
        own_ns, name = (30_000, "first_kernel") if number % 2 else (90_000, "second_kernel")
        nodes.append(kernel(2 * number + 1, own_ns, [2 * number], name=name, operator="vllm::moe"))
        before = [2 * number]
    run = analysed(workload(nodes))
    first = run.advices()[0]
    assert (first.what, first.key) == ("vllm::moe (mostly kernel second_kernel)", "operator:vllm::moe=inf")
    assert first.path_ns == 4 * 120_000
    assert first.gain_ns == pytest.approx(first.path_ns, rel=0.02)
    assert first.half_ns == pytest.approx(first.path_ns / 2, rel=0.02)


def test_a_faster_operator_takes_as_long_to_dispatch():
    nodes = [host(0, 40_000, [], name="aten::mm"), kernel(1, 60_000, [0], name="gemm", operator="aten::mm")]
    run = analysed(workload(nodes))
    after = what_if(run.experiment(), [(Target.parse("operator:aten::mm"), 2.0)])
    assert after.makespan_ns == 40_000 + 30_000


def test_nearly_hidden_host_time_promises_no_share():
    """The host launches a kernel of 9 us every 10 us: the path is all host time; a tenth can be gained."""
    nodes = []
    for number in range(100):
        before = [2 * number - 2] if number else []
        nodes += [host(2 * number, 10_000, before), kernel(2 * number + 1, 9_000, [2 * number], stream=1007)]
    run = analysed(workload(nodes))
    headline = run.summary.headline
    assert "CUDA graphs" in run.advices()[0].how
    assert "bound by host work: " in headline
    assert "but halving it gains only 104 µs" in headline
    assert "because the devices are busy for 89" in headline


def test_busy_device_bounds_a_step_with_a_host_path():
    nodes = []
    for number in range(100):
        before = [2 * number - 2] if number else []
        nodes += [host(2 * number, 10_000, before), kernel(2 * number + 1, 9_800, [2 * number], stream=1007)]
    headline = analysed(workload(nodes)).summary.headline
    assert "bound by computation: the devices are busy for 97" in headline


def test_names_of_kernels_are_cut_in_sentences_and_whole_in_keys():
    name = "void at::native::vectorized_elementwise_kernel<4, " + 40 * "at::native::Functor, " + "int>(int)"
    run = analysed(workload([kernel(0, MS, name=name, operator="")]))
    assert run.advices()[0].key == f"operator:{name}=inf"
    assert f"{name[:100]}..." in run.summary.headline
    assert name not in run.summary.headline


def test_a_collective_is_one_entry_over_its_sizes(simulated):
    (item,) = (item for item in simulated.advices() if item.kind == "communication")
    assert item.what == f"all_reduce of {LAYERS} sizes and groups"


def test_a_collective_of_several_sizes_names_the_one_that_takes_most():
    nodes = [coll(0, 1024, duration_ns=MS), coll(1, 1 << 20, (0,), duration_ns=9 * MS)]
    first = analysed(workload(nodes, nodes)).advices()[0]
    assert first.what == "all_reduce of 2 sizes and groups, mostly 1.00 MiB, all ranks"


@pytest.mark.parametrize("cause", sorted(set(HOST_CAUSES) - {"dispatch", "first_launch", "python"}))
def test_every_host_cause_has_advice_of_its_own(cause):
    place = "load (train.py:31)"
    more = [host(100, 4 * MS, (78,), cause=cause, place=place), host(101, 3 * MS, (100,), cause=cause)]
    run = analysed(launched(more=more))
    first = run.advices()[0]
    assert first.what == HOST_CAUSES[cause] + f" in {place}" * (cause != "descheduled")
    assert REMEDIES[cause] in first.how
    assert (first.kind, first.cause, first.place) == ("host", cause, place)
    assert first.path_ns == 7 * MS
    assert "CUDA graphs" not in first.how


def test_the_first_launch_of_a_recording_is_named_and_not_advised():
    run = analysed(launched(more=[host(100, 4 * MS, (78,), cause="first_launch")]))
    assert "largest contributor is first launch of the recording (4.00 ms" in run.summary.headline
    assert "first_launch" not in {item.cause for item in run.advices()}


def test_python_between_operators_is_named_by_its_place():
    more = [
        host(100 + n, MS, (99 + n if n else 78,), cause="python", place="step (a.py:3)") for n in range(5)
    ]
    first = analysed(launched(more=more)).advices()[0]
    assert (first.what, first.key) == ("Python between operators in step (a.py:3)", "host:step (a.py:3)=inf")


@pytest.mark.parametrize(
    ("name", "other_ms", "facts", "is_entry"),
    [
        ("distance", 0, {}, True),
        ("distance", 2, {}, True),
        ("distance", 4, {}, False),
        ("Net.forward", 2, {}, False),
        ("training_step", 2, {"module": "layers.0"}, False),
        ("pairwise_loss", 2, {"phase": "backward"}, False),
    ],
)
def test_python_on_several_lines_of_a_function_is_one_entry(name, other_ms, facts, is_entry):
    """The entry includes the function's other work, unless this is a third of it or part of a model.

    Adjacent lines of a function that trains are one entry.
    """
    nodes = [host(0, 2 * MS, cause="python", place=f"{name} (a.py:3)")]
    for number, line in enumerate((3, 4, 6, 3), 1):
        nodes.append(host(number, MS, (number - 1,), cause="python", place=f"{name} (a.py:{line})"))
    nodes[-1]["module"] = "layers.0"  # a gap has the module of the next operator
    other = {"operator": "aten::mm", "module": "", "place": f"{name} (a.py:9)"} | facts
    nodes.append(comp(5, other_ms * MS, (4,), **other))
    nodes.append(comp(6, MS, (5,), phase="backward", place="train (a.py:30)"))
    first, *_ = (item for item in analysed(workload(nodes)).advices() if item.cause == "python")
    assert (first.key == f"place:{name} (a.py)=inf") == is_entry
    mixed = "Everything in distance (a.py), mostly Python between operators" * (other_ms > 0)
    if is_entry:
        assert first.what == (mixed or "Python between operators in distance (a.py:3)")
        assert first.gain_ns == (6 + other_ms) * MS
    elif "phase" in facts:
        assert (first.key, first.gain_ns) == (f"place:{name} (a.py:3-6)=inf", 6 * MS)
    else:
        assert first.gain_ns == 4 * MS


READ = {"kind": "host", "cause": "synchronisation", "operator": "aten::item", "place": "train (a.py:63)"}


@pytest.mark.parametrize(
    ("between", "second", "is_entry"),
    [
        (READ, 64, True),
        (READ, 80, False),  # too far away
        ({"operator": MM, "place": "train (a.py:63)"}, 64, False),
        ({"operator": MM, "module": "layers.0", "place": "Net.forward (a.py:9)"}, 64, False),
        ({"kind": "copy", "operator": "aten::copy_", "place": "load (a.py:5)"}, 64, False),
    ],
)
def test_python_on_adjacent_lines_of_the_training_function_is_one_entry(between, second, is_entry):
    """Unless necessary work separates them."""
    nodes = [host(0, 3 * MS, cause="python", place="train (a.py:62)")]
    nodes.append(comp(1, MS, (0,), module="") | between)
    nodes.append(host(2, 2 * MS, (1,), cause="python", place=f"train (a.py:{second})"))
    nodes.append(comp(3, MS, (2,), operator=MM, phase="backward", module="", place="train (a.py:58)"))
    nodes.append(host(4, MS, (3,), cause="python", place="train (a.py:50)"))
    gains = {item.key: item.gain_ns for item in analysed(workload(nodes)).advices() if item.cause == "python"}
    if is_entry:
        assert gains == {"place:train (a.py:62-64)=inf": 6 * MS, "host:train (a.py:50)=inf": MS}
    else:
        expected = ((62, 3), (second, 2), (50, 1))
        assert gains == {f"host:train (a.py:{line})=inf": ms * MS for line, ms in expected}


def test_a_line_with_nearly_all_python_stays_an_entry_of_its_own():
    nodes = [
        host(0, 19 * MS, cause="python", place="train (a.py:62)"),
        host(1, MS, (0,), cause="python", place="train (a.py:63)"),
        comp(2, MS, (1,), operator=MM, phase="backward", module="", place="train (a.py:58)"),
    ]
    assert analysed(workload(nodes)).advices()[0].key == "host:train (a.py:62)=inf"


def test_lines_that_loop_include_adjacent_python():
    """And with a short line between them, which is part of the work that the what-if removes."""
    place, nodes = "train (a.py:62)", []
    for number in range(300):
        name = "host before aten::item" if number % 2 == 0 else "aten::item"
        facts = {"name": name, "operator": name * (number % 2), "cause": "synchronisation", "place": place}
        nodes.append(host(number, 10_000, (number - 1,) if number else ()) | facts)
    nodes.append(host(300, 50_000, (299,), cause="python", place="train (a.py:63)"))
    nodes.append(host(301, MS, (300,), cause="python", place="train (a.py:64)"))
    nodes.append(comp(302, MS, (301,), operator=MM, phase="backward", module="", place="train (a.py:58)"))
    (first, *others) = analysed(workload(nodes)).advices()
    assert (first.key, first.gain_ns) == ("place:train (a.py:62-64)=inf", 3 * MS + MS + 50_000)
    assert first.path_ns == first.gain_ns
    assert all("a.py:6" not in item.what for item in others)


def called(**callers):
    """Return metadata of a script with the *callers* of each function."""
    in_file = {name: [f"{of} (a.py)" for of in names] for name, names in callers.items()}
    return {"callers": {f"{name} (a.py)": names or [""] for name, names in in_file.items()}}


@pytest.mark.parametrize(
    ("callers", "is_entry"),
    [
        ({"log": ["train"]}, True),
        ({"log": ["train"], "parts": ["score", "log"]}, False),  # score has one of two calls
        ({"log": ["train"], "parts": ["score", "validate"]}, False),
        ({"log": ["fit"], "fit": ["main"], "train": ["fit"]}, True),  # fit also runs the training
        ({"log": ["train"], "train": ["log"]}, False),
        ({"parts": ["log"]}, False),  # score and parts do not call each other
    ],
)
def test_python_in_functions_of_one_caller_is_one_entry(callers, is_entry):
    nodes = [
        host(0, 4 * MS, cause="python", place="parts (a.py:3)"),
        host(1, 2 * MS, (0,), cause="python", place="score (a.py:9)"),
        host(2, MS, (1,), cause="python", place="log (a.py:20)"),
        comp(3, MS, (2,), operator=MM, phase="backward", module="", place="train (a.py:58)"),
    ]
    metadata = called(**{"main": [], "train": ["main"], "score": ["log"], "parts": ["score"]} | callers)
    program = workload(nodes, metadata=metadata)
    first, *others = (item for item in analysed(program).advices() if item.cause == "python")
    if is_entry:
        assert (first.key, first.gain_ns, others) == ("function:log (a.py)=inf", 7 * MS, [])
        where = "log (a.py) and its callees, mostly in parts (a.py:3)"
        assert first.what == f"Python between operators in {where}"
        assert first.place == "parts (a.py:3)"
    else:
        assert first.gain_ns <= 6 * MS


def test_python_nearly_all_in_one_callee_is_an_entry_of_the_callee():
    nodes = [
        host(0, 19 * MS, cause="python", place="parts (a.py:3)"),
        host(1, 2 * MS, (0,), cause="python", place="score (a.py:9)"),
        comp(2, MS, (1,), operator=MM, phase="backward", module="", place="train (a.py:58)"),
    ]
    metadata = called(score=["log"], parts=["score"], log=["train"], train=[])
    first = analysed(workload(nodes, metadata=metadata)).advices()[0]
    assert first.what == "Python between operators in parts (a.py:3)"


def test_a_function_that_runs_the_model_is_not_removed_with_its_callees():
    nodes = [
        host(0, 4 * MS, cause="python", place="Net.forward (a.py:3)"),
        host(1, 3 * MS, (0,), cause="python", place="compute_loss (a.py:9)"),
        comp(2, MS, (1,), operator=MM, phase="backward", module="", place="train (a.py:58)"),
    ]
    metadata = called(**{"Net.forward": ["compute_loss"], "compute_loss": ["train"], "train": []})
    keys = {item.key for item in analysed(workload(nodes, metadata=metadata)).advices()}
    assert {"host:Net.forward (a.py:3)=inf", "host:compute_loss (a.py:9)=inf"} <= keys


def test_everything_in_functions_of_one_caller_names_the_longest():
    nodes = [
        host(0, 4 * MS, cause="python", place="parts (a.py:3)"),
        host(1, 3 * MS, (0,), cause="python", place="log (a.py:9)"),
        comp(2, 2 * MS, (1,), operator="aten::sort", module="", place="parts (a.py:4)"),
        comp(3, MS, (2,), operator=MM, phase="backward", module="", place="train (a.py:58)"),
    ]
    metadata = called(parts=["log"], log=["train"], train=[])
    first = analysed(workload(nodes, metadata=metadata)).advices()[0]
    mostly = "mostly Python between operators in parts (a.py:3)"
    assert (first.what, first.gain_ns) == (f"Everything in log (a.py) and its callees, {mostly}", 9 * MS)


@pytest.mark.parametrize("damage", [3, [], [3], [["other (a.py)"]]])
def test_damaged_callers_are_unknown(damage):
    nodes = [
        host(0, 5 * MS, cause="python", place="log (a.py:3)"),
        host(1, 4 * MS, (0,), cause="python", place="other (a.py:9)"),
        comp(2, MS, (1,), operator=MM, phase="backward", module="", place="train (a.py:58)"),
    ]
    metadata = called(other=["train"], train=[])
    metadata["callers"]["log (a.py)"] = damage
    for stated in (metadata, {"callers": damage}):
        keys = {item.key for item in analysed(workload(nodes, metadata=stated)).advices()}
        assert {"host:log (a.py:3)=inf", "host:other (a.py:9)=inf"} <= keys


def test_python_of_a_script_that_trains_nothing_gains_no_other_work():
    """The function may be the whole script."""
    nodes = [host(0, 5 * MS, cause="python", place="main (a.py:3)")]
    nodes.append(host(1, MS, (0,), cause="python", place="main (a.py:4)"))
    nodes.append(comp(2, 2 * MS, (1,), module="", place="main (a.py:5)"))
    first = analysed(workload(nodes)).advices()[0]
    assert (first.key, first.gain_ns) == ("host:main (a.py:3)=inf", 5 * MS)


@pytest.mark.parametrize("line", [3, 4])
def test_python_that_waits_for_a_processor_gains_its_wait(line):
    nodes = [
        host(0, 4 * MS, cause="python", place="distance (a.py:3)"),
        host(1, MS, (0,), cause="python", place=f"distance (a.py:{line})"),
        host(2, 5 * MS, (1,), cause="descheduled", place="distance (a.py:3)"),
        comp(3, 2 * MS, (2,), operator="aten::mm"),
    ]
    first, second, *_ = analysed(workload(nodes)).advices()
    assert (first.what, first.gain_ns) == ("Python between operators in distance (a.py:3)", 10 * MS)
    assert (second.cause, second.gain_ns) == ("descheduled", 5 * MS)


@pytest.mark.parametrize(
    ("collected_ms", "line", "gain_ms"), [(3, 3, 7), (9, 3, 13), (40, 3, 4), (3, 4, 7), (9, 4, 4)]
)
def test_python_gains_the_collections_that_it_triggers(collected_ms, line, gain_ms):
    """Collections on another line may be calls of gc.collect(), and any is long with a large heap."""
    nodes = [
        host(0, 4 * MS - 1000, cause="python", place="dump (a.py:3)"),
        host(1, 1000, (0,), cause="python", place="dump (a.py:5)"),
        host(2, collected_ms * MS, (1,), cause="garbage_collection", place=f"dump (a.py:{line})"),
        comp(3, 2 * MS, (2,), operator="aten::mm"),
    ]
    items = {item.cause: item for item in analysed(workload(nodes)).advices() if item.cause}
    gains = {cause: item.gain_ns for cause, item in items.items()}
    assert gains == pytest.approx({"python": gain_ms * MS, "garbage_collection": collected_ms * MS}, abs=1000)
    text = "Python between operators in dump (a.py:3)"
    more = ", including the garbage collections that it triggers" * (gain_ms > 4)
    assert items["python"].what == text + more


def looping(place="ema (train.py:9)", first=0):
    """Return the nodes of one rank: a matmul, then 150 times two short operators and a gap."""
    before = (first - 1,) if first else ()
    nodes = [comp(first, 2 * MS, before, operator="aten::mm", name="aten::mm")]
    for number in range(first + 1, first + 451):
        before, name = (number - 1,), ("host before aten::mul_", "aten::mul_", "aten::add_")[number % 3]
        if number % 3:
            nodes.append(comp(number, 8_000, before, name=name, operator=name, place=place))
        else:
            nodes.append(host(number, 4_000, before, name=name, cause="dispatch", place=place))
    return nodes


def test_a_loop_over_short_operators_is_one_entry_with_all_its_time():
    run = analysed(workload(looping()))
    first = run.advices()[0]
    assert first.what == "Dispatch and launches of 300 short operators in ema (train.py:9)"
    assert (first.key, first.cause) == ("place:ema (train.py:9)=inf", "dispatch")
    assert first.gain_ns == 300 * 8_000 + 150 * 4_000
    assert [item.key for item in run.advices()].count("host:ema (train.py:9)=inf") == 0


def test_line_of_the_training_function_with_several_causes_is_one_entry():
    place = "train (train.py:9)"
    nodes = [
        comp(0, 4 * MS, phase="forward", operator="aten::mm", name="aten::mm"),
        comp(1, MS, (0,), phase="optimizer", operator="aten::add_", place="train (train.py:5)"),
        host(2, 3 * MS, (1,), cause="io", place=place),
        host(3, 2 * MS, (2,), cause="python", place=place),
    ]
    first = analysed(workload(nodes)).advices()[0]
    assert first.what == f"File and network I/O and Python between operators in {place}"
    assert (first.key, first.gain_ns) == (f"place:{place}=inf", 5 * MS)


def test_a_loop_in_a_forward_pass_keeps_its_long_operators():
    nodes = looping(place="Net.forward (train.py:9)")
    nodes[-2] |= {"duration_ns": MS}
    first = analysed(workload(nodes)).advices()[0]
    assert first.what == "Dispatch and launches of 300 short operators in Net.forward (train.py:9)"
    assert first.gain_ns == pytest.approx(299 * 8_000 + 150 * 4_000, rel=1e-4)


def test_a_loop_contains_its_backward_pass():
    """But not short operators at the place that calls the backward pass."""
    nodes = looping()
    for node in nodes[151:]:
        node["phase"] = "backward"
    for number in range(451, 751):
        node = comp(number, 8_000, (number - 1,), name="aten::add_", operator="AccumulateGrad")
        nodes.append(node | {"phase": "backward", "place": "train (train.py:2)"})
    first, *others = analysed(workload(nodes)).advices()
    assert first.what == "Dispatch and launches of 300 short operators in ema (train.py:9)"
    assert first.gain_ns == 300 * 8_000 + 150 * 4_000
    assert not any("short operators" in item.what for item in others)


@pytest.mark.parametrize(("name", "is_loop"), [("suppress", True), ("Net.forward", False), ("train", False)])
def test_a_loop_over_several_lines_of_a_function_is_one_entry(name, is_loop):
    """Unless the function is the forward pass of a model, or trains."""
    nodes = looping()
    for number, node in enumerate(nodes[1:]):
        node["place"] = f"{name} (boxes.py:{10 + number // 3 % 5})"
    nodes.append(comp(451, MS, (450,), operator="aten::mm", phase="backward", place="train (boxes.py:2)"))
    first = analysed(workload(nodes)).advices()[0]
    assert (
        first.what.startswith("Dispatch and launches of 300 short operators in suppress (boxes.py)")
        == is_loop
    )
    if is_loop:
        assert first.key == f"place:{name} (boxes.py)=inf"
        assert first.gain_ns == 300 * 8_000 + 150 * 4_000


def test_two_loops_of_a_function_are_one_entry():
    nodes = [*looping("sample (beam.py:4)"), *looping("sample (beam.py:9)", first=451)]
    first, *others = analysed(workload(nodes)).advices()
    assert first.what == "Dispatch and launches of 600 short operators in sample (beam.py)"
    assert first.gain_ns == 2 * (300 * 8_000 + 150 * 4_000)
    assert not any("short operators" in item.what for item in others)


def test_a_loop_at_a_line_with_longer_operators_is_an_entry_without_them():
    place = "keep (train.py:9)"
    copies = comp(451, 9 * MS, (450,), operator="aten::copy_", name="aten::copy_", place=place)
    nodes = [node | {"module": ""} for node in (*looping(place), copies)]
    items = analysed(workload(nodes)).advices()
    assert items[0].what == f"aten::copy_ in {place}"
    what = f"Dispatch and launches of 300 short operators in loops in {place}, especially aten::add_"
    assert (items[1].what, items[1].key) == (what, "loops:short=inf")
    assert items[1].gain_ns == 300 * 8_000 + 150 * 4_000


def test_the_advice_on_all_loops_includes_loops_at_lines_of_their_own():
    """The what-if speeds up all loops, so the path time and the place are those of both."""
    place, first = "keep (train.py:20)", 451
    copy = {"name": "aten::copy_", "operator": "aten::copy_", "place": place}
    copies = comp(2 * first, 9 * MS, (2 * first - 1,), **copy)
    loops = (*looping("ema (train.py:9)"), *looping(place, first))
    items = analysed(workload([node | {"module": ""} for node in (*loops, copies)])).advices()
    (both,) = (item for item in items if "short operators" in item.what)
    assert both.what == "Dispatch and launches of 600 short operators in loops, especially aten::add_"
    assert both.key == "loops:short=inf"
    assert both.path_ns == both.gain_ns == 2 * (300 * 8_000 + 150 * 4_000)


@pytest.mark.parametrize(
    "facts",
    [{"module": "", "phase": "backward"}, {"module": "", "phase": "optimizer"}, {"module": "{}"}],
)
def test_short_operators_of_many_layers_or_parameters_are_no_loop(facts):
    copies = comp(451, 9 * MS, (450,), operator="aten::copy_", name="aten::copy_", place="main (train.py:9)")
    nodes = [*looping("main (train.py:9)"), copies]
    for number, node in enumerate(nodes[1:-1]):
        node |= {key: value.format(number // 30) for key, value in facts.items()}
    assert not any("in loops" in item.what for item in analysed(workload(nodes)).advices())


def test_a_busy_machine_does_not_cover_a_loop():
    """Even if the loop waits for a CPU for most of its time."""
    delays = [
        host(number, 9 * MS, (number - 1,), name="aten::mul_", operator="aten::mul_", cause="descheduled")
        for number in (451, 452)
    ]
    delays[0]["place"] = "ema (train.py:9)"
    items = analysed(workload([*looping(), *delays])).advices()
    assert "Dispatch and launches of 300 short operators in ema (train.py:9)" in {item.what for item in items}


def test_a_loop_contains_the_delays_of_its_operators():
    place = "ema (train.py:9)"
    delay = host(451, 9 * MS, (450,), name="aten::mul_", operator="aten::mul_", cause="descheduled")
    first, second, *_ = analysed(workload([*looping(), delay | {"place": place}])).advices()
    assert first.what == f"Dispatch and launches of 300 short operators in {place}"
    assert first.gain_ns == 300 * 8_000 + 150 * 4_000 + 9 * MS
    assert (second.cause, second.gain_ns, second.overlaps) == ("descheduled", 9 * MS, first.what)


def test_a_loop_with_long_calls_between_its_operators_is_python():
    """A compression of 60 us between short operators is not dispatch."""
    nodes = looping("sizes (train.py:16)")
    for node in nodes[3::3]:
        node |= {"cause": "python", "duration_ns": 60_000}
    first = analysed(workload(nodes)).advices()[0]
    assert first.what == "Python between operators in sizes (train.py:16)"
    assert first.key == "place:sizes (train.py:16)=inf"
    assert first.gain_ns == 300 * 8_000 + 150 * 60_000


def test_loop_that_reads_values_but_runs_python():
    """A table of 12 values is built in 2 ms, 12 times."""
    nodes = looping("record (train.py:18)")
    for node in (node for number, node in enumerate(nodes[1:], 1) if number % 3):
        node |= {"kind": "host", "cause": "synchronisation"}
    for node in nodes[3::36]:
        node |= {"cause": "python", "duration_ns": 2 * MS}
    first = analysed(workload(nodes)).advices()[0]
    assert first.what == "Python between operators in record (train.py:18)"


def test_gain_of_a_waiting_loop_includes_frees():
    """The operators take hardly any time, and the optimizer is next."""
    place, end = "norms (train.py:12)", {"name": "host before aten::add_", "phase": "optimizer"}
    nodes = looping(place)
    for node in (node for number, node in enumerate(nodes[1:], 1) if number % 3):
        node |= {"kind": "host", "cause": "synchronisation", "duration_ns": 1}
    nodes.append(host(451, 3 * MS, (450,), cause="python", place=place) | end)
    run = analysed(workload(nodes))
    first = run.advices()[0]
    assert first.what == f"Synchronisation (.item() and similar calls) of 300 short operators in {place}"
    assert first.gain_ns == 300 + 150 * 4_000 + 3 * MS
    assert not any(item.key == f"host:{place}=inf" for item in run.advices())


def test_an_operator_that_a_script_calls_is_named_with_its_line():
    place, line = "conditions (train.py:15)", "train (train.py:30)"
    nodes = [
        comp(0, MS, operator="aten::addmm", place=line),
        comp(1, 5 * MS, (0,), operator="aten::_linalg_svd", place=place),
        comp(2, 2 * MS, (1,), operator="aten::mm", phase="backward", place=line),
    ]
    for node in nodes:
        node["name"] = node["operator"]
    run = analysed(workload(nodes))
    first, second, *_ = run.advices()
    assert (first.what, first.gain_ns) == (f"aten::_linalg_svd in {place}", 5 * MS)
    assert second.what == "aten::mm"  # the line of the whole backward pass is not specific
    assert f"the largest contributor is aten::_linalg_svd in {place}" in run.summary.headline


@pytest.mark.parametrize(
    ("phase", "module", "place"),
    [
        ("forward", "Mlp", "; its longest segment is in the forward pass of Mlp."),
        ("forward", "", ")."),  # may be the input pipeline, which has the same phase
        ("backward", "", "; its longest segment is in the backward pass."),
    ],
)
def test_the_headline_names_a_forward_pass_only_with_its_module(phase, module, place):
    node = comp(0, 5 * MS, operator=MM, phase=phase, module=module)
    assert analysed(workload([node])).summary.headline.endswith(place)


def of_modules(times):
    """Return a program with a forward and a backward operator of each module, with these durations."""
    nodes = []
    for phase, operator in (("forward", "aten::addmm"), ("backward", "aten::mm")):
        for module, own_ns in times.items():
            number = len(nodes)
            nodes.append(comp(number, own_ns, (number - 1,) if number else ()))
            nodes[-1] |= {"name": operator, "operator": operator, "module": module, "phase": phase}
    return nodes


def test_dominant_module_is_one_entry():
    program = workload(of_modules({"embed": MS, "hidden.0": 6 * MS, "hidden.1": 6 * MS, "head": MS}))
    first, *others = analysed(program).advices()
    assert first.what == "hidden (module), especially aten::addmm"
    assert (first.key, first.gain_ns, first.half_ns) == ("module:hidden=inf", 24 * MS, 12 * MS)
    assert REMEDIES["module"] in first.how
    assert not others  # most of the operators belong to that module


@pytest.mark.parametrize(
    ("modules", "calls", "what"),
    [
        (["hidden"], 110, "hidden (module, in a loop)"),
        (["hidden.0.up", "hidden.1.up"], 220, "hidden.*.up (modules, in a loop)"),
        (["hidden.0.up", "hidden.1.up"], 110, "hidden.*.up (modules)"),
    ],
)
def test_module_that_a_loop_calls_is_advised_fewer_calls(modules, calls, what):
    other = dict.fromkeys(["embed", "head", "norm", "hidden.0.act", "hidden.1.act"], MS // 10)
    nodes = of_modules(dict.fromkeys(modules, 2 * MS) | other)
    for number in range(calls):
        node_id = len(nodes)
        call = comp(node_id, 20_000, (node_id - 1,), operator="aten::addmm", name="aten::addmm")
        nodes.append(call | {"module": modules[number % len(modules)], "phase": "forward"})
    first = analysed(workload(nodes)).advices()[0]
    assert first.what == f"{what}, especially aten::addmm"
    assert ("one call for the whole batch" in first.how) == ("loop" in what)


@pytest.mark.parametrize(("dense_ms", "is_entry"), [(1, True), (5, False)])
def test_an_embedding_with_few_used_rows_is_advised_a_sparse_gradient(dense_ms, is_entry):
    rows = [("aten::addmm", "forward", "head", 2), ("aten::fill_", "backward", "table", 6),
            ("aten::embedding_dense_backward", "backward", "table", dense_ms)]  # fmt: skip
    nodes = []
    for number, (operator, phase, module, ms) in enumerate(rows):
        before, facts = (number - 1,) if number else (), {"phase": phase, "module": module}
        nodes.append(comp(number, ms * MS, before, name=operator, operator=operator, **facts))
    first, *_ = analysed(workload(nodes)).advices()
    assert first.what.startswith("The dense gradient of the embedding table") == is_entry
    if is_entry:
        assert (first.key, first.gain_ns) == ("module:table=inf", 7 * MS)
        assert first.how == REMEDIES["sparse"]


def test_layers_that_are_most_of_the_model_are_no_entry_of_their_own():
    layers = {f"layers.{number}": 2 * MS for number in range(6)}
    program = workload(of_modules({"embed": MS, **layers, "head": MS}))
    assert not any(item.key.startswith("module:") for item in analysed(program).advices())


def test_modules_with_differing_numbers_are_one_entry():
    layers = {
        f"layers.{number}.{name}": ms * MS for number in range(3) for name, ms in (("norm", 4), ("fc", 1))
    }
    first = analysed(workload(of_modules(layers))).advices()[0]
    assert first.what == "layers.*.norm (modules), especially aten::addmm"
    assert (first.key, first.gain_ns) == ("module:layers.*.norm=inf", 24 * MS)


@pytest.mark.parametrize(("copied_ms", "is_entry"), [(6, True), (1, False)])
def test_a_function_that_computes_and_works_on_the_host_is_one_entry(copied_ms, is_entry):
    """Unless most of it is one cause, which has a separate entry."""
    copy = {"operator": "aten::copy_", "name": "aten::copy_"}
    nodes = [
        comp(0, 2 * MS, phase="backward", place="train (train.py:30)"),
        comp(1, copied_ms * MS, (0,), place="keep (train.py:9)", **copy),
        host(2, 2 * MS, (1,), cause="python", place="keep (train.py:10)"),
        host(3, MS, (2,), cause="descheduled", place="keep (train.py:9)"),
    ]
    first, *others = analysed(workload(nodes)).advices()
    name = "Everything in keep (train.py), especially aten::copy_"
    assert (first.what == name) == is_entry
    assert not any(item.what == name for item in others)
    if is_entry:
        assert (first.key, first.gain_ns) == ("place:keep (train.py)=inf", 9 * MS)


@pytest.mark.parametrize(
    ("written_ms", "what"),
    [(4, "File and network I/O and Python between operators in dump (log.py)"),
     (9, "File and network I/O in dump (log.py:9)")],
)  # fmt: skip
def test_a_function_with_several_causes_of_host_time_is_one_entry(written_ms, what):
    """The entry names only the main cause if this is most of the function."""
    nodes = [
        comp(0, 2 * MS, phase="backward", place="train (train.py:30)"),
        host(1, written_ms * MS, (0,), cause="io", place="dump (log.py:9)"),
        host(2, 3 * MS, (1,), cause="python", place="dump (log.py:8)"),
    ]
    first = analysed(workload(nodes)).advices()[0]
    assert (first.what, first.key) == (what, "place:dump (log.py)=inf")
    assert (first.gain_ns, first.half_ns) == ((written_ms + 3) * MS, 0)


@pytest.mark.parametrize(("work_ms", "others", "keys"), [
    (0, ["train (train.py:40)"],
     {"place:f (a.py)=inf": 8, "place:train (train.py:40)=inf": 1, "host:f (a.py:2)=inf": 2}),
    (9, ["train (train.py:40)"], {"cause:sleep=inf": 7, "host:f (a.py:2)=inf": 2}),
    (0, [f"step{number} (b.py:7)" for number in range(20)],
     {"cause:sleep=inf": 26, "host:f (a.py:2)=inf": 2}),
])  # fmt: skip
def test_a_cause_in_several_places_is_counted_once(work_ms, others, keys):
    """Lines that also do necessary work, or many places, cannot be separated from the cause."""
    nodes = [
        comp(0, 2 * MS, phase="backward", place="train (train.py:30)"),
        host(1, 6 * MS, (0,), cause="sleep", place="f (a.py:1)"),
        host(2, 2 * MS, (1,), cause="python", place="f (a.py:2)"),
        comp(3, work_ms * MS, (2,), place=others[0]),
    ]
    nodes += [host(4 + n, MS, (3 + n,), cause="sleep", place=place) for n, place in enumerate(others)]
    items = [item for item in analysed(workload(nodes)).advices() if item.kind == "host"]
    assert {item.key: item.gain_ns / MS for item in items} == pytest.approx(keys)
    assert not any(item.overlaps for item in items if item.cause == "sleep")


@pytest.mark.parametrize(("reduced_ms", "is_entry"), [(3, True), (9, False)])
def test_a_function_that_computes_and_communicates_is_one_entry(reduced_ms, is_entry):
    """Unless most of it is one collective, which has a separate entry."""
    place, facts = "mean (train.py:9)", {"operator": "c10d::allreduce_", "phase": "forward"}
    nodes = [
        comp(0, 2 * MS, phase="backward", place="train (train.py:30)"),
        comp(1, 2 * MS, (0,), operator="aten::cat", name="aten::cat", place=place),
        coll(2, 40 << 20, (1,), duration_ns=reduced_ms * MS, place=place, **facts),
        host(3, MS, (2,), cause="python", place=place),
    ]
    first = analysed(workload(nodes, nodes)).advices()[0]
    assert (first.key == "place:mean (train.py)=inf") == is_entry
    if is_entry:
        assert first.what == "Everything in mean (train.py), especially c10d::allreduce_"
        assert first.gain_ns == 6 * MS


@pytest.mark.parametrize(("name", "is_entry"), [("mine", True), ("Net.forward", False)])
def test_a_function_that_calls_most_of_a_step_is_one_entry(name, is_entry):
    nodes = [comp(0, MS, phase="backward", place="train (train.py:30)")]
    for number, operator in enumerate(("cdist", "sort", "cat", "topk"), 1):
        nodes.append(comp(number, MS, (number - 1,), place=f"{name} (train.py:{number})"))
        nodes[-1] |= {"name": f"aten::{operator}", "operator": f"aten::{operator}"}
    run = analysed(workload(nodes))
    entries = [item for item in run.advices() if item.key == f"place:{name} (train.py)=inf"]
    assert [(item.gain_ns, item.what.partition(",")[0]) for item in entries] == [
        (4 * MS, f"Operators called by {name} (train.py)")
    ] * is_entry


def test_a_function_before_the_optimizer_does_not_train():
    """The gap before the optimizer's first operator is at the place of the function."""
    nodes = [comp(0, MS, phase="backward", place="train (train.py:30)")]
    for number, operator in enumerate(("aten::cdist", "aten::sort", "aten::topk"), 1):
        nodes.append(
            comp(number, MS, (number - 1,), name=operator, operator=operator, place="log (train.py:7)")
        )
    facts = {"phase": "optimizer", "name": "host before aten::add_", "place": "log (train.py:7)"}
    nodes.append(host(4, MS // 2, (3,), cause="python", **facts))
    nodes.append(comp(5, MS, (4,), phase="optimizer", operator="aten::add_", place="train (train.py:31)"))
    first = analysed(workload(nodes)).advices()[0]
    assert first.what == "Everything in log (train.py), especially aten::cdist"
    assert first.gain_ns == 3 * MS + MS // 2


def extra_forward(training_ns, extra_ns, place):
    """Return a program that runs a model twice, of which one run is trained."""
    line = "train (train.py:30)"
    nodes = [
        comp(0, extra_ns, operator="aten::addmm", place=place),
        comp(1, extra_ns // 8, (0,), operator="aten::gelu", place=place),
        comp(2, training_ns, (1,), operator="aten::addmm", place=line),
        comp(3, training_ns, (2,), operator="aten::mm", phase="backward", place=line),
    ]
    return workload([node | {"name": node["operator"]} for node in nodes])


@pytest.mark.parametrize(("extra_ns", "is_entry"), [(4 * MS, True), (MS // 2, False)])
def test_model_with_two_callers_is_one_entry(extra_ns, is_entry):
    run = analysed(extra_forward(3 * MS, extra_ns, "track (train.py:12)"))
    first = run.advices()[0]
    assert (first.key == "place:track (train.py)=inf") == is_entry
    if is_entry:
        assert first.what == "Operators called by track (train.py), especially aten::addmm"
        assert first.gain_ns == extra_ns + extra_ns // 8


@pytest.mark.parametrize("has_ends", [False, True])
def test_autograd_function_is_one_entry(has_ends):
    """A gradient penalty: only the last backward pass accumulates gradients."""
    inner, outer = "penalty (train.py:7)", "train (train.py:30)"
    rows = [("aten::addmm", "forward", inner), ("aten::gelu", "forward", inner), (MM, "backward", inner),
            ("aten::addmm", "forward", outer), (MM, "backward", outer)]  # fmt: skip
    nodes = []
    for number, (operator, phase, place) in enumerate(rows):
        before = (number - 1,) if number else ()
        nodes.append(comp(number, 2 * MS, before, name=operator, operator=operator, phase=phase, place=place))
    name = "torch::autograd::AccumulateGrad"
    for number, place in enumerate((inner, outer) if has_ends else (), len(nodes)):
        operator = name if place == outer else f"autograd::engine::evaluate_function: {name}"
        nodes.append(comp(number, 1, (number - 1,), operator=operator, phase="backward", place=place))
    items = analysed(workload(nodes)).advices()
    entries = [item for item in items if item.key.startswith("place:")]
    assert [item.key for item in entries] == ["place:penalty (train.py)=inf"]
    assert entries[0].gain_ns == pytest.approx(6 * MS, abs=1)


@pytest.mark.parametrize(
    ("mm_ms", "what"), [(6, f"Operators called by penalty (train.py), especially {MM}"),
                        (20, f"{MM} in penalty (train.py:7)")]
)  # fmt: skip
def test_function_with_a_main_operator_is_one_entry_with_its_other_operators(mm_ms, what):
    """Without the function, all its operators disappear."""
    place = "penalty (train.py:7)"
    rows = [(MM, mm_ms, "forward", place), ("aten::sort", 2, "forward", place),
            ("aten::addmm", 2, "backward", "train (train.py:30)")]  # fmt: skip
    nodes = [
        comp(
            number, ms * MS, (number - 1,) if number else (), name=name, operator=name, phase=phase, place=at
        )
        for number, (name, ms, phase, at) in enumerate(rows)
    ]
    first = analysed(workload(nodes)).advices()[0]
    assert (first.what, first.key) == (what, "place:penalty (train.py)=inf")
    assert first.gain_ns == (mm_ms + 2) * MS


def test_a_copy_may_disappear_but_a_product_may_only_be_faster():
    """A copy that takes more than half of the matmul's time is therefore first."""
    place, rows = "Mixer.forward (net.py:7)", ((MM, 30), ("aten::copy_", 20))
    nodes = [
        comp(number, ms * MS, (number - 1,) if number else (), name=name, operator=name, place=place)
        for number, (name, ms) in enumerate(rows)
    ]
    copied, product, *_ = analysed(workload(nodes)).advices()
    assert (copied.key, copied.gain_ns, copied.half_ns) == ("operator:aten::copy_=inf", 20 * MS, 0)
    assert (product.key, product.gain_ns, product.half_ns) == (f"operator:{MM}=inf", 30 * MS, 15 * MS)


@pytest.mark.parametrize("name", ["aten::cat", "aten::zeros", "aten::constant_pad_nd"])
def test_operators_that_write_new_data_cannot_disappear(name):
    rows = ((MM, 30), (name, 20))
    nodes = [
        comp(number, ms * MS, (number - 1,) if number else (), name=name, operator=name)
        for number, (name, ms) in enumerate(rows)
    ]
    (one,) = (item for item in analysed(workload(nodes)).advices() if item.key == f"operator:{name}=inf")
    assert (one.gain_ns, one.half_ns) == (20 * MS, 10 * MS)


@pytest.mark.parametrize(("trained_ms", "other_ms", "what"), [
    (4, 0, "aten::mm in penalty (train.py:7)"),
    (90, 2, "Everything in penalty (train.py), especially aten::mm"),
])  # fmt: skip
def test_an_operator_whose_function_can_be_avoided_is_advised_so(trained_ms, other_ms, what):
    nodes = [
        comp(0, trained_ms * MS, operator="aten::bmm", phase="backward", place="train (train.py:30)"),
        comp(1, 6 * MS, (0,), operator=MM, name=MM, phase="forward", place="penalty (train.py:7)", module=""),
        host(2, other_ms * MS, (1,), cause="python", place="penalty (train.py:8)"),
    ]
    items = analysed(workload(nodes)).advices()
    first = next(item for item in items if item.key == "place:penalty (train.py)=inf")
    assert first.what == what
    assert f"{REMEDIES['function']}; or " in first.how


def test_waits_for_a_processor_do_not_cover_an_operator_that_waits():
    place = "dist (a.py:7)"
    nodes = [
        comp(0, 2 * MS, operator="aten::bmm", phase="backward", place="train (train.py:30)"),
        comp(1, 2 * MS, (0,), operator=MM, name=MM, place=place, phase="forward", module=""),
        host(2, 3 * MS, (1,), cause="descheduled", place=place),
        host(3, 3 * MS, (2,), cause="descheduled", place="train (train.py:31)"),
    ]
    keys = {item.key: item.gain_ns for item in analysed(workload(nodes)).advices()}
    assert keys["place:dist (a.py)=inf"] == 5 * MS


def test_the_line_of_the_backward_pass_is_that_of_most_of_it():
    """The gradient of the first layer may have a different place, that of its forward operator."""
    nodes = [
        comp(0, 4 * MS, operator="aten::cat", phase="forward", place="push (a.py:25)"),
        comp(1, MS, (0,), operator="aten::slice", phase="forward", place="push (a.py:25)"),
        comp(2, 2 * MS, (1,), operator=MM, phase="backward", place="main (a.py:34)"),
        comp(3, 1000, (2,), operator="TBackward0", phase="backward", place="push (a.py:25)"),
    ]
    first = analysed(workload(nodes)).advices()[0]
    assert (first.key, first.gain_ns) == ("place:push (a.py)=inf", pytest.approx(5 * MS, abs=1000))


def test_a_line_with_hardly_any_of_the_backward_pass_does_not_call_it():
    """A sample may be late, so an operator may have the line after the backward pass."""
    nodes = [
        comp(0, MS, operator=MM, phase="forward", place="Net.forward (a.py:22)"),
        comp(1, 4 * MS, (0,), operator=MM, phase="backward", place=""),
        comp(2, 1000, (1,), operator="TBackward0", phase="backward", place="main (a.py:63)"),
        comp(3, MS, (2,), operator="aten::add_", phase="optimizer", module="", place="main (a.py:59)"),
        host(4, 3 * MS, (3,), cause="python", phase="optimizer", name=HOST_END, place="main (a.py:63)"),
        host(5, 4 * MS, (4,), cause="python", place="main (a.py:64)"),
    ]
    first = analysed(workload(nodes)).advices()[0]
    assert (first.key, first.gain_ns) == ("place:main (a.py:63-64)=inf", pytest.approx(7 * MS, abs=1000))


@pytest.mark.parametrize(("other_ms", "is_slow"), [(1, True), (1, False), (7, True)])
def test_a_main_operator_that_is_known_to_be_slow_is_advised_instead_of_its_function(other_ms, is_slow):
    """The operator's rate shows the possible gain without removing the function."""
    rows = [("aten::gelu", 8, "scale (train.py:7)"), ("aten::sort", other_ms, "scale (train.py:8)"),
            ("aten::silu", 2 if is_slow else 8, "train (train.py:29)")]  # fmt: skip
    nodes = [host(0, MS)]
    for number, (name, ms, place) in enumerate(rows, 1):
        nodes.append(kernel(number, ms * MS, (number - 1,), stream=1007, operator=name, place=place))
        nodes[-1] |= {"name": name, "module": "", "tensor_size_bytes": 800}
    nodes.append(kernel(4, MS, (3,), stream=1007, phase="backward", place="train (train.py:30)"))
    kinds = [[name, "elementwise", "fp32", "fp32[100]", 100, 400, 400] for name, _, _ in rows[::2]]
    calls = [[number, 1, 1, ms * MS] for number, (_, ms, _) in enumerate(rows[::2])]
    metadata = {"operators": {"kinds": kinds, "ranks": {"0": calls}}}
    items = analysed(workload(nodes, metadata=metadata)).advices()
    is_operator = is_slow and other_ms == 1
    assert any(item.key == "place:scale (train.py)=inf" for item in items) != is_operator
    found = [(item.gain_ns, "aten::silu" in item.how) for item in items if item.what.startswith("aten::gelu")]
    assert found == [(6 * MS, True)] * is_operator


def test_the_function_that_trains_is_no_entry():
    run = analysed(extra_forward(3 * MS, 2 * MS, "train (train.py:28)"))
    assert not any(item.key.startswith("place:") for item in run.advices())


def test_a_function_that_trains_and_computes_most_itself_is_named_but_not_advised():
    """The operator has the place of the backward pass, which cannot be removed."""
    operators = [f"aten::op{number}" for number in range(4)]
    nodes = [comp(4, 4 * MS, (3,), phase="backward", place="train (train.py:30)")]
    for number, operator in enumerate(operators):
        facts = {"name": operator, "operator": operator, "place": f"train (train.py:{number})"}
        nodes.append(comp(number, 2 * MS, (number - 1,) if number else (), **facts))
    run = analysed(workload(nodes))
    assert "the largest contributor is operators called by train (train.py)" in run.summary.headline
    assert not any(item.key.startswith("place:") for item in run.advices())


def test_operators_at_one_line_that_does_more_are_no_loop():
    large = comp(451, 9 * MS, (450,), phase="backward", place="ema (train.py:9)")
    run = analysed(workload([*looping(), large]))
    assert not any(item.key.startswith("place:") for item in run.advices())


def optimizing(place):
    """Return the nodes of a sleep, and of an optimizer of eight operators on each of four parameters."""
    names = ("mul_", "add_", "sqrt", "div", "addcdiv_", "lerp_", "mul", "sub")
    nodes = [host(0, 3 * MS, cause="sleep", phase="optimizer", place="limit (train.py:7)")]
    for number in range(1, 33):
        facts = {"operator": f"aten::{names[number % 8]}", "name": f"aten::{names[number % 8]}"}
        nodes.append(comp(number, MS // 2, (number - 1,), phase="optimizer", place=place, **facts))
    return [*nodes, host(33, 2 * MS, (32,), cause="optimizer", place=place)]


def test_the_optimizer_is_one_entry_without_the_work_before_it():
    first, *others = analysed(workload(optimizing("train (train.py:20)"))).advices()
    assert first.what.startswith("The optimizer in train (train.py:20), especially aten::")
    passes = 8 * 3 / 7  # eight operators of three streams each, for one pass over seven
    assert first.gain_ns == pytest.approx(18 * MS * (1 - 1 / passes), rel=0.001)
    assert first.path_ns == 18 * MS
    assert "fused=True" in first.how
    assert any(item.cause == "sleep" for item in others)


def test_bookkeeping_of_the_optimizer_is_simulated_without_its_operators():
    facts = {"phase": "optimizer", "place": "train (train.py:20)"}
    fused = comp(0, 4 * MS, (), name="fused", operator="aten::_fused_adam_", **facts)
    run = analysed(workload([fused, host(1, 6 * MS, (0,), cause="optimizer", **facts)]))
    (one,) = (item for item in run.advices() if item.what.startswith("Optimizer bookkeeping"))
    assert (one.key, one.gain_ns, one.half_ns) == ("cause:optimizer=inf", 6 * MS, 3 * MS)
    assert gain_text(one) == "6.00 ms if removed"


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("aten::mul", "for aten::mul"),
        ("host before aten::mul", "before aten::mul"),
        ("host until the end of the step", "after the last operator of the step"),
    ],
)
def test_host_work_between_operators_is_named_by_its_place(name, phrase):
    assert most_for(name) == phrase


def bookkeeping(before, step_ns=0, **facts):
    """Return a program that calls an operator that fills tensors 150 times, then an optimizer's step."""
    facts |= {"cause": "optimizer"}
    nodes = [kernel(0, 2 * MS, operator="aten::mm")]
    for number in range(1, 300, 2):
        nodes.append(host(number, 10_000, (number - 1,) * (number > 1), name=before, **facts))
        nodes.append(host(number + 1, 30_000, (number,), operator="aten::fill_", **facts))
    if step_ns:
        nodes.append(host(301, step_ns, (300,), name="host before aten::_fused_adamw_", **facts))
    return analysed(workload(nodes))


@pytest.mark.parametrize(
    ("step_ns", "gain_ns", "key"), [(0, 4 * MS, "cause:optimizer=inf"), (2 * MS, 6 * MS, "cause:optimizer=4")]
)
def test_gradients_that_are_set_to_zero_need_not_exist(step_ns, gain_ns, key):
    """The optimizer's step remains, and so does the device's work of 2 ms."""
    run = bookkeeping("host before aten::zero_", step_ns)
    (one,) = (item for item in run.advices() if item.cause == "optimizer")
    assert one.what == "Optimizer bookkeeping, mostly setting gradients to zero"
    assert "set_to_none=True" in one.how
    assert (one.key, one.gain_ns, one.half_ns) == (key, gain_ns, 0)


@pytest.mark.parametrize(
    ("before", "place"),
    [("host before aten::zeros_like", ""), ("host before aten::zero_", "Adam.step (train.py:20)")],
)
def test_zeros_that_an_optimizer_needs_are_no_gradients(before, place):
    run = bookkeeping(before, place=place)
    (one,) = (item for item in run.advices() if item.cause == "optimizer")
    assert "gradients to zero" not in one.what
    assert "set_to_none=True" not in one.how


@pytest.mark.parametrize(
    ("kernel_name", "remedy"), [("notify_dispatch", "wait"), ("dispatch", "communication")]
)
def test_a_communication_kernel_without_data_gains_nothing_from_smaller_messages(kernel_name, remedy):
    name = f"void deep_ep::internode::{kernel_name}<false, 8>(int const*)"
    nodes = [host(0, 10_000), kernel(1, 5 * MS, (0,), kind="communication", name=name, operator="")]
    first = analysed(workload(nodes)).advices()[0]
    assert first.what.startswith("Communication kernel void deep_ep")
    assert REMEDIES[remedy] in first.how


def test_handwritten_optimizer_may_be_fused():
    first = analysed(workload(optimizing("DoubleAdam.step (train.py:20)"))).advices()[0]
    assert first.what.startswith("The optimizer in DoubleAdam.step (train.py:20), especially aten::")
    assert first.gain_ns == pytest.approx(18 * MS * (1 - 7 / (3 * 8)), rel=0.001)
    assert "torch.compile of its step" in first.how


def recurring(**changed):
    times = StepTimes(
        40, 9 * MS, 10 * MS, 30 * MS, 31 * MS, 10, 4, 30 * MS, 5 * MS, "validation", "evaluate (a.py:8)"
    )
    return {"step_times": times._replace(**changed)._asdict()}


def test_steps_that_recur_are_advice_with_what_they_cost_on_average():
    program = dataclasses.replace(launched(), metadata=recurring())
    first = analysed(program).advices()[0]
    assert first.what == "Every fourth step takes 30.0 ms instead of 10.0 ms: validation in evaluate (a.py:8)"
    assert (first.gain_ns, first.share, first.is_bound) == (5 * MS, 1 / 3, False)
    assert (first.cause, first.place, first.key) == ("validation", "evaluate (a.py:8)", "")
    assert REMEDIES["validation"] in first.how


def test_gain_of_captured_steps_names_them():
    program = dataclasses.replace(launched(), metadata=recurring(every=0, is_captured=1))
    first, *others = analysed(program).advices()
    assert first.what.startswith("10 of 40 captured steps take 30.0 ms on average instead of 10.0 ms")
    assert (first.gain_ns, first.steps) == (5 * MS, "the mean captured step")
    unknown = analysed(dataclasses.replace(launched(), metadata={})).advices()
    assert others == list(unknown)[: len(others)]  # captured steps do not replace unprofiled ones


@pytest.mark.parametrize(("fault_ns", "is_advised"), [(2 * MS, True), (MS // 4, False)])
def test_page_faults_are_advice_if_they_take_long(fault_ns, is_advised):
    metadata = recurring(gain_ns=0, faults=4_096, fault_ns=fault_ns)
    items = analysed(dataclasses.replace(launched(), metadata=metadata)).advices()
    faults = [(item.gain_ns, item.share, item.key) for item in items if "4,096 new pages" in item.what]
    assert faults == [(2 * MS, 0.2, "")] * is_advised


@pytest.mark.parametrize(("fault_ns", "is_first"), [(3 * MS, False), (7 * MS, True)])
def test_page_faults_come_after_operators_that_take_longer(fault_ns, is_first):
    metadata = recurring(gain_ns=0, faults=4_096, fault_ns=fault_ns)
    program = workload([comp(0, 5 * MS, operator="aten::cat"), comp(1, 5 * MS, (0,), operator="aten::mm")])
    first = analysed(dataclasses.replace(program, metadata=metadata)).advices()[0]
    assert (first.cause == "page_faults") == is_first


@pytest.mark.parametrize(
    "changed",
    [
        {"gain_ns": MS // 4},
        {"every": 0, "cause": "descheduled"},
        {"every": 0, "cause": "communication_call"},
        {"every": 0, "cause": "python"},
    ],
)
def test_long_steps_that_do_not_matter_or_are_the_machines_are_no_advice(changed):
    program = dataclasses.replace(launched(), metadata=recurring(**changed))
    assert all(item.key for item in analysed(program).advices())


def test_scattered_long_steps_that_alone_run_a_function_are_the_scripts():
    metadata = recurring(every=0, cause="communication_call", is_distinct=1)
    first = analysed(dataclasses.replace(launched(), metadata=metadata)).advices()[0]
    assert first.what.startswith("10 of 40 steps take 30.0 ms on average instead of 10.0 ms: inside")


def test_long_steps_that_gain_more_than_the_mean_of_their_cause_replace_it():
    metadata = recurring(every=0, cause="worker_wait", worker_wait_ns=4 * MS)
    waiting = host(1, MS, (0,), cause="worker_wait", place="Images.__getitem__ (data.py:5)")
    program = dataclasses.replace(workload([comp(0, 2 * MS), waiting]), metadata=metadata)
    items = [item for item in analysed(program).advices() if item.cause == "worker_wait"]
    assert [item.gain_ns for item in items] == [5 * MS]


@pytest.mark.parametrize(
    ("mean_ns", "gain_ns", "key"),
    [(20 * MS, 20 * MS, ""), (9 * MS, 8 * MS, "cause:worker_wait=inf"), (0, 8 * MS, "cause:worker_wait=inf")],
)
def test_a_cause_that_scatters_gains_its_time_in_the_mean_step(mean_ns, gain_ns, key):
    """Every other step waits for a worker, so the shown step is not representative."""
    metadata = recurring(every=0, cause="worker_wait", worker_wait_ns=mean_ns)
    waiting = host(1, 8 * MS, (0,), cause="worker_wait", place="Images.__getitem__ (data.py:5)")
    program = workload([comp(0, 2 * MS), waiting])
    first, *others = analysed(dataclasses.replace(program, metadata=metadata)).advices()
    assert (first.gain_ns, first.key) == (gain_ns, key)
    assert any(item.what.startswith("10 of 40 steps") for item in others) == bool(key)  # else counted twice
    assert first.steps == ("" if key else "the mean step")
    assert first.share == pytest.approx(gain_ns / (gain_ns + 2 * MS))


@pytest.mark.parametrize(
    ("free", "gains_ns", "key"),
    [
        (None, (6 * MS, 0, 0), "inf"),
        (4.0, (6 * MS, 0, 0), "inf"),
        (1.0, (5 * MS, 0, 6 * MS), "6"),  # half of the step: as much work remains for both cores
        (0.25, (2 * MS, 0, 6 * MS), "1.5"),
        (0.0, (6 * MS, 3 * MS, 0), "inf"),
    ],
)
def test_gain_of_moved_work_is_limited_by_free_cores(free, gains_ns, key):
    loading = host(1, 6 * MS, (0,), cause="input_pipeline", place="Images.__getitem__ (data.py:5)")
    metadata = {} if free is None else {"cores": {"0": [1 + free, 1.0, free]}}
    program = dataclasses.replace(workload([comp(0, 4 * MS), loading]), metadata=metadata)
    first = analysed(program).advices()[0]
    assert (first.gain_ns, first.half_ns, first.whole_ns) == gains_ns
    assert first.key == f"cause:input_pipeline={key}"
    assert ("workers" in first.how) == (free != 0)
    assert ("cores were free" in first.how) == (free is not None)
    assert ("6.00 ms if cheaper" in advice_text(first)) == bool(gains_ns[2])


def test_less_work_without_free_cores_gains_half_of_its_time_in_the_mean_step():
    metadata = recurring(every=0, cause="worker_wait", worker_wait_ns=20 * MS)
    metadata |= {"cores": {"0": [1.0, 1.0, 0.0]}}
    program = workload([comp(0, 2 * MS), host(1, 8 * MS, (0,), cause="worker_wait")], metadata=metadata)
    first = analysed(program).advices()[0]
    assert (first.gain_ns, first.half_ns) == (20 * MS, 10 * MS)
    assert advice_text(first).startswith("10.0 ms if 2 times as fast: cheaper transforms")


@pytest.mark.parametrize(("free", "gain_ns"), [(3.0, 5 * MS), (0.25, 3 * MS), (0.0, 5 * MS)])
def test_gain_of_recurring_work_is_limited_by_free_cores(free, gain_ns):
    metadata = recurring(cause="checkpoint") | {"cores": {"0": [1 + free, 1.0, free]}}
    first = analysed(dataclasses.replace(launched(), metadata=metadata)).advices()[0]
    assert (first.gain_ns, first.whole_ns) == (gain_ns, 5 * MS * (gain_ns < 5 * MS))
    assert ("async_save" in first.how) == (free > 0)


def test_an_operator_of_a_host_without_a_class_is_advised_no_kernel():
    program = workload([comp(0, 4 * MS, operator="aten::max_pool2d", name="aten::max_pool2d")])
    how = analysed(program).advices()[0].how
    assert "channels_last" in how
    assert "kernel" not in how


@pytest.mark.parametrize(("free", "advised"), [(None, True), (1.0, True), (0.1, False)])
def test_more_threads_are_advised_if_cores_may_be_free(free, advised):
    metadata = {} if free is None else {"cores": {"0": [2, 1.0, free]}}
    program = workload([comp(0, 4 * MS, operator="aten::mm", name="aten::mm")])
    first = analysed(dataclasses.replace(program, metadata=metadata)).advices()[0]
    assert ("OMP_NUM_THREADS" in first.how) == advised
    assert ("1 of 2 cores were free" in first.how) == (free == 1.0)


@pytest.mark.parametrize(("units", "advised"), [(None, True), (True, True), (False, False)])
def test_bfloat16_is_advised_unless_the_processor_lacks_units_for_it(units, advised):
    program = workload([comp(0, 4 * MS, operator="aten::mm", name="aten::mm")])
    program = dataclasses.replace(program, metadata={} if units is None else {"bfloat16": units})
    how = analysed(program).advices()[0].how
    assert ("under torch.autocast" in how) == advised
    assert ("has no units for bfloat16" in how) != advised


def test_function_of_the_script_precedes_operators_of_the_model():
    model = comp(
        0, 14 * MS, operator="aten::mm", name="aten::mm", phase="forward", place="train (train.py:3)"
    )
    average = [
        comp(1 + number, 3 * MS, (number,), operator=name, name=name, place=f"Ema.update (train.py:{number})")
        for number, name in enumerate(("aten::mul", "aten::add", "aten::sub", "aten::div"))
    ]
    backward = comp(
        5, MS, (4,), operator="aten::sum", name="aten::sum", phase="backward", place="train (train.py:5)"
    )
    advices = analysed(workload([model, *average, backward])).advices()
    assert [item.key for item in advices[:2]] == ["place:Ema.update (train.py)=inf", "operator:aten::mm=inf"]


@pytest.mark.parametrize(("lateness", "named"), [([5 * MS] * 4, 1), ([5 * MS, 0, 0, 0], 0), ([5 * MS], 1)])
def test_a_rank_is_late_if_most_steps_say_so(lateness, named):
    punctual = [comp(0, MS), coll(1, 1024, (0,), duration_ns=5 * MS + 1000)]
    late = [comp(0, 6 * MS), coll(1, 1024, (0,))]
    stated = {"lateness_ns": {"0": [0] * len(lateness), "1": lateness}}
    program = workload(punctual, late, metadata=stated)
    advices = analysed(program).advices()
    assert sum(item.key == "skew:1=inf" for item in advices) == named


def unprofiled(median_ns, error_ns=0):
    """Return metadata with this median unprofiled step."""
    figures = {"captured_step_ns": 10 * MS, "unprofiled_step_ns": median_ns, "unprofiled_error_ns": error_ns}
    return {"profiler_overhead": figures | {"unprofiled_quartiles_ns": [median_ns // 2, 2 * median_ns]}}


@pytest.mark.parametrize(
    ("metadata", "factor"),
    [
        (unprofiled(20 * MS, MS), 2),
        (unprofiled(5 * MS), 0.5),
        (unprofiled(20 * MS, 3 * MS), 1),  # the median is uncertain
        (unprofiled(10 * MS + MS // 2), 1),
        ({}, 1),
    ],
)
def test_a_cause_gains_its_share_of_the_median_unprofiled_step(metadata, factor):
    """Step times may scatter: their median is still accurate, and one captured step is one of them."""
    nodes = [comp(0, 4 * MS), host(1, 6 * MS, (0,), cause="lock", place="Feed.run (a.py:5)")]
    lock, work = analysed(workload(nodes, metadata=metadata)).advices()
    assert (lock.gain_ns, lock.share, lock.key) == (6 * MS * factor, 0.6, "cause:lock=inf")
    assert (work.gain_ns, work.half_ns) == (4 * MS * factor, 2 * MS * factor)
    assert advice_text(work).startswith(f"{duration_text(round(2 * MS * factor))} if 2 times as fast: ")
    steps = "the median step" if factor != 1 else ""
    assert (lock.steps, work.steps) == (steps, steps)
    assert "step" not in lock.what + work.what
    # The table's title names the steps once.
    assert common_steps([lock, work]) == steps
    assert gain_text(lock, steps) == duration_text(lock.gain_ns)
    assert (f" in {steps}" in gain_text(lock)) == bool(steps)
    other = dataclasses.replace(work, steps="the mean step", half_ns=0)
    assert gain_text(other, steps) == f"{duration_text(other.gain_ns)} in the mean step"
    shown = dataclasses.replace(other, steps="")
    assert gain_text(shown, "the mean step") == f"{duration_text(other.gain_ns)} in the step shown"


@pytest.mark.parametrize("median_ns", [4 * MS, 30 * MS])
def test_a_step_unlike_the_scattered_ones_gives_a_bound(median_ns):
    """The middle half of steps takes half to twice the median, the shown one 10 ms; 6 ms of it is a lock."""
    nodes = [comp(0, 4 * MS), host(1, 6 * MS, (0,), cause="lock", place="Feed.run (a.py:5)")]
    run = analysed(workload(nodes, metadata=unprofiled(median_ns, median_ns // 2)))
    lock = run.advices()[0]
    assert (lock.gain_ns, lock.is_bound) == (2 * median_ns * 6 // 10, True)
    assert lock.steps.startswith("steps that vary from")


def test_steps_that_scatter_by_a_cause_of_the_script_scale_nothing():
    """Every fourth step validates: the other steps are not longer for this reason."""
    nodes = [comp(0, 4 * MS), host(1, 6 * MS, (0,), cause="lock", place="Feed.run (a.py:5)")]
    metadata = unprofiled(30 * MS, 15 * MS) | recurring()
    lock = next(
        item for item in analysed(workload(nodes, metadata=metadata)).advices() if item.cause == "lock"
    )
    assert (lock.gain_ns, lock.is_bound) == (6 * MS, False)


@pytest.mark.parametrize(
    ("cause", "median_ns", "error_ns", "gain_ns"),
    [
        ("lock", 30 * MS, 0, 18 * MS),
        ("lock", 20 * MS, 0, 12 * MS),
        ("lock", 20 * MS, 10 * MS, 12 * MS),  # the median is uncertain, but the shown step is similar
        ("sleep", 20 * MS, 0, 6 * MS),
    ],
)
def test_run_delays_grow_with_the_work_of_a_step(cause, median_ns, error_ns, gain_ns):
    """The shown step had no CPU for half of its 20 ms; sleeping needs none."""
    nodes = [
        comp(0, 4 * MS),
        host(1, 10 * MS, (0,), cause="descheduled"),
        host(2, 6 * MS, (1,), cause=cause, place="Feed.run (a.py:5)"),
    ]
    stated = {"steps": [4], "run_delay_ns": {"4": 10 * MS, "median": 10 * MS}}
    metadata = unprofiled(median_ns, error_ns) | stated
    items = analysed(workload(nodes, metadata=metadata)).advices()
    assert [item.gain_ns for item in items if item.cause == cause] == [gain_ns]


@pytest.mark.parametrize(("delay_ms", "gain_ms"), [(10, 8), (12, 7.5), (16, 5), (18, 4)])
def test_long_host_work_contains_its_run_delays(delay_ms, gain_ms):
    """Of 20 ms, 10 ms are recorded delays. Other delays are in the validation, up to their usual share."""
    nodes = [
        comp(0, 2 * MS),
        host(1, 10 * MS, (0,), cause="descheduled"),
        host(2, 8 * MS, (1,), cause="validation", place="Feed.run (a.py:5)"),
    ]
    stated = {"steps": [4], "run_delay_ns": {"4": delay_ms * MS, "median": 0}}
    metadata = unprofiled(10 * MS, 0) | stated
    (one,) = (i for i in analysed(workload(nodes, metadata=metadata)).advices() if i.cause == "validation")
    assert one.gain_ns == pytest.approx(gain_ms * MS, abs=MS / 10)


@pytest.mark.parametrize("delay_ms", [0, 3, 5, 6])
def test_twice_as_fast_work_has_half_of_the_run_delays(delay_ms):
    kinds = [[MM, "gemm", "fp64", "", 9, 60, 40]]
    stated = {"steps": [4], "run_delay_ns": {"4": delay_ms * MS, "median": delay_ms * MS}}
    metadata = {"operators": {"kinds": kinds, "ranks": {}}} | stated | unprofiled(10 * MS)
    nodes = [
        comp(number, 5 * MS, [number - 1] if number else [], operator=MM, tensor_size_bytes=100)
        for number in range(2)
    ]
    first = analysed(workload(nodes, metadata=metadata)).advices()[0]
    assert first.key == "precision:double=2"
    assert first.gain_ns == pytest.approx(5 * MS, rel=1e-6)


@pytest.mark.parametrize(("cause", "gain_ms"), [("sleep", 20), ("dispatch", 10)])
def test_sleep_contains_no_run_delays(cause, gain_ms):
    """Of 20 ms, 10 ms are delays within the other work. The median step is twice as long as the rest."""
    place = "limit (a.py:5)"
    nodes = [comp(0, 10 * MS, operator=MM, name=MM), host(1, 10 * MS, (0,), cause=cause, place=place)]
    stated = {"steps": [4], "run_delay_ns": {"4": 10 * MS, "median": 0}}
    items = analysed(workload(nodes, metadata=unprofiled(20 * MS) | stated)).advices()
    assert [round(item.gain_ns / MS) for item in items if item.cause == cause] == [gain_ms]


def test_half_of_the_work_has_half_of_the_run_delays():
    place, trains = "penalty (train.py:7)", "train (train.py:30)"
    rows = [("aten::addmm", 3, "forward", place), ("aten::gelu", 3, "forward", place)]
    nodes = [host(0, 8 * MS, cause="descheduled", place=place)]
    for operator, ms, phase, line in [*rows, ("aten::mm", 4, "backward", trains)]:
        facts = {"name": operator, "operator": operator, "phase": phase, "place": line}
        nodes.append(comp(len(nodes), ms * MS, (len(nodes) - 1,), **facts))
    stated = {"steps": [4], "run_delay_ns": {"4": 8 * MS, "median": 8 * MS}}
    program = workload(nodes, metadata=unprofiled(18 * MS, 0) | stated)
    (one,) = (item for item in analysed(program).advices() if item.key.startswith("place:"))
    assert (one.gain_ns, one.half_ns) == (round(10.8 * MS), round(5.4 * MS))


def test_device_times_are_not_rescaled():
    nodes = [host(0, MS), kernel(1, 4 * MS, (0,)) | {"stream": 1007}]
    (item, *_) = analysed(workload(nodes, metadata=unprofiled(4 * MS))).advices()
    assert (item.gain_ns, "median step" in item.what) == (4 * MS, False)


@pytest.mark.parametrize(
    ("less_ns", "gain_ns"),
    [([3 * MS] * 8, 3 * MS), ([5 * MS] * 8, 5 * MS), ([9 * MS, -MS] * 4, None), ([0] * 8, None)],
)
def test_gain_of_a_rank_is_its_unprofiled_delay(less_ns, gain_ns):
    punctual = [comp(0, MS), coll(1, 1024, (0,), duration_ns=5 * MS + 1000)]
    late = [comp(0, 6 * MS), coll(1, 1024, (0,))]
    stated = {"waited_less_ns": {"0": [-ns for ns in less_ns], "1": less_ns}, "lateness_ns": {"1": [0, 0, 0]}}
    advices = analysed(workload(punctual, late, metadata=stated)).advices()
    assert [item.gain_ns for item in advices if item.key == "skew:1=inf"] == ([gain_ns] if gain_ns else [])


def test_gain_of_a_rank_that_waits_for_a_processor_is_its_unprofiled_delay():
    punctual = [comp(0, MS), coll(1, 1024, (0,), duration_ns=5 * MS + 1000)]
    late = [comp(0, MS), host(1, 5 * MS, (0,), cause="descheduled"), coll(2, 1024, (1,))]
    delays = {"steps": [4], "run_delay_ns": {"4": 5 * MS, "median": 20 * MS}}
    stated = {"waited_less_ns": {"0": [-3 * MS] * 8, "1": [3 * MS] * 8}} | delays
    advices = analysed(workload(punctual, late, metadata=stated)).advices()
    rank = next(item for item in advices if item.key == "skew:1=inf")
    assert (rank.gain_ns, rank.steps) == (3 * MS, "the median step")


def waiting_for_a_processor(delay_ns, work_ns):
    return [
        comp(0, work_ns),
        host(1, delay_ns, (0,), cause="descheduled"),
        coll(2, 1024, (1,), duration_ns=1000),
    ]


@pytest.mark.parametrize(("cause", "is_advised"), [("descheduled", True), ("sleep", False)])
def test_busy_machine_compares_causes_with_script_time(cause, is_advised):
    nodes = [comp(0, MS), host(1, 300 * MS, (0,), cause=cause)]
    causes = {item.cause for item in analysed(workload(nodes)).advices()}
    assert causes == ({cause, ""} if is_advised else {cause})


def test_busy_machine_comes_first_if_it_contributes_most():
    """Its waits on the path, 6 ms, were 5 ms in the median step. Faster work would gain half of 5.5 ms."""
    stated = {"steps": [4], "run_delay_ns": {"4": 6 * MS, "median": 5 * MS}}
    nodes = waiting_for_a_processor(6 * MS, 5 * MS + MS // 2)[:2]
    assert analysed(workload(nodes, metadata=stated)).advices()[0].cause == "descheduled"


@pytest.mark.parametrize(("work_ns", "first"), [(8 * MS, ""), (4 * MS, "descheduled")])
def test_busy_machine_ranks_below_larger_causes(work_ns, first):
    """Necessary work counts with half of its time, which would make it second."""
    run = analysed(workload(waiting_for_a_processor(6 * MS, work_ns)[:2]))
    assert run.advices()[0].cause == first
    assert {item.cause for item in run.advices()} == {"", "descheduled"}


@pytest.mark.parametrize(
    ("shown_ns", "usual_ns", "gain_ns"),
    [(6 * MS, 6 * MS, 4 * MS), (6 * MS, 3 * MS, 2 * MS), (6 * MS, 0, 0), (MS, 2 * MS, 2 * MS)],
)
def test_waiting_for_a_processor_gains_what_usual_steps_have_of_it(shown_ns, usual_ns, gain_ns):
    """The shown step waited 6 ms, of which 2 ms count as the work that was delayed.

    If less of this work was delayed, another rank waited, and the gain is at most the usual wait.
    """
    stated = {"steps": [4], "run_delay_ns": {"3": 9 * MS, "4": shown_ns, "median": usual_ns}}
    nodes = waiting_for_a_processor(4 * MS, 8 * MS)[:2]
    advices = analysed(workload(nodes, metadata=stated)).advices()
    gains = [item.gain_ns for item in advices if item.cause == "descheduled"]
    assert gains == ([gain_ns] if gain_ns else [])


@pytest.mark.parametrize("usual_ns", [6 * MS, 0])
def test_the_headline_names_waits_for_a_processor_only_if_the_advice_does(usual_ns):
    """The shown step waited 6 ms for a processor, but the median step may wait less."""
    stated = {"steps": [4], "run_delay_ns": {"4": 6 * MS, "median": usual_ns}}
    run = analysed(workload(waiting_for_a_processor(6 * MS, 4 * MS)[:2], metadata=stated))
    assert any(item.cause == "descheduled" for item in run.advices()) == (usual_ns > 0)
    largest = "waiting for a processor (descheduled)" if usual_ns else "aten::mm"
    assert f"largest contributor is {largest}" in run.summary.headline


@pytest.mark.parametrize(("usual_ms", "gain_ms"), [(20, 20), (40, 30)])
def test_usual_run_delays_have_their_share_of_the_median_step(usual_ms, gain_ms):
    """The shown step waited 4 of its 12 ms; the median step of 30 ms waits longer, at most for all of it."""
    stated = {"steps": [4], "run_delay_ns": {"4": 4 * MS, "median": usual_ms * MS}} | unprofiled(30 * MS)
    nodes = waiting_for_a_processor(4 * MS, 8 * MS)[:2]
    items = analysed(workload(nodes, metadata=stated)).advices()
    gains = [(item.gain_ns, item.share) for item in items if item.cause == "descheduled"]
    assert gains == [(gain_ms * MS, gain_ms / 30)]


def test_run_delays_of_the_shown_step_count_if_those_of_other_steps_are_unknown():
    run = analysed(workload(waiting_for_a_processor(4 * MS, 8 * MS)[:2], metadata=unprofiled(30 * MS)))
    waits = [item for item in run.advices() if item.cause == "descheduled"]
    assert [(item.gain_ns, item.steps) for item in waits] == [(4 * MS, "")]


def test_the_share_of_run_delays_is_that_of_the_median_step_though_steps_scatter():
    stated = {"steps": [4], "run_delay_ns": {"4": 4 * MS, "median": 20 * MS}}
    times = StepTimes(24, MS, 40 * MS, 60 * MS, 80 * MS)._asdict()
    nodes = waiting_for_a_processor(4 * MS, 8 * MS)[:2]
    metadata = stated | unprofiled(40 * MS, 20 * MS) | {"step_times": times}
    items = analysed(workload(nodes, metadata=metadata)).advices()
    assert [(item.gain_ns, item.share) for item in items if item.cause == "descheduled"] == [(20 * MS, 0.5)]


USUAL = {"rank_delays_ns": {"0": 5 * MS, "1": 6 * MS}}


@pytest.mark.parametrize(
    ("other_ns", "stated", "is_the_machine"),
    [
        (5 * MS, {}, True),
        (MS, {}, False),
        (MS, USUAL, True),
        (5 * MS, {"rank_delays_ns": {"0": 0, "1": MS}}, False),
    ],
)
def test_a_machine_on_which_all_ranks_wait_is_advice_and_a_caveat(other_ns, stated, is_the_machine):
    ranks = [waiting_for_a_processor(delay_ns, 4 * MS) for delay_ns in (6 * MS, other_ns)]
    run = analysed(workload(*ranks, metadata=stated))
    sentence = (
        "Every rank waited for a processor (5.00 ms to 6.00 ms): the machine was busy during the capture."
    )
    assert (sentence in run.summary.qualifiers) == is_the_machine
    waiting = next(item for item in run.advices() if item.key == "cause:descheduled=inf")
    assert waiting.gain_ns > 0
    assert "fewer threads than cores" in waiting.how


@pytest.mark.parametrize(("usual_ms", "gain_ms"), [(4, 4), (12, 10)])
def test_waits_for_a_processor_are_advice_though_the_shown_step_does_not_wait(usual_ms, gain_ms):
    """Several threads may wait at once, but no longer than the median step of 10 ms."""
    stated = {"steps": [4], "run_delay_ns": {"4": 0, "median": usual_ms * MS}}
    program = workload([comp(0, 3 * MS)], metadata=stated | recurring(gain_ns=0))
    waiting, work = analysed(program).advices()
    assert (waiting.gain_ns, waiting.share) == (gain_ms * MS, gain_ms / 10)
    assert (waiting.cause, waiting.key) == ("descheduled", "")
    assert (waiting.what, waiting.steps) == ("Waiting for a processor (descheduled)", "the median step")
    assert work.cause == ""


def test_delays_within_a_cause_are_no_work_of_the_median_step():
    """The thread waited for two thirds of 12 ms, and so for two thirds of 10 ms in the input pipeline."""
    nodes = [comp(0, 2 * MS), host(1, 10 * MS, (0,), cause="input_pipeline", place="Images.get (data.py:5)")]
    stated = {"steps": [4], "run_delay_ns": {"4": 8 * MS, "median": 8 * MS}}
    items = analysed(workload(nodes, metadata=unprofiled(24 * MS) | stated)).advices()
    assert [item.gain_ns for item in items if item.cause == "input_pipeline"] == [pytest.approx(20 * MS)]


def test_copies_of_gradients_are_part_of_what_is_reduced():
    place = "gradient buckets of DistributedDataParallel"
    nodes = [
        comp(0, 3 * MS),
        comp(1, 2 * MS, (0,), operator="aten::mul", phase="backward", place=place),
        coll(2, 40 << 20, (1,), duration_ns=9 * MS),
        comp(3, MS, (2,), operator="aten::copy_", phase="backward", place=place),
        coll(4, 40 << 20, (3,), CollectiveType.ALL_GATHER, duration_ns=4 * MS),
    ]
    reduced, gathered, *_ = analysed(workload(nodes, nodes)).advices()
    assert reduced.what == "all_reduce of 40.0 MiB, all ranks, including copies of gradients"
    assert (reduced.gain_ns, reduced.half_ns, reduced.key) == (12 * MS, 6 * MS, "collective:all_reduce=inf")
    assert (gathered.what, gathered.gain_ns) == ("all_gather of 40.0 MiB, all ranks", 4 * MS)


@pytest.mark.parametrize(("size_bytes", "is_one"), [(8 << 10, True), (8 << 20, False)])
def test_many_small_collectives_of_several_types_are_one_entry(size_bytes, is_one):
    nodes = [comp(0, MS)]
    for number in range(1, 41):
        kind = (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)[number % 2]
        nodes.append(coll(number, size_bytes, (number - 1,), kind, duration_ns=MS // 2))
    items = analysed(workload(nodes, nodes)).advices()
    assert (items[0].what == "40 small collectives (all_gather, reduce_scatter)") == is_one
    assert any(item.what.startswith("all_gather of") for item in items) != is_one
    if is_one:
        assert (items[0].key, items[0].gain_ns) == ("kind:communication=inf", 20 * MS)
        assert items[0].how.startswith(REMEDIES["small"])


def test_host_time_in_the_operator_of_a_collective_is_part_of_it():
    calls = {"cause": "communication_call", "operator": "c10d::broadcast_", "name": "c10d::broadcast_"}
    other = calls | {"operator": "c10d::allreduce_", "name": "c10d::allreduce_"}
    nodes = [comp(0, 3 * MS), host(1, 2 * MS, (0,), **calls), host(2, MS, (1,), **other)]
    facts = {"operator": "c10d::broadcast_", "duration_ns": 9 * MS}
    nodes.append(coll(3, 40 << 20, (2,), CollectiveType.BROADCAST, **facts))
    first = analysed(workload(nodes, nodes)).advices()[0]
    assert (first.key, first.gain_ns) == ("collective:broadcast=inf", 11 * MS)


def test_host_time_in_a_receive_is_no_part_of_the_messages():
    """The kernel may be waiting for the peer, which smaller messages do not shorten."""
    calls = {"cause": "communication_call", "operator": "c10d::recv_", "name": "c10d::recv_"}
    message = {"operator": "c10d::recv_", "kind": "communication", "comm_tag": 1, "comm_size_bytes": 1 << 20}
    ends = [{"type": NodeType.COMM_SEND, "comm_dst": 1}, {"type": NodeType.COMM_RECV, "comm_src": 0}]
    ranks = [
        [
            comp(0, MS),
            host(1, 4 * MS, (0,), **calls),
            comp(2, 3 * MS, (1,), **message) | end,
        ]
        for end in ends
    ]
    run = analysed(workload(*ranks))
    (messages,) = (one for one in run.summary.causes if one.key == "collective:send_recv")
    assert messages.path_ns == 3 * MS


@pytest.mark.parametrize(
    ("count", "phase", "is_entry"), [(100, "forward", 1), (99, "forward", 0), (100, "backward", 0)]
)
def test_collectives_of_a_loop_are_one_entry(count, phase, is_entry):
    place, nodes = "share (train.py:9)", [comp(0, MS)]
    for number in range(1, 2 * count, 2):
        calling = host(number, 30_000, (number - 1,), cause="communication_call", place=place, phase=phase)
        nodes += [calling, coll(number + 1, 64, (number,), duration_ns=50_000, place=place, phase=phase)]
    advices = analysed(workload(nodes, nodes)).advices()
    found = [item for item in advices if item.what == f"100 collectives one by one in {place}"]
    assert [item.gain_ns for item in found] == [100 * 80_000] * is_entry
    assert all(item.how == REMEDIES["latency"] and item is advices[0] for item in found)


@pytest.mark.parametrize(
    ("other_ms", "first_ms", "key"),
    [(0, 0, "place:wait (a.py:7)"), (4, 0, "operator:c10d::barrier"), (0, 2, "operator:c10d::barrier")],
)
def test_barriers_are_a_separate_entry(other_ms, first_ms, key):
    """Barriers are all-reduces of one number; other work at the place, even before them, does not count."""
    facts = {"operator": "c10d::barrier", "phase": "forward", "place": "wait (a.py:7)"}
    nodes = [comp(0, 2 * MS), coll(1, 1 << 20, (0,), duration_ns=2 * MS, operator="c10d::allreduce_")]
    for number in range(2, 8, 2):
        own_ms = first_ms if number == 2 else 1
        nodes.append(host(number, own_ms * MS, (number - 1,), cause="python", place="wait (a.py:7)"))
        nodes.append(coll(number + 1, 64, (number,), duration_ns=3 * MS, **facts))
    nodes.append(comp(8, other_ms * MS, (7,), operator="aten::sort", place="wait (a.py:7)"))
    first, *others = analysed(workload(nodes, nodes)).advices()
    assert (first.what, first.key) == ("3 barriers in wait (a.py:7)", f"{key}=inf")
    assert first.gain_ns == (11 if key.startswith("place") else 9) * MS
    assert any(item.what.startswith("all_reduce of 1.00 MiB") for item in others)


@pytest.mark.parametrize(("other_ms", "is_whole"), [(0, True), (9, False)])
def test_an_exchange_of_objects_includes_its_collectives(other_ms, is_whole):
    place = "share (a.py:7)"
    exchange = {"place": place, "phase": "forward", "operator": "c10d::allgather_"}
    nodes = [
        comp(0, 5 * MS),
        host(1, 2 * MS, (0,), cause="object_collective", place=place),
        coll(2, 64, (1,), duration_ns=3 * MS, **exchange),
        coll(3, 1 << 20, (2,), duration_ns=2 * MS, **exchange),
        comp(4, other_ms * MS, (3,), operator="aten::sort", place=place),
    ]
    items = analysed(workload(nodes, nodes)).advices()
    found = next(item for item in items if item.cause == "object_collective")
    assert found.what == f"Exchanging Python objects between ranks in {place}"
    assert found.key == (f"place:{place}=inf" if is_whole else "cause:object_collective=inf")
    assert found.gain_ns == (7 if is_whole else 2) * MS
    assert any(item.kind == "communication" for item in items) != is_whole


@pytest.mark.parametrize(("module", "is_of_buffers"), [("DistributedDataParallel", True), ("head", False)])
def test_broadcasts_of_buffers_in_each_forward_pass_can_be_avoided(module, is_of_buffers):
    facts = {"comm_type": CollectiveType.BROADCAST, "operator": "c10d::broadcast_", "module": module}
    nodes = [coll(0, 1 << 20, (), duration_ns=6 * MS, **facts), comp(1, 4 * MS, (0,))]
    first = analysed(workload(nodes, nodes)).advices()[0]
    assert (REMEDIES["buffers"] in first.how) == is_of_buffers
    assert (first.gain_ns, first.half_ns) == (6 * MS, 0 if is_of_buffers else 3 * MS)


def test_advice_on_buffers_does_not_promise_a_network_without_latency():
    facts = {"comm_type": CollectiveType.BROADCAST, "module": "DistributedDataParallel"}
    nodes = [coll(0, 64, (), **facts), comp(1, 4 * MS, (0,)), coll(2, 64, (1,))]
    network = NetworkConfig(("Switch",), (2,), (10.0,), (float(MS),))
    items = analysed(workload(nodes, nodes), "analytical-unaware", network).advices()
    assert any(item.key.startswith("latency:0=") for item in items)
    buffers = next(item for item in items if REMEDIES["buffers"] in item.how)
    assert buffers.key == "collective:broadcast=inf"


@pytest.mark.parametrize("returns_after_ns", [5_000, 0])
def test_synchronisation_names_operator_and_awaited_work(returns_after_ns):
    nodes = []
    for number in range(10):
        first = 3 * number
        nodes += [
            host(first, 200_000, [first - 1] if number else []),
            kernel(first + 1, 180_000, [first], operator="aten::mm"),
            host(
                first + 2, returns_after_ns, [first, first + 1], kind="sync", cause="synchronisation",
                name="cudaStreamSynchronize", operator="aten::item",
            ),
        ]  # fmt: skip
    run = analysed(workload(nodes))
    item = next(item for item in run.advices() if item.kind == "sync")
    assert item.what == "Synchronisation cudaStreamSynchronize in aten::item, which waits for aten::mm"
    assert item.gain_ns == run.result.makespan_ns - (10 * 200_000 + 180_000)


def test_a_synchronisation_says_which_copies_it_waits_for():
    nodes = [
        host(0, 10_000),
        kernel(1, 5 * MS, (0,), kind="copy", name="Memcpy DtoH (Device -> Pageable)", operator="aten::copy_"),
        host(2, 5_000, (0, 1), kind="sync", name="cudaStreamSynchronize", operator="aten::item"),
        host(3, 10_000, (2,)),
    ]
    run = analysed(workload(nodes))
    call = "Synchronisation cudaStreamSynchronize in aten::item"
    what = f"{call}, which waits for copies DtoH (aten::copy_)"
    assert what in [one.what for one in run.summary.causes]
    assert (
        "largest contributor is synchronisation cudaStreamSynchronize in aten::item" in run.summary.headline
    )


@pytest.mark.parametrize(
    ("copied", "call", "operator", "how"),
    [
        ("HtoD (Pageable -> Device)", "StreamSynchronize", "aten::copy_", COPY_REMEDIES["HtoD"]),
        ("HtoD (Pageable -> Device)", "MemcpyAsync", "", COPY_REMEDIES["HtoD"]),
        ("HtoD (Pinned -> Device)", "StreamSynchronize", "aten::copy_", PINNED_REMEDIES["HtoD"]),
        ("HtoD (Pinned -> Device)", "DeviceSynchronize", "", REMEDIES["sync"]),
        ("HtoD (Pinned -> Device)", "StreamSynchronize", "aten::_local_scalar_dense", REMEDIES["sync"]),
        ("DtoH (Device -> Pageable)", "StreamSynchronize", "aten::copy_", REMEDIES["sync"]),
    ],
)
def test_a_blocking_copy_to_the_device_should_not_block(copied, call, operator, how):
    nodes = [
        host(0, 10_000),
        kernel(1, 5 * MS, (0,), kind="copy", name=f"Memcpy {copied}", operator="aten::copy_"),
        host(2, 5_000, (0, 1), kind="sync", name=f"cuda{call}", operator=operator),
        kernel(3, 5 * MS, (1,), operator="aten::mm"),
        host(4, 6 * MS, (2,)),
    ]
    (one,) = (item for item in analysed(workload(nodes)).advices() if item.kind == "sync")
    assert one.how == how


def test_a_synchronisation_at_the_start_of_a_step_waits_for_no_copy_at_its_end():
    """The first segment has no segment before it; the last segment of the path is a copy."""
    nodes = [
        host(0, MS, kind="sync", name="cudaStreamSynchronize", operator="aten::copy_"),
        kernel(1, 2 * MS, (0,), operator="aten::mm"),
        kernel(2, MS, (1,), kind="copy", name="Memcpy HtoD (Pageable -> Device)", operator="aten::copy_"),
    ]
    (one,) = (item for item in analysed(workload(nodes)).advices() if item.kind == "sync")
    assert one.how == REMEDIES["sync"]


def test_a_synchronisation_that_no_device_work_explains_blames_none():
    """The host is in the call for 5 ms after the copy of 0.1 ms, so it does not wait for the copy."""
    nodes = [
        host(0, 10_000),
        kernel(
            1, 100_000, (0,), kind="copy", name="Memcpy DtoH (Device -> Pageable)", operator="aten::copy_"
        ),
        host(2, 5 * MS, (0, 1), kind="sync", name="cudaStreamSynchronize", operator="aten::item"),
    ]
    (what,) = (one.what for one in analysed(workload(nodes)).summary.causes if one.kind == "sync")
    call = "Synchronisation cudaStreamSynchronize in aten::item"
    assert what == f"{call}, of which 5.00 ms pass after the end of the awaited device work"


def test_a_synchronisation_of_a_busy_device_gains_no_more_than_its_idle_time():
    nodes = []
    for number in range(10):  # kernels of 1 ms, with 15 us of the host between them
        first = 3 * number
        nodes += [
            host(first, 10_000, [first - 1] if number else []),
            kernel(first + 1, MS, [first], operator="aten::mm"),
            host(
                first + 2, 5_000, [first, first + 1], kind="sync",
                cause="synchronisation", name="spin until notify", operator="",
            ),
        ]  # fmt: skip
    program = workload(nodes)
    summary = summarize(analysed(program).result, program)  # upper bounds, as for large runs
    assert any(one.kind == "sync" for one in summary.causes)
    assert all(item.gain_ns <= 150_000 for item in summary.advice if item.kind == "sync")
    assert "largest contributor is aten::mm" in summary.headline


@pytest.mark.parametrize(
    ("name", "what", "key"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "Copies from host to device, HtoD", "copy:HtoD=inf"),
        ("Memcpy HtoD (Pinned -> Device)", "Copies from host to device, HtoD", "copy:HtoD=inf"),
        ("Memcpy DtoH (Device -> Pinned)", "Copies from device to host, DtoH", "copy:DtoH=inf"),
        ("Memcpy DtoD (Device -> Device)", "Copies within devices, DtoD", "copy:DtoD=inf"),
        ("Memset (Device)", "Copies (memory sets), Memset", "copy:Memset=inf"),
        ("CopyHostToDevice", "Copies: CopyHostToDevice", "copy:CopyHostToDevice=inf"),
    ],
)
def test_copies_are_named_by_their_direction(name, what, key):
    more = [kernel(100, 9 * MS, (79,), kind="copy", name=name, operator="aten::copy_")]
    first = analysed(launched(more=more)).advices()[0]
    assert (first.what, first.key) == (f"{what} (aten::copy_)", key)
    assert (first.gain_ns, first.half_ns) == (9 * MS, 4_500_000)
    assert ("pinned memory" in first.how) == ("Pageable" in name)
    assert ("non_blocking=True" in first.how) == ("Pageable" in name or "Pinned" in name)


def bucketed(sleeps):
    """Return the program of a rank with two buckets, which sleeps for these times before each."""
    nodes = [comp(0, 2 * MS)]
    for number, sleep_ns in enumerate(sleeps):
        last = nodes[-1]["node_id"] if number == 0 else 10 * number - 6
        first = 10 * number + 1
        nodes += [
            host(first, 10_000 + sleep_ns, (last,), name=f"host before bucket {number}"),
            coll(first + 1, 1 << 20, (first,), stream=10 + number),
            comp(first + 3, 9 * MS, (first,)),
        ]
    return nodes


def test_a_rank_that_sleeps_before_two_buckets_is_worth_the_step_without():
    sleeping = workload(bucketed([0, 0]), bucketed([50 * MS, 17 * MS]))
    run = analysed(sleeping, "analytical-unaware", "ring-2")
    plain = analysed(workload(bucketed([0, 0]), bucketed([0, 0])), "analytical-unaware", "ring-2")
    item = next(item for item in run.advices() if item.key == "skew:1=inf")
    assert run.result.makespan_ns - item.gain_ns == pytest.approx(plain.result.makespan_ns, rel=0.01)
    assert "Rank 1 is late: 67.0 ms more work than its peers, 50.0 ms of it host before bucket 0" in item.what
    assert "is bound by rank 1, which is late: 67.0 ms" in run.summary.headline
    assert "waiting for peers" not in run.summary.headline  # a simulated path is that of the late rank


def test_a_late_rank_in_a_replay_takes_the_waits_of_its_peers_along():
    def rank(late_ns, waited_ns):
        nodes = [host(0, MS), comp(1, 3 * MS + late_ns, (0,), operator="aten::conv2d")]
        return [*nodes, coll(2, 1 << 20, (1,), duration_ns=MS + waited_ns), comp(3, MS, (2,))]

    run = analysed(workload(rank(0, 6 * MS), rank(6 * MS, 0), rank(0, 6 * MS)))
    first = run.advices()[0]
    assert first.what == "Rank 1 is late: 6.00 ms more work than its peers in aten::conv2d"
    assert (first.key, first.gain_ns) == ("skew:1=inf", 6 * MS)
    headline = run.summary.headline
    assert "is bound by rank 1, which is late: 6.00 ms more work than its peers in aten::conv2d" in headline
    assert "; an even load would gain 6.00 ms; the largest contributor is aten::conv2d" in headline
    assert "only on rank 1 (9.00 ms, 75.0 %)" in headline
    # Neither smaller messages nor a faster network would shorten the waits.
    reduced = next(item for item in run.advices() if item.key == "collective:all_reduce=inf")
    assert reduced.gain_ns == MS


def test_python_of_one_rank_in_several_gaps_names_the_rank():
    """No single gap has most of the additional work of this rank."""
    names = [f"host before aten::op{number}" for number in range(4)]
    late = [
        host(number, 3 * MS, (number - 1,) if number else (), cause="python", operator=name, name=name,
             place="auc (train.py:9)")
        for number, name in enumerate(names)
    ]  # fmt: skip
    late.append(coll(4, 1024, (3,)))
    punctual = [comp(0, MS), coll(1, 1024, (0,), duration_ns=11 * MS + 1000)]
    named = [item.what for item in analysed(workload(punctual, late)).advices()]
    assert "Python between operators in auc (train.py:9), only on rank 1" in named


def test_advice_on_the_same_time_says_so():
    def rank(sleep_ns):
        return [host(0, 10_000), host(1, 20_000 + sleep_ns, (0,), cause="sleep"), coll(2, 1 << 20, (1,))]

    run = analysed(workload(rank(0), rank(9 * MS)), "analytical-unaware", "ring-2")
    first, second = run.advices()[:2]
    assert {first.key, second.key} == {"cause:sleep=inf", "skew:1=inf"}
    assert second.overlaps == first.what


def test_time_inside_communication_calls_is_no_work_of_a_rank():
    """Rank 0 waits in a call for rank 1, which sleeps: rank 1 does not do less work."""
    waiting = [host(0, 9 * MS, cause="communication_call"), comp(1, MS, (0,)), coll(2, 1 << 20, (1,))]
    sleep = host(0, 10 * MS, cause="sleep", place="upload (train.py:9)")
    sleeping = [sleep, comp(1, MS, (0,)), coll(2, 1 << 20, (1,))]
    run = analysed(workload(waiting, sleeping))
    (item,) = (item for item in run.advices() if item.key == "skew:1=inf")
    assert item.what == "Rank 1 is late: 10.0 ms more work than its peers in sleeping in upload (train.py:9)"


def test_equal_ranks_are_not_blamed():
    program = workload(bucketed([0, 0]), bucketed([0, 0]))
    run = analysed(program, "analytical-unaware", "ring-2")
    assert not any(item.key.startswith("skew:") for item in run.advices())


def test_headline_follows_the_what_if_over_the_path():
    run = analysed(launched())
    gains = {"host": 1, "compute": 900_000}
    path = _path([("host", "", "", 80), ("compute", "aten::mm", "", 20)], 100)
    contradicted = dataclasses.replace(run._advised, half_kinds_ns=gains)
    headline = summarize(run.result, run.workload, path, contradicted).headline
    assert "is bound by computation: halving it gains 900 µs, but halving host work (" in headline


@pytest.mark.parametrize(("spare", "gain"), [(0, "4.60 ms"), (-1, "at most 5.00 ms")])
@pytest.mark.parametrize("limit", ["_MAX_EVENTS", "_MAX_NODES"])
def test_a_run_that_is_too_large_to_replay_has_bounds(monkeypatch, limit, spare, gain):
    program = launched(stall_ns=5 * MS)
    events = analysed(program).result.provenance["events"]
    size = events if limit == "_MAX_EVENTS" else program.graphs[0].num_nodes
    monkeypatch.setattr(f"chakrascope.runner.analysis._advice.{limit}", size + spare)
    run = analysed(program)
    assert gain_text(run.advices()[0]) == gain
    assert bool(run._advised.half_kinds_ns) == (spare == 0)


def test_the_bound_of_a_function_is_its_whole_time(monkeypatch):
    monkeypatch.setattr("chakrascope.runner.analysis._advice._MAX_EVENTS", 0)
    program = extra_forward(3 * MS, 4 * MS, "track (train.py:12)")
    first = analysed(program).advices()[0]
    assert (first.key, first.is_bound) == ("place:track (train.py)=inf", True)
    assert (first.gain_ns, first.half_ns) == (4.5 * MS, 2.25 * MS)
    assert advice_text(first).startswith("at most 2.25 ms if 2 times as fast: ")


def test_a_kernel_without_operator_is_simulated_by_its_name():
    program = launched(more=[kernel(100, 4 * MS, (78,), name="lonely<float>", operator="")])
    (item,) = (item for item in analysed(program).advices() if item.what == "lonely<float>")
    assert (item.is_bound, item.gain_ns, item.half_ns) == (False, 4 * MS, 2 * MS)


def test_the_answer_is_kept_beside_the_run(tmp_path, monkeypatch):
    run = run_in_study(tmp_path, launched(stall_ns=5 * MS))
    before = run.summary.to_json()

    def fail(*_):
        raise AssertionError("replayed again")

    monkeypatch.setattr("chakrascope.runner.analysis._advice.replays_of", fail)
    assert analyse_run(run.study).summary.to_json() == before
    monkeypatch.setattr("chakrascope.runner.analysis._json_cache.code_version", lambda: "of another release")
    with pytest.raises(AssertionError, match="replayed again"):
        analyse_run(run.study).summary  # noqa: B018


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stamp": 1}', '{"stamp": null, "content": {}}'])
def test_a_damaged_kept_answer_is_made_again(tmp_path, text):
    run = run_in_study(tmp_path, launched(stall_ns=5 * MS))
    before = run.summary.to_json()
    run.study.cache_file(run.info.id, "advice.json").write_text(text)
    assert analyse_run(run.study).summary.to_json() == before


def test_a_cached_path_with_other_values_is_computed_again(tmp_path):
    run = run_in_study(tmp_path, launched(stall_ns=5 * MS))
    expected = run.path.segments
    file = run.study.cache_file(run.info.id, "critical-path.parquet")
    table = pyarrow.parquet.read_table(file)
    changed = 0
    for number, field in enumerate(table.schema):
        if not pyarrow.types.is_integer(field.type):
            continue
        other = pyarrow.array(table.column(number).to_numpy() + 1).cast(field.type)
        pyarrow.parquet.write_table(table.set_column(number, field, other), file)  # with the same stamp
        pd.testing.assert_frame_equal(analyse_run(run.study).path.segments, expected)
        changed += 1
    assert changed > 3


def test_json_holds_causes_and_advice_with_their_place():
    more = [host(100, 9 * MS, (78,), cause="io", place="read (data.py:7)")]
    said = json.loads(json.dumps(analysed(launched(more=more)).summary.to_json()))
    assert said["advice"][0]["key"] == "cause:io=inf"
    assert said["causes"][0]["place"] == "read (data.py:7)"
    assert 0 < said["causes"][0]["share"] <= 1


@pytest.mark.parametrize(
    ("rate", "link", "hint"),
    [
        (0.003, 10.0, "latency"),
        (0.003, 0.0, "latency"),
        (9.0, 10.0, "communication"),
        (2.0, 0.0, "communication"),
    ],
)
def test_advice_on_a_collective_follows_from_its_figures(run, rate, link, hint):
    path = _path([("communication", "c10d::allreduce_", "all_reduce of 24.0 KiB, all ranks", 100)], 100)
    rows = run.collectives.head(1).assign(
        operation="all_reduce", size_bytes=24 * 1024, group=0, bus_bytes_per_ns=rate, on_path_ns=0
    )
    columns = Table.of(rows).columns()
    items = advise(path, run.result, run.workload, columns, link_bytes_per_ns=link).advice
    (item,) = (item for item in items if item.kind == "communication")
    assert REMEDIES[hint] in item.how


@pytest.mark.parametrize(
    "name", ["c10d::recv_", "gloo:all_reduce", "cudaStreamSynchronize", "wait for peers"]
)
def test_waits_get_no_advice_on_kernels(run, name):
    path = _path([("compute", name, "", 60), ("new-kind", "x", "", 40)], 100)
    nothing = Table.of(run.collectives.head(0)).columns()
    items = advise(path, run.result, run.workload, nothing).advice
    assert not any("kernel" in item.how for item in items)


def test_irrelevant_network_is_reported(simulated):
    path = _path([("compute", "aten::mm", "", 100)], 100)
    assert "a faster network cannot shorten the step" in _network_cannot_matter(
        path, path.breakdown("kind"), {"exposed_comm_ns": np.zeros(1)}
    )
    assert "a faster network" not in simulated.summary.headline
