"""Plug-ins that use the package ``infragraph`` for its blueprints and for XML of lstopo and NCCL."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ....errors import ConfigError, did_you_mean
from .._values import shown

_HOME = "infragraph.blueprints"
_SPOILT = {"dgx2": {"nvlsw": "nvsw"}}  # component names misspelt in edges, and their correct forms
# Module, class and arguments of each device blueprint, by Chakrascope's name for the device.
_DEVICES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "dgx1": ("devices.nvidia.dgx", "NvidiaDGX", ("dgx1",)),
    "dgx2": ("devices.nvidia.dgx", "NvidiaDGX", ("dgx2",)),
    "dgx-a100": ("devices.nvidia.dgx", "NvidiaDGX", ("dgx_a100",)),
    "dgx-h100": ("devices.nvidia.dgx", "NvidiaDGX", ("dgx_h100",)),
    "dgx-gb200": ("devices.nvidia.dgx", "NvidiaDGX", ("dgx_gb200",)),
    "ironwood": ("devices.ironwood_rack", "IronwoodRack", ()),
    "mi300x": ("devices.amd.mi300x", "MI300X", ()),
    "server": ("devices.generic.server", "Server", ()),
    "xe9680": ("devices.dell.xe9680", "Dellxe9680", ()),
    "xe9680l": ("devices.dell.xe9680L", "Dellxe9680L", ()),
    "xe9685l": ("devices.dell.xe9685L", "Dellxe9685L", ()),
}
# Module, class and parameters of each fabric blueprint; a parameter whose default is None is required.
_FABRICS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "clos": ("fabrics.closfabric", "ClosFabric", {}),
    "clos-fat-tree": (
        "fabrics.clos_fat_tree_fabric",
        "ClosFatTreeFabric",
        {"ports": None, "host": None, "levels": None, "bandwidth": None},
    ),
    "dragonfly": (
        "fabrics.dragonfly_fabric",
        "DragonflyFabric",
        {"ports": None, "host": None, "a": None, "p": None, "h": None, "bandwidth": None},
    ),
    "hybrid-debruijn": (
        "fabrics.hybrid_debruijn_fabric",
        "HybridDeBruijnFabric",
        {"ports": None, "host": None, "order": None},
    ),
    "multi-host-debruijn": (
        "fabrics.multi_host_debruijn_fabric",
        "MultiHostDeBruijnFabric",
        {"ports": None, "host": None, "order": None},
    ),
    "single-tier": (
        "fabrics.single_tier_fabric",
        "SingleTierFabric",
        {"host": None, "hosts": None, "bandwidth": None},
    ),
}
BLUEPRINTS = tuple(sorted([*_DEVICES, *_FABRICS]))
"""The names of all blueprints."""


def make_blueprint(settings: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    """Build the blueprint that *settings* names; return its content, and notes on corrected mistakes.

    The key ``blueprint`` is one of `BLUEPRINTS`. All other keys are the blueprint's parameters,
    such as ``host`` (the name of a device), ``ports`` (of a switch), and bandwidths in Gb/s. Raises
    `ConfigError` for invalid settings, or if the package is not installed.
    """
    name = str(settings.get("blueprint", "")).lower().replace("_", "-")
    given = {key: value for key, value in settings.items() if key != "blueprint"}
    takes = _FABRICS[name][2] if name in _FABRICS else {}
    for key in given:
        if key not in takes:
            raise ConfigError(
                f"{where}: the blueprint '{name}' has no '{key}'{did_you_mean(str(key), takes)}"
            )
    missing = [key for key in takes if key not in given]
    if missing:
        raise ConfigError(f"{where}: the blueprint '{name}' needs '{missing[0]}'.")
    return _mended(_plain_values(lambda: _build(name, given, where), where))


def _build(name: str, given: Mapping[str, Any], where: str) -> Any:
    if name in _DEVICES:
        return _device(name)
    module, kind, _ = _FABRICS[name]
    arguments: dict[str, Any] = {}
    for key, value in given.items():
        if key == "host":
            host = str(value).lower().replace("_", "-")
            if host not in _DEVICES:
                raise ConfigError(f"{where}: there is no host '{host[:60]}'{did_you_mean(host, _DEVICES)}")
            arguments["host"] = _device(host)
        elif key == "ports":
            arguments["switch"] = _class("devices.generic.generic_switch", "Switch")(value)
        else:
            arguments[{"hosts": "server_count"}.get(key, key)] = copy.deepcopy(value)
    if "debruijn" in name or name == "single-tier":
        arguments["server"] = arguments.pop("host")
    return _class(module, kind)(**arguments)


def _device(name: str) -> Any:
    module, kind, arguments = _DEVICES[name]
    return _class(module, kind)(*arguments)


def _class(module: str, kind: str) -> Any:
    return getattr(_package(f"{_HOME}.{module}"), kind)


def _package(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"Blueprints, and the XML of lstopo and NCCL, need the package 'infragraph', which is missing "
            f"('{error.name}'). Next: pip install 'chakrascope[infragraph]', or write the network "
            "as a file."
        ) from error


def _plain_values(make: Callable[[], Any], where: str) -> dict[str, Any]:
    """Return the result of *make* as plain values; the package's exceptions become `ConfigError`."""
    try:
        with redirect_stdout(StringIO()):  # some blueprints print to standard output
            return dict(make().serialize("dict"))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{where}: the package 'infragraph' refuses this ({type(error).__name__}: {str(error)[:300]}); "
            "correct it."
        ) from error


def _mended(data: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Correct known mistakes of blueprints in *data*; return it with a note on each correction."""
    remarks = []
    spine = [edge for edge in data.get("edges", ()) if edge["ep1"].get("instance", "").startswith("tier_2[")]
    if any(edge["link"] != "tier_2_link" for edge in spine):
        for edge in spine:
            edge["link"] = "tier_2_link"
        remarks.append(
            "The blueprint 'clos-fat-tree' gives links to the third tier the bandwidth of the links "
            "below them; here they have a separate bandwidth."
        )
    for device in data.get("devices", [data]):
        names = {part["name"] for part in device.get("components", ())}
        for wrong, right in _SPOILT.get(device.get("name", ""), {}).items():
            if wrong in names or right not in names:
                continue
            for edge in device["edges"]:
                for end in ("ep1", "ep2"):
                    edge[end]["component"] = edge[end]["component"].replace(wrong, right)
            remarks.append(
                f"The blueprint '{device['name']}' links '{wrong}', which is missing; '{right}' is assumed."
            )
    return data, remarks


def import_xml(path: Path) -> dict[str, Any]:
    """Convert the XML of ``lstopo``, or of NCCL's topology dump, to an InfraGraph device.

    Raises `ConfigError` for other files, and without the package ``infragraph``.
    """
    try:
        tag = ElementTree.parse(path).getroot().tag
    except OSError as error:
        raise ConfigError(
            f"The topology {path} cannot be read ({error.strerror}); check the path."
        ) from error
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ConfigError(f"The topology {path} is not valid XML ({error}); is it complete?") from error
    kinds = {
        "topology": ("infragraph.translators.lstopo_translator", "LstopoParser"),
        "system": ("infragraph.translators.nccl_translator", "NcclParser"),
    }
    if tag not in kinds:
        raise ConfigError(
            f"The topology {path} begins with <{shown(tag)}>; lstopo's XML begins with <topology> and NCCL's "
            "with <system>."
        )
    module, kind = kinds[tag]
    name = "".join(letter if letter.isalnum() else "_" for letter in path.stem) or "machine"

    def parse() -> Any:
        return getattr(_package(module), kind)(str(path), device_name=name).parse(infra_type="device")

    return _plain_values(parse, f"The topology {path}")
