"""Pieces of advice: what they say as text, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ...support import duration_text
from ._remedies import MOVABLE

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Advice:
    """One cause of time and how to shrink it.

    *gain_ns* is the gain of a replay of the step with *key* changed (``what-if --faster KEY``), and *share*
    its part of the step. With *is_bound*, nothing was replayed, and the gain is an upper bound. Work
    without a known best time is removed entirely, and *half_ns* is the gain of halving it, else 0. Work that
    is moved to free cores gains as much as they allow, and *whole_ns* if it is removed, else 0.
    Advice on recurring long steps, and on causes with another mean time in the run, has no key; its gain is
    measured. If *what* names the median unprofiled step, the gain of the replay is scaled to that step.
    *then* is the bound of the replay, *overlaps* other advice for the same time. *rank* and *node_id* are
    the longest piece, -1 if it has no node; *place* its function, file and line.
    """

    what: str
    how: str
    gain_ns: int
    share: float
    key: str
    is_bound: bool
    kind: str
    cause: str
    path_ns: int
    then: str = ""
    overlaps: str = ""
    rank: int = -1
    node_id: int = -1
    place: str = ""
    half_ns: int = 0
    whole_ns: int = 0

    @property
    def _likely_ns(self) -> int:
        """The gain to expect, by which advice is ordered: of necessary work, half."""
        return self.half_ns or self.gain_ns


@dataclass(frozen=True)
class Cause:
    """A contributor to the critical path: *path_ns* in *pieces* segments, and its *key* for ``what-if``."""

    what: str
    kind: str
    cause: str
    path_ns: int
    pieces: int
    key: str
    rank: int
    node_id: int
    place: str


@dataclass(frozen=True)
class Advised:
    """The result of `advise`: *advice*, by gain, and the largest single *contributor*.

    *contributor* is the largest of the candidates that has a name, and *causes* are the largest candidates.
    *half_kinds_ns* is the gain of halving all time of a kind, if it was replayed. *together_ns* is the gain
    of all advice in one replay if it is clearly less than the sum of the gains. It is 0 otherwise, and if a
    gain is that of other steps of the run.
    """

    advice: tuple[Advice, ...]
    contributor: Cause | None
    causes: tuple[Cause, ...]
    half_kinds_ns: Mapping[str, int]
    together_ns: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, which `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Advised:
        """Return what `to_json` was made of; raises `KeyError` or `TypeError` for anything else."""
        contributor = data["contributor"]
        return cls(
            tuple(Advice(**item) for item in data["advice"]),
            None if contributor is None else Cause(**contributor),
            tuple(Cause(**item) for item in data["causes"]),
            {str(kind): int(gain_ns) for kind, gain_ns in data["half_kinds_ns"].items()},
            int(data["together_ns"]),
        )


def gain_text(item: Advice) -> str:
    """Return the gain of *item* such as ``12 ms``, or ``at most 12 ms`` where nothing was replayed."""
    return f"{'at most ' * item.is_bound}{duration_text(item.gain_ns)}"


def together_text(together_ns: int) -> str:
    """Return the gain of all advice at once as a sentence, "" for none."""
    gain = duration_text(together_ns)
    return f"Together they gain {gain}, less than the sum of their gains." if together_ns else ""


def advice_text(item: Advice) -> str:
    """Return how to shrink the cause of *item*, and what bounds its replay."""
    half = f"{'at most ' * item.is_bound}{duration_text(item.half_ns)} if " * (item.half_ns > 0)
    parts = [f"{half}{item.how}"]
    if item.whole_ns:
        parts.append(f"{duration_text(item.whole_ns)} if {MOVABLE[item.cause][1]} spare all of it")
    if item.overlaps:
        parts.append(f"overlaps with: {item.overlaps}")
    if item.then:
        parts.append(f"then bound by {item.then}")
    return "; ".join(parts)


def advice_table(items: Sequence[Advice]) -> pd.DataFrame:
    """Return *items* as a table with a column for each field of `Advice`."""
    import pandas as pd  # noqa: PLC0415

    table: pd.DataFrame = pd.DataFrame(
        [asdict(item) for item in items], columns=[field.name for field in fields(Advice)]
    )
    return table
