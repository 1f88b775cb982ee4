"""Measure the collectives and messages of gloo on the network between the ranks.

Start ``python -m chakrascope.runner.calibration.gloo FILE`` on every rank like a training job, with ``RANK``,
``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``. Rank 0 writes the file that `gloo_records` reads. The
program needs PyTorch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ...support import parse_size, write_file

_SMALLEST, _LARGEST, _STEP = 4096, 64 << 20, 4
_REPEATS = 5
_ENOUGH_S = 0.5  # above this time of a collective, no larger messages are measured
_PAUSE_S = 0.005  # pause before a call, so that earlier traffic ends
_LATE_S = 0.005  # delay of the last rank, after which the other ranks have arrived


class _Call(NamedTuple):
    """An operation with its bytes per rank of *members*, timed over *turns* consecutive operations.

    *begin* starts the operation, and returns the handle to wait for, if any. The first *last_rank* members
    take turns at arriving last. In a *rooted* operation, some ranks notice the end only at the next barrier.
    """

    operation: str
    size_bytes: int
    members: tuple[int, ...]
    begin: Callable[[], dist.Work | None]
    last_rank: int
    turns: int = 1
    rooted: bool = False


def main() -> None:
    """Measure gloo's calls on all ranks, and write the file on rank 0, which prints its path."""
    parser = argparse.ArgumentParser(description="Measure gloo between the ranks.")
    parser.add_argument("output", type=Path, help="the JSON file that rank 0 writes")
    parser.add_argument("--largest", default=str(_LARGEST), help="size of the largest message, such as 4MiB")
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    hosts: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    calls = list(_measured(parse_size(options.largest), options.repeats))
    if dist.get_rank() == 0:
        measured = {"library": "gloo", "hosts": hosts, "calls": calls}
        write_file(options.output, json.dumps(measured).encode())
        print(
            f"Measured {len(calls)} collectives and messages on {len(hosts)} ranks: {options.output}",
            flush=True,
        )
    dist.destroy_process_group()


def _measured(largest: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield, for each call, its description, the last member to arrive, and the duration on each member.

    The time to request a collective is excluded, because a captured job counts this time as host time before
    the collective. The shortest request time is used, because gloo's threads may run before the requesting
    thread continues. The members take turns at arriving last, as in a job. The order of arrival affects the
    duration, because gloo's requests to peers may wait for data that gloo sends to these peers. The largest
    size comes first, so that TCP's state of the path is the same as during a job with large messages.
    """
    sizes = []
    for size in itertools.takewhile(lambda size: size <= largest, _sizes()):
        sizes.append(size)
        if max(own.all_ns for call in _calls(size) for own in _timed(call)) > _ENOUGH_S * 1e9:
            break
    meeting_ns = _meeting(repeats)
    for size in reversed(sizes):
        for call in _calls(size):
            lasts = [call.members[repeat % call.last_rank] for repeat in range(repeats)]
            times = [_timed(call, last) for last in lasts]
            request_ns = min(each[rank].request_ns for each in times for rank in call.members)
            beyond_ns = request_ns + (meeting_ns if call.rooted else 0)
            for last, durations in zip(lasts, times, strict=True):
                yield {
                    "operation": call.operation,
                    "size_bytes": call.size_bytes,
                    "members": list(call.members),
                    "last": last,
                    "durations_ns": [
                        max(1, durations[rank].all_ns - beyond_ns) // call.turns for rank in call.members
                    ],
                }


def _meeting(repeats: int) -> int:
    """Return the duration in ns of the barrier after rooted collectives, on the last rank to arrive."""
    everyone = tuple(range(dist.get_world_size()))
    call = _Call("barrier", 0, everyone, lambda: dist.barrier(async_op=True), len(everyone))
    lasts = [everyone[repeat % len(everyone)] for repeat in range(repeats)]
    return round(statistics.median(_timed(call, last)[last].all_ns for last in lasts))


def _sizes() -> Iterator[int]:
    size = _SMALLEST
    while True:
        yield size
        size *= _STEP


class _Times(NamedTuple):
    """The duration of a call on a rank, and the time to request the call, in ns (0: unknown)."""

    all_ns: int
    request_ns: int


def _timed(call: _Call, last: int | None = None) -> list[_Times]:
    """Return the times of each rank for a call at which rank *last* arrives when all others wait."""
    dist.barrier()
    rank = dist.get_rank()
    _compute(_PAUSE_S + (_LATE_S if rank == last else 0))
    started = asked = time.perf_counter_ns()
    if rank in call.members and (work := call.begin()) is not None:
        asked = time.perf_counter_ns()
        work.wait()
    if call.rooted:
        dist.barrier()
    own = torch.tensor([time.perf_counter_ns() - started, asked - started])
    everyone = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [_Times(*each.tolist()) for each in everyone]


def _compute(seconds: float) -> None:
    """Keep the processor busy for *seconds*, as a job does before it communicates.

    After a sleep, the system gives gloo's threads less CPU time. An all-reduce of 64 KiB at 500 Mbit/s, with
    a core for each rank, took 1.2 to 1.5 ms or 5 to 7 ms after a sleep, and 1.2 to 2.8 ms after computation.
    """
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def _calls(size: int) -> list[_Call]:
    """Return the collectives of *size* bytes in total, and messages of *size* bytes between two ranks."""
    ranks = dist.get_world_size()
    everyone, ends = tuple(range(ranks)), (0, ranks - 1)
    share = max(1, size // 4 // ranks)
    part, whole, other = torch.zeros(share), torch.zeros(share * ranks), torch.zeros(share * ranks)
    peer = ends[0] + ends[1] - dist.get_rank()  # peer of this rank, which is the first or the last rank

    parts, is_root = list(other.split(share)), dist.get_rank() == 0

    def there_and_back() -> None:
        for sender in ends:
            dist.send(whole, peer) if sender == dist.get_rank() else dist.recv(other, peer)

    def both_directions() -> None:
        works = (dist.isend(whole, peer), dist.irecv(other, peer))
        for work in works:
            if work is not None:
                work.wait()

    collectives: list[tuple[str, torch.Tensor, Callable[[], dist.Work | None]]] = [
        ("all_reduce", whole, lambda: dist.all_reduce(whole, async_op=True)),
        ("all_gather", part, lambda: dist.all_gather_into_tensor(whole, part, async_op=True)),
        ("reduce_scatter", whole, lambda: dist.reduce_scatter_tensor(part, whole, async_op=True)),
        ("all_to_all", whole, lambda: dist.all_to_all_single(other, whole, async_op=True)),
    ]
    rooted: list[tuple[str, torch.Tensor, Callable[[], dist.Work | None]]] = [
        ("broadcast", whole, lambda: dist.broadcast(whole, 0, async_op=True)),
        ("reduce", whole, lambda: dist.reduce(whole, 0, async_op=True)),
        ("gather", part, lambda: dist.gather(part, parts if is_root else None, 0, async_op=True)),
        ("scatter", part, lambda: dist.scatter(part, parts if is_root else None, 0, async_op=True)),
    ]
    return [
        *(_Call(name, given.nbytes, everyone, begin, ranks) for name, given, begin in collectives),
        *(_Call(name, given.nbytes, everyone, begin, ranks, rooted=True) for name, given, begin in rooted),
        _Call("message", whole.nbytes, ends, there_and_back, 1, turns=2),
        _Call("exchange", whole.nbytes, ends, both_directions, 2),
    ]


if __name__ == "__main__":
    main()
