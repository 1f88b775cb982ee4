"""Kineto traces of an inference engine, or of a training loop, whose host may run ahead of the device."""

import json
from dataclasses import dataclass, field


@dataclass
class Engine:
    """One host thread that issues batches of kernels to one stream; times in microseconds.

    A kernel begins once it is launched and the stream has come to it. *behind_us* is until when the device
    works on what was issued before the trace began.
    """

    behind_us: float = 0.0
    now: float = 1000.0
    events: list = field(default_factory=list)
    correlation: int = 0
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
        self._event("user_annotation", name, (start, self.now - shorter - start), {})

    def _launch(self, duration, host_us):
        self.correlation += 1
        start = self.now
        call = start + host_us - 5
        self._event("cuda_runtime", "cudaLaunchKernel", (call, 4.0), {"correlation": self.correlation})
        self._event("cpu_op", "aten::mm", (start, host_us), {"External id": self.correlation})
        begin = max(call + 6.0, self.free)
        args = {"correlation": self.correlation, "device": 0, "stream": 7}
        self._event("kernel", "gemm", (begin, duration), args, thread="stream 7")
        self.free = begin + duration
        self.now = start + host_us

    def _event(self, category, name, time, args, thread=1):
        start, duration = time
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": duration,
             "args": args}
        )  # fmt: skip

    def write(self, path, rank=0, world_size=1):
        """Write the trace; returns *path*."""
        about = {"rank": rank, "world_size": world_size, "backend": "nccl"}
        document = {"schemaVersion": 1, "distributedInfo": about, "traceEvents": self.events}
        path.write_text(json.dumps(document))
        return path
