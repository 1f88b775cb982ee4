"""Traces taken with Python stacks: modules of operators, and the functions in which a host stalls."""

import gzip
import json

import pytest

from chakrascope.converter import convert_files

MAIN = 11


class Stacks:
    """Makes a trace of one host thread and one stream, with Python frames (microseconds)."""

    def __init__(self):
        self.events = []

    def add(self, category, name, start, end, tid=MAIN, **args):
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": end - start,
             "args": args}
        )  # fmt: skip

    def frame(self, name, start, end):
        self.add("python_function", name, start, end)

    def launch(self, operator, start, sequence=-1):
        """An operator of 20 us that launches a kernel."""
        number = len(self.events)
        self.add("cpu_op", operator, start, start + 20, **{"Sequence number": sequence})
        self.add("cuda_runtime", "cudaLaunchKernel", start + 5, start + 9, correlation=number)
        self.add("kernel", "gemm", start + 12, start + 18, 7, correlation=number, stream=7, device=0)

    def nodes(self, folder):
        path = folder / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return convert_files(device_trace=str(path)).graphs[0].nodes


def model(trace):
    """A forward pass of two linear layers in a model, and the backward pass of the first."""
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.frame("train.py(40): step", 1, 4990)
    trace.frame("nn.Module: Net_0", 100, 300)
    trace.frame("torch/nn/modules/module.py(1743): _call_impl", 101, 299)
    trace.frame("net.py(12): forward", 102, 298)
    for number, start in ((0, 110), (1, 200)):
        trace.frame(f"nn.Module: Linear_{number}", start, start + 30)
        trace.launch("aten::linear", start + 5, sequence=number)
    trace.add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 400, 430,
              **{"Sequence number": 0})  # fmt: skip
    trace.launch("aten::mm", 405)
    trace.launch("aten::add_", 4900)


def test_modules_are_those_of_the_python_frames(tmp_path):
    trace = Stacks()
    model(trace)
    nodes = trace.nodes(tmp_path)
    kernels = nodes[nodes["name"] == "gemm"]
    assert kernels["module"].tolist() == ["Net_0.Linear_0", "Net_0.Linear_1", "Net_0.Linear_0", ""]
    assert kernels["operator"].tolist() == ["aten::linear", "aten::linear", "aten::mm", "aten::add_"]


def test_modules_that_the_tracer_marked_count_before_those_of_frames(tmp_path):
    trace = Stacks()
    model(trace)
    trace.add("cpu_op", "chakrascope::module layers.0", 114, 139)
    nodes = trace.nodes(tmp_path)
    assert nodes[nodes["name"] == "gemm"]["module"].tolist() == ["layers.0", "", "layers.0", ""]


@pytest.mark.parametrize(
    ("frames", "place", "cause"),
    [
        (["train.py(52): shuffle"], "shuffle (train.py:52)", "python"),
        (["data/tokens.py(7): pad", "torch/functional.py(3): stack"], "pad (data/tokens.py:7)", "python"),
        (["copy.py(128): deepcopy"], "step (train.py:40)", "python"),
        (["train.py(9): pause", "<built-in function sleep>"], "pause (train.py:9)", "sleep"),
        (["/opt/conda/lib/python3.11/site-packages/acme/io.py(5): load"],
         "load (/opt/conda/lib/python3.11/site-packages/acme/io.py:5)", "python"),
        (["/usr/lib/python3.11/json/decoder.py(332): decode"], "step (train.py:40)", "python"),
        (["torch/utils/data/dataloader.py(700): _next_data"], "step (train.py:40)", "input_pipeline"),
    ],
)  # fmt: skip
def test_a_stall_outside_operators_is_placed_in_its_innermost_function(tmp_path, frames, place, cause):
    trace = Stacks()
    model(trace)
    for depth, name in enumerate(frames):
        trace.frame(name, 1000 + depth, 4000 - depth)
    nodes = trace.nodes(tmp_path)
    stall = nodes.loc[nodes["duration_ns"].idxmax()]
    assert (stall["kind"], stall["place"], stall["cause"]) == ("host", place, cause)
    assert stall["duration_ns"] >= 2_990_000


def test_a_stall_without_frames_is_placed_in_the_innermost_annotation(tmp_path):
    trace = Stacks()
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.launch("aten::linear", 100)
    trace.add("user_annotation", "epoch 4", 900, 4800)
    trace.add("user_annotation", "shuffle the buffer", 1000, 4000)
    trace.launch("aten::add_", 4900)
    nodes = trace.nodes(tmp_path)
    assert nodes.loc[nodes["duration_ns"].idxmax()]["place"] == "annotation shuffle the buffer"


def test_a_stall_in_an_operator_keeps_its_operator_and_has_a_place(tmp_path):
    trace = Stacks()
    model(trace)
    trace.frame("train.py(61): clip", 1000, 4000)
    trace.add("cpu_op", "aten::unique_consecutive", 1100, 3900)
    nodes = trace.nodes(tmp_path)
    stall = nodes.loc[nodes["duration_ns"].idxmax()]
    assert (stall["operator"], stall["place"]) == ("aten::unique_consecutive", "clip (train.py:61)")


def test_frames_of_impossible_times_are_ignored(tmp_path):
    trace = Stacks()
    model(trace)
    expected = len(trace.nodes(tmp_path))
    for start, duration in (("soon", 900), (10, -5), (1e300, 900)):
        trace.frame("x.py(1): f", 0, 0)
        trace.events[-1] |= {"ts": start, "dur": duration}
    assert len(trace.nodes(tmp_path)) == expected


def test_modules_of_a_public_trace(data_dir):
    path = data_dir / "converter" / "kineto" / "bert_small_h100.json.gz"
    nodes = convert_files(device_trace=str(path)).graphs[0].nodes
    kernels = nodes[(nodes["kind"] == "compute") & ~nodes["is_cpu_op"]]
    inside = kernels["module"].str.startswith("BertLMHeadModel_0")
    frames = [
        event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if str(event.get("name", "")).startswith("nn.Module: ")
    ]  # fmt: skip
    assert len(frames) == 84
    assert inside.mean() > 0.9
    attention = kernels["module"].str.contains(r"BertLayer_\d+\.BertAttention_\d+\.BertSdpaSelfAttention_\d+")
    assert attention.sum() >= 12
