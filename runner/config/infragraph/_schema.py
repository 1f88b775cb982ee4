"""InfraGraph's infrastructure as typed values, checked as they are parsed.

The public format (infragraph.dev) describes devices made of components, instances of devices, and
edges that join components by a scheme and a kind of link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ....errors import ConfigError, misspelling
from .._values import is_number, mapping_of, one_of, shown, whole, wrong

CHOICES = ("custom", "device", "cpu", "xpu", "nic", "memory", "port", "switch")
SCHEMES = ("one2one", "many2many", "ring")
MOST = 1_000_000  # limit on components, instances and links, above which a count must be a mistake
_BITS = {"gigabits_per_second": 10**9, "gigabytes_per_second": 8 * 10**9}
_TRANSFERS = "gigatransfers_per_second"
_DEVICE = ("name", "description", "components", "links", "edges")
_KEYS = {
    "devices": _DEVICE,
    "components": ("name", "description", "count", "choice", *CHOICES),
    "links": ("name", "description", "physical"),
    "edges": ("ep1", "ep2", "scheme", "link"),
    "instances": ("name", "description", "device", "count"),
    "nodes": ("name", "attributes"),
    "attributes": ("attribute", "value"),
}
_PICOSECONDS = {"ms": 10**9, "us": 10**6, "ns": 1000}


@dataclass(frozen=True)
class Component:
    """*count* equal parts of a device; *type* is their choice, or a custom component's type."""

    name: str
    count: int
    choice: str
    type: str


@dataclass(frozen=True)
class LinkKind:
    """Rate and delay (ps) of a kind of link; the rate is in bit/s, or in transfers/s of unknown width."""

    name: str
    rate_bps: Fraction | None = None
    transfers: Fraction | None = None
    delay_ps: Fraction | None = None


@dataclass(frozen=True)
class Edge:
    """Two endpoint texts of the file, joined by *scheme*; a nested device is the first end."""

    place: str
    ep1: str
    ep2: str
    scheme: str
    link: str


@dataclass(frozen=True)
class Device:
    """A device: components and link kinds by name, and edges inside it."""

    name: str
    components: Mapping[str, Component]
    links: Mapping[str, LinkKind]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Instance:
    """An entry of an infrastructure: *count* instances of a device under one *name*."""

    name: str
    device: str
    count: int


@dataclass(frozen=True)
class Infrastructure:
    """The content of an InfraGraph file; *ranks* are the rank annotations by node name."""

    name: str
    devices: Mapping[str, Device]
    instances: Mapping[str, Instance]
    links: Mapping[str, LinkKind]
    edges: tuple[Edge, ...]
    ranks: Mapping[str, int]
    unused: tuple[str, ...] = ()


def read(data: Mapping[str, Any], where: str) -> Infrastructure:
    """Parse *data*, an infrastructure or a single device.

    Raises `ConfigError`, naming *where* and the key, for missing values and wrong types.
    """
    annotations = mapping_of(data.get("annotations") or {}, f"{where}: 'annotations'")
    keys = (*_DEVICE, "devices", "instances", "infrastructure", "annotations")
    inner = _spelled(data.get("infrastructure", data), keys, f"{where}: 'infrastructure'")
    if "components" in inner:
        device = _device(inner, where)
        inner = {"name": device.name, "instances": [{"name": device.name, "device": device.name, "count": 1}]}
        devices = {device.name: device}
    else:
        devices = _named(inner, "devices", where, _device)
    ranks, unused = _annotations(annotations, where)
    return Infrastructure(
        name=str(inner.get("name", "infrastructure")),
        devices=devices,
        instances=_named(inner, "instances", where, _instance),
        links=_named(inner, "links", where, _link),
        edges=_edges(inner, where, "instance"),
        ranks=ranks,
        unused=unused,
    )


def _named(data: Mapping[str, Any], key: str, where: str, parse: Any) -> dict[str, Any]:
    """Return the parsed items of the list *key*, by name."""
    items: dict[str, Any] = {}
    for place, entry in _entries(data, key, where):
        item = parse(entry, place)
        if item.name in items:
            raise ConfigError(
                f"{place}: the name '{item.name}' occurs twice; give every entry a different one."
            )
        items[item.name] = item
    return items


def _device(data: Mapping[str, Any], where: str) -> Device:
    name = _text(data, "name", where)
    place = f"{where} ('{name}')"
    return Device(
        name,
        _named(data, "components", place, _component),
        _named(data, "links", place, _link),
        _edges(data, place, "device"),
    )


def _component(data: Mapping[str, Any], where: str) -> Component:
    name = _text(data, "name", where)
    choice = data.get("choice", next((key for key in CHOICES if key in data), None))
    one_of(CHOICES)(choice, f"{where}: the 'choice' of component '{name}'")
    kind = str(choice)
    if choice == "custom":
        kind = str(mapping_of(data.get("custom") or {}, f"{where}: 'custom'").get("type", "custom"))
    return Component(name, _count(data, where, name), str(choice), kind)


def _instance(data: Mapping[str, Any], where: str) -> Instance:
    name = _text(data, "name", where)
    return Instance(name, _text(data, "device", where), _count(data, where, name))


def _link(data: Mapping[str, Any], where: str) -> LinkKind:
    name = _text(data, "name", where)
    place = f"{where}: the link '{name}'"
    physical = _spelled(data.get("physical") or {}, ("bandwidth", "latency"), f"{place}: 'physical'")
    bandwidth = _choice(physical.get("bandwidth"), (*_BITS, _TRANSFERS), f"{place}: 'bandwidth'")
    latency = _choice(physical.get("latency"), tuple(_PICOSECONDS), f"{place}: 'latency'")
    rate = transfers = delay = None
    if bandwidth is not None:
        unit, number = bandwidth
        if number <= 0:
            raise ConfigError(f"{place}: the bandwidth must be more than 0, not {float(number):g}.")
        rate = number * _BITS[unit] if unit in _BITS else None
        transfers = number * 10**9 if unit == _TRANSFERS else None
    if latency is not None:
        delay = latency[1] * _PICOSECONDS[latency[0]]
    return LinkKind(name, rate, transfers, delay)


def _choice(data: Any, units: Sequence[str], where: str) -> tuple[str, Fraction] | None:
    """Return the unit and exact value of the number in *data*, or None if there is none."""
    if data is None:
        return None
    values = _spelled(data, ("choice", *units), where)
    unit = values.get("choice", next((key for key in units if values.get(key) is not None), None))
    if unit is None:
        return None
    one_of(units)(unit, f"{where}: its unit")
    number = values.get(unit)
    if number is None:
        return None
    if not is_number(number) or not 0 <= number < 1e15:
        raise wrong(f"{where}: '{unit}'", "a number of 0 or more", number)
    return unit, Fraction(str(number))


def _edges(data: Mapping[str, Any], where: str, outer: str) -> tuple[Edge, ...]:
    """Return the edges of a device or, if *outer* is ``instance``, of the infrastructure."""
    edges = []
    for place, entry in _entries(data, "edges", where):
        scheme = entry.get("scheme", "one2one")
        one_of(SCHEMES)(scheme, f"{place}: 'scheme'")
        first, second = (_endpoint(entry.get(key), f"{place}: '{key}'", outer) for key in ("ep1", "ep2"))
        edges.append(Edge(place, first, second, str(scheme), _text(entry, "link", place)))
    return tuple(edges)


def _endpoint(data: Any, where: str, outer: str) -> str:
    endpoint = _spelled(data, (outer, "component"), where)
    component = _text(endpoint, "component", where)
    if outer == "device" and endpoint.get("device") is None:
        return component
    return f"{_text(endpoint, outer, where)}.{component}"


def _annotations(data: Mapping[str, Any], where: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the rank that annotations assign to each node, and the attributes without effect."""
    ranks: dict[str, int] = {}
    unused: dict[str, None] = {}
    for key in ("nodes", "edges", "links"):
        for place, entry in _entries(data, key, f"{where}: 'annotations'"):
            for _, pair in _entries(entry, "attributes", place):
                attribute, value = str(pair.get("attribute")), pair.get("value")
                if key != "nodes" or attribute != "rank":
                    unused[attribute] = None
                    continue
                if not str(value).isdecimal():
                    raise ConfigError(f"{place}: a rank must be a whole number, not {shown(value)}.")
                ranks[_text(entry, "name", place)] = int(str(value)[:18])
    return ranks, tuple(unused)


def _entries(data: Mapping[str, Any], key: str, where: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the mappings in the list *key*, each with its place for errors."""
    entries = data.get(key)
    if entries is None:
        return []
    if not isinstance(entries, (list, tuple)):
        raise wrong(f"{where}: '{key}'", "a list", entries)
    places = (f"{where}: {key}[{number}]" for number in range(len(entries)))
    return [(place, _spelled(entry, _KEYS[key], place)) for place, entry in zip(places, entries, strict=True)]


def _spelled(data: Any, known: Sequence[str], where: str) -> Mapping[str, Any]:
    """Return the mapping *data*, or raise `ConfigError` for a misspelling of a *known* key."""
    given = mapping_of(data, where)
    mistake = misspelling(map(str, given), known)
    if mistake:
        raise ConfigError(f"{where}: {mistake}")
    return given


def _text(data: Mapping[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: '{key}' must be a name, not {shown(value)}; is the file complete?")
    return value


def _count(data: Mapping[str, Any], where: str, name: str) -> int:
    count: int = whole(0, MOST)(data.get("count"), f"{where}: the 'count' of '{name}'")
    return count
