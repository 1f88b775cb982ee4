"""The engine's checks of a collective before the simulation, compared with the simulation."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import fields
from pathlib import Path

import et
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import build
from chakrascope.converter import CollectiveType
from chakrascope.errors import ConfigError, WorkloadFormatError
from chakrascope.runner import Experiment, engine
from chakrascope.runner.config import Fabric, MemoryConfig, NetworkConfig, PacketPart, SystemConfig
from chakrascope.runner.emulation._wire import EngineJob, Message, config_of, job_to_wire

REFUSALS = (ConfigError, WorkloadFormatError)
CONFIGURED = ("ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER", "ALL_TO_ALL", "BARRIER", "REDUCE_SCATTER_BLOCK")
KINDS = (*CONFIGURED, "BROADCAST", "REDUCE", "GATHER", "SCATTER")
NAMES = (*engine.ALGORITHMS, *engine.WHOLE_ALGORITHMS, "direct2", "oneDirect3")


def asked(chosen, kind, group=0, size=4096, **more):
    """Return the engine's check of one collective."""
    [answer] = engine.refusals(chosen, [engine.Collective(CollectiveType[kind], group, size, **more)])
    return answer


def simulated(chosen, kind, group=0, size=4096):
    """Return the error of the simulation of the collective, or "" if it ends."""
    ranks = math.prod(chosen.npus_count)
    members = chosen.groups.get(group, range(ranks))
    facts = {"pg_name": str(group)} if group else {}
    taking_part = et.program([build.coll(0, size, comm_type=kind, **facts)])
    others = et.program([build.comp(0)])
    try:
        output = engine.simulate(chosen, [taking_part, others], [int(r not in members) for r in range(ranks)])
    except REFUSALS as error:
        return error.message
    assert output.unfinished == []
    return ""


def everywhere(name, counts, **more):
    lists = {
        f"{collective.replace('-', '_')}_implementation": [name] * len(counts)
        for collective in engine.COLLECTIVES
    }
    count = len(counts)
    network = {"topology": ["Switch"] * count, "bandwidth": [50.0] * count, "latency": [500.0] * count}
    return build.config(npus_count=list(counts), **network, **lists, **more)


def test_a_collective_without_an_algorithm_is_named_in_good_english():
    message = simulated(build.config(npus_count=[2], reduce_scatter_implementation=[]), "REDUCE_SCATTER")
    assert message.startswith("Node 0 asks for reduce_scatter, but the system configuration has no 'reduce")


@pytest.mark.parametrize(
    ("kind", "name", "ranks", "words"),
    [
        # Six ranks form pairs in every round of an all-gather, nine ranks do not.
        ("ALL_GATHER", "halvingDoubling", 6, ""),
        ("ALL_GATHER", "halvingDoubling", 9, "needs a power of two"),
        ("ALL_TO_ALL", "halvingDoubling", 8, "cannot run an all_to_all"),
        ("ALL_REDUCE", "halvingDoubling", 6, "needs a power of two"),
        ("ALL_REDUCE", "halvingDoubling", 8, ""),
        ("ALL_TO_ALL", "doubleBinaryTree", 8, ""),
        ("ALL_GATHER", "doubleBinaryTree", 6, "needs a power of two"),
        ("ALL_TO_ALL", "direct", 7, ""),
        ("BARRIER", "doubleBinaryTree", 6, "needs a power of two"),
        ("BROADCAST", "doubleBinaryTree", 6, ""),
    ],
)
def test_the_answer_is_the_simulations(kind, name, ranks, words):
    chosen = everywhere(name, [ranks], native_collectives=True)
    assert words in asked(chosen, kind)
    assert asked(chosen, kind) == simulated(chosen, kind)


def test_group_size_is_requested():
    chosen = everywhere("doubleBinaryTree", [8], groups={1: [0, 1, 2], 2: [4, 5, 6, 7]})
    kinds = [engine.Collective(CollectiveType.ALL_REDUCE, group) for group in (0, 1, 2)]
    assert ["3 in one" in answer for answer in engine.refusals(chosen, kinds)] == [False, True, False]
    assert "no communicator group 7" in asked(chosen, "ALL_REDUCE", 7)


def test_collective_takes_part_in_a_dimension_with_more_than_one_rank():
    assert engine.Collective(1, involved=0b10).spans([1, 8])
    assert not engine.Collective(1, involved=0b01).spans([1, 8])


def test_uninvolved_dimensions_are_not_checked():
    chosen = everywhere("halvingDoubling", [6, 4])
    assert "power of two" in asked(chosen, "ALL_REDUCE")
    assert asked(chosen, "ALL_REDUCE", involved=0b10) == ""


def test_replay_refuses_nothing():
    assert asked(everywhere("halvingDoubling", [6], replay_only=True), "ALL_TO_ALL") == ""


def test_what_allows_no_simulation_is_raised():
    with pytest.raises(ConfigError, match="unknown algorithm 'rign'"):
        asked(everywhere("rign", [4]), "ALL_REDUCE")
    with pytest.raises(ConfigError, match="known are Ring, FullyConnected and Switch"):
        asked(build.config(topology=["Torus"]), "ALL_REDUCE")


def test_a_collective_without_algorithm_names_its_key():
    chosen = build.config(all_to_all_implementation=[])
    assert "'all-to-all-implementation'" in asked(chosen, "ALL_TO_ALL", node_id=7)
    assert "Node 7" in asked(chosen, "ALL_TO_ALL", node_id=7)


def custom(folder, *, ranks, positions, peer=lambda place, ranks: (place + 1) % ranks):
    """Return a configuration whose all-reduce passes the ring once; files for some *positions* only."""
    for place in positions:
        nodes = [build.send(0, 0, peer(place, ranks)), build.recv(1, (place - 1) % ranks, 0)]
        (folder / f"round.{place}.et").write_bytes(et.program(nodes))
    return build.config(
        npus_count=[ranks], all_reduce_implementation_custom=["round"], custom_base=str(folder)
    )


def test_every_file_of_a_custom_algorithm_is_asked_for(tmp_path):
    chosen = custom(tmp_path, ranks=4, positions=range(4))
    assert asked(chosen, "ALL_REDUCE") == simulated(chosen, "ALL_REDUCE") == ""
    (tmp_path / "round.2.et").unlink()
    assert asked(chosen, "ALL_REDUCE") == simulated(chosen, "ALL_REDUCE")
    assert "round.2.et cannot be read" in asked(chosen, "ALL_REDUCE")


def test_a_custom_algorithm_for_more_ranks_is_refused(tmp_path):
    chosen = custom(tmp_path, ranks=4, positions=range(4), peer=lambda _place, _ranks: 5)
    assert "names rank 5, but the collective has 4 ranks" in asked(chosen, "ALL_REDUCE")
    assert asked(chosen, "ALL_REDUCE") == simulated(chosen, "ALL_REDUCE")


@st.composite
def cases(draw):
    """Return the settings of a configuration, and a collective of all its ranks or of one of its groups."""
    counts = draw(st.lists(st.integers(2, 9), min_size=1, max_size=3).filter(lambda c: math.prod(c) <= 48))
    ranks = math.prod(counts)
    members = draw(st.lists(st.integers(0, ranks - 1), unique=True, min_size=1, max_size=ranks))
    lists = {
        f"{name.replace('-', '_')}_implementation": draw(
            st.lists(st.sampled_from(NAMES), max_size=len(counts) + 1)
        )
        for name in engine.COLLECTIVES
    }
    chosen = {
        "topology": [draw(st.sampled_from(engine.TOPOLOGIES)) for _ in counts],
        "npus_count": counts,
        "bandwidth": [50.0] * len(counts),
        "latency": [500.0] * len(counts),
        "groups": {1: members},
        "native_collectives": draw(st.booleans()),
        "collective_optimization": draw(st.sampled_from(["baseline", "localBWAware"])),
        "inter_dimension_policy": draw(st.sampled_from(["ascending", "round-robin", "greedy"])),
        "preferred_dataset_splits": draw(st.integers(1, 3)),
    }
    return (
        chosen | lists,
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from([0, 1])),
        draw(st.integers(0, 9000)),
    )


@settings(max_examples=50)
@given(cases())
def test_asking_and_simulating_agree(case):
    changes, kind, group, size = case
    chosen = build.config(**changes)
    try:
        answer = asked(chosen, kind, group, size)
    except ConfigError as error:
        answer = error.message
    assert answer == simulated(chosen, kind, group, size)


@given(
    st.one_of(
        st.sampled_from(NAMES),
        st.from_regex(r"(one)?(ring|Ring|direct|Direct|halvingDoubling)(-?\d{0,7}[a-z]?)?", fullmatch=True),
    )
)
@example("direct0")
@example("direct-1")
@example("direct-5")
@example("direct12abc")
@example("oneDoubleBinaryTree")
def test_a_name_is_an_algorithm_exactly_if_a_configuration_may_use_it(name):
    try:
        asked(build.config(all_reduce_implementation=[name]), "ALL_REDUCE")
        taken = True
    except ConfigError:
        taken = False
    assert engine.is_algorithm(name) is taken


def test_the_names_are_those_the_parser_knows():
    assert engine.ALGORITHMS == ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
    assert engine.WHOLE_ALGORITHMS == ("oneRing", "oneDirect", "oneHalvingDoubling")
    assert engine.WINDOWED_ALGORITHMS == ("direct", "oneDirect")
    assert engine.COLLECTIVES == ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
    assert set(engine.TOPOLOGIES) == {"Ring", "FullyConnected", "Switch"}
    assert all(engine.is_algorithm(f"{name}16") for name in engine.WINDOWED_ALGORITHMS)


def test_one_collective_per_size_class_is_checked():
    kinds = [("ALL_REDUCE", 64), ("ALL_REDUCE", 128), ("ALL_GATHER", 0), ("ALL_GATHER", 8), ("ALL_GATHER", 9)]
    program = et.program(
        [build.comp(9), *(build.coll(i, size, comm_type=k) for i, (k, size) in enumerate(kinds))]
    )
    assert sorted(each.node_id for each in engine.collectives([program, program])) == [0, 2, 3]
    assert sorted(each.node_id for each in engine.collectives([program], apart=[1])) == [0, 1, 2, 3]
    with pytest.raises(WorkloadFormatError):
        engine.collectives([b"\x05none"])


def test_each_of_many_programs_is_asked():
    """Collectives are decoded a few at a time."""
    sizes = range(1000, 1100)
    job = [et.program([build.coll(0, size)]) for size in sizes]
    assert sorted(each.size_bytes for each in engine.collectives(job)) == [*sizes]


# The engine's table of fields: the code generated from it, and checks against it.


_STUB = Path(engine.__file__).with_name("_engine.pyi")
_GIVEN_BY = {
    "experiment": Experiment,
    "memory": MemoryConfig,
    "network": NetworkConfig,
    "system": SystemConfig,
}


def _type_of(name: str) -> str:
    """Return the type of an attribute of `engine.Config`, which nanobind writes in its signature."""
    signature = getattr(engine.Config, name).fget.__nb_signature__[0][0]
    return re.search(r"-> (.*)$", signature)[1]


def test_the_stub_has_every_field_with_its_type():
    tree = ast.parse(_STUB.read_text())
    config = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Config")
    stated = {
        each.target.id: ast.unparse(each.annotation)
        for each in config.body
        if isinstance(each, ast.AnnAssign) and each.target.id in engine.FIELDS
    }
    assert stated == {name: _type_of(name) for name in engine.FIELDS}


def test_what_gives_a_field_has_it_by_the_same_name():
    for name, field in engine.FIELDS.items():
        if field.origin in _GIVEN_BY:
            assert name in {each.name for each in fields(_GIVEN_BY[field.origin])}, field


def test_a_new_configuration_has_the_defaults():
    config = engine.Config()
    assert {name: getattr(config, name) for name in engine.FIELDS} == {
        name: field.default for name, field in engine.FIELDS.items()
    }
    assert len(engine.FIELDS) > 50


def _other(value):
    """Return another number or flag than *value*; other values are returned as they are."""
    if isinstance(value, bool):
        return not value
    return value + 2 if isinstance(value, (int, float)) else value


def test_the_wire_form_holds_whatever_decides_how_a_rank_runs():
    config = engine.Config()
    for name, field in engine.FIELDS.items():
        setattr(config, name, _other(field.default))
    config.topology = config.all_reduce_implementation = ["Ring"]
    config.groups, config.sends_first = {7: [0, 1]}, {3: 2}
    config.per_node_custom_implementation = {11: "slow.et"}
    facts, pieces = job_to_wire(EngineJob(config, (), (0, 0)))
    there, _, _ = config_of(Message("job", facts, pieces))
    for name, field in engine.FIELDS.items():
        if field.origin != "local":
            assert getattr(there, name) == getattr(config, name), name


@pytest.mark.parametrize("name", [name for name, each in engine.FIELDS.items() if each.largest < 1e15])
def test_the_engine_refuses_a_number_out_of_range(name):
    field = engine.FIELDS[name]
    config = _ring()
    try:
        setattr(config, name, type(field.default)(field.largest + 1))
    except TypeError:  # it does not fit at all
        return
    with pytest.raises(ConfigError, match=f"'{field.key}' must be between"):
        engine.refusals(config, [])


@pytest.mark.parametrize("name", [name for name, each in engine.FIELDS.items() if each.words])
def test_the_engine_refuses_an_unknown_word(name):
    field = engine.FIELDS[name]
    with pytest.raises(ValueError, match=f"'{field.key}' cannot be 'fastest'; known are {field.words[0]}"):
        setattr(engine.Config(), name, "fastest")


def _ring() -> engine.Config:
    config = engine.Config()
    config.topology, config.npus_count, config.bandwidth, config.latency = ["Ring"], [2], [50.0], [500.0]
    return config


@pytest.mark.parametrize(
    "key", [key for key, each in engine.SETTINGS.items() if each.kind in ("integer", "number")]
)
def test_a_packet_setting_out_of_range_is_refused(key):
    setting = engine.SETTINGS[key]
    for value in (setting.smallest - 1, setting.largest + 1):
        with pytest.raises(ConfigError, match=f"'{key}' must be"):
            PacketPart.from_mapping({key: value})
    settings = {key: int(setting.largest), "TRACE_FILE": "of no interest"}
    engine.Config().set_fabric(Fabric(2, (), (), settings=settings))


def test_a_duration_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="'RP_TIMER' must be between 0 and 9000000000000"):
        PacketPart.from_mapping({"RP_TIMER": 1e15})


def test_a_machine_needs_all_its_figures():
    with pytest.raises(KeyError):
        engine.GpuMachine({})
