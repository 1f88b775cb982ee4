"""Strict reading of JSON and YAML configuration files; errors are `ConfigError`."""

from __future__ import annotations

from ._read import read_json, read_text, read_yaml, unique_keys

__all__ = ["read_json", "read_text", "read_yaml", "unique_keys"]
