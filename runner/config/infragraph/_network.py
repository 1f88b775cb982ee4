"""Convert an InfraGraph infrastructure to ranks, other devices and links with rates and delays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....errors import ConfigError
from ....support import bandwidth_text, count_text
from ..._traits import AWARE
from .._fabric import ROUTER_SPEEDUP, FabricLink
from .._symmetry import find_dimensions, uneven_paths
from ._expand import Graph, Line, Node, expand
from ._figures import Options, check_names, figures, full_name, named_defaults, read_options
from ._schema import Infrastructure, read

GIB = 1 << 30
_MAX_DEVICES = 65_000  # the limit of a packet-level network
_SHOWN = 4


def network_mapping(
    data: Mapping[str, Any], where: str, options: Mapping[str, Any], options_from: str
) -> dict[str, Any]:
    """Return the network mapping for the InfraGraph *data*.

    The mapping has the four keys of the dimensions, ``links``, ``devices`` (device names) and
    ``assumptions``, and ``dimensions: logical`` if no dimensions could be proved. *options* are the keys of
    `OPTION_KEYS`. Raises `ConfigError` for missing or wrong values in either, naming *where* or
    *options_from*.
    """
    infrastructure = read(data, where)
    chosen = read_options(options, options_from)
    network = _Network(infrastructure, expand(infrastructure, where), chosen, where, options_from)
    return network.mapping()


class _Network:
    def __init__(
        self, infrastructure: Infrastructure, graph: Graph, options: Options, where: str, options_from: str
    ) -> None:
        self._where, self._options_from = where, options_from
        self._options = options
        self._infrastructure = infrastructure
        self._nodes = graph.nodes
        self._remarks = [*graph.remarks]
        self._check_defaults(graph)
        lines = self._without(graph.lines)
        lines = self._ports_merged(lines)
        self._ranks = self._find_ranks()
        self._lines = self._pruned(lines)

    def mapping(self) -> dict[str, Any]:
        """Return the mapping of the network configuration."""
        values, assumptions = figures(self._lines, self._nodes, self._options.defaults, self._where)
        used = {node for line in self._lines for node in (line.a, line.b)} - set(self._ranks)
        others = sorted(used)
        number = {node: place for place, node in enumerate([*self._ranks, *others])}
        wires = [
            FabricLink(number[line.a], number[line.b], rate, delay)
            for line, (rate, delay) in zip(self._lines, values, strict=True)
        ]
        names = [self._nodes[node].name for node in (*self._ranks, *others)]
        wires, names, forwarding = self._connected(wires, names)
        if len(names) > _MAX_DEVICES:
            raise ConfigError(
                f"{self._where}: {len(names):,} devices are used, but at most {_MAX_DEVICES:,} are "
                "supported; leave out what ranks do not need with 'without: [NAME]', or describe fewer hosts."
            )
        self._remarks += assumptions
        self._remark_paths(wires, names)
        dimensions = self._dimensions(wires, 2 if forwarding else 0)
        unused = self._infrastructure.unused
        if unused:
            self._remarks.append(f"Annotations without effect: {', '.join(unused[:_SHOWN])}.")
        return dimensions | {
            "links": [[w.a, w.b, w.rate_bps / 8 / GIB, w.delay_ps / 1000] for w in wires],
            "devices": names,
            "assumptions": self._remarks,
        }

    def _check_defaults(self, graph: Graph) -> None:
        """Raise `ConfigError` if the user's defaults name an unknown link."""
        links = {name for line in graph.lines for name in (line.kind.name, full_name(line))}
        check_names(self._options.defaults, {*links, "*"}, "link-defaults", self._options_from)
        parts = {name for node in graph.nodes for name in _names(node)}
        check_names(self._options.without, links | parts, "without", self._options_from)

    def _without(self, lines: Sequence[Line]) -> list[Line]:
        """Return the lines without the links and components that the user leaves out."""
        gone = set(self._options.without)
        if not gone:
            return list(lines)
        nodes = {place for place, node in enumerate(self._nodes) if gone & set(_names(node))}
        kept = [
            line
            for line in lines
            if not gone & {line.kind.name, full_name(line)} and line.a not in nodes and line.b not in nodes
        ]
        self._remarks.append(
            f"Left out because of 'without' ({', '.join(self._options.without)}): "
            f"{count_text(len(nodes), 'component')}, {count_text(len(lines) - len(kept), 'link')}."
        )
        return kept

    def _ports_merged(self, lines: Sequence[Line]) -> list[Line]:
        """Merge ports into their components where the links between them have no figures.

        A port is the end of a link. A port is a separate node only if its link inside the device has
        figures, from the file or from a default for this link.
        """
        behind: dict[int, set[int]] = {}
        separate_ports: set[int] = set()
        for line in lines:
            for port, inner in ((line.a, line.b), (line.b, line.a)):
                if self._nodes[port].choice != "port" or not line.device:
                    continue
                behind.setdefault(port, set()).add(inner)
                kind = line.kind
                given = named_defaults(line, self._options.defaults)
                if given or not kind.rate_bps is kind.transfers is kind.delay_ps is None:
                    separate_ports.add(port)
        owner = {
            port: next(iter(inner))
            for port, inner in behind.items()
            if len(inner) == 1
            and port not in separate_ports
            and self._nodes[next(iter(inner))].choice != "port"
        }
        if not owner:
            return list(lines)
        names = Counter(f"{self._nodes[port].device}.{self._nodes[port].component}" for port in owner)
        self._remarks.append(
            f"{count_text(len(owner), 'port')} ({', '.join(list(names)[:_SHOWN])}) belong to the component "
            "behind them: the links to them inside their device have no figures and cost nothing."
        )
        merged = [
            Line(owner.get(line.a, line.a), owner.get(line.b, line.b), line.kind, line.device, line.place)
            for line in lines
        ]
        return [line for line in merged if line.a != line.b]

    def _find_ranks(self) -> list[int]:
        """Return the nodes that are ranks, in the order of the file or of its annotations."""
        wanted = self._options.ranks
        ranks = [place for place, node in enumerate(self._nodes) if wanted in (node.choice, node.type)]
        gone = set(self._options.without)
        ranks = [place for place in ranks if not gone & set(_names(self._nodes[place]))]
        if not ranks:
            types = sorted({node.type for node in self._nodes} | {node.choice for node in self._nodes})
            raise ConfigError(
                f"{self._where}: there is no component of type '{wanted}', which would be the ranks; name "
                f"another type with 'ranks: TYPE' ({', '.join(types[:12])})."
            )
        given = self._infrastructure.ranks
        if not given:
            return ranks
        places = {self._nodes[place].name: place for place in ranks}
        unknown = next((name for name in given if name not in places), None)
        if unknown is not None or sorted(given.values()) != list(range(len(ranks))):
            raise ConfigError(
                f"{self._where}: the annotations 'rank' must number all {len(ranks)} components of type "
                f"'{wanted}' from 0, each once"
                + (f"; '{unknown[:60]}' is not one of them." if unknown is not None else ".")
            )
        return [places[name] for name in sorted(given, key=lambda name: given[name])]

    def _pruned(self, lines: Sequence[Line]) -> list[Line]:
        """Return the lines on paths between ranks, without dead ends."""
        ranks = set(self._ranks)
        around: dict[int, set[int]] = {}
        for line in lines:
            around.setdefault(line.a, set()).add(line.b)
            around.setdefault(line.b, set()).add(line.a)
        ends = [node for node, near in around.items() if len(near) < 2 and node not in ranks]
        dead: set[int] = set()
        while ends:
            node = ends.pop()
            dead.add(node)
            for other in around[node]:
                around[other].discard(node)
                if other not in dead and other not in ranks and len(around[other]) == 1:
                    ends.append(other)
        names = Counter(self._nodes[node].component for node in dead)
        if names:
            self._remarks.append(
                f"{count_text(len(dead), 'component')} on no path between ranks "
                f"({', '.join(list(names)[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}) are left out."
            )
        return [line for line in lines if line.a not in dead and line.b not in dead]

    def _connected(
        self, wires: list[FabricLink], names: list[str]
    ) -> tuple[list[FabricLink], list[str], bool]:
        """Return the links, the device names, and whether ranks forward, in which case each gets a router.

        Raises `ConfigError` for two ranks without a path.
        """
        ranks = len(self._ranks)
        forwarding = self._options.forwarding
        pair = _unconnected(ranks, wires, forwarding=bool(forwarding))
        if pair and forwarding is None:
            forwarding = True
            pair = _unconnected(ranks, wires, forwarding=True)
        if pair:
            passing = "" if forwarding else " without passing other ranks ('rank-forwarding: true' lets them)"
            raise ConfigError(
                f"{self._where}: there is no path from {names[pair[0]]} to {names[pair[1]]}{passing}; add "
                "the edges that join them."
            )
        if not forwarding:
            self._remarks.append(
                f"Ranks ({self._options.ranks}) do not forward messages: messages pass NICs and switches, "
                "which all store and forward packets."
            )
            return wires, names, False
        fastest = max((wire.rate_bps for wire in wires), default=1) * ROUTER_SPEEDUP
        self._remarks.append(
            f"Ranks ({self._options.ranks}) forward messages of others: each has a router, behind "
            f"a link of {bandwidth_text(fastest / 8e9)} (eight times the fastest) without latency."
        )

        def moved(node: int) -> int:
            return node + ranks  # a router gets its rank's number; other nodes get the next numbers

        own = [FabricLink(rank, moved(rank), fastest, 0) for rank in range(ranks)]
        outer = [FabricLink(moved(w.a), moved(w.b), w.rate_bps, w.delay_ps) for w in wires]
        routers = [f"{name}.router" for name in names[:ranks]]
        return [*own, *outer], [*names[:ranks], *routers, *names[ranks:]], True

    def _remark_paths(self, wires: Sequence[FabricLink], names: Sequence[str]) -> None:
        pairs = Counter((min(wire.a, wire.b), max(wire.a, wire.b)) for wire in wires)
        parallel = [pair for pair, count in pairs.items() if count > 1]
        if parallel:
            a, b = (names[node] for node in parallel[0])
            self._remarks.append(
                f"{count_text(len(parallel), 'pair')} of devices have parallel links ({a} and {b}): flows of "
                f"a packet network spread over them, {AWARE} uses the first."
            )
        uneven = uneven_paths(len(self._ranks), wires)
        if uneven:
            source, rank, slow, fast = uneven
            self._remarks.append(
                f"Between {names[source]} and {names[rank]} paths with equally many links differ in speed "
                f"({bandwidth_text(slow / 8e9)} and {bandwidth_text(fast / 8e9)}), and are used equally; if "
                "messages never take the slow ones, leave these out with 'without: [NAME]'."
            )

    def _dimensions(self, wires: Sequence[FabricLink], own_hops: int) -> dict[str, Any]:
        """Return the keys of the dimensions that the links prove, or else of one logical dimension."""
        ranks = len(self._ranks)
        proven, reason = find_dimensions(ranks, wires, own_hops)
        if proven:
            shape = " x ".join(f"{item.shape} {item.count}" for item in proven)
            self._remarks.append(
                f"Dimensions found in the links: {shape}; every pair of ranks in a dimension has its latency "
                "and bandwidth."
            )
            return {
                "topology": [item.shape for item in proven],
                "npus_count": [item.count for item in proven],
                "bandwidth": [item.rate_bps / 8 / GIB for item in proven],
                "latency": [item.delay_ps / 1000 for item in proven],
            }
        self._remarks.append(
            f"All {ranks} ranks are one dimension, for collectives alone: {reason}. 'topology', "
            "'npus_count', "
            "'bandwidth' and 'latency' in a network YAML with 'infragraph: FILE' arrange them differently."
        )
        first = min((wire for wire in wires if 0 in (wire.a, wire.b)), key=lambda w: w.rate_bps, default=None)
        return {
            "topology": ["Switch"],
            "npus_count": [ranks],
            "bandwidth": [1.0 if first is None else first.rate_bps / 8 / GIB],
            "latency": [0.0 if first is None else first.delay_ps / 1000],
            "dimensions": "logical",
        }


def _names(node: Node) -> Iterable[str]:
    """Return the names by which the user can leave *node* out."""
    return node.component, f"{node.device}.{node.component}"


def _unconnected(ranks: int, wires: Sequence[FabricLink], *, forwarding: bool) -> tuple[int, int] | None:
    """Return two ranks without a path between them, or None if all are connected."""
    group: dict[int, int] = {}

    def root(node: int) -> int:
        while group.setdefault(node, node) != node:
            group[node] = node = group[group[node]]
        return node

    near: list[set[int]] = [{rank} for rank in range(ranks)]
    for wire in wires:
        if forwarding or min(wire.a, wire.b) >= ranks:
            group[root(wire.a)] = root(wire.b)
    for wire in wires:
        for rank, other in ((wire.a, wire.b), (wire.b, wire.a)):
            if rank < ranks:
                near[rank].add(root(other) if other >= ranks else other)
    if forwarding:
        near = [{root(rank)} for rank in range(ranks)]
    if set.intersection(*near):
        return None
    for rank, own in enumerate(near):
        for other in range(rank):
            if own.isdisjoint(near[other]) and rank not in near[other]:
                return other, rank
    return None
