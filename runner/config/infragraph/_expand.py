"""Expand an infrastructure: components of instances become nodes, edges become links ("lines")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from ....errors import ConfigError, did_you_mean
from ....support import count_text
from .._values import shown
from ._schema import Device, Edge, Infrastructure, LinkKind

_MAX_NODES = 500_000
_MAX_LINES = 2_000_000
_DEEPEST = 20  # maximum nesting of devices
_ELEMENT = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?")
_SLICE = re.compile(r"\s*(-?\d{1,9})?\s*(?:(:)\s*(-?\d{1,9})?\s*(?::\s*(-?\d{1,9})?\s*)?)?")


@dataclass(frozen=True)
class Node:
    """A component of an instance: its full name (``host.0.xpu.3``), choice, type and device."""

    name: str
    component: str
    choice: str
    type: str
    device: str


@dataclass(frozen=True)
class Line:
    """A link between the nodes *a* and *b*; *device* is the device that contains it, if any."""

    a: int
    b: int
    kind: LinkKind
    device: str
    place: str


@dataclass
class Graph:
    """Nodes, lines and notes on the interpretation; nodes are in order of instance, index and component."""

    nodes: list[Node] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Layout:
    """The node numbering of a device: the number of nodes, and a range for each component.

    A range is the first node, the number of nodes per copy, and the number of copies.
    """

    size: int
    parts: Mapping[str, tuple[int, int, int]]


def expand(infrastructure: Infrastructure, where: str) -> Graph:
    """Expand *infrastructure*; raises `ConfigError` for unknown names or if it is too large."""
    return _Expansion(infrastructure, where).graph()


class _Expansion:
    def __init__(self, infrastructure: Infrastructure, where: str) -> None:
        self._whole = infrastructure
        self._where = where
        self._layouts: dict[str, _Layout] = {}
        self._lines: dict[str, list[Line]] = {}
        self._cut: list[str] = []
        self._idle: list[str] = []
        self._repeated = 0

    def graph(self) -> Graph:
        """Return all nodes and lines of the infrastructure."""
        graph = Graph()
        bases: dict[str, int] = {}
        total = 0
        for instance in self._whole.instances.values():
            device = self._device(instance.device, f"{self._where}: the instance '{instance.name}'")
            bases[instance.name] = total
            total += self._layout(device, ()).size * instance.count
            if total > _MAX_NODES:
                raise ConfigError(
                    f"{self._where}: with the instance '{instance.name}' there are {total:,} components, but "
                    f"the maximum is {_MAX_NODES:,}; correct its 'count', or describe fewer."
                )
        for instance in self._whole.instances.values():
            device = self._device(instance.device, self._where)
            for number in range(instance.count):
                base = len(graph.nodes)
                graph.nodes += self._nodes(device, f"{instance.name}.{number}")
                self._add(graph, self._inside(device), base)
        for edge in self._whole.edges:
            ends = self._of_instance(edge, edge.ep1, bases), self._of_instance(edge, edge.ep2, bases)
            self._add(graph, self._join(edge, ends, self._whole.links, ""), 0)
        unique = {(line.a, line.b, line.kind.name, line.device): line for line in graph.lines}
        self._repeated = len(graph.lines) - len(unique)
        return Graph(graph.nodes, list(unique.values()), self._remarks())

    def _remarks(self) -> list[str]:
        remarks = []
        if self._cut:
            remarks.append(
                f"{len(self._cut)} one2one edges join lists of different lengths, such as {self._cut[0]}: "
                "the first of the longer list are linked, the others are not."
            )
        if self._idle:
            remarks.append(
                f"{count_text(len(self._idle), 'edge')} only connect a component to itself and make no "
                f"link, such as {self._idle[0]}."
            )
        if self._repeated:
            remarks.append(
                f"{self._repeated} links between two components are listed more than once under one name; "
                "each is one link."
            )
        return remarks

    def _add(self, graph: Graph, lines: list[Line], base: int) -> None:
        if len(graph.lines) + len(lines) > _MAX_LINES:
            raise ConfigError(
                f"{self._where}: the edges make more than {_MAX_LINES:,} links, the maximum; correct the "
                "counts and slices."
            )
        graph.lines += [
            Line(line.a + base, line.b + base, line.kind, line.device, line.place) for line in lines
        ]

    def _device(self, name: str, where: str) -> Device:
        devices = self._whole.devices
        if name not in devices:
            if not devices:
                raise ConfigError(
                    f"{where} names the device {shown(name)}, but there are no 'devices'; add the device "
                    "there."
                )
            raise ConfigError(f"{where} names the unknown device {shown(name)}{did_you_mean(name, devices)}")
        return devices[name]

    def _layout(self, device: Device, outside: tuple[str, ...]) -> _Layout:
        """Return the node ranges of the components of *device*, which is nested in the devices *outside*."""
        if device.name in outside or len(outside) > _DEEPEST:
            chain = " in ".join(f"'{name}'" for name in (device.name, *reversed(outside[-3:])))
            raise ConfigError(
                f"{self._where}: the device {chain} contains itself, or devices are nested more than "
                f"{_DEEPEST} deep; a component of choice 'device' must name a device that does not contain "
                "it."
            )
        if device.name in self._layouts:
            return self._layouts[device.name]
        parts: dict[str, tuple[int, int, int]] = {}
        size = 0
        for part in device.components.values():
            unit = 1
            if part.choice == "device":
                inner = self._device(part.name, f"{self._where} ('{device.name}'): a component")
                unit = self._layout(inner, (*outside, device.name)).size
            parts[part.name] = size, unit, part.count
            size += unit * part.count
            if size > _MAX_NODES:
                raise ConfigError(
                    f"{self._where}: the device '{device.name}' has more than {_MAX_NODES:,} components; "
                    f"correct the 'count' of '{part.name}'."
                )
        self._layouts[device.name] = _Layout(size, parts)
        return self._layouts[device.name]

    def _nodes(self, device: Device, prefix: str) -> Iterator[Node]:
        for part in device.components.values():
            for number in range(part.count):
                name = f"{prefix}.{part.name}.{number}"
                if part.choice == "device":
                    yield from self._nodes(self._whole.devices[part.name], name)
                else:
                    yield Node(name, part.name, part.choice, part.type, device.name)

    def _inside(self, device: Device) -> list[Line]:
        """Return the lines inside *device* and the devices nested in it, counting nodes from its first."""
        if device.name in self._lines:
            return self._lines[device.name]
        lines: list[Line] = []
        for edge in device.edges:
            ends = self._offsets(device, edge.ep1, edge.place), self._offsets(device, edge.ep2, edge.place)
            lines += self._join(edge, ends, device.links, device.name)
        for part in device.components.values():
            if part.choice == "device":
                start, unit, count = self._layouts[device.name].parts[part.name]
                inner = self._inside(self._whole.devices[part.name])
                if len(lines) + count * len(inner) > _MAX_LINES:
                    raise ConfigError(
                        f"{self._where}: the device '{device.name}' has more than {_MAX_LINES:,} links; "
                        f"correct the 'count' of '{part.name}'."
                    )
                for base in range(start, start + count * unit, unit or 1):
                    lines += [Line(x.a + base, x.b + base, x.kind, x.device, x.place) for x in inner]
        self._lines[device.name] = lines
        return lines

    def _of_instance(self, edge: Edge, text: str, bases: Mapping[str, int]) -> list[int]:
        """Return the nodes of an endpoint such as ``host[0:2].nic[0]``."""
        head, _, rest = text.partition(".")
        name, chosen = _split(head, edge.place)
        if name not in self._whole.instances:
            raise ConfigError(
                f"{edge.place}: there is no instance {shown(name)}{did_you_mean(name, self._whole.instances)}"
            )
        instance = self._whole.instances[name]
        device = self._whole.devices[instance.device]
        size = self._layouts[device.name].size
        inner = self._offsets(device, rest, edge.place)
        indices = _indices(chosen, instance.count, head, edge.place)
        self._limit(len(indices) * len(inner), edge)
        return [bases[name] + index * size + offset for index in indices for offset in inner]

    def _offsets(self, device: Device, text: str, place: str) -> list[int]:
        """Return the nodes of *text* (``cx5[0:2].port[0]``), counted from the first node of *device*."""
        offsets, previous = [0], ""
        for number, element in enumerate(text.split(".")):
            name, chosen = _split(element, place)
            if number and device.components[previous].choice != "device":
                raise ConfigError(f"{place}: '{previous}' in {shown(text)} has no components.")
            device = self._whole.devices[previous] if number else device
            if name not in device.components:
                raise ConfigError(
                    f"{place}: the device '{device.name}' has no component {shown(name)}"
                    f"{did_you_mean(name, device.components)}"
                )
            start, unit, count = self._layouts[device.name].parts[name]
            indices = _indices(chosen, count, element, place)
            if len(offsets) * len(indices) > _MAX_NODES:
                raise ConfigError(f"{place}: {shown(text)} means more than {_MAX_NODES:,} components.")
            offsets = [offset + start + index * unit for offset in offsets for index in indices]
            previous = name
        if device.components[previous].choice == "device":
            raise ConfigError(
                f"{place}: {shown(text)} is a whole device; name one of its components "
                f"({previous}.{next(iter(self._whole.devices[previous].components), 'port')})."
            )
        return offsets

    def _join(
        self, edge: Edge, ends: tuple[list[int], list[int]], links: Mapping[str, LinkKind], device: str
    ) -> list[Line]:
        """Return the lines of *edge* between the nodes *ends*, without self-loops and duplicates."""
        first, second = ends
        if edge.link not in links:
            owner = f"device '{device}'" if device else "infrastructure"
            raise ConfigError(
                f"{edge.place}: the {owner} has no link {shown(edge.link)}{did_you_mean(edge.link, links)}"
            )
        if edge.scheme == "many2many":
            self._limit(len(first) * len(second), edge)
            pairs = list(product(first, second))
        elif edge.scheme == "one2one":
            if len(first) != len(second):
                self._cut.append(f"{edge.ep1} ({len(first)}) and {edge.ep2} ({len(second)})")
            pairs = list(zip(first, second, strict=False))
        else:
            around = list(dict.fromkeys([*first, *second]))
            pairs = list(zip(around, [*around[1:], around[0]], strict=True))
        unique = dict.fromkeys((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])
        if not unique:
            self._idle.append(f"{edge.ep1} - {edge.ep2}")
        return [Line(a, b, links[edge.link], device, edge.place) for a, b in unique]

    def _limit(self, count: int, edge: Edge) -> None:
        if count > _MAX_LINES:
            raise ConfigError(
                f"{edge.place}: the edge makes {count:,} links, but the maximum is {_MAX_LINES:,}; correct "
                "the "
                "counts or slices."
            )


def _split(element: str, place: str) -> tuple[str, str | None]:
    """Split an element of an endpoint into its name and the text in brackets (None without brackets)."""
    match = _ELEMENT.fullmatch(element)
    if match is None or not match[1]:
        raise ConfigError(
            f"{place}: {shown(element)} is not a component; write a name and a slice: nic[0:2]."
        )
    return match[1], match[2]


def _indices(text: str | None, count: int, element: str, place: str) -> range:
    """Return the indices of a Python slice; raises `ConfigError` for indices out of range."""
    if text is None or not text.strip():
        return range(count)
    match = _SLICE.fullmatch(text)
    step = int(match[4]) if match is not None and match[4] else 1
    if match is None or step == 0:
        raise ConfigError(f"{place}: [{text[:40]}] in {shown(element)} is neither an index nor a slice.")
    start, stop = (None if match[group] is None else int(match[group]) for group in (1, 3))
    for bound, last in ((start, count if match[2] and step > 0 else count - 1), (stop, count)):
        if bound is not None and not -count <= bound <= last:
            raise ConfigError(
                f"{place}: [{text}] in {shown(element)} is out of range: there are {count}, counted from 0."
            )
    if match[2] is None:
        index = 0 if start is None else start % count
        return range(index, index + 1)
    indices = range(*slice(start, stop, step).indices(count))
    if not indices:
        raise ConfigError(f"{place}: [{text}] in {shown(element)} is empty.")
    return indices
