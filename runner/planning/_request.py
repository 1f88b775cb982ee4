"""The request for a search of plans, and the command that predicts a single plan."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...errors import UsageError
from ..chips import Chip
from ..config import NetworkConfig
from ..prediction.models import SCHEDULES, Transformer, recomputation_of

CHOICES = (
    "tp", "pp", "dp", "cp", "ep", "expert_tp", "zero", "schedule", "chunks", "micro_batch", "recompute",
)  # fmt: skip
"""The fields of `Plan` that a search chooses, in the order of tables."""


@dataclass(frozen=True)
class Cluster:
    """Chips on a network, with a *price* per chip-hour."""

    chip: Chip
    network: NetworkConfig
    price: float | None = None


@dataclass(frozen=True)
class Limits:
    """Upper limits: bytes of a rank (up to the usable memory of its chip), ns of a step, cost of a step."""

    memory_bytes: int | None = None
    step_ns: int | None = None
    cost: float | None = None


@dataclass(frozen=True)
class Request:
    """A search for the best plan to train *model* on one of *clusters*.

    *only* restricts `CHOICES` to the given values. A step has *global_batch* sequences of *sequence* tokens
    (0: the model's default). The constructor raises `UsageError` for values that no plan can have.
    """

    model: Transformer
    clusters: tuple[Cluster, ...]
    global_batch: int
    sequence: int = 0
    precision: str | None = None
    software: str | None = None
    limits: Limits = Limits()
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.global_batch < 1:
            raise UsageError(f"--global-batch must be 1 or more, not {self.global_batch}.")
        for text in self.only.get("recompute", ()):
            recomputation_of(text)
        if "expert_tp" in self.only and not self.model.experts:
            raise UsageError(f"{self.model.name} has no experts. Next: leave out --expert-tp.")
        choices = {"schedule": SCHEDULES, "zero": (0, 1, 2, 3)}
        for key, values in self.only.items():
            for value in values:
                if key in choices and value not in choices[key]:
                    allowed = ", ".join(map(str, choices[key]))
                    raise UsageError(f"--{key} must be {allowed}, not '{value}'.")
        for cluster in self.clusters:
            cluster.chip.peak(self.precision or cluster.chip.precision)
            if self.software is not None:
                cluster.chip.costs_of(self.software)

    def allows(self, key: str, value: Any) -> bool:
        """Return whether a plan may have *value* for the choice *key*."""
        return key not in self.only or value in self.only[key]

    def memory_bytes(self, cluster: Cluster) -> int:
        """Return the memory limit of a rank on *cluster* in bytes."""
        limit, usable = self.limits.memory_bytes, cluster.chip.usable_bytes
        return usable if limit is None else min(limit, usable)

    def cost(self, cluster: Cluster, step_ns: float) -> float:
        """Return the price of a step on *cluster*, or the chip-seconds of a step without prices."""
        seconds = cluster.network.num_ranks * step_ns / 1e9
        return seconds if cluster.price is None else seconds / 3600 * cluster.price

    def describe(self) -> dict[str, Any]:
        """Return all inputs that affect the results of the search, as JSON."""
        content = asdict(self)
        content["clusters"] = [
            {"chip": asdict(cluster.chip), "network": cluster.network.to_dict(), "price": cluster.price}
            for cluster in self.clusters
        ]
        described: dict[str, Any] = json.loads(json.dumps(content, sort_keys=True, default=str))
        return described

    @property
    def content_hash(self) -> str:
        """The hash of the request, as 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:16]


_USUAL = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "expert_tp": 0, "schedule": "1f1b", "chunks": 1,
          "recompute": "none"}  # fmt: skip


def plan_command(
    request: Request,
    row: Mapping[str, Any],
    *,
    model: str | None = None,
    machine: str | None = None,
    network: str | None = None,
    chips: Mapping[str, str] | None = None,
) -> str:
    """Return the command that predicts the plan in a *row* of the search's result table.

    *model*, *machine*, *network* and *chips* (by name) are the arguments of the search, which replace plain
    names in the command.
    """
    cluster = next(
        each
        for each in request.clusters
        if (each.chip.name, each.network.num_ranks) == (row["chip"], row["gpus"])
    )
    chip = cluster.chip.name
    words = ["chakrascope", "predict", "--model", model or request.model.name]
    if machine:
        words += ["--on", machine]
    else:
        words += ["--chip", (chips or {}).get(chip, chip), "--network", network or cluster.network.name]
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
