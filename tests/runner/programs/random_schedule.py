"""Runs threads, as generators, in one random order: priorities that change now and then.

A thread yields None where another may go on, or a condition that it waits for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Thread = Iterator[Callable[[], bool] | None]
MOST_EVENTS = 2_000_000


class Wrong(Exception):
    """The program does what no right one does."""


def run_threads(threads: dict[tuple[int, ...], Thread], random_: random.Random) -> None:
    """Run all *threads* to their end; raises `Wrong` for a deadlock.

    The keys are rank, block, thread: a random order of ranks, of blocks, or of all threads decides.
    """
    depth = random_.choice((1, 2, 3))
    prefixes = {key[:depth]: random_.random() for key in sorted(threads)}
    change = random_.choice((0.0, 0.01, 0.1))
    order = sorted(threads, key=lambda key: (prefixes[key[:depth]], key))
    awaits: dict[tuple[int, ...], Callable[[], bool] | None] = dict.fromkeys(order)
    events = 0
    while order:
        key = next((key for key in order if (ready := awaits[key]) is None or ready()), None)
        if key is None:
            raise Wrong(f"deadlock of {len(order)} threads")
        thread, moved = threads[key], False
        for condition in thread:
            events += 1
            if events > MOST_EVENTS:
                raise RuntimeError("the program runs for too long")
            if condition is not None and not condition():
                awaits[key] = condition
                break
            awaits[key] = None
            if random_.random() < change:
                order.remove(key)
                order.insert(random_.randrange(len(order) + 1), key)
                moved = True
                break
            if random_.random() < 0.02:
                break  # a thread before it may go on by now
        else:
            if not moved:
                order.remove(key)
