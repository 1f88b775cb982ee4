"""Read a network from an InfraGraph file, a blueprint, or a file that a plug-in converts to one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....errors import ConfigError, did_you_mean
from ....support import load_plugin, plugin_names
from ....support.documents import read_json, read_yaml, refuse_unreadable
from .._values import shown

_BLUEPRINTS, _FILES = "blueprints", "network_files"
_YAML = ("yml", "yaml")
_DIMENSIONS = ("topology", "npus_count", "bandwidth", "latency")


def read_network(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network mapping in *path*, converted if it is an InfraGraph.

    A network YAML may name an InfraGraph in its key ``infragraph``: a file next to it, or a
    blueprint. *options* are additional keys from `OPTION_KEYS`. Raises `ConfigError` if a file or
    an option is invalid.
    """
    data = _content(path)
    if looks_like_infragraph(data):
        from ._network import network_mapping  # noqa: PLC0415 - most networks are none

        return network_mapping(data, str(path), options, str(path))
    if "infragraph" in data:
        return _described(data, path, options)
    used = [key for key in (*OPTION_KEYS, *options) if key in data or key in options]
    if used:
        raise ConfigError(f"{path}: '{used[0]}' requires an InfraGraph, which this is not; leave it out.")
    return data


def _content(path: Path) -> dict[str, Any]:
    suffix = path.suffix.lower().removeprefix(".")
    if suffix == "json":
        return read_json(path, "network configuration")
    if suffix not in _YAML and suffix in plugin_names(_FILES):
        refuse_unreadable(path, "network configuration")  # a plug-in would wait for a named pipe
        content: dict[str, Any] = load_plugin(_FILES, suffix)(path)
        return content
    return read_yaml(path, "network configuration")


def _described(data: Mapping[str, Any], path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network of a YAML file that names an InfraGraph and may have further keys."""
    from ._network import network_mapping  # noqa: PLC0415 - most networks are none

    source = data["infragraph"]
    remarks: list[str] = []
    if isinstance(source, Mapping):
        inner, remarks = _blueprint(source, f"{path}: 'infragraph'")
        where = f"{path}: 'infragraph'"
    elif isinstance(source, str):
        file = path.parent / Path(source).expanduser()
        inner, where = _content(file), str(file)
    else:
        raise ConfigError(
            f"{path}: 'infragraph' must name a file, or be a mapping with 'blueprint', not {shown(source)}."
        )
    if not looks_like_infragraph(inner):
        raise ConfigError(f"{where} is not an InfraGraph: it has neither 'instances' nor 'components'.")
    own = {key: data[key] for key in OPTION_KEYS if key in data}
    defaults = _merged(own.get("link-defaults"), options.get("link-defaults"))
    own |= dict(options) | ({"link-defaults": defaults} if defaults else {})
    made = network_mapping(inner, where, own, str(path))
    made["assumptions"] = [*remarks, *made["assumptions"]]
    beside = {key: value for key, value in data.items() if key not in OPTION_KEYS}
    if any(key in beside for key in _DIMENSIONS):
        made.pop("dimensions", None)
        assumptions = [
            text for text in made["assumptions"] if not text.startswith(("Dimensions found", "All "))
        ]
        made["assumptions"] = [
            *assumptions,
            f"The dimensions come from {path.name}, and were not checked against the links.",
        ]
        missing = next((key for key in _DIMENSIONS if key not in beside), None)
        if missing:
            raise ConfigError(f"{path}: '{missing}' is missing among the keys of the dimensions.")
    more = beside.pop("assumptions", [])
    made["assumptions"] += more if isinstance(more, list) else [more]
    return made | beside


def _blueprint(settings: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    """Build the blueprint that *settings* names; return its content, and notes on corrected mistakes.

    Plug-ins of ``chakrascope.blueprints`` provide blueprints: modules with ``BLUEPRINTS`` (names)
    and ``make_blueprint``.
    """
    name = str(settings.get("blueprint", "")).lower().replace("_", "-")
    plugins = [load_plugin(_BLUEPRINTS, each) for each in plugin_names(_BLUEPRINTS)]
    for plugin in plugins:
        if name in plugin.BLUEPRINTS:
            made: tuple[dict[str, Any], list[str]] = plugin.make_blueprint(settings, where)
            return made
    choices = [each for plugin in plugins for each in plugin.BLUEPRINTS]
    raise ConfigError(f"{where}: there is no blueprint '{name[:60]}'{did_you_mean(name, choices)}")


def _merged(first: Any, second: Any) -> Any:
    """Merge two mappings of link defaults; the second wins."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return {**first, **second}
    return second or first


OPTION_KEYS = ("infragraph", "link-defaults", "rank-forwarding", "ranks", "without")


def looks_like_infragraph(data: Mapping[str, Any]) -> bool:
    """Return whether a file's mapping is an infrastructure or a device, with or without annotations."""
    if "topology" in data or "infragraph" in data:
        return False
    return any(key in data for key in ("infrastructure", "instances", "components"))
