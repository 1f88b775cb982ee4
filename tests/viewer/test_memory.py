"""The memory of a predicted step on the page Summary, and a search for plans on the page Sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from chakrascope.runner import NetworkConfig, Study
from chakrascope.runner.chips import find_chip
from chakrascope.runner.planning import Cluster, Request, search_plans
from chakrascope.runner.prediction import Setting, keep_prediction, predict
from chakrascope.runner.prediction.models import Plan, find_model
from chakrascope.viewer import StudyView
from chakrascope.viewer._state import Selection
from chakrascope.viewer._theme import MEMORY_PARTS
from chakrascope.viewer.charts import memory_area
from chakrascope.viewer.pages import _summary, _sweep
from chakrascope.viewer.report import report_html


def test_the_summary_of_a_prediction_draws_the_fullest_rank(tmp_path: Path):
    model = replace(find_model("llama3-8b"), layers=4)
    plan = Plan(tp=2, pp=2, dp=2, global_batch=16)
    found = predict(Setting(model, plan, find_chip("h100"), NetworkConfig.preset("hgx-h100-8"), "megatron"))
    study = Study.create(tmp_path / "s")
    run = StudyView(study).open(keep_prediction(found, study))
    shown = str(_summary.layout(run, Selection(), "light"))
    assert "Memory per rank" in shown
    assert "Of the 2 pipeline stages, stage 1 holds most" in shown
    report = report_html(run)
    picture = report[report.index("Memory per rank") :].partition("</section>")[0]
    assert "Fits: the fullest rank holds" in picture
    assert "Of the 2 pipeline stages, stage 1 holds most" in picture
    assert picture.count('Z" fill=') == len(MEMORY_PARTS)
    assert "80.0 GiB of the chip" in picture
    figure = memory_area(found.memory_over_time[1].to_json(), "dark")
    heights = [sum(levels) for levels in zip(*(part.y for part in figure.data), strict=True)]
    assert abs(max(heights) * 2**30 - found.memory_bytes) < 1


def test_a_search_for_plans_is_shown_as_a_sweep(tmp_path: Path):
    model = replace(find_model("llama3-8b"), layers=4)
    cluster = Cluster(find_chip("h100"), NetworkConfig.preset("hgx-h100-8"))
    only = {"cp": (1,), "zero": (1,), "pp": (1, 2)}
    study = Study.create(tmp_path / "s")
    found = search_plans(Request(model, (cluster,), 16, only=only), study=study, most=6)
    selection = Selection.parse(f"?sweep={found.name}&pareto=memory_bytes")
    shown = str(_sweep.layout(StudyView(study), selection, "light"))
    assert "The shortest step is" in shown
    assert "of memory of a rank (bytes), the smallest costs least" in shown
