"""How the command line prints texts and tables on a narrow terminal."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from chakrascope.cli._output import OutputConsole, print_ranks, print_rows
from chakrascope.cli._views import collectives_text

WIDTH = 80


@pytest.fixture
def printed(monkeypatch, capsys):
    """Return a function that calls another on a terminal of 80 columns, and returns the printed lines."""
    monkeypatch.setattr(OutputConsole, "wraps", True)
    monkeypatch.setattr("chakrascope.cli._output.console", OutputConsole(highlight=False, width=WIDTH))

    def call(function, *arguments, **options):
        function(*arguments, **options)
        return capsys.readouterr().out.splitlines()

    return call


COMMAND = "`chakrascope import STUDY /a/folder/with/a/long/name/in/another/folder`"
NOTE = f"Note: The traces of 1 of 2 ranks were given. Next: {COMMAND}, or add more."


def test_texts_break_between_words_but_not_within_commands(printed):
    console = OutputConsole(highlight=False, width=WIDTH)
    lines = printed(console.print_text, NOTE)
    assert len(lines) > 1
    assert " ".join(lines) == NOTE
    assert all(len(line) <= WIDTH for line in lines)
    assert any(COMMAND in line for line in lines)
    lines = printed(console.print_error, NOTE)
    assert " ".join(lines) == f"Error: {NOTE}"
    assert all(len(line) <= WIDTH for line in lines)


@pytest.mark.parametrize("variable", ["COLUMNS", "FORCE_COLOR"])
def test_texts_in_pipes_are_whole_lines(capsys, monkeypatch, variable):
    monkeypatch.setenv(variable, "80")
    OutputConsole(highlight=False, width=WIDTH).print_text(NOTE)
    assert capsys.readouterr().out.splitlines() == [NOTE]


def test_plain_texts_in_pipes_are_whole_lines(capsys):
    OutputConsole(highlight=False, width=WIDTH).print(NOTE)
    assert capsys.readouterr().out.splitlines() == [NOTE]


@pytest.mark.parametrize("command", ["'chakrascope import A B'", "chakrascope import A B"])
def test_commands_without_backticks_stay_whole(printed, command):
    text = f"{'word ' * 11}Next: {command}, or add more of the {'words ' * 9}"
    lines = printed(OutputConsole(highlight=False, width=WIDTH).print_text, text)
    assert any(command in line for line in lines)
    assert all(len(line) <= WIDTH for line in lines)


def test_the_text_of_a_figure_stays_in_its_column(printed):
    lines = printed(OutputConsole(highlight=False, width=WIDTH).print_text, NOTE, lead="     job  ")
    assert len(lines) > 1
    assert lines[0].startswith("     job  Note")
    assert all(line.startswith(" " * 10) for line in lines[1:])


def test_numbers_stay_with_their_units(printed):
    rows = [
        {"plan": "tp2 pp2 dp8 cp2 interleaved 8 zero1 mb1 with many more words that need all the room",
         "recompute": "selective", "step": step, "MFU": "57.6 %", "memory": "51.1 GiB"}
        for step in ("921 ms", "~832 ms")
    ]  # fmt: skip
    lines = "\n".join(printed(print_rows, rows))
    for text in ("921 ms", "~832 ms", "57.6 %", "51.1 GiB"):
        assert text in lines


def test_a_long_name_breaks_rather_than_hiding_numbers(printed):
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    rows = [
        {"operator": name, "kind": "computation", "calls": 86, "total_ns": 26_100_000, "mean_ns": 303_000}
    ]
    lines = printed(print_rows, rows)
    text = "\n".join(lines)
    assert "26.1 ms" in text
    assert "303 µs" in text
    assert "Too wide" not in text
    assert all(len(line.rstrip()) <= WIDTH for line in lines)
    assert re.search(r"flash_attention_", text)


def test_the_names_of_environment_variables_stay_whole(printed):
    setting = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    row = {"what": "Allocating and freeing memory", "how": f"no calls of the allocator: {setting}"}
    lines = printed(print_rows, [row | {"gain": "1 ms", "share": 0.25, "more": "words " * 9}])
    assert any("PYTORCH_CUDA_ALLOC_CONF=" in line for line in lines)


def ranks(finish_ns):
    return [
        {"rank": rank, "finish_ns": end, "compute_ns": end, "exposed_copy_ns": 0}
        for rank, end in enumerate(finish_ns)
    ]


def test_equal_ranks_share_a_row(printed):
    text = "\n".join(printed(print_ranks, ranks([5_000_000] * 8 + [6_000_000])))
    assert "0-7" in text
    assert text.count("5 ms") + text.count("5.00 ms") == 2
    assert "6" in text
    assert "more rows" not in text


def test_only_consecutive_ranks_share_a_row(printed):
    lines = printed(print_ranks, ranks([5_000_000, 6_000_000] * 5))
    assert all(any(re.search(rf"\b{rank}\b.* ms", line) for line in lines) for rank in range(10))


@pytest.mark.parametrize("cells", [("312 TFLOP/s", "9 TB/s"), ("12 bus GB/s",), ("12 ms if removed", "9 µs")])
def test_quantities_are_aligned_right(printed, cells):
    lines = printed(print_rows, [{"what": "x", "a much longer heading": cell} for cell in cells])
    assert len({len(line.rstrip("│ ")) for line in lines if any(cell in line for cell in cells)}) == 1
    assert all(len(line.rstrip("│ ")) > 25 for line in lines if any(cell in line for cell in cells))


def test_copies_are_left_out_where_there_are_none(printed):
    rows = ranks([5_000_000])
    assert "copy" not in "\n".join(printed(print_ranks, rows))
    rows[0]["exposed_copy_ns"] = 1000
    assert "copy" in "\n".join(printed(print_ranks, rows))


def test_more_ranks_than_the_limit_are_counted(printed):
    assert "4 more rows" in "\n".join(printed(print_ranks, ranks([1000 + rank for rank in range(20)])))


@pytest.mark.parametrize(
    ("on_path_ms", "measured_ms", "is_repeated"),
    [(10, 40, False), (12, 40, False), (18, 40, True), (18, 0, False), (18, 4_000, False)],
)
def test_a_collective_that_the_path_contains_twice_is_explained(on_path_ms, measured_ms, is_repeated):
    """Measured steps repeat: the path through a late rank begins in the previous step."""
    row = {"operation": "all_reduce", "size_bytes": 1 << 20, "bus_bytes_per_ns": 1.0}
    times = {"skew_ns": 4_000_000, "transfer_ns": 6_000_000, "on_path_ns": on_path_ms * 1_000_000}
    text = collectives_text(pd.DataFrame([row | times]), measured_ms * 1_000_000)
    assert ("The critical path contains 1 collective more than once" in text) == is_repeated
