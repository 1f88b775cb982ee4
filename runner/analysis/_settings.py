"""Settings of simulations, packet statistics, and the calibration of a network, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import pandas as pd

from ...support import bandwidth_text, bytes_text, change_text, count_text, duration_text
from .._result import Result
from .._traits import about_backend

_MACHINE = "machine: "
_MACHINE_NAME = "machine: name"
_DIMENSIONS = {"npus_count": "", "topology": "", "bandwidth": " GiB/s", "latency": " ns"}
_WORDS = {"sources", "title"}  # a machine's keys for sentences about the sources of figures


class Setting(NamedTuple):
    """A setting: its *name*, *value*, the keys that lead to it in the configurations, and its unit."""

    name: str
    keys: tuple[str | int, ...]
    value: Any
    unit: str = ""

    @property
    def text(self) -> str:
        """The value of the setting as text, with its unit."""
        return f"{_plain(self.value)}{self.unit}"


def settings_table(results: Mapping[str, Result], workloads: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table of settings: ``setting``, ``differs``, and a column per result.

    Settings that differ come first. A cell is empty if a result lacks the setting. Measurements have no
    settings, and are not compared.
    """
    given = [_settings(result) for result in results.values()]
    for settings, workload in zip(given, workloads, strict=False):
        settings["workload"] = workload
    is_measured = [about_backend(result.backend).replays for result in results.values()]
    measured = list(compress(given, is_measured))
    keys = list(dict.fromkeys(key for each in given for key in each))
    if sum(_MACHINE_NAME in each for each in given) < 2:
        # If only one result has a GPU machine, its figures cannot be compared.
        keys = [key for key in keys if not key.startswith(_MACHINE) or key == _MACHINE_NAME]
    rows = [
        {
            "setting": key,
            "differs": len({each.get(key, "") for each in given if key in each or each not in measured}) > 1,
            **{name: each.get(key, "") for name, each in zip(results, given, strict=True)},
        }
        for key in keys
    ]
    table = pd.DataFrame(rows, columns=["setting", "differs", *results])
    ordered: pd.DataFrame = table.sort_values("differs", ascending=False, kind="stable", ignore_index=True)
    return ordered


def _settings(result: Result) -> dict[str, str]:
    """Return each setting of *result* as text, by name."""
    made = result.provenance
    texts = {"backend": result.backend, "network": str(made.get("network_name", ""))}
    texts["ranks"] = f"{len(result.ranks):,}"
    if about_backend(result.backend).replays:
        return texts
    return texts | {setting.name: setting.text for setting in settings_of(made)}


def settings_of(made: Mapping[str, Any]) -> list[Setting]:
    """Return the settings in *made*, a provenance or part of one.

    Each network dimension, and each figure of a GPU machine, is a separate setting.
    """
    network = made.get("network", {})
    rows = [
        Setting(f"dimension {place + 1}: {key}", ("network", key, place), value, unit)
        for key, unit in _DIMENSIONS.items()
        for place, value in enumerate(network.get(key, []))
    ]
    for part in ("network", "system", "memory"):
        rows += [
            Setting(f"{part}: {key}", (part, key), value)
            for key, value in made.get(part, {}).items()
            if part != "network" or key not in _DIMENSIONS
        ]
    options = made.get("options", {})
    rows += _machine_settings(options.get("machine"), ("options", "machine"))
    rows += [
        Setting(f"option: {key}", ("options", key), value)
        for key, value in options.items()
        if key != "machine"
    ]
    return rows


def _machine_settings(machine: Any, keys: tuple[str, ...]) -> Iterator[Setting]:
    """Yield the figures of a GPU machine without their sources."""
    for key, value in machine.items() if isinstance(machine, Mapping) else ():
        within = (*keys, key)
        if isinstance(value, Mapping) and key not in _WORDS:
            yield from _machine_settings(value, within)
        elif key not in _WORDS:
            yield Setting(_MACHINE + ".".join(within[2:]), within, value)


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value)) if len(value) <= 8 else f"{len(value):,} entries"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items())
    return str(value)


def packet_facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return sentences about queues, pauses and flows of packet-level backends; none for others."""
    packets = provenance.get("packets")
    if not isinstance(packets, Mapping):
        return []
    counts = (
        ("data_packets", "Data packets"),
        ("pause_frames", "Pause frames"),
        ("drops", "Dropped packets"),
        ("marks", "Marked packets"),
        ("retransmissions", "Retransmissions"),
        ("timeouts", "Retransmission timeouts"),
    )
    facts = [(label, f"{int(packets[key]):,}") for key, label in counts if key in packets]
    if "paused_ns" in packets:
        facts.append(("Time paused, all ports", duration_text(int(packets["paused_ns"]))))
    if "largest_queue_bytes" in packets:
        facts.append(("Longest queue", bytes_text(int(packets["largest_queue_bytes"]))))
    flows = packets.get("flow_completion_ns")
    if isinstance(flows, Mapping):
        named = (("median", "median"), ("p99", "99th percentile"), ("max", "longest"))
        parts = [f"{label} {duration_text(float(flows[key]))}" for key, label in named if key in flows]
        count = count_text(int(flows.get("count", 0)), "flow")
        facts.append(("Flow completion", f"{count}: {', '.join(parts)}"))
    return facts


def packet_table(provenance: Mapping[str, Any]) -> pd.DataFrame:
    """Return a run's packet statistics as a table: ``figure`` and ``value``."""
    table: pd.DataFrame = pd.DataFrame(packet_facts(provenance), columns=["figure", "value"])
    return table


_NUMBERS = ("ranks", "size-bytes", "count", "measured-ns", "model-ns", "messages-ns")
_COLUMNS = ("dimension", "operation", *(name.replace("-", "_") for name in _NUMBERS), "error")
_HANDSHAKES = {
    "in-order": (
        "A message waits for the request of its receiver, which queues behind messages in the opposite "
        "direction"
    )
}


class FittedNetwork(NamedTuple):
    """A calibration as stored in a network file.

    *facts* are (label, text) pairs, and *points* is a `calibration_table`. *undetermined* and *left_out*
    are sentences about undetermined parameters, and about measurements that the fit did not use.
    """

    facts: tuple[tuple[str, str], ...]
    points: pd.DataFrame
    undetermined: tuple[str, ...]
    left_out: tuple[str, ...]


def fitted_network(provenance: Mapping[str, Any]) -> FittedNetwork | None:
    """Return the calibration of a run's network, or None if the network is not calibrated."""
    fit = _calibration(provenance)
    if not fit:
        return None
    points = calibration_table(provenance)
    return FittedNetwork(
        tuple(_facts(fit, points)), points, _texts(fit.get("undetermined")), _texts(fit.get("left-out"))
    )


def calibration_table(provenance: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per measured size in the calibration of a run's network; empty without one.

    The columns are ``dimension, operation, ranks, size_bytes, count, measured_ns, model_ns,
    messages_ns`` and ``error``, the relative error of the model. ``messages_ns`` is the modelled
    time without the communication library. Invalid rows of the file are left out.
    """
    listed = _calibration(provenance).get("points")
    rows = [_row(point) for point in listed if _is_row(point)] if isinstance(listed, Sequence) else []
    table: pd.DataFrame = pd.DataFrame(rows, columns=list(_COLUMNS))
    return table


def _calibration(provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    network = provenance.get("network")
    fit = network.get("calibration") if isinstance(network, Mapping) else None
    return fit if isinstance(fit, Mapping) else {}


def _is_row(point: Any) -> bool:
    """Return whether *point* is a valid row; network files may be written by hand."""
    if not isinstance(point, Mapping) or not {"operation", "size-bytes", "measured-ns", "model-ns"} <= {
        *point
    }:
        return False
    numbers = [point[name] for name in _NUMBERS if name in point]
    is_numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers)
    return is_numeric and point["measured-ns"] > 0 and point["model-ns"] > 0 and point["size-bytes"] > 0


def _row(point: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name.replace("-", "_"): round(point.get(name, 0)) for name in _NUMBERS}
    texts = {name: str(point.get(name, "")) for name in ("dimension", "operation")}
    numbers["messages_ns"] = numbers["messages_ns"] or numbers["model_ns"]
    return texts | numbers | {"error": point["model-ns"] / point["measured-ns"] - 1}


def _facts(known: Mapping[str, Any], points: pd.DataFrame) -> list[tuple[str, str]]:
    facts = [(label, str(known[key])) for key, label in _PLAIN if known.get(key)]
    if isinstance(known.get("transfers"), int):
        facts.append(("Measurements", count_text(known["transfers"], "transfer")))
    for dimension in known.get("dimensions", ()) if isinstance(known.get("dimensions"), list) else ():
        if isinstance(dimension, Mapping):
            name = f"{dimension.get('name', 'dimension')}, {dimension.get('ranks', '?')} ranks"
            facts.append(
                (f"Bandwidth, {name}", _figure(dimension.get("bandwidth-bytes-per-ns"), bandwidth_text))
            )
            facts.append((f"Latency, {name}", _figure(dimension.get("latency-ns"), duration_text)))
    if "message-cost-ns" in known:
        facts.append(("A message keeps its sender busy", _figure(known["message-cost-ns"], duration_text)))
    if known.get("handshake") in _HANDSHAKES:
        facts.append(("Sends and receives", _HANDSHAKES[known["handshake"]]))
    if len(points):
        worst = max(points.to_dict("records"), key=lambda row: abs(row["error"]))
        facts.append(("Largest error of the fit", f"{change_text(worst['error'])} ({worst['operation']})"))
    return facts


_PLAIN = (("fitted-on", "Fitted to"), ("when", "Made"), ("system", "System"))


def _figure(figure: Any, text: Any) -> str:
    """Return a calibrated figure with its 95 % interval, or with its source."""
    if not isinstance(figure, Mapping) or not isinstance(figure.get("value"), (int, float)):
        return "not known"
    value, ends = text(figure["value"]), [figure.get("low"), figure.get("high")]
    if all(isinstance(end, (int, float)) for end in ends):
        return f"{value} (95 %: {text(ends[0])} to {text(ends[1])})"
    return f"{value} ({figure.get('known', 'not measured')})"


def _texts(listed: Any) -> tuple[str, ...]:
    return tuple(str(text) for text in listed) if isinstance(listed, (list, tuple)) else ()
