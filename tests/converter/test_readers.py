"""The compiled readers: strict about JSON, independent of compression and chunks, bounded in memory."""

import bz2
import gzip
import json
import lzma
import re
from decimal import Decimal

import hypothesis.strategies as st
import numpy as np
import pytest
from evidence_file import EvidenceFile
from hypothesis import example, given, settings
from kineto_trace import KinetoTrace

from chakrascope.converter import convert_files, doctor
from chakrascope.converter._native import DeviceReader, FormatError, HostReader, last_writers
from chakrascope.converter.readers import (
    PHASES,
    HostCalls,
    Threads,
    host_calls,
    read_device_trace,
    read_host_trace,
)
from chakrascope.errors import TraceFormatError
from chakrascope.tracer import read_evidence

TENSOR = [7, 5, 0, 12, 4, "cpu"]
EVENTS = [
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "tid": 3,
        "ts": 1.5,
        "dur": 2,
        "args": {"External id": 4},
    },
    {"ph": "X", "cat": "user_annotation", "name": 'é "\\\n\U0001f600', "tid": "main", "ts": 1, "dur": 9.0005},
    {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": 2,
        "dur": 1,
        "args": {"correlation": 8},
    },
    {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "ts": 4,
        "dur": 1,
        "args": {"correlation": 8, "stream": "7"},
    },
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "ts": 5, "args": {"bytes": 64, "stream": 7}},
    {
        "ph": "X",
        "cat": "cuda_sync",
        "name": "x",
        "ts": 1,
        "args": {"cuda_sync_kind": "Event Sync", "stream": 2},
    },
    {"ph": "i", "name": "no span", "ts": "?"},
]
DEVICE = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": 1000,
    "traceEvents": EVENTS,
    "distributedInfo": {"rank": 0},
}
NODES = [
    {"id": 2, "name": "aten::mm", "inputs": {"values": [TENSOR, [TENSOR, 1]], "shapes": [[3, 4], []]}}
    | {
        "outputs": {"values": [TENSOR]},
        "attrs": [{"name": "rf_id", "value": 3}, {"name": "tid", "value": 1}],
    },
    {
        "id": 3,
        "name": "flat",
        "rf_id": 4,
        "inputs": [TENSOR],
        "input_shapes": [[12]],
        "op_schema": "f(Tensor(a!) x)",
    },
    {
        "id": 4,
        "name": "## process_group:init ##",
        "inputs": {"values": ['[{"pg_name": "0", "ranks": [0, 1]}]']},
    },
]
HOST = {"schema": "1.1.1", "nodes": NODES}
READERS = {"device": (DeviceReader, DEVICE), "host": (HostReader, HOST)}


def fed(reader, *pieces):
    """Return the whole result of *reader* for *pieces*."""
    for piece in pieces:
        reader.feed(piece)
    reader.finish()
    tables = ("events", "calls", "works", "syncs", "comms", "operators", "kinds")
    found = {
        (name, column): values.tolist()
        for name in tables
        if hasattr(reader, name)
        for column, values in getattr(reader, name)().items()
    }
    return found, reader.texts()


@pytest.mark.parametrize("which", READERS)
@given(st.data())
@settings(max_examples=25)
def test_it_does_not_matter_how_a_file_arrives(which, data):
    reader, document = READERS[which]
    text = json.dumps(document, indent=data.draw(st.sampled_from([None, 1, 16]))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=30)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert fed(reader(), *pieces) == fed(reader(), text)


@pytest.mark.parametrize("which", READERS)
@given(st.data())
@settings(max_examples=100)
def test_what_is_no_json_is_refused(which, data):
    reader, document = READERS[which]
    text = bytearray(json.dumps(document, ensure_ascii=data.draw(st.booleans())).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from(
                [b"", b"\\", b'"', b",", b"]", b"}", b"{", b"[", b"0", b"-", b"\x00", b"\xff", b"\\ud800"]
            )
        )
    try:
        fed(reader(), bytes(text))
    except FormatError:
        return
    json.loads(bytes(text).decode(errors="replace"), strict=False)  # control characters are allowed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "breaks off"),
        ("\ufeff{}", r"'\{' is expected"),
        ('{"traceEvents": [], }', "the name of a member"),
        ('{"traceEvents": [1,]}', "a value is expected"),
        ('{"traceEvents": []} x', "something follows"),
        ('{"traceEvents": {}}', r"'\[' is expected"),
        ('{"a": 1}', "has no 'traceEvents'"),
        ('{"traceEvents": [01]}', "damaged number"),
        ('{"traceEvents": [nul]}', "unknown word"),
        ('{"traceEvents": ["\\x"]}', "unknown escape"),
        ('{"traceEvents": ["\\udc00"]}', "half a surrogate pair"),
        ('{"traceEvents": [' + "[" * 2000, "nested too deep"),
    ],
)
def test_errors_name_file_and_position(tmp_path, text, message):
    path = tmp_path / "kineto.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceFormatError, match=rf"kineto\.json is not a trace.*{message}"):
        read_device_trace(path)


def timed(path, *changes, count=40):
    """Write a trace of *count* operators with one kernel each; each of *changes* modifies one kernel."""
    made = KinetoTrace()
    for number in range(count):
        made.op("aten::mm", 1000.0 + 100 * number, 20.0, **{"External id": number + 1})
        call = made.call("cudaLaunchKernel", 1005.0 + 100 * number, 5.0)
        made.work("gemm", 1020.0 + 100 * number, 50.0, call)
    kernels = [event for event in made.events if event.get("cat") == "kernel"]
    for event, change in zip(kernels, changes, strict=False):
        event.update(change)
    return made.write(path)


@pytest.mark.parametrize(
    "change",
    [
        {"dur": -1},
        {"dur": -0.001},
        {"dur": 1e300},
        {"ts": "soon"},
        {"ts": None},
        {"ts": 0, "dur": 0},
        {"ts": -1e18},
        {"ts": -30 * 86400 * 10**6, "dur": 50},
        {"ts": 1020, "dur": 31 * 86400 * 10**6},
    ],
)
def test_an_event_with_an_impossible_time_is_left_out_and_named(tmp_path, change):
    path = timed(tmp_path / "kineto.json", change)
    trace = read_device_trace(path)
    assert len(trace.works) == 39
    ts, dur = (str(change.get(name, default)) for name, default in (("ts", 1020.0), ("dur", 50.0)))
    shown = f"'gemm' (ts {ts.replace('None', 'null')}, dur {dur})"
    left_out = (
        f"1 of 120 events in kineto.json have impossible times (the first is {shown}): they were left out"
    )
    assert trace.left_out.replace("1e+", "1e") == left_out.replace("1e+", "1e")
    workload = convert_files(None, str(path))
    assert trace.left_out in workload.metadata["assumptions"]
    cause = f"{trace.left_out}."
    assert [found.severity for found in doctor(tmp_path) if found.cause == cause] == ["warning"]


def test_a_trace_with_many_impossible_times_is_refused(tmp_path):
    path = timed(tmp_path / "kineto.json", *[{"dur": -5}] * 7)
    message = (
        r"kineto\.json: 7 of 120 events have impossible times \(the first is 'gemm' \(ts 1020\.0, dur -5\)\)"
    )
    with pytest.raises(TraceFormatError, match=message):
        read_device_trace(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "2"}, "a node has no number"),
        ({"name": 5}, "node 2 has no name"),
        ({"inputs": 3}, "arguments of node 2 'aten::mm' cannot be read"),
        ({"inputs": {"values": {}}}, "arguments of node 2"),
        ({"attrs": [{"value": 1}]}, "an attribute without a name"),
    ],
)
def test_nodes_of_another_form_are_named(tmp_path, change, message):
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"nodes": [NODES[0] | change]}))
    with pytest.raises(TraceFormatError, match=message):
        read_host_trace(path)


def _written(tmp_path, document):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return path


def test_times_and_numbers_are_read_as_they_are(tmp_path):
    trace = read_device_trace(_written(tmp_path, DEVICE))
    first, second = trace.rows()
    assert (first.name, first.thread, first.is_operator) == ('é "\\\n\U0001f600', "main", False)
    assert (first.start_ns, first.end_ns) == (2000, 2000 + 9000)  # half a nanosecond, to even
    assert (second.name, second.thread, second.external_id) == ("aten::mm", "3", 4)
    assert (second.start_ns, second.end_ns) == (2500, 4500)
    assert trace.work(0)._asdict() | {"stream": 7, "correlation": 8} == trace.work(0)._asdict()
    assert trace.work(1).size_bytes == 64
    assert trace.work(1).start_ns == trace.work(1).end_ns == 6000
    assert (trace.rank, trace.names(trace.syncs.kind)) == (0, ["Event Sync"])


@given(st.integers(-(2**52) + 1, 2**52 - 1), st.from_regex(r"\A[0-9]{1,6}\Z"))
@example(0, "0005")
@example(0, "00050")
@example(0, "0015")
@example(1, "9996")
@example(-1, "0005")
@example(1_712_345_678_901_234, "567")
def test_decimal_times_lose_no_digit(whole, fraction):
    document = json.dumps({"traceEvents": [EVENTS[0] | {"ts": "TIME", "dur": 0}]})
    found, _ = fed(DeviceReader(), document.replace('"TIME"', f"{whole}.{fraction}").encode())
    assert found["events", "start_ns"] == [round(Decimal(f"{whole}.{fraction}") * 1000)]


def test_operators_that_differ_in_their_tensors_only_are_kept_once(tmp_path):
    other = json.loads(json.dumps(NODES[0]).replace("[7, 5,", "[9, 6,")) | {"id": 9, "rf_id": 9}
    other["attrs"] = []
    host = read_host_trace(_written(tmp_path, {"nodes": [other, *NODES]}))
    assert host.records.tolist() == [3, 4, 9]
    assert host.kind[0] == host.kind[2] != host.kind[1]
    assert host.operator(3) == host.operator(9)
    assert host.operator(3).inputs == [[0, 0, 0, 12, 4, "cpu"], [[0, 0, 0, 12, 4, "cpu"], 1]]
    assert (host.storages_of(3), host.storages_of(9), host.storages_of(5)) == ({5}, {6}, frozenset())
    assert host.operator(4).shapes == [[12]]
    assert host.operator(4).schema == "f(Tensor(a!) x)"
    assert host.groups == {"0": (0, 1)}


def test_written_tensors_are_outputs_or_modified_inputs(tmp_path):
    host = read_host_trace(_written(tmp_path, HOST))
    bounds = host.writes(host.rows(np.array([3, 4, 5]))).reshape(-1, 2).tolist()
    assert [host.storages[begin:end].tolist() for begin, end in bounds] == [[5], [5], []]
    reads = host.reads(host.rows(np.array([3]))).tolist()
    assert host.storages[slice(*reads)].tolist() == [5, 5]


def test_last_of_duplicate_records_counts(tmp_path):
    host = read_host_trace(_written(tmp_path, {"nodes": [NODES[1], NODES[1] | {"id": 99, "name": "again"}]}))
    assert len(host) == 1
    assert host.operator(4).name == "again"


@pytest.mark.parametrize(
    ("change", "message"),
    [({}, "two nodes have the id 3"), ({"id": 99, "ctrl_deps": 99}, "node 99 .* depends on itself")],
)
def test_nodes_with_one_id_or_waiting_for_themselves_are_refused(tmp_path, change, message):
    with pytest.raises(TraceFormatError, match=rf"trace\.json is not .* of the expected kind \({message}"):
        read_host_trace(_written(tmp_path, {"nodes": [NODES[1], NODES[1] | change]}))


def test_compressed_files_may_have_members_and_padding(tmp_path):
    text = json.dumps(DEVICE).encode()
    path = tmp_path / "kineto.json.gz"
    path.write_bytes(gzip.compress(text[:99]) + gzip.compress(text[99:]) + b"\0" * 70_000)
    assert len(read_device_trace(path).events) == 2
    whole = path.read_bytes()
    for damaged in (whole[:60], whole[:40] + b"\1\2\3" + whole[43:], gzip.compress(text)[:-4]):
        path.write_bytes(damaged)
        with pytest.raises(
            TraceFormatError, match=r"kineto\.json\.gz is (truncated or damaged|not the trace)"
        ):
            read_device_trace(path)


_slices = st.lists(st.integers(0, 5), max_size=4)


@given(st.lists(st.tuples(_slices, _slices, st.booleans()), max_size=12))
def test_last_writers_are_found_as_by_hand(accesses):
    storages, bounds = [], {"reads": [], "writes": []}
    writer, expected = {}, []
    for number, (reads, writes, view) in enumerate(accesses):
        for name, values in (("reads", reads), ("writes", writes)):
            bounds[name] += [len(storages), len(storages) + len(values)]
            storages += values
        expected += sorted({(writer[one], number) for one in reads if one in writer})
        writer |= {one: number for one in writes if not (view and one in reads)}
    source, target = last_writers(
        np.array(bounds["reads"], dtype=np.int64),
        np.array(bounds["writes"], dtype=np.int64),
        np.array([view for *_, view in accesses], dtype=np.uint8),
        np.array(storages, dtype=np.int64),
    )
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == expected


def test_arguments_are_read_on_demand_and_kept_once(tmp_path):
    called = {"Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "1"]}
    odd = {"Input type": "float", "Input Dims": 1}
    events = [{**EVENTS[0], "args": args} for args in (called, {}, {**called}, {"Input type": []}, odd)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = read_device_trace(path, with_arguments=True)
    assert trace.events.arguments.tolist() == [0, -1, 0, -1, -1]
    assert [json.loads(text) for text in trace.arguments] == [[*called.values()]]
    assert set(read_device_trace(path).events.arguments.tolist()) == {-1}


# Calls of host threads, nested by call, from the trace and from the evidence.


def _rows(calls, thread):
    """Return (depth, name, start, end in us) of the calls of a *thread*."""
    own = np.flatnonzero(calls.thread == calls.threads.index(thread))
    names = [calls.names[number] for number in calls.name[own]]
    columns = (column[own].tolist() for column in (calls.depth, calls.start_ns // 1000, calls.end_ns // 1000))
    return [(depth, name, start, end) for name, depth, start, end in zip(names, *columns, strict=True)]


def test_calls_are_nested_in_their_callers(data_dir):
    trace = read_device_trace(data_dir / "converter" / "mlp_2" / "rank0.device.json.gz")
    step = next(event for event in trace.rows() if event.name == "ProfilerStep#4")
    calls = host_calls(trace, None, step.start_ns, step.end_ns)
    assert calls.threads[0] == f"thread {step.thread}"
    assert (calls.depth[0], calls.names[calls.name[0]]) == (0, "ProfilerStep#4")
    assert calls.start_ns.min() == 0
    assert calls.end_ns.max() == step.end_ns - step.start_ns
    below = np.flatnonzero(calls.depth > 0)
    for row in below.tolist():
        above = np.flatnonzero((calls.thread == calls.thread[row]) & (calls.depth == calls.depth[row] - 1))
        around = above[np.searchsorted(calls.start_ns[above], calls.start_ns[row], side="right") - 1]
        assert calls.start_ns[around] <= calls.start_ns[row] < calls.end_ns[around]
    linear, addmm = (
        {start for _, name, start, _ in _rows(calls, calls.threads[0]) if name == which}
        for which in ("aten::linear", "aten::addmm")
    )
    assert linear
    assert len(addmm) >= len(linear)


def test_sampled_stacks_without_the_tracer_and_collections_have_rows_of_their_own(data_dir, tmp_path):
    """A sample covers the time since the previous sample, as in the causes."""
    trace = read_device_trace(data_dir / "converter" / "mlp_2" / "rank0.device.json.gz")
    file = EvidenceFile()
    for time, *names in ((0, "load", "main"), (10, "load", "main"), (20, "train", "main"), (30, "main")):
        frames = [(name, "a.py", time + 1, "script") for name in names]
        own = ("watched", "chakrascope/tracer/_agent/phases.py", 71, "library")
        file.sample(time, *frames[:-1], own, frames[-1], cpu=time)
    file.collection(12, 15)
    file.write(tmp_path / "evidence.json.gz")
    evidence = read_evidence(tmp_path / "evidence.json.gz")
    calls = host_calls(trace, evidence, 5_000, 35_000)
    assert calls.threads == ["thread 7, Python sampled", "garbage collection"]
    assert _rows(calls, "thread 7, Python sampled") == [
        (0, "main (a.py)", 0, 25),
        (1, "load (a.py)", 0, 5),
        (1, "train (a.py)", 5, 15),
    ]
    assert _rows(calls, "garbage collection") == [(0, "garbage collection of generation 2", 7, 10)]


@pytest.mark.parametrize(
    ("depth", "shown"),
    [
        (10, " › ".join(f"f{call}" for call in range(10))),
        (40, "f0 › f1 › 30 more calls › " + " › ".join(f"f{call}" for call in range(32, 40))),
    ],
)
def test_the_middle_of_a_deep_stack_is_left_out(depth, shown):
    thread, calls = np.zeros(depth, np.int64), np.arange(depth)
    names = [f"f{call}" for call in calls]
    stack = HostCalls(thread, calls, thread, thread + 100, calls, ["thread 1"], names)
    assert stack.around(20, 40) == [shown]


def test_queues_without_a_stream_are_known_by_their_thread(tmp_path):
    """Kineto's events of an XPU have a queue instead of a stream, which is their thread."""
    made = KinetoTrace()
    made.op("aten::mm", 1000.0, 20.0)
    for queue in (3, 5):
        call = made.call("urEnqueueKernelLaunch", 1002.0 + queue, 1.0)
        made.work("gemm", 1020.0, 50.0, call, stream=queue)
        del made.events[-1]["args"]["stream"], made.events[-1]["args"]["device"]
        made.events[-2]["cat"] = "xpu_driver"
    trace = read_device_trace(made.write(tmp_path / "kineto.json"))
    assert (trace.works.stream.tolist(), trace.works.device.tolist()) == ([3, 5], [1, 1])
    assert len(trace.calls) == 2


def test_numbers_that_a_tool_wrote_as_floats_are_integers(tmp_path):
    path = timed(tmp_path / "kineto.json")
    text = re.sub(r'("(?:correlation|External id|stream)": \d+)', r"\1.0", path.read_text())
    assert '"correlation": 40.0' in text
    known = read_device_trace(path)
    path.write_text(text)
    read = read_device_trace(path)
    for table, column in (("works", "correlation"), ("works", "stream"), ("events", "external_id")):
        assert (
            getattr(getattr(read, table), column).tolist() == getattr(getattr(known, table), column).tolist()
        )
    path.write_text(text.replace('"correlation": 40.0', '"correlation": 40.5').replace("41.0", "1e300"))
    assert read_device_trace(path).works.correlation.tolist()[-1] == -1


@pytest.mark.parametrize(
    ("tool", "data"),
    [("xz", lzma.compress(b"{}")), ("bzip2", bz2.compress(b"{}")), ("zstd", b"\x28\xb5\x2f\xfd\x04\x00")],
)
def test_files_that_other_tools_compressed_are_named_so(tmp_path, tool, data):
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    for read in (read_device_trace, read_host_trace):
        with pytest.raises(TraceFormatError, match=rf"trace\.json is compressed with {tool}; only gzip"):
            read(path)


def test_a_merged_trace_of_several_ranks_is_refused(tmp_path):
    path = timed(tmp_path / "kineto.json")
    document = json.loads(path.read_text())
    document["traceEvents"] += [event | {"pid": 2} for event in document["traceEvents"]]
    path.write_text(json.dumps(document))
    with pytest.raises(
        TraceFormatError, match=r"kineto\.json holds the operators of 2 processes \(1, 2\), like"
    ):
        read_device_trace(path)


@pytest.mark.parametrize(
    ("sequences", "phase"),
    [
        ([9, 10, 12], "forward"),  # operators of a closure add to the autograd graph
        ([8, 8, 8], "optimizer"),  # on tensors without gradients, such as `parameter.data`
        ([-1, -1, -1], "optimizer"),  # without a graph
    ],
)
def test_the_forward_pass_of_a_closure_is_no_work_of_the_optimizer(tmp_path, sequences, phase):
    made = KinetoTrace()
    made.op("aten::mul", 0, 5, **{"Sequence number": 7})
    made.add("user_annotation", "Optimizer.step#LBFGS.step", 10, 90)
    for number, sequence in enumerate(sequences):
        made.op("aten::linear", 20 + 20 * number, 10, **{"Sequence number": sequence})
        made.op("aten::addmm", 22 + 20 * number, 5)
    made.op("aten::dot", 90, 5)
    trace = read_device_trace(made.write(tmp_path / "trace.json"))
    events = trace.events
    ops = Threads(trace).operators(
        np.argsort(events.start_ns, kind="stable"), int(events.start_ns.min()), int(events.end_ns.max())
    )
    found = [PHASES[number] for number in ops.phase]
    assert (found[0], found[-1]) == ("forward", "optimizer")
    assert set(found[5:7]) == {phase}
