"""The names of services as backends, and the services a user has noted."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.errors import ConfigError
from chakrascope.runner import backend_names, backend_report, get_backend
from chakrascope.runner.backends.service import ServiceAddress, configured_services, parse_address

pytestmark = pytest.mark.usefixtures("no_settings")


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
    with pytest.raises(ConfigError, match="must be HOST:PORT, or a list of such"):
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
