"""Comments, docstrings, names and next steps in the folders of `CHECKED` use the field's words."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from .pages import ROOT

CHECKED = (
    "benchmarks",
    "cli",
    "errors",
    "examples",
    "scripts",
    "support",
    "tracer",
    "converter",
    "runner/analysis",
    "runner/backends",
    "runner/calibration",
    "runner/chips",
    "runner/config",
    "runner/emulation",
    "runner/engine",
    "runner/gpu",
    "runner/jobs",
    "runner/planning",
    "runner/prediction",
    "runner/programs",
    "runner/study",
    "runner/sweep",
    "viewer",
)
# Patterns that made readers stop, and a better word for each.
WORDS = {
    r"tells? apart|told apart": "distinguish",
    r"told": "reported, notified, read",
    r"whoever|nobody knows": "the process (user, reader) that",
    r"stretch(?:es)? of time": "interval",
    r"beside": "next to, in addition to, compared with",
    r"one behind the other": "concatenated",
    r"under way": "in flight, running",
    r"goes? on": "continues",
    r"starts? anew": "restarts",
    r"held against": "compared with",
    r"ever the same|of whatever": "constant; any",
    r"without end": "unbounded",
    r"taken for granted": "assumed",
    r"in the mean": "on average",
    r"worked out": "computed",
    r"be it|be made good": "whether; replaced",
    r"who waits for whom": "the graph of waits",
}
# Names of data that say that something was found, and not what it is.
NAMES = {"told", "said", "heard", "whose", "handed", "stood_for"}
FILES = [
    path
    for folder in CHECKED
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".cc", ".h", ".def")
]


def prose_of_python(text: str) -> Iterator[str]:
    """Yield the comments and docstrings of a module."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield " ".join((ast.get_docstring(node) or "").split())


def prose_of_cpp(text: str) -> Iterator[str]:
    """Yield the comments of a C++ file, one text for lines that follow each other."""
    comments = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    for block in re.findall(r"(?m)(?:^\s*//.*\n)+|(?<=\S)[ \t]*//.*$", comments):
        yield " ".join(block.replace("//", " ").split())


def names_of_data(tree: ast.AST) -> Iterator[str]:
    """Yield the variables, attributes and parameters that a module sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.mark.parametrize("folder", CHECKED)
def test_comments_and_docstrings_use_the_fields_words(folder: str):
    pattern = re.compile(rf"(?i)(?<![\w`*-])(?:{'|'.join(WORDS)})(?![\w`*-])")
    places = []
    for path in (path for path in FILES if path.is_relative_to(ROOT / folder)):
        text = path.read_text("utf-8")
        prose = prose_of_python(text) if path.suffix == ".py" else prose_of_cpp(text)
        places += [
            f"{path.relative_to(ROOT)}: {hit[0]!r}" for line in prose for hit in pattern.finditer(line)
        ]
    assert not places, f"write the field's term (WORDS): {places}"


@pytest.mark.parametrize("folder", CHECKED)
def test_names_of_data_are_not_verbs_of_finding(folder: str):
    vague = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        if path.suffix == ".py" and path.is_relative_to(ROOT / folder)
        for name in sorted(set(names_of_data(ast.parse(path.read_text("utf-8")))))
        if name.strip("_") in NAMES
    ]
    assert not vague, f"name the thing, not that it was found: {vague}"


def next_steps(file):
    """Yield the texts after ``Next: `` in messages of *file*."""
    inside = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        yield from (step for step in text.split("Next: ")[1:] if step)


@pytest.mark.parametrize("folder", CHECKED)
def test_a_next_step_has_a_verb(folder):
    wrong = re.compile(r"--|(?:a|an|the|another|more|fewer|\w+=)\b")
    found = [
        f"{file.relative_to(ROOT)}: {step[:60]}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for step in next_steps(file)
        if wrong.match(step)
    ]
    assert found == []
