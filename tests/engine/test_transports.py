"""Ranks over libfabric do what they do over sockets, with strangers at the door and threads of Python."""

from __future__ import annotations

import threading
import time

import et
import pytest
from ranks import OverFabric, emulate, sent_messages, simulated_messages

from build import coll, comp, config, recv, send
from chakrascope.errors import BackendError, ConfigError
from chakrascope.runner import engine
from chakrascope.runner.emulation.libfabric import fabric_transport, join_fabric

MS = 1_000_000
SECOND = 1_000_000_000
KEY = b"k" * 16

needs_libfabric = pytest.mark.skipif(
    not engine.FabricTransport.is_built(), reason="the engine was built without libfabric (libfabric-dev)"
)


@pytest.fixture(params=["tcp", "shm"])
def enter(request):
    return OverFabric(request.param)


def programs(ranks):
    return [et.program(nodes) for nodes in ranks]


@needs_libfabric
@pytest.mark.parametrize("kind", ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"])
def test_a_collective_becomes_the_messages_of_its_simulation(kind, enter):
    job = programs([[coll(0, 40_000, comm_type=kind)]] * 4)
    measured = [message[:3] for message in sent_messages(emulate(job, config(), enter=enter))]
    assert measured == simulated_messages(job, config())


@needs_libfabric
def test_a_message_that_comes_before_its_receive_waits_for_it(enter):
    # The second message leaves once the first has arrived: were its receive needed for that, none would end.
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


@needs_libfabric
def test_large_messages_from_all_to_all_at_once_do_not_block_each_other(enter):
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


@needs_libfabric
def test_several_interfaces_take_turns():
    job = programs(
        [
            [send(number, 0, 1, 50_000, tag=number) for number in range(6)],
            [recv(number, 0, 1, 50_000, tag=number) for number in range(6)],
        ]
    )
    settings = config(npus_count=[2], semantics="trace")
    sender, receiver = emulate(job, settings, paths=2, enter=OverFabric("tcp"))
    assert sorted(sender.sent["path"].tolist()) == [0, 0, 0, 1, 1, 1]
    by_number = dict(
        zip(receiver.received["number"].tolist(), receiver.received["path"].tolist(), strict=True)
    )
    assert [by_number[number] for number in range(6)] == sender.sent["path"].tolist()


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


@needs_libfabric
def test_a_rank_without_a_way_to_its_peer_says_so():
    transport = join_fabric(fabric_transport("tcp", ["127.0.0.1"], 0, KEY), {}, 0)
    with pytest.raises(BackendError, match="no connection to rank 1"):
        engine.emulate(
            config(npus_count=[2]),
            programs([[send(0, 0, 1)], [recv(0, 0, 1)]]),
            [0, 1],
            0,
            transport,
            0,
            keep_on,
        )


@pytest.fixture
def ends():
    """Return where transports are kept that call each other, and must not be kept for ever."""
    found = {}
    yield found
    found.clear()


def over_threads(ends):
    """Return what joins two ranks by functions of Python."""

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
            config(npus_count=[2]), programs([[recv(0, 1, 0)], [comp(0)]]), [0, 1], 0, transport, 0, keep_on
        )
    timer.join()


def test_what_is_no_frame_is_told():
    assert engine.ThreadedTransport.size_behind(1, b"GET / HTTP/1.1\r\n" * 3) == -1


def keep_on(*_):
    return True
