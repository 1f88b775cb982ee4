"""Hooks of MkDocs: the pages of the reference, generated from the code.

Commands, errors and packages are described only where they are defined; these pages show the descriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from reference import commands_page, errors_page, package_page, public_packages

_REFERENCE: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/errors.md": errors_page,
}


def on_config(config: MkDocsConfig) -> None:
    """Replace `packages` in the navigation by one page per public package."""
    pages = [{name.removeprefix("chakrascope."): f"reference/{name}.md"} for name in public_packages()]
    config.nav = _filled(config.nav, pages)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for path, make in _REFERENCE.items():
        files.append(File.generated(config, path, content=make()))
    for name in public_packages():
        files.append(File.generated(config, f"reference/{name}.md", content=package_page(name)))
    return files


def _filled(entry: Any, packages: list[dict[str, str]]) -> Any:
    """Return *entry* of the navigation with the word `packages` replaced by the list."""
    if isinstance(entry, list):
        return [_filled(each, packages) for each in entry]
    if isinstance(entry, dict):
        return {
            title: packages if inner == "packages" else _filled(inner, packages)
            for title, inner in entry.items()
        }
    return entry
