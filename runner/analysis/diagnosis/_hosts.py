"""Find hosts that compute more slowly than requested, or than their peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ....converter import NodeType
from ....support.table import Floats

MIN_SLOWER = 0.15
"""The least relative excess of compute times for a host to be reported."""
_TIMES = 16  # number of intervals; a constantly slow host is slow in most of them
_TIMES_OF_STOPS = 64  # number of shorter intervals, to separate intervals with a stop from normal intervals
_FEW = 1  # minimum number of computations in an interval
_DRAWS = 1000
_MAX_PERMUTED = 1_000_000  # maximum number of (interval, host) entries in all random draws together
_MIN_CONFIDENCE, _SIGNIFICANT = 0.9, 0.01
_SIGMAS = 4.0
_FEWEST, _MIN_SHARE = 3, 0.1  # minimum number and fraction of slow, and of normal, intervals
_MUCH_MORE = 2.0  # minimum ratio of the slowest host's lost time to any other host's
_SAME = 1e-3  # relative difference of durations up to which only rounding differs
_PROGRAM = ["name", "operator", "module", "phase", "turn"]


@dataclass(frozen=True, eq=False)
class SlowHost:
    """A *host* that computes *factor* times as long as expected (90 % interval: *low* to *high*).

    *against* is the reference of the comparison. *evidence* has ``rank, node_id, took_ns, should_ns`` of the
    computations with the largest delays. *share* is the fraction of intervals in which the host was slow (1:
    constantly).
    """

    host: str
    ranks: tuple[int, ...]
    factor: float
    low: float
    high: float
    confidence: float
    chance: float
    against: str
    evidence: pd.DataFrame
    share: float = 1.0


def slow_hosts(nodes: pd.DataFrame, host_of: Mapping[int, str]) -> tuple[list[SlowHost], list[str]]:
    """Return the hosts that compute more slowly than others, slowest first, and remarks on limits.

    *nodes* are a run's nodes with their properties, and *host_of* each rank's host. If durations differ from
    the requested durations, as on real machines, they are compared with these. Otherwise, they are compared
    with the same computation on other ranks.
    """
    compute, against = _references(nodes)
    compute = compute.assign(host=compute["rank"].map(lambda rank: host_of.get(rank, f"rank {rank}")))
    hosts = sorted(
        compute["host"].unique(), key=lambda host: int(compute.loc[compute["host"] == host, "rank"].min())
    )
    if len(hosts) < 2:
        return [], ["Slow hosts cannot be detected, because no computation occurs on several hosts."]
    logs, short = (_by_time(compute, hosts, most) for most in (_TIMES, _TIMES_OF_STOPS))
    if logs.shape[0] < 2:
        return [], ["There are too few computations to detect slow hosts."]
    rng = np.random.default_rng(len(compute))
    result: list[SlowHost] = []
    while len(result) < max(1, len(hosts) // 2):
        named = {one.host for one in result}
        slow = _intermittent(rng, short, hosts, (compute, against), named) or _slowest(
            rng, logs, hosts, (compute, against), named
        )
        if slow is None:
            break
        result.append(slow)
    return result, []


def _references(nodes: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return computations with actual and expected durations, and the source of the expected durations."""
    compute = nodes[(nodes["type"] == NodeType.COMP) & (nodes["end_ns"] > nodes["start_ns"])]
    compute = compute.assign(took_ns=compute["end_ns"] - compute["start_ns"])
    asked = compute["duration_ns"]
    if len(compute) and (asked > 0).any():
        off = (compute["took_ns"] / asked.clip(lower=1) - 1).abs()[asked > 0]
        if float(off.median()) > _SAME or float(off.mean()) > 10 * _SAME:
            return compute[asked > 0].assign(should_ns=asked[asked > 0].astype(float)), "the requested time"
    compute = compute.sort_values(["rank", "start_ns"], kind="stable")
    same = ["name", "operator", "module", "phase"]
    compute["turn"] = compute.groupby(["rank", *same]).cumcount()
    peers = compute.groupby(_PROGRAM)
    enough = peers["rank"].transform("nunique") > 1
    compute["should_ns"] = peers["took_ns"].transform("median")
    return compute[enough], "the same computations of other ranks"


def _by_time(compute: pd.DataFrame, hosts: list[str], most: int) -> Floats:
    """Return the logarithmic slowdown by interval (at most *most*) and host."""
    fewest = int(compute.groupby("host").size().min())
    times = int(np.clip(fewest // _FEW, 1, most))
    place = compute.groupby("host")["start_ns"].rank(method="first") - 1
    count = compute.groupby("host")["start_ns"].transform("size")
    sums = compute.assign(time=(place * times // count).astype(int)).groupby(["time", "host"])
    ratio = sums["took_ns"].sum() / sums["should_ns"].sum()
    table = np.log(ratio.unstack("host")[hosts].to_numpy(np.float64))
    complete: Floats = table[np.isfinite(table).all(axis=1)]
    return complete


def _slowest(
    rng: np.random.Generator,
    logs: Floats,
    hosts: list[str],
    compared: tuple[pd.DataFrame, str],
    named: set[str],
) -> SlowHost | None:
    compute, against = compared
    sound = [place for place, host in enumerate(hosts) if host not in named]
    logs = logs[:, sound]
    excess = _excess(np.median(logs, axis=0))
    worst = int(np.argmax(excess))
    chosen = rng.integers(len(logs), size=(_DRAWS, len(logs)))
    draws = _excess(np.median(logs[chosen], axis=1))
    won = (np.argmax(draws, axis=1) == worst) & (draws[:, worst] > np.log1p(MIN_SLOWER) / 2)
    low, high = (float(value) for value in np.exp(np.quantile(draws[:, worst], (0.05, 0.95))))
    rest = np.delete(np.median(logs, axis=0), worst)
    spread = 1.4826 * float(np.median(np.abs(rest - np.median(rest)))) + 0.01
    chance = _chance(rng, logs, worst)
    factor = float(np.exp(excess[worst]))
    if (
        factor < 1 + MIN_SLOWER
        or won.mean() < _MIN_CONFIDENCE
        or chance > _SIGNIFICANT
        or excess[worst] < _SIGMAS * spread
    ):
        return None
    own = compute[compute["host"] == hosts[sound[worst]]]
    factors = (factor, min(low, factor), max(high, factor))
    return _slow_host(own, factors, (float(won.mean()), chance), against)


def _intermittent(
    rng: np.random.Generator,
    logs: Floats,
    hosts: list[str],
    compared: tuple[pd.DataFrame, str],
    named: set[str],
) -> SlowHost | None:
    """Return the host that loses far more time than any other, even in few intervals, or None."""
    compute, against = compared
    sound = [place for place, host in enumerate(hosts) if host not in named]
    excess = _excess(logs[:, sound])
    late = excess > np.log1p(MIN_SLOWER)
    lost = np.where(late, np.expm1(excess), 0.0)
    losses = lost.sum(axis=0)
    worst = int(np.argmax(losses))
    share = float(late[:, worst].mean())
    others = np.delete(losses, worst).max(initial=0.0)
    sound_times = int((excess[:, worst] < np.log1p(MIN_SLOWER / 2)).sum())
    fewest = max(_FEWEST, _MIN_SHARE * len(late))
    if late[:, worst].sum() < _FEWEST or sound_times < fewest or losses[worst] <= _MUCH_MORE * others:
        return None
    draws = int(np.clip(_MAX_PERMUTED // lost.size, _DRAWS, 10 * _DRAWS))
    permuted = (rng.permuted(lost, axis=1).sum(axis=0).max() for _ in range(draws))
    reached = sum(float(most) >= losses[worst] * (1 - 1e-9) for most in permuted)
    chance = (reached + 1) / (draws + 1)
    host = hosts[sound[worst]]
    own = compute[compute["host"] == host]
    rest = compute[compute["host"].isin([hosts[place] for place in sound]) & (compute["host"] != host)]
    factors = _mean_factors(rng, own) / (rest["took_ns"].sum() / rest["should_ns"].sum())
    factor, low, high = (float(value) for value in np.quantile(factors, (0.5, 0.05, 0.95)))
    if factor < 1 + MIN_SLOWER / 2 or chance > 1 - _MIN_CONFIDENCE:
        return None
    return replace(_slow_host(own, (factor, low, high), (1 - chance, chance), against), share=share)


def _slow_host(
    own: pd.DataFrame, factors: tuple[float, float, float], sure: tuple[float, float], against: str
) -> SlowHost:
    """Return a slow host with its computations *own*; *factors* are the estimate and its interval."""
    factor, low, high = factors
    confidence, chance = sure
    lost = own["took_ns"] - own["should_ns"]
    evidence = own.assign(lost=lost).nlargest(20, "lost")[["rank", "node_id", "took_ns", "should_ns"]]
    ranks = tuple(int(rank) for rank in sorted(own["rank"].unique()))
    host = str(own["host"].iloc[0])
    return SlowHost(host, ranks, factor, low, high, confidence, chance, against, evidence)


def _mean_factors(rng: np.random.Generator, own: pd.DataFrame) -> Floats:
    """Return the total slowdown of *own* in each bootstrap draw."""
    took, should = own["took_ns"].to_numpy(np.float64), own["should_ns"].to_numpy(np.float64)
    chosen = rng.integers(len(own), size=(_DRAWS, len(own)))
    factors: Floats = took[chosen].sum(axis=1) / should[chosen].sum(axis=1)
    return factors


def _excess(medians: Floats) -> Floats:
    """Return the excess of each host (last axis) over the median of the others."""
    hosts = medians.shape[-1]
    others = [np.median(np.delete(medians, host, axis=-1), axis=-1) for host in range(hosts)]
    return medians - np.stack(others, axis=-1)


def _chance(rng: np.random.Generator, logs: Floats, worst: int) -> float:
    """Return the fraction of draws with permuted hosts in which the slowest host ranks as high as *worst*.

    The comparison uses ranks of values, so that no single disturbed interval dominates.
    """
    places = pd.DataFrame(logs).rank(axis=1).to_numpy(np.float64)
    seen = float(places.mean(axis=0)[worst])
    reached = sum(float(rng.permuted(places, axis=1).mean(axis=0).max()) >= seen for _ in range(_DRAWS))
    return (reached + 1) / (_DRAWS + 1)
