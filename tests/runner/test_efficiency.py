"""What is lost beside the wire: its key in a network file, and what each backend makes of it."""

from __future__ import annotations

import pytest

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, prepare, simulate
from chakrascope.runner.backends import write_network
from chakrascope.runner.config import EfficiencyPart

PLAIN = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [1.0], "latency": [1000]}
OURS = ("analytical-unaware", "analytical-aware", "flow", "packet")
SIZE = 1 << 20
REPEATS = 2
MESSAGES = 8  # of a rank: four chunks in two steps each


def network(**efficiency):
    return NetworkConfig.from_mapping(PLAIN | ({"efficiency": efficiency} if efficiency else {}), "here")


def run(backend="analytical-unaware", size=SIZE, **efficiency):
    workload = microbenchmark("all-reduce", 2, size, repeats=REPEATS)
    return simulate(workload, "default", network(**efficiency), backend=backend)


@pytest.mark.parametrize("backend", OURS)
def test_a_collectives_own_time_comes_on_top_on_every_backend(backend):
    plain = run(backend).makespan_ns
    own = run(backend, collectives={"all_reduce": [[SIZE, "1ms"]]}).makespan_ns
    assert own - plain == pytest.approx(REPEATS * 1_000_000, rel=1e-4)
    assert run(backend, collectives={"all_gather": [[SIZE, "1ms"]]}).makespan_ns == plain


@pytest.mark.parametrize("backend", OURS)
def test_a_message_keeps_its_sender_busy_on_every_backend(backend):
    more = run(backend, **{"message-cost": "10us"}).makespan_ns - run(backend).makespan_ns
    assert more == pytest.approx(REPEATS * MESSAGES * 10_000, rel=0.01)


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware"])
def test_the_wires_share_is_of_the_bandwidth(backend):
    half = dict(PLAIN, bandwidth=[0.5])
    workload = microbenchmark("all-reduce", 2, SIZE, repeats=REPEATS)
    slow = simulate(workload, "default", NetworkConfig.from_mapping(half, "here"), backend=backend)
    assert run(backend, wire=0.5).makespan_ns == slow.makespan_ns


@pytest.mark.parametrize("backend", ["flow", "packet"])
def test_packets_have_headers_of_their_own_and_the_result_says_so(backend):
    result = run(backend, wire=0.5)
    assert result.makespan_ns == run(backend).makespan_ns
    assert any("'wire'" in text and backend in text for text in result.provenance["ignored_keys"])


def test_between_sizes_the_time_is_linear_and_beyond_them_it_grows_on():
    curve = {"all_reduce": [[1000, 500], [2000, 1500], [4000, 1500]]}

    def own(size):
        return (run(size=size, collectives=curve).makespan_ns - run(size=size).makespan_ns) / REPEATS

    sizes = (10, 1000, 1500, 3000, 8000)
    assert [own(size) for size in sizes] == [500, 500, 1000, 1500, 1500]
    part = EfficiencyPart.from_mapping({"collectives": curve})
    assert [part.cost_ns("all_reduce", size) for size in sizes] == [500, 500, 1000, 1500, 1500]
    assert part.cost_ns("all_gather", 1000) == 0
    growing = {"all_reduce": [[1000, 500], [2000, 1500]]}
    plain, more = run(size=4000), run(size=4000, collectives=growing)
    assert (more.makespan_ns - plain.makespan_ns) / REPEATS == 3500
    assert EfficiencyPart.from_mapping({"collectives": growing}).cost_ns("all_reduce", 4000) == 3500


def test_it_is_written_back_as_it_was():
    known = {"wire": 0.9415, "message-cost": "12us", "collectives": {"all_reduce": [["1MiB", "35us"]]}}
    config = NetworkConfig.from_mapping(PLAIN | {"efficiency": known, "calibration": {"of": "x"}}, "here")
    assert config.to_dict()["efficiency"] == known
    assert config.to_dict()["calibration"] == {"of": "x"}
    made = EfficiencyPart(wire=0.5, message_cost_ns=3, collectives={"all_gather": ((8, 9),)})
    assert EfficiencyPart.from_mapping(made.to_dict()) == made
    prepared = prepare(microbenchmark("all-reduce", 2, SIZE), "default", config)
    bare = prepare(
        microbenchmark("all-reduce", 2, SIZE), "default", NetworkConfig.from_mapping(PLAIN, "here")
    )
    assert prepared.content_hash != bare.content_hash


def test_files_of_astra_sim_say_that_they_lack_it(tmp_path):
    _, remarks = write_network(network(wire=0.5), "ns3", tmp_path / "ns3")
    assert any("without 'efficiency'" in text for text in remarks)
    assert not any("efficiency" in text for text in write_network(network(), "ns3", tmp_path / "bare")[1])


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ([], "must be a mapping"),
        ({"wires": 1}, "did you mean 'wire'"),
        ({"wire": 1.2}, "between 0.01 and 1"),
        ({"wire": True}, "between 0.01 and 1"),
        ({"message-cost": "soon"}, "is not a duration"),
        ({"message-cost": "9999999s"}, "must be between"),
        ({"collectives": []}, "must map operations"),
        ({"collectives": {"allreduce": [[1, 1]]}}, "did you mean 'all_reduce'"),
        ({"collectives": {"all_reduce": []}}, "pairs"),
        ({"collectives": {"all_reduce": [[1, 2, 3]]}}, "pairs"),
        ({"collectives": {"all_reduce": [["x", 1]]}}, "is not a size"),
        ({"collectives": {"all_reduce": [[2, 1], [2, 3]]}}, "must ascend"),
    ],
)
def test_what_is_wrong_in_it_is_named(part, said):
    with pytest.raises(ConfigError, match="'efficiency'") as caught:
        NetworkConfig.from_mapping(PLAIN | {"efficiency": part}, "here.yml")
    assert said in str(caught.value)
    assert "here.yml" in str(caught.value)


def test_the_calibration_must_be_a_mapping():
    with pytest.raises(ConfigError, match="'calibration' must be a mapping"):
        NetworkConfig.from_mapping(PLAIN | {"calibration": "yesterday"}, "here")


def test_a_substitute_moves_the_bytes_of_what_is_really_run():
    def makespan(collective, **efficiency):
        workload = microbenchmark(collective, 2, SIZE, repeats=REPEATS)
        return simulate(workload, "default", network(**efficiency), backend="analytical-unaware").makespan_ns

    replaced = makespan("reduce-scatter", substitutes={"reduce_scatter": "all_reduce"})
    assert replaced == makespan("all-reduce") > makespan("reduce-scatter")
    assert makespan("all-reduce", substitutes={"reduce_scatter": "all_reduce"}) == makespan("all-reduce")


@pytest.mark.parametrize(
    ("substitutes", "said"),
    [
        ({"reduce_scater": "all_reduce"}, "did you mean 'reduce_scatter'"),
        ({"broadcast": "all_reduce"}, "no operation 'broadcast'"),
        (
            {"reduce_scatter": "all_reduce", "all_reduce": "all_gather"},
            "name the operation that is finally run",
        ),
        (["reduce_scatter"], "must map operations"),
    ],
)
def test_substitutes_that_make_no_sense_are_refused(substitutes, said):
    with pytest.raises(ConfigError, match="(?i)" + said):
        network(substitutes=substitutes)


def test_what_is_measured_has_losses_of_its_own():
    result = run("emulation:loopback", size=4096, collectives={"all_reduce": [[1, "20s"]]})
    assert result.makespan_ns < 20_000_000_000
    assert any("losses of its own" in text for text in result.provenance["ignored_keys"])
