"""The page Network of a run whose network was calibrated: fit, intervals, what is not known, provenance."""

from __future__ import annotations

import dataclasses

import pytest

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, Study, prepare, simulate
from chakrascope.runner.analysis import calibration_table, fitted_network
from chakrascope.runner.calibration import Call, Records, Transfer, calibrate_records, calibrated_network
from chakrascope.runner.config import SystemConfig
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.charts import calibration_fit
from chakrascope.viewer.pages import _network as network

from .conftest import serving, watched

LATENCY_NS, NS_PER_BYTE = 20_000, 10.0
SIZES = [1 << power for power in range(12, 22, 2)]


def made_of(sizes):
    transfers = [
        Transfer((0, 1), (Call(operation, size),), round(factor * size * NS_PER_BYTE + LATENCY_NS), 0)
        for operation, factor in (("all_reduce", 1), ("all_gather", 3), ("message", 1))
        for size in sizes
        for _ in range(3)
    ]
    records = Records(tuple(transfers), 2, "two hosts of <b>mine</b>", left_out=("1 broadcast",))
    found = calibrate_records(records, SystemConfig.preset("default", 1))
    return calibrated_network(found, "mine", "2026-11-22")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    study = Study.create(tmp_path_factory.mktemp("calibrated") / "study")
    study.add_workload(microbenchmark("all-reduce", 2, 4096), "ring")
    prefix, config = study.workload_prefix("ring"), made_of(SIZES)
    result = simulate(prefix, "default", config, backend="analytical-unaware")
    return StudyView(study).open(study.add_run(prepare(prefix, "default", config), result, workload="ring"))


def test_the_page_shows_the_fit_and_what_is_not_known(opened):
    shown = str(network.layout(opened, Selection(), "light"))
    assert "two hosts of <b>mine</b>" in shown  # text, which Dash escapes
    assert "1 broadcast" in shown
    assert "the records do not tell the ranks" in shown
    assert "95 %" in shown


def test_every_measurement_is_drawn_and_in_the_table(opened):
    points = calibration_table(opened.result.provenance)
    assert len(points) == 3 * len(SIZES)
    assert points.loc[points["operation"] == "all_gather", "error"].abs().max() < 0.01
    assert (points["messages_ns"] <= points["model_ns"]).all()
    drawn = [trace for trace in calibration_fit(points, "dark").data if trace.mode == "markers"]
    assert sorted(len(trace.x) for trace in drawn) == [len(SIZES)] * 3


@pytest.mark.parametrize(
    "calibration",
    [{}, {"points": 3}, {"points": [1, {"operation": "x"}]}, {"dimensions": [7, {}], "undetermined": "text"},
     {"points": [{"operation": "x", "size-bytes": 0, "measured-ns": 1, "model-ns": 1}]},
     {"points": [{"operation": "x", "size-bytes": 8, "measured-ns": "1", "model-ns": 1}]}],
)  # fmt: skip
def test_what_somebody_wrote_by_hand_is_no_reason_to_fail(opened, calibration):
    plain = NetworkConfig(("Switch",), (2,), (1.0,), (1.0,)).to_dict()
    provenance = opened.result.provenance | {"network": plain | {"calibration": calibration}}
    result = dataclasses.replace(opened.result, provenance=provenance)
    assert (fitted_network(provenance) is None) == (not calibration)
    run = type(opened)(opened.view, opened.info, result, opened.workload)
    network.layout(run, Selection(), "light")


def test_the_browser_draws_it_and_gives_out_the_table(opened, browser):
    with serving(create_app(opened.view.study)) as address:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = watched(context)
        page.goto(f"{address}/network?run={opened.info.id}")
        page.wait_for_selector("#calibration-fit .main-svg")
        page.wait_for_selector("#calibration-table .ag-row")
        assert "two hosts of <b>mine</b>" in page.inner_text("#calibration-card")
        assert page.locator("#calibration-fit .scatterlayer .points path").count() == 3 * len(SIZES)
        given = page.request.get(f"{address}/export/calibration.csv?run={opened.info.id}").text()
        assert len(given.splitlines()) == 1 + 3 * len(SIZES)
        assert page.complaints == []
        context.close()
