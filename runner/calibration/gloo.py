"""Measure the collectives of gloo on the network between the ranks.

Start ``python -m chakrascope.runner.calibration.gloo FILE`` on every rank as a training job is started, with
``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
``MASTER_PORT``; rank 0 writes the file that `gloo_records` reads. It needs PyTorch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from ...support import parse_size, write_file

_SMALLEST, _LARGEST, _STEP = 4096, 64 << 20, 4
_REPEATS = 5
_ENOUGH_S = 0.5  # no larger messages once one collective takes so long
_PAUSE_S = 0.002  # so that the ranks come together, as after some computation


def main() -> None:
    """Measure and write; rank 0 says where."""
    parser = argparse.ArgumentParser(description="Measure gloo's collectives between the ranks.")
    parser.add_argument("output", type=Path, help="the JSON file that rank 0 writes")
    parser.add_argument("--largest", default=str(_LARGEST), help="size of the largest message, such as 4MiB")
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    hosts: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    calls = [
        {"operation": operation, "size_bytes": size, "durations_ns": durations}
        for operation, size, durations in _measured(parse_size(options.largest), options.repeats)
    ]
    if dist.get_rank() == 0:
        measured = {"library": "gloo", "hosts": hosts, "calls": calls}
        write_file(options.output, json.dumps(measured).encode())
        print(f"Measured {len(calls)} collectives on {len(hosts)} ranks: {options.output}", flush=True)
    dist.destroy_process_group()


def _measured(largest: int, repeats: int) -> Iterator[tuple[str, int, list[int]]]:
    """Yield operation, the bytes that one rank gives, and how long each rank was in it.

    The largest size comes first: what TCP has learned of the path is then what it knows during a job, and not
    what it believes after small messages only.
    """
    sizes = []
    for size in itertools.takewhile(lambda size: size <= largest, _sizes()):
        sizes.append(size)
        if max(max(_timed(call)) for _, _, call in _operations(size)) > _ENOUGH_S * 1e9:
            break
    for size in reversed(sizes):
        for operation, given, call in _operations(size):
            for _ in range(repeats):
                yield operation, given, _timed(call)


def _sizes() -> Iterator[int]:
    size = _SMALLEST
    while True:
        yield size
        size *= _STEP


def _timed(call: Callable[[], object]) -> list[int]:
    """Return how long each rank was in the call, in ns."""
    dist.barrier()
    time.sleep(_PAUSE_S)
    started = time.perf_counter_ns()
    call()
    own = torch.tensor([time.perf_counter_ns() - started])
    everyone = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [int(each) for each in everyone]


def _operations(size: int) -> list[tuple[str, int, Callable[[], object]]]:
    """Return the collectives of *size* bytes in all: their name, what one rank gives, and the call."""
    ranks = dist.get_world_size()
    share = max(1, size // 4 // ranks)
    part, whole, other = torch.zeros(share), torch.zeros(share * ranks), torch.zeros(share * ranks)
    return [
        ("all_reduce", whole.nbytes, lambda: dist.all_reduce(whole)),
        ("all_gather", part.nbytes, lambda: dist.all_gather_into_tensor(whole, part)),
        ("reduce_scatter", whole.nbytes, lambda: dist.reduce_scatter_tensor(part, whole)),
        ("all_to_all", whole.nbytes, lambda: dist.all_to_all_single(other, whole)),
    ]


if __name__ == "__main__":
    main()
