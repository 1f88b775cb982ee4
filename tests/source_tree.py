"""Read the packages' import statements without importing them; ``test_architecture.py`` judges them."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# In the order of the data flow: a package imports only from earlier ones.
PACKAGES = ("errors", "support", "tracer", "converter", "runner", "viewer", "cli")


@dataclass(frozen=True)
class Import:
    """*module* takes *name* from *target*, a module of ours (dotted, without chakrascope)."""

    module: str
    target: str
    name: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """The file and line, in the format that editors open."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Source:
    """One module of ours: its dotted name, whether it is a package, its file and its syntax tree."""

    name: str
    is_package: bool
    file: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, searched once for all rules."""
        return list(ast.walk(self.tree))


@cache
def modules(root: Path = ROOT) -> dict[str, Source]:
    """Return every module of the packages under *root*, compiled ones excepted.

    The garbage collector would visit the millions of nodes many times, during parsing and afterwards.
    """
    found = {}
    gc.disable()
    try:
        for path in sorted(file for package in PACKAGES for file in (root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            tree = ast.parse(path.read_text("utf-8"))
            found[name] = Source(name, is_package, str(path.relative_to(root)), tree)
    finally:
        gc.freeze()
        gc.enable()
    return found


def relative_target(source: Source, level: int, module: str | None) -> str:
    """Return the dotted name of ``from <level dots><module>`` as written in *source*."""
    parts = source.name.split(".")
    package = parts if source.is_package else parts[:-1]
    base = package[: len(package) - (level - 1)]
    return ".".join([*base, *([module] if module else [])])


@cache
def imports(root: Path = ROOT) -> tuple[Import, ...]:
    """Return every relative import of every module: under TYPE_CHECKING and inside functions too.

    ``from .folder import module`` is an import of ``folder.module``; anything else is one of ``folder``.
    """
    return tuple(found for source in modules(root).values() for found in _imports_of(source, root))


def _imports_of(source: Source, root: Path) -> Iterator[Import]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            target = relative_target(source, node.level, node.module)
            for alias in node.names:
                full = f"{target}.{alias.name}".lstrip(".")
                found = full if full in modules(root) else target
                yield Import(source.name, found, alias.name, source.file, node.lineno)


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other, each sorted (Tarjan's strong components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for after in sorted(edges.get(node, ())):
            if after not in index:
                visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], index[after])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1 or node in edges.get(node, ()):
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def public_names(source: Source) -> dict[str, int]:
    """Return the public names that a package's face binds, with their lines.

    Modules and names of other packages (``from ... import errors``) are tools of the face, not part of it.
    """
    names: dict[str, int] = {}
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            target = relative_target(source, node.level, node.module)
            if target == source.name or target.startswith(f"{source.name}."):
                names |= {
                    alias.asname or alias.name: node.lineno
                    for alias in node.names
                    if f"{target}.{alias.name}" not in modules()
                }
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            names |= {target.id: node.lineno for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node.lineno
    return {name: line for name, line in names.items() if not name.startswith("_")}


def declared_all(source: Source) -> list[str] | None:
    """Return ``__all__`` as written in *source*, or None if it has none."""
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return None


_GROUP = re.compile(r'^\[project\.entry-points\."(chakrascope\.\w+)"\]$', re.MULTILINE)
_ENTRY = re.compile(r'^(\w+) = "chakrascope\.([\w.]+)(?::\w+)?"$', re.MULTILINE)


def registered_plugins() -> list[tuple[str, str, str]]:
    """Return group, name and module of every plug-in that pyproject.toml registers."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    groups = _GROUP.split(text)[1:]
    return [
        (group, name, module)
        for group, body in zip(groups[::2], groups[1::2], strict=True)
        for name, module in _ENTRY.findall(body.partition("\n[")[0])
    ]
