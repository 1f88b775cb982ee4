"""Represent advice as text, as a table and as JSON."""

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
    """One cause of step time and a remedy that shortens the step.

    *gain_ns* is the gain of a replay of the step with *key* changed (``what-if --faster KEY``), and *share*
    is the gain as a fraction of the step. If *is_bound* is true, the gain is an upper bound without a replay.
    Work without a known best time is removed entirely, and *half_ns* is the gain of halving the work (0 for
    other advice). The gain of moving work to free cores is limited by the free cores, and *whole_ns* is the
    gain of removing the work (0 for other advice). Advice on recurring long steps has no key, and its gain is
    measured. The same is true for advice on a cause with another mean time in the run. If *what* names the
    median unprofiled step, the gain of the replay is scaled to that step. *then* names the kind of work that
    bounds the replay, and *overlaps* lists other advice for the same time. *rank* and *node_id* identify the
    longest segment (-1 if the segment has no node). *place* is the segment's function, file and line.
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
        """The expected gain that orders advice: for necessary work, the gain of halving the work."""
        return self.half_ns or self.gain_ns


@dataclass(frozen=True)
class Cause:
    """A contributor to the critical path: *path_ns* ns in *pieces* segments, and a *key* for ``what-if``."""

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
    """The result of `advise`: *advice* by gain, and the largest *contributor* to the critical path.

    *contributor* is the largest named candidate cause, and *causes* are the largest candidates.
    *half_kinds_ns* is the gain of halving all time of a kind of work, if the change was replayed.
    *together_ns* is the gain of all advice in one replay if this gain is clearly less than the sum of the
    single gains. Otherwise, *together_ns* is 0. *together_ns* is also 0 if a gain was measured in other steps
    of the run.
    """

    advice: tuple[Advice, ...]
    contributor: Cause | None
    causes: tuple[Cause, ...]
    half_kinds_ns: Mapping[str, int]
    together_ns: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the advice as plain JSON, which `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Advised:
        """Restore advice from the JSON of `to_json`; raises `KeyError` or `TypeError` for other JSON."""
        contributor = data["contributor"]
        return cls(
            tuple(Advice(**item) for item in data["advice"]),
            None if contributor is None else Cause(**contributor),
            tuple(Cause(**item) for item in data["causes"]),
            {str(kind): int(gain_ns) for kind, gain_ns in data["half_kinds_ns"].items()},
            int(data["together_ns"]),
        )


def gain_text(item: Advice) -> str:
    """Return the gain of *item*, such as ``12 ms``, or ``at most 12 ms`` for an upper bound.

    The gain of removing work that can only be faster is marked, as `advice_text` has the gain of halving it.
    """
    text = f"{'at most ' * item.is_bound}{duration_text(item.gain_ns)}"
    return f"{text} if removed" if item.half_ns else text


def together_text(together_ns: int) -> str:
    """Return a sentence with the gain of applying all advice together, or "" if the gain is 0."""
    gain = duration_text(together_ns)
    return f"Together they gain {gain}, less than the sum of their gains." if together_ns else ""


def advice_text(item: Advice) -> str:
    """Return the remedy of *item* as text, with overlapping advice and the bound of the replay."""
    half = f"{'at most ' * item.is_bound}{duration_text(item.half_ns)} if " * (item.half_ns > 0)
    parts = [f"{half}{item.how}"]
    if item.whole_ns:
        parts.append(f"{duration_text(item.whole_ns)} if {MOVABLE[item.cause][1]} take over all of it")
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
