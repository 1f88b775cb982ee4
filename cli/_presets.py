"""``chakrascope presets``: the configurations that ship with the package, and their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError, did_you_mean
from ._output import console, format_option, print_frame

if TYPE_CHECKING:
    from ..runner import NetworkConfig

_TITLES = {"network": "Networks", "system": "Systems", "memory": "Remote memories"}


@click.command("presets")
@click.argument("name", required=False)
@format_option
def presets_command(*, name: str | None, output_format: str) -> None:
    """List the network, system and memory presets, or print the file of preset NAME to start from.

    A preset's name works wherever a configuration file does: --network dgx-a100-8.
    """
    import pandas as pd

    from ..runner import list_presets

    if name is not None:
        click.echo(_file_of(name), nl=False)
        return
    presets = [(kind, name) for kind in _TITLES for name in list_presets(kind)]
    rows = [{"kind": kind, "name": name, **_figures(kind, name)} for kind, name in presets]
    if output_format != "table":
        print_frame(pd.DataFrame(rows), output_format)
        return
    for kind, title in _TITLES.items():
        own = pd.DataFrame([row for row in rows if row["kind"] == kind])
        print_frame(own.drop(columns="kind"), "table", title=title)
    console.print("Next: chakrascope presets NAME > mine.yml, to change one; its comments name the sources.")


def _file_of(name: str) -> str:
    """Return the text of the preset's file; raises `UsageError` if no kind has one of that name."""
    from ..runner import list_presets
    from ..runner.config import preset_path

    for kind in _TITLES:
        if name in list_presets(kind):
            return preset_path(kind, name).read_text(encoding="utf-8")
    names = [preset for kind in _TITLES for preset in list_presets(kind)]
    raise UsageError(f"There is no preset '{name}'{did_you_mean(name, names, 'chakrascope presets')}")


def _figures(kind: str, name: str) -> dict[str, Any]:
    """Return the properties that distinguish the preset from others of its *kind*."""
    from ..runner import MemoryConfig, NetworkConfig, SystemConfig

    if kind == "network":
        network = NetworkConfig.preset(name)
        shape = zip(network.topology, network.npus_count, strict=True)
        return {
            "ranks": network.num_ranks,
            "dimensions": " x ".join(f"{topology} {size}" for topology, size in shape) + _fabric(network),
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


def _fabric(network: NetworkConfig) -> str:
    """Return a phrase on the Clos network that joins the ranks, if there is one."""
    fabric = None if network.packet is None else network.packet.fabric
    if fabric is None:
        return ""
    tiers, over = 3 if fabric.leaves_per_pod else 2, fabric.oversubscription
    return f" on a Clos of {tiers} tiers" + (f", {over} to 1" if over > 1 else "")
