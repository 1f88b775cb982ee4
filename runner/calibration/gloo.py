"""Measure the collectives and messages of gloo on the network between the ranks.

Start ``python -m chakrascope.runner.calibration.gloo FILE`` on every rank as a training job is started, with
``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
``MASTER_PORT``; rank 0 writes the file that `gloo_records` reads. It needs PyTorch.
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
_ENOUGH_S = 0.5  # no larger messages once one collective takes so long
_PAUSE_S = 0.005  # so that nothing is under way any more, as after some computation
_LATE_S = 0.005  # the others have come by then


class _Call(NamedTuple):
    """An operation on the bytes that each of *members* gives; *turns* of it, one after the other, are one.

    Each of the first *comes_last* members comes last in its turn. Of a *rooted* one some rank knows its end
    only once all have met again.
    """

    operation: str
    size_bytes: int
    members: tuple[int, ...]
    run: Callable[[], object]
    comes_last: int
    turns: int = 1
    rooted: bool = False


def main() -> None:
    """Measure and write; rank 0 says where."""
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
    """Yield each call: what it was, which of its members came last, and how long each was in it.

    Each member comes last in its turn, as in a job some rank does: what gloo asks its peers for may have to
    wait for what it sends them, and then the order in which they come tells how long all of it takes.
    The largest size comes first: what TCP has learned of the path is then what it knows during a job, and not
    what it believes after small messages only.
    """
    sizes = []
    for size in itertools.takewhile(lambda size: size <= largest, _sizes()):
        sizes.append(size)
        if max(max(_timed(call)) for call in _calls(size)) > _ENOUGH_S * 1e9:
            break
    meeting_ns = _meeting(repeats)
    for size in reversed(sizes):
        for call in _calls(size):
            for repeat in range(repeats):
                last = call.members[repeat % call.comes_last]
                durations = _timed(call, last)
                beyond = meeting_ns if call.rooted else 0
                yield {
                    "operation": call.operation,
                    "size_bytes": call.size_bytes,
                    "members": list(call.members),
                    "last": last,
                    "durations_ns": [max(1, durations[rank] - beyond) // call.turns for rank in call.members],
                }


def _meeting(repeats: int) -> int:
    """Return what it takes the rank that comes last to meet all others, which follows rooted collectives."""
    everyone = tuple(range(dist.get_world_size()))
    call = _Call("barrier", 0, everyone, dist.barrier, len(everyone))
    lasts = [everyone[repeat % len(everyone)] for repeat in range(repeats)]
    return round(statistics.median(_timed(call, last)[last] for last in lasts))


def _sizes() -> Iterator[int]:
    size = _SMALLEST
    while True:
        yield size
        size *= _STEP


def _timed(call: _Call, last: int | None = None) -> list[int]:
    """Return how long each rank was in the call, in ns; the *last* comes when the others wait for it."""
    dist.barrier()
    rank = dist.get_rank()
    time.sleep(_PAUSE_S + (_LATE_S if rank == last else 0))
    started = time.perf_counter_ns()
    if rank in call.members:
        call.run()
    if call.rooted:
        dist.barrier()
    own = torch.tensor([time.perf_counter_ns() - started])
    everyone = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [int(each) for each in everyone]


def _calls(size: int) -> list[_Call]:
    """Return the collectives of *size* bytes in all, and messages of as many between the ends."""
    ranks = dist.get_world_size()
    everyone, ends = tuple(range(ranks)), (0, ranks - 1)
    share = max(1, size // 4 // ranks)
    part, whole, other = torch.zeros(share), torch.zeros(share * ranks), torch.zeros(share * ranks)
    peer = ends[0] + ends[1] - dist.get_rank()  # of the ends

    parts, is_root = list(other.split(share)), dist.get_rank() == 0

    def there_and_back() -> None:
        for sender in ends:
            dist.send(whole, peer) if sender == dist.get_rank() else dist.recv(other, peer)

    def both_ways() -> None:
        works = (dist.isend(whole, peer), dist.irecv(other, peer))
        for work in works:
            if work is not None:
                work.wait()

    collectives: list[tuple[str, torch.Tensor, Callable[[], object]]] = [
        ("all_reduce", whole, lambda: dist.all_reduce(whole)),
        ("all_gather", part, lambda: dist.all_gather_into_tensor(whole, part)),
        ("reduce_scatter", whole, lambda: dist.reduce_scatter_tensor(part, whole)),
        ("all_to_all", whole, lambda: dist.all_to_all_single(other, whole)),
    ]
    rooted: list[tuple[str, torch.Tensor, Callable[[], object]]] = [
        ("broadcast", whole, lambda: dist.broadcast(whole, 0)),
        ("reduce", whole, lambda: dist.reduce(whole, 0)),
        ("gather", part, lambda: dist.gather(part, parts if is_root else None, 0)),
        ("scatter", part, lambda: dist.scatter(part, parts if is_root else None, 0)),
    ]
    return [
        *(_Call(name, given.nbytes, everyone, run, ranks) for name, given, run in collectives),
        *(_Call(name, given.nbytes, everyone, run, ranks, rooted=True) for name, given, run in rooted),
        _Call("message", whole.nbytes, ends, there_and_back, 1, turns=2),
        _Call("exchange", whole.nbytes, ends, both_ways, 2),
    ]


if __name__ == "__main__":
    main()
