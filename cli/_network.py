"""``chakrascope network``: summary figures of a network, and its files for other simulators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from ..errors import UsageError
from ..support import bandwidth_text, count_text, duration_text, writing
from ._options import LateChoice, network_changes
from ._output import console, format_option, print_frame, print_json, print_rows
from ._run import choose_network

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import NetworkConfig
    from ..runner.config import NetworkFacts


def _formats() -> Iterable[str]:
    from ..runner.backends import NETWORK_FORMATS

    return NETWORK_FORMATS


@click.command("network")
@click.argument("source", metavar="NETWORK")
@network_changes
@click.option("--logical-topology", "logical", help="Logical topology JSON that goes with a config.txt.")
@click.option("--links", "list_links", is_flag=True, help="List all links and their devices instead.")
@click.option(
    "--as",
    "kind",
    type=LateChoice(_formats),
    help="Write it for ASTRA-sim's ns-3, or as Chakrascope's YAML; needs -o.",
)
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), help="Folder to write into.")
@format_option
def network_command(
    *,
    source: str,
    link_default: tuple[str, ...],
    failed: tuple[str, ...],
    logical: str | None,
    list_links: bool,
    kind: str | None,
    folder: Path | None,
    output_format: str,
) -> None:
    """Describe NETWORK: a preset, a network YAML, an InfraGraph, or ASTRA-sim's config.txt for ns-3.

    Prints ranks, switches by tier, links, the diameter, the bisection bandwidth, and every assumption.
    With --as and -o, write it for another simulator.
    """
    from ..runner import NetworkConfig
    from ..runner.backends import write_network
    from ..runner.config import network_facts

    if (kind is None) != (folder is None):
        raise UsageError("--as and -o belong together: give a format and a folder.")
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
            for text in remarks:
                console.print(f"Warning: {escape(text)}", style="dim")
            console.print(f"Written: {', '.join(map(str, files))}", markup=False)


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
    rows = [{"figure": name, "value": value} for name, value in _figures(network, facts)]
    if output_format == "csv":
        print_frame(pd.DataFrame(rows), "csv")
        return
    print_rows(rows, title=network.name)
    for text in network.remarks:
        console.print(f"Assumed: {escape(text.rstrip('.'))}.", style="dim")


def _shape(network: NetworkConfig) -> str:
    return " x ".join(f"{a} {count}" for a, count in zip(network.topology, network.npus_count, strict=True))


def _figures(network: NetworkConfig, facts: NetworkFacts) -> Iterator[tuple[str, Any]]:
    """Yield the titles and texts of the figures in *facts*."""
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
        way = f"{count_text(facts.diameter_links, 'link')}, {duration_text(facts.diameter_ns)}"
        yield "diameter", way
    if facts.unreachable:
        yield "unreachable", f"{count_text(facts.unreachable, 'pair')} of ranks"
    if facts.halves_bytes_per_ns is not None:
        yield (
            "between halves",
            f"{bandwidth_text(facts.halves_bytes_per_ns)} in each direction, with all links in use",
        )
