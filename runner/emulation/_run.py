"""Emulate a job on the hosts of a setup, with repetitions."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

from ...errors import BackendError
from ._coordinator import Coordinator, Measurement, Progress, listen
from ._hosts import LOOPBACK, Setup
from ._namespaces import Namespaces
from ._wire import EngineJob

__all__ = ["Measurement", "emulate"]

_END_S = 5.0


def emulate(
    job: EngineJob, setup: Setup, *, limit_s: float, progress: Progress | None = None
) -> list[Measurement]:
    """Run *job* on *setup* and return the measurements of each repetition.

    On this machine, all resources are created and removed again; agents of other hosts are awaited. *limit_s*
    bounds one repetition. *progress* is called with the ns since the start and the number of finished ranks,
    and cancels by returning False. Raises as `Coordinator.gather` and `Coordinator.run`.
    """
    places = setup.places(job.num_ranks)
    with ExitStack() as stack:
        if setup.is_local:
            coordinator = stack.enter_context(_local(setup, job.num_ranks, limit_s))
        else:
            coordinator = stack.enter_context(
                Coordinator(
                    listen(setup.listen),
                    setup.token,
                    places,
                    transport=setup.transport,
                    join_s=setup.join_s,
                )
            )
        coordinator.gather()
        return [
            coordinator.run(job, first=turn == 0, limit_s=limit_s, progress=progress)
            for turn in range(setup.repeats)
        ]


@contextlib.contextmanager
def _local(setup: Setup, num_ranks: int, limit_s: float) -> Iterator[Coordinator]:
    """Yield a coordinator with a single agent, a child process, that represents all hosts of *setup*."""
    places = setup.places(num_ranks)
    hosts: dict[str, str | None] = {place.host: None for place in places}
    token = secrets.token_bytes(32)
    with ExitStack() as stack:
        if setup.is_namespaced:
            rates = setup.rates_bps(num_ranks)
            network = stack.enter_context(Namespaces(len(rates), rates, setup.nics))
            hosts = {f"host{number}": network.path(number) for number in range(len(network))}
        listener = listen((LOOPBACK, 0))
        instructions = {
            "address": listener.getsockname()[:2],
            "token": token.hex(),
            "hosts": hosts,
            "limit_s": limit_s + _END_S,
        }
        agent = stack.enter_context(_agent_process(json.dumps(instructions).encode()))

        def alive() -> None:
            if agent.poll() is not None:
                raise BackendError(
                    f"The agent of this machine ended early (status {agent.returncode}); see above."
                )

        yield stack.enter_context(
            Coordinator(listener, token, places, transport=setup.transport, join_s=setup.join_s, alive=alive)
        )


@contextlib.contextmanager
def _agent_process(instructions: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """Start an agent, pass the address through its input, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # Single-threaded: nothing is computed, and a process with threads should not fork.
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(instructions)
            process.stdin.close()
        yield process
    finally:
        # It has received the end message, or the end of its connection.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)
        if process.poll() is None:
            process.kill()
            process.wait()
