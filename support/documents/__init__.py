"""JSON and YAML files of configurations, read with care: what is wrong with one is a `ConfigError`."""

from __future__ import annotations

from ._read import read_json, read_text, read_yaml, unique_keys

__all__ = ["read_json", "read_text", "read_yaml", "unique_keys"]
