"""`chakrascope algorithm`: inspect, prove and export."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import command_line

from chakrascope.runner.programs import read_program

SAMPLES = Path(__file__).parents[1] / "data" / "runner" / "programs"
PLAN = str(SAMPLES / "multi_node_allgather.json.gz")
RING = ["ring", "--collective", "all-reduce", "--ranks", "4"]


def run(capsys, *arguments):
    return command_line.run_and_read(capsys, "algorithm", *arguments)


def test_inspect(capsys):
    code, out, _ = run(capsys, "inspect", PLAN, "--size", "64KiB")
    assert code == 0
    for words in ("all-gather among 8 ranks", "MSCCL++ plan, Simple", "4 in sequence", "holds"):
        assert words in out
    code, out, _ = run(capsys, "inspect", PLAN, "--size", "64KiB", "--format", "json")
    found = json.loads(out)
    assert (found["steps"], found["proof"]["holds"]) == (4, True)
    assert (
        sum(item["size_bytes"] for item in found["traffic"] if item["from"] == 0) == found["most_sent_bytes"]
    )


def test_inspect_traffic(capsys):
    _, out, _ = run(capsys, "inspect", *RING, "--view", "traffic", "--format", "csv", "--size", "4KiB")
    rows = out.split()
    assert rows[0] == "step,from,to,messages,size_bytes"
    assert rows[1] == "1,0,1,1,1024"
    assert len(rows) == 1 + 6 * 4


def test_prove(capsys, tmp_path):
    code, out, _ = run(capsys, "prove", PLAN, str(SAMPLES / "allgather_ring.xml.gz"))
    assert code == 0
    assert out.replace("\n", " ").count("right in") == 2


def test_prove_says_what_is_wrong(capsys, tmp_path):
    path = tmp_path / "ring.xml"
    assert run(capsys, "export", *RING, "--as", "msccl", "-o", str(path))[0] == 0
    assert read_program(path).num_ranks == 4
    path.write_text(path.read_text().replace('type="rrs"', 'type="rcs"', 1))
    code, out, _ = run(capsys, "prove", str(path))
    assert code == 1
    assert "result: rank" in out
    code, out, _ = run(capsys, "prove", str(path), "--format", "json")
    assert json.loads(out)["problems"][0]["kind"] == "result"
    code, _, err = run(capsys, "export", str(path), "-o", str(tmp_path / "none"))
    assert code == 2
    assert "is wrong" in err
    assert not list(tmp_path.glob("none*"))


def test_export(capsys, tmp_path):
    code, out, _ = run(capsys, "export", PLAN, "--size", "64KiB", "-o", str(tmp_path / "gather"))
    assert code == 0
    assert "8 ranks" in " ".join(out.split())
    assert len(list(tmp_path.glob("gather.*.et"))) == 8


def test_what_a_command_cannot_mean(capsys):
    assert "add --collective and --ranks" in run(capsys, "inspect", "ring")[2].replace("\n", " ")
    assert "go with a program by its name" in run(capsys, "prove", PLAN, "--ranks", "8")[2].replace("\n", " ")
    code, _, err = run(capsys, "inspect", "direct", "--collective", "broadcast", "--ranks", "4")
    assert code == 40
    assert "has no program for broadcast" in err
    assert run(capsys, "inspect", PLAN, "--size", "much")[0] == 2


def test_inspect_draws(capsys, tmp_path):
    arrows, page, boxes = (tmp_path / name for name in ("arrows.svg", "page.html", "boxes.svg"))
    assert run(capsys, "inspect", *RING, "--size", "4KiB", "-o", str(arrows))[0] == 0
    drawn = ElementTree.fromstring(arrows.read_text())
    titles = [item.text for item in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 6 * 4
    assert titles[0] == "Step 1: rank 0 to rank 1, 1.00 KiB in 1 message"
    assert run(capsys, "inspect", PLAN, "-o", str(page))[0] == 0
    assert "all-gather among 8 ranks" in page.read_text()
    assert run(capsys, "inspect", *RING[:-1], "32", "-o", str(boxes))[0] == 0
    drawn = ElementTree.fromstring(boxes.read_text())
    titles = [item.text for item in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 62 * 32
    assert "Step 2: rank 31 sends 32.0 KiB to rank 0" in titles
    code, _, err = run(capsys, "inspect", *RING, "-o", str(tmp_path / "picture.gif"))
    assert (code, "name a .svg or a .html" in err.replace("\n", " ")) == (2, True)
