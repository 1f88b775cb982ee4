"""Fixtures of the runner's tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from chakrascope.errors import BackendUnavailable
from chakrascope.runner import engine
from chakrascope.runner.backends.ns3._build import build_driver
from chakrascope.runner.emulation import missing_requirements

TRANSPORTS = ("tcp", "libfabric:tcp", "libfabric:shm", "gloo")


@pytest.fixture(scope="session")
def ns3() -> Path:
    """Return the compiled packet-level model, or skip with what it lacks."""
    try:
        return build_driver()[0]
    except BackendUnavailable as error:
        pytest.skip(f"ns-3 or a C++ compiler is absent: {error}")


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


@pytest.fixture(scope="session")
def root():
    """Skip where this machine has no network namespaces for us."""
    lacking = missing_requirements()
    if lacking:
        pytest.skip(f"network namespaces need {' and '.join(lacking)}")


@pytest.fixture(params=TRANSPORTS, scope="module")
def transport(request):
    """Every way to carry messages that this machine has."""
    if request.param == "gloo" and importlib.util.find_spec("torch") is None:
        pytest.skip("gloo needs PyTorch")
    if request.param.startswith("libfabric") and not engine.FabricTransport.is_built():
        pytest.skip("the engine was built without libfabric (libfabric-dev)")
    return request.param
