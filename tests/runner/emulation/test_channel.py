"""Channels: both ends prove that they know the secret, and take nothing that was changed on its way."""

from __future__ import annotations

import socket
import threading

import pytest

from chakrascope.errors import BackendError
from chakrascope.runner.emulation import Channel, answer, challenge

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
    """Return what each of two functions of a socket returns or raises, run at once."""
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


def test_an_agent_that_does_not_know_it_is_refused_too():
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
    with pytest.raises(BackendError, match=r"changed on its way|not a message|closed"):
        receiver.receive(1)


def test_a_repeated_message_is_noticed():
    one, other = socket.socketpair()
    Channel(one, b"key", b"key").send("job")
    sent = other.recv(10_000)
    third, fourth = socket.socketpair()
    third.sendall(sent + sent)
    with pytest.raises(BackendError, match="changed on its way"):
        list(Channel(fourth, b"key", b"key").pump())


def test_what_is_too_long_is_not_read():
    one, other = socket.socketpair()
    one.sendall(bytes([255] * 12))
    with pytest.raises(BackendError, match="not a message of an emulation"):
        list(Channel(other, b"key", b"key").pump())


def test_the_end_is_told():
    joining, host = channels()
    host.close()
    with pytest.raises(BackendError, match="closed at the other end"):
        joining.receive(5)
