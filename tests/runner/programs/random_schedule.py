"""Runs threads, as generators, in one random order: priorities that change now and then.

A thread yields None where another may go on, or a key and a condition that it waits for. Whoever may have
made a condition true adds its key to the set *changed*, which all threads share.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush

Key = tuple[int, ...]
Awaited = tuple[Hashable, Callable[[], bool]]
Thread = Iterator[Awaited | None]


GARBAGE = 10**9  # the smallest number in memory that no thread has written


class Wrong(Exception):
    """The program did something that a correct program never does."""


def integers(words: Iterable[object]) -> list[int | None]:
    """Return *words* with None for garbage, and for sums with garbage."""
    return [word if isinstance(word, int) and word < GARBAGE else None for word in words]


def run_threads(
    threads: dict[Key, Thread],
    random_: random.Random,
    changed: set[Hashable],
    suspects: Collection[Key] = (),
) -> int:
    """Run all *threads* to their end, and return the number of events; raises `Wrong` for a deadlock.

    The keys are rank, block, thread: a random order of ranks, of blocks, or of all threads decides. Each of
    the *suspects*, a rank and a block, goes before or after all others.
    """
    depth = random_.choice((1, 2, 3))
    prefixes = {key[:depth]: random_.random() for key in sorted(threads)}
    biases = {suspect: random_.choice((-1.0, 1.0)) for suspect in sorted(suspects)}
    change = random_.choice((0.0, 0.01, 0.1))
    ready = [(biases.get(key[:2], 0.0) + prefixes[key[:depth]], key) for key in threads]
    heapify(ready)
    awaits: dict[Key, Awaited] = {}
    waiting: dict[Hashable, list[tuple[float, Key]]] = defaultdict(list)
    events = 0
    while ready:
        priority, key = heappop(ready)
        if key not in awaits or awaits[key][1]():  # another thread may have made it false again
            awaits.pop(key, None)
            for awaited in threads[key]:
                events += 1
                if awaited is not None and not awaited[1]():
                    awaits[key] = awaited
                    break
                draw = random_.random()
                if draw < change:
                    priority = biases.get(key[:2], 0.0) + random_.random()
                if draw < change + 0.02:
                    heappush(ready, (priority, key))  # a thread before it may be able to continue
                    break
        if key in awaits:
            waiting[awaits[key][0]].append((priority, key))
        for what in list(changed) if ready else list(waiting):
            for item in waiting.pop(what, ()):
                if awaits[item[1]][1]():
                    heappush(ready, item)
                else:
                    waiting[what].append(item)
        changed.clear()
    if awaits:
        raise Wrong(f"deadlock of {len(awaits)} threads")
    return events
