#!/usr/bin/env python3
"""Wrap the prose of Markdown pages at 100 columns: ``python scripts/prose.py [FILE]...`` (all of docs).

Tables, code, headings, comments and pictures stay as they are.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

WIDTH = 100
_ITEM = re.compile(r"(?P<indent> *)(?P<mark>[*-] |\d+\. )(?P<text>.*)")
# Lines that are not wrapped.
_WHOLE = re.compile(r"\s*(\||#|<|!\[|```|---|$)|\t|\[[^]]+\]: ")
# Words that would begin a list or a heading at the start of a line. Such a word stays on the line of the
# previous word, as a unit does.
_MARK = re.compile(r" (?=([*+-]|\d+\.|#+|>)( |$)|%)")


def main() -> None:
    """Rewrite the files that are named, or all pages of docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    root = Path(__file__).resolve().parent.parent
    for file in parser.parse_args().files or sorted((root / "docs").rglob("*.md")):
        text = file.read_text("utf-8")
        if (better := wrapped(text)) != text:
            file.write_text(better, "utf-8")


def wrapped(text: str) -> str:
    """Return a Markdown page with each paragraph and list item wrapped again."""
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    """Yield the wrapped lines of a page; *margin* is the indentation of the current list item."""
    at, margin = 0, 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].lstrip().startswith("```"))
            yield from lines[at : end + 1]
            at = end + 1
            continue
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < margin:
            margin = 0
        item = _ITEM.fullmatch(line)
        if _WHOLE.match(line) or (indent >= margin + 4 and not (item and margin)):
            yield line
            at += 1
            continue
        first = " " * indent
        if item:
            first += item["mark"]
            margin = len(first)
        rest = " " * (margin if item else indent)
        words = [item["text"] if item else line.strip()]
        at += 1
        while at < len(lines) and _continues(lines[at]):
            words.append(lines[at].strip())
            at += 1
        yield from _filled(" ".join(words), first, rest)


def _continues(line: str) -> bool:
    return not (_WHOLE.match(line) or _ITEM.fullmatch(line))


def _filled(text: str, first: str, rest: str) -> Iterator[str]:
    """Yield *text* in lines, none of which begins as a list item or heading would."""
    joined = _MARK.sub("\0", text)
    lines = textwrap.wrap(
        joined, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    yield from (line.replace("\0", " ") for line in lines)


if __name__ == "__main__":
    main()
