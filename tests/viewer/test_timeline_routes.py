"""What the timeline asks the server for, well-formed and not."""

import json

import pytest

from chakrascope.viewer import create_app
from chakrascope.viewer.report import write_report


@pytest.fixture(scope="module")
def client(study):
    return create_app(study).server.test_client()


@pytest.mark.parametrize(
    "query",
    ["lanes=1e25", "lanes=0-", "lanes=-1", "lanes=0-999999999", "lanes=x", "lanes=²", "lanes=5-1",
     "lanes=99999", "colour=x", "nested=2&measured=9", "seek=%00", "px=-5"],
)  # fmt: skip
def test_malformed_windows_are_refused_or_answered_quietly(client, made, query):
    for route in ("slices", "area", "lanes", "seek", "arrivals"):
        assert client.get(f"/api/{route}?run={made.run_a}&{query}").status_code in (200, 400)


@pytest.mark.parametrize("colour", ["kind", "operator", "module", "stream"])
@pytest.mark.parametrize("nested", [0, 1])
def test_colours_are_of_the_palette_and_named(client, made, colour, nested):
    found = client.get(f"/api/lanes?run={made.run_a}&colour={colour}&nested={nested}").json
    assert all(shown in found["palette"] for _, shown in found["legend"])
    named = {name for name, _ in found["legend"]}
    expected = {
        "kind": "Computation",
        "operator": "aten::mm",
        "module": "layers.3",
        "stream": "communication",
    }
    assert expected[colour] in named


def test_hits_are_walked_in_order_of_time(client, made):
    address = f"/api/seek?run={made.run_a}&seek=allreduce"
    first = client.get(f"{address}&at=0").json
    assert first["count"] == 12
    found = [client.get(f"{address}&at={at}").json for at in range(12)]
    assert len({(hit["rank"], hit["node"]) for hit in found}) == 12
    assert client.get(f"{address}&at=12").json == first
    assert client.get(f"{address}&ranks=1").json["count"] == 6
    assert client.get(f"{address}&t0=99999999999").json["at"] == 0
    assert client.get(f"/api/seek?run={made.run_a}&seek=nothing-is-called-so").json == {"count": 0}


def test_counterpart_of_an_unknown_node_is_not_found(client, made):
    assert (
        client.get(f"/api/counterpart?run={made.run_a}&beside={made.run_b}&rank=0&node=999").status_code
        == 404
    )
    assert client.get(f"/api/counterpart?run={made.run_a}&beside=none&rank=0&node=1").status_code == 404


def test_nested_area_is_exported_by_name(client, made):
    answer = client.get(f"/export/area.csv?run={made.run_a}&nested=1&t0=0&t1=9000000&lanes=0-3")
    assert answer.data.decode().splitlines()[0] == "name,row,slices,total_ns,mean_ns,longest_ns,measured_ns"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "x", "t0": 5, "t1": 1}, 409),
        ({"text": "", "t0": 0, "t1": 1}, 409),
        ({"text": "x", "t0": 0, "t1": 1, "rank": 0, "node": 999}, 404),
        ({"text": "x", "t0": "0", "t1": 1}, 400),
        ({"text": "x", "t0": True, "t1": 1}, 400),
        ([], 400),
        ({"remove": "none"}, 409),
    ],
)
def test_notes_that_cannot_be_kept_are_refused(client, made, body, status):
    answer = client.post(f"/api/notes?run={made.run_a}", json=body)
    assert answer.status_code == status
    assert client.get(f"/api/notes?run={made.run_a}").json == {"notes": []}


def test_other_sites_cannot_write_notes(client, made):
    body, address = json.dumps({"text": "x", "t0": 0, "t1": 1}), f"/api/notes?run={made.run_a}"
    other = {"Origin": "http://elsewhere.example"}
    assert client.post(address, data=body, content_type="application/json", headers=other).status_code == 403
    assert client.post(address, data=body, content_type="text/plain").status_code == 415


def test_notes_stand_in_the_report(client, made, tmp_path):
    text = "<b>rank 1</b> is late"
    kept = client.post(
        f"/api/notes?run={made.run_b}", json={"text": text, "t0": 0, "t1": 9, "rank": 1, "node": 4}
    )
    try:
        page = write_report(made.study, made.run_b, tmp_path / "r.html").read_text(encoding="utf-8")
        assert "&lt;b&gt;rank 1&lt;/b&gt; is late" in page
        assert "(node 4 of rank 1)" in page
    finally:
        client.post(f"/api/notes?run={made.run_b}", json={"remove": kept.json["notes"][0]["id"]})
    assert (
        "Notes on the timeline" not in write_report(made.study, made.run_b, tmp_path / "r.html").read_text()
    )
