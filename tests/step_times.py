"""Write synthetic recordings in the format of `trace --steps 0`."""

import gzip
import json

PHASES = ("loader", "forward", "backward", "collective", "optimizer")
COLUMNS = (*(f"{name}_ns" for name in PHASES), "time_ns")
OTHERS = (
    "cpu_ns", "process_cpu_ns", "delay_ns", "voluntary", "involuntary", "read_bytes", "written_bytes",
    "gc_ns", "fetch_ns",
)  # fmt: skip


def part(rank, steps, first=0, sends=(), **changes):
    """Return a part of the file of *rank*; *steps* are of PHASES and the step's time, in milliseconds."""
    rows = [[0] * 6]
    for step in steps:
        rows.append([total + ms * 1_000_000 for total, ms in zip(rows[-1], step, strict=True)])
    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    count = len(rows)
    columns["time_ns"] = [10**18 + value for value in columns["time_ns"]]
    columns |= {"index": list(range(first, first + count)), "recorded": [0] * count}
    columns |= {name: [0] * count for name in OTHERS} | changes
    document = {"format": "chakrascope-steps", "version": 1, "rank": rank, "sends": sends, "steps": columns}
    return gzip.compress(json.dumps(document).encode(), mtime=0)


def recording(folder, files, warmup=0):
    """Write the recording with the content of each rank's file."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, content in enumerate(files):
        (folder / f"rank{rank}.steps.json.gz").write_bytes(content)
    manifest = {
        "format": "chakrascope-trace-set", "version": 1, "partial": False, "reasons": [], "command": [],
        "exit_code": 0, "world_size": len(files), "options": {"warmup": warmup, "steps": 0},
        "ranks": [
            {"rank": rank, "step_times": f"rank{rank}.steps.json.gz"} for rank, _ in enumerate(files)
        ],
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def data_parallel_job(
    folder, *, ranks=4, count=40, slow=None, phase="forward", extra=30, wanted=lambda _: True
):
    """Write a job whose rank *slow* spends *extra* ms more on *phase* in the *wanted* steps."""
    files = []
    for rank in range(ranks):
        steps = []
        for number in range(count):
            taken = {
                "loader": 1,
                "forward": 20 + (rank + number) % 2,
                "backward": 40,
                "pause": 0,
                "optimizer": 5,
            }
            late = extra if slow is not None and wanted(number) else 0
            taken["collective"] = 10 + (rank + number + 1) % 2 + late * (rank != slow)
            taken[phase] += late * (rank == slow)
            steps.append([*(taken[name] for name in PHASES), sum(taken.values())])
        files.append(part(rank, steps))
    return recording(folder, files)
