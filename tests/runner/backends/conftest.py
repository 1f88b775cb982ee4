"""Fixtures of the backends' tests."""

import pytest


@pytest.fixture
def no_settings(monkeypatch, tmp_path):
    """Hide the user's settings, and set proxies that would swallow everything if they were ever asked."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CHAKRASCOPE_SERVICE", raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def service(no_settings):
    """Return a running fake of ASTRA-sim Service."""
    pytest.importorskip("grpc", reason="grpcio is not installed (the extra 'service')")
    from fake_service import FakeService

    with FakeService() as running:
        yield running
