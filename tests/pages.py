"""Read the commands, snippets and figures of the documentation in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]

# A comment on the line before a block that tests do not run; only readers of the source see it.
NOT_RUN = re.compile(r"<!-- not run in tests: (?P<reason>.+?) -->")

_FENCE = re.compile(r"^\s*```(?P<language>\w*)\s*$")
_SHELL = {"bash", "sh", "shell"}
_PROGRAMS = ("chakrascope ", "python ", "python3 ", "make ", "pip ", "dask ", "torchrun ", "export ")
_SPAN = re.compile(r"`(chakrascope [^`]+)`")


@dataclass(frozen=True)
class Block:
    """Code on a page: *language* is ``python`` or ``sh``; *reason* says why it does not run here, if so."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def commands(self) -> list[str]:
        """The commands of a block of language ``sh``, continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        return [line.strip() for line in joined.splitlines() if line.strip().startswith(_PROGRAMS)]


def name_of(page: Path) -> str:
    """Return the page's path in the project."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Return the blocks of *page* that are Python or commands."""
    lines = page.read_text("utf-8").splitlines()
    found = []
    at = 0
    while at < len(lines):
        start, language, end = at, "", at
        if fence := _FENCE.match(lines[at]):
            language = fence["language"]
            end = next(i for i in range(at + 1, len(lines)) if _FENCE.match(lines[i]))
            body, at = lines[at + 1 : end], end + 1
        elif lines[at].startswith("    ") and lines[at].strip().startswith(_PROGRAMS):
            language = "sh"
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("    ")), len(lines))
            body, at = lines[at:end], end
        else:
            at += 1
            continue
        if language in {"python", *_SHELL}:
            language = "python" if language == "python" else "sh"
            found.append(Block(page, start + 1, language, _dedented(body), _reason(lines, start)))
    return found


def command_spans(page: Path) -> list[str]:
    """Return the `chakrascope` commands in running text and tables."""
    text = re.sub(r"(?ms)^\s*```.*?^\s*```", "", page.read_text("utf-8"))
    return [span.replace("\\|", "|") for span in _SPAN.findall(text)]


def figures(page: Path) -> list[str]:
    """Return the paths of the figures on *page*, as written on the page."""
    return re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Return the targets of the links on *page*, without links to other hosts."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
    return [link for link in found if "://" not in link]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of *page*."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def scripts(page: Path) -> set[Path]:
    """Return the scripts of this project that *page* names."""
    text = page.read_text("utf-8")
    names = re.findall(r"(?:scripts|benchmarks|examples)/[\w/]+\.py", text)
    names += [f"{name_of(page.parent)}/{each}" for each in re.findall(r"(?<![\w/])(\w+\.py)\b", text)]
    return {ROOT / name for name in names if (ROOT / name).is_file()}


def _dedented(lines: list[str]) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


def _reason(lines: list[str], start: int) -> str | None:
    before = next((lines[i] for i in range(start - 1, -1, -1) if lines[i].strip()), "")
    found = NOT_RUN.search(before)
    return found["reason"] if found else None
