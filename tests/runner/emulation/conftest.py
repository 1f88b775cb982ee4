"""Helpers of the emulation's tests, and what they need of the machine."""

import importlib.util

import pytest

from chakrascope.runner import engine
from chakrascope.runner.emulation import what_namespaces_lack

TRANSPORTS = ("tcp", "libfabric:tcp", "libfabric:shm", "gloo")


@pytest.fixture(scope="session")
def root():
    """Skip where this machine has no network namespaces for us."""
    lacking = what_namespaces_lack()
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
