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
# Data names that state that something was found, instead of its meaning.
NAMES = {"told", "said", "heard", "whose", "handed", "stood_for"}
FILES = [
    path
    for folder in CHECKED
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".cc", ".h", ".def")
]


def prose_of_python(text: str, tree: ast.AST) -> Iterator[str]:
    """Yield the comments and docstrings of a module."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(tree):
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


def next_steps(tree: ast.AST) -> Iterator[str]:
    """Yield the texts after ``Next: `` in the messages of a module."""
    inside = set()
    for node in ast.walk(tree):
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
def test_prose_uses_the_fields_words_names_say_what_they_are_and_next_steps_have_a_verb(folder: str):
    pattern = re.compile(rf"(?i)(?<![\w`*-])(?:{'|'.join(WORDS)})(?![\w`*-])")
    without_verb = re.compile(r"--|(?:a|an|the|another|more|fewer|\w+=)\b")
    name_of_data = re.compile(rf"\b_*(?:{'|'.join(NAMES)})_*\b")
    words, names, steps = [], [], []
    for path in (path for path in FILES if path.is_relative_to(ROOT / folder)):
        text, place = path.read_text("utf-8"), path.relative_to(ROOT)
        # Most files match no pattern at all, and parsing and tokenizing a file is slow.
        is_suspect = pattern.search(" ".join(re.sub(r"#|//", " ", text).split())) is not None
        if path.suffix == ".py":
            if not (is_suspect or "Next: " in text or name_of_data.search(text)):
                continue
            tree = ast.parse(text)
            prose = prose_of_python(text, tree) if is_suspect else ()
            names += [
                f"{place}: {name}" for name in sorted(set(names_of_data(tree))) if name.strip("_") in NAMES
            ]
            steps += [f"{place}: {step[:60]}" for step in next_steps(tree) if without_verb.match(step)]
        else:
            prose = prose_of_cpp(text) if is_suspect else ()
        words += [f"{place}: {hit[0]!r}" for line in prose for hit in pattern.finditer(line)]
    assert not words, f"write the field's term (WORDS): {words}"
    assert not names, f"name the thing, not that it was found: {names}"
    assert not steps, f"begin a next step with a verb: {steps}"
