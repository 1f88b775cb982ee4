"""Run every rank of a job in a thread of its own, joined by pairs of sockets."""

import functools
import itertools
import socket
import threading
import time

from chakrascope.runner import engine
from chakrascope.runner.emulation.libfabric import fabric_transport, join_fabric

LONGEST_S = 300.0  # only a fault takes as long


def connections(count, paths=1):
    """Return a list of (descriptor, peer, path) for each of *count* ranks."""
    ends = [[] for _ in range(count)]
    for one, other in itertools.combinations(range(count), 2):
        for path in range(paths):
            here, there = socket.socketpair()
            ends[one].append((here.detach(), other, path))
            ends[other].append((there.detach(), one, path))
    return ends


def over_sockets(count, paths=1):
    """Return what makes the transport of each rank, in its own thread."""
    return [functools.partial(engine.tcp_transport, ends) for ends in connections(count, paths)]


class OverFabric:
    """As `over_sockets`, through a provider of libfabric's."""

    def __init__(self, provider):
        self.provider = provider

    def __call__(self, count, paths=1):
        names, met = {}, threading.Barrier(count)

        def enter(rank):
            addresses = [f"127.0.0.{path + 1}" for path in range(paths)]
            transport = fabric_transport(self.provider, addresses, rank, b"k" * 16)
            names[rank] = transport.names()
            met.wait(LONGEST_S)
            others = {peer: ends for peer, ends in names.items() if peer != rank}
            return join_fabric(transport, others, time.monotonic_ns() + round(LONGEST_S * 1e9))

        return [functools.partial(enter, rank) for rank in range(count)]


class Job:
    """A running job; `outputs` are those of its ranks once `join` returns.

    *enter* returns for each of so many ranks what makes its transport, with so many paths to each peer.
    """

    def __init__(self, programs, settings, paths=1, enter=None):
        count = len(programs)
        self.outputs = [None] * count
        self.errors = [None] * count
        self._transports = [None] * count
        self._states = [(False, False, 0, 0)] * count
        self._stop = threading.Event()
        self._since = time.monotonic()
        start_ns = time.monotonic_ns() + 20_000_000
        self._threads = [
            threading.Thread(target=self._run, args=(rank, entrance, programs, settings, start_ns))
            for rank, entrance in enumerate((enter or over_sockets)(count, paths))
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, rank, entrance, programs, settings, start_ns):
        def progress(_now_ns, finished, waiting, sent, received):
            self._states[rank] = (finished, waiting, sent, received)
            return not self._stop.is_set()

        try:
            # Kept open until all ranks have stopped.
            self._transports[rank] = transport = entrance()
            order = range(len(programs))
            self.outputs[rank] = engine.emulate(
                settings, programs, order, rank, transport, start_ns, progress
            )
        except Exception as error:
            self.errors[rank] = error
            self._stop.set()

    def is_over(self):
        """Say whether every rank has finished and every message has come."""
        finished, waiting, sent, received = zip(*self._states, strict=True)
        return all(finished) and all(waiting) and sum(sent) == sum(received)

    def is_stuck(self):
        """Say whether nothing is under way though a rank has not finished."""
        finished, waiting, sent, received = zip(*self._states, strict=True)
        return not all(finished) and all(waiting) and sum(sent) == sum(received)

    def join(self, until=None):
        """Wait until the job is over, or *until* says so; raise what a rank raised."""
        done = until or self.is_over
        while not done() and not self._stop.is_set():
            assert time.monotonic() - self._since < LONGEST_S, self._states
            time.sleep(0.002)
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for error in self.errors:
            if error is not None:
                raise error
        return self.outputs


def emulate(programs, settings, paths=1, enter=None):
    """Return the outputs of the ranks."""
    return Job(programs, settings, paths, enter).join()


def sent_messages(outputs):
    """Return (source, destination, bytes, tag) of every message, sorted."""
    return sorted(
        (rank, int(peer), int(size), int(tag))
        for rank, output in enumerate(outputs)
        for peer, size, tag in zip(output.sent["peer"], output.sent["bytes"], output.sent["tag"], strict=True)
    )


def simulated_messages(programs, settings):
    """Return (source, destination, bytes) of every message that a simulation carries, sorted."""
    found, waiting = [], []

    def carry(posted, limit):
        for number, source, destination, size, time_ns in posted:
            found.append((source, destination, size))
            waiting.append((time_ns + 1000, number))
        waiting.sort()
        first = waiting[0][0]
        if 0 <= limit < first:
            return []
        now = [(number, due) for due, number in waiting if due == first]
        waiting[:] = [each for each in waiting if each[0] != first]
        return now

    settings.external_network = carry
    output = engine.simulate(settings, programs, range(len(programs)))
    assert not output.unfinished
    return sorted(found)
