"""Helpers of the emulation's tests, and what they need of the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chakrascope.runner.emulation import what_namespaces_lack

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]


@pytest.fixture(scope="session")
def root():
    """Skip where this machine has no network namespaces for us."""
    lacking = what_namespaces_lack()
    if lacking:
        pytest.skip(f"network namespaces need {' and '.join(lacking)}")
