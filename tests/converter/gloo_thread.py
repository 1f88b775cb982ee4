"""Write the traces that PyTorch would record of a thread that communicates through gloo."""

import json
from itertools import count

ALL_REDUCE = "c10d::allreduce_"
SCHEMAS = {ALL_REDUCE: "allreduce_(Tensor[] tensors) -> Tensor[]", "aten::add_": "add_(Tensor(a!) self)"}
VIEWS = {"aten::as_strided", "aten::view"}
IN_PLACE = {ALL_REDUCE, "aten::add_"}


class Thread:
    """The training thread of one rank, in microseconds; writes the traces of PyTorch's profiler."""

    def __init__(self, rank):
        self.rank, self.records = rank, count(10)
        self.events, self.nodes, self.flights = [], [], []

    def op(self, name, start, end, storage, length=1024):
        record = next(self.records)
        tensor = [record, storage, 0, length, 4, "cpu"]
        result = tensor if name in VIEWS | IN_PLACE else [record, 1000 + record, 0, length, 4, "cpu"]
        as_list = name == ALL_REDUCE
        attrs = [{"name": "rf_id", "value": record}, {"name": "op_schema", "value": SCHEMAS.get(name, "")}]
        inputs, outputs = (
            {"values": [[side] if as_list else side], "shapes": [], "types": []} for side in (tensor, result)
        )
        node = {"id": record, "name": name, "attrs": attrs, "inputs": inputs, "outputs": outputs}
        self.nodes.append(node)
        self._event("cpu_op", name, (start, end), record, thread=7)

    def all_reduce(self, start, end, storage, closes, *, entered=None, group="0"):
        """Issue an all-reduce whose annotation *closes* on another thread."""
        self.op(ALL_REDUCE, start, end, storage)
        span = (start + 1, closes)
        self._event("user_annotation", "gloo:all_reduce", span, next(self.records), thread=8)
        self.enter(start if entered is None else entered, group)

    def message(self, name, start, end, *, opens, closes):
        """Issue a send or receive to or from rank 1 whose annotation *opens* and *closes*."""
        self.op(name, start, end, 5)
        values = self.nodes[-1]["inputs"]["values"]
        self.nodes[-1]["inputs"]["values"] = [values, "<Object>", 1, 0]
        self._event("user_annotation", "gloo:message", (opens, closes), next(self.records), thread=7)

    def mark(self, name, start, end, category="user_annotation"):
        self._event(category, name, (start, end), next(self.records), thread=7)

    def enter(self, time_us, group="0"):
        number = len(self.flights) + 1
        flight = {"collective_seq_id": number, "process_group": [group, ""], "is_p2p": False}
        self.flights.append(flight | {"time_created_ns": time_us * 1000, "time_ended_ns": 0})

    def _event(self, category, name, times, record, *, thread):
        args = {"External id": record, "Record function id": record}
        span = {"ph": "X", "tid": thread, "ts": times[0], "dur": times[1] - times[0], "args": args}
        self.events.append({"cat": category, "name": name, **span})

    def write(self, folder, steps):
        names = {name: f"rank{self.rank}.{name}.json" for name in ("host", "device", "comms")}
        (folder / names["host"]).write_text(json.dumps({"schema": "1.1.1", "nodes": self.nodes}))
        (folder / names["device"]).write_text(json.dumps({"traceEvents": self.events}))
        (folder / names["comms"]).write_text(json.dumps({"entries": self.flights}))
        return {
            "rank": self.rank,
            "host_trace": names["host"],
            "device_trace": names["device"],
            "flight_record": names["comms"],
            "process_groups": [{"name": "0", "ranks": [0, 1]}],
            "steps": [
                {"index": index, "start_ns": start * 1000, "end_ns": end * 1000}
                for index, (start, end) in enumerate(steps)
            ],
        }


def write_trace_set(folder, ranks):
    """Write the manifest of *ranks*, the return values of `Thread.write`."""
    manifest = {"format": "chakrascope-trace-set", "version": 1, "partial": False, "reasons": []}
    manifest |= {"command": ["train.py"], "exit_code": 0, "world_size": len(ranks), "ranks": ranks}
    (folder / "manifest.json").write_text(json.dumps(manifest))
