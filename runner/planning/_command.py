"""The command that predicts a plan, and the usual network of a chip."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..config import NetworkConfig, read_yaml
from ._request import CHOICES, Request

__all__ = ["plan_command", "usual_network"]

_NETWORKS = Path(__file__).with_name("networks.yml")
_USUAL = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "expert_tp": 0, "schedule": "1f1b", "chunks": 1,
          "recompute": "none"}  # fmt: skip


def usual_network(chip: str, ranks: int) -> NetworkConfig:
    """Return the preset of nodes as they are sold with *chip*, of so many *ranks*.

    Raises `UsageError` for a chip without one, and for ranks that are no whole nodes.
    """
    presets = read_yaml(_NETWORKS, "table of networks")
    if chip not in presets:
        raise UsageError(
            f"No network is known that goes with the chip '{chip}'. Next: --network NAME or a file, which "
            "says how many GPUs there are as well."
        )
    node = NetworkConfig.preset(presets[chip])
    size, family = node.num_ranks, node.name.removesuffix(f"-{node.num_ranks}")
    if ranks < 1 or ranks % size:
        near = max(1, round(ranks / size)) * size
        raise UsageError(
            f"Nodes of '{family}' have {size} GPUs, which {ranks} is not a multiple of. Next: --gpus {near}, "
            "or --network with nodes of another size."
        )
    return node if ranks == size else NetworkConfig.preset(f"{family}-{ranks // size}x{size}")


def plan_command(
    request: Request, row: Mapping[str, Any], model: str | None = None, network: str | None = None
) -> str:
    """Return the command that predicts the plan of a *row* of the table.

    *model* and *network* are the arguments of the search, if they are not names.
    """
    cluster = next(
        each
        for each in request.clusters
        if (each.chip.name, each.network.num_ranks) == (row["chip"], row["gpus"])
    )
    words = [
        "chakrascope", "predict", "--model", model or request.model.name, "--chip", cluster.chip.name,
        "--network", network or cluster.network.name,
    ]  # fmt: skip
    for key in CHOICES:
        if row[key] != _USUAL.get(key):
            words += [f"--{'interleave' if key == 'chunks' else key.replace('_', '-')}", str(row[key])]
    words += ["--global-batch", str(request.global_batch)]
    if request.sequence:
        words += ["--sequence", str(request.sequence)]
    if request.precision:
        words += ["--precision", request.precision]
    if request.software:
        words += ["--software", request.software]
    return shlex.join(words)
