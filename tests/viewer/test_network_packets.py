"""The page Network of runs whose backend knows packets: without links, as ASTRA-sim's ns-3, and with them."""

from __future__ import annotations

import dataclasses

from studies import make_study

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, Study, prepare, simulate
from chakrascope.runner.analysis import link_table
from chakrascope.viewer import OpenRun, StudyView
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _network as network
from chakrascope.viewer.queries import link_map


def test_packets_are_shown_without_links(tmp_path):
    made = make_study(tmp_path / "study")
    run = StudyView(made.study).open(made.run_a)
    facts = {"pause_frames": 7, "drops": 0}
    result = dataclasses.replace(run.result, provenance=run.result.provenance | {"packets": facts})
    shown = str(network.layout(OpenRun(run.view, run.info, result, run.workload), Selection(), "light"))
    assert "records no links" in shown
    assert "Pause frames" in shown


NAMED = {
    "topology": ["Switch"],
    "npus_count": [4],
    "bandwidth": [46.5],
    "latency": [500.0],
    "dimensions": "logical",
    "devices": ["gpu.0", "gpu.1", "gpu.2", "gpu.3", "leaf.0", "leaf.1", "spine.0", "spine.1"],
    "links": [[rank, 4 + rank // 2, 46.5, 500.0] for rank in range(4)]
    + [[leaf, spine, 46.5, 500.0] for leaf in (4, 5) for spine in (6, 7)],
    "packet": {},
}


def packet_run(tmp_path, *failures):
    study = Study.create(tmp_path / "study")
    study.add_workload(microbenchmark("all-reduce", 4, 4096), "ring")
    config = NetworkConfig.from_mapping(NAMED | {"failures": [*failures]}, "here", "fabric")
    prefix = study.workload_prefix("ring")
    experiment = prepare(prefix, "default", config, backend="packet")
    run = study.add_run(experiment, simulate(prefix, "default", config, backend="packet"), workload="ring")
    return StudyView(study).open(run)


def test_switches_have_their_names_and_what_is_down_is_seen(tmp_path):
    run = packet_run(tmp_path, {"link": ["leaf.0", "spine.1"]})
    links = link_table(run.result)
    assert {"leaf.0", "leaf.1", "spine.0", "spine.1"} < {*links["source"]}
    drawn = link_map(run.result, links)
    assert drawn.down["text"].tolist() == ["Failure: link leaf.0 - spine.1 is down from the start."]
    shown = str(network.layout(run, Selection(), "light"))
    assert "link leaf.0 - spine.1 is down" in shown
    assert "1 collective takes" in shown


def test_switches_keep_their_numbers_beside_one_that_is_down(tmp_path):
    run = packet_run(tmp_path, {"device": 6})
    links = link_table(run.result)
    assert "spine.0" not in {*links["source"], *links["target"]}
    assert "spine.1" in {*links["source"]}
    assert link_map(run.result, links).down.empty
    assert "every link of spine.0 is down" in str(network.layout(run, Selection(), "dark"))
