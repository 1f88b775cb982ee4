"""Attribute the difference between two simulations to the settings that differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from math import factorial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError, UsageError
from ...support import duration_text
from .._experiment import Detail, Experiment
from .._traits import about_backend
from ..backends import get_backend
from ..config import MemoryConfig, NetworkConfig, SystemConfig, digests
from ..gpu import machine_of_plain
from ._run import RunAnalysis
from ._settings import Setting, settings_of

if TYPE_CHECKING:
    import pandas as pd

_MAX_SETTINGS = 5
"""Number of settings whose combinations are all simulated (32); further settings count as one."""
_MACHINE = ("options", "machine")
_PROGRAMS = ("programs",)
_MAX_NAMES = 4


def difference_of_runs(
    base: RunAnalysis,
    other: RunAnalysis,
    progress: Callable[[int, int], None] | None = None,
    may_continue: Callable[[], bool] | None = None,
) -> pd.DataFrame:
    """Return how much each setting contributes to the difference of two runs (see `difference_by_setting`).

    Raises `UsageError` for measurements, and for runs whose makespan is not reproduced when
    simulated again.
    """
    table = difference_by_setting(base.experiment(), other.experiment(), progress, may_continue)
    noted = other.result.makespan_ns - base.result.makespan_ns
    simulated = int(table["delta_ns"].sum())
    if simulated != noted:
        raise UsageError(
            f"The runs {base.info.id} and {other.info.id} differ by {duration_text(noted)}, but by "
            f"{duration_text(simulated)} if they are simulated again, so another version of chakrascope made "
            "one of them. Next: delete both with `chakrascope runs STUDY --delete ID`, and run them again."
        )
    return table


class _Change(NamedTuple):
    """A named group of settings that change together."""

    name: str
    settings: tuple[Setting, ...]


def difference_by_setting(
    base: Experiment,
    other: Experiment,
    progress: Callable[[int, int], None] | None = None,
    may_continue: Callable[[], bool] | None = None,
) -> pd.DataFrame:
    """Return how much each differing setting contributes to the makespan of *other* minus that of *base*.

    The result has a row per setting, the largest first: ``setting, base, other, delta_ns, share,
    alone_ns``. ``delta_ns`` is the Shapley value, the mean change by this setting over all orders of
    changing the settings, rounded so that rows add up exactly. ``alone_ns`` is the change if only this
    setting of *base* becomes that of *other*. Of more than five settings, only the four with the largest
    ``alone_ns`` have separate rows. Settings that cannot be mixed count as one. *progress* receives the
    number of finished simulations and their maximum number. *may_continue* may return False to cancel.

    Raises `UsageError` for measurements, which cannot be simulated, and `Cancelled`.
    """
    import pandas as pd  # noqa: PLC0415

    for experiment in (base, other):
        if not attributable(experiment.backend):
            raise UsageError(
                f"A run on '{experiment.backend}' is measured, so its settings cannot be changed one at a "
                "time. Next: name two simulations with --run."
            )
    differing = _differing(base, other)
    by_part = [
        _Change(_joined_name(part, items), items)
        for part, group in groupby(differing, key=_part)
        for items in [tuple(group)]
    ]
    every = [_Change("all settings, which can only change together", tuple(differing))] if differing else []
    each = [_Change(setting.name, (setting,)) for setting in differing]
    for changes in (each, by_part):
        try:
            chosen, values, alone = _attributed(base, other, changes, progress, may_continue)
            break
        except ConfigError:
            continue  # the mixed settings are not a valid configuration
    else:
        chosen, values, alone = _attributed(base, other, every, progress, may_continue)
    total = sum(values)
    largest_first = sorted(zip(chosen, values, alone, strict=True), key=lambda row: -abs(row[1]))
    rows = [
        {"setting": change.name, **_texts(change, base, other), "delta_ns": value,
         "share": value / total if total else 0.0, "alone_ns": single}
        for change, value, single in largest_first
    ]  # fmt: skip
    columns = ["setting", "base", "other", "delta_ns", "share", "alone_ns"]
    table: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return table


def attributable(backend: str) -> bool:
    """Return whether runs of *backend* can be simulated again with other settings."""
    traits = about_backend(backend)
    return not (traits.replays or traits.measures)


def shapley_values(count: int, value: Callable[[int], int]) -> list[int]:
    """Return the Shapley values of *count* players, rounded to integers with sum value(all) - value(none).

    *value* returns the value of a coalition, given as a bit mask of players. The values with the
    largest remainders are rounded up.
    """
    everyone = (1 << count) - 1
    orders = factorial(count)
    sums = [0] * count  # sums over all orders, not yet divided by their number
    for coalition in range(everyone):
        size = coalition.bit_count()
        weight = factorial(size) * factorial(count - size - 1)
        for player in range(count):
            if not coalition >> player & 1:
                sums[player] += weight * (value(coalition | 1 << player) - value(coalition))
    rounded = [total // orders for total in sums]
    missing = value(everyone) - value(0) - sum(rounded)
    by_remainder = sorted(range(count), key=lambda player: -(sums[player] % orders))
    for player in by_remainder[:missing]:
        rounded[player] += 1
    return rounded


def _attributed(
    base: Experiment,
    other: Experiment,
    changes: Sequence[_Change],
    progress: Callable[[int, int], None] | None,
    may_continue: Callable[[], bool] | None,
) -> tuple[Sequence[_Change], list[int], list[int]]:
    """Return *changes* with Shapley values and single effects; of too many, the smallest are merged."""
    makespans: dict[frozenset[str], int] = {}
    within = (lambda _ns, _ranks: may_continue()) if may_continue is not None else None
    settings = sum(len(change.settings) for change in changes)
    most = (1 << min(len(changes), _MAX_SETTINGS)) + (len(changes) if len(changes) > _MAX_SETTINGS else 0)

    def makespan(chosen: Sequence[_Change]) -> int:
        items = [setting for change in chosen for setting in change.settings]
        key = frozenset(setting.name for setting in items)
        if key not in makespans:
            mixed = other if len(items) == settings else _mixed(base, other, items)
            mixed = replace(mixed, detail=Detail.TOTALS)
            makespans[key] = get_backend(mixed.backend).run(mixed, within).makespan_ns
            if progress is not None:
                progress(len(makespans), most)
        return makespans[key]

    def effect(change: _Change) -> int:
        return makespan([change]) - makespan([])

    if len(changes) > _MAX_SETTINGS:
        ordered = sorted(changes, key=lambda change: -abs(effect(change)))
        first, rest = ordered[: _MAX_SETTINGS - 1], ordered[_MAX_SETTINGS - 1 :]
        together = tuple(setting for change in rest for setting in change.settings)
        changes = [*first, _Change(_joined_name("others", together), together)]

    @cache
    def value(mask: int) -> int:
        return makespan([change for place, change in enumerate(changes) if mask >> place & 1])

    return changes, shapley_values(len(changes), value), [effect(change) for change in changes]


def _joined_name(part: str, settings: Sequence[Setting]) -> str:
    if len(settings) == 1:
        return settings[0].name
    names = [setting.name for setting in settings[:_MAX_NAMES]]
    more = len(settings) - len(names)
    return f"{part}: {', '.join(names)}{f' and {more} more' if more else ''}"


def _part(setting: Setting) -> str:
    """Return the name of the part of the configuration that can only change together with *setting*."""
    part = str(setting.keys[0])
    return {"groups": "workload", "network": "network and system", "system": "network and system"}.get(
        part, part
    )


def _texts(change: _Change, base: Experiment, other: Experiment) -> dict[str, str]:
    """Return the values of a *change* in both experiments, "" if it has several settings."""
    if len(change.settings) > 1:
        return {"base": "", "other": ""}
    keys = change.settings[0].keys
    sides = {"base": base, "other": other}
    return {side: _by_keys(experiment)[keys].text if keys in _by_keys(experiment) else "not given"
            for side, experiment in sides.items()}  # fmt: skip


def _differing(base: Experiment, other: Experiment) -> list[Setting]:
    """Return the settings that differ between *base* and *other*, or that only one of them has."""
    ours, theirs = _by_keys(base), _by_keys(other)
    both_machines = base.gpu_machine is not None and other.gpu_machine is not None
    one_machine = (base.gpu_machine is None) is not (other.gpu_machine is None)
    rows = []
    for keys, setting in (ours | theirs).items():
        if keys in ours and keys in theirs and ours[keys].value == theirs[keys].value:
            continue
        # A machine's name only labels its figures. If only one run has a machine, its backend implies it.
        named = keys == (*_MACHINE, "name") or (keys == ("backend",) and both_machines)
        if not named and not (one_machine and keys[:2] == _MACHINE):
            rows.append(setting)
    return rows


def _by_keys(experiment: Experiment) -> dict[tuple[str | int, ...], Setting]:
    """Return the settings of *experiment* by their keys, including workload and backend."""
    plain = _plain(experiment)
    rows = [
        Setting("workload", ("workload",), plain["workload"][:8]),
        Setting("groups", ("groups",), plain["groups"]),
        Setting("backend", ("backend",), plain["backend"]),
        Setting("collective programs", _PROGRAMS, plain["programs"]),
        *(setting for setting in settings_of(plain) if not _names_file(setting.keys)),
    ]
    return {setting.keys: setting for setting in rows}


def _names_file(keys: tuple[str | int, ...]) -> bool:
    """Return whether a setting names files of collective programs, which are compared by content."""
    return keys[0] == "system" and ("custom" in str(keys[1]) or str(keys[1]).endswith("-programs"))


def _mixed(base: Experiment, other: Experiment, settings: Sequence[Setting]) -> Experiment:
    """Return *base* with the values of *settings* from *other*; raises `ConfigError` for an invalid mix."""
    if not settings:
        return base
    plain, others = _plain(base), _plain(other)
    chosen = [setting.keys for setting in settings]
    folder = base.system.folder
    if _PROGRAMS in chosen:
        folder = other.system.folder
        files = {("system", key): None for side in (plain, others) for key in side["system"]}
        chosen += [keys for keys in files if _names_file(keys)]
    if ("backend",) in chosen:
        chosen.append(_MACHINE)
    for keys in chosen:
        _copy(plain, others, keys)
    options = dict(plain["options"])
    machine = options.pop("machine", None)
    where = "The settings of both runs together"
    workload = other.workload if plain["workload"] == other.workload.content_hash else base.workload
    return Experiment(
        workload,
        replace(SystemConfig.from_mapping(plain["system"], where), folder=folder),
        NetworkConfig.from_mapping(plain["network"], where),
        MemoryConfig.from_mapping(plain["memory"], where),
        groups={int(group): tuple(members) for group, members in plain["groups"].items()},
        backend=plain["backend"],
        machine=machine_of_plain(machine) if machine is not None else None,
        **options,
    )


def _plain(experiment: Experiment) -> dict[str, Any]:
    """Return every setting that determines the result of *experiment*, by part of the configuration."""
    programs = {use: digest[:8] for use, digest in digests(experiment.system).items()}
    hashed = {"workload": experiment.workload.content_hash, "programs": programs}
    return copy.deepcopy(experiment.describe() | hashed | {"system": experiment.system.to_dict()})


def _copy(target: dict[str, Any], source: Mapping[str, Any], keys: Sequence[str | int]) -> None:
    """Copy the value at *keys* from *source* to *target*, or remove it if *source* lacks it."""
    inside: Any = target
    given: Any = source
    for key in keys[:-1]:
        inside, given = inside[key], given[key]
    last = keys[-1]
    if isinstance(given, list) and isinstance(last, int):
        if len(given) != len(inside):
            raise ConfigError(
                "The networks have different numbers of dimensions, so all network settings change together."
            )
        inside[last] = given[last]
    elif last in given:
        inside[last] = given[last]
    else:
        inside.pop(last, None)
