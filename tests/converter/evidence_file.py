"""Write the evidence that the tracer records on a rank, in microseconds."""

import gzip
import json

TABLES = {
    "steps": "index time_ns cpu_ns process_cpu_ns delay_ns voluntary involuntary read_bytes written_bytes "
    "gc_ns loader_ns fetch_ns recorded forward_ns backward_ns collective_ns optimizer_ns idle_ns "
    "compile_ns faults system_ns",
    "samples": "time_ns late_ns thread stack cpu_ns delay_ns wait",
    "counters": "time_ns process_cpu_ns read_bytes written_bytes disk_read_bytes disk_written_bytes "
    "throttled_periods throttled_ns",
    "collections": "start_ns end_ns generation thread collected",
}


class EvidenceFile:
    """The evidence of a rank whose thread 0 steps; a frame is (function, path, line, origin[, call])."""

    def __init__(self):
        self.rows = {name: [] for name in TABLES}
        self.files, self.frames, self.stacks, self.waits = [], [], [(-1, -1)], [""]
        self.loaders, self.end_ns = [], 0

    def sample(self, time, *frames, cpu, thread=0, late=0, wait="", delay=0):
        """Add a sample; *cpu* and *delay* are the thread's totals so far."""
        stack = 0
        for frame in reversed(frames):
            stack = place(self.stacks, (stack, place(self.frames, self._frame(frame))))
        self._add("samples", time, late, (thread,), (stack,), cpu, delay, (place(self.waits, wait),))

    def collection(self, start, end, generation=2):
        self._add("collections", start, end, (generation,), (0,), (10,))

    def step(
        self, index, time, *, recorded=0, cpu=0, process_cpu=0, delay=0, gc=0, loader=0, collective=0,
        forward=0, backward=0, idle=(-1,), compiling=0, faults=0, system=0,
    ):  # fmt: skip
        values = [(-1,)] * 12
        values[:5] = [(index,), time, cpu, process_cpu, delay]
        values[9:11] = [gc, loader]
        phases = (forward, backward, collective, 0)
        self._add("steps", *values, (recorded,), *phases, idle, compiling, (faults,), system)

    def loader(self, dataset, path, line, workers):
        self.loaders.append(
            {
                "dataset": dataset, "file": place(self.files, (path, "script")), "line": line,
                "collate": "default_collate", "workers": workers, "start_method": "fork", "batch_size": 8,
                "pin_memory": False,
            }
        )  # fmt: skip

    def _frame(self, frame):
        function, path, line, origin, *call = frame
        return (function, place(self.files, (path, origin)), line, *(call or [""]))

    def _add(self, table, *values):
        """Add a row; plain values are microseconds, values in tuples stay as they are."""
        row = [value[0] if isinstance(value, tuple) else value * 1000 for value in values]
        self.rows[table].append(row)

    def write(self, path, rank=0, cores=0, quota=0.0, *, page_fault_ns=0, bfloat16=None):
        document = {"format": "chakrascope-evidence", "version": 1, "rank": rank, "pid": 1, "thread": 7}
        for name, columns in TABLES.items():
            values = zip(*self.rows[name], strict=True) if self.rows[name] else [[] for _ in columns.split()]
            document[name] = dict(zip(columns.split(), map(list, values), strict=True))
        threads = 1 + max(document["samples"]["thread"], default=0)
        document |= {
            "threads": [{"tid": 7 + number, "name": f"Thread-{number}"} for number in range(threads)],
            "files": [{"path": path, "origin": origin} for path, origin in self.files],
            "frames": self.frames,
            "stacks": self.stacks,
            "waits": self.waits,
            "loaders": self.loaders,
            "steps_total": 10,
            "step_histogram": [],
            "switch_interval_ns": 5_000_000,
            "sampling": {"on": True, "cpu_ns": 0, "samples": len(self.rows["samples"])},
            "end_ns": 1 << 60,
            "cores": cores,
            "quota_cores": quota,
            "page_fault_ns": page_fault_ns,
            "bfloat16": bfloat16,
        }
        path.write_bytes(gzip.compress(json.dumps(document).encode()))


def place(table, value):
    """Return the index of *value* in *table*, after adding it if it is missing."""
    if value not in table:
        table.append(value)
    return table.index(value)
