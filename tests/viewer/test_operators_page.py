"""The page Operators: a roofline with a point per operator, which leads to the timeline."""

from __future__ import annotations

import pytest

from chakrascope.converter import convert_files
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import (
    TABLES,
    analyse_run,
    joined_operators,
    longest_call,
    roofline_points,
    rooflines,
)
from chakrascope.viewer import create_app
from chakrascope.viewer.charts import roofline_scatter

from .conftest import serving, watched


@pytest.fixture(scope="module")
def bert(tmp_path_factory, data_dir):
    study = Study.create(tmp_path_factory.mktemp("operators") / "study")
    workload = convert_files(None, str(data_dir / "converter/kineto/bert_small_h100.json.gz"), None)
    experiment = prepare(study.add_workload(workload, "bert"), "default", None, backend="replay")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="bert")
    return study


def test_a_point_is_below_its_roof_and_its_area_is_its_time(bert):
    run = analyse_run(bert)
    points = roofline_points(joined_operators(TABLES["operators"](run)))
    (roof,) = rooflines(points)
    assert roof.peaks == {"bf16": pytest.approx(989.4), "fp32": pytest.approx(67)}
    roofs = points["intensity"] * roof.tb_per_s
    assert (points["tflops_per_s"] <= roofs.clip(upper=roof.peaks["bf16"])).all()
    assert points["tflops_per_s"].tolist() == pytest.approx(
        (points["intensity"] * points["tb_per_s"]).tolist()
    )
    for scheme in ("light", "dark"):
        figure = roofline_scatter(points, [roof], scheme)
        drawn = figure.data[0]
        assert len(drawn.x) == len(points)
        assert max(drawn.marker.size) / sorted(drawn.marker.size)[-2] == pytest.approx(
            (points["time_ns"].max() / points["time_ns"].nlargest(2).iloc[1]) ** 0.5
        )


def test_the_longest_call_has_the_size_of_its_point(bert):
    run = analyse_run(bert)
    points = roofline_points(joined_operators(TABLES["operators"](run)))
    large = points[points["operator"] == "aten::addmm"].nlargest(1, "size_bytes").iloc[0]
    rank, node = longest_call(run, "aten::addmm", int(large["size_bytes"]))
    found = run.workload.graph_of(rank).nodes.set_index("node_id").loc[node]
    assert found["tensor_size_bytes"] == large["size_bytes"]
    assert longest_call(run, "aten::none", 1) == (-1, -1)


@pytest.mark.browser
def test_a_selected_point_opens_the_timeline(bert, context):
    with serving(create_app(bert)) as address:
        page = watched(context)
        page.goto(f"{address}/operators")
        page.wait_for_selector("#roofline .js-plotly-plot .scatterlayer .point", state="attached")
        page.wait_for_selector("#operators-table .ag-row")
        page.evaluate(
            "window.dash_clientside.set_props('roofline', {clickData: {points: [{customdata: 0}]}})"
        )
        page.wait_for_url("**/timeline?*node=*")
        page.wait_for_selector("#timeline[data-slices]")
        assert page.complaints == []
        page.close()
