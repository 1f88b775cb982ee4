"""A map of the links in a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...runner import Result
from ...runner.analysis import end_names, failures_of
from ...support import bytes_text, share_text

_MAX_ENDS = 160
_FEW_LABELS = 40
_NEAR_MIDDLE = 0.05


@dataclass(frozen=True)
class LinkMap:
    """Positions of ranks and switches (*ends*), of *links*, and of failed links.

    *ends* has ``name, label, is_switch, x, y``. *links* has ``x0, y0, x1, y1, share, text``. *down* describes
    the failed links, with the same columns except ``share``.
    """

    ends: pd.DataFrame
    links: pd.DataFrame
    down: pd.DataFrame


def link_map(result: Result, links: pd.DataFrame) -> LinkMap | None:
    """Map *links* (from `link_table`); None for over 160 devices.

    Ranks are on a circle, and a switch is closer to the centre than the devices that it connects.
    """
    numbers = np.unique(links[["src", "dst"]].to_numpy())
    if len(numbers) > _MAX_ENDS or links.empty:
        return None
    ranks = len(result.ranks)
    places, name = _places(numbers, links, ranks), end_names(result)
    ends = pd.DataFrame(
        {
            "name": [name(int(number)) for number in numbers],
            "label": [str(number) if number < ranks <= _FEW_LABELS else "" for number in numbers],
            "is_switch": numbers >= ranks,
            "x": [places[int(number)].real for number in numbers],
            "y": [places[int(number)].imag for number in numbers],
        }
    )
    return LinkMap(ends, _drawn_links(links, places), _down(result, places))


def _places(numbers: npt.NDArray[np.int64], links: pd.DataFrame, ranks: int) -> dict[int, complex]:
    """Return the position of each rank and switch as x + iy."""
    count = max(1, ranks)
    places = {int(n): complex(np.exp(0.5j * np.pi - 2j * np.pi * n / count)) for n in numbers if n < ranks}
    several = len(numbers) > ranks + 1
    for switch in (int(number) for number in numbers if number >= ranks):
        near = links.loc[links["src"] == switch, "dst"].unique()
        positions = [places[int(end)] for end in near if int(end) in places]
        middle = sum(positions) / len(positions) if positions else 0j
        # The label is between the centre and its neighbours, or near the centre if neighbours are on all
        # sides.
        turn = np.exp(2j * np.pi * (switch - ranks) / max(1, len(numbers) - ranks))
        places[switch] = 0.55 * middle if abs(middle) > _NEAR_MIDDLE else complex(0.2 * several * turn)
    return places


def _down(result: Result, places: Mapping[int, complex]) -> pd.DataFrame:
    """Return lines for failed links between devices that still have working links."""
    rows = []
    for failure, text in failures_of(result):
        ends = [places[device] for device in failure.devices if device in places]
        if failure.rate == 0 and len(ends) == 2:
            start, end = ends
            rows.append((start.real, start.imag, end.real, end.imag, text))
    drawn: pd.DataFrame = pd.DataFrame(rows, columns=["x0", "y0", "x1", "y1", "text"])
    return drawn


def _drawn_links(links: pd.DataFrame, places: Mapping[int, complex]) -> pd.DataFrame:
    """Return a line per linked pair, with the figures of the busier direction.

    The busiest link comes last, to be drawn above the other links.
    """
    low, high = links[["src", "dst"]].min(axis=1), links[["src", "dst"]].max(axis=1)
    busier = links.assign(low=low, high=high).sort_values("share").groupby(["low", "high"]).tail(1)
    starts, ends = busier["src"].map(places), busier["dst"].map(places)
    texts = [
        f"{row['source']} to {row['target']}: busy {share_text(row['share'])} of the step, "
        f"{bytes_text(int(row['bytes']))}"
        for row in busier.to_dict("records")
    ]
    drawn: pd.DataFrame = pd.DataFrame(
        {
            "x0": [place.real for place in starts],
            "y0": [place.imag for place in starts],
            "x1": [place.real for place in ends],
            "y1": [place.imag for place in ends],
            "share": busier["share"].to_numpy(),
            "text": texts,
        }
    )
    return drawn
