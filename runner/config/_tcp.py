"""The key ``tcp`` of a network configuration: TCP of hosts and switches, for the backend ``ns3``.

Other keys of the configuration describe hosts, switches and links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support import bytes_text, parse_duration, parse_size
from ._values import mapping_of, reported_at, shown

_Reader = Callable[[Any, str], Any]
_LARGEST_BUFFER = 1 << 30  # bytes of a TCP window at the largest window scale
_TCP_IP_BYTES = 52  # headers of a data segment in Linux: IP 20, TCP 20, timestamps 12
_MIN_SEGMENT = 88  # bytes; the smallest segment size of Linux
_MTU = (576, 65_535)


def _whole(low: int, high: int) -> _Reader:
    def read(value: Any, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(
                f"{where} must be a whole number between {low} and {high}, not {shown(value)}; correct it."
            )
        return value

    return read


def _size(low: int, high: int) -> _Reader:
    def read(value: Any, where: str) -> int:
        with reported_at(where):
            number = parse_size(value)
        if not low <= number <= high:
            raise ConfigError(
                f"{where} must be between {bytes_text(low)} and {bytes_text(high)}, not {shown(value)}; "
                "correct it."
            )
        return number

    return read


def _duration(value: Any, where: str) -> int:
    with reported_at(where):
        number = round(parse_duration(value))
    if not 1_000 <= number <= 60_000_000_000:
        raise ConfigError(f"{where} must be between 1us and 60s, not {shown(value)}; correct it.")
    return number


def _choice(*names: str) -> _Reader:
    def read(value: Any, where: str) -> str:
        if value not in names:
            raise ConfigError(f"{where} cannot be {shown(value)}{did_you_mean(str(value), names)}")
        return str(value)

    return read


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false, not {shown(value)}; correct it.")
    return value


def _thresholds(value: Any, where: str) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ConfigError(f"{where} must be two sizes, such as [150kB, 450kB], not {shown(value)}.")
    low, high = (_size(1, _LARGEST_BUFFER)(item, where) for item in value)
    if low >= high:
        raise ConfigError(f"{where}: the first threshold ({low} B) must be below the second ({high} B).")
    return low, high


# Every TCP setting with its parser, its default and the default's source. None: it depends on other settings.
_SETTINGS: dict[str, tuple[_Reader, Any, str]] = {
    "congestion-control": (_choice("bbr", "cubic", "dctcp", "newreno", "reno"), "cubic", "Linux's"),
    "queue-disc": (_choice("fifo", "fq-codel", "red"), None, "of switches"),
    "buffer": (_size(3_000, _LARGEST_BUFFER), 1 << 20, "of each port of a switch"),
    "red-thresholds": (_thresholds, None, ""),
    "ecn-threshold": (_size(1, _LARGEST_BUFFER), None, ""),
    "ecn": (_flag, None, ""),
    "host-queue-disc": (_choice("fifo", "fq-codel"), "fq-codel", "Linux distributions'"),
    "mtu": (_whole(*_MTU), 1500, "Ethernet's"),
    "mss": (_whole(_MIN_SEGMENT, _MTU[1] - _TCP_IP_BYTES), None, ""),
    "frame-overhead": (_whole(2, 1000), 38, "B per frame: Ethernet's preamble, header, checksum and gap"),
    "initial-window": (_whole(1, 1000), 10, "segments, Linux's"),
    "send-buffer": (_size(4096, _LARGEST_BUFFER), 4 << 20, "Linux's largest"),
    "receive-buffer": (_size(4096, _LARGEST_BUFFER), 6 << 20, "Linux's largest"),
    "connections-per-pair": (_whole(1, 64), 1, "gloo's, for each context"),
    "connect": (_choice("before", "first-use"), None, ""),
    "message-header": (_size(0, 1 << 16), 48, "gloo's"),
    "ack-every": (_whole(1, 64), 2, "segments, Linux's"),
    "delayed-ack": (_duration, 40_000_000, "Linux's"),
    "min-rto": (_duration, 200_000_000, "Linux's"),
    "slow-start-after-idle": (_flag, True, "Linux's"),
    "limit-output-bytes": (_size(0, _LARGEST_BUFFER), 1 << 20, "TCP small queues, Linux's"),
    "pcap": (_flag, False, ""),
    "flow-monitor": (_flag, False, ""),
    "seed": (_whole(1, 1 << 31), 1, ""),
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
        settings: dict[str, Any] = {}
        for key, value in mapping_of(data, f"{where}: 'tcp'").items():
            if key not in _SETTINGS:
                raise ConfigError(
                    f"{where}: 'tcp' has no setting {shown(key)}{did_you_mean(str(key), _SETTINGS)}"
                )
            settings[key] = _SETTINGS[key][0](value, f"{where}: '{key}' of 'tcp'")
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
    if _SETTINGS[key][0] is _duration:
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
