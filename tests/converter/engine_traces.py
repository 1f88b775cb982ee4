"""Kineto traces of an inference engine, or of a training loop, whose host may run ahead of the device."""

from dataclasses import dataclass, field

from kineto_trace import KinetoTrace


@dataclass
class Engine:
    """One host thread that issues batches of kernels to one stream; times in microseconds.

    A kernel begins once it is launched and the stream has come to it. *behind_us* is until when the device
    works on what was issued before the trace began.
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
