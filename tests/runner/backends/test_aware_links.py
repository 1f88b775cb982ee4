"""What the congestion-aware network says its links carried over time."""

from __future__ import annotations

import pytest

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.analysis import use_over_time

GIB = 1 << 30


def network(bandwidth, ranks=4):
    described = {"topology": ["Switch"], "npus_count": [ranks], "bandwidth": [bandwidth], "latency": [500.0]}
    return NetworkConfig.from_mapping(described, "here")


@pytest.mark.parametrize("size", [7, 1 << 16, 3_000_001, 1 << 30])
@pytest.mark.parametrize("pattern", ["all-reduce", "all-to-all"])
def test_stretches_add_up_to_the_links_and_none_is_faster_than_its_link(pattern, size):
    bandwidth = 10.0
    result = simulate(
        microbenchmark(pattern, 4, size), "default", network(bandwidth), backend="analytical-aware"
    )
    use, links = result.link_use, result.links[result.links["bytes"] > 0]
    sent = use.groupby(["src", "dst"])["bytes"].sum()
    assert sent.to_dict() == links.set_index(["src", "dst"])["bytes"].to_dict()
    width = use["end_ns"] - use["start_ns"]
    assert width.nunique() == 1
    assert (use["start_ns"] % width == 0).all()
    assert use["start_ns"].max() < result.makespan_ns <= 64 * width.iloc[0]
    # Times are cut to whole ns, so what a link is busy with may be a little more than its speed allows.
    messages = links["messages"].max()
    assert (use["bytes"] <= (width + messages) * bandwidth * GIB / 1e9).all()


def test_the_bytes_of_a_long_message_pass_at_the_speed_of_the_link():
    workload = microbenchmark("all-to-all", 2, 1 << 30)
    rates = use_over_time(simulate(workload, "default", network(1.0, 2), backend="analytical-aware")).rates
    assert rates.max() == pytest.approx(GIB / 1e9, rel=1e-3)


def test_links_over_time_are_left_out_where_nobody_asks_for_tables(tmp_path):
    result = simulate(
        microbenchmark("all-reduce", 4, 4096), "default", network(10.0), backend="analytical-unaware"
    )
    assert result.link_use.empty
    result.save(tmp_path / "run")
    assert not (tmp_path / "run" / "link_use.parquet").exists()
