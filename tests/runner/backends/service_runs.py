"""Experiments for the tests of services, and how they are run at the fake one."""

import threading
from contextlib import contextmanager

from processes import wait_for
from workloads import coll, comp, workload

from chakrascope.runner import NetworkConfig, prepare
from chakrascope.runner.backends.service import ServiceAddress, ServiceBackend

NETWORK = NetworkConfig(("Ring", "Switch"), (2, 2), (50.0, 46.57), (500.0, 21.3))


def four_ranks(nodes=2):
    ranks = []
    for rank in range(4):
        pairs = [
            (
                comp(2 * i, 1000 * (1 + (rank + i) % 3), after=(2 * i - 1,) if i else ()),
                coll(2 * i + 1, 1 << 20, (2 * i,)),
            )
            for i in range(nodes)
        ]
        ranks.append([node for pair in pairs for node in pair])
    return workload(*ranks)


def experiment(kind="analytical-unaware", model=None, network=NETWORK, system="default", **options):
    options.setdefault("semantics", "astra-sim")
    name = f"service://127.0.0.1:1/{kind}"
    return prepare(model or four_ranks(), system, network, backend=name, **options)


def run(service, progress=None, *, timeout_s=120.0, call_s=None, kind="analytical-unaware", **options):
    backend = ServiceBackend(ServiceAddress("127.0.0.1", service.port, kind), timeout_s, call_s)
    return backend.run(experiment(kind, **options), progress)


@contextmanager
def no_thread_stays():
    """Check that the block leaves no thread but those of the fake's pool."""
    before = set(threading.enumerate())
    yield
    # gRPC's server has a thread of its own that serves the pool.
    of_the_fake = ("ThreadPool", "_serve")

    def left():
        others = set(threading.enumerate()) - before
        return [thread for thread in others if not any(name in thread.name for name in of_the_fake)]

    wait_for(lambda: not left())
