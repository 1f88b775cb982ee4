"""No request makes the server fail, and strangers are asked for the token before all else."""

from __future__ import annotations

import random
from urllib.parse import unquote

import pytest
from studies import make_study

from chakrascope.runner import Study
from chakrascope.viewer import create_app
from chakrascope.viewer._access import require_token

TOKEN = "secret"
WORDS = ("..", "http://[", "http://[::1?token=x", "%0d%0a", "a" * 300, "\u00e9", "%ff", "{}", "[", "null", "")
PATHS = (
    "/",
    "/_dash-component-suites/../x",
    "/_dash-component-suites/dash/x.js",
    "/_dash-layout",
    "/export/nodes.csv",
    "/export/x.csv",
    "/api/token",
    "/_dash-update-component",
    "/assets/../x",
    "/timeline",
    "/api/notes",
    "/_favicon.ico",
)
BODIES = (b"", b"{", b"[]", b"null", b'{"output": 1}', b"[" * 3000, b"\xff")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = make_study(tmp_path_factory.mktemp("odd") / "study")
    flask = create_app(Study.open(made.study.path)).server
    require_token(flask, TOKEN)
    flask.config["PROPAGATE_EXCEPTIONS"] = False
    return flask


def odd_request(client, chance):
    """Send a request of odd parts, and return the answer."""
    path = chance.choice(PATHS) + chance.choice(["", "/", "%2e%2e/x", *(f"/{word}" for word in WORDS)])
    names = ("token", "run", "t", "")
    query = "&".join(f"{chance.choice(names)}={chance.choice(WORDS)}" for _ in range(chance.randrange(3)))
    origin = chance.choice(WORDS).encode("ascii", "replace").decode()
    answer = client.open(
        "/",
        environ_overrides={"PATH_INFO": unquote(path, "latin-1"), "QUERY_STRING": query},
        method=chance.choice(["GET", "POST", "PUT", "HEAD"]),
        headers={"Origin": origin} if chance.random() < 0.4 else {},
        data=chance.choice(BODIES),
        content_type=chance.choice(["application/json", "text/plain"]),
    )
    return answer, (path, query, origin)


@pytest.mark.parametrize("known", [False, True])
def test_no_request_makes_it_fail(server, known):
    chance = random.Random(30)
    client = server.test_client()
    if known:
        client.get(f"/?token={TOKEN}")
    for _ in range(400):
        answer, asked = odd_request(client, chance)
        assert answer.status_code < 500, asked
        answer.close()


def test_the_token_is_asked_for_before_anything_is_read(server):
    answer = server.test_client().post("/_dash-update-component", data=b"{", content_type="application/json")
    assert answer.status_code == 403
