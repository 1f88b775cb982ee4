"""The fields of the page New run, what they mean, and how to read them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from ...runner.engine import ALGORITHMS, COLLECTIVES, TOPOLOGIES
from ..queries import SYSTEM_FIELDS, Dimension, Setup

__all__ = ["dimension_rows", "meanings", "read_setup", "system_fields"]

# key of the system file -> label, unit, help, whole number, least value
_NUMBERS: dict[str, tuple[str, str, str, bool, float]] = {
    "preferred-dataset-splits": ("Chunks", " chunks", "pieces a collective is cut into", True, 1),
    "active-chunks-per-dimension": ("Active chunks", " chunks", "in flight at once in a dimension", True, 1),
    "endpoint-delay": ("Endpoint delay", " ns", "of each message, at its end", True, 0),
    "local-mem-bw": ("Memory bandwidth", " GB/s", "of a chip: reductions, roofline", False, 0),
    "peak-perf": ("Peak performance", " TFLOP/s", "of a chip, for the roofline", False, 0),
}
# key -> label, help, value -> what it is called; the first is what a file without the key means
_CHOICES: dict[str, tuple[str, str, dict[str, str]]] = {
    "collective-optimization": (
        "Collective optimization",
        "all-reduce in dimensions",
        {"baseline": "baseline", "localBWAware": "bandwidth aware"},
    ),
    "inter-dimension-policy": (
        "Order of dimensions",
        "that a chunk goes through",
        {"ascending": "ascending", "round-robin": "round robin", "greedy": "greedy (Themis)"},
    ),
    "intra-dimension-policy": (
        "Order of chunks",
        "within a dimension",
        {
            "FIFO": "as they come",
            "smallest-first": "smallest first",
            "less-remaining-phase-first": "fewest phases left first",
            "reduce-first": "reduce-scatter first",
        },
    ),
    "roofline-enabled": (
        "Compute times",
        "measured or modelled",
        {"0": "as measured", "1": "roofline model"},
    ),
}
_MEANINGS = (
    ("Shape", "How the ranks of one group are joined: by a switch, in a ring, or each with every other."),
    ("Size", "Ranks in one group of the dimension. The product of all sizes is the ranks of the cluster."),
    ("Bandwidth", "Of one link in one direction, in GiB/s: 2³⁰ bytes per second, as ASTRA-sim has it. A "
     "400 Gb/s port is 46.6 GiB/s. The check below says it in GB/s and Gb/s."),
    ("Latency", "Of one link, in ns: what the first byte takes. Inside a host some 500, between hosts 1,000 "
     "to 10,000."),
    ("ring", "Each rank passes pieces on to its neighbour: best for large messages, n−1 steps."),
    ("direct", "Each rank sends to every other at once: best for small messages on a switch."),
    ("halvingDoubling", "Pairs at doubling distances: log₂ n steps; sizes must be powers of two."),
    ("doubleBinaryTree", "Two trees at once: log₂ n steps; sizes must be powers of two."),
    ("Chunks", "A collective is cut into so many pieces, so that one is in the second dimension while the "
     "next is in the first. More chunks overlap more, and take longer to simulate."),
    ("Roofline", "The time of a compute node is its operations over the peak, or its bytes over the memory "
     "bandwidth, whichever is longer, in place of the time that was measured: for chips you do not have."),
)  # fmt: skip


def dimension_rows(dimensions: Sequence[Dimension]) -> Any:
    """Return a table with a row of fields a dimension."""
    head = ["", "Shape", "Size", "Bandwidth", "Latency", *COLLECTIVES]
    rows = [dmc.TableTr([dmc.TableTd(cell) for cell in _row(number, dimension)])
            for number, dimension in enumerate(dimensions)]  # fmt: skip
    titles = dmc.TableThead(dmc.TableTr([dmc.TableTh(title) for title in head]))
    return dmc.Table([titles, dmc.TableTbody(rows)], className="form-table", withRowBorders=False)


def _row(number: int, dimension: Dimension) -> list[Any]:
    def name(field: str) -> dict[str, Any]:
        return {"form": "dimension", "field": field, "number": number}

    def label(field: str) -> dict[str, str]:
        return {"aria-label": f"{field} of dimension {number + 1}"}

    return [
        str(number + 1),
        dmc.Select(id=name("topology"), data=[*TOPOLOGIES], value=dimension.topology, allowDeselect=False,
                   **label("shape")),
        dmc.NumberInput(id=name("size"), value=dimension.size, min=2, max=100_000, allowDecimal=False,
                        suffix=" ranks", **label("size")),
        dmc.NumberInput(id=name("bandwidth"), value=dimension.bandwidth, min=0.001, suffix=" GiB/s",
                        hideControls=True, **label("bandwidth")),
        dmc.NumberInput(id=name("latency"), value=dimension.latency, min=0, suffix=" ns", hideControls=True,
                        **label("latency")),
        *(
            dmc.Select(id=name(collective), data=sorted({*ALGORITHMS, value}), value=value,
                       allowDeselect=False, **label(collective))
            for collective, value in zip(COLLECTIVES, dimension.algorithms, strict=True)
        ),
    ]  # fmt: skip


def system_fields(system: Mapping[str, Any]) -> Any:
    """Return the fields of the other keys of a system file."""
    fields: list[Any] = [
        dmc.NumberInput(
            id={"form": "system", "field": key}, label=label, description=text, suffix=unit, min=least,
            value=system.get(key), allowDecimal=not whole, placeholder="not given",
        )
        for key, (label, unit, text, whole, least) in _NUMBERS.items()
    ]  # fmt: skip
    fields += [
        dmc.Select(
            id={"form": "system", "field": key}, label=label, description=text, allowDeselect=False,
            data=[{"value": value, "label": name} for value, name in names.items()],
            value=_chosen(system, key),
        )
        for key, (label, text, names) in _CHOICES.items()
    ]  # fmt: skip
    return dmc.SimpleGrid(fields, cols={"base": 3, "lg": 5}, spacing="sm")


def _chosen(system: Mapping[str, Any], key: str) -> str:
    value = system.get(key)
    return next(iter(_CHOICES[key][2])) if value is None else str(int(value) if value in (0, 1) else value)


def meanings() -> dmc.Accordion:
    """Return what the fields mean, to unfold."""
    parts = [part for name, text in _MEANINGS for part in (html.Dt(name), html.Dd(text))]
    item = dmc.AccordionItem(
        [
            dmc.AccordionControl("What the fields mean"),
            dmc.AccordionPanel(html.Dl(parts, className="details")),
        ],
        value="meanings",
    )
    return dmc.Accordion(item, variant="separated", id="new-meanings")


def read_setup(
    dimension_fields: Sequence[Mapping[str, Any]],
    system_values: Sequence[Mapping[str, Any]],
    network_preset: str,
    system_preset: str,
) -> Setup:
    """Return the setup in the fields, given as Dash lists them: the id and value of each.

    An empty number is 0, which the checks refuse where 0 makes no sense. Keys the form does not show keep the
    preset's value, whatever the browser sends.
    """
    rows: dict[int, dict[str, Any]] = {}
    for item in dimension_fields:
        rows.setdefault(int(item["id"]["number"]), {})[item["id"]["field"]] = item.get("value")
    start = Setup.of_presets(network_preset, system_preset)
    system = dict(start.system)
    for item in system_values:
        key, value = item["id"]["field"], item.get("value")
        if key in SYSTEM_FIELDS:
            _put(system, key, value)
    dimensions = tuple(_dimension(rows[number]) for number in sorted(rows))
    return Setup(dimensions, system, network_preset, system_preset, start.more)


def _put(system: dict[str, Any], key: str, value: Any) -> None:
    """Set *key*, or leave it out where the file has no need to say what is so without it."""
    if key in _CHOICES and key not in system and value == next(iter(_CHOICES[key][2])):
        return
    if key == "roofline-enabled":
        value = int(value == "1")
    if value in (None, ""):
        system.pop(key, None)
    else:
        system[key] = value


def _dimension(row: Mapping[str, Any]) -> Dimension:
    return Dimension(
        topology=str(row.get("topology")),
        size=int(_number(row.get("size"))),
        bandwidth=_number(row.get("bandwidth")),
        latency=_number(row.get("latency")),
        algorithms=tuple(str(row.get(name)) for name in COLLECTIVES),
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
