"""Output of the command line: tables, figures and progress."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from ..support import bytes_text, change_text, count_text, duration_text, ranks_text, share_text, visible
from ._options import Choice, Command

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from ..converter.building import FinishedRanks
    from ..converter.chakra import TextColumn

_BROKEN_PIPE = 141  # 128 plus the number of SIGPIPE, as in shells
_CELL_LENGTH = 400
_LONG_NAME = 24  # characters; longer names may break between their parts
_NAME_PARTS = re.compile(r"(?<=[.:/=])(?=[A-Za-z_<])")
_WORDS_OF_PART = re.compile(r"(?<=[^A-Z_]_)(?=[A-Za-z])")  # names of environment variables stay whole
_QUANTITY = re.compile(
    r"(?:at most )?[<>~+-]?[0-9][0-9,.]*(?: ?(?:(?:bus )?[a-zA-Zµ/]{1,7}|%))?(?: if removed)?"
)
_SPACES = re.compile(r"(\s+)")
_UNBROKEN = re.compile(
    r"(?:`[^`]*`|'chakrascope [^']*'|(?<=Next: )chakrascope (?:(?![,.;)]\s).)+|\S)+"
)  # words, and commands that users copy
_LONG_LINE = re.compile(r"^.{4000,}$", re.MULTILINE)
_SHOWN_ENDS = 300  # characters at each end of a long line
_MIN_WIDTH = 8  # minimum width of a text column, in characters
_BORDER = 3  # width between two columns with a line
_GAP = 2  # width between two columns without a line
_OF_COPIES = ("copy", "exposed_copy")  # columns that are left out if they are zero in all rows
_MIN_COLUMNS = 3  # minimum number of columns on a narrow terminal
_IN_ASCII = {"µ": "u", "…": "...", "→": "->", "×": "x", "−": "-", "–": "-", "·": "-", "✓": "ok"}


class OutputConsole(Console):
    """A terminal that shows control characters in names as escape sequences."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of *renderable* with control characters escaped."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield segment._replace(text=visible(segment.text, keep="\n\t"))

    @property
    def wraps(self) -> bool:
        """Whether texts are wrapped: on a terminal only, even if COLUMNS or FORCE_COLOR is set."""
        return self.file.isatty()

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print *objects*; texts in pipes and files are not wrapped."""
        if not self.wraps and all(isinstance(each, (str, Text)) for each in objects):
            settings.setdefault("soft_wrap", True)
        super().print(*objects, **settings)

    def print_text(self, text: str, style: str | None = None, lead: str = "") -> None:
        """Print *text* without markup, wrapped between words, to the right of *lead*.

        Commands stay whole, so that they can be copied. Pipes and files get whole lines, which can
        be searched.
        """
        self.print(lead + self._wrapped(text, len(lead)), style=style, markup=False, soft_wrap=True)

    def print_marked(self, mark: str, style: str, text: str) -> None:
        """Print *text* after *mark*, wrapped like other texts; only *mark* has the *style*."""
        marked = Text(self._wrapped(f"{mark} {text}"))
        marked.stylize(style, 0, len(mark))
        self.print(marked, soft_wrap=True)

    def print_done(self, text: str) -> None:
        """Print *text* after a tick."""
        self.print_marked("✓", "green", text)

    def print_error(self, text: str) -> None:
        """Print the message *text* of an error."""
        self.print_marked("Error:", "bold red", shortened(text))

    def _wrapped(self, text: str, indent: int = 0) -> str:
        if not self.wraps:
            return text
        lines = [_filled(line, self.width - indent) for line in text.split("\n")]
        return "\n".join(lines).replace("\n", "\n" + " " * indent)

    def on_broken_pipe(self) -> NoReturn:
        """Exit silently with code 141: the program that reads the output, such as `head`, has ended."""
        _discard_output()
        raise SystemExit(_BROKEN_PIPE)


def shortened(text: str) -> str:
    """Return the message *text* with only the ends of lines made long by a value in them."""
    return _LONG_LINE.sub(lambda line: f"{line[0][:_SHOWN_ENDS]}…{line[0][-_SHOWN_ENDS:]}", text)


def _filled(line: str, width: int) -> str:
    """Break *line* between words, but not within commands, into lines of *width* characters."""
    if cell_len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    lines = [indent]
    for word in _UNBROKEN.findall(line):
        joined = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
        if cell_len(joined) > width and lines[-1].strip():
            lines.append(f"{indent}{word}")
        else:
            lines[-1] = joined
    return "\n".join(lines)


console = OutputConsole(highlight=False)
error_console = OutputConsole(stderr=True, highlight=False)

cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Dask scheduler address (tcp://host:8786), scheduler file, or YAML file describing a batch system.",
)


def format_of(*formats: str) -> Callable[[Command], Command]:
    """Return the option --format with *formats*, of which the first is the default."""
    return click.option(
        "--format",
        "output_format",
        type=Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


format_option = format_of("table", "json", "csv")


def open_closed_streams() -> None:
    """Redirect closed standard streams to the null device.

    Otherwise, the next files to be opened would get their descriptors.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - stays open until the process ends
            os.dup2(stream.fileno(), number)
            setattr(sys, name, stream)


@contextlib.contextmanager
def flushed_output() -> Iterator[None]:
    """Flush standard output after the block; exit with code 141 if its reader is gone."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # Python's flush at exit would print a traceback
    except BrokenPipeError:
        error_console.on_broken_pipe()
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:
            _discard_output()
        raise


def _discard_output() -> None:
    """Redirect standard output to the null device, so that later flushes cannot fail."""
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def replace_unencodable_output() -> None:
    """Replace characters that a standard stream cannot encode; in ASCII, µs becomes us."""
    codecs.register_error("chakrascope", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="chakrascope")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_IN_ASCII.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def print_json(value: object) -> None:
    """Print *value* as JSON without line breaks or colours."""
    sys.stdout.write(json.dumps(value, indent=2, default=_plain) + "\n")


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of *frame* as plain JSON, without NaN."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


def print_frame(
    frame: pd.DataFrame,
    output_format: str,
    *,
    title: str = "",
    limit: int | None = None,
    count: int | None = None,
    all_columns: bool = False,
) -> None:
    """Print *frame* as a table, or all of it as JSON records or CSV.

    The table shows at most *limit* rows. *count* is the total number of rows, of which *frame* may contain
    only the first. If *all_columns* is true, words break on a narrow terminal, and no column is left out.
    """
    if output_format == "json":
        print_json(records(frame))
    elif output_format == "csv":
        from ..support.table import csv_text

        sys.stdout.write(csv_text(frame))
    else:
        shown = frame if limit is None else frame.head(limit)
        columns = {str(name): shown[name].dtype.kind in "iuf" for name in shown.columns}
        _print_table(columns, shown.itertuples(index=False), title, all_columns=all_columns)
        _print_remaining(len(shown), len(frame) if count is None else count)


def print_rows(rows: Sequence[Mapping[str, Any]], *, title: str = "") -> None:
    """Print *rows* as a table; all rows have the same keys."""
    columns = {name: isinstance(value, (int, float)) for row in rows[:1] for name, value in row.items()}
    _print_table(columns, (row.values() for row in rows), title)


def print_ranks(ranks: Iterable[Mapping[str, Any]], limit: int = 16) -> None:
    """Print a table of *ranks*, with one row for consecutive ranks whose values are equal."""
    alike = groupby(ranks, key=lambda row: {name: value for name, value in row.items() if name != "rank"})
    rows = [{"rank": ranks_text(row["rank"] for row in rows)} | values for values, rows in alike]
    print_rows(rows[:limit], title="Ranks")
    _print_remaining(min(len(rows), limit), len(rows))


def print_columns(
    columns: Mapping[str, npt.NDArray[Any] | TextColumn],
    rows: npt.NDArray[Any] | None = None,
    output_format: str = "table",
    *,
    title: str = "",
    count: int | None = None,
) -> None:
    """Print *rows* (default: all) of *columns* of numbers or texts as a table, as JSON records or as CSV.

    For a table, *rows* may be the first of *count*. Works without pandas, which is slow for a
    million rows.
    """
    if rows is None:
        import numpy as np

        rows = np.arange(len(next(iter(columns.values()), ())))
    if output_format == "csv":
        from ..support.table import csv_pieces

        for piece in csv_pieces(columns, rows):
            sys.stdout.write(piece)
        return
    values = {name: column[rows].tolist() for name, column in columns.items()}
    if output_format == "json":
        print_json([dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)])
        return
    _print_table(_numbers(columns), zip(*values.values(), strict=True), title)
    _print_remaining(len(rows), len(rows) if count is None else count)


def _numbers(columns: Mapping[str, npt.NDArray[Any] | TextColumn]) -> dict[str, bool]:
    """Return whether each of *columns* holds numbers."""
    kinds = {name: getattr(column, "dtype", None) for name, column in columns.items()}
    return {name: kind is not None and kind.kind in "iuf" for name, kind in kinds.items()}


def _print_remaining(shown: int, count: int) -> None:
    """Print how many rows were left out, if any."""
    if shown < count:
        console.print_text(f"{count - shown} more rows; --format csv prints all rows", "dim")


def print_other_views(views: Sequence[str], printed: Sequence[str]) -> None:
    """Print the names of the *views* that were not *printed*."""
    others = ", ".join(view for view in views if view not in printed)
    console.print_text(f"Other tables: --view {others}", "dim")


def print_clocks(clocks: str, measured: int, ranks: int) -> None:
    """Print what measured times refer to, how *clocks* were aligned, and how many *ranks* were *measured*.

    Prints nothing if *clocks* is "", as for a simulation.
    """
    if not clocks:
        return
    text = "Measured times of a rank are relative to the start of the step on this rank."
    if measured != 1:
        text += f" For waits and skew, the clocks of ranks are {clocks}."
    if 0 < measured < ranks:
        text += f" Traces of {measured} of {ranks} ranks were given; the other ranks repeat their times."
    console.print_text(text, "dim")


def print_remarks(word: str, texts: Iterable[str]) -> None:
    """Print the distinct *texts*, such as warnings or assumptions, each after *word*."""
    for text in dict.fromkeys(texts):
        console.print_text(f"{word}: {text.rstrip('.')}.", "dim")


def _print_table(
    columns: Mapping[str, bool], rows: Iterable[Iterable[Any]], title: str, *, all_columns: bool = False
) -> None:
    """Print *rows* as a table; *columns* maps each column name to whether the column contains numbers."""
    names = [name.removesuffix("_ns").removesuffix("_bytes") for name in columns]
    cells = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in rows]
    if not any(cells):
        console.print(f"{title}: none" if title else "none")
        return
    shown = [
        place
        for place, column in enumerate(zip(*cells, strict=True))
        if any(column) and not (names[place] in _OF_COPIES and set(column) == {"0 ns"})
    ]
    numbers = [list(columns.values())[place] for place in shown]
    names, cells = [names[place] for place in shown], [[row[place] for place in shown] for row in cells]
    numeric = [
        is_number or all(_QUANTITY.fullmatch(cell) for cell in column if cell)
        for is_number, *column in zip(numbers, *cells, strict=True)
    ]
    fitting = range(len(names)) if all_columns else _columns_that_fit(numeric, names, cells, console.width)
    left_out = [name for place, name in enumerate(names) if place not in fitting]
    numeric, names = [numeric[place] for place in fitting], [names[place] for place in fitting]
    cells = [[row[place] for place in fitting] for row in cells]
    heads, widths, ruled = _fitting(numeric, names, cells, console.width)
    lines: dict[str, Any] = (
        {} if ruled else {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "show_edge": False}
    )
    table = Table(title=title or None, title_justify="left", header_style="bold", **lines)
    for head, is_number, width in zip(heads, numeric, widths, strict=True):
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(head, justify=justify, overflow="fold", width=width)
    for row in cells:
        table.add_row(*(_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)))
    console.print(table)
    if left_out:
        console.print_text(
            f"Too wide to print: {', '.join(left_out)}; --format csv prints all columns.", "dim"
        )


def _columns_that_fit(
    numeric: Sequence[bool], names: Sequence[str], cells: Sequence[Sequence[str]], room: int
) -> Sequence[int]:
    """Return the columns that fit into *room* characters without breaking words.

    Columns with equal cells in all rows are left out first, from the right, and then other columns. If fewer
    than 3 columns fit, the function returns all columns, so that words must break.
    """
    heads = [name.replace("_", " ") for name in names]
    filled = list(zip(numeric, zip(heads, *cells, strict=True), strict=True))
    places = range(len(names))
    equal = [
        place for place in places if place and len(cells) > 1 and len({row[place] for row in cells}) == 1
    ]
    fitting = list(places)
    for place in (*reversed(equal), *(place for place in reversed(places) if place not in equal)):
        if _widths([filled[each] for each in fitting], room - _GAP * len(fitting), whole=True) is not None:
            return fitting
        if len(fitting) == _MIN_COLUMNS:
            break
        fitting.remove(place)
    return places


def _fitting(
    numeric: Sequence[bool], names: Sequence[str], cells: Sequence[Sequence[str]], room: int
) -> tuple[Sequence[str], Sequence[int | None], bool]:
    """Return heads and widths of columns for *room* characters, and whether lines separate them.

    If the columns do not fit, texts break between words first, then heads, and then the lines are omitted.
    Words and numbers break only as a last resort.
    """
    spaced = [name.replace("_", " ") for name in names]
    for ruled, heads, whole in ((True, names, True), (True, spaced, True), (False, names, True),
                                (False, spaced, True), (False, spaced, False)):  # fmt: skip
        filled = list(zip(numeric, zip(heads, *cells, strict=True), strict=True))
        border, edge = (_BORDER, 1) if ruled else (_GAP, 0)
        widths = _widths(filled, room - edge - border * len(names), whole=whole)
        if widths is not None:
            return heads, widths, ruled
    return spaced, [None] * len(names), False


def _widths(columns: Sequence[tuple[bool, Sequence[str]]], room: int, *, whole: bool) -> list[int] | None:
    """Return the width of each column, or None if they do not fit into *room* characters.

    With *whole*, words and numbers with units stay whole. Otherwise, numbers may break before their
    units, and words if that is not enough.
    """
    full = [max(cell_len(line) for text in texts for line in text.split("\n")) for _, texts in columns]
    words = [max(map(_longest_word, texts)) for _, texts in columns]
    numbers = [
        max(_longest_word(texts[0]), *map(cell_len, texts[1:]), 0) if numeric else width
        for width, (numeric, texts) in zip(words, columns, strict=True)
    ]
    broken = [
        max(_longest_word(texts[0]), min(_MIN_WIDTH, width))
        for width, (_, texts) in zip(words, columns, strict=True)
    ]
    pairs = ((numbers, words),) if whole else ((words, words), (numbers, broken), (words, broken))
    for number_widths, text_widths in pairs:
        least = [
            number if numeric else text
            for number, text, (numeric, _) in zip(number_widths, text_widths, columns, strict=True)
        ]
        left = room - sum(least)
        if left >= 0:
            wanted = [width - short for width, short in zip(full, least, strict=True)]
            share = min(1.0, left / max(1, sum(wanted)))
            return [width + int(share * more) for width, more in zip(least, wanted, strict=True)]
    return None


def _longest_word(text: str) -> int:
    return max((cell_len(part) for word in text.split() for part in _parts(word)), default=0)


def _parts(word: str) -> list[str]:
    """Split a long name after ``.``, ``:``, ``/`` and ``=``, and long parts after ``_``."""
    if cell_len(word) <= _LONG_NAME:
        return [word]
    parts = []
    for part in _NAME_PARTS.split(word):
        parts.append("")
        for piece in _WORDS_OF_PART.split(part):
            if parts[-1] and cell_len(parts[-1] + piece) > _LONG_NAME:
                parts.append("")
            parts[-1] += piece
    return parts


def _wrapped(text: str, width: int | None) -> str:
    """Break long names in *text* that are wider than *width* between their parts."""
    if width is None or len(text) <= width:
        return text
    words = []
    for word in _SPACES.split(text):
        lines = [""]
        for part in _parts(word) if cell_len(word) > width else [word]:
            if lines[-1] and cell_len(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        words.append("\n".join(lines))
    return "".join(words)


def _cell(column: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "" if value is None or math.isnan(value) else str(value)
    if column.endswith("_ns"):
        return duration_text(float(value))
    if column in {"bytes", "size_bytes"} and isinstance(value, int):
        return bytes_text(value)
    if column in {"share", "busiest", "mean", "roofline"}:
        return share_text(value)
    if not isinstance(value, float):
        text = visible(str(value), keep="\n\t")
        return escape(text if len(text) <= _CELL_LENGTH else f"{text[: _CELL_LENGTH // 2]} … {text[-20:]}")
    return change_text(value) if column == "relative" else f"{value:,.4g}"


def print_next(*words: object, then: str = "") -> None:
    """Print the command to run next, quoted and on one line so that it can be copied.

    *then* is a part that the user must complete. A command about a run should contain its id,
    because it may be copied when newer runs exist.
    """
    command = shlex.join(["chakrascope", *map(str, words)])
    console.print(f"Next: {command}{then and f' {then}'}", markup=False, soft_wrap=True)


@contextlib.contextmanager
def stage(text: str) -> Iterator[Status]:
    """Show *text* with a spinner during the block, and with a tick after it."""
    with error_console.status(text) as status:
        yield status
    error_console.print_done(text)


@contextlib.contextmanager
def progress_bar(text: str) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error during the block; yield its update with the numbers done and in total."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    red = TextColumn("{task.fields[failed]}", style="red")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), red)
    with Progress(*columns, TimeRemainingColumn(), console=error_console, transient=True) as bar:
        shown = bar.add_task(text, total=None, failed="")

        def update(done: int, total: int, failed: int = 0, text: str = text) -> None:
            failures = f"{failed} failed" if failed else ""
            bar.update(shown, description=text, completed=done, total=total, failed=failures)

        yield update


def counter(status: Status, what: str) -> Callable[[int, int], None]:
    """Return a callback that shows how many of *what* are done, and the remaining time."""
    text, began_s, show_line = status.status, time.monotonic(), _lines(status)

    def show(done: int, of: int) -> None:
        took_s = time.monotonic() - began_s
        left = f", about {duration_text(1e9 * took_s / done * (of - done))} left" if 0 < done < of else ""
        show_line(f"{text}: {done} of {of} {what}{left}")

    return show


def clock(status: Status, ranks: int, word: str = "simulated") -> Callable[[int, int], bool]:
    """Return a callback that shows the time within a run of *ranks* ranks and how many have finished.

    *word* is ``simulated`` or ``measured``. The callback never cancels the run.
    """
    text, show_line = status.status, _lines(status)

    def show(now_ns: int, finished: int) -> bool:
        show_line(f"{text}: {duration_text(now_ns)} {word}, {finished:,} of {ranks:,} ranks finished")
        return True

    return show


def _lines(status: Status) -> Callable[[str], None]:
    """Return a callback that shows progress in place of *status*.

    Without a terminal, it prints lines to standard error: the first after a second, then at
    doubling intervals.
    """
    next_s, began_s = 1.0, time.monotonic()

    def show(line: str) -> None:
        nonlocal next_s
        if error_console.is_terminal:
            status.update(line)
        elif time.monotonic() - began_s >= next_s:
            next_s *= 2
            error_console.print(line, soft_wrap=True)

    return show


def _plain(value: Any) -> Any:
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


@contextlib.contextmanager
def conversion_cache(target: Path) -> Iterator[FinishedRanks]:
    """Yield the cache of converted ranks for *target*; print its path if the block is interrupted."""
    from ..converter.building import finished_ranks

    with finished_ranks(target) as finished:
        try:
            yield finished
        except BaseException:
            if finished.is_used and finished.count:
                error_console.print_text(
                    f"{count_text(finished.count, 'converted rank')} stored in {finished.folder}: the same "
                    "command resumes from there. Delete the folder to start over."
                )
            raise
