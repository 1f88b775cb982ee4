import importlib
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "platform_study"
HIDDEN = 12_288


def evenly(layer, samples):
    return (layer.operations * samples // 50,) * 3


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("layer_tables")
    del sys.modules["layer_tables"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    command = [sys.executable, str(FOLDER / "run.py"), "-o", str(folder), "--model", "vgg16"]
    subprocess.run(command, check=True, capture_output=True, timeout=800)
    return folder


@pytest.mark.parametrize(
    ("model", "parameters", "operations"),
    [
        ("vgg16", 138_357_544, 30.94e9),
        ("resnet50", 25_557_032, 8.18e9),
        # A layer: 12 h^2 weights, 9 h biases, 4 h of normalisation; attention adds 4 s^2 h operations.
        (
            "gpt3",
            3 * (12 * HIDDEN**2 + 13 * HIDDEN),
            3 * (2 * 2048 * 12 * HIDDEN**2 + 4 * 2048**2 * HIDDEN),
        ),
    ],
)
def test_layer_tables_have_the_known_totals(tables, model, parameters, operations):
    layers = tables.read_layers(model)
    assert sum(layer.parameters for layer in layers) == parameters
    assert sum(layer.operations for layer in layers) == pytest.approx(operations, rel=0.01)


def test_each_rank_computes_as_much_in_every_parallelism(tables):
    layers = tables.read_layers("resnet50")
    times = [
        [row.split()[2::3][:3] for row in tables.text_workload(layers, kind, 256, 2, evenly).splitlines()[2:]]
        for kind in tables.PARALLELISMS
    ]
    assert times[0] == times[1] == times[2]


def test_model_parallel_attention_adds_up_twice_a_layer_and_pass(tables):
    text = tables.text_workload(tables.read_layers("gpt3"), "model", 256, 1, evenly)
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [row[3] for row in rows].count("ALLREDUCE") == 3 * 2
    assert [row[6] for row in rows].count("ALLREDUCE") == 3 * 2
    assert {row[9] for row in rows} == {"NONE"}


def test_hybrid_groups_add_up_the_gradients_of_their_shares(tables):
    layers = tables.read_layers("vgg16")
    sizes = {}
    for kind, group in (("data", 256), ("hybrid", 16)):
        text = tables.text_workload(layers, kind, group, 2, evenly)
        sizes[kind] = sum(int(line.split()[10]) for line in text.splitlines()[2:])
    assert text.startswith("HYBRID_DATA_MODEL")
    assert sizes["hybrid"] == pytest.approx(sizes["data"] / 16, rel=1e-6)


def test_the_study_writes_figures_that_agree_with_each_other(written):
    summary, layers = pd.read_csv(written / "summary.csv"), pd.read_csv(written / "layers.csv")
    assert len(summary) == 6
    assert len(layers) == 6 * 16
    sums = layers.groupby(["parallelism", "platform"])["communication_ns"].sum()
    for row in summary.itertuples():
        assert row.communication_us == round(sums[row.parallelism, row.platform] / 1000)
        assert row.exposed_us <= row.communication_us + row.queued_us
    # Activations of 8192 images are far more than 138 million parameters.
    by_kind = summary.groupby("parallelism")["communication_us"]
    assert by_kind.min()["model"] > 100 * by_kind.max()["data"]
    assert by_kind.max()["data"] < by_kind.min()["hybrid"] <= by_kind.max()["hybrid"] < by_kind.min()["model"]


def test_the_study_draws_every_bar(written):
    names = {path.name for path in written.glob("*.svg")}
    assert names == {"communication.svg", "compute.svg", "step.svg", "layers-vgg16.svg"}
    bars = ET.parse(written / "layers-vgg16.svg").getroot().findall("{*}rect")
    assert len(bars) == 1 + 2 + 6 * 16 * 2
    dots = ET.parse(written / "compute.svg").getroot().findall("{*}rect")
    assert len(dots) == 1 + 2 + 16 * 2


def test_resnet50_trains_about_as_fast_as_it_was_measured(monkeypatch, tables):
    """1,492 images a second on a V100 of a DGX-2, 21,484 on 16 (DeepLearningExamples, MXNet)."""
    monkeypatch.delitem(sys.modules, "layer_costs", raising=False)
    costs = importlib.import_module("layer_costs").Costs("v100", "dgx-2-16")
    step_ns = sum(sum(costs.passes(layer, 256)) for layer in tables.read_layers("resnet50"))
    assert 256e9 / step_ns == pytest.approx(1492, rel=0.2)
    assert 256e9 / step_ns == pytest.approx(21484 / 16, rel=0.1)
