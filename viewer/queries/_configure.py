"""The configuration in a form: its checks, and its differences from the presets."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...converter import Finding, load_workload
from ...errors import ChakrascopeError, ConfigError
from ...runner import (
    Communication,
    Experiment,
    NetworkConfig,
    Study,
    SystemConfig,
    about_backend,
    backend_names,
    check_setup,
    communication_of,
    list_presets,
    prepare,
)
from ...runner.chips import Chip, find_chip, list_chips
from ...runner.config import failure_of_text
from ...runner.engine import COLLECTIVES
from ...runner.gpu import DEFAULT_MACHINE, list_machines
from ...runner.prediction import Origin, chip_of_network, find_machine, has_links_of, usual_network
from ...runner.study import network_names, read_network_file
from ...support import count_text

MAX_RANKS = 65_536
"""Maximum number of ranks that a browser may request."""
CHANGED = " (changed)"
_MACHINE = re.compile(r"\d{1,9}x[\w-]{1,60}")
# Numbers of nodes that a form offers for machines.
_NODES = (1, 2, 4, 8, 16, 32, 64, 128)
# Keys of a network file with lists, and the noun for an item.
_COUNTED = {"assumptions": "assumption", "devices": "named device", "failures": "failure", "links": "link"}


@dataclass(frozen=True)
class Dimension:
    """A network dimension in the units of ASTRA-sim's network file.

    *algorithms* has one algorithm per collective, in the order of COLLECTIVES.
    """

    topology: str
    size: int
    bandwidth: float
    latency: float
    algorithms: tuple[str, ...]


class Networks:
    """The networks that a form may start from: presets, the network files of *study*, and machines.

    Names of files have a suffix; names of presets do not. A machine, such as ``64xh100``, also has a system,
    which depends on the chip on which the workload's compute times were measured.
    """

    def __init__(self, study: Study | None = None) -> None:
        self._study = study

    @property
    def files(self) -> list[str]:
        """The names of the study's network files."""
        return [] if self._study is None else network_names(self._study)

    @property
    def names(self) -> list[str]:
        """The names of all networks: files first, then presets."""
        return [*self.files, *list_presets("network")]

    def load(self, name: str) -> NetworkConfig:
        """Return the network *name*; raises `ConfigError` for an unknown network."""
        if self._study is not None and Path(name or "").suffix:
            return read_network_file(self._study, name)
        return NetworkConfig.preset(name)

    @property
    def machines(self) -> Mapping[str, Sequence[str]]:
        """The names of machines by chip, as in ``--on``; empty without a study."""
        return {} if self._study is None else _machines()

    def start(self, network: str, system: str, machine: str = "", workload: str = "") -> Setup:
        """Return the unchanged setup of *machine* for *workload*, or of *network* and *system* without one.

        Raises the errors of an unknown network or an unreadable workload.
        """
        if not machine or self._study is None:
            return Setup.of_presets(network, system, self)
        if not _MACHINE.fullmatch(machine) and machine not in list_presets("network"):  # such as a path
            raise ConfigError(f"There is no machine '{machine[:80]}'. Next: choose one from the list.")
        prefix = self._study.workload_prefix(workload)
        described = prefix.parent / f"{prefix.name}.workload.json"
        return _machine_setup(machine, prefix, described.stat().st_mtime_ns if described.exists() else 0)


@lru_cache(1)
def _machines() -> Mapping[str, Sequence[str]]:
    """Return the names of machines by chip: a chip in whole nodes, or presets named after it."""
    machines = {}
    for chip in map(find_chip, list_chips()):
        machines[chip.name] = [name for name in list_presets("network") if f"-{chip.name}-" in f"-{name}-"]
        if chip.network:
            ranks = NetworkConfig.preset(chip.network).num_ranks
            counts = [ranks * nodes for nodes in _NODES if nodes == 1 or _has_nodes(chip, 2 * ranks)]
            machines[chip.name] = [f"{count}x{chip.name}" for count in counts]
    return {chip: names for chip, names in machines.items() if names}


def _has_nodes(chip: Chip, ranks: int) -> bool:
    """Return whether *chip* has a network of *ranks*; some chips have only the network of a single node."""
    try:
        return bool(usual_network(chip, ranks))
    except ChakrascopeError:
        return False


@lru_cache(32)
def _machine_setup(name: str, prefix: Path, _changed: int) -> Setup:
    """Return the setup of the machine *name* for the workload at *prefix*."""
    machine, origin = find_machine(name), Origin.of(load_workload(prefix))
    begun = machine.network, machine.system(origin)
    setup = Setup.of_configs(*begun)
    return replace(
        setup, network_preset=machine.network.name, system_preset="default", begun=begun, machine=name,
        scaling=f"{machine.text(origin)}.",
    )  # fmt: skip


@lru_cache(64)
def systems_for(network: str) -> Sequence[str]:
    """Return the system presets for *network*: a chip's peaks need a network with its links."""
    loaded = None if Path(network or "").suffix else NetworkConfig.preset(network)
    own = None if loaded is None else chip_of_network(loaded)

    def is_possible(system: str) -> bool:
        chip = system.removeprefix("roofline-")
        if loaded is None or own is None or chip in (system, own.name):
            return True
        return has_links_of(chip, loaded)

    return [name for name in list_presets("system") if is_possible(name)]


PRESETS = Networks()


@dataclass(frozen=True)
class Setup:
    """A form: network dimensions, keys of the system, and the configurations it started from.

    *more* has the network's other keys, such as a packet-level part, which the form does not change. *failed*
    are failures in addition to the failures in *more*, as in ``--fail``. *begun* are the network and system
    that the form started from; if these describe a *machine*, *scaling* describes the machine's compute
    times.
    """

    dimensions: tuple[Dimension, ...]
    system: Mapping[str, Any]
    network_preset: str
    system_preset: str
    more: Mapping[str, Any] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    machine: str = ""
    begun: tuple[NetworkConfig, SystemConfig] | None = field(default=None, compare=False)
    scaling: str = field(default="", compare=False)

    @classmethod
    def of_presets(cls, network_preset: str, system_preset: str, networks: Networks = PRESETS) -> Setup:
        """Return the setup of a network in *networks* and a system preset."""
        network = networks.load(network_preset)
        system = SystemConfig.preset(system_preset, network.dimensions)
        return replace(
            cls.of_configs(network, system),
            network_preset=network_preset,
            system_preset=system_preset,
            begun=(network, system),
        )

    def start(self) -> Setup:
        """Return the unchanged setup from which this setup started."""
        if self.begun is None:
            return Setup.of_presets(self.network_preset, self.system_preset)
        start = Setup.of_configs(*self.begun)
        return replace(self, dimensions=start.dimensions, system=start.system, more=start.more, failed=())

    @property
    def changed(self) -> bool:
        """Whether the setup differs from its start; added failures do not count."""
        return bool(differences(replace(self, failed=())))

    @classmethod
    def of_configs(cls, network: NetworkConfig, described: SystemConfig) -> Setup:
        """Return the setup of a *network* and a *described* system, which need not be presets."""
        system, most = described.to_dict(), network.dimensions
        chosen = [
            [*system.get(f"{name}-implementation", []), *["ring"] * most][:most] for name in COLLECTIVES
        ]
        algorithms = list(zip(*chosen, strict=True))
        rows = zip(network.topology, network.npus_count, network.bandwidth, network.latency, strict=True)
        dimensions = tuple(Dimension(*row, tuple(algorithms[index])) for index, row in enumerate(rows))
        rest = {key: value for key, value in system.items() if not key.endswith("-implementation")}
        return cls(dimensions, rest, "", "", network.without_dimensions())

    @property
    def network_name(self) -> str:
        """The name of the network in runs."""
        return Path(self.network_preset).stem + CHANGED * self.changed

    @property
    def num_ranks(self) -> int:
        """The number of ranks: the product of the dimensions."""
        return math.prod(dimension.size for dimension in self.dimensions)

    def configs(self) -> tuple[NetworkConfig, SystemConfig]:
        """Return the network and system; raises `ConfigError` for invalid values."""
        network = NetworkConfig.from_mapping(self.network_mapping(), "The network")
        return network, SystemConfig.from_mapping(self.system_mapping(), "The system")

    def network_mapping(self) -> dict[str, Any]:
        """Return the content of a network file; raises `ConfigError` for an invalid failure."""
        failed = [*self.more.get("failures", []), *map(failure_of_text, self.failed)]
        return {
            "topology": [dimension.topology for dimension in self.dimensions],
            "npus_count": [dimension.size for dimension in self.dimensions],
            "bandwidth": [dimension.bandwidth for dimension in self.dimensions],
            "latency": [dimension.latency for dimension in self.dimensions],
            **self.more,
            **({"failures": failed} if failed else {}),
        }

    def system_mapping(self) -> dict[str, Any]:
        """Return the content of an ASTRA-sim system file."""
        lists = {
            f"{name}-implementation": [dimension.algorithms[index] for dimension in self.dimensions]
            for index, name in enumerate(COLLECTIVES)
        }
        return {**self.system, **lists}


def check(setup: Setup, workload: Communication, backends: Sequence[str]) -> list[Finding]:
    """Check a simulation of *workload* with *setup*; return errors first, then warnings."""
    try:
        network, system = setup.configs()
    except ConfigError as error:
        return [Finding("error", "configuration", error.message)]
    if setup.num_ranks > MAX_RANKS:
        cause = f"{setup.num_ranks:,} ranks are more than the {MAX_RANKS:,} a browser may ask for."
        return [Finding("error", "network", cause, "Use the command line.")]
    return check_setup(network, system, workload, backends)


def differences(setup: Setup) -> list[str]:
    """Return a text per difference between *setup* and its start."""
    start = setup.start()
    parts = []
    if len(start.dimensions) != len(setup.dimensions):
        parts.append(f"dimensions: {len(start.dimensions)} → {len(setup.dimensions)}")
    pairs = zip(start.dimensions, setup.dimensions, strict=False)
    for number, (before, after) in enumerate(pairs, start=1):
        names = ("topology", "size", "bandwidth", "latency")
        parts += [
            f"dimension {number}, {name}: {getattr(before, name)} → {getattr(after, name)}"
            for name in names
            if getattr(before, name) != getattr(after, name)
        ]
        parts += [
            f"dimension {number}, {name}: {old} → {new}"
            for name, old, new in zip(COLLECTIVES, before.algorithms, after.algorithms, strict=True)
            if old != new
        ]
    keys = dict.fromkeys([*start.system, *setup.system])
    for key in keys:
        old, new = start.system.get(key, "absent"), setup.system.get(key, "absent")
        if old != new:
            parts.append(f"{key}: {old} → {new}")
    return [*parts, *(f"failure: {text}" for text in setup.failed)]


def fixed_keys_text(setup: Setup) -> str:
    """Describe the keys of the network that the form cannot change, or return ""."""
    parts = []
    for key, value in setup.more.items():
        if key in _COUNTED:
            parts.append(count_text(len(value), _COUNTED[key]))
        elif key == "dimensions":
            parts.append("dimensions that only arrange the ranks")
        elif isinstance(value, Mapping):
            inside = ", ".join(map(str, value))
            parts.append(f"a part {key} ({inside})" if inside else f"a part {key}")
        else:
            parts.append(key)
    return f"Unchanged: {', '.join(parts)}." if parts else ""


def machine_text(setup: Setup) -> str:
    """Describe the compute times of the form's machine; ``""`` without one."""
    if setup.machine and setup.changed:
        return f"The fields below differ from those of {setup.machine}: the card Check lists the changes."
    return setup.scaling


def experiment_of(setup: Setup, prefix: Path, backend: str) -> Experiment:
    """Return the experiment of the workload at *prefix*; raises the errors of `prepare`."""
    network = NetworkConfig.from_mapping(setup.network_mapping(), "The network", setup.network_name)
    # A replay needs no network, so its system has the algorithms of one dimension.
    replays = about_backend(backend).replays
    kept = setup.dimensions[:1] if replays else setup.dimensions
    system = SystemConfig.from_mapping(replace(setup, dimensions=kept).system_mapping(), "The system")
    made = prepare(prefix, system, network, backend=backend)
    # CPU times get a separate warning, and a replay uses the measured times.
    if not setup.machine or setup.changed or replays or communication_of(prefix).on_cpu:
        return made
    return replace(made, assumptions=(setup.scaling, *made.assumptions))


def command_line(setup: Setup, backends: Sequence[str], workload: str = "") -> str:
    """Return the equivalent ``chakrascope run`` command; changed presets become files.

    The command simulates *workload*; "" means the newest.
    """
    changed = setup.changed
    own = f"STUDY/networks/{setup.network_preset}" if Path(setup.network_preset).suffix else ""
    network = "network.yml" if changed else own or setup.network_preset
    system = "system.json" if changed else setup.system_preset
    cluster = ["--network", network, "--system", system]
    if setup.machine and not changed:
        cluster = ["--on", setup.machine]
    parts = ["chakrascope", "run", "STUDY", *cluster]
    parts += ["--workload", workload] if workload else []
    # The file of a changed network already has the failures.
    for text in () if changed else setup.failed:
        parts += ["--fail", text]
    return shlex.join([*parts, *backend_command(backends)])


def takes_machine(name: str) -> bool:
    """Return whether the backend *name* runs on a machine that the user can choose."""
    return about_backend(name).variant == "machine"


def is_offered(name: object) -> bool:
    """Return whether a form may select the backend *name*, such as ``flow`` or ``gpu:mi300x``.

    Only built-in machines are offered, because a browser must not name files on the server.
    """
    if not isinstance(name, str):
        return False
    return name in backend_names() or (takes_machine(name) and name.partition(":")[2] in list_machines())


def plain_backend(name: str) -> str:
    """Return the backend *name* without its machine, as in the list of backends."""
    return name.partition(":")[0] if takes_machine(name) else name


def plain_name(name: str) -> str:
    """Return the backend *name* without its machine if this machine is the default."""
    return plain_backend(name) if name.endswith(f":{DEFAULT_MACHINE}") else name


def machine_of(backends: Sequence[str]) -> str:
    """Return the machine of one of *backends*, or the default."""
    named = (name.partition(":")[2] for name in backends if takes_machine(name))
    return next(filter(None, named), DEFAULT_MACHINE)


def chosen_backends(plain: Sequence[str] | None, machine: str | None) -> tuple[str, ...]:
    """Return the valid backends for the fields "backends" and "machine"."""
    named = "" if machine in {None, "", DEFAULT_MACHINE} else f":{machine}"
    chosen = (f"{name}{named}" if takes_machine(name) else name for name in plain or ())
    return tuple(name for name in dict.fromkeys(chosen) if is_offered(name))


def backend_command(backends: Sequence[str]) -> list[str]:
    """Return the options of ``chakrascope run`` that choose *backends*."""
    options = [part for name in backends for part in ("--backend", plain_backend(name))]
    named = any(plain_backend(name) != name for name in backends)
    return [*options, "--machine", machine_of(backends)] if named else options
