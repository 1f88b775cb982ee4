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
    """Return the compiled packet-level model, or skip the test and name the missing part."""
    try:
        return build_driver()[0]
    except BackendUnavailable as error:
        pytest.skip(f"ns-3 or a C++ compiler is absent: {error}")


@pytest.fixture
def no_settings(monkeypatch, tmp_path):
    """Hide the user's settings, and set invalid proxies, so that no request can leave the machine."""
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
    """Skip the test if this machine does not permit network namespaces."""
    lacking = missing_requirements()
    if lacking:
        pytest.skip(f"network namespaces need {' and '.join(lacking)}")


@pytest.fixture(params=TRANSPORTS, scope="module")
def transport(request):
    """Every transport that this machine has."""
    if request.param == "gloo" and importlib.util.find_spec("torch") is None:
        pytest.skip("gloo needs PyTorch")
    if request.param.startswith("libfabric") and not engine.FabricTransport.is_built():
        pytest.skip("the engine was built without libfabric (libfabric-dev)")
    return request.param
