"""Label process groups, so that those of the same ranks are distinguished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

# Name, description and global ranks.
DescribedGroup = tuple[str, str, tuple[int, ...]]
# What PyTorch calls groups that the script did not describe (torch/distributed/distributed_c10d.py).
_UNDESCRIBED = ("", "undefined", "default_pg")


def group_labels(groups: Iterable[DescribedGroup]) -> dict[str, str]:
    """Return by name a label of each of *groups*, which are in order of creation.

    It is the description, such as ``dp`` of a dimension of a device mesh, or "". Groups of the same ranks
    and description are numbered, alike on all their ranks: these create their groups in the same order.
    """
    labels: dict[str, str] = {}
    seen: Counter[tuple[tuple[int, ...], str]] = Counter()
    for name, description, ranks in groups:
        label = "" if description in _UNDESCRIBED else description.removeprefix("mesh_")
        seen[ranks, label] += 1
        count = seen[ranks, label]
        labels[name] = label if count == 1 else f"{label} no. {count}".strip()
    return labels


def described_groups(listed: Iterable[Any]) -> list[DescribedGroup]:
    """Return the groups in a trace's list as `group_labels` takes them; unexpected values count as absent."""
    return [
        (
            str(item.get("pg_name")),
            str(item.get("pg_desc", "")),
            tuple(rank for rank in item["ranks"] if type(rank) is int),
        )
        for item in listed
        if isinstance(item, Mapping) and isinstance(item.get("ranks"), list)
    ]
