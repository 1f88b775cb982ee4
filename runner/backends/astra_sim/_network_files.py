"""Write a network as the files of ASTRA-sim's ns-3, or as our own YAML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....support import write_file
from ...config import (
    OWN_SETTINGS,
    RATES,
    SETTINGS,
    THRESHOLDS,
    Fabric,
    NetworkConfig,
    check_failures,
    fabric_of,
)

__all__ = [
    "NETWORK_FORMATS",
    "OUTPUTS",
    "lasting_fabric",
    "link_texts",
    "parallel_warning",
    "setting_texts",
    "write_fabric",
    "write_network",
]

# Names of the files that ASTRA-sim reads and writes.
OUTPUTS = {
    "FCT_OUTPUT_FILE": "fct.txt",
    "FLOW_FILE": "flow.txt",
    "PFC_OUTPUT_FILE": "pfc.txt",
    "QLEN_MON_FILE": "qlen.txt",
    "TOPOLOGY_FILE": "topology.txt",
    "TRACE_FILE": "trace.txt",
    "TRACE_OUTPUT_FILE": "mix.tr",
}

NETWORK_FORMATS = ("ns3", "yaml")
"""What `write_network` writes."""


def write_network(network: NetworkConfig, kind: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Write *network* into *folder* as one of `NETWORK_FORMATS`; return the files, and their gaps.

    ``ns3``: config.txt, topology.txt and logical.json, and the empty files that ASTRA-sim insists on;
    ``yaml``: our network YAML. Raises `ConfigError` for a network that
    the format cannot hold, `OSError` where *folder* cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "ns3":
        return _write_ns3(network, folder)
    path = folder / f"{network.name}.yml"
    network.save(path)
    return [path], []


def lasting_fabric(network: NetworkConfig) -> Fabric:
    """Return the fabric of *network* as ASTRA-sim's files hold it, with hosts first: node r is rank r.

    Raises `ConfigError` for failures that begin or end during a simulation, other than LINK_DOWN.
    """
    check_failures(network.failures, f"The network '{network.name}'")
    return fabric_of(network).hosts_first()


def write_fabric(fabric: Fabric, network: NetworkConfig, folder: Path) -> list[Path]:
    """Write ASTRA-sim's files of *fabric*, of the *network*, and the empty ones that it requires.

    Nothing is synced: the files are for one simulation.
    """
    switches = " ".join(map(str, fabric.switches))
    head = f"{fabric.nodes} {len(fabric.switches)} {len(fabric.links)}"
    links = [" ".join(map(str, row)) for row in link_texts(fabric)]
    texts = {
        "config.txt": "\n".join(f"{key} {words}" for key, words in setting_texts(fabric).items()),
        "topology.txt": "\n".join([head, switches, *links]),
        "logical.json": json.dumps({"logical-dims": [str(count) for count in network.npus_count]}),
        "flow.txt": "0",
        "trace.txt": "0",
    }
    for name, text in texts.items():
        write_file(folder / name, text + "\n", sync=False)
    return [folder / name for name in texts]


def link_texts(fabric: Fabric) -> list[tuple[int, int, str, str, str]]:
    """Return both nodes, rate, delay and loss of each link, as in topology.txt."""
    return [(a, b, f"{rate}bps", f"{delay}ps", _words(loss)) for a, b, rate, delay, loss in fabric.links]


def setting_texts(fabric: Fabric) -> dict[str, str]:
    """Return the settings of *fabric* as the words of config.txt, with our file names.

    Thresholds are given for the rate of every link: ASTRA-sim marks each packet of a rate without one.
    """
    keys = sorted(set(SETTINGS) - set(OWN_SETTINGS))
    marks = {key: _thresholds(fabric, fabric.settings[key]) for key in THRESHOLDS}
    rates = {key: f"{fabric.settings[key]}bps" for key in RATES}
    values = {**fabric.settings, **marks, **rates, **OUTPUTS}
    return {key: _words(values[key]) for key in keys}


def _thresholds(fabric: Fabric, given: Mapping[int, float]) -> dict[int, float]:
    """Return *given* with an entry for the rate of every link: the next faster one's, else the fastest."""
    rates = {link.rate_bps for link in fabric.links} if given else set()
    return dict(given) | {
        rate: given[min((each for each in given if each >= rate), default=max(given))] for rate in rates
    }


def _words(value: Any) -> str:
    """Return *value* in the format of config.txt."""
    if isinstance(value, Mapping):
        pairs = [f"{rate} {_words(item)}" for rate, item in sorted(value.items())]
        return " ".join([str(len(pairs)), *pairs])
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    # ASTRA-sim reads some of these numbers as integers: 800.0 or 1e+06 would be misread.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _write_ns3(network: NetworkConfig, folder: Path) -> tuple[list[Path], list[str]]:
    fabric = lasting_fabric(network)
    files = write_fabric(fabric, network, folder)
    fine = sum(link.delay_ps % 1000 > 0 for link in fabric.links)
    remarks = parallel_warning(fabric)
    if fine:
        remarks.append(
            f"ASTRA-sim's ns-3 counts whole ns, and {fine} links have a latency between two of them."
        )
    return files, remarks + _without_efficiency(network)


def _without_efficiency(network: NetworkConfig) -> list[str]:
    """Return a sentence if *network* has overheads beyond the wire, which ASTRA-sim's files cannot hold."""
    if network.efficiency is None:
        return []
    return ["These files cannot say what is lost beside the wire: they are written without 'efficiency'."]


def parallel_warning(fabric: Fabric) -> list[str]:
    """Return a sentence if *fabric* has parallel links, of which ASTRA-sim's ns-3 uses one each."""
    pairs = Counter(frozenset((link.a, link.b)) for link in fabric.links)
    parallel = sum(count > 1 for count in pairs.values())
    if not parallel:
        return []
    return [
        f"{parallel} pairs of devices have parallel links, of which ASTRA-sim's ns-3 uses one each; "
        "'packet' uses all."
    ]
