"""The fields of the page New run, and how to read them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc

from ..queries.configure import ALGORITHMS, COLLECTIVES, TOPOLOGIES, Dimension, Setup

__all__ = ["dimension_rows", "read_setup", "system_fields"]

# key of the system file -> label, unit, help, whole number, least value
_NUMBERS: dict[str, tuple[str, str, str, bool, float]] = {
    "preferred-dataset-splits": ("Chunks", "", "pieces a collective is cut into, to overlap them", True, 1),
    "active-chunks-per-dimension": ("Active chunks", "", "chunks in flight at once in a dimension", True, 1),
    "endpoint-delay": ("Endpoint delay", " ns", "what each message costs at its end", True, 0),
    "local-mem-bw": ("Memory bandwidth", " GB/s", "of a chip, for local reductions and roofline", False, 0),
    "peak-perf": ("Peak performance", " TFLOP/s", "of a chip, for roofline", False, 0),
}
_SYSTEM_KEYS = (*_NUMBERS, "collective-optimization", "roofline-enabled")
_OPTIMIZATIONS = ("baseline", "localBWAware")


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
                        hideControls=True,
                        **label("bandwidth")),
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
            id={"form": "system", "field": key}, label=label, description=text, suffix=unit, w=205, min=least,
            value=system.get(key), allowDecimal=not whole, placeholder="not given",
        )
        for key, (label, unit, text, whole, least) in _NUMBERS.items()
    ]  # fmt: skip
    fields += [
        dmc.Select(id={"form": "system", "field": "collective-optimization"}, label="Collective optimization",
                   description="localBWAware: reduce-scatter inwards first", data=[*_OPTIMIZATIONS],
                   value=system.get("collective-optimization", "baseline"), allowDeselect=False, w=205),
        dmc.Select(id={"form": "system", "field": "roofline-enabled"}, label="Compute times",
                   description="measured, or peak performance and bandwidth", allowDeselect=False, w=205,
                   data=[{"value": "0", "label": "as measured"}, {"value": "1", "label": "roofline model"}],
                   value=str(int(system.get("roofline-enabled", 0)))),
    ]  # fmt: skip
    return dmc.Group(fields, align="end", gap="sm")


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
        if key not in _SYSTEM_KEYS:
            continue
        if key == "roofline-enabled":
            value = 1 if value == "1" else None if key not in system else 0
        if value in (None, ""):
            system.pop(key, None)
        else:
            system[key] = value
    dimensions = tuple(_dimension(rows[number]) for number in sorted(rows))
    return Setup(dimensions, system, network_preset, system_preset, start.more)


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
