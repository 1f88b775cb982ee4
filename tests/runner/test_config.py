"""Configuration files: conversions, round trips, bounds, and losses beyond the wire."""

import base64
import dataclasses
import gzip
import json
import math
import re

import pytest
import yaml
from workloads import coll, workload

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import (
    MemoryConfig,
    NetworkConfig,
    SystemConfig,
    engine,
    load_groups,
    prepare,
    simulate,
)
from chakrascope.runner.backends import write_network
from chakrascope.runner.config import EfficiencyPart

NETWORK = "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [50, 25.5]\nlatency: [500, 0]\n"


def write(folder, name, content):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_network_round_trip(tmp_path):
    config = NetworkConfig.load(write(tmp_path, "n.yml", NETWORK + "comment: 1\n"))
    assert config.num_ranks == 8
    assert config.bandwidth_bytes_per_ns[0] == 50 * 2**30 / 1e9
    assert config.unknown == {"comment": 1}
    config.save(tmp_path / "copy.yml")
    assert NetworkConfig.load(tmp_path / "copy.yml") == config


BY_LOADER = {
    NetworkConfig.load: [
        (NETWORK.replace("Ring", "Rign"), "did you mean 'Ring'"),
        (NETWORK.replace("[4, 2]", "[4]"), "1 entries"),
        (NETWORK.replace("[4, 2]", "[4, 1]"), r"at least 2 \(or \[1\]"),
        (NETWORK.replace("[4, 2]", "[4, 2.5]"), "whole number"),
        (NETWORK.replace("[50, 25.5]", "[50, 0]"), "more than 0"),
        (NETWORK.replace("[50, 25.5]", "50"), "must be a list"),
        (NETWORK.replace("[50,", "[true,"), "every entry of 'bandwidth' must be a number"),
        (NETWORK.replace("[4,", "[4.5,"), "every entry of 'npus_count' must be a whole number"),
        (NETWORK.replace("[500, 0]", "[500, -1]"), "0 or more"),
        (NETWORK.replace("latency", "latncy"), r"'latency' is missing \('latncy' may be a misspelling"),
        (NETWORK + "pakcet: {}\n", r"'pakcet' - did you mean 'packet'"),
        (NETWORK + "latency: [1, 2]\n", r"'latency' occurs twice.*line"),
        (NETWORK + "comment: {1: a, '1': b}\n", "'1' occurs twice"),
        (NETWORK + "comment: 1:30\n", r"number 1:30 is of base 60.*line"),
        (NETWORK + "comment: -1:30.5\n", r"number -1:30\.5 is of base 60"),
        (NETWORK + "comment: 010\n", "number 010 is of base 60 or 8"),
        ("topology: [", "not valid YAML"),
        (NETWORK + "comment: 1e999\n", r"the number 1e999 is too large.*line"),
        ("- 1", "mapping"),
        ("", "mapping"),
    ],
    SystemConfig.load: [
        ({"scheduling-policy": "LILO"}, "did you mean 'LIFO'"),
        ({"collective-optimization": "localBW"}, "did you mean"),
        ({"all-reduce-implementation": "ring"}, "list of strings"),
        ({"all-reduce-implementation": ["rign"]}, "did you mean 'ring'"),
        ({"all-reduce-implementation-custom": ["a", "b"]}, "exactly one"),
        ({"endpoint-delay": "10"}, "must be a whole number"),
        ({"endpoint-delay": True}, "whole number, not True"),
        ({"endpoint-delay": math.nan}, "whole number"),
        ({"endpoint-delay": math.inf}, "whole number"),
        ('{"endpoint-delay": -1e400}', "the number -1e400 is too large"),
        ({"preferred-dataset-splits": 2.5}, "whole number, not 2.5"),
        ({"peak-perf": True}, "must be a number"),
        ({"roofline-enabled": "yes"}, "must be 0 or 1, not 'yes'"),
        ({"trace-enabled": None}, "must be 0 or 1"),
        ({"endpoint-dely": 3}, r"wrong: .*did you mean 'endpoint-delay'"),
        ('{"endpoint-delay": 3, "endpoint-delay": 4}', "'endpoint-delay' .* twice"),
        ([], "mapping"),
        ("{", "not valid JSON"),
    ],
    MemoryConfig.load: [
        ({"memory-type": "MEMORY_POL"}, "did you mean 'MEMORY_POOL'"),
        ({"remote-memory-bw": 3}, r"wrong: .*did you mean 'remote-mem-bw'"),
        ({"remote-mem-bw": 6.5}, "whole number, not 6.5"),
        ({"remote-mem-bw": 6}, "'memory-type' is missing, without which 'remote-mem-bw' has no effect"),
        ('{"num-nodes": 3, "num-nodes": 3}', "'num-nodes' occurs twice"),
    ],
    load_groups: [
        ('{"1": [0, 1], "1": [2, 3]}', "'1' occurs twice"),
        ('{"1": [0, 1], "01": [2, 3]}', "group 1 occurs twice"),
        *(({key: ranks}, "wrong") for key, ranks in (("0", [1]), ("x", [1]), ("1", []), ("1", "a"))),
        *(({"1": ranks}, "wrong") for ranks in ([1, 1], [True])),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("load", "content", "message"), [(load, *wrong) for load, table in BY_LOADER.items() for wrong in table]
)
def test_what_is_wrong_is_refused(tmp_path, load, content, message):
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, "wrong", content))


def test_aliases_that_stand_for_billions_of_values_are_refused(tmp_path):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = write(tmp_path, "n.yml", NETWORK + "\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=r"alias \*a\d+ repeats too much.*line \d+"):
        NetworkConfig.load(path)
    path = write(tmp_path, "n.yml", NETWORK + "self: &self [*self]\n")
    with pytest.raises(ConfigError, match=r"alias \*self repeats too much"):
        NetworkConfig.load(path)


def test_a_few_aliases_are_read(tmp_path):
    content = NETWORK.replace("[4, 2]", "&size [4, 2]") + "source: *size\n"
    content += "comment: {<<: &m {a: 1}, b: &n {<<: *m, a: 2}, c: {<<: *n}}\n"
    config = NetworkConfig.load(write(tmp_path, "n.yml", content))
    assert config.unknown == {
        "source": [4, 2],
        "comment": {"a": 1, "b": {"a": 2}, "c": {"a": 2}},
    }


def test_of_merged_mappings_the_first_holds_and_own_keys_before_it(tmp_path):
    content = NETWORK + "comment: {m: &m {alpha: 1, x: 5}, n: &n {alpha: 2, y: 6}, o: {<<: [*m, *n], y: 7}}\n"
    config = NetworkConfig.load(write(tmp_path, "n.yml", content))
    assert config.unknown["comment"]["o"] == {"alpha": 1, "x": 5, "y": 7}
    path = write(tmp_path, "n.yml", NETWORK + "comment: {<<: [1]}\n")
    with pytest.raises(ConfigError, match=r"'<<' merges mappings only.*line \d+"):
        NetworkConfig.load(path)


def test_system_conversions_are_astra_sims(tmp_path):
    data = {"preferred-dataset-splits": 4.0, "roofline-enabled": False, "replay-only": 0, "boost-mode": 1}
    config = SystemConfig.load(write(tmp_path, "s.json", data))
    assert config.preferred_dataset_splits == 4
    assert config.roofline_enabled is True
    assert config.replay_only is False
    assert any("boost-mode" in line for line in config.ineffective())
    config.save(tmp_path / "copy.json")
    assert SystemConfig.load(tmp_path / "copy.json") == config


@pytest.mark.parametrize("text", ["1e3", "1E+3", "1.e3", "+1e3", "10000e-1"])
def test_numbers_with_exponents_need_neither_point_nor_sign(tmp_path, text):
    content = re.sub(r"bandwidth: \[[^,]*,", f"bandwidth: [{text},", NETWORK)
    assert NetworkConfig.load(write(tmp_path, "n.yml", content)).bandwidth[0] == 1000


def test_memory_round_trip(tmp_path):
    data = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100.0, "remote-mem-bw": 50}
    config = MemoryConfig.load(write(tmp_path, "m.json", data))
    assert config.remote_mem_latency == 100
    config.save(tmp_path / "copy.json")
    assert MemoryConfig.load(tmp_path / "copy.json") == config


def test_groups_keep_their_order(tmp_path):
    assert load_groups(write(tmp_path, "g.json", {"1": [2, 0]})) == {1: (2, 0)}


def test_a_missing_file_is_explained(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        NetworkConfig.load(tmp_path / "absent.yml")


def test_the_configurations_of_the_recorded_cases_round_trip(data_dir, tmp_path):
    with gzip.open(data_dir / "engine" / "cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) == 150
    for case in cases:
        for name in ("system.json", "network.yml"):
            (tmp_path / name).write_bytes(base64.b64decode(case["files"][name]))
        system = SystemConfig.load(tmp_path / "system.json")
        assert SystemConfig.from_mapping(system.to_dict(), "copy") == system
        network = NetworkConfig.load(tmp_path / "network.yml")
        assert NetworkConfig.from_mapping(network.to_dict(), "copy") == network


# Absurd numbers in configurations are refused when they are read; the error names key and file.

DIMENSIONS = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


def beyond(origin):
    """Return every bounded key of a kind of file, with numbers below, above and far from its bounds."""
    bounded = [each for each in engine.FIELDS.values() if each.origin == origin and each.largest < math.inf]
    return [(each.key, value) for each in bounded for value in (each.smallest - 1, each.largest + 1, 1e300)]


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (config, *bound)
        for config, origin in ((SystemConfig(), "system"), (MemoryConfig("MEMORY_POOL"), "memory"))
        for bound in beyond(origin)
    ],
)
def test_absurd_numbers_are_refused(config, key, value, tmp_path):
    path = write(tmp_path, "absurd.json", config.to_dict() | {key: value})
    with pytest.raises(ConfigError, match=f"absurd.json: '{key}' must be between"):
        type(config).load(path)
    with pytest.raises(ConfigError, match=f"'{key}' must be between"):
        dataclasses.replace(config, **{key.replace("-", "_"): value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bandwidth", [1e-300]),  # took 150 ns for a MiB
        ("bandwidth", [1e300]),
        ("latency", [1e18]),  # "stalled"
        ("latency", [1e300]),
        ("npus_count", [2**31]),
        ("links", [[1, 4, 50, [[]]]]),
        ("links", [[1, 4, 50]]),
        ("links", [[1, 1, 50, 500]]),
        ("links", [[1.5, 4, 50, 500]]),
        ("links", [[-1, 4, 50, 500]]),
        ("links", [[1, 2**40, 50, 500]]),
        ("links", [[1, 4, 0, 500]]),
        ("links", [[1, 4, math.nan, 500]]),
        ("links", [[1, 4, 50, math.inf]]),
        ("links", [[1, 4, True, "500"]]),
        ("links", {"a": 1}),
        ("links", "0-4"),
        ("links", 7),
    ],
)
def test_absurd_networks_are_refused(key, value, tmp_path):
    path = tmp_path / "network.yml"
    path.write_text(yaml.safe_dump(DIMENSIONS | {key: value}))
    with pytest.raises(ConfigError, match=rf"network.yml: .*'{key}'"):
        NetworkConfig.load(path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("num-queues-per-dim", 0),
        ("num-queues-per-dim", 4294967296),
        ("injection-scale", math.nan),
        ("injection-scale", math.inf),
        ("injection-scale", -1.0),
        ("injection-scale", 1e18),
    ],
)
def test_absurd_options_are_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        prepare(
            workload(*[[coll(0, 1 << 20)]] * 4),
            "default",
            NetworkConfig.from_mapping(DIMENSIONS, "here"),
            semantics="astra-sim",
            **{option.replace("-", "_"): value},
        )


# Losses beyond the wire: their key in a network file, and their effect on each backend.

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
def test_packets_have_headers_with_a_note(backend):
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


def test_files_for_astra_sim_note_missing_overheads(tmp_path):
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
        ({"collectives": []}, "must be a mapping"),
        ({"collectives": {"allreduce": [[1, 1]]}}, "did you mean 'all_reduce'"),
        ({"collectives": {"all_reduce": []}}, "pairs"),
        ({"collectives": {"all_reduce": [[1, 2, 3]]}}, "pairs"),
        ({"collectives": {"all_reduce": [["x", 1]]}}, "is not a size"),
        ({"collectives": {"all_reduce": [[2, 1], [2, 3]]}}, "must ascend"),
    ],
)
def test_errors_in_a_file_are_named(part, said):
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
        ({"broadcast": "all_reduce"}, "no key 'broadcast'"),
        (
            {"reduce_scatter": "all_reduce", "all_reduce": "all_gather"},
            "name the operation that is finally run",
        ),
        (["reduce_scatter"], "must be a mapping"),
    ],
)
def test_substitutes_that_make_no_sense_are_refused(substitutes, said):
    with pytest.raises(ConfigError, match="(?i)" + said):
        network(substitutes=substitutes)


def test_measuring_backends_ignore_efficiency():
    result = run("emulation:loopback", size=4096, collectives={"all_reduce": [[1, "20s"]]})
    assert result.makespan_ns < 20_000_000_000
    assert any("measurements include the losses" in text for text in result.provenance["ignored_keys"])
