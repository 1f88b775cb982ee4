"""The page Network of runs whose backend knows packets but no links, as ASTRA-sim's ns-3."""

from __future__ import annotations

import dataclasses

from studies import make_study

from chakrascope.viewer import OpenRun, StudyView
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _network as network


def test_packets_are_shown_without_links(tmp_path):
    made = make_study(tmp_path / "study")
    run = StudyView(made.study).open(made.run_a)
    facts = {"pause_frames": 7, "drops": 0}
    result = dataclasses.replace(run.result, provenance=run.result.provenance | {"packets": facts})
    shown = str(network.layout(OpenRun(run.view, run.info, result, run.workload), Selection(), "light"))
    assert "records no links" in shown
    assert "Pause frames" in shown
