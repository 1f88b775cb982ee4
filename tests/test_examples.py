"""The examples and notebooks yield the figures on their pages."""

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pandas as pd
import pytest
import yaml
from command_line import script
from studies import HOSTILE, make_study

from chakrascope.cli import cli
from chakrascope.errors import BackendUnavailable, ConfigError
from chakrascope.runner import NetworkConfig, compare, critical_path, diff_steps, measured_result
from chakrascope.runner.analysis import parse_limit, side_of

# The example workflow states the features of this version.
FILE = Path(__file__).resolve().parents[1] / "examples" / "ci" / "guard-a-training-job.yml"


def commands():
    steps = yaml.safe_load(FILE.read_text())["jobs"]["step"]["steps"]
    for step in steps:
        for line in step.get("run", "").splitlines():
            found = re.search(r"chakrascope [a-z].*", line)
            if found:
                yield shlex.split(found[0].split(" -- ")[0].removesuffix(")"))


def test_every_command_and_option_exists():
    context = click.Context(cli)
    seen = []
    for _, name, *words in commands():
        command = cli.get_command(context, name)
        known = {option for parameter in command.params for option in parameter.opts}
        given = {word for word in words if word.startswith("-")}
        assert given <= known
        seen.append(name)
    assert {"trace", "doctor", "diff"} <= set(seen)


def test_every_limit_can_be_read():
    limits = [words[i + 1] for words in commands() for i, word in enumerate(words) if word == "--fail-if"]
    assert [parse_limit(text).quantity for text in limits] == ["step", "exposed", "bytes"]


# The example of ASTRA-sim 3.0's Table 1 gives the figures its page has.
FOLDER = Path(__file__).resolve().parents[1] / "examples" / "clos_table"


@pytest.fixture(scope="module")
def table():
    try:
        return script(FOLDER / "run.py").table_1("ns3")
    except BackendUnavailable as error:
        pytest.skip(f"no packet-level backend here: {error}")


def test_table_1_comes_out(table):
    assert table["as-run"].to_dict() == {
        "makespan_us": 165.989,
        "bus_bandwidth_gbps": 88.44,
        "shortest_ns": 11_250,
        "longest_ns": 14_552,
        "mean_ns": 11_476.55,
        "drops": 0,
    }
    assert table["as-meant"]["makespan_us"] == 438.567
    assert round(table["as-run"]["mean_ns"]) == table["published"]["mean_ns"]


def test_the_page_has_the_figures_of_the_table(table):
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    numbers = {float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
    assert {value for column in table for value in table[column]} <= numbers


def test_without_defaults_the_links_are_refused():
    with pytest.raises(ConfigError, match=r"'dgx_a100\.xpu_fabric' has no bandwidth and no latency"):
        NetworkConfig.load(FOLDER / "dgx_a100.yml")


def test_the_defaults_are_named():
    network = NetworkConfig.load(FOLDER / "network-as-run.yml")
    assert any("bandwidth 100Gb/s ('xpu_fabric') and latency 0ns" in text for text in network.assumptions)
    assert (network.num_ranks, len(network.devices), len(network.links)) == (8, 14, 48)


# The example of failures gives the figures its page has.
LINK_FAILURES_FOLDER = Path(__file__).resolve().parents[1] / "examples" / "link_failures"


@pytest.fixture(scope="module")
def example():
    return script(LINK_FAILURES_FOLDER / "run.py")


@pytest.fixture(scope="module")
def page():
    """Return the figures of the page, by failure and column."""
    lines = (LINK_FAILURES_FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [
        [cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"
    ]
    header, _, *body = rows
    return {
        (row[0], column): float(value)
        for row in body
        for column, value in zip(header[1:], row[1:], strict=True)
    }


@pytest.mark.parametrize("backend", ["analytical-aware", "packet"])
def test_the_page_has_the_figures(example, page, backend):
    table = example.costs([backend])
    found = {(name, column): value for column in table for name, value in table[column].items()}
    assert found == {place: value for place, value in page.items() if place[1].endswith(backend)}
    assert len(found) == 2 * len(example.FAILURES)


PLATFORM_STUDY_FOLDER = Path(__file__).resolve().parents[1] / "examples" / "platform_study"
HIDDEN = 12_288


def evenly(layer, samples):
    return (layer.operations * samples // 50,) * 3


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(PLATFORM_STUDY_FOLDER)
    yield importlib.import_module("layer_tables")
    del sys.modules["layer_tables"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    command = [sys.executable, str(PLATFORM_STUDY_FOLDER / "run.py"), "-o", str(folder), "--model", "vgg16"]
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
    """A V100 of a DGX-2 trains 1,492 images per second, 16 V100 21,484 (DeepLearningExamples, MXNet)."""
    monkeypatch.delitem(sys.modules, "layer_costs", raising=False)
    costs = importlib.import_module("layer_costs").Costs("v100", "dgx-2-16")
    step_ns = sum(sum(costs.passes(layer, 256)) for layer in tables.read_layers("resnet50"))
    assert 256e9 / step_ns == pytest.approx(1492, rel=0.2)
    assert 256e9 / step_ns == pytest.approx(21484 / 16, rel=0.1)


# The notebooks of the examples run with the stored results, and show results without unsafe HTML.

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
ALLOWED = {"div", "table", "thead", "tbody", "tr", "th", "td", "svg", "text", "rect", "title"}


@pytest.fixture(scope="module")
def runner():
    return script(ROOT / "scripts/run_notebook.py")


def outputs(notebook):
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_shows_stored_results(file, runner):
    """After an intended change: ``python scripts/run_notebook.py examples/notebooks/*.ipynb``."""
    stored = nbformat.read(file, as_version=4)
    nbformat.validate(stored)
    assert outputs(runner.run(file)) == outputs(stored)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.attributes = [], set()

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    made = make_study(tmp_path_factory.mktemp("notebook") / "study")
    workload, result = made.study.run_workload(made.run_a), made.study.result(made.run_a)
    path = critical_path(result, workload)
    comparison = compare([measured_result(workload), result], workload)
    difference = diff_steps(side_of(made.study, made.run_a, name=HOSTILE), side_of(made.study, made.run_b))
    return [
        result,
        path,
        path.figure("operator"),
        comparison,
        comparison.figure(),
        difference,
        difference.figure(),
    ]


def test_names_of_others_are_text_and_nothing_is_loaded(shown):
    for value in shown:
        html = value._repr_html_()
        tags = Tags()
        tags.feed(html)
        assert set(tags.found) <= ALLOWED
        assert not tags.attributes & {"src", "href", "onerror", "onload"}
        assert "\u202e" not in html
        assert "url(" not in html
        assert len(html) < 60_000, "a name of 10,000 characters is cut"


def test_colours_are_the_notebooks_own(shown):
    """Figures set neither text nor background colour, so that they are legible on light and dark pages."""
    for value in shown:
        html = value._repr_html_()
        assert "color:inherit" in html or 'fill="currentColor"' in html
        for ground in ("background:#", "background-color", "color:#000", "color:black"):
            assert ground not in html


def test_figures_are_written_as_pictures(shown, tmp_path):
    figure = shown[2]
    figure.save(tmp_path / "path.svg")
    assert (tmp_path / "path.svg").read_text().startswith("<svg")


def test_missing_values_are_empty_cells():
    from chakrascope.runner._notebook import html_table

    html = html_table(pd.DataFrame({"a_ns": [1_500, None], "share": [0.5, None]}))
    assert "1.50 µs" in html
    assert "nan" not in html.lower()
