"""The complete examples of ASTRA-sim's repository, rewritten with the same values.

The figures in ns were printed by ASTRA-sim's binaries (public commit 518bd51), without and with congestion.
The binaries with congestion refuse more than one dimension; all stop if the local memory is tracked, so the
examples h100-8 and larger ran without tracking.
"""

import json
import math

import command_line
import et
import pytest

MEBIBYTE = 1 << 20
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PLAIN = {"preferred-dataset-splits": 1, "active-chunks-per-dimension": 1, "endpoint-delay": 1}
CHUNKS = {"preferred-dataset-splits": 4, "active-chunks-per-dimension": 1, "endpoint-delay": 10}
RING = CHUNKS | {"local-mem-bw": 1600, "peak-perf": 900, "roofline-enabled": 0}
VALIDATED = CHUNKS | {"local-mem-bw": 3350, "active-chunks-per-dimension": 2}
SMALL = PLAIN | {"local-mem-bw": 50}
TRACKED = {"track-local-mem": 1, "local-mem-trace-filename": "trace/memory"}
HGX = VALIDATED | {"endpoint-delay": 1, "roofline-enabled": 1, "peak-perf": 700} | TRACKED


def cluster(topology, npus, bandwidth, latency, system):
    """Return a network (GB/s and ns for all or each of its dimensions), and its system."""
    lists = {"bandwidth": bandwidth, "latency": latency}
    lists = {key: value if isinstance(value, list) else [value] for key, value in lists.items()}
    return {"topology": topology.split(), "npus_count": npus} | lists, system


CLUSTERS = {
    "ring-4": cluster("Ring", [4], 50.0, 500.0, RING),
    "ring-8": cluster("Ring", [8], 50.0, 500.0, RING),
    "ring-16": cluster("Ring", [16], 50.0, 500.0, RING),
    "ring-8-validated": cluster("Ring", [8], 50.0, 500.0, VALIDATED),
    "switch-8-validated": cluster("Switch", [8], 400.0, 936.25, VALIDATED),
    "switch-8": cluster("Switch", [8], 400.0, 936.25, RING),
    "v100-4": cluster("Ring", [4], 3.125, 3.39, SMALL),
    "h100-2": cluster("Switch", [2], 741.34, 936.25, SMALL),
    "h100-4": cluster("Switch", [4], 741.34, 936.25, SMALL),
    "h100-8": cluster("Switch", [8], 400, 936.25, HGX),
    "h100-16": cluster("Switch Ring", [8, 2], [400, 50], [936.25, 1000], HGX),
    "h100-32": cluster("Switch Ring", [8, 4], [400, 50], [936.25, 1000], HGX),
    "tpu-8": cluster("Ring", [8], 80.0, 1000.0, SMALL),
    "tpu-32-ring": cluster("Ring", [32], 80.0, 2000.0, SMALL),
    "tpu-32-torus": cluster("Ring Ring", [4, 8], [80.0, 80.0], [1000.0, 1000.0], SMALL),
}
UNAWARE, AWARE = "analytical-unaware", "analytical-aware"
# The time of each of COLLECTIVES of 1 MiB.
TIMES_NS = {
    UNAWARE: {
        "ring-4": [43000, 64744, 22240, 41560],
        "ring-8": [64440, 151016, 33080, 125480],
        "ring-16": [99640, 323560, 50740, 391240],
        "ring-8-validated": [31758, 75508, 16078, 62740],
        "switch-8-validated": [55222, 34908, 27810, 109668],
        "switch-8": [111368, 69816, 56544, 219336],
        "v100-4": [515953, 937513, 281566, 468775],
        "h100-2": [36520, 3191, 33988, 2533],
        "h100-4": [60391, 9571, 53785, 13213],
        "h100-8": [54952, 34764, 27666, 109146],
        "h100-16": [54954, 49202, 28985, 112589],
        "h100-32": [54954, 78048, 31144, 122473],
        "tpu-8": [90406, 92457, 72724, 70729],
        "tpu-32-ring": [208600, 440449, 134758, 1181473],
        "tpu-32-torus": [104596, 388429, 82765, 95042],
    },
    AWARE: {
        "ring-4": [43000, 64744, 22240, 41560],
        "ring-8": [64440, 151016, 33080, 125480],
        "ring-16": [99640, 323560, 50740, 391240],
        "ring-8-validated": [34680, 137216, 17627, 68840],
        "switch-8-validated": [57426, 44058, 28950, 114000],
        "switch-8": [115624, 86896, 58672, 227848],
        "v100-4": [515953, 937513, 281566, 468775],
        "h100-2": [37834, 4508, 34645, 3190],
        "h100-4": [62365, 13522, 54772, 15187],
        "h100-8": [57156, 43914, 28806, 113478],
        "tpu-8": [90406, 92457, 72724, 70729],
        "tpu-32-ring": [208600, 440449, 134758, 1181473],
    },
}


def write_program(folder, prefix, rank, nodes):
    (folder / f"{prefix}.{rank}.et").write_bytes(et.program(nodes))


def write_collective(folder, kind, ranks, *, node_id=None):
    """Write one collective of 1 MiB; by default, its id is the rank's, as in the examples."""
    for rank in range(ranks):
        what = {"type": "COLL", "comm_type": kind.upper(), "comm_size": MEBIBYTE}
        node = {"id": rank if node_id is None else node_id, "name": kind} | what
        write_program(folder, kind, rank, [node])


def write_cluster(folder, network, system):
    rows = (f"{key}: [ {', '.join(map(str, value))} ]  # a comment\n" for key, value in network.items())
    (folder / "network.yml").write_text("".join(rows))
    common = {"scheduling-policy": "LIFO", "collective-optimization": "localBWAware", "boost-mode": 0}
    algorithms = ["ring"] * len(network["topology"])
    lists = {f"{kind.replace('_', '-')}-implementation": algorithms for kind in COLLECTIVES}
    (folder / "system.json").write_text(json.dumps(common | lists | system))
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')


def run_main(kind, backend, system="system.json", network="network.yml"):
    """Run as the examples' scripts do; return the exit code."""
    arguments = ["run", f"--workload-configuration={kind}", f"--system-configuration={system}"]
    arguments += [f"--network-configuration={network}", "--remote-memory-configuration=memory.json"]
    arguments += ["--comm-group-configuration=empty", "--backend", backend, "--format", "json"]
    return command_line.run(*arguments)


def finish_times(capsys, kind, backend, **files):
    """Return the times at which ranks finish, which expose all of their communication."""
    capsys.readouterr()
    assert run_main(kind, backend, **files) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert all(rank["exposed_comm_ns"] == rank["finish_ns"] for rank in ranks)
    return {rank["finish_ns"] for rank in ranks}


@pytest.mark.parametrize(
    ("backend", "name"), [(key, name) for key, times in TIMES_NS.items() for name in times]
)
def test_every_collective_takes_as_long_as_in_astra_sim(tmp_path, monkeypatch, capsys, backend, name):
    monkeypatch.chdir(tmp_path)
    network, system = CLUSTERS[name]
    write_cluster(tmp_path, network, system)
    for kind, time_ns in zip(COLLECTIVES, TIMES_NS[backend][name], strict=True):
        write_collective(tmp_path, kind, math.prod(network["npus_count"]))
        assert finish_times(capsys, kind, backend) == {time_ns}, kind


def test_the_regression_test_gives_its_reference(tmp_path, monkeypatch, capsys):
    """Its reference output, which the binary repeats, says 117,780 cycles."""
    monkeypatch.chdir(tmp_path)
    write_cluster(tmp_path, CLUSTERS["ring-8"][0], CHUNKS | {"local-mem-bw": 50})
    write_collective(tmp_path, "all_reduce", 8, node_id=1)
    assert finish_times(capsys, "all_reduce", AWARE) == {117_780}


def ring_steps(rank, ranks):
    """Return a ring all-reduce as messages: reduced once around the ring, then passed on."""
    message = {"comm_size": MEBIBYTE // ranks, "comm_tag": 0}
    steps = []
    for step in range(2 * ranks - 2):
        steps.append({"type": "SEND", "comm_dst": (rank + 1) % ranks} | message)
        steps.append({"type": "RECV", "comm_src": (rank - 1) % ranks} | message)
        if step < ranks - 1:
            steps.append({"type": "COMP", "duration_micros": 7})
    nodes = [{"id": i, "name": f"step {i}", "data_deps": (i - 1,) if i else ()} for i in range(len(steps))]
    return [node | step for node, step in zip(nodes, steps, strict=True)]


@pytest.mark.parametrize(
    ("named", "system"), [("algorithms/ring", "system.json"), ("ring", "algorithms/system.json")]
)
def test_a_custom_collective_is_found_and_takes_as_long(tmp_path, monkeypatch, capsys, named, system):
    """Its path is relative to the working directory, or else to the folder of the system file."""
    monkeypatch.chdir(tmp_path)
    write_cluster(tmp_path, *CLUSTERS["ring-8"])
    write_collective(tmp_path, "all_reduce", 8)
    (tmp_path / "algorithms").mkdir()
    for rank in range(8):
        write_program(tmp_path / "algorithms", "ring", rank, ring_steps(rank, 8))
    custom = {"scheduling-policy": "FIFO", "preferred-dataset-splits": 1, "local-mem-bw": 50}
    custom |= {"all-reduce-implementation-custom": [named]}
    (tmp_path / system).write_text(json.dumps(custom))
    for backend in (UNAWARE, AWARE):
        assert finish_times(capsys, "all_reduce", backend, system=system) == {90_174}


@pytest.mark.parametrize("kind", COLLECTIVES[1:])
def test_a_system_with_a_custom_all_reduce_alone_is_refused_for_others(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.chdir(tmp_path)
    write_cluster(tmp_path, *CLUSTERS["ring-8"])
    write_collective(tmp_path, kind, 8)
    custom = {"preferred-dataset-splits": 1, "all-reduce-implementation-custom": ["ring"]}
    (tmp_path / "system.json").write_text(json.dumps(custom))
    assert run_main(kind, AWARE) == 40
    assert f"no '{kind.replace('_', '-')}-implementation'" in capsys.readouterr().err


def test_a_network_that_is_still_to_be_measured_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_cluster(tmp_path, *cluster("Ring", [8], "tbd", 500.0, SMALL))
    write_collective(tmp_path, "all_reduce", 8)
    assert run_main("all_reduce", UNAWARE) == 40
    assert "'bandwidth' must be a number, not 'tbd'" in capsys.readouterr().err
