"""The closed loop in its short form: capture, calibrate, predict, run for real, and the page about it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from chakrascope.runner.emulation import what_namespaces_lack

ROOT = Path(__file__).parents[2]
RATE_MBIT = 50


@pytest.fixture(scope="module")
def loop():
    spec = importlib.util.spec_from_file_location("closed_loop", ROOT / "benchmarks/closed_loop.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.torch
def test_a_job_is_predicted_where_it_was_not_captured_and_run_there(loop, monkeypatch):
    lacking = what_namespaces_lack()
    if lacking:
        pytest.skip(f"network namespaces need {' and '.join(lacking)}")
    monkeypatch.setattr(loop, "LARGEST", "256KiB")
    monkeypatch.setattr(loop, "REPEATS", 3)
    ways = (loop.CALIBRATED, loop.FROM_RATE)
    (outcome,) = loop.closed_loop(["ddp"], [RATE_MBIT], steps=2, ways=ways)
    # The gradients of eight layers of 512 x 512 cross the wire once in each direction; nothing is faster.
    wire_ns = 8 * 512 * 512 * 4 * 8 / (RATE_MBIT * 1e6) * 1e9
    assert outcome.measured_ns > wire_ns
    assert set(outcome.predicted_ns) == set(ways)
    assert min(outcome.predicted_ns.values()) > wire_ns


def test_the_page_has_every_outcome_and_the_worst(loop):
    outcomes = [
        loop.Outcome("ddp", 100, 1_000_000, 500_000, {loop.CALIBRATED: 1_020_000, loop.FROM_RATE: 900_000}),
        loop.Outcome("fsdp", 50, 2_000_000, 500_000, {loop.CALIBRATED: 1_880_000, loop.FROM_RATE: 1_900_000}),
    ]
    page = loop.page(outcomes)
    assert "| ddp | 100 | 1.0 | 0.5 | +2.0% | -10.0% | +4.0% | 0.0% |" in page
    assert "| worst | | | | 6.0% | 10.0% | | |" in page
    assert "| median | | | | 4.0% | 7.5% | | |" in page
