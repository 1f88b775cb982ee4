"""The engine's table of fields: what is made from it, and what is checked against it."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from chakrascope.errors import ConfigError
from chakrascope.runner import Experiment, engine
from chakrascope.runner.config import Fabric, MemoryConfig, NetworkConfig, PacketPart, SystemConfig
from chakrascope.runner.emulation._wire import EngineJob, Message, config_of, job_to_wire

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


@pytest.mark.parametrize("key", [key for key, each in engine.SETTINGS.items() if each.kind == "integer"])
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
