"""Checks of a configuration before a run, compared with the run itself."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType, microbenchmark
from chakrascope.errors import BackendError, ConfigError, UsageError, WorkloadError
from chakrascope.runner import (
    NetworkConfig,
    SystemConfig,
    check_setup,
    communication_of,
    engine,
    list_presets,
    simulate,
)
from chakrascope.runner.config import PacketPart, accelerators_of

UNAWARE = "analytical-unaware"
# Those that some backends refuse are listed twice.
NAMES = (*engine.ALGORITHMS, *engine.WHOLE_ALGORITHMS, "direct2", "halvingDoubling", "doubleBinaryTree")

KINDS = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.BARRIER,
    CollectiveType.BROADCAST,
)


def network(*sizes, topology="Switch"):
    count = len(sizes)
    return NetworkConfig((topology,) * count, sizes, (50.0,) * count, (500.0,) * count)


def system(**lists):
    """Return a system with these algorithms, and rings for all other collectives."""
    keys = {f"{name}-implementation": ["ring"] for name in engine.COLLECTIVES}
    given_keys = {f"{name.replace('_', '-')}-implementation": names for name, names in lists.items()}
    return SystemConfig.from_mapping(keys | given_keys, "test")


def job(kind, ranks, groups=None, *, group=0, captured=True, size=1 << 16):
    """Return a workload whose ranks run one collective, or a computation outside of its group."""
    members = (groups or {}).get(group, range(ranks))
    programs = [
        [coll(0, size, comm_type=kind, group=group)] if rank in members else [comp(0, 1000)]
        for rank in range(ranks)
    ]
    metadata = {"measured_step_ns": {"0": 1000}} if captured else {}
    return workload(*programs, groups=groups, metadata=metadata)


def errors(work, net, sys, backends=(UNAWARE,)):
    found = check_setup(net, sys, communication_of(work), backends)
    return [finding.text for finding in found if finding.severity == "error"]


def refusal(work, net, sys):
    """Return the error of the simulation, or "" if it ends."""
    try:
        simulate(work, sys, net)
    except (ConfigError, BackendError, UsageError, WorkloadError) as error:
        return error.message
    return ""


def test_eight_ranks_do_not_exchange_all_to_all_by_halving_and_doubling():
    work, sys = job(CollectiveType.ALL_TO_ALL, 8), system(all_to_all=["halvingDoubling"])
    [said] = errors(work, network(8), sys)
    assert said == refusal(work, network(8), sys)
    assert "cannot run an all_to_all" in said


def test_group_size_counts_and_equal_groups_are_reported_once():
    groups = {1: (0, 1, 2), 2: (3, 4, 5)}
    first, second = (coll(0, 1 << 16, group=group) for group in groups)
    work = workload(*[[first]] * 3, *[[second]] * 3, [comp(0, 1)], [comp(0, 1)], groups=groups)
    found = check_setup(
        network(8), system(all_reduce=["doubleBinaryTree"]), communication_of(work), [UNAWARE]
    )
    assert [finding.place for finding in found if finding.severity == "error"] == [
        "all_reduce of 3 ranks (group 1 and 1 more)"
    ]


def test_replay_needs_no_algorithms():
    work, sys = job(CollectiveType.ALL_TO_ALL, 8), system(all_to_all=["halvingDoubling"])
    assert errors(work, network(8), sys, ["replay"]) == []
    assert len(errors(work, network(8), sys, ["replay", UNAWARE])) == 1
    assert errors(work, network(8), system(), []) == ["No backend is selected. Select at least one backend."]


def test_of_a_workload_that_was_not_captured_fewer_ranks_run_but_never_more(tmp_path):
    job(CollectiveType.ALL_REDUCE, 4, captured=False).save(tmp_path / "w")
    found = check_setup(network(2), system(), communication_of(tmp_path / "w"), [UNAWARE])
    assert found[0].severity == "warning"
    assert refusal(tmp_path / "w", network(2), system()) == ""
    assert errors(tmp_path / "w", network(8), system()) == [
        "The sizes multiply to 8 ranks, but the workload has 4 ranks. Choose sizes with the product 4."
    ]
    assert refusal(tmp_path / "w", network(8), system()) != ""


def test_algorithms_of_single_nodes_are_checked(tmp_path):
    nodes = tmp_path / "nodes.yml"
    nodes.write_text("1: absent\n")
    both = [coll(0, 1 << 16), coll(1, 1 << 16, after=[0])]
    sys = SystemConfig.from_mapping(
        {"all-reduce-implementation": ["ring"], "per-node-custom-implementation": str(nodes)}, "test"
    )
    work = workload(both, both)
    [said] = errors(work, network(2), sys)
    assert said == refusal(work, network(2), sys)
    assert "absent.0.et cannot be read" in said


def test_a_workload_that_changed_is_read_again(tmp_path):
    prefix = tmp_path / "w"
    job(CollectiveType.ALL_REDUCE, 2).save(prefix)
    assert communication_of(prefix) is communication_of(prefix)
    before = communication_of(prefix)
    job(CollectiveType.ALL_TO_ALL, 4).save(prefix)
    assert (before.num_ranks, communication_of(prefix).num_ranks) == (2, 4)


@st.composite
def cases(draw):
    """Return a workload with a collective of all ranks or of a group, a network, and a system."""
    sizes = draw(st.sampled_from([(6,), (8,), (9,), (12,), (2, 3), (4, 4), (6, 2), (2, 2, 3), (7, 2)]))
    ranks = math.prod(sizes)
    smaller = [number for number in range(1, ranks) if ranks % number == 0]
    own = draw(st.sampled_from([ranks, ranks, ranks, *smaller[-2:], ranks + 1]))
    members = tuple(draw(st.permutations(range(own)))[: draw(st.integers(1, own))])
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=len(sizes))
    lists = {name.replace("-", "_"): draw(names) for name in engine.COLLECTIVES}
    group, captured = draw(st.sampled_from([0, 1])), draw(st.booleans())
    work = job(draw(st.sampled_from(KINDS)), own, {1: members}, group=group, captured=captured)
    return work, network(*sizes, topology=draw(st.sampled_from(engine.TOPOLOGIES))), system(**lists)


@settings(max_examples=40)
@given(cases())
def test_check_reports_errors_of_the_simulation(case):
    work, net, sys = case
    said, raised = errors(work, net, sys), refusal(work, net, sys)
    assert len(said) == (raised != "")
    if said and communication_of(work).num_ranks == net.num_ranks:
        assert said == [raised]


def test_check_reports_cpu_times_and_representatives():
    told = {"stand_ins": "the traces of 1 of 8 ranks were given"}
    captured = job(CollectiveType.ALL_REDUCE, 8)
    captured = replace(captured, metadata=captured.metadata | told)
    for name, chips in (("hgx-h100-8", True), ("cpu-cluster-8", False)):
        found = check_setup(NetworkConfig.preset(name), system(), communication_of(captured), [UNAWARE])
        causes = [finding.cause for finding in found if finding.severity == "warning"]
        assert [cause for cause in causes if "measured on CPUs" in cause] == causes[: int(chips)]
        assert causes[-1] == "The traces of 1 of 8 ranks were given."
    plain = job(CollectiveType.ALL_REDUCE, 8, captured=False)
    found = check_setup(NetworkConfig.preset("hgx-h100-8"), system(), communication_of(plain), [UNAWARE])
    assert not [finding for finding in found if finding.severity == "warning"]


def test_every_preset_of_accelerators_is_known():
    without_accelerators = ("clos-", "cpu-", "ring-")  # their links fit any machine
    for name in list_presets("network"):
        names = accelerators_of(NetworkConfig.preset(name).to_dict(), {})
        assert bool(names) != name.startswith(without_accelerators), name
    for name in list_presets("system"):
        assert bool(accelerators_of({}, SystemConfig.preset(name).to_dict())) == name.startswith("roofline")


def test_buffers_below_the_port_reserve_are_refused():
    """Eight ports of 400 Gb/s and 5 us set aside 3 x 250,000 bytes and 4 KiB each: 5.8 MiB."""
    work = job(CollectiveType.ALL_GATHER, 8)

    def with_buffer(**packet):
        part = PacketPart.from_mapping({"CC_MODE": 12, **packet})
        return NetworkConfig(("Switch",), (8,), (400e9 / 8 / (1 << 30),), (5000.0,), packet=part)

    for size, refused in ((5, True), (6, False)):
        small = with_buffer(BUFFER_SIZE=size)
        said = errors(work, small, system(), ("packet",))
        assert errors(work, small, system(), (UNAWARE,)) == []
        if not refused:
            assert said == []
            assert simulate(work, system(), small, backend="packet").provenance["packets"]["drops"] == 0
            continue
        assert len(said) == 1
        assert "switch 8" in said[0]
        assert "5.8 MiB" in said[0]
        assert "set BUFFER_SIZE to 6 or more" in said[0]
        with pytest.raises(ConfigError, match=r"switch 8 .* 5\.8 MiB .* BUFFER_SIZE to 6"):
            simulate(work, system(), small, backend="packet")
    assert errors(work, with_buffer(BUFFER_SIZE=2, HEADROOM_FACTOR=1), system(), ("packet",)) == []


def test_a_network_of_dimensions_gets_the_buffer_its_switches_need():
    fast = NetworkConfig.preset("gb200-nvl72")
    assert errors(job(CollectiveType.ALL_GATHER, 72), fast, system(), ("packet",)) == []
    result = simulate(microbenchmark("all-gather", 72, 1 << 20), "default", fast, backend="packet")
    assert result.provenance["packets"]["pause_frames"] == 0
    assert any("BUFFER_SIZE is 125 MiB" in text for text in result.provenance["assumptions"])
