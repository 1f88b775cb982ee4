"""A slowdown planted into a public GPU trace that is most of the step is named first."""

import copy
import gzip
import json

import pytest

from chakrascope.converter import convert_files
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import analyse_run

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(scope="module")
def bert(data_dir):
    return read(data_dir, "bert_small_h100")


@pytest.fixture(scope="module")
def alexnet(data_dir):
    return read(data_dir, "alexnet")


def read(data_dir, name):
    """The events of a trace, with times relative to the first event."""
    path = data_dir / "converter" / "kineto" / f"{name}.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    events = [event for event in events if event["cat"] not in ("gpu_user_annotation", "Trace")]
    first = min(event["ts"] for event in events)
    for event in events:
        event["ts"] -= first
    return events


def answer(events, folder):
    """Headline and first advice of a replay of the trace."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    study = Study.create(folder / "study")
    prefix = study.add_workload(convert_files(device_trace=str(path)), "job")
    experiment = prepare(prefix, "default", None, backend="replay", semantics="trace")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="job")
    run = analyse_run(study)
    return "\n".join([run.summary.headline, *(item.what for item in run.advices()[:1])])


def stopped(events, moment, extra):
    """Lengthen host work at a *moment*, and its waits and enclosing events, by *extra*."""
    events = copy.deepcopy(events)
    for event in events:
        if event["ts"] >= moment:
            event["ts"] += extra
        elif event["ts"] + event["dur"] > moment:
            event["dur"] += extra
    return events


def slower(events, is_slow, extra):
    """Lengthen each chosen kernel by *extra*, which delays all later work of the device and its waits."""
    events = copy.deepcopy(events)
    free = {}
    for event in sorted((e for e in events if e["cat"] in DEVICE), key=lambda event: event["ts"]):
        stream = event["args"]["stream"]
        event["ts"] = max(event["ts"], free.get(stream, 0.0))
        event["dur"] += extra * is_slow(event)
        free[stream] = event["ts"] + event["dur"]
    for event in events:
        last = event["name"] == "cudaDeviceSynchronize" and event["ts"] > 1000
        if last or event["name"].startswith("ProfilerStep"):
            event["dur"] = max(event["dur"], max(free.values()) + 10 - event["ts"])
    return events


def span(events):
    return max(event["ts"] + event["dur"] for event in events) - min(event["ts"] for event in events)


def test_a_stall_in_an_operator_is_named_with_its_module_and_function(bert, tmp_path):
    operators = [event for event in bert if event["name"] == "aten::gelu"]
    operator = operators[len(operators) // 2]
    text = answer(stopped(bert, operator["ts"] + operator["dur"] / 2, 2 * span(bert)), tmp_path)
    assert operator["name"] in text
    assert "BertEncoder_0.BertLayer_" in text
    assert "transformers/" in text


def test_a_gap_between_operators_is_named_by_its_python_function(bert, tmp_path):
    frame = next(e for e in bert if e["name"].endswith("warn_if_padding_and_no_attention_mask"))
    text = answer(stopped(bert, frame["ts"] + frame["dur"] / 2, 2 * span(bert)), tmp_path)
    assert "warn_if_padding_and_no_attention_mask (transformers/modeling_utils.py:5140)" in text


def test_a_slower_kernel_is_named(bert, tmp_path):
    kernels = [event["name"] for event in bert if event["cat"] == "kernel"]
    name = max(set(kernels), key=kernels.count)
    text = answer(slower(bert, lambda event: event["name"] == name, 1000.0), tmp_path)
    assert name[:60] in text or "aten::addmm" in text


def test_slower_copies_from_pageable_memory_are_named_with_direction_and_operator(alexnet, tmp_path):
    # The first inference, which takes seconds, is left out.
    end = next(e["ts"] for e in alexnet if e["name"].endswith("|warmup|forward]"))
    begin = next(e["ts"] for e in alexnet if e["name"].endswith("|measure|forward]"))
    events = [e for e in alexnet if e["ts"] + e["dur"] < end or e["ts"] >= begin]
    for event in events:
        event["ts"] -= (begin - end) * (event["ts"] >= begin)
    copies = [event for event in events if event["cat"] == "gpu_memcpy"]
    slow = max(copies, key=lambda event: event["dur"])
    text = answer(stopped(events, slow["ts"] + slow["dur"] / 2, 2_000_000.0), tmp_path)
    assert "HtoD" in text
    assert "aten::copy_" in text
