"""The picture of a collective program on the page Network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chakrascope.converter import microbenchmark
from chakrascope.runner import Study, prepare, simulate
from chakrascope.runner.programs import has_arrows, inspect_program, named_program, read_program
from chakrascope.viewer import OpenRun, StudyView, create_app
from chakrascope.viewer.charts import pairs_chart, program_chart
from chakrascope.viewer.pages import _programs as programs

from .conftest import serving
from .test_accessibility import serious

HIERARCHICAL = Path(__file__).parents[1] / "data" / "runner" / "programs" / "hierarchical_allreduce.xml.gz"
NETWORK = "hgx-h100-8"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study with a run of each: a file and a named program by size, and the system's own algorithm."""
    study = Study.create(tmp_path_factory.mktemp("programs") / "study")
    study.add_workload(microbenchmark("all-reduce", 8, 1 << 20), "job")
    prefix = study.workload_prefix("job")
    runs = []
    for algorithms in ({"all-reduce": [str(HIERARCHICAL)]}, {"all-reduce": ["nccl-ring:LL:2"]}, None):
        experiment = prepare(prefix, "default", NETWORK, algorithms=algorithms)
        result = simulate(prefix, "default", NETWORK, algorithms=algorithms)
        runs.append(study.add_run(experiment, result, workload="job"))
    return study, runs


def test_programs_of_a_run_are_read_from_its_copies(made):
    study, (filed, named, plain) = made
    view = StudyView(study)
    ((demand, program),) = view.open(filed).programs.items()
    assert (demand.collective, demand.ranks, demand.size_bytes) == ("all-reduce", 8, 1 << 20)
    assert Path(program.source).is_relative_to(study.path)
    assert program.ranks == read_program(HIERARCHICAL).ranks
    assert [each.name for each in view.open(named).programs.values()] == [
        named_program("nccl-ring:LL:2", "all-reduce", 8).name
    ]
    assert not view.open(plain).programs
    assert programs.programs_card(view.open(plain)) == []


def test_what_is_lost_is_said(made):
    study, (filed, *_) = made
    run = StudyView(study).open(filed)
    kept = next(study.path.rglob("*hierarchical_allreduce*"))
    content = kept.read_bytes()
    kept.unlink()
    try:
        assert kept.name in str(programs._chooser(run, "light"))
    finally:
        kept.write_bytes(content)


def test_arrows_go_from_sender_to_receiver_in_their_step():
    found = inspect_program(named_program("ring", "all-reduce", 4), 1 << 20)
    figure = program_chart(found, "light")
    lines, pointed = figure.data
    assert lines.name == "256 KiB"
    ends = [(lines.x[place + 1], *lines.y[place : place + 2]) for place in range(0, len(lines.x), 3)]
    assert [(int(end) + 1, source, target) for end, source, target in ends] == [
        (item.step, item.source, item.destination) for item in found.traffic
    ]
    assert pointed.hovertext[0] == "Step 1: rank 0 to rank 1, 256 KiB in 1 message"
    assert "4 ranks over 6 steps; step 1: 4 senders and receivers" in figure.layout.meta


def test_many_ranks_are_a_heat_map_with_all_bytes():
    found = inspect_program(named_program("ring", "all-reduce", 32), 1 << 20)
    (drawn,) = program_chart(found, "dark").data
    assert drawn.type == "heatmap"
    assert drawn.z.shape == (32, 62)
    assert drawn.z.sum() == sum(item.size_bytes for item in found.traffic)
    assert drawn.customdata[31][0] == "32.0 KiB to rank 0"
    assert not has_arrows(found)
    (pairs,) = pairs_chart(found, "dark").data
    assert pairs.z.sum() == drawn.z.sum()
    assert (pairs.z[31][0], pairs.customdata[0][1]) == (62 << 15, "1.94 MiB")
    assert "32 pairs of 32 ranks, at most 1.94 MiB" in pairs_chart(found, "dark").layout.meta


def test_sizes_beyond_the_colours_share_them():
    found = inspect_program(named_program("ring", "all-reduce", 4), 1 << 20)
    traffic = tuple(replace(item, size_bytes=8 << number % 6) for number, item in enumerate(found.traffic))
    figure = program_chart(replace(found, traffic=traffic), "light")
    names = [trace.name for trace in figure.data if trace.name]
    assert names == ["8 B to 16 B", "32 B to 64 B", "128 B", "256 B"]
    assert sum(len(trace.hovertext) for trace in figure.data if trace.hovertext) == len(traffic)


def test_what_is_too_large_is_not_drawn(made, monkeypatch):
    study, (filed, *_) = made
    run: OpenRun = StudyView(study).open(filed)
    monkeypatch.setattr(programs, "_MOST_OPS", 10)
    assert "too many to draw" in str(programs._chooser(run, "light"))


@pytest.mark.browser
def test_picture_in_the_browser(made, page):
    study, (filed, named, _) = made
    with serving(create_app(study)) as address:
        page.goto(f"{address}/network?run={filed}")
        page.wait_for_selector("#program-chart .main-svg")
        assert "8 in sequence" in page.locator("#program").inner_text()
        assert page.get_by_role("figure", name="Who sends to whom in the program").count() == 1
        where = {"pathname": "/network", "search": f"?run={named}"}
        page.evaluate("where => window.dash_clientside.set_props('url', where)", where)
        page.wait_for_selector("#program:has-text('28 in sequence, in 2 rounds')")
        page.wait_for_selector("#program-chart .main-svg")
        page.wait_for_load_state("networkidle")
        page.wait_for_selector(".ag-delay-render", state="detached")
        assert serious(page) == []
    assert page.complaints == []
    assert page.foreign == []
