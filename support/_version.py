"""The version of the running package."""

from __future__ import annotations

from functools import cache

__all__ = ["package_version"]


@cache
def package_version() -> str:
    """Return the installed version; "" if the package is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and rarely needed

    try:
        return version("chakrascope")
    except PackageNotFoundError:
        return ""
