"""A service that dies, hangs, floods or refuses, and the names of services."""

import errno
import socket
import sys
import threading
import time
from contextlib import suppress

import pytest
from fake_service import FAILED, INACTIVE, RUNNING, FakeService, experiment, no_thread_stays, run
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    Cancelled,
    ChakrascopeError,
    ConfigError,
    SimulationStalled,
)
from chakrascope.runner import backend_names, backend_report, get_backend
from chakrascope.runner.backends.service import (
    ServiceAddress,
    ServiceBackend,
    ServiceClient,
    _backend,
    _request,
    configured_services,
    parse_address,
)
from chakrascope.runner.backends.service._request import message

pytestmark = pytest.mark.usefixtures("no_settings")


grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra 'service')")
METHODS = ("GetVersion", "GetStatus", "streamUploadConfig", "SetConfig", "SetControlAction", "GetResult")


def fail_with(code, details):
    return lambda _request, context: context.abort(code, details)


@pytest.mark.parametrize("method", METHODS)
def test_a_service_that_dies_at_any_moment_is_an_error(service, method):
    service.instead[method] = service.die
    with no_thread_stays(), pytest.raises(BackendError, match=f"127.0.0.1:{service.port}"):
        run(service)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "streamUploadConfig"])
def test_a_method_that_never_answers_is_given_up(service, method, monkeypatch):
    service.instead[method] = service.hang
    call = ServiceClient._call

    def hurry(client, called, *arguments):
        client._call_s = 0.5 if called == method else 60.0
        return call(client, called, *arguments)

    monkeypatch.setattr(ServiceClient, "_call", hurry)
    with no_thread_stays(), pytest.raises(BackendTimeout, match=f"did not answer {method} within 0.5 s"):
        run(service)


@pytest.mark.parametrize("method", METHODS)
def test_cancelling_works_while_any_method_hangs(service, method):
    service.instead[method] = service.hang
    with no_thread_stays(), pytest.raises(Cancelled):
        run(service, lambda *_: method not in service.calls)


@pytest.fixture
def patient_stop(monkeypatch):
    """Let the service confirm that a simulation has ended, however slow the machine is."""
    monkeypatch.setattr(_backend, "_STOP_S", 60.0)


@pytest.mark.usefixtures("patient_stop")
def test_cancelling_stops_the_simulation(service):
    service.runs_s = 200.0
    with pytest.raises(Cancelled, match="was cancelled"):
        run(service, lambda *_: service.now() != RUNNING)
    assert service.now() != RUNNING
    assert service.calls[-2:] == ["SetControlAction", "GetStatus"]


def test_unstoppable_simulation_is_stopped_by_the_next_run(service, monkeypatch):
    service.runs_s = 200.0
    control = service.control
    stop = fail_with(grpc.StatusCode.UNKNOWN, "no such process")
    service.instead["SetControlAction"] = lambda request, context: (
        stop(request, context) if service.now() == RUNNING else control(request, context)
    )
    with pytest.raises(Cancelled, match="did not confirm"):
        run(service, lambda *_: service.now() != RUNNING)
    del service.instead["SetControlAction"]
    monkeypatch.setattr(_backend, "_STOP_S", 60.0)
    service.runs_s = 0.0
    assert run(service).makespan_ns > 0


def test_a_busy_service_is_waited_for(service):
    service.status, service.ends_at = RUNNING, float("inf")

    def end_when_asked_again(*_):
        if service.calls.count("GetStatus") == 3:
            service.ends_at = 0.0
        return service.get_status()

    service.instead["GetStatus"] = end_when_asked_again
    assert run(service).makespan_ns > 0
    assert service.calls.index("streamUploadConfig") > 3
    service.status, service.ends_at = RUNNING, float("inf")
    with pytest.raises(BackendTimeout, match="another simulation"):
        run(service, timeout_s=0.5)
    assert service.calls[-1] == "GetStatus"


@pytest.mark.parametrize(
    ("method", "code", "details", "words"),
    [
        (
            "SetConfig",
            "NOT_FOUND",
            '{"code": 5, "errors": ["workload files not found"]}',
            "workload files not found",
        ),
        (
            "SetConfig",
            "NOT_FOUND",
            "Exception calling application: Invalid StatusCode.NOT_FOUND fo",
            "the reason is unknown",
        ),
        ("SetConfig", "UNKNOWN", "Exception calling application: bad\x1b[31m\nkey", "UNKNOWN.: bad .31m key"),
        (
            "streamUploadConfig",
            "UNAVAILABLE",
            "Exception calling application: a run",
            "one simulation at a time",
        ),
        ("SetControlAction", "INVALID_ARGUMENT", "", "a program for this kind"),
        ("GetStatus", "UNIMPLEMENTED", "Method not found!", "is not an ASTRA-sim Service"),
        ("GetResult", "UNKNOWN", "x" * 5_000, "x{290}"),
        ("GetVersion", "UNKNOWN", '{"errors": 7}', "7"),
    ],
)
def test_refusals_are_told_in_the_services_words(service, method, code, details, words):
    service.instead[method] = fail_with(grpc.StatusCode[code], details)
    with pytest.raises(BackendError, match=words) as caught:
        run(service)
    assert len(caught.value.message) < 1000
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("version", [b"", b"\n\x07\n\x052.0.0", b"\n\x04\n\x02\xff\xff"])
def test_another_version_is_refused(service, version):
    service.instead["GetVersion"] = lambda *_: version
    with pytest.raises(BackendError, match=r"only 1\.x is supported|is no GetVersionResponse"):
        run(service)
    assert service.calls == ["GetVersion"]


def test_an_unknown_status_is_refused(service):
    service.instead["GetStatus"] = lambda *_: b"\n\x02\x08\x63"
    with pytest.raises(BackendError, match="unknown status 99"):
        run(service)


def test_a_flood_is_cut_off(service):
    flood = message("GetResultResponse", {"response_bytes": bytes(65 << 20)}).SerializeToString()
    service.instead["GetResult"] = lambda *_: flood
    with pytest.raises(BackendError, match="RESOURCE_EXHAUSTED"):
        run(service)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (FAILED, r"failed at .*\(failed\).*Its last output: .*error. no such"),
        (INACTIVE, r"\(inactive\)"),
        (4, "Another client"),
    ],
)
def test_other_ends_of_a_simulation_are_errors(service, status, words):
    def start(*request):
        answer = service.control(*request)
        service.status, service.log = (
            status,
            "[2026-03-01] [workload] [error] no such thing\n\x1b]0;title\x07\n",
        )
        return answer

    service.instead["SetControlAction"] = start
    with pytest.raises(BackendError, match=words) as caught:
        run(service)
    assert caught.value.message.isprintable()


def test_a_service_that_hangs_at_a_flood_of_lines_is_recognised(service, monkeypatch):
    monkeypatch.setattr(_backend, "_LOOK_S", 0.1)
    service.runs_s = 60.0
    service.simulate = lambda kind: "Error: unknown rate\n" * 65_537
    with pytest.raises(BackendError, match=r"hangs: .* 'Error: unknown rate'\. Restart"):
        run(service)


def test_a_complaint_after_all_ranks_finished_is_a_warning(service):
    def start(*request):
        answer = service.control(*request)
        service.status = FAILED
        service.log += "Only some types are supported\n"
        return answer

    service.instead["SetControlAction"] = start
    result = run(service)
    assert result.provenance["warnings"] == [
        "ASTRA-sim printed errors at its end: Only some types are supported."
    ]
    assert len(result.nodes) == 16


def test_ranks_that_never_finish_are_a_stall(service):
    keep = service.simulate
    service.simulate = lambda kind: "\n".join(
        line
        for line in keep(kind).splitlines()
        if "sys[3] finished" not in line and "id=3, tick=5" not in line
    )
    with pytest.raises(SimulationStalled, match="1 of 4 ranks never finished"):
        run(service)


@pytest.mark.parametrize(("left", "words"), [(0, "printed nothing"), (5, "issue,sys")])
def test_a_program_that_crashes_without_a_word_is_not_taken_for_a_stall(service, left, words):
    keep = service.simulate
    service.simulate = lambda kind: "\n".join(keep(kind).splitlines()[:left])
    with pytest.raises(BackendError, match=rf"\(crashed\).*{words}") as caught:
        run(service)
    assert not isinstance(caught.value, SimulationStalled)


@pytest.fixture(scope="module")
def shared_service():
    with FakeService() as running:
        yield running


@given(method=st.sampled_from(METHODS), answer=st.binary(max_size=60))
@settings(max_examples=40)
def test_no_answer_makes_the_client_fail_otherwise(shared_service, method, answer):
    with ServiceClient(ServiceAddress("127.0.0.1", shared_service.port)) as client:
        shared_service.instead = {name: lambda *_: answer for name in METHODS}
        with suppress(ChakrascopeError):
            client.version()
            client.status()
            client.file("simulation.log")


LINES = (
    "sys[0] finished, 5 cycles, exposed communication 0 cycles.",
    "sys[9999] finished, 1 cycles, exposed communication 2 cycles.",
    "sys[1] finished, 99999999999999999999 cycles, exposed communication 0 cycles.",
    "sys[2], Comm time: -1",
    "issue,sys->id=0, tick=9, node->id=0, node->name=",
    "callback,sys->id=0, tick=3, node->id=0, node->name=",
    "issue,sys->id=77, tick=1, node->id=0, node->name=",
    "\x00\xff",
)


@given(st.lists(st.sampled_from(LINES), max_size=12))
@settings(max_examples=25)
def test_no_log_makes_a_run_fail_otherwise(shared_service, lines):
    shared_service.instead = {}
    shared_service.simulate = lambda kind: "\n".join(lines)
    with suppress(ChakrascopeError):
        run(shared_service)


# Servers that are not a service.
def frame(kind, flags, stream, body):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def web_page_over_http2(connection):
    """Answer as an HTTP/2 web server does: status 200, text/html."""
    kind = b"\x00\x0ccontent-type\x09text/html"
    connection.sendall(frame(4, 0, 0, b"") + frame(4, 1, 0, b""))
    time.sleep(0.2)
    connection.recv(1 << 16)
    connection.sendall(frame(1, 4, 1, b"\x88" + kind) + frame(0, 1, 1, b"<html>"))
    time.sleep(0.3)


def web_page_over_http1(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
    time.sleep(0.3)


def say_nothing(connection):
    connection.settimeout(3)
    while connection.recv(1 << 16):
        pass


@pytest.mark.parametrize("behave", [web_page_over_http1, web_page_over_http2, say_nothing, lambda _: None])
def test_what_is_no_service_is_an_error(behave):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=accept, args=(listener, behave), daemon=True)
        thread.start()
        backend = ServiceBackend(ServiceAddress("127.0.0.1", port), 10, 1.0)
        with no_thread_stays(), pytest.raises(BackendError, match=f"127.0.0.1:{port}"):
            backend.run(experiment())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def accept(listener, behave):
    try:
        while True:
            connection, _ = listener.accept()
            with connection:
                behave(connection)
    except OSError:
        pass


def test_a_full_disk_is_an_error(service, monkeypatch):
    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_backend, "write_archive", fill)
    with pytest.raises(BackendError, match=r"No space left on device.*TMPDIR"):
        run(service)


def test_unreachable_service_is_an_immediate_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BackendUnavailable, match=f"no ASTRA-sim Service at 127.0.0.1:{port}"):
        ServiceBackend(ServiceAddress("127.0.0.1", port)).run(experiment())


def test_missing_protobuf_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    _request._classes.cache_clear()
    with pytest.raises(BackendUnavailable, match="pip install protobuf"):
        message("Data")
    _request._classes.cache_clear()


def test_missing_grpc_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(BackendUnavailable, match="pip install grpcio"):
        ServiceBackend(ServiceAddress("127.0.0.1", 1)).run(experiment())


# The names of services as backends, and the services in the user's configuration.


@pytest.mark.parametrize(
    ("name", "host", "port", "kind"),
    [
        ("service://127.0.0.1:8989", "127.0.0.1", 8989, "analytical-unaware"),
        ("service://sim-host.example:80/ns3", "sim-host.example", 80, "ns3"),
        ("service://[::1]:8989/analytical-aware/", "[::1]", 8989, "analytical-aware"),
    ],
)
def test_addresses(name, host, port, kind):
    assert parse_address(name) == ServiceAddress(host, port, kind)
    assert parse_address(parse_address(name).name) == parse_address(name)


@pytest.mark.parametrize(
    "name",
    [
        "service://", "service://host", "service://host:0", "service://host:65536", "service://host:x",
        "service:///etc/passwd", "service://unix:/tmp/socket:1", "service://a b:1", "service://[::1:1", "service://h:1/ns4",
        "service://[]:1", "service://host:１",
    ],
)  # fmt: skip
def test_wrong_addresses_are_errors(name):
    with pytest.raises(ConfigError):
        get_backend(name)


@given(st.text(max_size=40) | st.from_regex(r"[a-z0-9.:\[\]/-]{0,30}", fullmatch=True))
def test_any_text_is_an_address_or_an_error(text):
    with suppress(ConfigError):
        address = parse_address(f"service://{text}")
        assert address.place in text
        assert parse_address(address.name) == address


def test_a_password_in_an_address_is_not_repeated():
    with pytest.raises(ConfigError, match="no users") as caught:
        get_backend("service://me:secret@host:1")
    assert "secret" not in caught.value.message


def test_a_misspelled_kind_gets_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'analytical-aware'"):
        get_backend("service://host:1/analytical-awre")


def test_services_are_noted_in_the_environment_or_the_users_file(monkeypatch, tmp_path):
    assert configured_services() == []
    folder = tmp_path / "config" / "chakrascope"
    folder.mkdir(parents=True)
    (folder / "backends.yml").write_text("service: sim:8989\nastra-sim: {home: /nowhere}\n")
    assert configured_services()[0] == ServiceAddress("sim", 8989, "analytical-aware")
    (folder / "backends.yml").write_text("service: [sim:8989, 'service://[::1]:1']\n")
    assert {item.place for item in configured_services()} == {"sim:8989", "[::1]:1"}
    assert "service://sim:8989/ns3" in backend_names()
    monkeypatch.setenv("CHAKRASCOPE_SERVICE", "a:1, b:2")
    assert {item.place for item in configured_services()} == {"a:1", "b:2"}
    monkeypatch.setenv("CHAKRASCOPE_SERVICE", "a")
    with pytest.raises(ConfigError, match="CHAKRASCOPE_SERVICE: 'service://a' is not an address"):
        configured_services()
    monkeypatch.delenv("CHAKRASCOPE_SERVICE")
    (folder / "backends.yml").write_text("service: {a: 1}\n")
    with pytest.raises(ConfigError, match="must be HOST:PORT, or a list of such addresses"):
        configured_services()


def test_the_report_says_whether_a_configured_service_answers(service, monkeypatch):
    monkeypatch.setenv("CHAKRASCOPE_SERVICE", f"127.0.0.1:{service.port},127.0.0.1:1")
    rows = {row["backend"]: row for row in backend_report() if row["backend"].startswith("service://")}
    assert len(rows) == 6
    here = rows[f"service://127.0.0.1:{service.port}/analytical-aware"]
    assert here["usable"] == "yes"
    assert "version 1.2.1, inactive" in here["found"]
    assert rows["service://127.0.0.1:1/ns3"]["usable"] == "no"
    assert service.calls == ["GetVersion", "GetStatus"]
