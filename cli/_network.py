"""``chakrascope network``: list presets, describe a network, and write its files for other simulators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError, did_you_mean
from ..support import bandwidth_text, count_text, duration_text, writing
from ._options import LateChoice, network_changes
from ._output import console, format_option, print_frame, print_json, print_remarks
from ._target import choose_network

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import NetworkConfig
    from ..runner.config import NetworkFacts

_TITLES = {"network": "Networks", "system": "Systems", "memory": "Remote memories"}


def _formats() -> Iterable[str]:
    from ..runner.backends import NETWORK_FORMATS

    return NETWORK_FORMATS


@click.command("network")
@click.argument("source", metavar="[NETWORK]", required=False)
@network_changes
@click.option(
    "--print",
    "print_file",
    is_flag=True,
    help="Print the file of a network, system or memory preset.",
)
@click.option(
    "--logical-topology",
    "logical",
    help="JSON file of the logical topology for ASTRA-sim's config.txt for ns-3.",
)
@click.option(
    "--links",
    "list_links",
    is_flag=True,
    help=("List all links with their devices, instead of describing the network."),
)
@click.option(
    "--as",
    "kind",
    type=LateChoice(_formats),
    help="Format of the files that -o writes: files for ASTRA-sim's ns-3, or a network YAML.",
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    help=("Folder for the files that --as describes."),
)
@format_option
def network_command(
    *,
    source: str | None,
    link_default: tuple[str, ...],
    failed: tuple[str, ...],
    print_file: bool,
    logical: str | None,
    list_links: bool,
    kind: str | None,
    folder: Path | None,
    output_format: str,
) -> None:
    """List the presets, or print ranks, switches, links, diameter and bisection bandwidth of NETWORK.

    NETWORK is a preset, a network YAML, an InfraGraph, or ASTRA-sim's config.txt for ns-3. A preset's name
    works wherever a configuration file does: --network dgx-a100-8. With --as and -o, the network is written
    for another simulator.
    """
    from ..runner import NetworkConfig
    from ..runner.backends import write_network
    from ..runner.config import network_facts

    if source is None:
        if kind or folder or list_links or logical or failed or link_default:
            raise UsageError(
                "These options describe one network, and no NETWORK is given. Next: chakrascope network NAME "
                "..."
            )
        _print_presets(output_format)
        return
    if print_file:
        click.echo(_file_of(source), nl=False)
        return
    if (kind is None) != (folder is None):
        raise UsageError("--as and -o must be given together: --as names a format, -o a folder.")
    found = choose_network(source, logical, link_default, failed)
    network = found if isinstance(found, NetworkConfig) else NetworkConfig.find(source)
    if list_links:
        print_frame(_link_table(network), output_format, title="Links", limit=60)
    else:
        _print_facts(network, network_facts(network), output_format)
    if kind is not None and folder is not None:
        with writing(folder, UsageError):
            files, remarks = write_network(network, kind, folder)
        if output_format == "table":
            print_remarks("Warning", remarks)
            console.print_text(f"Written: {', '.join(map(str, files))}")


def _link_table(network: NetworkConfig) -> pd.DataFrame:
    import pandas as pd

    from ..runner.config import network_links

    links, names = network_links(network)
    rows = [
        {
            "a": link.a,
            "b": link.b,
            "name_a": names[link.a],
            "name_b": names[link.b],
            "GB/s": link.rate_bps / 8e9,
            "latency_ns": link.delay_ps / 1000,
        }
        for link in links
    ]
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def _print_facts(network: NetworkConfig, facts: NetworkFacts, output_format: str) -> None:
    import pandas as pd

    if output_format == "json":
        own = {"name": network.name, "dimensions": _shape(network), "logical": network.logical}
        print_json(own | asdict(facts) | {"assumptions": network.remarks})
        return
    table = pd.DataFrame(_figures(network, facts), columns=["figure", "value"])
    print_frame(table, output_format, title=network.name)
    if output_format == "table":
        print_remarks("Assumed", network.remarks)


def _shape(network: NetworkConfig) -> str:
    return " x ".join(f"{a} {count}" for a, count in zip(network.topology, network.npus_count, strict=True))


def _figures(network: NetworkConfig, facts: NetworkFacts) -> Iterator[tuple[str, Any]]:
    """Yield title and text of each figure of a network."""
    yield "ranks", str(facts.ranks)
    yield "dimensions", _shape(network) + (", for collectives alone" if network.logical else "")
    yield (
        "switches",
        f"{facts.switches}, by tier {', '.join(map(str, facts.tiers))}" if facts.tiers else "none",
    )
    yield (
        "links",
        f"{facts.links}: " + ", ".join(f"{count} of {bandwidth_text(rate)}" for rate, count in facts.rates),
    )
    if facts.parallel:
        yield "parallel links", f"between {count_text(facts.parallel, 'pair')} of devices"
    if facts.diameter_links is None or facts.diameter_ns is None:
        yield "diameter", "not computed: too many ranks"
    else:
        links = count_text(facts.diameter_links, "link")
        yield "diameter", f"{links}, {duration_text(facts.diameter_ns)}"
    if facts.unreachable:
        yield "unreachable", f"{count_text(facts.unreachable, 'pair')} of ranks"
    if facts.halves_bytes_per_ns is not None:
        yield (
            "between halves",
            f"{bandwidth_text(facts.halves_bytes_per_ns)} in each direction, with all links in use",
        )


def _print_presets(output_format: str) -> None:
    """Print the presets by kind, with the figures in which they differ."""
    import pandas as pd

    from ..runner import list_presets

    presets = [(kind, name) for kind in _TITLES for name in list_presets(kind)]
    rows = [{"kind": kind, "name": name, **_preset_figures(kind, name)} for kind, name in presets]
    if output_format != "table":
        print_frame(pd.DataFrame(rows), output_format)
        return
    for kind, title in _TITLES.items():
        own = pd.DataFrame([row for row in rows if row["kind"] == kind])
        print_frame(own.drop(columns="kind"), "table", title=title)
    console.print_text(
        "Next: `chakrascope network NAME` describes a preset; with --print, it prints the preset's file."
    )


def _file_of(name: str) -> str:
    """Return the content of the file of the preset *name*; raises `UsageError` for an unknown one."""
    from ..runner import list_presets
    from ..runner.config import preset_text

    for kind in _TITLES:
        if name in list_presets(kind):
            return preset_text(kind, name)
    names = [preset for kind in _TITLES for preset in list_presets(kind)]
    raise UsageError(f"There is no preset '{name}'{did_you_mean(name, names, 'chakrascope network')}")


def _preset_figures(kind: str, name: str) -> dict[str, Any]:
    """Return the figures in which the preset *name* differs from others of its *kind*."""
    from ..runner import MemoryConfig, NetworkConfig, SystemConfig

    if kind == "network":
        network = NetworkConfig.preset(name)
        return {
            "ranks": network.num_ranks,
            "dimensions": _shape(network) + _clos_text(network),
            "GiB/s": " x ".join(f"{value:g}" for value in network.bandwidth),
            "ns": " x ".join(f"{value:g}" for value in network.latency),
        }
    if kind == "system":
        system = SystemConfig.preset(name, 1)
        return {
            "all-reduce": " ".join(system.all_reduce_implementation or ()),
            "all-to-all": " ".join(system.all_to_all_implementation or ()),
            "chunks": system.preferred_dataset_splits,
            "TFLOPS": "" if not system.roofline_enabled else f"{system.peak_perf:g}",
            "GB/s": "" if not system.roofline_enabled else f"{system.local_mem_bw:g}",
        }
    return {"type": MemoryConfig.preset(name).memory_type}


def _clos_text(network: NetworkConfig) -> str:
    """Describe the Clos fabric of *network* in a phrase, or return ""."""
    fabric = None if network.packet is None else network.packet.fabric
    if fabric is None:
        return ""
    tiers, over = 3 if fabric.leaves_per_pod else 2, fabric.oversubscription
    return f" on a Clos of {tiers} tiers" + (f", {over} to 1" if over > 1 else "")
