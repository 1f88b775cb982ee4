"""Find the machine (chips with their network and memory) for a name such as ``64xh100``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...converter import Workload
from ...converter.building import COMPUTED_FOR
from ...errors import ConfigError, UsageError, did_you_mean
from ...support import share_text
from ...support.documents import read_yaml
from ..chips import Chip, chip_of_device, find_chip, list_chips
from ..config import NetworkConfig, SystemConfig, accelerators_of, list_presets, read_keys, string
from ._setting import usual_network

_NUMBER_FIRST = re.compile(r"(?P<count>\d{1,30})[^0-9a-z]*(?:x[^0-9a-z]*)?(?P<chip>[a-z][a-z0-9-]*)")
_NUMBER_LAST = re.compile(r"(?P<chip>[a-z][a-z0-9-]*?)[^0-9a-z]*[x*×:][^0-9a-z]*(?P<count>\d{1,30})")
_KEYS = ("chip", "network", "memory")
_CPU = "a CPU"


@dataclass(frozen=True)
class Machine:
    """The cluster that ``--on`` names; *chip* is None if neither the name nor the links identify it.

    *network_file* is the path of the network if the network is not a preset.
    """

    name: str
    chip: Chip | None
    network: NetworkConfig
    memory: str | None = None
    network_file: str = ""

    @property
    def title(self) -> str:
        """The description of the machine: the number of chips, and the network."""
        if self.chip is None:
            return self.network.title
        return f"{self.network.num_ranks:,} x {self.chip.name} ({self.network.title})"

    def system(self, origin: Origin) -> SystemConfig:
        """Return the default system configuration for a workload with compute times of this *origin*.

        If the compute times come from another chip, the system computes new times from the peaks of the
        machine's chip.
        """
        system = SystemConfig.preset("default", self.network.dimensions)
        if not self.scales(origin):
            return system
        peak, memory = self._peaks()
        name = f"roofline-{self.chip.name if self.chip else ''}"
        return replace(system, roofline_enabled=True, peak_perf=peak, local_mem_bw=memory, name=name)

    def settings(self, origin: Origin) -> dict[str, Any]:
        """Return the settings of a sweep point that simulates a workload of *origin* on the machine."""
        settings: dict[str, Any] = {"network": self.network_file or self.network.name}
        if self.memory is not None:
            settings["memory"] = self.memory
        if not self.scales(origin):
            return settings
        peak, memory = self._peaks()
        peaks = {"peak-perf": peak, "local-mem-bw": memory, "roofline-enabled": 1}
        return settings | {f"system.{key}": value for key, value in peaks.items()}

    def _peaks(self) -> tuple[float, float]:
        """Return the chip's peak compute rate (TFLOP/s, usual precision) and memory bandwidth (GB/s)."""
        assert self.chip is not None, "a machine without a chip scales nothing"
        return self.chip.peak(self.chip.precision) / 1e12, self.chip.memory_bytes_per_s / 1e9

    def scales(self, origin: Origin) -> bool:
        """Return whether times from the chip's peaks replace compute times of the given *origin*."""
        return self.chip is not None and origin.chip not in ("", self.chip.name) and origin.known_share > 0

    def text(self, origin: Origin) -> str:
        """Return the first line of a command's output: the machine, and the source of compute times."""
        how = "predicted for" if origin.is_predicted else "measured on"
        own = f"as {how} {origin.chip}" if origin.chip else "from the workload, for an unknown chip"
        if self.scales(origin):
            assert self.chip is not None, "scaling needs a chip"
            peaks = f"the {self.chip.precision} peaks of {self.chip.name}"
            return (
                f"{self.title}: compute times from {peaks}, a lower bound ({share_text(origin.known_share)} "
                f"of the compute time {how} {origin.chip} has FLOPs or bytes; the remaining compute time is "
                "left out), and host times as measured"
            )
        foreign = self.chip is not None and origin.chip not in ("", self.chip.name)
        but = f", not {self.chip.name}" if self.chip is not None and foreign else ""
        return f"{self.title}: compute times {own}{but}"


@dataclass(frozen=True)
class Origin:
    """The source of a workload's compute times: *chip* is "" if unknown, and ``a CPU`` for CPUs."""

    workload: Workload
    chip: str
    is_predicted: bool = False

    @classmethod
    def of(cls, workload: Workload) -> Origin:
        """Return the origin of compute times that the metadata of *workload* contain."""
        metadata: Mapping[str, Any] = workload.metadata
        if COMPUTED_FOR in metadata:
            return cls(workload, str(metadata[COMPUTED_FOR]), is_predicted=True)
        if "chips" not in metadata:
            return cls(workload, "")
        devices = dict.fromkeys(map(str, metadata["chips"].values()))
        chip_of = {device: chip_of_device(device) for device in devices if device}
        names = dict.fromkeys(chip.name if chip else device for device, chip in chip_of.items())
        return cls(workload, " and ".join(names) or _CPU)

    @property
    def is_of_cpus(self) -> bool:
        """Whether the compute times were measured on CPUs."""
        return self.chip == _CPU

    @cached_property
    def known_share(self) -> float:
        """The share of compute time in operators with known FLOPs or bytes; 0 for predicted times."""
        if self.is_predicted:
            return 0.0
        known = total = 0
        for graph in self.workload.graphs:
            nodes = graph.node_columns
            computes = nodes["kind"] == "compute"
            costs = computes & ((nodes["num_ops"] > 1) | (nodes["tensor_size_bytes"] > 1))
            total += int(nodes["duration_ns"][computes].sum())
            known += int(nodes["duration_ns"][costs].sum())
        return known / total if total else 0.0


def foreign_text(workload: Workload, network: NetworkConfig) -> str:
    """Return a warning if the compute times of *workload* come from a chip that *network* does not have.

    Compute times of CPUs cause no warning here, because every answer contains a separate warning about CPUs.
    """
    origin, chip = Origin.of(workload), chip_of_network(network)
    if chip is None or origin.chip in ("", _CPU) or has_links_of(origin.chip, network):
        return ""
    how = "predicted for" if origin.is_predicted else "measured on"
    ranks = network.num_ranks
    remedy = (
        f"predict --on {ranks}x{chip.name}" if origin.is_predicted else f"run STUDY --on {ranks}x{chip.name}"
    )
    return (
        f"Compute times were {how} {origin.chip}, but the links are those of {chip.name}: only communication "
        f"is simulated for {chip.name}. Next: `chakrascope {remedy}`."
    )


def find_machine(name: str) -> Machine:
    """Return the machine with the *name* COUNTxCHIP, of a network preset, or of a file.

    For an unknown name, raises `UsageError` with the closest name or the next step.
    """
    text = name.strip().lower()
    if is_network_name(text):
        network = NetworkConfig.preset(text)
        return Machine(text, chip_of_network(network), network)
    if Path(name).is_file():
        return _machine_of_file(Path(name))
    numbered = _NUMBER_FIRST.fullmatch(text) or _NUMBER_LAST.fullmatch(text)
    if numbered is not None and not int(numbered["count"]):
        raise UsageError(
            f"--on {name}: the number of chips must be 1 or more. Next: use --on 8x{numbered['chip']}."
        )
    if numbered is not None and _is_chip(numbered["chip"]):
        wanted = f"{int(numbered['count'])}x{numbered['chip']}"
        if text != wanted:
            raise UsageError(f"--on {name}: write {wanted}.")
        chip = find_chip(numbered["chip"])
        return Machine(wanted, chip, _usual_network(chip, int(numbered["count"])))
    if _is_chip(text):
        raise UsageError(f"--on {name}: the number of chips is missing. Next: use --on 8x{text}.")
    if numbered is not None:
        chips = did_you_mean(numbered["chip"], list_chips())
        raise UsageError(f"--on {name}: there is no chip '{numbered['chip']}'{chips}")
    hint = did_you_mean(text, list_presets("network"), "chakrascope network")
    raise UsageError(
        f"--on {name}: there is no network preset or file of this name{hint} Chips are written as 64xh100."
    )


def is_network_name(name: str) -> bool:
    """Return whether *name* is the name of a network preset."""
    try:
        return bool(NetworkConfig.preset(name))
    except ConfigError:
        return False


def _is_chip(name: str) -> bool:
    try:
        find_chip(name)
    except ConfigError:
        return False
    return True


def _machine_of_file(file: Path) -> Machine:
    """Return the machine in *file*, which is a machine file with a chip or a network file."""
    data = read_yaml(file, "machine file") if file.suffix in (".yml", ".yaml") else {}
    if "chip" not in data:
        network = NetworkConfig.find(file)
        return Machine(file.name, chip_of_network(network), network, network_file=str(file))
    data = read_keys(data, dict.fromkeys(_KEYS, string), str(file))
    if "network" not in data:
        raise ConfigError(f"{file}: the key 'network' is missing; add the name of a preset, or a file.")
    chip = find_chip(_next_to(file, data["chip"], list_chips()))
    named = _next_to(file, data["network"], list_presets("network"))
    network = NetworkConfig.find(named)
    other = chip_of_network(network)
    if other is not None and not has_links_of(chip.name, network):
        raise UsageError(
            f"{file}: {network.title} has the links of {other.name}, not of {chip.name}. Next: name the "
            f"network of {chip.name}, or a network file of your own."
        )
    memory = data.get("memory")
    return Machine(file.stem, chip, network, memory and _next_to(file, memory, list_presets("memory")), named)


def _next_to(file: Path, name: str, shipped: Sequence[str]) -> str:
    """Return the path of the file *name* next to *file*, or *name* if it is *shipped* or no such file."""
    other = file.parent / name
    return str(other) if name not in shipped and other.is_file() else name


def _usual_network(chip: Chip, count: int) -> NetworkConfig:
    """Return the usual network of *count* chips; without one, raises `UsageError` with the next step."""
    try:
        return usual_network(chip, count)
    except UsageError as error:
        text = re.sub(r"--gpus (\d+)", rf"--on \1x{chip.name}", error.message)
        if "has no default network" in text:
            presets = "".join(
                f"--on {name}, " for name in list_presets("network") if f"-{chip.name}-" in f"-{name}-"
            )
            text = (
                f"The chip '{chip.name}' has no usual network. Next: use {presets}"
                f"{'or ' * bool(presets)}--on FILE, a YAML file with 'chip: {chip.name}' and 'network: "
                "PRESET_OR_FILE'."
            )
        raise UsageError(text) from None


def chip_of_network(network: NetworkConfig) -> Chip | None:
    """Return the chip that the name or the links of *network* identify, or None."""
    for name in list_chips():
        if f"-{name}-" in f"-{network.title}-":
            return find_chip(name)
    names = accelerators_of(network.to_dict(), {})
    return find_chip(names[0].lower().replace(" ", "-")) if names else None


def has_links_of(chip: str, network: NetworkConfig) -> bool:
    """Return whether *network* names *chip*, or has the same links as nodes sold with *chip*."""
    own = chip_of_network(network)
    try:
        known = find_chip(chip)
        if own is not None and own.name == known.name:
            return True
        usual = usual_network(known, network.num_ranks)
    except (ConfigError, UsageError):  # the chip is unknown, or is not sold in nodes
        return False
    return (usual.topology[0], usual.bandwidth[0]) == (network.topology[0], network.bandwidth[0])
