"""The number of ranks that each recorded rank represents, if one of several equal ranks was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._result import Result

if TYPE_CHECKING:
    import pandas as pd


def ranks_stood_for(result: Result) -> pd.Series:
    """Return the number of ranks that each rank's nodes in *result* represent: 1 unless others equal it.

    A result of very many nodes, or of a workload with one rank of each kind, has nodes of the simulated
    ranks only.
    """
    import pandas as pd  # noqa: PLC0415 - for who has tables of pandas

    ranks = result.ranks
    alone = pd.Series(1, index=ranks["rank"])
    counts: pd.Series = ranks["representative"].value_counts() if _stand_for_others(result) else alone
    return counts


def group_members(result: Result, group: int) -> Sequence[int] | None:
    """Return the ranks of *group* if not all of them were recorded; None if the records suffice."""
    if not _stand_for_others(result):
        return None
    everyone: list[int] = result.columns("ranks")["rank"].tolist()
    members: Sequence[int] = result.provenance.get("groups", {}).get(str(group), everyone)
    return members


def _stand_for_others(result: Result) -> bool:
    executed = int(result.provenance.get("nodes_executed", 0))
    return "representative" in result.columns("ranks") and result.num_nodes < executed
