"""Find NICs and links that are always slow: their messages are slower than their peers'.

The logarithm of each message's rate is compared with its fair share of healthy NICs. Medians by
interval, path and size ignore single late messages, and a baseline per size removes latency and
TCP's slow start.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ....support.table import Flags, Floats, Ints
from ._attained import Sharing, slow_group
from ._messages import Messages, Suspect, suspects_of

MIN_SLOWER = 0.12
"""The least relative slowdown reported; paths of a healthy network differ by less."""
_MAX_SLOW = 3
_MAX_TIMES = 16
_FEW = 3  # minimum average number of messages per path and interval
_REFINED = 6
_MUCH_WORSE = 3.0
_ROUNDS = 6
_DRAWS = 400
_MAX_FITS = 20_000
_MIN_CONFIDENCE, _SIGNIFICANT = 0.9, 0.01
_SIGMAS, _PEERS = 4.0, 2.5
_SEVERAL = 3  # minimum number of paths
_FLOOR = 0.02
_MODEL_ERROR = 0.03  # relative error of a rate that more messages do not reduce
_MIN_EXPLAINED = 0.3
_INCAST = 0.25  # fraction of a healthy NIC's rate that TCP may lose with several concurrent senders
_ALONE = 1.5  # a NIC counts as used by one message up to this mean number of concurrent messages
_SEVERAL_ALONE = 8
_SMALL = 0.1  # fraction of the median size below which latency dominates a message


@dataclass(frozen=True, eq=False)
class SlowPart:
    """A slow NIC or link, with its *factor* (0.5: half the rate) and the 90 % interval *low* to *high*."""

    suspect: Suspect
    factor: float
    low: float
    high: float
    confidence: float
    chance: float
    evidence: Ints


@dataclass(frozen=True, eq=False)
class Rates:
    """The logarithm of each message's rate relative to its fair share of healthy NICs.

    *large* marks messages whose size is large enough to show rates. *time* is each message's
    interval and *size* its size class. *applied* are the slow parts found so far, and *log_rate*
    the rates relative to fair shares in a network that has them.
    """

    messages: Messages
    sharing: Sharing
    large: Flags
    time: Ints
    size: Ints
    log_rate: Floats
    applied: tuple[tuple[Suspect, float], ...] = ()
    offsets: Floats = field(default_factory=lambda: np.zeros(0))

    def with_slow(self, applied: Sequence[tuple[Suspect, float]]) -> Rates:
        """Return the rates relative to fair shares in a network where the *applied* suspects are slow."""
        nics = len(self.messages.nics)
        sends, receives, paths = np.ones(nics), np.ones(nics), dict[int, float]()
        for suspect, factor in applied:
            out, into, slow = suspect.rates(factor, nics)
            sends, receives = sends * out, receives * into
            paths |= slow
        carried = self.sharing.carried(sends, receives, paths)
        log_rate = np.log(self.messages.size_bytes / np.maximum(carried, 1e-9))
        return Rates(self.messages, self.sharing, self.large, self.time, self.size, log_rate, tuple(applied))

    def medians(self) -> Floats:
        """Return the median logarithmic rate by interval, path and size class; NaN without messages."""
        times, paths, sizes = int(self.time.max()) + 1, len(self.sharing.paths), int(self.size.max()) + 1
        cell = (self.time * paths + self.sharing.path_of) * sizes + self.size
        chosen = np.flatnonzero(self.large)
        chosen = chosen[np.lexsort((self.log_rate[chosen], cell[chosen]))]
        values, cells = self.log_rate[chosen], cell[chosen]
        result = np.full(times * paths * sizes, np.nan)
        keys, first, count = np.unique(cells, return_index=True, return_counts=True)
        result[keys] = (values[first + (count - 1) // 2] + values[first + count // 2]) / 2
        return result.reshape(times, paths, sizes)

    @property
    def baselines(self) -> Floats:
        """The median logarithmic rate on healthy paths by size class."""
        table = _nanmedian(self.medians(), 0)
        on = np.zeros(len(self.sharing.paths), bool)
        for suspect, _ in self.applied:
            on |= suspect.on
        sound = table[~on] if (~on).any() else table
        lines = _nanmedian(sound, 0)
        return np.where(np.isnan(lines), np.nan_to_num(_nanmedian(table, 0)), lines)


def measure_rates(messages: Messages) -> Rates:
    """Return the rates of *messages*, taken as sent in sequence or concurrently on each path.

    The model under which rates vary less is used. If arrivals of first bytes are known, a third
    model counts the time before them as latency.
    """
    candidates = []
    for begun in (messages.start_ns, messages.begun_ns, messages.arriving_ns):
        whole = begun < messages.end_ns
        kept = messages.chosen(whole)
        sharing = Sharing.of(kept, begun[whole])
        size, large = _sizes(kept.size_bytes)
        time = _times(kept, len(sharing.paths))
        rates = Rates(kept, sharing, large, time, size, np.zeros(len(kept))).with_slow(())
        candidates.append((_spread(rates), rates))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _spread(rates: Rates) -> float:
    table = rates.medians()
    cell = rates.log_rate - table[rates.time, rates.sharing.path_of, rates.size]
    return float(np.mean(np.abs(cell[rates.large])))


def _sizes(size_bytes: Ints) -> tuple[Ints, Flags]:
    """Return each message's size class, in steps of the square root of 2, and a mask of large ones."""
    ordered = np.sort(size_bytes)
    half = ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)]
    steps = np.rint(2 * np.log2(size_bytes)).astype(np.int64)
    return np.unique(steps, return_inverse=True)[1].reshape(-1), size_bytes >= _SMALL * half


def _times(messages: Messages, paths: int) -> Ints:
    """Return each message's interval; intervals have several messages per path."""
    number = int(np.clip(len(messages) // max(1, _FEW * paths), 1, _MAX_TIMES))
    return np.arange(len(messages)) * number // max(1, len(messages))


def slow_parts(rates: Rates) -> tuple[list[SlowPart], list[SlowPart], Rates]:
    """Return the NICs and links that are always slow, slowest first, and the *rates* with these applied.

    The second list is a NIC that receives slowly, but maybe because of several senders at once (incast): the
    run has too few messages of single senders to tell. A suspect is reported if it explains the rates better
    than any other suspect in nearly all draws of intervals, and if its slowdown exceeds the differences
    between paths of a healthy network. To avoid false alarms from the number of suspects, its effect must
    also exceed the largest effect of any suspect with paths permuted at random.
    """
    suspects = suspects_of(rates.messages, rates.sharing.paths)
    parts = _slow_together(rates, suspects)
    if parts:
        return parts, [], rates.with_slow([(part.suspect, part.factor) for part in parts])
    while suspects and len(parts) < _MAX_SLOW:
        part = _slowest(rates, suspects)
        if part is None:
            break
        incast = _incast(rates, part)
        if incast != "no":
            return parts, [part] if incast == "maybe" else [], rates
        parts.append(part)
        rates = rates.with_slow([*rates.applied, (part.suspect, part.factor)])
        suspects = [one for one in suspects if one.name != part.suspect.name]
    return parts, [], rates


def _slow_together(rates: Rates, suspects: Sequence[Suspect]) -> list[SlowPart]:
    """Return the NICs that are slow together, slowest first, or an empty list.

    If half of the NICs in a small network are slow, no single NIC differs from the others.
    """
    group = slow_group(rates.messages, rates.time)
    if (
        group is None
        or group.gap < -np.log1p(-MIN_SLOWER) / 2
        or group.confidence < _MIN_CONFIDENCE
        or group.chance > _SIGNIFICANT
    ):
        return []
    slow = [one for one in suspects if one.kind == "NIC" and {*one.sends, *one.receives} <= {*group.nics}]
    if len(slow) != len(group.nics) or np.logical_or.reduce([one.on for one in slow]).all():
        return []
    factors, errors = _refined_together(rates, slow)
    if max(factors) > 1 - MIN_SLOWER:
        return []
    parts = []
    for suspect, factor, error in zip(slow, factors, errors, strict=True):
        low, high = (float(value) for value in factor * np.exp(np.quantile(error, (0.05, 0.95))))
        low, high = min(low, factor) * (1 - _MODEL_ERROR), max(high, factor) * (1 + _MODEL_ERROR)
        evidence = rates.messages.row[rates.large & suspect.on[rates.sharing.path_of]]
        parts.append(SlowPart(suspect, factor, low, high, group.confidence, group.chance, evidence))
    return sorted(parts, key=lambda part: part.factor)


def _refined_together(rates: Rates, slow: Sequence[Suspect]) -> tuple[list[float], Floats]:
    """Return the factors of the *slow* NICs, and the logarithms of their errors in draws of intervals.

    With the right factors, messages through slow and healthy NICs have the same relative rate. The
    first factors are too low, because messages through healthy NICs gain the bandwidth that slow
    ones leave unused.
    """
    ons = np.array([one.on for one in slow])
    crossed = ons.sum(axis=0)

    def steps(table: Floats) -> list[float]:
        paths = _path_rates(table, crossed > 0)
        return [_median(paths[on & (crossed == 1)]) for on in ons]

    factors = [1.0] * len(slow)
    for _ in range(2 * _ROUNDS):
        tables = rates.with_slow([*rates.applied, *zip(slow, factors, strict=True)]).medians()
        factors = [
            float(np.clip(factor * np.exp(step / 2), 1e-4, 1.0))  # damped against overshoot
            for factor, step in zip(factors, steps(_nanmedian(tables, 0)), strict=True)
        ]
    tables = rates.with_slow([*rates.applied, *zip(slow, factors, strict=True)]).medians()
    rng = np.random.default_rng(len(rates.messages))
    draws = rng.integers(len(tables), size=(_DRAWS, len(tables)))
    return factors, np.array([steps(_nanmedian(tables[draw], 0)) for draw in draws]).T


def _slowest(rates: Rates, suspects: Sequence[Suspect]) -> SlowPart | None:
    medians = rates.medians()
    if len(medians) < 2:
        return None
    fits = [_fit(_nanmedian(medians, 0), suspect.on) for suspect in suspects]
    likely = [place for place in np.argsort([loss for loss, _ in fits]) if fits[place][1] < 0]
    likely = [place for place in likely[:_REFINED] if fits[place][0] <= _MUCH_WORSE * fits[likely[0]][0]]
    if not likely or fits[likely[0]][1] > np.log1p(-MIN_SLOWER) / 2:
        return None
    refined = [_refined(rates, suspects[place], float(np.exp(fits[place][1]))) for place in likely]
    rng = np.random.default_rng(len(rates.messages))
    tables, ons = [changed.medians() for _, changed in refined], [suspects[place].on for place in likely]
    best = int(np.argmin([_fit(_nanmedian(table, 0), on)[0] for table, on in zip(tables, ons, strict=True)]))
    suspect, (factor, changed) = suspects[likely[best]], refined[best]
    draws = _draws(rng, tables, ons)
    # A draw that selects one direction or one path of a NIC also supports the NIC.
    parts = np.array([not (on & ~suspect.on).any() for on in ons])
    winners = np.argmin(draws[:, :, 0], axis=1)
    won = parts[winners]
    factors = factor * np.exp(draws[:, best, 1])
    low, high = (float(value) for value in np.quantile(factors, (0.05, 0.95)))
    confidence = float(np.mean(won & (factors < 1 - MIN_SLOWER / 2)))
    noise = _noise(suspects, suspect, changed, _nanmedian(tables[best], 0))
    if factor > 1 - MIN_SLOWER or confidence < _MIN_CONFIDENCE or -np.log(factor) < noise:
        return None
    if suspect.on.sum() >= _SEVERAL and _explained(medians, tables[best], suspect.on) < _MIN_EXPLAINED:
        return None
    chance = _chance(rng, medians, suspects, suspect)
    if chance > _SIGNIFICANT:
        return None
    evidence = rates.messages.row[rates.large & suspect.on[rates.sharing.path_of]]
    suspect = _with_others(suspect, [suspects[place] for place in likely], winners)
    low, high = min(low, factor) * (1 - _MODEL_ERROR), max(high, factor) * (1 + _MODEL_ERROR)
    return SlowPart(suspect, factor, low, high, confidence, chance, evidence)


def _incast(rates: Rates, part: SlowPart) -> Literal["yes", "no", "maybe"]:
    """Return whether several senders at once (incast) explain why a NIC receives slowly.

    With several senders, even a healthy NIC receives below its rate. A slow NIC is also slow with a single
    sender. If too few messages had a single sender, the answer is "maybe".
    """
    suspect, factor = part.suspect, part.factor
    if suspect.sends or not suspect.receives or factor < 1 - _INCAST:
        return "no"
    alone = rates.large & (rates.sharing.senders() <= _ALONE)
    own = suspect.on[rates.sharing.path_of]
    slow, sound = rates.log_rate[alone & own], rates.log_rate[alone & ~own]
    if min(len(slow), len(sound)) < _SEVERAL_ALONE:
        return "maybe"
    return "yes" if np.median(slow) - np.median(sound) > np.log(factor) / 2 else "no"


def _with_others(suspect: Suspect, likely: Sequence[Suspect], winners: Ints) -> Suspect:
    """Return *suspect* with the names of other suspects that over 10 % of the draws support."""
    shares = np.bincount(winners, minlength=len(likely)) / len(winners)
    named = [one.name for one, share in zip(likely, shares, strict=True) if share > 1 - _MIN_CONFIDENCE]
    others = dict.fromkeys((*suspect.others, *named))
    others.pop(suspect.name, None)
    return dataclasses.replace(suspect, others=tuple(others))


def _refined(rates: Rates, suspect: Suspect, factor: float) -> tuple[float, Rates]:
    """Fit the *factor* of a suspect to the shares of all messages; return it and the remaining rates.

    The first factor is too low, because a slow NIC leaves bandwidth to competing messages.
    """
    for _ in range(_ROUNDS):
        changed = rates.with_slow([*rates.applied, (suspect, factor)])
        step = _step(changed, suspect.on)
        if abs(step) < 0.002:
            break
        factor = float(np.clip(factor * np.exp(step), 1e-4, 1.0))
    return factor, changed


def _step(rates: Rates, on: Flags) -> float:
    """Return the logarithm of the rate on paths *on* relative to other paths; three or more are pooled."""
    if on.sum() >= _SEVERAL:
        return _pooled(rates, on)
    return _log_factor(_nanmedian(rates.medians(), 0), on)


def _noise(suspects: Sequence[Suspect], suspect: Suspect, rates: Rates, table: Floats) -> float:
    """Return the random slowdown of suspects like *suspect*, without its own effect.

    Paths that share a NIC take turns, so each may deviate while the NIC's total does not. Suspects with
    several paths are therefore compared as a whole, and suspects with one or two paths are compared with the
    other paths.
    """
    peers = [one for one in suspects if one.kind == suspect.kind and one is not suspect]
    if suspect.on.sum() >= _SEVERAL and peers:
        apart = np.array([_pooled(rates, one.on) for one in peers])
        return _PEERS * (float(np.sqrt(np.mean(apart**2))) + _FLOOR)
    rest = _path_rates(table, suspect.on)[~suspect.on]
    spread = 1.4826 * float(np.nanmedian(np.abs(rest - np.nanmedian(rest)))) + _FLOOR / 2
    paths = float(np.sqrt(suspect.on.sum()))
    return float(max(_SIGMAS * spread / paths, _PEERS * (np.sqrt(np.nanmean(rest**2)) / paths + _FLOOR)))


def _explained(before: Floats, after: Floats, on: Flags) -> float:
    """Return the fraction of the differences between paths that a suspect explains."""
    paths = _path_rates(_nanmedian(before, 0), np.zeros(len(on), bool))
    return 1 - _fit(_nanmedian(after, 0), on)[0] / max(float(np.nansum(np.abs(paths))), 1e-9)


def _pooled(rates: Rates, on: Flags) -> float:
    """Return the logarithm of the total rate on the paths *on* relative to all other messages."""
    own = on[rates.sharing.path_of]
    size = rates.messages.size_bytes.astype(np.float64)
    carried = size / np.exp(rates.log_rate)
    times = []
    for time in range(int(rates.time.max()) + 1):
        here = rates.large & (rates.time == time)
        parts = [here & own, here & ~own]
        if all(part.any() for part in parts):
            slow, sound = (np.log(size[part].sum() / carried[part].sum()) for part in parts)
            times.append(slow - sound)
    return float(np.median(times)) if times else 0.0


def _path_rates(table: Floats, on: Flags) -> Floats:
    """Return the log rate of each path of *table* (paths, sizes) relative to paths outside *on*, or NaN."""
    against = table - _nanmedian(table[~on], 0)
    return against[:, 0] if against.shape[1] == 1 else _nanmean(against, 1)


def _fit(table: Floats, on: Flags) -> tuple[float, float]:
    """Fit a common factor to the paths *on*; return the residual and the factor's logarithm."""
    paths = _path_rates(table, on)
    log_factor = _median(paths[on])
    return float(np.nansum(np.abs(paths - np.where(on, log_factor, 0.0)))), log_factor


def _log_factor(table: Floats, on: Flags) -> float:
    """Return the logarithm of the factor that `_fit` finds, without its residual, in half the time."""
    return _median(_path_rates(table, on)[on])


def _draws(rng: np.random.Generator, tables: Sequence[Floats], ons: Sequence[Flags]) -> Floats:
    """Return each suspect's residual and factor error in each bootstrap draw of intervals."""
    times = len(tables[0])
    result = np.empty((_DRAWS, len(tables), 2))
    for draw in range(_DRAWS):
        chosen = rng.integers(times, size=times)
        for place, (table, on) in enumerate(zip(tables, ons, strict=True)):
            result[draw, place] = _fit(_nanmedian(table[chosen], 0), on)
    return result


def _chance(rng: np.random.Generator, medians: Floats, suspects: Sequence[Suspect], named: Suspect) -> float:
    """Return the fraction of draws with permuted paths in which a suspect explains as much as *named*."""

    def explained(table: Floats, suspect: Suspect) -> float:
        return float(-_log_factor(table, suspect.on) * suspect.on.sum() ** 0.5)

    seen = explained(_nanmean(medians, 0), named)
    draws = int(np.clip(_MAX_FITS // len(suspects), 100, _DRAWS))
    reached = 0
    for _ in range(draws):
        shuffled = np.stack(
            [rng.permuted(medians[:, :, size], axis=1) for size in range(medians.shape[2])], axis=2
        )
        table = _nanmean(shuffled, 0)
        reached += any(explained(table, suspect) >= seen for suspect in suspects)
    return (reached + 1) / (draws + 1)


def _nanmedian(values: Floats, axis: int) -> Floats:
    if values.shape[axis] and not np.isnan(values).any():
        return _middle(values, axis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=axis))


def _nanmean(values: Floats, axis: int) -> Floats:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=axis))


def _median(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(_middle(finite, 0)) if len(finite) else 0.0


def _middle(values: Floats, axis: int) -> Floats:
    """Return the median of few numbers without NaN, three times as fast as `np.median`."""
    ordered, count = np.sort(values, axis=axis), values.shape[axis]
    return np.asarray((ordered.take((count - 1) // 2, axis) + ordered.take(count // 2, axis)) / 2)
