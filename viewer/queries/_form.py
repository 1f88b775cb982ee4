"""The form New run as text for an address, and its initial values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

from ...errors import ChakrascopeError, ConfigError
from ...runner import DEFAULT_BACKEND, NetworkConfig, Study, SystemConfig, about_backend, list_presets
from ...runner.config import BANDWIDTH, DELAY_NS, INTEGER, failure_of_text
from ...runner.engine import COLLECTIVES, FIELDS
from ...runner.prediction import find_machine
from ...runner.study import run_name
from ...support import (
    bandwidth_text,
    count_text,
    duration_text,
    parse_bandwidth,
    parse_duration,
    parse_flops,
    parse_number,
)
from .._state import Selection, StudyView
from ._configure import (
    CHANGED,
    MAX_RANKS,
    PRESETS,
    Dimension,
    Networks,
    Setup,
    is_offered,
    plain_backend,
    plain_name,
    systems_for,
)

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
"""Keys of a system file that have a field in the form."""
_FIRST_NETWORK, _FIRST_SYSTEM = "cpu-cluster-16", "default"
_FIRST_BACKENDS = (DEFAULT_BACKEND,)
_MAX_DIMENSIONS = 4
_PARTS = {"workload", "machine", "network", "system", "dimensions", "keys", "failures", "backends", "label"}
_MAX_FAILURES = 100
_LABEL_LENGTH = 120


@dataclass(frozen=True)
class Form:
    """The content of the form New run: workload, setup, *backends* and label.

    *ignored* has a sentence for each unusable part of the address.
    """

    workload: str
    setup: Setup
    backends: tuple[str, ...] = _FIRST_BACKENDS
    label: str = ""
    ignored: tuple[str, ...] = field(default=(), compare=False)


def first_form(workloads: Sequence[str]) -> Form:
    """Return the initial form for a study with *workloads*, which must not be empty."""
    presets = list_presets("network")
    network = _FIRST_NETWORK if _FIRST_NETWORK in presets else presets[0]
    return Form(workloads[-1], Setup.of_presets(network, _FIRST_SYSTEM))


def encode_form(form: Form, workloads: Sequence[str], begun: Form | None = None) -> str:
    """Return *form* as text, or ``""`` if it equals *begun* (default: the initial form).

    Any other text has the same meaning for every *begun* and every newest workload.
    """
    first, start = first_form(workloads), form.setup.start()
    if form == (begun or first):
        return ""
    setup = form.setup
    named = first.setup if setup.machine else setup  # a machine determines the presets
    changes = {
        "workload": form.workload,
        "machine": setup.machine,
        "network": named.network_preset != first.setup.network_preset and named.network_preset,
        "system": named.system_preset != first.setup.system_preset and named.system_preset,
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
    return to_address(fields)


def to_address(value: Any) -> str:
    """Return *value* as text for an address; "" for an empty value."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) if value else ""


def of_address(text: str) -> Any:
    """Parse text that `to_address` wrote; None for "" and for invalid text."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def form_of_workload(name: str) -> str:
    """Return the initial form with the workload *name* as text, independent of the current run."""
    return to_address({"workload": name})


def decode_form(
    text: str, workloads: Sequence[str], networks: Networks = PRESETS, begun: Form | None = None
) -> Form:
    """Parse text that :func:`encode_form` wrote; "" means the form *begun*.

    Missing and invalid parts have the values of the initial form; ``ignored`` names the invalid parts.
    """
    first, ignored = first_form(workloads), _Ignored()
    if not text:
        return begun or first
    fields = of_address(text)
    if not isinstance(fields, dict):
        return replace(first, ignored=("The setup in the address is incomplete or invalid.",))
    for key in fields.keys() - _PARTS:
        ignored.append(f"'{key[:40]}' is not part of a setup.")
    network = ignored.one_of("network", fields, networks.names, first.setup.network_preset)
    system = ignored.one_of("system", fields, list_presets("system"), first.setup.system_preset)
    if system not in systems_for(network):
        ignored.append(f"No machine has the network {network} and the peaks of {system}.")
        system = first.setup.system_preset
    workload = ignored.one_of("workload", fields, workloads, first.workload)
    machine = ignored.one_of("machine", fields, ["", *chain(*networks.machines.values())], "")
    try:
        setup = networks.start(network, system, machine, workload)
    except ChakrascopeError as error:  # a stored file is damaged or was replaced
        ignored.append(error.message)
        setup = first.setup
    if "dimensions" in fields:
        rows = fields["dimensions"]
        if isinstance(rows, list) and 0 < len(rows) <= _MAX_DIMENSIONS and all(map(_is_row, rows)):
            setup = replace(setup, dimensions=tuple(_dimension(row) for row in rows))
        else:
            ignored.append("The network dimensions of the setup are malformed.")
    setup = replace(setup, system=_with_keys(setup.system, fields.get("keys", {}), ignored))
    setup = replace(setup, failed=_failures(fields, ignored))
    chosen = _backends(fields, first.backends, ignored)
    label = fields.get("label", "")
    if not isinstance(label, str) or len(label) > _LABEL_LENGTH:
        ignored.append(f"The name of the setup is not text of at most {_LABEL_LENGTH} characters.")
        label = ""
    return Form(workload, setup, chosen, label, tuple(ignored))


class _Ignored(list[str]):
    """Collects sentences about invalid parts of an address."""

    def one_of(self, key: str, fields: Mapping[str, Any], allowed: Sequence[str], otherwise: str) -> str:
        """Return the value of *key* in *fields* if *allowed* contains the value, otherwise *otherwise*."""
        value = fields.get(key, otherwise)
        if isinstance(value, str) and value in allowed:
            return value
        self.append(f"There is no {key} '{str(value)[:40]}' here.")
        return otherwise


def _backends(fields: Mapping[str, Any], otherwise: tuple[str, ...], ignored: _Ignored) -> tuple[str, ...]:
    named = fields.get("backends", [*otherwise])
    if not isinstance(named, list):
        ignored.append("The backends of the setup are not a list.")
        return otherwise
    known: dict[str, str] = {}
    for name in named:
        if not is_offered(name):
            ignored.append(f"There is no backend '{str(name)[:40]}' here.")
        elif known.setdefault(plain_backend(name), plain_name(name)) != plain_name(name):
            ignored.append(f"'{name}' is a second machine, and a form has one.")
    return tuple(known.values())


def _failures(fields: Mapping[str, Any], ignored: _Ignored) -> tuple[str, ...]:
    """Return the failures in *fields*, or () if any failure is invalid."""
    named = fields.get("failures", [])
    if not isinstance(named, list) or len(named) > _MAX_FAILURES or not all(map(_is_text, named)):
        ignored.append("The failures of the setup are not a list of texts.")
        return ()
    try:
        for text in named:
            failure_of_text(text)
    except ConfigError as error:
        ignored.append(f"One of the failures is invalid: {error.message}")
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
    whole = is_number(row[1]) and float(row[1]).is_integer()
    return all(isinstance(text, str) for text in texts) and all(map(is_number, numbers)) and whole


def is_number(value: Any) -> bool:
    """Return whether a JSON *value* is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _dimension(row: Sequence[Any]) -> Dimension:
    return Dimension(row[0], int(row[1]), float(row[2]), float(row[3]), tuple(row[4:]))


def _with_keys(system: Mapping[str, Any], keys: Any, ignored: _Ignored) -> dict[str, Any]:
    """Return *system* with *keys* set; None removes a key."""
    changed = dict(system)
    if not isinstance(keys, dict):
        ignored.append("The system keys of the setup are not an object.")
        return changed
    for key, value in keys.items():
        if key not in SYSTEM_FIELDS or not (value is None or isinstance(value, str) or is_number(value)):
            ignored.append(f"The key '{key[:40]}' of the system has an invalid value.")
        elif value is None:
            changed.pop(key, None)
        else:
            changed[key] = value
    return changed


MAX_TRIALS = 5_000
_GIB_PER_S = Fraction(2**30, 10**9)  # 1 GiB/s in bytes/ns


@dataclass(frozen=True)
class Reading:
    """The parsed text of a field: a *value* in the field's unit, or a *problem*.

    *value* is None if there is a problem. *understood* is the value as text, and *short* is the problem in a
    few words.
    """

    value: int | float | None = None
    understood: str = ""
    problem: str = ""
    short: str = ""


@dataclass(frozen=True)
class NumberField:
    """A number from *least* to *most*, in the field's *unit* unless another unit is typed.

    *parse* converts typed text, and *text* formats the value. With *may_be_empty*, an empty text is also
    valid.
    """

    title: str
    parse: Callable[[Any], Fraction]
    text: Callable[[float], str]
    example: str
    whole: bool = False
    least: float = 0
    most: float = INTEGER
    may_be_empty: bool = False
    unit: str = ""

    @property
    def label(self) -> str:
        """The title with the unit of a bare number."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def read(self, typed: Any) -> Reading:
        """Parse *typed* text; invalid text gives a problem and is never corrected."""
        if typed is None or not str(typed).strip():
            return Reading() if self.may_be_empty else self._wrong("it is empty", f"Write {self.example}.")
        try:
            exact = self.parse(typed)
        except ValueError as error:
            return self._wrong(str(error).rstrip("."), f"This value cannot be read; write {self.example}.")
        if exact < self.least or exact > self.most:
            problem = f"{str(typed).strip()[:40]!r} is out of range; it must be {self._range}"
            return self._wrong(problem, f"Must be {self._range}.")
        if self.whole and exact.denominator != 1:
            return self._wrong(f"{str(typed).strip()[:40]!r} is not a whole number", "Must be whole.")
        value = int(exact) if exact.denominator == 1 and (self.whole or abs(exact) < 2**53) else float(exact)
        return Reading(value, self.text(value))

    def value(self, typed: Any) -> int | float | None:
        """Parse *typed* text; raises `ConfigError` with the problem if it is invalid."""
        reading = self.read(typed)
        if reading.problem:
            raise ConfigError(reading.problem)
        return reading.value

    @property
    def _range(self) -> str:
        return f"a number from {Decimal(str(self.least)):f} to {self.most:,.10g}"

    def _wrong(self, why: str, short: str) -> Reading:
        return Reading(problem=f"{self.title}: {why}.", short=short)


def typed_text(value: Any) -> str:
    """Return a number as text without loss of precision; "" for None."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def _link_rate(gib_per_s: float) -> str:
    per_ns = gib_per_s * float(_GIB_PER_S)
    return f"{bandwidth_text(per_ns, 'GiB/s')} = {bandwidth_text(per_ns)}"


def _count(
    title: str, noun: str, least: float, most: float, *, may_be_empty: bool = False, unit: str = ""
) -> NumberField:
    return NumberField(
        title, lambda typed: parse_number(typed, noun=noun), lambda value: count_text(int(value), noun[:-1]),
        "a whole number", whole=True, least=least, most=most, may_be_empty=may_be_empty, unit=unit,
    )  # fmt: skip


DIMENSION_FIELDS: Mapping[str, NumberField] = {
    "size": _count("Size", "ranks", 2, MAX_RANKS, unit="ranks"),
    "bandwidth": NumberField(
        "Bandwidth", lambda typed: parse_bandwidth(typed, bare="GiB/s") / _GIB_PER_S, _link_rate,
        "9.3, 10 GB/s or 80 Gb/s", least=BANDWIDTH[0], most=BANDWIDTH[1], unit="GiB/s",
    ),
    "latency": NumberField(
        "Latency", parse_duration, duration_text, "500, 500 ns or 1.5 us", most=DELAY_NS[1], unit="ns"
    ),
}  # fmt: skip
"""Fields of a network dimension: ranks, bandwidth in GiB/s, latency in ns."""
NUMBER_FIELDS: Mapping[str, NumberField] = {
    "preferred-dataset-splits": _count(
        "Chunks", "chunks", *FIELDS["preferred_dataset_splits"].limits, may_be_empty=True
    ),
    "active-chunks-per-dimension": _count(
        "Active chunks", "chunks", *FIELDS["active_chunks_per_dimension"].limits, may_be_empty=True
    ),
    "endpoint-delay": NumberField(
        "Endpoint delay", parse_duration, duration_text, "10, 10 ns or 1.5 us", whole=True,
        most=FIELDS["endpoint_delay"].largest, may_be_empty=True, unit="ns",
    ),
    "local-mem-bw": NumberField(
        "Memory bandwidth", parse_bandwidth, bandwidth_text, "1600, 1.6 TB/s or 1500 GiB/s",
        most=FIELDS["local_mem_bw"].largest, may_be_empty=True, unit="GB/s",
    ),
    "peak-perf": NumberField(
        "Peak rate", lambda typed: parse_flops(typed) / 10**12, lambda value: f"{value:,.6g} TFLOP/s",
        "312 or 1.2 PFLOP/s", most=FIELDS["peak_perf"].largest, may_be_empty=True, unit="TFLOP/s",
    ),
}  # fmt: skip
"""Numeric fields of a system file, in chunks, ns, GB/s or TFLOP/s."""
TIMES = NumberField(
    "Times as fast", lambda typed: parse_number(typed, noun="times"), lambda value: f"{value:g} times",
    "2 or 0.5", least=0.01, most=1000,
)  # fmt: skip
"""The factor by which a what-if speeds up its target."""
TRIALS = _count("Points to try", "points", 1, MAX_TRIALS, may_be_empty=True)
"""The number of points that a search tries."""
SAVED_RUNS = _count("Best points to keep", "points", 0, 20)
"""The number of points that a sweep saves as runs."""


@dataclass(frozen=True)
class Begun:
    """A page's initial *form*, the run that it is *of*, and *notes* on settings that the form omits."""

    form: Form
    of: str = ""
    notes: tuple[str, ...] = ()


def begun_from(study: Study, run_id: str, networks: Networks) -> Begun:
    """Return the form that starts from the run *run_id*; the study needs a workload.

    If a form cannot express the run's setup, the form has presets, and a note states the reason.
    """
    names = study.workloads()
    first = first_form(names)
    info = next((info for info in study.runs() if info.id == run_id), None)
    if info is None:
        return Begun(first)
    of = run_name(info)
    workload = info.workload if info.workload in names else first.workload
    lost = (
        ()
        if info.workload in names
        else ((f"The workload '{info.workload[:80]}' of the run is not in the study."),)
    )
    if about_backend(info.backend).replays:
        note = "The run was measured and has no network, so the network is a preset."
        return Begun(replace(first, workload=workload), of, (*lost, note))
    backends = (plain_name(info.backend),) if is_offered(info.backend) else first.backends
    if not is_offered(info.backend):
        note = f"Its backend '{info.backend[:80]}' cannot be chosen here: {backends[0]} is used instead."
        lost = (*lost, note)
    begun = replace(first, workload=workload, backends=backends)
    try:
        setup, notes = _setup_of(study.run_configs(run_id), info.network, workload, networks)
    except ChakrascopeError as error:
        return Begun(begun, of, (*lost, f"The configuration of the run cannot be copied: {error.message}"))
    if setup is None:
        note = (
            f"Its network '{info.network[:80]}' is neither a preset or file here nor made of dimensions, so "
            "a preset is used instead; add its file below."
        )
        return Begun(begun, of, (*lost, note))
    return Begun(replace(begun, setup=setup), of, (*lost, *notes))


def form_at(view: StudyView, selection: Selection) -> tuple[Form, Begun]:
    """Return the form in the address *selection*, and the form of an address without settings.

    The study needs a workload.
    """
    networks = Networks(view.study)
    begun = begun_from(view.study, view.resolve(selection.run), networks)
    return decode_form(selection.option("setup"), view.study.workloads(), networks, begun.form), begun


def _setup_of(
    configs: tuple[NetworkConfig, SystemConfig], title: str, workload: str, networks: Networks
) -> tuple[Setup | None, Sequence[str]]:
    """Return the setup for *configs*, and notes on keys that a form cannot show, or None."""
    network, system = configs
    own = Setup.of_configs(network, system)
    machine = _machine_of(own, title, workload, networks)
    if machine is not None:
        return machine, ()
    preset = _begins_as(own, title.removesuffix(CHANGED), networks)
    if preset is None:
        return None, ()
    start = Setup.of_presets(preset, "default", networks)
    kept = {key: value for key, value in start.system.items() if key not in SYSTEM_FIELDS}
    shown: dict[str, Any] = {key: value for key, value in own.system.items() if key in SYSTEM_FIELDS}
    hidden = {key: value for key, value in own.system.items() if key not in SYSTEM_FIELDS}
    notes = [
        f"'{key}' of its system keeps the value of the preset."
        for key in sorted({*hidden, *kept})
        if hidden.get(key) != kept.get(key)
    ]
    # The keys are in the order of the preset, as in a setup read from the fields.
    keys = [*start.system, *(key for key in shown if key not in start.system)]
    whole = {key: (shown if key in SYSTEM_FIELDS else kept)[key] for key in keys if key in {**shown, **kept}}
    return replace(start, dimensions=own.dimensions, system=whole), notes


def _begins_as(own: Setup, title: str, networks: Networks) -> str | None:
    """Return a network in *networks* whose hidden keys equal those of *own*, or None.

    If the form starts from this network, its fields can describe *own*. The name *title* is tried first.
    """
    likely = [name for name in networks.names if title in {name, Path(name).stem}]
    for name in [*likely, first_form(("",)).setup.network_preset]:
        if Setup.of_presets(name, "default", networks).more == own.more:
            return name
    return None


def _machine_of(own: Setup, title: str, workload: str, networks: Networks) -> Setup | None:
    """Return the setup of the machine whose network is called *title*, if it equals *own*, or None.

    Only machines with modelled compute times differ from a network preset.
    """
    if not own.system.get("roofline-enabled"):
        return None
    for name in chain(*networks.machines.values()):
        as_large = name == title or name.startswith(f"{own.num_ranks}x")
        if as_large and find_machine(name).network.name == title:
            setup = networks.start("", "", name, workload)
            if (setup.dimensions, setup.system, setup.more) == (own.dimensions, own.system, own.more):
                return setup
    return None
