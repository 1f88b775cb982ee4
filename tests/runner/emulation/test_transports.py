"""Transports, and collective programs over them: the messages of a simulation, in their order."""

import gzip
import importlib.util
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from jobs import (
    CAPTURED,
    posted_messages,
    shared_memory,
    steps,
)
from workloads import coll, recv, send, workload

from chakrascope.converter import CollectiveType, microbenchmark
from chakrascope.errors import BackendError, BackendUnavailable, ConfigError
from chakrascope.runner import engine, get_backend, prepare
from chakrascope.runner.emulation import Channel, answer, challenge, libfabric
from chakrascope.runner.emulation._transports import entrance_of
from chakrascope.runner.emulation._wire import Rank
from chakrascope.runner.programs import builtin_program, write_msccl

MIB = 1 << 20


def measured(job, transport):
    backend = f"emulation:loopback,transport={transport}"
    return get_backend(backend).run(prepare(job, "default", None, backend=backend))


def test_large_messages_go_both_ways_at_once_in_bounded_memory(transport):
    size = 192 * MIB
    job = workload(
        *[[send(0, rank, 1 - rank, size), recv(1, 1 - rank, rank, size)] for rank in range(2)],
        metadata=CAPTURED,
    )

    def peak(job):
        return max(measured(job, transport).provenance["emulation"]["peak_bytes"])

    if transport != "gloo":
        assert peak(job) <= 256 * MIB
        return
    small = workload([send(0, 0, 1), recv(1, 1, 0)], [send(0, 1, 0), recv(1, 0, 1)])
    # Most of a rank's memory is PyTorch.
    assert peak(job) - peak(small) <= 64 * MIB


def test_messages_may_arrive_before_the_receive(transport):
    sizes = (1, 47, 48, 4096, 65_536, 262_144, 262_145, 3_000_000)
    sends = [send(number, 0, 1, size) for number, size in enumerate(sizes)]
    # In the opposite order, each after the previous one has arrived.
    receives = [
        recv(number, 0, 1, size, (number - 1,) if number else ())
        for number, size in enumerate(reversed(sizes))
    ]
    flows = measured(workload(sends, receives, metadata=CAPTURED), transport).flows
    assert sorted(flows["bytes"]) == list(sizes)
    assert (flows["end_ns"] > 0).all()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glo", "no transport 'glo' - did you mean 'gloo'"),
        ("gloo:tcp", "no transport 'gloo:tcp' - did you mean"),
        ("libfabric", "'libfabric' needs an argument: libfabric:PROVIDER"),
        ("fabric:tcp", "no transport 'fabric:tcp' - did you mean 'libfabric:PROVIDER'"),
    ],
)
def test_an_unknown_transport_is_named(name, text):
    with pytest.raises(ConfigError, match=text):
        prepare(steps(), "default", None, backend=f"emulation:loopback,transport={name}")


def test_an_unknown_provider_is_named_by_the_host():
    if not engine.FabricTransport.is_built():
        pytest.skip("the engine was built without libfabric (libfabric-dev)")
    with pytest.raises(ConfigError, match=r"Rank \d on localhost: libfabric has no provider 'tpc'"):
        measured(steps(), "libfabric:tpc")


def test_missing_libfabric_names_the_package(monkeypatch):
    monkeypatch.setattr(engine, "FabricTransport", NotBuilt)
    with pytest.raises(BackendUnavailable, match="install libfabric-dev"):
        libfabric.fabric_transport("tcp", ["127.0.0.1"], 0, b"")


class NotBuilt:
    @staticmethod
    def is_built():
        return False


def test_missing_torch_names_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'chakrascope\[torch\]'"):
        entrance_of(Rank(0, ("127.0.0.1",), b"", "gloo"))


# A collective program on emulated ranks: the simulated messages, each after its dependencies.

SAMPLES = Path(__file__).parents[2] / "data/runner/programs"
TAGS = 1 << 24  # as the engine passes them to each run of a program
SIZE = 65_536


def emulated(job, algorithms, transport="tcp", **more):
    """Return the experiment of *job* with these *algorithms*, and its messages in the order of posting."""
    backend = f"emulation:loopback,transport={transport}"
    experiment = prepare(job, "default", None, backend=backend, algorithms=algorithms, **more)
    flows = get_backend(backend).run(experiment).flows
    return experiment, flows.sort_values("start_ns", ignore_index=True)


def by_source(messages):
    """Return (destination, bytes) of *messages*, in their order, by the sending rank."""
    found = {}
    for source, *rest in messages:
        found.setdefault(int(source), []).append(tuple(map(int, rest)))
    return found


def messages_of(flows):
    return flows[["src", "dst", "bytes"]].itertuples(index=False, name=None)


def keeps_its_dependencies(lowered, flows):
    """Assert that *flows* are the sends of *lowered*, each sent after its dependencies."""
    flow_of = {(row.src, row.tag % TAGS): row for row in flows.itertuples()}
    sends = [
        (rank, node.peer, node.size_bytes, node.tag)
        for rank, nodes in enumerate(lowered.ranks)
        for node in nodes
        if node.kind == "send"
    ]
    found = [(row.src, row.dst, row.bytes, row.tag % TAGS) for row in flows.itertuples()]
    assert sorted(found) == sorted(sends)
    for rank, nodes in enumerate(lowered.ranks):
        over = []  # the earliest end of each of the rank's nodes
        for node in nodes:
            begun = max((over[before] for before in node.after), default=0)
            if node.kind == "send":
                flow = flow_of[rank, node.tag]
                assert flow.start_ns >= begun
                begun = flow.start_ns
            elif node.kind == "receive":
                begun = max(begun, flow_of[node.peer, node.tag].end_ns)
            over.append(begun)


@pytest.fixture
def ring(tmp_path):
    """A program in which every rank has one order of messages: each waits for the previous one."""
    (tmp_path / "ring.xml").write_text(write_msccl(builtin_program("ring", "all-reduce", 3)))
    return str(tmp_path / "ring.xml")


def test_every_transport_carries_the_messages_of_the_simulation_in_their_order(transport, ring):
    before = shared_memory()
    job = microbenchmark("all-reduce", 3, 3 * SIZE)
    experiment, flows = emulated(job, {"all-reduce": [ring]}, transport)
    expected = posted_messages(experiment)
    for earlier, later in (("start_ns", "begun_ns"), ("begun_ns", "sent_ns"), ("begun_ns", "arriving_ns")):
        assert (flows[earlier] <= flows[later]).all()
    assert (flows["arriving_ns"] <= flows["end_ns"]).all()
    assert shared_memory() <= before
    assert len(expected) == 12
    assert by_source(messages_of(flows)) == by_source(expected)
    (lowered,) = experiment.program_messages.values()
    keeps_its_dependencies(lowered, flows)


@pytest.mark.parametrize(
    ("name", "kind", "ranks"),
    [
        ("allreduce_packet.json", "all-reduce", 2),
        ("allreduce_pipeline.json", "all-reduce", 4),
        ("hierarchical_allreduce.xml", "all-reduce", 8),
        ("multi_node_allgather.json", "all-gather", 8),
    ],
)
def test_plans_and_xml_run_as_they_are(name, kind, ranks, tmp_path):
    """MSCCL++ plans and MSCCL XML from other projects, some with several concurrent thread blocks."""
    path = tmp_path / name
    path.write_bytes(gzip.decompress((SAMPLES / f"{name}.gz").read_bytes()))
    experiment, flows = emulated(microbenchmark(kind, ranks, SIZE), {kind: [str(path)]})
    assert sorted(messages_of(flows)) == sorted(posted_messages(experiment))
    (lowered,) = experiment.program_messages.values()
    keeps_its_dependencies(lowered, flows)


def test_each_size_and_group_has_its_own_program(ring):
    """Ranks of a group and of all, a size that the file does not fit, an algorithm that is not a program."""
    whole = [coll(0, 3 * SIZE), coll(1, 3 * SIZE + 1, (0,))]
    pair, last = coll(2, SIZE, (1,), group=1), coll(3, SIZE, (1,), CollectiveType.ALL_TO_ALL)
    inside = [*whole, pair, last | {"after": (2,)}]
    job = workload(inside, [*whole, last], inside, groups={"1": [0, 2]}, metadata=CAPTURED)
    algorithms = {"all-reduce": [ring, "nccl-ring:Simple:1"], "all-to-all": ["direct"]}
    experiment, flows = emulated(job, algorithms)
    names = sorted(lowered.program.name for lowered in experiment.program_messages.values())
    assert names == ["nccl_ring_Simple_all-reduce_1"] * 2 + ["ring_all-reduce"]
    assert sorted(messages_of(flows)) == sorted(posted_messages(experiment))


def test_two_runs_of_a_program_keep_their_messages_apart(ring):
    job = workload(*[[coll(0, 3 * SIZE), coll(1, 3 * SIZE, stream=2)]] * 3, metadata=CAPTURED)
    experiment, flows = emulated(job, {"all-reduce": [ring]})
    assert sorted(messages_of(flows)) == sorted(posted_messages(experiment))
    runs, counts = np.unique(flows["tag"] // TAGS, return_counts=True)
    assert (len(runs), counts.tolist()) == (2, [12, 12])


# Channels: both ends prove that they know the secret, and reject modified data.


SECRET = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """Close the sockets of a test at its end."""
    made = []
    connected = socket.socketpair

    def connect():
        pair = connected()
        made.extend(pair)
        return pair

    monkeypatch.setattr(socket, "socketpair", connect)
    yield
    for each in made:
        each.close()


def both(first, second):
    """Return the results or exceptions of two functions of a socket, run concurrently."""
    ends = socket.socketpair()
    found = [None, None]

    def run(place, function):
        try:
            found[place] = function(ends[place])
        except BackendError as error:
            found[place] = error
            ends[place].close()

    threads = [threading.Thread(target=run, args=each) for each in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def channels():
    return both(lambda end: challenge(end, SECRET), lambda end: answer(end, SECRET))


def test_messages_arrive_whole_and_in_order():
    joining, host = channels()
    joining.send("job", {"ranks": [0, 1]}, [b"program", b"", bytes(10_000)])
    joining.send("more")
    found = []
    while len(found) < 2:
        found += host.pump()
    assert [message.kind for message in found] == ["job", "more"]
    assert found[0].facts == {"ranks": [0, 1]}
    assert [len(piece) for piece in found[0].pieces] == [7, 0, 10_000]
    host.send("yes")
    host.send("no")
    assert [joining.receive(5).kind, joining.receive(5).kind] == ["yes", "no"]


def test_who_does_not_know_the_secret_is_refused():
    joining, host = both(lambda end: challenge(end, SECRET), lambda end: answer(end, b"another secret.."))
    assert "does not know the token" in joining.message
    assert isinstance(host, BackendError)


def test_agent_without_the_token_is_refused():
    def pretend(end):
        end.sendall(b"chakrascope emulation 1\n" + bytes(32))
        end.recv(64, socket.MSG_WAITALL)
        end.sendall(bytes(32))

    _, host = both(pretend, lambda end: answer(end, SECRET))
    assert "does not know the token" in host.message


def test_something_else_is_refused():
    _, host = both(lambda end: end.sendall(b"GET / HTTP/1.1\r\n\r\n" * 3), lambda end: answer(end, SECRET))
    assert "not an agent of an emulation" in host.message


def test_a_proof_cannot_be_used_again():
    seen = bytearray()

    class Tapped:
        def __init__(self, end):
            self.end = end

        def __getattr__(self, name):
            return getattr(self.end, name)

        def sendall(self, data):
            seen.extend(data)
            self.end.sendall(data)

    both(lambda end: challenge(Tapped(end), SECRET), lambda end: answer(end, SECRET))

    def replay(end):
        end.sendall(bytes(seen[:56]))
        end.recv(64, socket.MSG_WAITALL)
        end.sendall(bytes(seen[56:]))

    _, host = both(replay, lambda end: answer(end, SECRET))
    assert "does not know the token" in host.message
    assert SECRET not in seen


@pytest.mark.parametrize("place", [0, 9, 20, 50, 60])
def test_a_changed_byte_is_noticed(place):
    one, other = socket.socketpair()
    sender = Channel(one, b"key", b"key")
    sender.send("job", {"a": 1})
    sent = bytearray(other.recv(10_000))
    sent[place] ^= 1
    third, fourth = socket.socketpair()
    third.sendall(sent)
    third.close()
    receiver = Channel(fourth, b"key", b"key")
    with pytest.raises(BackendError, match=r"modified in transit|not a message|closed"):
        receiver.receive(1)


def test_a_repeated_message_is_noticed():
    one, other = socket.socketpair()
    Channel(one, b"key", b"key").send("job")
    sent = other.recv(10_000)
    third, fourth = socket.socketpair()
    third.sendall(sent + sent)
    with pytest.raises(BackendError, match="modified in transit"):
        list(Channel(fourth, b"key", b"key").pump())


def test_too_long_message_is_not_read():
    one, other = socket.socketpair()
    one.sendall(bytes([255] * 12))
    with pytest.raises(BackendError, match="not a message of an emulation"):
        list(Channel(other, b"key", b"key").pump())


def test_the_end_is_told():
    joining, host = channels()
    host.close()
    with pytest.raises(BackendError, match="closed at the other end"):
        joining.receive(5)
