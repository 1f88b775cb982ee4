"""Exports of a real server: a few at a time, in pieces, and none for a client that has gone."""

from __future__ import annotations

import http.client
import threading
from urllib.parse import urlsplit

import pandas as pd
import pytest
from processes import wait_for

from chakrascope.viewer import _exports, _routes, serve
from chakrascope.viewer._exports import _AT_ONCE

PATIENCE_S = 300  # only a fault takes as long


class Slow:
    """A table that takes until it is let go; counts how often it is made, and how often at once."""

    def __init__(self, rows: int = 3) -> None:
        self.go, self.lock = threading.Event(), threading.Lock()
        self.begun = self.now = self.most = 0
        self.rows = rows

    def __call__(self, *_: object) -> pd.DataFrame:
        with self.lock:
            self.begun += 1
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.go.wait(2 * PATIENCE_S)
        with self.lock:
            self.now -= 1
        return pd.DataFrame({"number": range(self.rows), "text": ["=1+1"] * self.rows})


@pytest.fixture(scope="module")
def address(study):
    """Serve the study, until the tests end."""
    ready: list[str] = []
    threading.Thread(
        target=serve,
        args=(study,),
        kwargs={"port": 0, "with_token": False, "ready": ready.append},
        daemon=True,
    ).start()
    wait_for(lambda: bool(ready))
    return urlsplit(ready[0]).netloc


def asked(address: str, path: str = "/export/nodes.csv") -> http.client.HTTPConnection:
    """Return a connection on which *path* was asked for."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request("GET", path)
    return connection


@pytest.fixture
def slow(monkeypatch):
    """Put a table that waits in the place of that of all nodes."""
    table = Slow()
    monkeypatch.setattr(_routes, "TABLES", {**_routes.TABLES, "nodes": table})
    yield table
    table.go.set()
    wait_for(lambda: table.now == 0)


def test_a_few_are_made_at_once_and_small_requests_are_answered_meanwhile(address, slow):
    exports = [asked(address) for _ in range(40)]
    wait_for(lambda: slow.begun == _AT_ONCE)
    for path in ("/", "/_dash-layout", "/export/runs.csv"):
        assert asked(address, path).getresponse().status == 200  # it waits for none of them
    assert slow.begun == _AT_ONCE
    slow.go.set()
    answers = [export.getresponse() for export in exports]
    assert {(answer.status, answer.read()) for answer in answers} == {
        (200, b"number,text\n0,'=1+1\n1,'=1+1\n2,'=1+1\n")
    }
    assert (slow.begun, slow.most) == (40, _AT_ONCE)


def test_nothing_is_made_for_who_gave_up_waiting(address, slow, monkeypatch):
    is_gone, left = _exports._is_gone, []
    monkeypatch.setattr(_exports, "_is_gone", lambda client: is_gone(client) and not left.append(client))
    patient = [asked(address) for _ in range(_AT_ONCE)]
    wait_for(lambda: slow.begun == _AT_ONCE)
    gone = [asked(address) for _ in range(20)]
    last = asked(address)
    for export in gone:
        export.close()
    wait_for(lambda: len(left) == len(gone))
    slow.go.set()
    for export in (*patient, last):
        assert export.getresponse().status == 200
    assert slow.begun == _AT_ONCE + 1


def test_who_leaves_while_it_is_written_makes_room(address, slow):
    slow.rows = 2_000_000
    slow.go.set()
    for _ in range(3 * _AT_ONCE):
        export = asked(address)
        assert export.getresponse().read(100).startswith(b"number,text")
        export.close()
    slow.rows = 3
    assert asked(address).getresponse().status == 200


def test_an_error_makes_room(address, monkeypatch):
    def fail(*_: object) -> pd.DataFrame:
        raise _routes.StudyError("The table is damaged; run it again.")

    monkeypatch.setattr(_routes, "TABLES", {**_routes.TABLES, "nodes": fail})
    for _ in range(3 * _AT_ONCE):
        answer = asked(address).getresponse()
        assert (answer.status, answer.read()) == (409, b"The table is damaged; run it again.")
    head = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    for _ in range(3 * _AT_ONCE):
        head.request("HEAD", "/export/ranks.csv")
        assert head.getresponse().read() == b""


def test_many_rows_are_the_same_in_pieces(address, slow):
    slow.rows = 10_001
    slow.go.set()
    text = asked(address).getresponse().read().decode()
    lines = [f"{number},'=1+1" for number in range(10_001)]
    assert text.splitlines() == ["number,text", *lines]
