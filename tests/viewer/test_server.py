import socket
import threading
import urllib.request

import pytest

from chakrascope.errors import ChakrascopeError
from chakrascope.viewer import create_app, serve


def test_port_in_use_says_what_to_do_and_prints_nothing(study, capfd):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ChakrascopeError, match="--port"):
            serve(study, port=taken.getsockname()[1])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("query", ["run=../../etc", "run=run-a&t0=x", "run=run-a&px=1e400"])
def test_hostile_window_is_refused_or_answered_quietly(study, query):
    client = create_app(study).server.test_client()
    assert client.get(f"/api/slices?{query}").status_code in (200, 400, 404)


def test_unknown_node_is_not_found(study):
    client = create_app(study).server.test_client()
    assert client.get("/api/node?run=run-a&rank=0&node=999").status_code == 404


def test_policy_allows_only_this_server(study):
    policy = create_app(study).server.test_client().get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'unsafe-inline'" not in policy


def test_serve_tells_its_address_once_it_answers(study):
    ready, address = threading.Event(), []

    def note(url):
        address.append(url)
        ready.set()

    threading.Thread(target=serve, args=(study,), kwargs={"port": 0, "ready": note}, daemon=True).start()
    assert ready.wait(10)
    with urllib.request.urlopen(address[0], timeout=10) as reply:
        assert reply.status == 200
