"""The summary of a replayed step says which other steps of the run take longer."""

from dataclasses import replace

import pytest
from workloads import comp, workload

from chakrascope.converter.building import StepTimes
from chakrascope.runner import NetworkConfig, SystemConfig, simulate, summarize

TIMES = StepTimes(
    steps=24, least_ns=40_000_000, median_ns=50_000_000, p90_ns=250_000_000, most_ns=260_000_000,
    long_count=8, every=3, long_ns=250_000_000, gain_ns=66_000_000, cause="checkpoint",
    place="train (t.py:8)",
)  # fmt: skip
TEXT = "Every third step takes 250 ms instead of 50.0 ms: checkpoint in train (t.py:8)."


@pytest.mark.parametrize(
    ("times", "backend", "told"),
    [
        (TIMES, "replay", True),
        (TIMES, "analytical-unaware", False),
        (TIMES._replace(gain_ns=1_000_000), "replay", False),
    ],
)
def test_the_headline_names_what_recurs(times, backend, told):
    program = workload([comp(0, 8_000_000)], [comp(0, 8_000_000)])
    program = replace(program, metadata={"step_times": times._asdict()})
    result = simulate(program, SystemConfig.preset("default"), NetworkConfig.preset("ring-2"))
    headline = summarize(replace(result, backend=backend), program).headline
    assert headline.endswith(TEXT) == told
