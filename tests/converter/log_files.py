"""A synthetic job, and its logs in the formats of PyTorch and NCCL Inspector."""

import json
from dataclasses import dataclass, field

BEGIN_NS = 1_700_000_000_000_000_000
WORLD = "world"
US, MS = 1_000, 1_000_000
FLIGHT_NAMES = {"all_gather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base"}
NCCL_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "all_to_all": "All2All",
    "send": "Send",
    "recv": "Recv",
}


@dataclass
class Record:
    """One rank's record: *number* counts the group's collectives, times are those of the true clock."""

    group: str
    number: int
    name: str
    floats: int
    begin_ns: int
    end_ns: int | None
    peer: int = -1


@dataclass
class Job:
    """Ranks that compute and communicate; *ahead_ns* are the offsets of their clocks."""

    num_ranks: int
    groups: dict[str, list[int]] = field(default_factory=dict)
    ahead_ns: dict[int, int] = field(default_factory=dict)

    def __post_init__(self):
        self.groups = {WORLD: list(range(self.num_ranks)), **self.groups}
        self.now = dict.fromkeys(range(self.num_ranks), BEGIN_NS)
        self.records = {rank: [] for rank in range(self.num_ranks)}
        self.counts = dict.fromkeys(self.groups, 0)

    def compute(self, us):
        """Let each rank compute for *us*, a number or one number per rank."""
        for rank in self.now:
            self.now[rank] += (us if isinstance(us, int) else us.get(rank, 0)) * US

    def collective(
        self, name="all_reduce", group=WORLD, floats=1024, transfer_us=100, *, missing=(), sizes=None
    ):
        """Run a collective; with ranks *missing* it never ends. *sizes* are the sizes on single ranks."""
        self.counts[group] += 1
        members = [rank for rank in self.groups[group] if rank not in missing]
        end = None if missing else max(self.now[rank] for rank in members) + transfer_us * US
        for rank in members:
            size = (sizes or {}).get(rank, floats)
            self.records[rank].append(Record(group, self.counts[group], name, size, self.now[rank], end))
            self.now[rank] = end or self.now[rank]

    def message(self, source, target, group=WORLD, floats=256, transfer_us=50):
        """Send from rank *source* to rank *target*."""
        end = max(self.now[source], self.now[target]) + transfer_us * US
        members = self.groups[group]
        for rank, name, peer in ((source, "send", target), (target, "recv", source)):
            number = 1 + sum(record.peer >= 0 for record in self.records[rank])
            self.records[rank].append(
                Record(group, number, name, floats, self.now[rank], end, members.index(peer))
            )
            self.now[rank] = end

    def of(self, rank):
        """Yield the records of *rank* by its own clock, which is wrong."""
        ahead = self.ahead_ns.get(rank, 0)
        for record in self.records[rank]:
            end = None if record.end_ns is None else record.end_ns + ahead
            yield record, record.begin_ns + ahead, end

    def flight(self, rank, *, first=0, backend="nccl", timed=True, listed=True):
        """Return the flight recorder's dump of *rank*, from the record number *first*."""
        entries = []
        for number, (record, begin, end) in enumerate(self.of(rank)):
            members, peer = self.groups[record.group], record.peer >= 0
            name = FLIGHT_NAMES.get(record.name, record.name)
            if peer:
                arrow = "->" if record.name == "send" else "<-"
                name = f"{record.name} {members.index(rank)}{arrow}{record.peer}"
            given, taken = flight_sizes(record, len(members))
            entry = {
                "record_id": number,
                "pg_id": list(self.groups).index(record.group),
                "process_group": [str(list(self.groups).index(record.group)), record.group],
                "collective_seq_id": 0 if peer else record.number,
                "p2p_seq_id": record.number if peer else 0,
                "op_id": number + 1,
                "profiling_name": f"{backend}:{name}",
                "time_created_ns": begin,
                "input_sizes": given,
                "input_dtypes": ["Float"] * len(given),
                "output_sizes": taken,
                "output_dtypes": ["Float"] * len(taken),
                "state": "completed" if end and backend == "nccl" else "scheduled",
                "time_discovered_started_ns": 0,
                "time_discovered_completed_ns": end if end and backend == "nccl" else 0,
                "retired": end is not None,
                "timeout_ms": 600_000,
                "is_p2p": peer,
            }
            if timed and end is not None:
                entry["duration_ms"] = (end - begin) / MS
            entries.append(entry)
        config = {
            str(place): {"name": str(place), "desc": name, "ranks": str(members)}
            for place, (name, members) in enumerate(self.groups.items())
            if listed and rank in members
        }
        return {"version": "2.10", "entries": entries[first:], "pg_config": config, "pg_status": {}}

    def inspector(self, rank, *, verbose=False, marked=False):
        """Return NCCL Inspector's lines of *rank*: each with its header, or after markers with it."""
        lines = []
        counts = {}
        for record, begin, end in self.of(rank):
            members = self.groups[record.group]
            header = {
                "id": f"0x{list(self.groups).index(record.group) + 10:x}",
                "rank": members.index(rank),
                "n_ranks": len(members),
                "nnodes": 1,
            }
            about = {"header": header, "metadata": {"hostname": f"host{rank // 2}", "pid": 100 + rank}}
            kind = "p2p" if record.peer >= 0 else "coll"
            key = record.group, record.name
            counts[key] = counts.get(key, -1) + 1
            share = len(members) if record.name == "reduce_scatter" else 1
            perf = {
                kind: NCCL_NAMES[record.name],
                f"{kind}_sn": counts[key],
                f"{kind}_msg_size_bytes": 4 * record.floats // share,
                f"{kind}_exec_time_us": (end - begin) // US,
                f"{kind}_timing_source": "kernel_gpu",
                f"{kind}_algobw_gbs": 1.0,
                f"{kind}_busbw_gbs": 1.5,
            }
            if record.peer >= 0:
                perf["p2p_peer"] = record.peer
            if verbose:
                kernel = {"kernel_start_ts": begin // US, "kernel_stop_ts": end // US}
                perf["event_trace_ts"] = {f"{kind}_start_ts": begin // US, "kernel_events": [kernel]}
            if marked:
                lines.append(about | {"dump_stats": {f"{kind}_records": 1}})
            lines.append(({} if marked else about) | {f"{kind}_perf": perf})
        return "".join(json.dumps(line) + "\n" for line in lines)

    def write(self, folder, kind="flight", ranks=None, **options):
        """Write the logs of *ranks* (all) into *folder*, which is returned."""
        folder.mkdir(exist_ok=True, parents=True)
        for rank in range(self.num_ranks) if ranks is None else ranks:
            if kind == "flight":
                (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(self.flight(rank, **options)))
            else:
                name = f"host{rank // 2}-pid{100 + rank}.log"
                (folder / name).write_text(self.inspector(rank, **options))
        return folder


def flight_sizes(record, ranks):
    """Return the shapes of inputs and outputs of a record in a group of so many *ranks*."""
    if record.name == "all_gather":
        return [[record.floats]], [[record.floats * ranks]]
    if record.name == "reduce_scatter":
        return [[record.floats]], [[record.floats // ranks]]
    return [[record.floats]], [[record.floats]]


def straggling_job(steps=4, ahead_ns=None):
    """Return a job of two tensor-parallel pairs and two data-parallel pairs; rank 3 computes longest."""
    groups = {"tp-0": [0, 1], "tp-1": [2, 3], "dp-0": [0, 2], "dp-1": [1, 3]}
    job = Job(4, groups, ahead_ns or {})
    for _ in range(steps):
        job.compute({0: 1000, 1: 2000, 2: 1000, 3: 7000})
        job.collective("all_gather", "tp-0", 512)
        job.collective("all_gather", "tp-1", 512)
        job.compute(1000)
        job.collective("reduce_scatter", "dp-0", 4096, 300)
        job.collective("reduce_scatter", "dp-1", 4096, 300)
        job.compute(500)
        job.message(0, 1)
        job.collective(floats=2048, transfer_us=200)
    return job
