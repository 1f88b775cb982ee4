"""Hosts whose links differ: the slowest pair gives the bandwidth, and the output names it."""

from __future__ import annotations

import pytest

from chakrascope.runner.calibration import Records, calibrate_records

from .known import SYSTEM, transfer

SIZES = (4096, 65536, 1 << 20)
LATENCY_NS = 10_000
HOSTS = {0: "a", 1: "b", 2: "c"}


def messages(ns_per_byte):
    """Return records of messages between ranks of hosts, by pair what a byte takes."""
    found = [
        transfer("message", size, round(2 * LATENCY_NS + size * pace), pair)
        for pair, pace in ns_per_byte.items()
        for size in SIZES
        for _ in range(3)
    ]
    return Records(tuple(found), 3, "messages", HOSTS)


def test_the_slowest_pair_gives_the_bandwidth_and_is_named():
    found = calibrate_records(messages({(0, 1): 20.0, (1, 2): 80.0}), SYSTEM)
    (dimension,) = found.dimensions
    assert dimension.fit.ns_per_byte.value == pytest.approx(80, rel=0.02)
    (said,) = [text for text in found.undetermined if "its pairs differ" in text]
    assert "rank 1 (b) - rank 2 (c) 12.5 MB/s" in said
    assert "rank 0 (a)" not in said
    assert "50.0 MB/s" in said


def test_pairs_that_are_alike_are_all_fitted():
    found = calibrate_records(messages({(0, 1): 20.0, (1, 2): 22.0}), SYSTEM)
    (dimension,) = found.dimensions
    assert dimension.fitted_on == 2 * 3 * len(SIZES)
    assert not any("differ" in text for text in found.undetermined)
