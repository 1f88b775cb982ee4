"""A rank process of an emulated job, which joins the other ranks, runs a program and reports measurements."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import BackendError, ChakrascopeError
from .. import engine
from ._transports import entrance_of
from ._wire import Channel, ChannelClosed, Message, Rank, columns_to_wire, config_of

_STEP_S = 60.0
_REPORT_S = 0.1
_LATEST_S = 0.5
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl
_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of prctl
_CLONE_NEWNET = 0x40000000


class PeerLost(BackendError):
    """The error for a rank that can no longer reach a peer, usually because of an error of the peer."""


def run_rank(rank: Rank, channel: Channel, job: Message) -> None:
    """Run *rank*'s program of *job*, and report the outcome to the agent at the other end of *channel*."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    libc.prctl(_TIMER_SLACK, 1)
    # A rank process computes nothing. The process gets a high priority if permitted, to wake up on time on
    # a busy machine.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    if os.getppid() != parent:
        return
    try:
        if rank.namespace is not None:
            _enter(libc, rank.namespace)
        _run(rank, channel, job)
    except ChannelClosed:
        return
    except ChakrascopeError as error:
        _send_failure(channel, type(error).__name__, error.message)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _send_failure(channel, "BackendError", f"{error.strerror or error}{where}.")
    except MemoryError:
        _send_failure(channel, "BackendError", "There is not enough memory for the rank.")


def _send_failure(channel: Channel, kind: str, text: str) -> None:
    try:
        channel.send("failed", {"error": kind, "text": text})
    except ChannelClosed:
        sys.stderr.write(text + "\n")


def _enter(libc: ctypes.CDLL, path: str) -> None:
    """Move this process into the network namespace of *path*."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(descriptor)


def _run(rank: Rank, channel: Channel, job: Message) -> None:
    config, programs, order = config_of(job)
    entrance = entrance_of(rank)
    channel.send("listening", {"ends": entrance.listen()})
    ends = _expect(channel, "connect")["ends"]
    transport = entrance.connect({int(peer): end for peer, end in ends.items()})
    channel.send("ready")
    start_ns = int(_expect(channel, "start")["start_ns"])
    try:
        report = _reporter(channel)
        output = engine.emulate(config, programs, order, rank.number, transport, start_ns, report)
    except ChannelClosed:
        raise
    except BackendError as error:
        # The agent of a lost peer reports the reason. If a peer is silent, no other process reports the
        # failure.
        silent = engine.SILENCE in error.message
        raise (BackendError if silent else PeerLost)(error.message) from error
    _send_output(channel, output)
    # Connections stay open until the agent ends the rank, because a peer may not know yet that the run has
    # ended.
    while True:
        channel.receive(_STEP_S)


def _expect(channel: Channel, kind: str) -> dict[str, Any]:
    message = channel.receive(_STEP_S)
    if message.kind != kind:
        raise BackendError(f"A rank received '{message.kind}' where '{kind}' was expected.")
    return message.facts


def _reporter(channel: Channel) -> Callable[[int, bool, bool, int, int], bool]:
    """Return the engine's callback, which reports progress to the agent and receives the stop message."""
    last: list[Any] = [0.0, None]

    def report(now_ns: int, finished: bool, waiting: bool, sent: int, received: int) -> bool:
        state = (finished, waiting, sent, received)
        now = time.monotonic()
        fresh = state != last[1]
        if now - last[0] > (_REPORT_S if fresh else _LATEST_S) or (fresh and waiting):
            last[:] = now, state
            facts = {"finished": finished, "waiting": waiting, "sent": sent, "received": received}
            channel.send("progress", {"now_ns": now_ns, **facts})
        if not select.select([channel], [], [], 0)[0]:
            return True
        return not any(message.kind == "stop" for message in channel.pump())

    return report


def _send_output(channel: Channel, output: engine.EmulationOutput) -> None:
    tables: dict[str, Mapping[str, Any]] = {
        "nodes": output.nodes,
        "sent": output.sent,
        "received": output.received,
    }
    names, pieces = columns_to_wire(tables)
    channel.send(
        "output",
        {
            "statistics": {key: _plain(value) for key, value in output.statistics.items()},
            "nodes_total": int(output.nodes_total),
            "nodes_executed": int(output.nodes_executed),
            "events": int(output.events),
            "overtaken": int(output.overtaken),
            "replayed": int(output.replayed),
            "evened": int(output.evened),
            "open": list(output.open),
            # The peak memory of this process includes memory shared with its agent.
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "tables": names,
        },
        pieces,
    )


def _plain(value: float) -> float:
    return value if isinstance(value, int) or np.isfinite(value) else 0.0
