"""The form of a sweep: axes and values, limits, prices, and searches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import ChakrascopeError, ConfigError
from ...runner import DEFAULT_BACKEND, Communication, SweepRequest, list_presets
from ...runner.engine import ALGORITHMS, COLLECTIVES, TOPOLOGIES
from ...runner.sweep import FIGURES, Goal, Prices, Range, Search, check_cost, grid, parse_axis, parse_limits
from ...support import duration_text
from ._configure import Setup, check, differences
from ._form import (
    DIMENSION_FIELDS,
    MAX_TRIALS,
    NUMBER_FIELDS,
    Form,
    is_number,
    of_address,
    to_address,
    typed_text,
)

MAX_AXES = 4
_MAX_TRIED = 200
_TEXT_LENGTH = 400
# Key of a network file -> title and unit of a dimension's values.
_DIMENSION = {"topology": ("Shape", "")} | {
    key: (field.title, f" ({field.unit})")
    for key, field in zip(("npus_count", "bandwidth", "latency"), DIMENSION_FIELDS.values(), strict=True)
}
_SYSTEM = {f"system.{key}": field.label for key, field in NUMBER_FIELDS.items()}
_SYSTEM["system.collective-optimization"] = "Collective optimization"
_CHOICES: Mapping[str, Sequence[str]] = {
    "topology": TOPOLOGIES,
    "collective-optimization": ("baseline", "localBWAware"),
    **{f"{name}-implementation": ALGORITHMS for name in COLLECTIVES},
}
Over = Mapping[str, Sequence[Any] | Range]
"""The values of each swept key or, for a search, a range."""
Axes = Sequence[tuple[str, str]]
"""Pairs of a swept key, such as ``network.bandwidth[0]``, and the text of its values."""


LEAST: Mapping[str, str] = {
    "makespan_ns": "the shortest step",
    "cost": "the least cost of a step",
    "rank_time_ns": "the least time of all ranks",
    "ranks": "the fewest ranks",
    "exposed_comm_ns": "the least exposed communication",
    "comm_ns": "the least communication",
    "compute_ns": "the least computing",
    "overlap_ns": "the least overlap",
}
"""Figure -> description of its minimum, a possible objective."""


@dataclass(frozen=True)
class Aim:
    """The objective as typed, in the notation of ``chakrascope sweep``.

    *limits* are ``FIGURE=NUMBER``, and *prices* are ``NUMBER`` or ``NETWORK=NUMBER``, separated by commas.
    With *trials*, a search simulates this number of points instead of all combinations.
    """

    least: str = "makespan_ns"
    limits: str = ""
    prices: str = ""
    trials: int = 0


def encode_aim(aim: Aim) -> str:
    """Return *aim* as text for an address; "" for the default."""
    fields = {key: value for key, value in asdict(aim).items() if value != getattr(Aim, key)}
    return to_address(fields)


def decode_aim(text: str) -> Aim:
    """Parse text that :func:`encode_aim` wrote; invalid parts get defaults."""
    fields = of_address(text)
    return (
        parsed_aim(**{key: fields.get(key) for key in asdict(Aim())}) if isinstance(fields, dict) else Aim()
    )


def parsed_aim(*, least: Any, limits: Any, prices: Any, trials: Any) -> Aim:
    """Return the objective in a form's fields; invalid fields get defaults."""
    return Aim(
        least if least in FIGURES else Aim.least,
        limits[:_TEXT_LENGTH] if isinstance(limits, str) else "",
        prices[:_TEXT_LENGTH] if isinstance(prices, str) else "",
        int(trials) if is_number(trials) and float(trials).is_integer() else 0,
    )


def aim_goal(aim: Aim) -> Goal:
    """Return the goal of *aim*, without limits if these are invalid."""
    try:
        return Goal(aim.least, parse_limits(_items(aim.limits)))
    except ChakrascopeError:
        return Goal(aim.least)


def checked_aim(
    aim: Aim, over: Mapping[str, Sequence[Any] | Range], network: str, preset: str
) -> tuple[Goal, Prices]:
    """Return goal and prices of a sweep from *network*, which is *preset* or was changed.

    Raises the errors of ``chakrascope sweep``: for invalid figures, limits or prices, the objective
    "cost" without prices, and an impossible search.
    """
    goal = Goal(aim.least, parse_limits(_items(aim.limits)))
    prices = _prices(aim.prices)
    if network != preset and preset in prices.of:
        prices = Prices(prices.every, {**prices.of, network: prices.of[preset]})
    swept = over.get("network", [network])
    check_cost(goal, prices, swept if isinstance(swept, Sequence) else [network])
    if aim.trials and over:
        Search(over, aim.trials)
    return goal, prices


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _prices(text: str) -> Prices:
    """Parse prices, which must not be in a file, because a browser must not name paths."""
    items = _items(text)
    file = next((item for item in items if Path(item).suffix in {".yml", ".yaml"}), None)
    if file is not None:
        raise ConfigError(
            f"'{file[:60]}' is not a price; write the price of one rank for an hour, such as 2.5, or "
            "NETWORK=2.5. Price files can only be used on the command line."
        )
    return Prices.parse(items)


def figure_text(figure: str, value: float) -> str:
    """Return *value* of *figure* with its unit."""
    if figure.endswith("_ns"):
        return duration_text(value)
    return f"{value:,.4g}" if figure == "cost" else f"{int(value):,}"


@dataclass(frozen=True)
class Plan:
    """The plan of a sweep: the number of *points*, and the *problem* if there is one.

    *note* is shown to the user. *goal* determines the best point, and *prices* determine its cost. With
    *trials*, a search chooses the points.
    """

    over: Over
    points: int = 0
    problem: str = ""
    note: str = ""
    goal: Goal = field(default_factory=Goal)
    prices: Prices = field(default_factory=Prices)
    trials: int = 0


def axis_names(setup: Setup) -> dict[str, str]:
    """Return the titles of the settings that a sweep from *setup* can vary, by key."""
    one = len(setup.dimensions) == 1
    names = {}
    for index in range(len(setup.dimensions)):
        for name, (title, unit) in _DIMENSION.items():
            place, key = ("", "") if one else (f" of dimension {index + 1}", f"[{index}]")
            names[f"network.{name}{key}"] = f"{title}{place}{unit}"
    names |= {f"system.{name}-implementation": f"Algorithm of {name}" for name in COLLECTIVES}
    names |= _SYSTEM
    if not setup.machine and not differences(setup):
        names["network"] = "Network preset"
    return names


def suggested(setup: Setup, key: str) -> str:
    """Return the values proposed for the axis *key*, as text."""
    part, _, field = key.partition(".")
    name, _, index = field.rstrip("]").partition("[")
    if part == "network" and not field:
        presets = list_presets("network")
        return ", ".join(presets[:3])
    if name in _CHOICES:
        return ", ".join(_CHOICES[name])
    if part == "network":
        dimension = setup.dimensions[int(index or 0)]
        base = dimension.size if name == "npus_count" else getattr(dimension, name)
        return ", ".join(_plain(base * factor) for factor in (0.5, 1, 2, 4) if base * factor >= 1 or base < 2)
    base = float(setup.system.get(name) or 1)
    return ", ".join(_plain(base * factor) for factor in (1, 2, 4))


def _plain(number: float) -> str:
    return f"{number:.6g}" if not float(number).is_integer() else str(int(number))


def encode_axes(axes: Axes) -> str:
    """Return *axes* as text for an address; ``""`` if there are none."""
    return to_address([axis for axis in axes if any(axis)])


def decode_axes(text: str, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Parse text that :func:`encode_axes` wrote, and drop invalid axes."""
    parsed = of_address(text)
    items = parsed if isinstance(parsed, list) else []
    pairs = [item for item in items if isinstance(item, list) and len(item) == 2]
    return [
        (key, values[:_TEXT_LENGTH])
        for key, values in pairs[:MAX_AXES]
        if isinstance(key, str) and isinstance(values, str) and (key in names or not key)
    ]


def plan_of(form: Form, axes: Axes, workload: Communication, aim: Aim = Aim()) -> Plan:
    """Plan a sweep over *axes* from the setup of *form*, with the objective *aim*."""
    over: Over = {}
    try:
        over = _values(axes, axis_names(form.setup), search=bool(aim.trials))
        if not over:
            return Plan({}, problem="Choose a setting to vary, and its values.")
        goal, prices = checked_aim(aim, over, form.setup.network_name, form.setup.network_preset)
    except ChakrascopeError as error:
        return Plan(over, problem=error.message)
    plan = Plan(over, aim.trials or _count(over), goal=goal, prices=prices, trials=aim.trials)
    if plan.points > MAX_TRIALS:
        text = f"{plan.points:,} points are more than {MAX_TRIALS:,}; use fewer values, or the command line."
        return replace(plan, problem=text)
    return _tried(form, plan, workload)


def _count(over: Over) -> int:
    return math.prod(len(values) for values in over.values() if not isinstance(values, Range))


def _few(values: Sequence[Any] | Range) -> Sequence[Any]:
    """Return first, middle and last value."""
    if not isinstance(values, Range):
        return list(dict.fromkeys([values[0], values[len(values) // 2], values[-1]]))
    middle = (values.low + values.high) / 2
    whole = isinstance(values.low, int) and isinstance(values.high, int)
    return [values.low, int(middle) if whole else middle, values.high]


def _tried(form: Form, plan: Plan, workload: Communication) -> Plan:
    """Return *plan* with a note if some of its points cannot run, or a problem if no point can run."""
    points = grid({key: _few(values) for key, values in plan.over.items()} if plan.trials else plan.over)
    backend = form.backends[0] if form.backends else DEFAULT_BACKEND
    tried = points[:: max(1, len(points) // _MAX_TRIED)]
    found = (check(setup_at(form.setup, point), workload, [backend])[0] for point in tried)
    problems = [first.text for first in found if first.severity == "error"]
    if len(problems) == len(tried):
        return replace(plan, problem=f"No point can run: {problems[0]}")
    if not problems:
        return plan
    share = round(100 * len(problems) / len(tried))
    return replace(plan, note=f"About {share} % of them cannot run: {problems[0]}")


def _values(axes: Axes, names: Mapping[str, str], *, search: bool) -> dict[str, Sequence[Any] | Range]:
    """Parse the values of each axis; raises `ConfigError` for invalid values.

    Only a *search* may have ranges.
    """
    over: dict[str, Sequence[Any] | Range] = {}
    for key, text in axes:
        if not key or not text.strip():
            continue
        if key not in names or key in over:
            raise ConfigError(f"'{key}' is chosen twice, or cannot be swept over here; choose another.")
        _, values = parse_axis(f"{key}={text}")
        if isinstance(values, Range) and not search:
            raise ConfigError(
                f"{names[key]}: list its values, such as 25, 50, 100; a range is for a search, which needs "
                "the number of points to try."
            )
        _check_values(key, names[key], _few(values) if isinstance(values, Range) else values)
        over[key] = values if isinstance(values, Range) else list(dict.fromkeys(values))
    return over


def axis_reading(key: str, text: str, names: Mapping[str, str], *, search: bool) -> tuple[str, str]:
    """Return the error in an axis' values, and the parsed values if they differ from the typed text."""
    try:
        values = _values([(key, text)], names, search=search).get(key, ())
    except ChakrascopeError as error:
        return error.message, ""
    few = [values.low, values.high] if isinstance(values, Range) else values
    plain = {item.strip() for item in text.replace("..", ",").split(",")}
    if all(typed_text(value) in plain or str(value) in plain for value in few):
        return "", ""
    return "", "Understood as " + (" to " if isinstance(values, Range) else ", ").join(
        f"{value:g}" for value in few
    )


def _check_values(key: str, title: str, values: Sequence[Any]) -> None:
    """Raise `ConfigError` for a value of the wrong kind, such as a path instead of a preset."""
    name = key.rpartition(".")[2].partition("[")[0]
    allowed = list_presets("network") if key == "network" else _CHOICES.get(name)
    for value in values:
        if allowed is not None and value not in allowed:
            raise ConfigError(f"{title} cannot be '{str(value)[:60]}'; choose from {', '.join(allowed)}.")
        if allowed is None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigError(f"{title}: '{str(value)[:60]}' is not a number; write 25, 50, 100.")


def setup_at(setup: Setup, point: Mapping[str, Any]) -> Setup:
    """Return *setup* with the settings of *point*."""
    if "network" in point:
        setup = Setup.of_presets(point["network"], setup.system_preset)
    dimensions, system = list(setup.dimensions), dict(setup.system)
    for key, value in point.items():
        part, _, field = key.partition(".")
        name, _, index = field.rstrip("]").partition("[")
        if part == "network" and field:
            attribute = "size" if name == "npus_count" else name
            dimensions = [
                replace(each, **{attribute: value}) if index in ("", str(place)) else each
                for place, each in enumerate(dimensions)
            ]
        elif name.endswith("-implementation"):
            place = COLLECTIVES.index(name.removesuffix("-implementation"))
            dimensions = [
                replace(each, algorithms=(*each.algorithms[:place], value, *each.algorithms[place + 1 :]))
                for each in dimensions
            ]
        elif part == "system":
            system[name] = value
    return replace(setup, dimensions=tuple(dimensions), system=system)


def request_of(form: Form, plan: Plan, name: str, keep: int) -> SweepRequest:
    """Return the request for a job that runs the sweep of *plan*.

    An unchanged system preset is passed by name, because it adapts to the dimensions of any
    network.
    """
    setup = form.setup
    return SweepRequest(
        over={
            key: {"low": values.low, "high": values.high} if isinstance(values, Range) else values
            for key, values in plan.over.items()
        },
        workload=form.workload,
        system=setup.system_mapping() if setup.changed or setup.machine else setup.system_preset,
        network=setup.network_mapping(),
        network_name=setup.network_name,
        backend=form.backends[0] if form.backends else DEFAULT_BACKEND,
        name=name,
        keep=keep,
        least=plan.goal.least,
        at_most=dict(plan.goal.at_most),
        price=plan.prices.every,
        prices=dict(plan.prices.of),
        trials=plan.trials or None,
    )
