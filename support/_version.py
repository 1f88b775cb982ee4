"""The version of the package that runs."""

from __future__ import annotations

from functools import cache

__all__ = ["package_version"]


@cache
def package_version() -> str:
    """Return the version that is installed; "" when the code runs without being so."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and few ask

    try:
        return version("chakrascope")
    except PackageNotFoundError:
        return ""
