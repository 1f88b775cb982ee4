"""About how long a simulation takes."""

import pytest

from chakrascope.runner import NetworkConfig, SystemConfig
from chakrascope.runner.analysis import Load, duration_estimate, estimate_s, load_of, sends_one_by_one


def test_load_counts_what_a_rank_sends(made):
    load = load_of(made.study.workload_prefix())
    assert (load.ranks, load.programs, load.nodes) == (2, 2, 36)
    assert load.collectives == (("all-reduce", 6.0, float(sum(range(1, 7)) << 20)),)


@pytest.mark.parametrize("backend", ["analytical-aware", "packet"])
def test_more_ranks_and_chunks_take_longer(backend):
    load = Load(2, 2, 100, (("all-reduce", 6.0, 6e6),))
    system = SystemConfig.preset("default")
    shape = {"topology": ["Ring"], "bandwidth": [1.0], "latency": [500.0]}
    small, large = (
        estimate_s(NetworkConfig.from_mapping(shape | {"npus_count": [size]}, "test"), system, load, backend)
        for size in (8, 512)
    )
    assert small < 15
    assert large > 4 * small


def test_what_is_worked_out_takes_no_longer_for_its_messages():
    load = Load(4096, 4096, 4096, (("all-reduce", 100.0, 1e9),))
    shape = {"topology": ["Switch"], "bandwidth": [1.0], "latency": [500.0], "npus_count": [4096]}
    network = NetworkConfig.from_mapping(shape, "test")
    ring, direct = SystemConfig.preset("default"), SystemConfig.preset("direct")
    assert sends_one_by_one(network, ring, load, "analytical-unaware") == ""
    assert "'direct'" in sends_one_by_one(network, direct, load, "analytical-unaware")
    assert "links" in sends_one_by_one(network, ring, load, "flow")
    times = [estimate_s(network, system, load, "analytical-unaware") for system in (ring, direct)]
    assert times[0] < times[1] / 50


def test_a_replay_does_not_wait_for_the_network():
    load = Load(2, 2, 100, (("all-reduce", 6.0, 6e6),))
    network, system = NetworkConfig.preset("hgx-h100-8"), SystemConfig.preset("default")
    assert estimate_s(network, system, load, "replay") < 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [([0.2], "about 1 s"), ([50, 60], "about 110 s"), ([300], "about 5 min"), ([9e4], "about 25 h")],
)
def test_estimate_is_told_in_the_largest_fitting_unit(seconds, text):
    assert duration_estimate(seconds) == text
