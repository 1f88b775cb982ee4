"""Emulated hosts on this machine: network namespaces joined by a switch, with shaped links.

A namespace exists as long as a process inside. Each namespace has a holder process that reads from a pipe of
this process. If this process ends, even by a signal, the kernel closes the pipe, the holder ends, and the
kernel removes the namespace with its interfaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from types import TracebackType

from ...errors import BackendError, BackendUnavailable

_PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
# The burst of a traffic shaper after a pause, as a time at the shaper's rate; the burst is at least one
# frame. A real link has no bursts. Larger bursts make links appear faster than the given rate. With smaller
# bursts, late timers reduce the rate.
_BURST_S, _MIN_BURST_BYTES = 0.00005, 1600
# Linux's default congestion control; the default of some machines is another algorithm, such as BBR, which
# probes rates.
_CONGESTION_CONTROL = "cubic"
# A queue accepts whole TCP segments, while a wire carries frames. If TCP passes at most as much data at once
# as the link sends in this time, acknowledgements do not wait behind large segments of data.
_SEGMENT_S = 0.0002
_FRAME_BYTES, _MAX_SEGMENT_BYTES = 1500, 65536
_APPEAR_S = 5.0
_MAX_HOSTS = 250


def missing_requirements() -> list[str]:
    """Return a phrase for each requirement of network namespaces that this machine does not meet."""
    missing = [] if os.geteuid() == 0 else ["the rights of root"]
    packages = {package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    return missing + [f"the package {package}" for package in sorted(packages)]


def addresses_of(host: int, nics: int) -> tuple[str, ...]:
    """Return the IP addresses of the *nics* interfaces of the namespace number *host*."""
    return tuple(f"10.77.{nic}.{host + 1}" for nic in range(nics))


@dataclass(frozen=True)
class _Member:
    """A process that holds a namespace open."""

    process: subprocess.Popen[bytes]

    @property
    def path(self) -> str:
        return f"/proc/{self.process.pid}/ns/net"

    def command(self, arguments: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net={self.path}", *arguments]

    def run(self, *arguments: str, given: str = "") -> None:
        done = subprocess.run(
            self.command(arguments), input=given, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BackendError(
                f"A network of namespaces cannot be made: '{' '.join(arguments)}' failed: "
                f"'{done.stderr.strip()}'. Next: check that root can create namespaces, veth pairs and "
                "bridges on this machine (often not in containers), or use --hosts."
            )


class Namespaces:
    """*count* hosts joined by a switch, each with *nics* interfaces; *rates_bps* has a rate per host or None.

    Interface k of host i has the address ``10.77.k.(i + 1)``; the rate of a host applies to all its
    interfaces in both directions. Connections use CUBIC. The context manager removes all namespaces at its
    end. Raises `BackendUnavailable` if this machine lacks a requirement.
    """

    def __init__(
        self,
        count: int,
        rates_bps: Sequence[int | None],
        nics: int = 1,
    ) -> None:
        lacking = missing_requirements()
        if lacking:
            raise BackendUnavailable(
                f"Network namespaces need {' and '.join(lacking)}. Next: run as root with iproute2 "
                "installed, or emulate over loopback (without --namespaces and --hosts) or on --hosts."
            )
        if not 1 <= count <= _MAX_HOSTS or len(rates_bps) != count:
            raise BackendError(f"There can be 1 to {_MAX_HOSTS} namespaces with a rate each, not {count}.")
        self.nics = nics
        self._rates = list(rates_bps)
        self._members: list[_Member] = []
        self._switch: _Member | None = None

    def __enter__(self) -> Namespaces:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._members)

    def path(self, host: int) -> str:
        """Return the namespace file of a host for ``setns`` and ``nsenter``."""
        return self._members[host].path

    def command(self, host: int, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs *arguments* on a host."""
        return self._members[host].command(arguments)

    def close(self) -> None:
        """Remove the namespaces with all their interfaces and processes."""
        members = [*self._members, *([] if self._switch is None else [self._switch])]
        for member in members:
            if member.process.stdin is not None:
                member.process.stdin.close()
        for member in members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(timeout=_APPEAR_S)
        self._members, self._switch = [], None

    def _make(self) -> None:
        self._switch = _start_namespace()
        self._members = [_start_namespace() for _ in self._rates]
        for member in (self._switch, *self._members):
            _await(member)
        links = [f"link add br{nic} type bridge\nlink set br{nic} up" for nic in range(self.nics)]
        for host, member in enumerate(self._members):
            for nic in range(self.nics):
                port = _port(host, nic)
                links.append(
                    f"link add {port} type veth peer name eth{nic} netns {member.process.pid}\n"
                    f"link set {port} master br{nic} up"
                )
        self._switch.run("ip", "-batch", "-", given="\n".join(links) + "\n")
        for host, member in enumerate(self._members):
            lines = ["link set lo up"]
            for nic, address in enumerate(addresses_of(host, self.nics)):
                lines.append(f"addr add {address}/24 dev eth{nic}\nlink set eth{nic} up")
                # A namespace may lack the right to select an algorithm, so each route sets the algorithm.
                route = f"{ip_network(f'{address}/24', strict=False)} dev eth{nic} src {address}"
                lines.append(f"route replace {route} congctl {_CONGESTION_CONTROL}")
            member.run("ip", "-batch", "-", given="\n".join(lines) + "\n")
            rate = self._rates[host]
            for nic in range(self.nics if rate is not None else 0):
                for end, device in self._ends(host, nic):
                    lines = [f"qdisc add dev {device} root handle 1: htb default 1"]
                    lines.append(f"class add dev {device} parent 1: classid 1:1 {_class(rate or 0)}")
                    end.run("tc", "-batch", "-", given="\n".join(lines) + "\n")
                    end.run("ip", "link", "set", "dev", device, *_segments(rate or 0))

    def _ends(self, host: int, nic: int) -> tuple[tuple[_Member, str], tuple[_Member, str]]:
        """Return the two ends of the virtual cable (veth pair) of a host's interface.

        One end shapes the host's outgoing traffic, and the other end shapes the host's incoming traffic.
        """
        assert self._switch is not None
        return (self._members[host], f"eth{nic}"), (self._switch, _port(host, nic))


def _port(host: int, nic: int) -> str:
    return f"p{host}n{nic}"


def _class(rate_bps: int) -> str:
    """Return the traffic class of `tc` that limits a link to *rate_bps*."""
    burst = max(_MIN_BURST_BYTES, int(rate_bps / 8 * _BURST_S))
    return f"htb rate {rate_bps}bit ceil {rate_bps}bit burst {burst} cburst {burst}"


def _segments(rate_bps: int) -> list[str]:
    """Return the options that limit the bytes that TCP passes at once to a link of *rate_bps*."""
    size = int(rate_bps / 8 * _SEGMENT_S)
    size = min(max(size, 2 * _FRAME_BYTES), _MAX_SEGMENT_BYTES)
    return ["gso_max_size", str(size), "gso_max_segs", str(-(-size // _FRAME_BYTES))]


def _start_namespace() -> _Member:
    """Start a process in a new namespace that ends when its input ends."""
    process = subprocess.Popen(
        ["unshare", "--net", "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return _Member(process)


def _await(member: _Member) -> None:
    """Wait until the holder process is in the new namespace."""
    own = Path("/proc/self/ns/net").readlink()
    deadline = time.monotonic() + _APPEAR_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if Path(member.path).readlink() != own:
                return
        if member.process.poll() is not None:
            break
        time.sleep(0.002)
    raise BackendError(
        "A network namespace cannot be made ('unshare --net' failed). Next: check that root can create "
        "namespaces on this machine (often not in containers), or use --hosts."
    )
