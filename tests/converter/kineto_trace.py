"""Write the traces that PyTorch's profiler would have written of a host and its device."""

import gzip
import json


class KinetoTrace:
    """A trace in the making; times are microseconds."""

    def __init__(self, thread=1):
        self.events, self.thread, self.correlations = [], thread, 0

    def add(self, category, name, start, duration, tid=None, **args):
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid or self.thread}
        self.events.append(event | {"ts": start, "dur": duration, "args": args})

    def op(self, name, start, duration, record=0, **args):
        """Add an operator, by which its calls are known if it has a *record*."""
        ids = {"External id": record, "Record function id": record} if record else {}
        self.add("cpu_op", name, start, duration, **ids, **args)

    def call(self, name, start, duration, **args):
        """Add a call of the runtime, and return its correlation."""
        self.correlations += 1
        self.add("cuda_runtime", name, start, duration, **{"correlation": self.correlations} | args)
        return self.correlations

    def work(self, name, start, duration, correlation, *, category="kernel", stream=7, **args):
        """Add what the device does because of a call."""
        about = {"correlation": correlation, "stream": stream, "device": 0}
        self.add(category, name, start, duration, tid=stream, **about | args)

    def launch(self, call, works, *, name="cudaLaunchKernel", work="gemm", **about):
        """Add a call, from start for duration, and the works it issues, each likewise."""
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
    """Write the document at *path*, after *change* has been at it, there or to *target*."""
    document = read_json(path)
    change(document)
    data = json.dumps(document).encode()
    target = target or path
    target.write_bytes(gzip.compress(data, 1) if target.suffix == ".gz" else data)
