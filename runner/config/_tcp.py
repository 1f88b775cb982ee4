"""The key ``tcp`` of a network configuration: TCP of hosts and switches, for the backend ``ns3``.

Other keys of the configuration describe hosts, switches and links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError
from ...support import bytes_text
from ._values import Reader, boolean, duration, one_of, read_keys, size, whole, wrong

_LARGEST_BUFFER = 1 << 30  # bytes of a TCP window at the largest window scale
_TCP_IP_BYTES = 52  # headers of a data segment in Linux: IP 20, TCP 20, timestamps 12
_MIN_SEGMENT = 88  # bytes; the smallest segment size of Linux
_MTU = (576, 65_535)
_TIME = duration(1_000, 60_000_000_000)


def _thresholds(value: Any, where: str) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise wrong(where, "two sizes, such as [150kB, 450kB]", value)
    low, high = (size(1, _LARGEST_BUFFER)(item, where) for item in value)
    if low >= high:
        raise ConfigError(f"{where}: the first threshold ({low} B) must be below the second ({high} B).")
    return low, high


# Every TCP setting with its parser, its default and the default's source. None: it depends on other settings.
_SETTINGS: dict[str, tuple[Reader, Any, str]] = {
    "congestion-control": (one_of(("bbr", "cubic", "dctcp", "newreno", "reno")), "cubic", "Linux's"),
    "queue-disc": (one_of(("fifo", "fq-codel", "red")), None, "of switches"),
    "buffer": (size(3_000, _LARGEST_BUFFER), 1 << 20, "of each port of a switch"),
    "red-thresholds": (_thresholds, None, ""),
    "ecn-threshold": (size(1, _LARGEST_BUFFER), None, ""),
    "ecn": (boolean, None, ""),
    "host-queue-disc": (one_of(("fifo", "fq-codel")), "fq-codel", "Linux distributions'"),
    "mtu": (whole(*_MTU), 1500, "Ethernet's"),
    "mss": (whole(_MIN_SEGMENT, _MTU[1] - _TCP_IP_BYTES), None, ""),
    "frame-overhead": (whole(2, 1000), 38, "B per frame: Ethernet's preamble, header, checksum and gap"),
    "initial-window": (whole(1, 1000), 10, "segments, Linux's"),
    "send-buffer": (size(4096, _LARGEST_BUFFER), 4 << 20, "Linux's largest"),
    "receive-buffer": (size(4096, _LARGEST_BUFFER), 6 << 20, "Linux's largest"),
    "connections-per-pair": (whole(1, 64), 1, "gloo's, for each context"),
    "connect": (one_of(("before", "first-use")), None, ""),
    "message-header": (size(0, 1 << 16), 48, "gloo's"),
    "ack-every": (whole(1, 64), 2, "segments, Linux's"),
    "delayed-ack": (_TIME, 40_000_000, "Linux's"),
    "min-rto": (_TIME, 200_000_000, "Linux's"),
    "slow-start-after-idle": (boolean, True, "Linux's"),
    "limit-output-bytes": (size(0, _LARGEST_BUFFER), 1 << 20, "TCP small queues, Linux's"),
    "pcap": (boolean, False, ""),
    "flow-monitor": (boolean, False, ""),
    "seed": (whole(1, 1 << 31), 1, ""),
}
_QUIET = ("flow-monitor", "pcap", "seed")  # settings whose defaults are not listed in results


@dataclass(frozen=True, kw_only=True)
class TcpPart:
    """TCP settings by name, in bytes and ns; *written* is the mapping in the file."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_mapping(cls, data: Any, where: str = "The TCP part of the network") -> TcpPart:
        """Parse *data*; raises `ConfigError` if it is invalid."""
        readers = {key: reader for key, (reader, *_) in _SETTINGS.items()}
        settings = read_keys(data, readers, f"{where}: 'tcp'")
        part = cls(settings=settings, written=dict(data))
        _check(part.complete(), where)
        return part

    def complete(self) -> dict[str, Any]:
        """Return every setting, with defaults that depend on other settings filled in.

        Without a value, ``connect`` stays None, because its default depends on the number of ranks.
        """
        settings = {key: default for key, (_, default, _) in _SETTINGS.items()} | dict(self.settings)
        marks = settings["congestion-control"] == "dctcp"
        if settings["queue-disc"] is None:
            asked = marks or settings["red-thresholds"] or settings["ecn-threshold"]
            settings["queue-disc"] = "red" if asked else "fifo"
        if settings["ecn"] is None:
            settings["ecn"] = marks or settings["ecn-threshold"] is not None
        if settings["mss"] is None:
            settings["mss"] = settings["mtu"] - _TCP_IP_BYTES
        return settings

    def assumptions(self) -> list[str]:
        """Return a note on every default in use, with its source."""
        words = []
        for key, value in self.complete().items():
            if key in self.settings or key in _QUIET or value is None:
                continue
            source = _SETTINGS[key][2]
            words.append(f"{key} {_shown(key, value)}" + (f" ({source})" if source else ""))
        return [f"Defaults of 'tcp': {', '.join(words)}."] if words else []


def _shown(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if key in ("buffer", "send-buffer", "receive-buffer", "limit-output-bytes"):
        return bytes_text(value)
    if _SETTINGS[key][0] is _TIME:
        return f"{value / 1e6:g} ms"
    return str(value)


def _check(settings: Mapping[str, Any], where: str) -> None:
    """Raise `ConfigError` for settings that contradict each other."""
    if settings["mss"] > settings["mtu"] - _TCP_IP_BYTES:
        raise ConfigError(
            f"{where}: 'mss' of 'tcp' ({settings['mss']}) does not fit into the 'mtu' ({settings['mtu']}) "
            f"with {_TCP_IP_BYTES} bytes of headers; leave it out."
        )
    if settings["send-buffer"] > settings["receive-buffer"]:
        raise ConfigError(
            f"{where}: the 'send-buffer' of 'tcp' ({settings['send-buffer']} B) must not be larger than the "
            f"'receive-buffer' ({settings['receive-buffer']} B); make it smaller."
        )
    if settings["send-buffer"] < 2 * settings["mss"]:
        raise ConfigError(
            f"{where}: the 'send-buffer' of 'tcp' ({settings['send-buffer']} B) must hold two segments "
            f"({settings['mss']} B each); make it larger."
        )
    if settings["buffer"] < 2 * settings["mtu"]:
        raise ConfigError(
            f"{where}: the 'buffer' of 'tcp' ({settings['buffer']} B) must hold two packets of the 'mtu' "
            f"({settings['mtu']} B); make it larger."
        )
    for key in ("red-thresholds", "ecn-threshold"):
        if settings[key] is None:
            continue
        highest = max(settings[key]) if key == "red-thresholds" else settings[key]
        if settings["queue-disc"] != "red":
            raise ConfigError(f"{where}: '{key}' of 'tcp' needs 'queue-disc: red'; leave one of them out.")
        if highest > settings["buffer"]:
            raise ConfigError(
                f"{where}: '{key}' of 'tcp' is above the 'buffer' ({settings['buffer']} B); make it smaller."
            )
    if settings["red-thresholds"] and settings["ecn-threshold"]:
        raise ConfigError(f"{where}: give 'red-thresholds' or 'ecn-threshold' of 'tcp', not both.")
    if not settings["ecn"] and (settings["congestion-control"] == "dctcp" or settings["ecn-threshold"]):
        what = "'ecn-threshold'" if settings["ecn-threshold"] else "DCTCP"
        raise ConfigError(f"{where}: {what} needs ECN marks, but 'ecn' of 'tcp' is false; leave it out.")
