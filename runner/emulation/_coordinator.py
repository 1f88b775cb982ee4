"""The coordinator, which runs a job repeatedly on the joined agents and collects the measurements."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ... import errors
from ...errors import BackendError, BackendTimeout, BackendUnavailable, Cancelled
from ...support import Lifeline
from ._agent import PROTOCOL, ClockEstimate, HostClock, clock_name, estimate
from ._hosts import LOOPBACK, Place, Setup
from ._namespaces import Namespaces
from ._wire import Channel, ChannelClosed, EngineJob, Message, Refused, answer, job_to_wire
from ._worker import PeerLost

Progress = Callable[[int, int], bool]
_SILENCE_S = 5.0  # longest time without a message of an agent, which sends two every second
_ALIVE_S = 1.0
_STEP_S = 60.0  # time limit in seconds of the agents' work before and after a run
_STALL_S = 2.0
_PINGS = 40
_START_S = 0.15
_AFTERMATH_S = 1.0
_POLL_S = 0.2


class Stalled(BackendError):
    """The error if all ranks wait and no message is in flight; *open* lists the operation of each rank."""

    def __init__(self, message: str, operations: Sequence[tuple[int, dict[str, Any]]]) -> None:
        super().__init__(message)
        self.operations = tuple(operations)


@dataclass
class _Agent:
    channel: Channel
    address: str
    hosts: tuple[str, ...] = ()
    clock: str = ""
    last_received: float = 0.0
    inbox: list[Message] = field(default_factory=list)


@dataclass(frozen=True)
class Measurement:
    """The measurements of one run: a message per rank with figures and columns, and the hosts' clocks.

    *start_ns* is time 0 of the ranks on the coordinator's clock.
    """

    outputs: tuple[Message, ...]
    clocks: dict[str, HostClock]
    start_ns: int


@dataclass
class _State:
    """The progress of a rank according to the rank's last report."""

    finished: bool = False
    waiting: bool = False
    sent: int = 0
    received: int = 0
    now_ns: int = 0


def _is_failure(message: Message) -> bool:
    return message.kind == "failed" or (message.kind == "gone" and message.facts.get("status") != 0)


def _is_consequence(message: Message) -> bool:
    return message.facts.get("error") == PeerLost.__name__


def listen(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens at *address*; raises `BackendUnavailable` if listening fails."""
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        raise BackendUnavailable(
            f"The coordinator cannot listen on {address[0]}:{address[1]} ({error.strerror}). Next: name an "
            "address of this machine and a free port as 'listen' in the hosts file."
        ) from error
    return listener


class Coordinator:
    """Runs jobs on the agents that join *listener*; the context manager dismisses the agents at its end.

    *places* contains each rank's host, and *transport* is the transport of messages. *alive* is called
    regularly and may raise an exception.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        places: Sequence[Place],
        *,
        transport: str,
        join_s: float,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._places = list(places)
        self._transport = transport
        self._join_s = join_s
        self._alive = alive
        self._agents: list[_Agent] = []
        self._of_host: dict[str, _Agent] = {}
        self._selector = selectors.DefaultSelector()
        self._last_report = 0.0
        self._refused: list[str] = []

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._agents:
            with contextlib.suppress(BackendError):
                agent.channel.send("bye")
            agent.channel.close()
        self._selector.close()
        self._listener.close()

    def gather(self) -> None:
        """Wait until every host has joined; raises `BackendUnavailable` with the missing hosts."""
        needed = list(dict.fromkeys(place.host for place in self._places))
        deadline = time.monotonic() + self._join_s
        self._listener.settimeout(_POLL_S)
        while missing := [host for host in needed if host not in self._of_host]:
            self._alive()
            if time.monotonic() > deadline:
                raise BackendUnavailable(self._absent(missing))
            with contextlib.suppress(TimeoutError):
                connection, address = self._listener.accept()
                self._admit(connection, str(address[0]))
            self._pump(0)

    def _absent(self, missing: list[str]) -> str:
        address, port = self._listener.getsockname()[:2]
        refused = f" Refused: {'; '.join(self._refused)}." if self._refused else ""
        return (
            f"{', '.join(missing)} did not join within {self._join_s:g} s.{refused} Next: start `chakrascope "
            f"emulate-agent --join {address}:{port} --name HOST` on each, with the same token, and check "
            "that it can reach this machine."
        )

    def _admit(self, connection: socket.socket, address: str) -> None:
        """Accept an agent that knows the token and represents a required host, and reject other agents."""
        try:
            channel = answer(connection, self._secret)
            hello = channel.receive(_SILENCE_S)
        except BackendError as error:
            self._refused.append(f"{address} ({error.message.rstrip('.')})")
            connection.close()
            return
        facts = hello.facts
        hosts = tuple(str(host) for host in facts.get("hosts", ()))
        needed = {place.host for place in self._places} - self._of_host.keys()
        if hello.kind != "hello" or facts.get("protocol") != PROTOCOL or not needed & set(hosts):
            self._refused.append(f"{address} ('{', '.join(hosts)}', not an expected host)")
            with contextlib.suppress(BackendError):
                channel.send("bye")
            channel.close()
            return
        agent = _Agent(channel, address, hosts, str(facts.get("clock", "")), time.monotonic())
        self._agents.append(agent)
        self._of_host.update(dict.fromkeys(hosts, agent))
        self._selector.register(channel, selectors.EVENT_READ, agent)

    def run(self, job: EngineJob, *, first: bool, limit_s: float, progress: Progress | None) -> Measurement:
        """Run *job* once and return the measurements; with *first*, send the job to the agents first.

        Raises the error of a rank, `Stalled`, `BackendTimeout` after *limit_s*, `Cancelled`, and
        `BackendError` for a lost agent.
        """
        try:
            if first:
                facts, pieces = job_to_wire(job)
                self._broadcast("job", facts, pieces)
                self._collect("kept", self._agents)
            before = self._clocks()
            self._launch()
            start_ns = self._start(before)
            self._watch(limit_s, progress)
            outputs = self._outputs()
            after = self._clocks()
        finally:
            with contextlib.suppress(BackendError):
                self._broadcast("end")
        self._collect("ended", self._agents)
        own = clock_name()
        clocks = {
            host: HostClock(before[id(agent)], after[id(agent)], shared=bool(own) and agent.clock == own)
            for host in dict.fromkeys(place.host for place in self._places)
            for agent in [self._of_host[host]]
        }
        return Measurement(outputs, clocks, start_ns)

    def _launch(self) -> None:
        nonce = os.urandom(16).hex()
        for agent in self._agents:
            ranks = [
                {"rank": place.rank, "host": place.host, "addresses": list(place.addresses)}
                for place in self._places
                if self._of_host[place.host] is agent
            ]
            self._send(agent, "launch", {"nonce": nonce, "transport": self._transport, "ranks": ranks})
        ends = {
            str(message.facts["rank"]): message.facts["ends"] for message in self._from_ranks("listening")
        }
        self._broadcast("connect", {"ends": ends})
        self._from_ranks("ready")

    def _start(self, clocks: dict[int, ClockEstimate]) -> int:
        start_ns = time.monotonic_ns() + round(_START_S * 1e9)
        own = clock_name()
        for agent in self._agents:
            offset = 0 if own and agent.clock == own else clocks[id(agent)].offset_ns
            self._send(agent, "start", {"start_ns": start_ns + offset})
        return start_ns

    def _watch(self, limit_s: float, progress: Progress | None) -> None:
        """Wait until every rank has finished and every message has arrived, and then stop the ranks."""
        states = {place.rank: _State() for place in self._places}
        deadline = time.monotonic() + limit_s
        since, last = time.monotonic(), None
        while True:
            for message in self._messages(_POLL_S / 4):
                if message.kind != "progress":
                    continue
                facts = {key: message.facts[key] for key in vars(_State())}
                states[int(message.facts["rank"])] = _State(**facts)
            totals = [(s.finished, s.waiting, s.sent, s.received) for s in states.values()]
            arrived = sum(s.sent for s in states.values()) == sum(s.received for s in states.values())
            idle = arrived and all(state.waiting for state in states.values())
            if idle and all(state.finished for state in states.values()):
                break
            now = time.monotonic()
            if totals != last or not idle:
                since, last = now, totals
            if now - since > _STALL_S:
                self._stalled(states)
            if now > deadline:
                raise BackendTimeout(
                    f"The emulated job did not finish within {limit_s:g} s; allow more with --limit, or "
                    "CHAKRASCOPE_BACKEND_TIMEOUT, or emulate less."
                )
            finished = sum(state.finished for state in states.values())
            if progress is not None and not progress(max(s.now_ns for s in states.values()), finished):
                raise Cancelled("The emulation was cancelled.")
        self._broadcast("stop")

    def _stalled(self, states: dict[int, _State]) -> None:
        self._broadcast("stop")
        outputs = self._outputs()
        operations = [
            (rank, dict(operation))
            for rank, output in enumerate(outputs)
            for operation in output.facts["open"]
            if not states[rank].finished
        ]
        raise Stalled("The ranks wait for each other, and no message is in flight.", operations)

    def _outputs(self) -> tuple[Message, ...]:
        outputs = {int(message.facts["rank"]): message for message in self._from_ranks("output")}
        return tuple(outputs[place.rank] for place in self._places)

    def _clocks(self) -> dict[int, ClockEstimate]:
        """Return an estimate of each agent's clock offset from message round trips."""
        estimates = {}
        for agent in self._agents:
            trips = []
            for _ in range(_PINGS):
                sent = time.monotonic_ns()
                self._send(agent, "ping")
                pong = self._collect("pong", [agent])[0]
                trips.append((sent, int(pong.facts["mine_ns"]), time.monotonic_ns()))
            estimates[id(agent)] = estimate(trips)
        return estimates

    def _from_ranks(self, kind: str) -> list[Message]:
        return self._collect(kind, self._agents, len(self._places))

    def _collect(self, kind: str, agents: Sequence[_Agent], count: int | None = None) -> list[Message]:
        """Return messages of *kind*: one message from each agent, or *count* messages from all agents."""
        wanted = len(agents) if count is None else count
        messages: list[Message] = []
        deadline = time.monotonic() + _STEP_S
        while len(messages) < wanted:
            messages += [message for message in self._messages(_POLL_S) if message.kind == kind]
            if time.monotonic() > deadline:
                raise BackendTimeout(f"The agents took longer than {_STEP_S:g} s to become '{kind}'.")
        return messages

    def _messages(self, wait_s: float) -> list[Message]:
        """Return the agents' new messages, and raise the errors that agents report."""
        self._pump(wait_s)
        messages = [message for agent in self._agents for message in agent.inbox]
        for agent in self._agents:
            agent.inbox.clear()
        failures = [message for message in messages if _is_failure(message)]
        if failures:
            self._fail(failures)
        return messages

    def _fail(self, failures: list[Message]) -> NoReturn:
        """Raise the root cause of *failures*; errors about lost peers usually have another cause."""
        deadline = time.monotonic() + _AFTERMATH_S
        while time.monotonic() < deadline and all(map(_is_consequence, failures)):
            self._pump(_POLL_S)
            failures += [each for agent in self._agents for each in agent.inbox if _is_failure(each)]
            for agent in self._agents:
                agent.inbox.clear()
        first = next((each for each in failures if not _is_consequence(each)), failures[0])
        rank = int(first.facts.get("rank", -1))
        where = f"Rank {rank} on {self._places[rank].host}: " if 0 <= rank < len(self._places) else ""
        if first.kind == "gone":
            raise BackendError(
                f"{where}its process ended early (status {first.facts.get('status')}). Next: see its agent's "
                "last output on that host, and whether the host has enough memory."
            )
        kind = getattr(errors, str(first.facts.get("error")), BackendError)
        is_ours = isinstance(kind, type) and issubclass(kind, errors.ChakrascopeError)
        raise (kind if is_ours else BackendError)(f"{where}{first.facts.get('text')}")

    def _pump(self, wait_s: float) -> None:
        now = time.monotonic()
        if now - self._last_report > _ALIVE_S:
            self._last_report = now
            self._broadcast("alive")
        self._alive()
        for key, _ in self._selector.select(timeout=wait_s):
            agent: _Agent = key.data
            try:
                agent.inbox += agent.channel.pump()
            except (ChannelClosed, Refused) as error:
                self._lose(agent, error.message)
            agent.last_received = time.monotonic()
        for agent in self._agents:
            if time.monotonic() - agent.last_received > _SILENCE_S:
                self._lose(agent, f"It was silent for {_SILENCE_S:g} s.")

    def _broadcast(
        self, kind: str, facts: dict[str, Any] | None = None, pieces: Sequence[bytes] = ()
    ) -> None:
        for agent in self._agents:
            self._send(agent, kind, facts, pieces)

    def _send(
        self, agent: _Agent, kind: str, facts: dict[str, Any] | None = None, pieces: Sequence[bytes] = ()
    ) -> None:
        try:
            agent.channel.send(kind, facts, pieces)
        except ChannelClosed as error:
            self._lose(agent, error.message)

    def _lose(self, agent: _Agent, why: str) -> None:
        raise BackendError(
            f"The agent of {', '.join(agent.hosts)} ({agent.address}) is lost: {why} Next: check the agent's "
            "last output on the host."
        )


_END_S = 5.0


def emulate(
    job: EngineJob, setup: Setup, *, limit_s: float, progress: Progress | None = None
) -> list[Measurement]:
    """Run *job* on *setup* and return the measurements of each repetition.

    Resources on this machine are created and removed automatically. The function waits for the agents of
    other hosts. *limit_s* is the time limit of one repetition in seconds. *progress* is called with the ns
    since the start and the number of finished ranks; the job is cancelled if *progress* returns False. Raises
    the errors of `Coordinator.gather` and `Coordinator.run`.
    """
    places = setup.places(job.num_ranks)
    with ExitStack() as stack:
        if setup.is_local:
            listener, token, alive = stack.enter_context(_local(setup, places, limit_s))
        else:
            listener, token, alive = listen(setup.listen), setup.token, lambda: None
        coordinator = stack.enter_context(
            Coordinator(listener, token, places, transport=setup.transport, join_s=setup.join_s, alive=alive)
        )
        coordinator.gather()
        return [
            coordinator.run(job, first=turn == 0, limit_s=limit_s, progress=progress)
            for turn in range(setup.repeats)
        ]


@contextlib.contextmanager
def _local(
    setup: Setup, places: Sequence[Place], limit_s: float
) -> Iterator[tuple[socket.socket, bytes, Callable[[], None]]]:
    """Start an agent, a child process, that represents all hosts; yield what its coordinator needs.

    These are the listening socket, the token, and a function that raises `BackendError` if the agent ended.
    """
    hosts: dict[str, str | None] = {place.host: None for place in places}
    token = secrets.token_bytes(32)
    with ExitStack() as stack:
        if setup.is_namespaced:
            rates = setup.rates_bps(len(places))
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

        yield listener, token, alive


@contextlib.contextmanager
def _agent_process(instructions: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """Start an agent, pass the address through standard input, and end the agent with the block."""
    lifeline = Lifeline()
    process = lifeline.start(
        [sys.executable, "-m", f"{__package__}.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # The agent is single-threaded, because it computes nothing, and because a process with threads should
        # not fork.
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(instructions)
            process.stdin.close()
        yield process
    finally:
        # The agent has received the end message, or has noticed the end of the connection.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)
        lifeline.close()
        process.wait()
