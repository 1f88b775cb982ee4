"""The state of the form New run as text for an address: only what differs from its presets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import ConfigError
from ...runner import DEFAULT_BACKEND, list_presets
from ...runner.config import failure_of_text
from ...runner.engine import COLLECTIVES
from ._backends import is_offered, plain_backend, plain_name
from ._configure import PRESETS, Dimension, Networks, Setup

__all__ = ["SYSTEM_FIELDS", "Form", "decode_form", "encode_form", "first_form", "form_of_workload"]

SYSTEM_FIELDS = (
    "preferred-dataset-splits",
    "active-chunks-per-dimension",
    "endpoint-delay",
    "local-mem-bw",
    "peak-perf",
    "collective-optimization",
    "inter-dimension-policy",
    "intra-dimension-policy",
    "roofline-enabled",
)
"""The keys of a system file that the form shows."""

_FIRST_NETWORK, _FIRST_SYSTEM = "cpu-cluster-16", "default"
_FIRST_BACKENDS = (DEFAULT_BACKEND,)
_MOST_DIMENSIONS = 4
_PARTS = {"workload", "network", "system", "dimensions", "keys", "failures", "backends", "label"}
_MOST_FAILURES = 100
_LABEL_LENGTH = 120


@dataclass(frozen=True)
class Form:
    """Everything the form holds: what to simulate, where, by which *backends*, and what to call it.

    *ignored* are sentences on what of an address it could not take up.
    """

    workload: str
    setup: Setup
    backends: tuple[str, ...] = _FIRST_BACKENDS
    label: str = ""
    ignored: tuple[str, ...] = field(default=(), compare=False)


def first_form(workloads: Sequence[str]) -> Form:
    """Return the form as it is before anybody changed it, for a study's *workloads*, of which it has some."""
    presets = list_presets("network")
    network = _FIRST_NETWORK if _FIRST_NETWORK in presets else presets[0]
    return Form(workloads[-1], Setup.of_presets(network, _FIRST_SYSTEM))


def encode_form(form: Form, workloads: Sequence[str], begun: Form | None = None) -> str:
    """Return *form* as text, ``""`` if nobody changed it since it was *begun*, by default the first form.

    The text does not depend on what it was begun as, nor on which workload is the newest.
    """
    first, start = first_form(workloads), form.setup.start()
    if form == (begun or first):
        return ""
    setup = form.setup
    changes = {
        "workload": form.workload,
        "network": setup.network_preset != first.setup.network_preset and setup.network_preset,
        "system": setup.system_preset != first.setup.system_preset and setup.system_preset,
        "dimensions": setup.dimensions != start.dimensions and [_row(each) for each in setup.dimensions],
        "keys": {
            key: setup.system.get(key)
            for key in SYSTEM_FIELDS
            if setup.system.get(key) != start.system.get(key)
        },
        "failures": bool(setup.failed) and [*setup.failed],
        "backends": form.backends != first.backends and [*form.backends],
        "label": form.label,
    }
    fields = {key: value for key, value in changes.items() if value not in (False, {}, "")}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False) if fields else ""


def form_of_workload(name: str) -> str:
    """Return as text the first form, of the workload *name*, whichever run is shown."""
    return json.dumps({"workload": name}, separators=(",", ":"), ensure_ascii=False)


def decode_form(
    text: str, workloads: Sequence[str], networks: Networks = PRESETS, begun: Form | None = None
) -> Form:
    """Return the form that :func:`encode_form` wrote; what is missing is as at first.

    No text is the form that was *begun*.

    What makes no sense is as at first, too, and named in what the form *ignored*.
    """
    first, ignored = first_form(workloads), _Ignored()
    if not text:
        return begun or first
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return replace(first, ignored=("The setup in the address is broken off or not one.",))
    for key in fields.keys() - _PARTS:
        ignored.append(f"'{key[:40]}' is not part of a setup.")
    network = ignored.one_of("network", fields, networks.names, first.setup.network_preset)
    system = ignored.one_of("system", fields, list_presets("system"), first.setup.system_preset)
    workload = ignored.one_of("workload", fields, workloads, first.workload)
    try:
        setup = Setup.of_presets(network, system, networks)
    except ConfigError as error:  # of a file that is no network any more
        ignored.append(error.message)
        setup = Setup.of_presets(first.setup.network_preset, system)
    if "dimensions" in fields:
        rows = fields["dimensions"]
        if isinstance(rows, list) and 0 < len(rows) <= _MOST_DIMENSIONS and all(map(_is_row, rows)):
            setup = replace(setup, dimensions=tuple(_dimension(row) for row in rows))
        else:
            ignored.append("Its network dimensions are not written as they should be.")
    setup = replace(setup, system=_with_keys(setup.system, fields.get("keys", {}), ignored))
    setup = replace(setup, failed=_failures(fields, ignored))
    chosen = _backends(fields, first.backends, ignored)
    label = fields.get("label", "")
    if not isinstance(label, str) or len(label) > _LABEL_LENGTH:
        ignored.append(f"Its name is not text of at most {_LABEL_LENGTH} characters.")
        label = ""
    return Form(workload, setup, chosen, label, tuple(ignored))


class _Ignored(list[str]):
    """Sentences on what an address holds that makes no sense."""

    def one_of(self, key: str, fields: Mapping[str, Any], allowed: Sequence[str], otherwise: str) -> str:
        """Return what is *fields* of *key* if it is *allowed*."""
        value = fields.get(key, otherwise)
        if isinstance(value, str) and value in allowed:
            return value
        self.append(f"There is no {key} '{str(value)[:40]}' here.")
        return otherwise


def _backends(fields: Mapping[str, Any], otherwise: tuple[str, ...], ignored: _Ignored) -> tuple[str, ...]:
    named = fields.get("backends", [*otherwise])
    if not isinstance(named, list):
        ignored.append("Its backends are no list.")
        return otherwise
    known: dict[str, str] = {}
    for name in named:
        if not is_offered(name):
            ignored.append(f"There is no backend '{str(name)[:40]}' here.")
        elif known.setdefault(plain_backend(name), plain_name(name)) != plain_name(name):
            ignored.append(f"'{name}' is a second machine, and a form has one.")
    return tuple(known.values())


def _failures(fields: Mapping[str, Any], ignored: _Ignored) -> tuple[str, ...]:
    """Return the failures that an address names, all of them or none."""
    named = fields.get("failures", [])
    if not isinstance(named, list) or len(named) > _MOST_FAILURES or not all(map(_is_text, named)):
        ignored.append("Its failures are no list of texts.")
        return ()
    try:
        for text in named:
            failure_of_text(text)
    except ConfigError as error:
        ignored.append(f"A failure of it: {error.message}")
        return ()
    return tuple(named)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _row(dimension: Dimension) -> list[Any]:
    return [
        dimension.topology,
        dimension.size,
        dimension.bandwidth,
        dimension.latency,
        *dimension.algorithms,
    ]


def _is_row(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 4 + len(COLLECTIVES):
        return False
    texts, numbers = [row[0], *row[4:]], row[1:4]
    whole = _is_number(row[1]) and float(row[1]).is_integer()
    return all(isinstance(text, str) for text in texts) and all(map(_is_number, numbers)) and whole


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _dimension(row: Sequence[Any]) -> Dimension:
    return Dimension(row[0], int(row[1]), float(row[2]), float(row[3]), tuple(row[4:]))


def _with_keys(system: Mapping[str, Any], keys: Any, ignored: _Ignored) -> dict[str, Any]:
    """Return *system* with the changed *keys*; None takes a key away."""
    changed = dict(system)
    if not isinstance(keys, dict):
        ignored.append("The keys of its system are no object.")
        return changed
    for key, value in keys.items():
        if key not in SYSTEM_FIELDS or not (value is None or isinstance(value, str) or _is_number(value)):
            ignored.append(f"The key '{key[:40]}' of the system cannot be set so.")
        elif value is None:
            changed.pop(key, None)
        else:
            changed[key] = value
    return changed
