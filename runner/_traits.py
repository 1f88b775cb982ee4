"""Traits of backends as data: the effects that a backend models, measures or ignores, and its needs.

`SHIPPED` is the list of all built-in backends, one row per backend. The last field names the function that
creates the backend. Names with ``SCHEME://`` belong to plug-ins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..support import load_plugin, plugin_names

DEFAULT_BACKEND = "analytical-unaware"
AWARE = "analytical-aware"
PACKET = "packet"
REPLAY = "replay"
EMULATION = "emulation:"  # the location of the ranks follows this text


@dataclass(frozen=True)
class Traits:
    """The properties of a backend.

    *what* describes the backend in a few words, and *details* in some sentences. *charges* lists the costs of
    a message, as a phrase that follows the backend's name. Backends that are not *offered* are for tests and
    appear in no list. *ignores* is a sentence that every result of the backend contains. *variant* is the
    kind of text after a colon in the name: a machine, an error, a place or an address.
    """

    what: str = "registered by a program"
    details: str = ""
    offered: bool = True
    charges: str = ""
    ignores: str = ""
    variant: str = ""
    network: bool = True
    """Whether messages take the network's time, as opposed to the recorded time of every node."""
    replays: bool = False
    """Whether the answer is the measured step."""
    measures: bool = False
    """Whether the backend measures instead of computing, so that no two results are the same."""
    folds: bool = False
    """Whether equal ranks are simulated once, and phases of collectives are computed as a whole."""
    quick: bool = False
    """Whether the backend needs only the engine, and its run time depends only on the number of events."""
    hops: int = 0
    """On a switch, the number of links (of two) for which a message's bytes are charged in sequence."""
    dimensions_only: bool = False
    """Whether the backend ignores explicit links and failures."""
    links: bool = False
    """Whether the backend models single links."""
    fabric: bool = False
    """Whether the backend's links are those of a packet-level fabric."""
    changes_links: bool = False
    """Whether links may change in the middle of a simulation."""
    buffers: bool = False
    """Whether the backend simulates the buffers of switches."""
    tcp: bool = False
    """Whether the backend uses the network's ``tcp`` part."""
    efficiency: Literal["all", "all but wire", "what is sent", "none"] = "all"
    """The keys of the network's ``efficiency`` that have an effect."""
    version: int = 1
    """The version of the model, which increases with every change of simulated times, to separate runs."""
    version_1: str = ""
    """The backend that now gives the results of version 1, if it is another backend."""
    train_version: int = 0
    """The number added to *version* if packets travel in trains."""
    trace_version: int = 0
    """The number added to *version* with semantics ``trace`` on networks of several dimensions."""
    make: str = ""
    """The ``module:function`` that takes the name and returns the backend."""

    @property
    def needs_network(self) -> bool:
        """Whether a run must specify a network."""
        return not (self.replays or self.measures)


@dataclass(frozen=True)
class BackendPlugin:
    """The backends of a plug-in, with names that begin with ``SCHEME://``.

    *make* takes the whole name and returns the backend. *names* returns the names to list. *report* returns
    one row per name with ``backend``, ``usable``, ``what`` and ``found``.
    """

    traits: Traits
    make: Callable[[str], Any]
    names: Callable[[], list[str]] = list
    report: Callable[[], list[dict[str, str]]] = list


_ANALYTICAL = Traits(quick=True, make=".backends._engine:analytical_backend")
_ASTRA_SIM = Traits(
    "the user's own ASTRA-sim", efficiency="none", make=".backends.astra_sim:astra_sim_backend"
)

SHIPPED: dict[str, Traits] = {
    DEFAULT_BACKEND: replace(
        _ANALYTICAL,
        what="our engine, messages never wait",
        details="messages never wait for each other. Networks of dimensions, without failures; the fastest.",
        charges="charges the bytes of a message once and the latency of every hop, and lets no message "
        "wait for another",
        folds=True,
        hops=1,
        dimensions_only=True,
        trace_version=1,
    ),
    AWARE: replace(
        _ANALYTICAL,
        what="our engine, messages queue on links",
        details="messages queue on links and take one fixed path. Any network; takes seconds.",
        charges="stores and forwards whole messages, so that the bytes are charged at each hop, and "
        "lets messages queue for links",
        hops=2,
        links=True,
        changes_links=True,
    ),
    "auto": Traits(
        "'flow', or 'packet' if 'flow' may be inaccurate",
        "flow, or packet if flow may be inaccurate. Any network.",
        charges="gives the result of 'flow', or of 'packet' if 'flow' may be inaccurate",
        variant="error",
        links=True,
        fabric=True,
        changes_links=True,
        efficiency="all but wire",
        version=3,
        train_version=1,
        make=".backends._auto:auto_backend",
    ),
    "flow": Traits(
        "our engine, messages share links",
        "a fluid model: messages share links fairly on the equal-cost paths of packet. Any network; run "
        "time grows with messages, not with their bytes.",
        charges="uses a fluid model of links: hops overlap, and messages do not queue",
        links=True,
        fabric=True,
        changes_links=True,
        efficiency="all but wire",
        version=3,
        make=".backends._flow:flow_backend",
    ),
    "gpu": Traits(
        "our engine, collectives and computation on the same compute units",
        "collectives run on compute units and slow down concurrent computation. Links come from the "
        "machine; of the network, only the number of ranks counts. Run time grows with bytes.",
        charges="runs collectives on the compute units of its machine, over that machine's links, where "
        "they slow down concurrent computation",
        ignores="'gpu' takes links, latencies and delays from its machine. Of the network, only the "
        "number of ranks and the groups have an effect; of the system, only the algorithms, the "
        "order of nodes, and with a roofline 'peak-perf' and 'local-mem-bw'.",
        variant="machine",
        dimensions_only=True,
        version=4,
        make=".backends._gpu:gpu_backend",
    ),
    PACKET: Traits(
        "our engine, every packet of a RoCE network",
        "every packet of a RoCE network: queues, pauses, congestion control, equal-cost paths. Any network; "
        "one without a 'packet' section gets its defaults. Run time grows with bytes times hops.",
        charges="sends packets: hops overlap, links queue packets, headers and acknowledgements count, and "
        "senders may be slowed down by congestion control",
        links=True,
        fabric=True,
        changes_links=True,
        buffers=True,
        efficiency="all but wire",
        train_version=1,
        make=".backends._packet:packet_backend",
    ),
    "ns3": Traits(
        "ns-3's TCP; on RoCE networks an alias of 'packet'",
        "every TCP segment, by ns-3's own models: losses, timeouts, marks. Networks with a 'tcp' section, or "
        "without a 'packet' section; on others, it is 'packet'. About 100 times slower than packet.",
        charges="sends TCP segments: hops overlap, buffers queue and drop, and senders wait for "
        "acknowledgements",
        links=True,
        fabric=True,
        changes_links=True,
        buffers=True,
        tcp=True,
        efficiency="all but wire",
        version=2,
        version_1=PACKET,
        make=".backends.ns3:ns3_backend",
    ),
    REPLAY: Traits(
        "our engine, every node takes its measured time",
        "every node takes its measured time; the network has no effect.",
        charges="takes every node's measured time",
        network=False,
        replays=True,
        quick=True,
        efficiency="what is sent",
        make=".backends._engine:analytical_backend",
    ),
    "fake": Traits(offered=False, network=False, quick=True, make=".backends._fake:fake_backend"),
    "astra-sim:analytical-aware": _ASTRA_SIM,
    "astra-sim:analytical-unaware": replace(_ASTRA_SIM, dimensions_only=True),
    "astra-sim:ns3": replace(_ASTRA_SIM, links=True, fabric=True),
}
FAMILIES: dict[str, Traits] = {
    "auto:": SHIPPED["auto"],
    "gpu:": SHIPPED["gpu"],
    EMULATION: Traits(
        "the messages over a real network, measured",
        variant="place",
        measures=True,
        efficiency="what is sent",
        make=".backends._emulation:emulation_backend",
    ),
}
_REGISTERED: dict[str, Traits] = {}


def about_backend(name: str) -> Traits:
    """Return the traits of the backend *name*, or empty traits for an unknown backend."""
    entry = _REGISTERED.get(name) or SHIPPED.get(name)
    if entry is not None:
        return entry
    plugin = plugin_of(name)
    if plugin is not None:
        return plugin.traits
    return next((traits for prefix, traits in FAMILIES.items() if name.startswith(prefix)), Traits())


def backend_plugins() -> list[BackendPlugin]:
    """Return all installed plug-ins that provide simulation backends."""
    return [load_plugin("backends", scheme) for scheme in plugin_names("backends")]


def plugin_of(name: str) -> BackendPlugin | None:
    """Return the plug-in of a name such as ``SCHEME://HOST``, or None for other names and schemes."""
    scheme, mark, _ = name.partition("://")
    if not mark or scheme not in plugin_names("backends"):
        return None
    plugin: BackendPlugin = load_plugin("backends", scheme)
    return plugin


def remember_traits(name: str, traits: Traits) -> None:
    """Register the traits of a backend that was added at run time, for `about_backend`."""
    _REGISTERED[name] = traits


def backends_that(trait: str, conjunction: str = "or", value: object = True) -> str:
    """Return the engine's backends with *value* as their *trait*, as text such as ``'flow' or 'packet'``."""
    names = [
        f"'{name}'" for name, traits in SHIPPED.items() if ":" not in name and getattr(traits, trait) == value
    ]
    return f"{', '.join(names[:-1])} {conjunction} {names[-1]}" if len(names) > 1 else names[0]
