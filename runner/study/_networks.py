"""The user's own networks in a study, stored by name and offered next to the presets."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StudyError, did_you_mean
from ...support.documents import yaml_mapping
from ..config import NetworkConfig
from ._layout import ENTRY_BYTES, StudyLayout, numbered

_SUFFIXES = (".json", ".xml", ".yaml", ".yml")
_NAME = re.compile(r"[\w][\w .+-]{0,99}")


def network_names(layout: StudyLayout) -> list[str]:
    """Return the sorted names of a study's network files."""
    files = layout.networks_dir.iterdir() if layout.networks_dir.is_dir() else ()
    return sorted(file.name for file in files if file.is_file() and _is_name(file.name))


def read_network_file(layout: StudyLayout, name: str) -> NetworkConfig:
    """Read the network *name*; raises `ConfigError` if it is missing or invalid."""
    names = network_names(layout)
    if name not in names:
        raise ConfigError(f"The study has no network file '{name[:100]}'{did_you_mean(name, names)}")
    return NetworkConfig.load(layout.network_file(name))


def add_network(layout: StudyLayout, name: str, content: bytes) -> str:
    """Save the network *content* (YAML, InfraGraph as YAML or JSON, or XML); return its name in the study.

    The network is saved as YAML, with an InfraGraph expanded to links. *content* may come from a browser, so
    it must not refer to other files. If another network has this name, the new network is called ``NAME-2``.
    Raises `ConfigError` for an invalid network, and `StudyError` if the file cannot be written.
    """
    if not _is_name(name):
        raise ConfigError(
            f"A network file must have a plain name that ends in {', '.join(_SUFFIXES)}, not '{name[:100]}'; "
            "rename it. ASTRA-sim's config.txt needs other files: use the command line for it."
        )
    _refuse_paths(_mapping(content, name), name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        try:
            network = NetworkConfig.load(file)
        except ConfigError as error:
            raise ConfigError(error.message.replace(f"{folder}/", "")) from error
    file_name = _free_name(layout, Path(name).stem, network)
    try:
        layout.networks_dir.mkdir(parents=True, exist_ok=True)
        network.save(layout.network_file(file_name))
    except OSError as error:
        raise StudyError(
            f"{layout.networks_dir} cannot be written ({error.strerror}); free some disk space or check its "
            "permissions."
        ) from error
    return file_name


def _free_name(layout: StudyLayout, stem: str, network: NetworkConfig) -> str:
    """Return a file name for *network*: *stem*, numbered if another network has that name."""
    files = (layout.network_file(f"{name}.yml") for name in numbered(stem))
    return next(file.name for file in files if not file.exists() or _is_same(file, network))


def _is_same(file: Path, network: NetworkConfig) -> bool:
    try:
        return NetworkConfig.load(file) == network
    except ConfigError:  # never replace a damaged file
        return False


def _is_name(name: str) -> bool:
    is_short = len(os.fsencode(name)) <= ENTRY_BYTES
    return _NAME.fullmatch(name) is not None and is_short and Path(name).suffix in _SUFFIXES


def _mapping(content: bytes, name: str) -> Mapping[str, Any]:
    """Parse *content*, which must be a mapping; references to files are not checked here."""
    if Path(name).suffix == ".xml":
        return {}
    try:
        return yaml_mapping(content.decode(), name)  # JSON files are also YAML files
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not text in UTF-8; is it the right file?") from error


def _refuse_paths(data: Mapping[str, Any], name: str) -> None:
    """Raise `ConfigError` if *data* refers to a file."""
    if isinstance(data.get("infragraph"), str):
        raise ConfigError(
            f"{name} refers to another file ('infragraph'), which uploaded files must not do. Next: leave "
            "the key out, convert the network with `chakrascope network FILE --as yaml -o FOLDER`, or copy "
            "the file into the study's folder 'networks'."
        )
