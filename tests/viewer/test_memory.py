"""The memory of a predicted step on the page Summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from chakrascope.converter.generate.models import Plan, find_model
from chakrascope.runner import NetworkConfig, Study
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import Setting, keep_prediction, predict
from chakrascope.viewer import StudyView
from chakrascope.viewer._state import Selection
from chakrascope.viewer.charts import memory_area
from chakrascope.viewer.pages import _summary


def test_the_summary_of_a_prediction_draws_the_fullest_rank(tmp_path: Path):
    model = replace(find_model("llama3-8b"), layers=4)
    plan = Plan(tp=2, pp=2, dp=2, global_batch=16)
    found = predict(Setting(model, plan, find_chip("h100"), NetworkConfig.preset("hgx-h100-8"), "megatron"))
    study = Study.create(tmp_path / "s")
    run = StudyView(study).open(keep_prediction(found, study))
    shown = str(_summary.layout(run, Selection(), "light"))
    assert "Memory of a rank" in shown
    assert "of the 2 pipeline stages, stage 1 holds most" in shown
    figure = memory_area(found.memory_over_time[1].to_json(), "dark")
    heights = [sum(levels) for levels in zip(*(part.y for part in figure.data), strict=True)]
    assert abs(max(heights) * 2**30 - found.memory_bytes) < 1
