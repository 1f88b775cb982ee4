"""Write the traces that PyTorch's profiler would write of a host and its device.

`Engine` writes traces of an inference engine or a training loop whose host may run ahead of the device.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field

import numpy as np

from chakrascope.converter.readers import HostTrace, Kinds, tensors


class KinetoTrace:
    """A trace under construction, in microseconds."""

    def __init__(self, thread=1):
        self.events, self.thread, self.correlations = [], thread, 0

    def add(self, category, name, start, duration, tid=None, **args):
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid or self.thread}
        self.events.append(event | {"ts": start, "dur": duration, "args": args})

    def op(self, name, start, duration, record=0, **args):
        """Add an operator; a *record* links its calls to it."""
        ids = {"External id": record, "Record function id": record} if record else {}
        self.add("cpu_op", name, start, duration, **ids, **args)

    def call(self, name, start, duration, **args):
        """Add a call of the runtime, and return its correlation."""
        self.correlations += 1
        self.add("cuda_runtime", name, start, duration, **{"correlation": self.correlations} | args)
        return self.correlations

    def work(self, name, start, duration, correlation, *, category="kernel", stream=7, **args):
        """Add device work that a call issues."""
        about = {"correlation": correlation, "stream": stream, "device": 0}
        self.add(category, name, start, duration, tid=stream, **about | args)

    def launch(self, call, works, *, name="cudaLaunchKernel", work="gemm", **about):
        """Add a call and the works that it issues, each from start with a duration."""
        correlation = self.call(name, *call)
        for start, duration in works:
            self.work(work, start, duration, correlation, **about)

    def write(self, path, **head):
        """Write the trace beginning with *head*; return *path*."""
        path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": self.events}))
        return path


def read_json(path):
    """Return the document at *path*, which may be compressed."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def edit_json(path, change, target=None):
    """Write the document at *path* after the function *change* has modified it, to *path* or *target*."""
    document = read_json(path)
    change(document)
    data = json.dumps(document).encode()
    target = target or path
    target.write_bytes(gzip.compress(data, 1) if target.suffix == ".gz" else data)


@dataclass
class Engine:
    """One host thread that issues batches of kernels to one stream; times in microseconds.

    A kernel begins when it has been launched and earlier work of the stream has ended. Until *behind_us*, the
    device works on kernels issued before the trace began.
    """

    behind_us: float = 0.0
    now: float = 1000.0
    trace: KinetoTrace = field(default_factory=KinetoTrace)
    spans: list = field(default_factory=list)

    def __post_init__(self):
        self.free = self.behind_us

    def step(self, name, kernels, *, host_us=20.0, pause_us=0.0, inner=""):
        """Run one batch: *kernels* are durations, each launched after *host_us* of an operator."""
        start = self.now
        for duration in kernels:
            self._launch(duration, host_us)
        self.now += 1.0
        self._mark(name, start)
        if inner:
            self._mark(inner, start + 0.5, shorter=0.5)
        self.spans.append((start, self.now, self.free))
        self.now += pause_us

    def _mark(self, name, start, shorter=0.0):
        self.trace.add("user_annotation", name, start, self.now - shorter - start)

    def _launch(self, duration, host_us):
        start = self.now
        call = start + host_us - 5
        begin = max(call + 6.0, self.free)
        self.trace.launch((call, 4.0), [(begin, duration)])
        self.trace.op("aten::mm", start, host_us, **{"External id": self.trace.correlations})
        self.free = begin + duration
        self.now = start + host_us

    def write(self, path, rank=0, world_size=1):
        """Write the trace; returns *path*."""
        about = {"rank": rank, "world_size": world_size, "backend": "nccl"}
        return self.trace.write(path, distributedInfo=about)


def host_trace(operators):
    """Return the host trace of *operators* by record-function id; their tensors must have storages."""
    kinds, storages, offsets, rows = {}, [], [], []
    for _, op in sorted(operators.items()):
        first, inputs, outputs = tensors(op.inputs[:1]), tensors(op.inputs), tensors(op.outputs)
        begin, ends = len(storages), len(storages) + len(inputs)
        sides = [_anonymous(op.inputs), _anonymous(op.outputs)]
        kind = (op.name, op.schema, json.dumps([*sides, op.shapes, op.output_shapes, op.types]))
        storages += [tensor.storage for tensor in [*inputs, *outputs]]
        offsets += [tensor.offset for tensor in [*inputs, *outputs]]
        rows.append((kinds.setdefault(kind, len(kinds)), begin, len(storages), ends, begin + len(first)))
    names = ("kind", "begin", "end", "inputs_end", "first_end")
    return HostTrace(
        records=np.array(sorted(operators), dtype=np.int64),
        thread=np.zeros(len(rows), dtype=np.int64),
        storages=np.array(storages, dtype=np.int64),
        offsets=np.array(offsets, dtype=np.int64),
        kinds=Kinds(*zip(*kinds, strict=True)) if kinds else Kinds([], [], []),
        **dict(zip(names, np.array(rows, dtype=np.int64).reshape(-1, 5).T, strict=True)),
    )


def _anonymous(value):
    """Return *value* with the identity of its tensors removed."""
    if type(value) is not list:
        return value
    is_tensor = len(value) == 6 and type(value[5]) is str
    return [0, 0, 0, *value[3:]] if is_tensor else [_anonymous(part) for part in value]
