"""The fit of a chip file, on times made from known speeds."""

import numpy as np
import pandas as pd
import pytest

from chakrascope.errors import ConfigError
from chakrascope.runner.chips import find_chip, load_chip, save_chip

PEAK, BANDWIDTH = 989e12, 3.35e12


@pytest.fixture
def script(module_of):
    return module_of("measure_chip")


def times_at(shares, start_ns=4_000.0):
    """Return a table of an H100 that reaches *shares* of its peaks, with 2 % of noise."""
    random = np.random.default_rng(7)
    peaks = {"gemm": PEAK, "attention": PEAK, "pointwise": BANDWIDTH}
    works = {
        "gemm": [2.0 * n**3 for n in (1024, 2048, 4096, 8192)],
        "attention": [8192.0 * n**2 for n in (1024, 2048, 4096, 8192)],
        "pointwise": [float(1 << n) for n in (22, 24, 26, 28, 30)],
    }
    rows = [
        (f"aten::{kind}", kind, work, (start_ns + work / (share * peaks[kind]) * 1e9) * noise)
        for kind, share in shares.items()
        for work in works[kind]
        for noise in 1 + 0.02 * random.standard_normal(15)
    ]
    return pd.DataFrame(rows, columns=["operator", "class", "work", "duration_ns"])


def test_shares_of_the_peaks_are_found_again(script, tmp_path):
    shares = {"gemm": 0.7, "attention": 0.45, "pointwise": 0.85}
    launches = script.slopes((1, 8, 64), [5e3, 40e3, 320e3], [3e3, 12.1e3, 84.9e3])
    chip, notes = script.measured_chip(find_chip("h100"), times_at(shares), launches, 12, "a test")
    save_chip(chip, tmp_path / "mine.yml")
    costs = load_chip(tmp_path / "mine.yml").costs_of("measured")
    assert costs.gemm["default"] == pytest.approx(0.7, rel=0.05)
    assert costs.attention["default"] == pytest.approx(0.45, rel=0.05)
    assert costs.pointwise == pytest.approx(0.85, rel=0.05)
    assert costs.host_ns == pytest.approx(12 * 5e3, rel=0.01)
    assert costs.layer_ns == pytest.approx(12 * 1.3e3, rel=0.01)
    assert "a test" in costs.fit.data
    assert any("12 kernels" in note for note in notes)


def test_a_class_without_sizes_keeps_the_costs_of_the_chip(script):
    table = times_at({"gemm": 0.7, "pointwise": 0.85})
    chip, notes = script.measured_chip(find_chip("h100"), table, script.Launches(1.0, 1.0), 1, "a test")
    shipped = next(iter(find_chip("h100").costs.values()))
    assert chip.costs["measured"].attention == shipped.attention
    assert any(note.startswith("attention: fewer than 3 sizes") for note in notes)


def test_times_of_a_faster_chip_are_refused(script):
    with pytest.raises(ConfigError, match="ran on another chip"):
        script.measured_chip(find_chip("v100"), times_at({"gemm": 0.7}), script.Launches(1, 1), 1, "a test")
