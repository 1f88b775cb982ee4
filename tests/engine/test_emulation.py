"""Ranks in real time, over sockets, libfabric and threads: they send the simulated messages."""

import functools
import itertools
import socket
import threading
import time

import et
import numpy as np
import pytest
from jobs import carried_messages

from build import coll, comp, config, recv, send
from chakrascope.errors import BackendError, ConfigError
from chakrascope.runner import engine
from chakrascope.runner.emulation.libfabric import fabric_transport, join_fabric

LONGEST_S = 300.0  # only a fault takes this long


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
    """Return a function that creates the transport of each rank, in its own thread."""
    return [functools.partial(engine.tcp_transport, ends) for ends in connections(count, paths)]


class OverFabric:
    """As `over_sockets`, with a provider of libfabric."""

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

    *enter* takes the number of ranks and the number of paths to each peer, and returns a function per rank
    that creates its transport.
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
        """Return whether every rank has finished and every message has arrived."""
        finished, waiting, sent, received = zip(*self._states, strict=True)
        return all(finished) and all(waiting) and sum(sent) == sum(received)

    def is_stuck(self):
        """Return whether nothing is in flight although a rank has not finished."""
        finished, waiting, sent, received = zip(*self._states, strict=True)
        return not all(finished) and all(waiting) and sum(sent) == sum(received)

    def join(self, until=None):
        """Wait until the job has ended, or *until* returns true; raise an exception that a rank raised."""
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
    return sorted(carried_messages(settings, programs, range(len(programs))))


MS = 1_000_000
SECOND = 1_000_000_000
KEY = b"k" * 16

needs_libfabric = pytest.mark.skipif(
    not engine.FabricTransport.is_built(), reason="the engine was built without libfabric (libfabric-dev)"
)
every_transport = pytest.mark.parametrize(
    "enter",
    [
        pytest.param(over_sockets, id="sockets"),
        pytest.param(OverFabric("tcp"), id="libfabric-tcp", marks=needs_libfabric),
        pytest.param(OverFabric("shm"), id="libfabric-shm", marks=needs_libfabric),
    ],
)


def programs(ranks):
    return [et.program(nodes) for nodes in ranks]


def every_algorithm():
    for kind in engine.COLLECTIVES:
        for algorithm in engine.ALGORITHMS:
            yield pytest.param(kind, algorithm, id=f"{kind}-{algorithm}")


@every_transport
@pytest.mark.parametrize(("kind", "algorithm"), [*every_algorithm()])
def test_a_collective_becomes_the_messages_of_its_simulation(kind, algorithm, enter):
    name = kind.replace("-", "_")
    settings = {f"{name}_implementation": [algorithm], "preferred_dataset_splits": 2}
    job = programs([[coll(0, 40_000, comm_type=name.upper())]] * 4)
    if any(engine.refusals(config(**settings), engine.collectives(job))):
        pytest.skip(f"{algorithm} cannot run {kind}")
    expected = simulated_messages(job, config(**settings))
    measured = [message[:3] for message in sent_messages(emulate(job, config(**settings), enter=enter))]
    assert expected
    assert measured == expected


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE", "GATHER", "SCATTER"])
def test_rooted_collectives_too(kind):
    settings = {"semantics": "trace", "native_collectives": True}
    job = programs([[coll(0, 4096, comm_type=kind, comm_src=1)]] * 4)
    expected = simulated_messages(job, config(**settings))
    assert [message[:3] for message in sent_messages(emulate(job, config(**settings)))] == expected


def test_dimensions_and_groups_agree_on_their_messages():
    settings = {
        "topology": ["Ring", "Switch"],
        "npus_count": [2, 2],
        "bandwidth": [50.0] * 2,
        "latency": [500.0] * 2,
        "all_reduce_implementation": ["ring", "halvingDoubling"],
        "groups": {1: [0, 2], 2: [3, 1]},
    }
    settings |= {f"{name}_implementation": ["ring", "direct"] for name in ("all_gather", "reduce_scatter")}
    ranks = [
        [coll(0, 8192), coll(1, 4096, after=[0], pg_name="1" if rank in (0, 2) else "2")] for rank in range(4)
    ]
    job = programs(ranks)
    expected = simulated_messages(job, config(**settings))
    assert [message[:3] for message in sent_messages(emulate(job, config(**settings)))] == expected


def test_members_with_different_amounts_send_what_they_have():
    job = programs(
        [[coll(0, 600, comm_type="ALL_TO_ALL", comm_splits=[100 * (rank + 1), 200])] for rank in range(2)]
    )
    expected = simulated_messages(job, config(npus_count=[2]))
    measured = [message[:3] for message in sent_messages(emulate(job, config(npus_count=[2])))]
    assert measured == expected


@every_transport
def test_early_message_waits_for_its_receive(enter):
    # The second message leaves after the first has arrived: if it waited for its receive, no rank would end.
    job = programs(
        [
            [send(0, 0, 1, tag=1), send(1, 0, 1, tag=2, after=[0])],
            [recv(0, 0, 1, tag=2), recv(1, 0, 1, tag=1, after=[0])],
        ]
    )
    sender, receiver = emulate(job, config(npus_count=[2]), enter=enter)
    early, late = receiver.received["received_ns"].tolist()
    assert early < late <= receiver.nodes["start_ns"].tolist()[1]
    assert sender.nodes["end_ns"].tolist()[0] <= sender.nodes["start_ns"].tolist()[1]


def test_messages_match_by_tag_and_size():
    job = programs(
        [
            [send(0, 0, 1, 100, tag=1), send(1, 0, 1, 200, tag=1), send(2, 0, 1, 100, tag=2)],
            [
                recv(0, 0, 1, 100, tag=2),
                recv(1, 0, 1, 200, tag=1, after=[0]),
                recv(2, 0, 1, 100, tag=1, after=[1]),
            ],
        ]
    )
    sender, receiver = emulate(job, config(npus_count=[2]))
    assert sender.nodes_executed == receiver.nodes_executed == 3
    assert receiver.open == sender.open == []


def test_what_a_rank_sends_to_itself_meets_no_network():
    (output,) = emulate(programs([[send(0, 0, 0), recv(1, 0, 0)]]), config(npus_count=[1]))
    assert output.nodes_executed == 2
    assert len(output.sent["peer"]) == 0


def test_with_a_rendezvous_the_receiver_asks_first():
    job = programs([[send(0, 0, 1, 70_000)], [comp(0, 5_000), recv(1, 0, 1, 70_000, after=[0])]])
    outputs = emulate(job, config(npus_count=[2], rendezvous=True))
    assert [message[:3] for message in sent_messages(outputs)] == [(0, 1, 70_000), (1, 0, 8192)]
    assert outputs[0].sent["posted_ns"][0] >= 5 * MS


def test_compute_is_never_shorter_than_it_should_be():
    job = programs([[comp(number, 300, after=[number - 1] if number else []) for number in range(20)]])
    (output,) = emulate(job, config(npus_count=[1]))
    lengths = output.nodes["end_ns"] - output.nodes["start_ns"]
    assert (lengths >= 300_000).all()
    # Each begins when the previous one has ended, on a monotonic clock.
    assert (np.diff(output.nodes["start_ns"]) >= 300_000).all()
    assert output.finish_ns == output.nodes["end_ns"].max()


@every_transport
def test_large_all_to_all_messages_do_not_deadlock(enter):
    size, ranks = 24 << 20, 3
    job = programs(
        [
            [send(peer, rank, peer, size, tag=rank) for peer in range(ranks) if peer != rank]
            + [recv(ranks + peer, peer, rank, size, tag=peer) for peer in range(ranks) if peer != rank]
            for rank in range(ranks)
        ]
    )
    outputs = emulate(job, config(npus_count=[ranks], semantics="trace"), enter=enter)
    assert sum(size for _, _, size, _ in sent_messages(outputs)) == size * ranks * (ranks - 1)
    for output in outputs:
        assert len(output.received["number"]) == ranks - 1
        assert (output.sent["begun_ns"] <= output.sent["sent_ns"]).all()


@every_transport
def test_several_interfaces_take_turns(enter):
    job = programs(
        [
            [send(number, 0, 1, 50_000, tag=number) for number in range(6)],
            [recv(number, 0, 1, 50_000, tag=number) for number in range(6)],
        ]
    )
    sender, receiver = emulate(job, config(npus_count=[2], semantics="trace"), paths=2, enter=enter)
    assert sorted(sender.sent["path"].tolist()) == [0, 0, 0, 1, 1, 1]
    by_number = dict(
        zip(receiver.received["number"].tolist(), receiver.received["path"].tolist(), strict=True)
    )
    assert [by_number[number] for number in range(6)] == sender.sent["path"].tolist()


def test_origin_of_an_end_is_the_triggering_node():
    job = programs([[comp(0, 5_000), send(7, 0, 1, after=[0])], [recv(3, 0, 1)]])
    _, receiver = emulate(job, config(npus_count=[2]))
    assert receiver.nodes["origin_rank"].tolist() == [0]
    assert receiver.nodes["origin_index"].tolist() == [1]


def test_stalled_rank_reports_its_open_operation():
    job = Job(programs([[recv(4, 1, 0)], [comp(0)]]), config(npus_count=[2]))
    waiting, done = job.join(job.is_stuck)
    assert [(each["node_id"], each["operation"]) for each in waiting.open] == [(4, "recv")]
    assert waiting.finish_ns == -1
    assert done.finish_ns > 0


def test_groups_make_progress_independently():
    groups = {1: [0, 1], 2: [1, 2], 3: [2, 0]}
    ranks = [
        [coll(0, 4096, pg_name="1"), coll(1, 4096, pg_name="3")],
        [coll(0, 4096, pg_name="2"), coll(1, 4096, pg_name="1")],
        [coll(0, 4096, pg_name="3"), coll(1, 4096, pg_name="2")],
    ]
    settings = {"npus_count": [3], "groups": groups, "semantics": "trace", "overtaking": 1}
    outputs = emulate(
        programs([[node | {"stream": node["id"]} for node in nodes] for nodes in ranks]), config(**settings)
    )
    assert [output.nodes_executed for output in outputs] == [2, 2, 2]


def test_a_lost_peer_ends_the_rank():
    (mine, *_), (theirs, *_) = connections(2)
    socket.socket(fileno=theirs[0]).close()
    transport = engine.tcp_transport([mine])
    with pytest.raises(
        BackendError, match="The connection to rank 1 is lost: it was closed at the other end"
    ):
        engine.emulate(
            config(npus_count=[2]),
            programs([[recv(0, 1, 0)], [comp(0)]]),
            [0, 1],
            0,
            transport,
            0,
            keep_on,
        )


def test_what_is_no_message_ends_the_rank():
    (mine, *_), (theirs, *_) = connections(2)
    with socket.socket(fileno=theirs[0]) as other:
        other.sendall(b"GET / HTTP/1.1\r\nHost: rank\r\n\r\n" * 10)
        with pytest.raises(BackendError, match="not a message of the emulation"):
            engine.emulate(
                config(npus_count=[2]),
                programs([[recv(0, 1, 0)], [comp(0)]]),
                [0, 1],
                0,
                engine.tcp_transport([mine]),
                0,
                keep_on,
            )


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(lambda: engine.tcp_transport([]), id="sockets"),
        pytest.param(
            lambda: join_fabric(fabric_transport("tcp", ["127.0.0.1"], 0, KEY), {}, 0),
            id="libfabric",
            marks=needs_libfabric,
        ),
    ],
)
def test_rank_without_connection_to_its_peer_is_an_error(transport):
    with pytest.raises(BackendError, match="no connection to rank 1"):
        engine.emulate(
            config(npus_count=[2]),
            programs([[send(0, 0, 1)], [recv(0, 0, 1)]]),
            [0, 1],
            0,
            transport(),
            0,
            keep_on,
        )


def test_a_network_of_another_size_is_refused():
    with pytest.raises(ConfigError, match="has 1 ranks, but the network has 4"):
        engine.emulate(config(), programs([[comp(0)]]), [0], 0, engine.tcp_transport([]), 0, keep_on)


def test_what_is_no_socket_is_refused():
    with pytest.raises(BackendError, match="is lost"):
        engine.tcp_transport([(9999, 1, 0)])


@needs_libfabric
def test_strangers_are_not_met():
    one = fabric_transport("tcp", ["127.0.0.1"], 0, KEY)
    other = fabric_transport("tcp", ["127.0.0.1"], 1, b"x" * 16)
    deadline_ns = time.monotonic_ns() + SECOND
    errors = []

    def meet(transport, peer, names):
        try:
            join_fabric(transport, {peer: names}, deadline_ns)
        except BackendError as error:
            errors.append(error.message)

    threads = [
        threading.Thread(target=meet, args=(one, 1, other.names())),
        threading.Thread(target=meet, args=(other, 0, one.names())),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 2
    assert all("cannot be reached through libfabric's provider tcp" in error for error in errors)


@needs_libfabric
def test_an_unknown_provider_or_address_is_named():
    with pytest.raises(
        ConfigError, match=r"no provider 'tpc' on this host - did you mean '\w+'\? Allowed: .*tcp"
    ):
        fabric_transport("tpc", ["127.0.0.1"], 0, KEY)
    with pytest.raises(BackendError, match=r"endpoint of tcp.* at 192\.0\.2\.1: Cannot assign"):
        fabric_transport("tcp", ["192.0.2.1"], 0, KEY)


@pytest.fixture
def ends():
    """Return a list for transports that refer to each other, which must not be kept after the test."""
    found = {}
    yield found
    found.clear()


def over_threads(ends):
    """Return a function that connects two ranks by Python functions."""

    def post_to(peer):
        def post(_, frame, _size, _urgent):
            now_ns = time.monotonic_ns()
            ends[1 - peer].sent(peer, 0, frame, now_ns)
            ends[peer].came(1 - peer, 0, frame, now_ns)

        return post

    met = threading.Barrier(2)

    def enter(rank):
        ends[rank] = engine.threaded_transport(post_to(1 - rank))
        met.wait(10)
        return ends[rank]

    return lambda _count, _paths: [lambda rank=rank: enter(rank) for rank in range(2)]


def test_threads_of_python_carry_messages(ends):
    job = programs([[coll(0, 40_000)]] * 2)
    outputs = emulate(job, config(npus_count=[2]), enter=over_threads(ends))
    assert [message[:3] for message in sent_messages(outputs)] == simulated_messages(
        job, config(npus_count=[2])
    )
    assert sum(len(output.received["number"]) for output in outputs) == len(sent_messages(outputs))


def test_threads_of_python_tell_of_a_lost_peer():
    transport = engine.threaded_transport(lambda *_: None)
    timer = threading.Timer(0.1, transport.lost, (1, "it was closed"))
    timer.start()
    with pytest.raises(BackendError, match="The connection to rank 1 is lost: it was closed"):
        engine.emulate(
            config(npus_count=[2]),
            programs([[recv(0, 1, 0)], [comp(0)]]),
            [0, 1],
            0,
            transport,
            0,
            keep_on,
        )
    timer.join()


def test_invalid_frame_is_an_error():
    assert engine.ThreadedTransport.size_behind(1, b"GET / HTTP/1.1\r\n" * 3) == -1


def keep_on(*_):
    return True
