"""Fixtures of the runner's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakrascope.errors import BackendUnavailable
from chakrascope.runner.backends.ns3._build import build_driver


@pytest.fixture(scope="session")
def ns3() -> Path:
    """Return the compiled packet-level model, or skip with what it lacks."""
    try:
        return build_driver()[0]
    except BackendUnavailable as error:
        pytest.skip(f"ns-3 or a C++ compiler is absent: {error}")
