"""The report on how far simulated steps are from measured ones: figures from the traces, none from itself."""

from __future__ import annotations

import importlib.util

import pytest
from studies import make_workload

from .pages import ROOT


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("accuracy", ROOT / "scripts/accuracy_report.py")
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        specification.loader.exec_module(module)
    return module


def test_steps_are_those_of_the_trace_sets_each_once(script, data_dir):
    steps = script.distinct(
        [*script.steps_in(data_dir / "converter"), *script.steps_in(data_dir / "converter")]
    )
    assert [step.name for step in steps] == [
        "experts_2", "fsdp2_2", "interleaved_2", "loaded_2", "mlp_2", "ring_2"
    ]  # fmt: skip
    other = steps[0]._replace(measured_ns=1)
    assert [step.name for step in script.distinct([steps[0], other])] == ["experts_2", "experts_2 (2)"]


def test_no_step_has_a_part_in_the_choice_of_its_own_network(script, monkeypatch):
    """Two steps agree on a network; the third, which another one suits, is predicted on theirs."""
    monkeypatch.setattr(script, "BANDWIDTHS", (1.0, 2.0))
    monkeypatch.setattr(script, "LATENCIES", (0.0,))
    ratios = {"a": (1.0, 2.0), "b": (1.1, 2.0), "c": (3.0, 1.0)}

    def ratio(step, network):
        return 1.0 if network is None else ratios[step.name][int(network[0]) - 1]

    monkeypatch.setattr(script, "ratio", ratio)
    rows = script.predictions([script.Step(name, make_workload(), 10**6) for name in ratios])
    assert [(row.step.name, row.predicted) for row in rows][-1] == ("c", 3.0)
    page = script.report(rows)
    assert "| worst | 1.00 | 3.00 |" in page
    assert page.index("| `c` |") < page.index("| `b` |")


def test_a_replay_of_a_hand_made_step_takes_what_was_measured(script):
    workload = make_workload()
    step = script.Step("w", workload, 4_920_000)
    assert script.ratio(step, None) == pytest.approx(1.0)
    assert script.ratio(step, (0.25, 0.0)) > script.ratio(step, (4.0, 0.0))
