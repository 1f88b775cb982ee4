"""Chips: peaks, memory, and the operator costs of each software, in files of which some are shipped."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError, did_you_mean
from ...support import write_file
from ..config import Shipped, read_yaml, shown

__all__ = [
    "LOW_PRECISIONS",
    "Chip",
    "Costs",
    "Fit",
    "Host",
    "LinkCosts",
    "chip_of_device",
    "find_chip",
    "list_chips",
    "load_chip",
    "save_chip",
]

LOW_PRECISIONS: Mapping[str, float] = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""Bytes of an operand of a matrix product, with the scales of its blocks.

Everything else of such a step, attention and the last product too, is in half precision.
"""


@dataclass(frozen=True)
class LinkCosts:
    """The performance of collectives on a kind of link: a *share* of its bandwidth, after *latency_ns*."""

    share: float = 1.0
    latency_ns: float = 0.0


@dataclass(frozen=True)
class Host:
    """A chip's part of its host: its link's bytes per second each way, and those of the host's memory."""

    link_bytes_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True)
class Fit:
    """The measurements behind fitted costs, and the errors of the fit.

    *data* names the measurements; *rows* and *families* (sizes of a model, or recipes) count them. Errors
    are relative to the measurement: *mean*, *median* and *worst* of the fitted rows; *unseen_mean* and
    *unseen_median* of families that were left out of the fit in turn. Nine of ten rows of every such family
    took *low* to *high* times the prediction; *inside* is the coverage of these intervals, each fitted
    without the row's family. *utilisation* is the median share of the peak, by the operations that the
    model requires. No row had more ranks than *most_ranks*, or a layer with fewer forward operations per
    rank and micro-batch than *least_layer_flops*. *covers* lists optional features that some rows had, by
    their names in `predict`. Costs without a fit have their source in *data*, and 0 *rows*; those of
    another chip keep the figures of its fit.
    """

    data: str
    rows: int = 0
    families: int | None = None
    mean: float | None = None
    median: float | None = None
    worst: float | None = None
    unseen_mean: float | None = None
    unseen_median: float | None = None
    low: float | None = None
    high: float | None = None
    inside: float | None = None
    utilisation: float | None = None
    most_ranks: int | None = None
    least_layer_flops: float | None = None
    covers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Costs:
    """The costs of classes of operators on a chip with one software.

    *gemm* and *attention* are shares of the peak, by precision (``default`` for those not named),
    *pointwise* of the memory bandwidth. *gemm_memory* is how much of the time to move the operands of a
    matrix product once comes on top of its operations, so that thin ones are slow. *layer_ns* is the
    additional time of each layer and pass (kernel launches and software), *host_ns* the host's time for it,
    in parallel to the chip. *step_ns* is once a step. *exposed* is the share of an overlapped collective
    that slows the computation down by as much, *tensor_exposed* that of one of activations, between the parts
    of a product (if not given, *exposed*). *within_node* and *across_nodes* are the costs of
    collectives on the links of a node and between nodes. The software by itself has *fused_attention*,
    *overlap* of gradients with the backward pass, *sequence_parallel* regions, *tensor_overlap* of their
    collectives with matrix products, a *sharded_optimizer* (ZeRO 1), reduces gradients of *grad_bytes*, and
    runs PyTorch's own operators (*eager*).
    """

    gemm: Mapping[str, float]
    attention: Mapping[str, float]
    pointwise: float
    gemm_memory: float = 0.5
    layer_ns: float = 0.0
    host_ns: float = 0.0
    step_ns: float = 0.0
    exposed: float = 0.0
    tensor_exposed: float = 0.0
    within_node: LinkCosts = LinkCosts()
    across_nodes: LinkCosts = LinkCosts()
    fused_attention: bool = True
    overlap: bool = True
    sequence_parallel: bool = True
    tensor_overlap: bool = False
    sharded_optimizer: bool = False
    grad_bytes: int = 4
    eager: bool = False
    fit: Fit = Fit("assumed")

    def share(self, kind: str, precision: str) -> float:
        """Return the share of the peak that *kind* (``gemm``, ``attention``) reaches in *precision*.

        A low precision without its own share has that of FP8.
        """
        shares: Mapping[str, float] = getattr(self, kind)
        similar = "fp8" if precision in LOW_PRECISIONS else "default"
        return shares.get(precision, shares.get(similar, shares["default"]))


@dataclass(frozen=True)
class Chip:
    """A chip: *peak_flops* per second by precision, memory, and *costs* by software.

    *source* names where the peaks come from. *precision* is the default of training. *devices* are the names
    that traces give it. *host* is that of the usual node, for CPU offload. *products* are the shares of the
    peaks that large matrix products reach when measured alone, by precision. Without measured steps of its
    own, it has the costs of the shipped chip that *like* names for the software, with the shares of matrix
    products in proportion to those measured alone.
    """

    name: str
    title: str
    source: str
    peak_flops: Mapping[str, float]
    memory_bytes: int
    memory_bytes_per_s: float
    precision: str
    costs: Mapping[str, Costs]
    devices: tuple[str, ...] = ()
    like: Mapping[str, str] = field(default_factory=dict)
    host: Host | None = None
    products: Mapping[str, float] = field(default_factory=dict)

    def peak(self, precision: str) -> float:
        """Return the operations per second in *precision*; raises `ConfigError` for an unsupported one."""
        if precision not in self.peak_flops:
            raise ConfigError(
                f"The chip '{self.name}' has no peak for the precision '{precision}'"
                f"{did_you_mean(precision, self.peak_flops)}"
            )
        return self.peak_flops[precision]

    def flops_per_s(self, costs: Costs, kind: str, precision: str) -> float:
        """Return the operations per second that *kind* (``gemm``, ``attention``) reaches by *costs*."""
        if kind == "attention" and precision in LOW_PRECISIONS:
            precision = self.precision
        return self.peak(precision) * costs.share(kind, precision)

    def costs_of(self, software: str) -> Costs:
        """Return the costs of operators with *software*; raises `ConfigError` for software without costs."""
        if software not in self.costs:
            raise ConfigError(
                f"The chip '{self.name}' has no costs for the software '{software}'"
                f"{did_you_mean(software, self.costs)}"
            )
        return self.costs[software]

    def costs_like(self, other: Chip, software: str) -> Costs:
        """Return the costs of *software* on *other*, with matrix products as fast as on this chip."""
        costs = other.costs_of(software)
        ratio = {key: share / other.products[key] for key, share in self.products.items()
                 if key in other.products}  # fmt: skip
        gemm = {key: min(1.0, share * ratio.get(key, 1.0)) for key, share in costs.gemm.items()}
        return replace(costs, gemm=gemm)


_HABITS = (
    "fused_attention", "overlap", "sequence_parallel", "tensor_overlap", "sharded_optimizer", "eager",
)  # fmt: skip
_OTHER_NAMES = {"a100": "a100-80", "a100-80gb": "a100-80", "a100-40gb": "a100-40", "h100-80gb": "h100"}
_CHIPS = Shipped("chip", Path(__file__).parent, other_names=_OTHER_NAMES)


def list_chips() -> list[str]:
    """Return the names of the chips that ship with the package, sorted."""
    return _CHIPS.names()


def find_chip(name: str | Path) -> Chip:
    """Return the shipped chip called *name*, or that of a file; raises `ConfigError` naming the closest."""
    return load_chip(_CHIPS.find(name))


def chip_of_device(device: str) -> Chip | None:
    """Return the shipped chip with the device name *device* in traces; None without one."""
    chips = map(find_chip, list_chips())
    return next((chip for chip in chips if device in chip.devices), None)


def load_chip(path: str | Path) -> Chip:
    """Read a chip file; raises `ConfigError` for keys that are unknown, missing or out of range."""
    file = Path(path)
    part = _Part(read_yaml(file, "chip file"), str(file))
    like = {software: str(other) for software, other in part.mapping("like")}
    costs = {
        software: _costs(_Part(value, f"{file}: costs of {software}"))
        for software, value in part.mapping("costs")
    }
    known = part.take(Chip, {"costs", "name"})
    known["like"] = like
    known["devices"] = part.texts("devices")
    known["memory_bytes_per_s"] = part.number("memory_bytes_per_s")
    known["memory_bytes"] = int(part.number("memory_bytes"))
    known["peak_flops"] = part.numbers("peak_flops")
    known["products"] = part.numbers("products", 1.0)
    if known.get("host") is not None:
        host = _Part(known["host"], f"{file}: host")
        known["host"] = Host(**{key: host.number(key) for key in host.take(Host, set())})
    for key in ("title", "source", "precision"):
        if not isinstance(known[key], str):
            raise ConfigError(f"{file}: '{key}' must be a text, not {shown(known[key])}; correct the value.")
    chip = Chip(**known, name=file.stem, costs=costs)
    chip.peak(chip.precision)
    others = {software: _costs_like(chip, other, software) for software, other in like.items()}
    return replace(chip, costs={**others, **costs})


def save_chip(chip: Chip, path: str | Path) -> None:
    """Write *chip* to a file that `load_chip` reads."""
    data = asdict(chip)
    data.pop("name")
    data["costs"] = {name: costs for name, costs in data.pop("costs").items() if name not in chip.like}
    for costs in data["costs"].values():
        costs["fit"] = {key: value for key, value in costs["fit"].items() if value is not None}
        costs["fit"]["covers"] = list(costs["fit"]["covers"])
    data["devices"] = list(data["devices"])
    for key in ("host", "products"):
        if not data[key]:
            del data[key]
    write_file(path, yaml.safe_dump(data, sort_keys=False, width=110, allow_unicode=True))


def _costs_like(chip: Chip, other: str, software: str) -> Costs:
    """Return the costs of *software* on the shipped chip *other*, for a *chip* without measured steps."""
    costs = chip.costs_like(find_chip(other), software)
    data = f"shares of peaks as on {other} with {software}, fitted on no step of this chip"
    return replace(costs, fit=replace(costs.fit, data=data, rows=0))


class _Part:
    """A mapping of a chip file, with its place."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(
                f"{where} must be a mapping of keys to values. Compare with a shipped chip file."
            )
        self.data, self.where = data, where

    def take(self, kind: type[Any], other: set[str]) -> dict[str, Any]:
        """Return the values of the fields of *kind* except *other*; raises `ConfigError` for wrong keys."""
        names = {item.name for item in fields(kind)}
        for key in self.data:
            if key not in names:
                raise ConfigError(f"{self.where}: unknown key '{key}'{did_you_mean(str(key), names)}")
        for item in fields(kind):
            required = item.default is MISSING and item.default_factory is MISSING
            if required and item.name not in other and item.name not in self.data:
                raise ConfigError(f"{self.where}: the key '{item.name}' is missing; add it.")
        return {key: value for key, value in self.data.items() if key not in other}

    def number(self, key: str, most: float | None = None) -> float:
        """Return the positive number *key*, at most *most*."""
        return _number(self.data.get(key), f"{self.where}: '{key}'", most)

    def numbers(self, key: str, most: float | None = None) -> dict[str, float]:
        """Return a mapping of names to positive numbers."""
        return {
            str(name): _number(value, f"{self.where}: '{key}' of {name}", most)
            for name, value in self.mapping(key)
        }

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts *key*, none if it is absent."""
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ConfigError(f"{self.where}: '{key}' must be a list of texts, not {shown(value)}.")
        return tuple(value)

    def mapping(self, key: str) -> list[tuple[str, Any]]:
        """Return the items of the mapping *key*, none if it is absent."""
        value = self.data.get(key, {})
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.where}: '{key}' must be a mapping. Compare with a shipped chip file.")
        return [(str(name), item) for name, item in value.items()]


def _number(value: Any, where: str, most: float | None, *, zero: bool = False) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (
        not is_number
        or abs(value) > sys.float_info.max
        or not (value >= 0 if zero else value > 0)
        or (most is not None and value > most)
    ):
        limit = "a number above 0" if most is None else f"a number above 0 and at most {most:g}"
        raise ConfigError(
            f"{where} must be {limit}, not {value!r}. Write 1.5e+9, not 1.5e9: YAML needs the sign."
        )
    return float(value)


def _costs(part: _Part) -> Costs:
    known = part.take(Costs, set())
    for key in ("gemm", "attention"):
        known[key] = part.numbers(key, 1.0)
        if "default" not in known[key]:
            raise ConfigError(f"{part.where}: '{key}' needs a share called 'default'; add it.")
    if "pointwise" in known:
        known["pointwise"] = part.number("pointwise", 1.0)
    for key in ("gemm_memory", "layer_ns", "host_ns", "step_ns", "exposed", "tensor_exposed"):
        if key in known:
            known[key] = _number(known[key], f"{part.where}: '{key}'", None, zero=True)
    known.setdefault("tensor_exposed", known.get("exposed", 0.0))
    for key in ("within_node", "across_nodes"):
        if key in known:
            known[key] = _links(_Part(known[key], f"{part.where}: {key}"))
    for key in _HABITS:
        if not isinstance(known.get(key, True), bool):
            raise ConfigError(f"{part.where}: '{key}' must be true or false, not {known[key]!r}.")
    if known.get("grad_bytes", 4) not in (2, 4):  # which may be a list
        raise ConfigError(f"{part.where}: 'grad_bytes' must be 2 or 4, not {known['grad_bytes']!r}.")
    if "fit" in known:
        known["fit"] = _fit(_Part(known["fit"], f"{part.where}: fit"))
    return Costs(**known)


def _fit(part: _Part) -> Fit:
    known = part.take(Fit, set())
    for item in fields(Fit):
        if item.name not in ("data", "covers") and known.get(item.name) is not None:
            _number(known[item.name], f"{part.where}: '{item.name}'", None, zero=True)
    covers = known.get("covers", [])
    if not isinstance(covers, list):
        raise ConfigError(f"{part.where}: 'covers' must be a list of words, not {covers!r}.")
    return Fit(**{**known, "covers": tuple(map(str, covers))})


def _links(part: _Part) -> LinkCosts:
    known = part.take(LinkCosts, set())
    if "latency_ns" in known:
        known["latency_ns"] = _number(known["latency_ns"], f"{part.where}: 'latency_ns'", None, zero=True)
    if "share" in known:
        known["share"] = part.number("share", 1.0)
    return LinkCosts(**known)
