"""A predicted run says on Summary how sure it is, and whether it fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakrascope.viewer import StudyView
from chakrascope.viewer.pages import _summary

SAID = {
    "step_ns": 2_000_000, "step_low_ns": 1_500_000, "step_high_ns": 2_500_000, "tokens_per_s": 12_345.6,
    "memory_bytes_per_rank": 90 << 30, "fits": False, "bound_by": "communication 60.0 %", "chip": "H100",
    "chip_memory_bytes": 80 << 30,
}  # fmt: skip


@pytest.mark.parametrize(("fits", "verdict"), [(False, "does NOT fit"), (True, "'fits: the fullest rank")])
def test_a_prediction_says_its_uncertainty_and_memory(made, fits, verdict):
    run = StudyView(made.study).open(made.run_a)
    assert _summary._prediction(run) == []
    run.result = replace(
        run.result, provenance={**run.result.provenance, "prediction": SAID | {"fits": fits}}
    )
    shown = str(_summary._prediction(run))
    assert "90 % of steps like it lie between 1.50 ms and 2.50 ms" in shown
    assert verdict in shown
    assert "holds 90.0 GiB of the 80.0 GiB of H100" in shown
    assert "12,346 per second" in shown
