"""The packages follow the rules of CONTRIBUTING.md on imports and exports."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

from .public_face import PROMISED
from .source_tree import (
    PACKAGES,
    ROOT,
    Import,
    Source,
    cycles,
    declared_all,
    imports,
    modules,
    public_names,
    registered_plugins,
)

# Packages that all others may import; these import only the packages listed here.
ALLOWED = {
    "errors": set(),
    "support": {"errors"},
    "tracer": {"errors", "support"},
    "converter": {"errors", "support", "tracer"},
    "runner": {"errors", "support", "tracer", "converter"},
    "viewer": {"errors", "support", "tracer", "converter", "runner"},
    "cli": {"errors", "support", "tracer", "converter", "runner", "viewer"},
}

# The viewer is an extra, and Dash is slow to load: no other command may need it.
MAY_SHOW = {"cli._report", "cli._view"}


def package_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def expect_none(violations: list[str]) -> None:
    if violations:
        pytest.fail("\n".join(sorted(set(violations))), pytrace=False)


def within(source: Source) -> str:
    return source.name if source.is_package else source.name.rpartition(".")[0]


def reaches_into(found: Import) -> bool:
    """Return whether *found* imports a private name of a package outside of that package."""
    home = within(modules()[found.module])
    path = found.target.split(".")
    if path[-1] != found.name:
        path.append(found.name)
    return any(
        is_private(part) and not f"{home}.".startswith(f"{'.'.join(path[:depth])}.")
        for depth, part in enumerate(path)
    )


def test_every_package_is_on_the_map():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders <= set(PACKAGES)
    assert {"errors", "tracer", "converter", "runner", "viewer", "cli"} <= folders


def test_data_flows_one_way():
    expect_none(
        [
            f"{found.where}: {package_of(found.module)} may not import {package_of(found.target)}"
            for found in imports()
            if package_of(found.target) != package_of(found.module)
            and package_of(found.target) not in ALLOWED[package_of(found.module)]
        ]
    )


# The models of trace sets and recordings, the only parts of the tracer that the converter may import.
TRACE_SET_MODEL = {
    "Evidence", "MANIFEST_NAME", "MAX_RANKS", "RankEntry", "RecordedEntry", "Recording", "StepRange",
    "TraceSet", "read_evidence", "read_step_times",
}  # fmt: skip


def test_the_converter_needs_the_trace_set_only():
    expect_none(
        [
            f"{found.where}: the converter takes {found.name} from the tracer"
            for found in imports()
            if package_of(found.module) == "converter"
            and package_of(found.target) == "tracer"
            and found.name not in TRACE_SET_MODEL
        ]
    )


def test_no_modules_import_each_other():
    edges: dict[str, set[str]] = defaultdict(set)
    for found in imports():
        edges[found.module].add(found.target)
    expect_none([f"import each other: {', '.join(group)}" for group in cycles(edges)])


def test_no_private_module_is_reached_from_outside():
    expect_none(
        [
            f"{found.where}: {found.module} takes {found.name} from {found.target}"
            for found in imports()
            if reaches_into(found)
        ]
    )


def test_imports_between_packages_are_relative():
    absolute = []
    for source in modules().values():
        for node in source.nodes:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            else:
                continue
            absolute += [
                f"{source.file}:{node.lineno}: import {name}"
                for name in names
                if package_of(name) in {"chakrascope", *PACKAGES}
            ]
    expect_none(absolute)


def test_only_view_and_report_need_the_viewer():
    expect_none(
        [
            f"{found.where}: {found.module} imports {found.target}"
            for found in imports()
            if package_of(found.module) == "cli"
            and package_of(found.target) == "viewer"
            and found.module not in MAY_SHOW
        ]
    )


def test_no_export_shadows_a_module():
    shadowed = []
    for source in modules().values():
        if source.is_package:
            shadowed += [
                f"{source.file}: {name} is also a module"
                for name in {*public_names(source), *(declared_all(source) or ())}
                if f"{source.name}.{name}" in modules()
            ]
    expect_none(shadowed)


def test_the_package_is_typed():
    """Tools read the types of all packages if the outermost has the marker (PEP 561)."""
    assert (ROOT / "errors" / "py.typed").is_file()
    assert "install(FILES errors/py.typed DESTINATION chakrascope)" in (ROOT / "CMakeLists.txt").read_text(
        "utf-8"
    )


def sort_key(name: str) -> tuple[int, str]:
    """Order constants before classes before functions, as ruff does."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_faces_are_sorted_and_complete():
    wrong = []
    for source in modules().values():
        names = set(public_names(source)) if source.is_package else set()
        declared = declared_all(source)
        if declared is None:  # `exports_of` computes it from the sorted imports
            is_computed = any(isinstance(node, ast.Name) and node.id == "exports_of" for node in source.nodes)
            promised = f"chakrascope.{source.name}" in PROMISED
            wrong += [f"{source.file}: no __all__"] if promised and not is_computed else []
            continue
        if declared != sorted(declared, key=sort_key):
            wrong.append(f"{source.file}: __all__ is not sorted")
        if source.is_package and names != set(declared):
            wrong.append(f"{source.file}: __all__ and the public names differ in {names ^ set(declared)}")
    expect_none(wrong)


def test_the_guards_see_what_they_forbid(tmp_path):
    """Every rule above detects its violation in a small tree."""
    (tmp_path / "tracer").mkdir()
    (tmp_path / "tracer" / "__init__.py").write_text("def late():\n    from . import _a\n")
    (tmp_path / "tracer" / "_a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ._b import b\n"
    )
    (tmp_path / "tracer" / "_b.py").write_text("from ..viewer._app import app\nfrom . import late\n")
    found = list(imports(tmp_path))
    edges: dict[str, set[str]] = defaultdict(set)
    for each in found:
        edges[each.module].add(each.target)
    assert cycles(edges) == [["tracer", "tracer._a", "tracer._b"]]
    assert [(each.module, each.target) for each in found if package_of(each.target) == "viewer"] == [
        ("tracer._b", "viewer._app")
    ]


@pytest.mark.parametrize(
    ("module", "target", "name", "reaches"),
    [
        ("runner._simulate", "runner._result", "Result", False),
        ("runner.analysis._slack", "runner._result", "Result", False),
        ("runner.analysis._slack", "runner.analysis", "compare", False),
        ("runner.analysis", "runner.analysis._slack", "slack", False),
        ("runner._simulate", "runner.analysis._slack", "slack", True),
        ("runner.study._study", "runner.analysis._slack", "slack", True),
        ("viewer._state", "runner._result", "Result", True),
        ("viewer._state", "runner", "_Hidden", True),
    ],
)
def test_private_access_is_detected(module, target, name, reaches):
    assert reaches_into(Import(module, target, name, "", 0)) is reaches


def folder_of(module: str) -> str:
    return module if modules()[module].is_package else module.rpartition(".")[0]


def test_the_core_imports_no_plugin():
    folders = {folder_of(module) for _, _, module in registered_plugins()}
    expect_none(
        [
            f"{found.where} imports {found.target}"
            for found in imports()
            for folder in folders
            if f"{found.target}.".startswith(f"{folder}.") and not f"{found.module}.".startswith(f"{folder}.")
        ]
    )


def test_the_core_names_no_plugin():
    for folder in {folder_of(module) for _, _, module in registered_plugins()}:
        word = re.compile(rf"\b{folder.rpartition('.')[2].replace('_', '[ _]')}\b", re.IGNORECASE)
        # Names of InfraGraph and PyTorch, and a word with many meanings.
        if folder.endswith((".blueprints", ".flight_recorder", ".service")):
            continue
        for source in modules().values():
            if not f"{source.name}.".startswith(f"{folder}."):
                text = (ROOT / source.file).read_text(encoding="utf-8")
                assert not word.search(text), f"{source.file} names {folder}"


# The folders and files of a study; only `runner/study/_layout.py` joins their names to paths.
FOLDERS = ("jobs", "runs", "sweeps", "traces", "workloads")
FILES = ("study.json", "run.json")


def literal(node: ast.AST) -> str:
    """Return the text of a constant, or what an f-string begins with."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def names_part(node: ast.AST) -> bool:
    text = literal(node)
    return text in FILES or text.split("/")[0] in FOLDERS


def layout_literals(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the lines that join the name of a study's part to a path, or look for one."""
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            found = names_part(node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            joins = node.func.attr in ("glob", "rglob", "joinpath", "with_name")
            found = joins and any(
                names_part(part) or set(literal(part).split("/")) & set(FILES) for part in node.args
            )
        else:
            found = False
        if found:
            yield node.lineno


def test_no_module_but_the_study_s_layout_knows_its_names():
    expect_none(
        [
            f"{source.file}:{line}"
            for source in modules().values()
            if source.name != "runner.study._layout"
            for line in layout_literals(source.nodes)
        ]
    )


@pytest.mark.parametrize(
    "line",
    [
        'study.path / "runs" / identity',
        'path = Path(target) / "study.json"',
        'list(folder.glob("traces/*/manifest.json"))',
        'folder.glob("*/run.json")',
        'study.path / f"jobs/{name}"',
        'study.path.joinpath("sweeps", name)',
    ],
)
def test_the_search_finds_what_it_is_for(line):
    assert list(layout_literals(ast.walk(ast.parse(line)))) == [1]
