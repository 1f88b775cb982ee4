import importlib.util
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fidelity_report.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("fidelity_report", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        spec.loader.exec_module(module)
    return module


EXPERIMENTS = [
    (network, pattern, "1 KiB") for network in ("ring-8", "clos-16") for pattern in ("all-reduce", "incast")
]


@pytest.fixture(scope="module")
def simulated(script):
    return script.run(EXPERIMENTS, ["analytical-unaware", "flow"])


@pytest.fixture(scope="module")
def table(script, simulated):
    """Return the errors as if packets took twice what the unaware backend says, and a tenth of a second."""
    unaware = simulated[simulated["backend"] == "analytical-unaware"]
    packet = unaware.assign(backend="packet", makespan_ns=2 * unaware["makespan_ns"], seconds=0.1, flags="")
    incast = (simulated["backend"] == "flow") & (simulated["pattern"] == "incast")
    flagged = simulated.assign(flags=simulated["flags"].mask(incast, "pauses"))
    return script.errors(pd.concat([flagged, packet], ignore_index=True))


def test_errors_are_relative_to_the_measure(table):
    assert len(table) == 2 * 2 * 3
    assert (table.loc[table["backend"] == "analytical-unaware", "error"] == -0.5).all()
    assert (table.loc[table["backend"] == "packet", "error"] == 0).all()
    assert (table["seconds"] > 0).all()


def test_the_flags_of_flow_are_in_the_table(script):
    found = script.run([("clos-16-1mib", "incast", "4 MiB")], ["analytical-unaware", "flow"])
    assert found["flags"].tolist() == ["", "pauses"]


def test_the_page_has_every_experiment(script, table):
    (line,) = (line for line in script.report(table).splitlines() if line.startswith("| ring-8 |"))
    assert line.startswith("| ring-8 | 50.0%, 50.0% |")
    rows = script.every(table).set_index(["network", "pattern"])
    assert len(rows) == 2 * 2
    row = rows.loc[("clos-16", "incast")]
    assert " ".join(row).count(" ms") == 3
    assert row["flow"].endswith(", pauses")
    assert row["packet"].endswith("µs, 100 ms")


def test_auto_is_right_where_it_asks_packets_and_costs_both(script, table):
    rows = script._auto(table).set_index(["network", "pattern"])
    flow = table[table["backend"] == "flow"].set_index(["network", "pattern"])
    flagged = flow["flags"] != ""
    assert flagged.any()
    assert (rows["error"][flagged] == 0).all()
    assert (rows["error"][~flagged] == flow["error"][~flagged]).all()
    assert (rows["seconds"] - flow["seconds"]).round(6).tolist() == [0.1 * flag for flag in flagged]


def test_the_figure_has_a_cell_for_each_error(script, table):
    cells = ET.fromstring(script.draw(table)).findall("{*}rect")
    assert len(cells) == 1 + (table["backend"] != "packet").sum()


def test_the_picture_has_a_dot_for_each_simulation_and_two_rings_a_backend(script, table):
    picture = ET.fromstring(script.draw_cost(table))
    dots = picture.findall("{*}circle")
    assert len(dots) == len(table) + 2 * table["backend"].nunique()
    assert all(0 < float(dot.get("cx")) < float(picture.get("width")) for dot in dots)
    assert all(0 < float(dot.get("cy")) < float(picture.get("height")) for dot in dots)
    words = {text.text for text in picture.findall("{*}text")}
    assert {"analytical-unaware", "flow", "packet"} <= words


def test_the_published_page_is_of_the_experiments_of_the_script(script):
    folder = SCRIPT.parent.parent / "docs" / "validation"
    page = (folder / "fidelity.md").read_text(encoding="utf-8")
    table = (folder / "fidelity.csv").read_text(encoding="utf-8")
    grid = [(name, *rest) for name in script.NETWORKS for rest in product(script.PATTERNS, script.SIZES)]
    for experiment in grid + script.BEYOND:
        assert table.count(f"\n{','.join(experiment)},") == 1, experiment
    assert all(f"| {backend} |" in page for backend in script.BACKENDS)


def test_trains_are_a_column_of_their_own(script):
    found = script.errors(script.run([("dgx-a100-8", "ring-shift", "4 MiB")], [script.TRAINS, "packet"]))
    (trains, packet) = found.to_dict("records")
    assert 0 < abs(trains["error"]) < 0.01
    assert packet["error"] == 0


def test_tcp_is_asked_where_it_takes_seconds(script, monkeypatch):
    asked = []

    def simulate(workload, system, network, *, backend):
        asked.append((backend, network.is_tcp))
        raise InterruptedError

    monkeypatch.setattr(script, "simulate", simulate)
    assert script.run(
        [("clos-16", "all-gather", "4 MiB"), ("clos-16-1mib", "incast", "4 MiB")], [script.TCP]
    ).empty
    with pytest.raises(InterruptedError):
        script.run([("clos-16", "incast", "4 MiB")], [script.TCP])
    assert asked == [("ns3", True)]


def test_shares_of_many_times_are_said_so(script):
    assert [script._share(error, "+") for error in (0.031, -0.5, 9.99, 38.2)] == [
        "+3.1%", "-50.0%", "+999.0%", "39 times",
    ]  # fmt: skip


@pytest.mark.parametrize(("label", "size"), [("16 KiB", 16384), ("64 MiB", 1 << 26)])
def test_labels_are_sizes(script, label, size):
    assert script.size_of(label) == size


def test_every_network_of_the_grid_exists(script):
    assert {script.load(name).num_ranks for name in script.NETWORKS} == {8, 16}
