"""Options that describe the simulated cluster, and the experiments on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..runner import DEFAULT_BACKEND, PACKET
from ._options import failed_links, joined, link_defaults, network_changes, on_option

if TYPE_CHECKING:
    from ..converter import Workload
    from ..runner import Experiment, NetworkConfig, SystemConfig
    from ..runner.chips import Chip
    from ..runner.prediction import Machine, Origin


def default_backends(network: NetworkConfig | str | None) -> tuple[str, ...]:
    """Return *packet* for a packet-level topology, otherwise the analytical backend."""
    if isinstance(network, str):
        packets = Path(network).suffix == ".txt"
    else:
        packets = network is not None and network.packet is not None and network.packet.topology is not None
    return (PACKET,) if packets else (DEFAULT_BACKEND,)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The cluster to simulate: system, network and memory (files or presets), backends, `prepare` options.

    The chip of a *machine*, if given, may also replace the workload's compute times.
    """

    system: str
    network: NetworkConfig | str | None
    memory: str | None
    backends: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    machine: Machine | None = None

    def experiments(self, workload: Workload | str | Path, groups: str | None = None) -> Iterator[Experiment]:
        """Yield an experiment per backend; *workload* is a workload or the PREFIX of its files."""
        from ..runner import prepare

        system: SystemConfig | str = self.system
        origin = None if self.machine is None else _origin_of(workload)
        if self.machine is not None and origin is not None:
            system = self.machine.system(origin)
        for backend in self.backends:
            made = prepare(workload, system, self.network, self.memory, groups, backend, **self.options)
            if self.machine is None or origin is None or origin.is_of_cpus:  # CPU times get another warning
                yield made
            else:
                yield replace(made, assumptions=(self.machine.text(origin), *made.assumptions))

    def check(self) -> None:
        """Raise errors in the names of backends and in the files of the cluster, before a workload exists."""
        from ..runner import MemoryConfig, NetworkConfig, SystemConfig, get_backend
        from ..runner.config import is_preset

        for name in self.backends:
            get_backend(name)
        if isinstance(self.network, str):
            NetworkConfig.find(self.network)
        for kind, config, file in (
            ("system", SystemConfig, self.system),
            ("memory", MemoryConfig, self.memory),
        ):
            if file is not None:
                config.preset(file) if is_preset(kind, file) else config.load(file)

    @classmethod
    def of_options(
        cls,
        machine_name: str | None,
        *,
        system: str,
        network: str | None,
        memory: str | None,
        logical: str | None,
        link_default: Sequence[str],
        failed: Sequence[str],
        backends: tuple[str, ...],
        **options: Any,
    ) -> Target:
        """Return the target in the values of the options from `target_options`.

        Without *backends*, it has the default backend.
        """
        from ..runner.prediction import find_machine

        machine = None if machine_name is None else find_machine(machine_name)
        if machine is None:
            _refuse_unlike(network, system)
            cluster = choose_network(network, logical, link_default, failed)
        else:
            refuse_with_on(network=network, logical=logical, memory=memory, system=system)
            cluster = with_failures(machine.network, failed) if failed else machine.network
        return cls(
            system=system,
            network=cluster,
            memory=memory if machine is None else machine.memory,
            backends=backends or default_backends(cluster),
            options=options,
            machine=machine,
        )


def refuse_with_on(
    *, network: str | None, memory: str | None, system: str, logical: str | None = None
) -> None:
    """Raise `UsageError` for options that set parts of a cluster, because ``--on`` sets the whole cluster."""
    given = {"--network": network, "--logical-topology": logical, "--memory": memory}
    given["--system"] = None if system == "default" else system
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"--on describes chips, network and memory together. Next: leave out {option}, or use "
                "--network and --system without --on."
            )


def _refuse_unlike(network: str | None, system: str) -> None:
    """Raise `UsageError` if network and system are presets of different chips."""
    from ..runner import NetworkConfig
    from ..runner.prediction import chip_of_network, find_machine, has_links_of, is_network_name

    chip = system.removeprefix("roofline-")
    if network is None or chip == system or not is_network_name(network):
        return
    found = NetworkConfig.find(network)
    other = chip_of_network(found)
    if other is None or has_links_of(chip, found):
        return
    try:
        like = f"--on {find_machine(f'{found.num_ranks}x{chip}').name}"
    except UsageError:
        like = f"a network of {chip}"
    raise UsageError(
        f"No machine has the network {network} of {other.name} and the peaks of --system {system}. Next: "
        f"use {like}, or --on {network} for {other.name}."
    )


def _origin_of(workload: Workload | str | Path) -> Origin:
    """Return the origin of the compute times; *workload* may be the PREFIX of files."""
    from ..converter import Workload, load_workload
    from ..runner.prediction import Origin

    return Origin.of(workload if isinstance(workload, Workload) else load_workload(workload))


target_options = joined(
    on_option,
    click.option(
        "--network",
        "--network-configuration",
        "network",
        help="Network YAML file or preset, an InfraGraph (YAML, JSON, XML of lstopo or NCCL), or "
        "ASTRA-sim's config.txt for ns-3.",
    ),
    click.option(
        "--logical-topology",
        "--logical-topology-configuration",
        "logical",
        help="JSON file of the logical topology for ASTRA-sim's config.txt for ns-3.",
    ),
    click.option(
        "--system",
        "--system-configuration",
        "system",
        default="default",
        show_default=True,
        help="System JSON file or preset.",
    ),
    click.option("--memory", "--remote-memory-configuration", "memory", help="Memory JSON file or preset."),
    click.option(
        "--backend",
        "backends",
        multiple=True,
        help="Backend that simulates the workload (repeatable). [default: analytical-unaware; packet for "
        "a config.txt]",
    ),
    network_changes,
)


def chip_and_network(machine_name: str) -> tuple[Chip, NetworkConfig]:
    """Return the chip and the network of --on; raises `UsageError` if it names no chip."""
    from ..runner.prediction import find_machine

    machine = find_machine(machine_name)
    if machine.chip is None:
        raise UsageError(
            f"--on {machine_name} names no chip. Next: use --on 64xh100, or --chip NAME "
            f"--network {machine_name}."
        )
    return machine.chip, machine.network


def choose_network(
    network: str | None, logical: str | None, link_default: Sequence[str] = (), failed: Sequence[str] = ()
) -> NetworkConfig | str | None:
    """Return the network in the options; *logical* gives a config.txt its dimensions."""
    from ..runner import NetworkConfig

    if failed:
        return with_failures(choose_network(network, logical, link_default), failed)
    if link_default:
        if network is None or logical is not None:
            raise UsageError("--link-default applies only if --network is an InfraGraph file.")
        return NetworkConfig.load(network, link_defaults(link_default))
    if logical is None:
        return network
    if network is None or Path(network).suffix != ".txt":
        raise UsageError(
            "--logical-topology arranges the hosts of ASTRA-sim's config.txt for ns-3, but --network is "
            f"{network or 'not given'}. Next: add --network config.txt, or leave out --logical-topology, as "
            "a network YAML has its own dimensions."
        )
    return NetworkConfig.load_packet(network, logical)


def with_failures(network: NetworkConfig | str | None, failed: Sequence[str]) -> NetworkConfig:
    """Return *network* with the failures in *failed* (values of --fail) added to its own failures."""
    from ..runner import NetworkConfig
    from ..runner.config import read_failures

    if network is None:
        raise UsageError("--fail needs a network whose links can fail. Next: add --network.")
    loaded = network if isinstance(network, NetworkConfig) else NetworkConfig.find(network)
    written = [*(failure.to_dict() for failure in loaded.failures), *failed_links(failed)]
    own = [f"{loaded.name}: failures[{number}]" for number in range(len(loaded.failures))]
    entries = [*own, *(f"--fail {text}" for text in failed)]
    return replace(loaded, failures=read_failures(written, loaded.devices, "--fail", entries))
