"""Client of an ASTRA-sim Service, which holds one simulation, so that clients must take turns."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ....errors import BackendError, BackendTimeout, BackendUnavailable, ConfigError, did_you_mean
from ....support import cache_folder
from .._process import read_user_file
from ._request import BACKENDS, KINDS, PACKAGE, decode_error, message

SCHEME = "service://"
VARIABLE = "CHAKRASCOPE_SERVICE"
_DEFAULT_KIND = "analytical-unaware"
_PLACE = re.compile(r"(?P<host>[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class ServiceAddress:
    """The *host* (a name or an IP address, IPv6 in brackets), *port* and network *kind* of a service."""

    host: str
    port: int
    kind: str = _DEFAULT_KIND

    @property
    def place(self) -> str:
        """The address as ``HOST:PORT``."""
        return f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """The full name of the backend for this service."""
        return f"{SCHEME}{self.place}/{self.kind}"


def parse_address(name: str) -> ServiceAddress:
    """Parse ``service://HOST:PORT[/KIND]``; raises `ConfigError` if it is invalid."""
    rest = name.removeprefix(SCHEME)
    if "@" in rest:
        # The text before the @ may be a password, so the message leaves it out.
        raise ConfigError(
            "The address of an ASTRA-sim Service holds '@', but the service has no users; write "
            "service://HOST:PORT."
        )
    place, _, kind = rest.partition("/")
    match = _PLACE.fullmatch(place)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ConfigError(
            f"'{name}' is not an address of an ASTRA-sim Service; write service://HOST:PORT, such as "
            "service://127.0.0.1:8989."
        )
    kind = kind.strip("/") or _DEFAULT_KIND
    if kind not in KINDS:
        raise ConfigError(f"'{name}': a service has no backend '{kind}'{did_you_mean(kind, KINDS)}")
    return ServiceAddress(match["host"], int(match["port"]), kind)


def configured_services() -> list[ServiceAddress]:
    """Return the user's services, with one address per kind of network.

    ``CHAKRASCOPE_SERVICE`` lists them as ``HOST:PORT``, separated by commas; without it,
    ``backends.yml`` does, under ``service``. Raises `ConfigError` for an invalid address.
    """
    path, part = read_user_file("service", os.environ)
    source, noted = str(path), [part] if isinstance(part, str) else part or []
    if os.environ.get(VARIABLE):
        source, noted = VARIABLE, [item.strip() for item in os.environ[VARIABLE].split(",")]
    if not isinstance(noted, list) or not all(isinstance(item, str) for item in noted):
        raise ConfigError(f"{source}: 'service' must be HOST:PORT, or a list of such addresses; correct it.")
    services = []
    for item in noted:
        try:
            first = parse_address(SCHEME + item.removeprefix(SCHEME))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error.message}") from error
        services += [ServiceAddress(first.host, first.port, kind) for kind in KINDS]
    return services


_POLL_S = 0.1


class Turn:
    """A lock on a service, so that clients of this user do not overwrite each other's files.

    The lock file names the simulation at the service, so that the next client can stop one that a
    killed process left running.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.seek(0)
        self.left_behind = file.read(100).decode("ascii", "replace")
        """The simulation that may still run at the service, or ``""``."""

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Record that the simulation *name* is running, until the block ends without an error."""
        self._write(name)
        yield
        self._write("")

    def _write(self, name: str) -> None:
        self._file.truncate(0)
        self._file.write(name.encode("ascii"))
        self._file.flush()


@contextmanager
def turn(place: str, raise_if_stopped: Callable[[], None]) -> Iterator[Turn]:
    """Wait until no other process of this user uses the service at *place*, and lock it.

    *raise_if_stopped* is called ten times a second during the wait. The lock is released even if the process
    dies.
    """
    folder = cache_folder("service")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / place.strip("[]").replace(":", "-")).open("a+b")
    except OSError as error:
        raise BackendError(
            f"The folder {folder}, which coordinates the clients of a service, cannot be used "
            f"({error.strerror}); set XDG_CACHE_HOME to another folder."
        ) from error
    with file:
        while not _try_lock(file.fileno()):
            raise_if_stopped()
            time.sleep(_POLL_S)
        yield Turn(file)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


LOG_FILE = "simulation.log"
_CALL_S = 30.0
# Accept answers of up to this size, well above the 65,536 lines of output that a service keeps.
_LARGEST_ANSWER_BYTES = 64 << 20
# A service accepts messages of at most 4 MiB.
_CHUNK_BYTES = 1 << 20
_STATUS = {1: "running", 2: "completed", 3: "failed", 4: "terminated", 5: "inactive"}
_START, _STOP, _BY_NAME = 1, 2, 2
_REASON_CHARACTERS = 300
# The service's gRPC library writes these words before an exception's text.
_RAISED = "Exception calling application: "
_HINT = "Next: check that it is an ASTRA-sim Service of version 1.x"
_BUSY = "Another user may be using the service, which runs one simulation at a time"
_HINTS = {
    "GetResult": _BUSY,
    "SetConfig": _BUSY,
    "SetControlAction": "Next: check that the service has a program for this kind of network",
    "streamUploadConfig": _BUSY,
}


class ServiceClient:
    """A connection to the service at *address*; a context manager that closes it.

    During calls, *raise_if_stopped* runs ten times a second and may raise to cancel the call. A call fails
    after *call_s* seconds without an answer, except `upload`, which has no limit. Raises
    `BackendUnavailable` if gRPC is not installed.
    """

    def __init__(
        self,
        address: ServiceAddress,
        raise_if_stopped: Callable[[], None] = lambda: None,
        call_s: float = _CALL_S,
    ) -> None:
        self._grpc = _import_grpc()
        self._place = address.place
        self._keep_on = raise_if_stopped
        self._call_s = call_s
        # No proxy and no settings from DNS: connect to the named host and nothing else.
        self._channel = self._grpc.insecure_channel(
            f"dns:///{address.place}",
            options=[
                ("grpc.enable_http_proxy", 0),
                ("grpc.service_config_disable_resolution", 1),
                ("grpc.enable_retries", 0),
                ("grpc.max_receive_message_length", _LARGEST_ANSWER_BYTES),
            ],
        )

    def __enter__(self) -> ServiceClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def version(self) -> str:
        """Return the version of the service's interface; raises `BackendError` unless it is 1.x."""
        number = str(self._call("GetVersion", b"", "GetVersionResponse").version.api_spec_version)
        if not number.startswith("1."):
            raise BackendError(
                f"The service at {self._place} uses version '{plain(number)[:40]}' of the interface, but "
                "only 1.x is supported; use a service of that version, or a newer chakrascope."
            )
        return plain(number)[:40]

    def status(self) -> str:
        """Return the simulation's status: running, completed, failed, terminated or inactive."""
        answer = self._call("GetStatus", b"", "GetStatusResponse")
        return self._status_name(answer.control_status.status)

    def upload(self, archive: Path) -> None:
        """Send the zip *archive*, which replaces all files of earlier simulations at the service."""
        method = self._channel.stream_unary(_path("streamUploadConfig"))
        self._wait(method.future(_chunks(archive)), "streamUploadConfig")

    def configure(self, request: Any) -> None:
        """Let the service write the files of a ``SetConfigRequest``."""
        self._call("SetConfig", request.SerializeToString(), "SetConfigResponse")

    def start(self, kind: str) -> None:
        """Start the configured simulation at the service."""
        control = {"choice": _START, "start": {"backend": BACKENDS[kind][0]}}
        request = message("SetControlActionRequest", {"control": control})
        self._call("SetControlAction", request.SerializeToString(), "SetControlActionResponse")

    def file(self, name: str) -> bytes:
        """Return the content of the service's result file *name*."""
        request = message("GetResultRequest", {"result": {"choice": _BY_NAME, "filename": name}})
        answer = self._call("GetResult", request.SerializeToString(), "GetResultResponse")
        content: bytes = answer.response_bytes
        return content

    def holds(self, folder: str) -> bool:
        """Return whether the service's configuration names *folder*; False if the service fails."""
        try:
            answer = self._call("GetConfig", b"", "GetConfigResponse")
        except BackendError:
            return False
        return folder.encode() in answer.response_bytes

    def stop(self, within_s: float) -> bool:
        """Stop the simulation; return whether it ended in *within_s* seconds.

        Does not call `raise_if_stopped`.
        """
        request = message("SetControlActionRequest", {"control": {"choice": _STOP}}).SerializeToString()
        stopped = message("GetStatusResponse")
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            # A simulation that is just starting or has ended cannot be stopped.
            with contextlib.suppress(self._grpc.RpcError):
                self._channel.unary_unary(_path("SetControlAction"))(request, timeout=left_s)
            with contextlib.suppress(self._grpc.RpcError, decode_error()):
                stopped.ParseFromString(self._channel.unary_unary(_path("GetStatus"))(b"", timeout=left_s))
                if _STATUS.get(stopped.control_status.status, "running") != "running":
                    return True
            time.sleep(_POLL_S / 2)
        return False

    def _call(self, method: str, request: bytes, answer: str) -> Any:
        """Call *method* with *request* and decode the answer as a message of the type *answer*."""
        call = self._channel.unary_unary(_path(method)).future(request, timeout=self._call_s)
        content = self._wait(call, method)
        made = message(answer)
        try:
            made.ParseFromString(content)
        except decode_error() as error:
            raise BackendError(
                f"The answer of the service at {self._place} to {method} is not a valid {answer} "
                f"({len(content)} bytes); is it an ASTRA-sim Service?"
            ) from error
        return made

    def _wait(self, call: Any, method: str) -> bytes:
        """Return the result of a gRPC *call*, and cancel the call if the wait ends early."""
        try:
            while True:
                self._keep_on()
                with contextlib.suppress(self._grpc.FutureTimeoutError):
                    content: bytes = call.result(timeout=_POLL_S)
                    return content
        except self._grpc.RpcError as error:
            raise self._failure(method, error.code(), error.details() or "") from error
        finally:
            call.cancel()

    def _failure(self, method: str, code: Any, details: str) -> BackendError:
        codes = self._grpc.StatusCode
        if code is codes.DEADLINE_EXCEEDED:
            return BackendTimeout(
                f"The ASTRA-sim Service at {self._place} did not answer {method} within {self._call_s:g} s. "
                "Next: check its log, or restart it."
            )
        if code is codes.UNAVAILABLE and not details.startswith(_RAISED):
            return BackendUnavailable(
                f"There is no ASTRA-sim Service at {self._place}, or it has stopped ({plain(details)}). "
                "Next: start it, or correct the address."
            )
        if code is codes.UNIMPLEMENTED:
            return BackendError(
                f"The server at {self._place} does not support {method}, so it is not an ASTRA-sim Service "
                "of version 1.x. Next: correct the address."
            )
        return BackendError(
            f"The ASTRA-sim Service at {self._place} failed at {method} ({code.name}): {_reason(details)}. "
            f"{_HINTS.get(method, _HINT)}; see its log."
        )

    def _status_name(self, number: int) -> str:
        if number not in _STATUS:
            raise BackendError(
                f"The ASTRA-sim Service at {self._place} reports an unknown status {number}; use a "
                "service of version 1.x."
            )
        return _STATUS[number]


def _import_grpc() -> Any:
    try:
        import grpc  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BackendUnavailable(
            f"ASTRA-sim Service needs gRPC, which is missing ({error}); install it with "
            "`pip install 'chakrascope[service]'` or `pip install grpcio`."
        ) from error
    return grpc


def _path(method: str) -> str:
    return f"/{PACKAGE}.Openapi/{method}"


def _chunks(archive: Path) -> Iterator[bytes]:
    """Yield *archive* in chunks; gRPC reads this generator in another thread."""
    with archive.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            content: bytes = message("Data", {"chunk_size": len(chunk), "datum": chunk}).SerializeToString()
            yield content


def _reason(details: str) -> str:
    """Return the reason in an error's *details*, normally a JSON object with ``errors``."""
    if "Invalid StatusCode." in details:
        return "the reason is unknown, because services of version 1.2 to 1.4 do not report it"
    try:
        errors = json.loads(details)["errors"]
    except (ValueError, RecursionError, KeyError, TypeError):
        errors = [details.removeprefix(_RAISED)]
    return plain("; ".join(map(str, errors)) if isinstance(errors, list) else str(errors)) or "no reason"


def plain(text: str) -> str:
    """Return *text* as one short line without control characters."""
    words = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _REASON_CHARACTERS])
    return " ".join(words.split())[:_REASON_CHARACTERS]
