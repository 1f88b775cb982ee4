"""Tables on narrow terminals: what breaks where."""

from __future__ import annotations

import pytest

from chakrascope.cli import _output


@pytest.fixture
def printed(monkeypatch, capfd):
    """Return a function that prints rows on a terminal of so many columns, and returns the lines."""

    def lines(rows, width):
        monkeypatch.setattr(_output.console, "_width", width)
        _output.print_rows(rows)
        return capfd.readouterr().out.splitlines()

    return lines


ROW = {"operation": "all_reduce", "what": "a gap between collectives", "size_bytes": 4_204_593}


def test_words_and_numbers_stay_whole_where_they_fit(printed):
    lines = printed([ROW], 48)
    assert max(map(len, lines)) <= 48
    assert any("all_reduce" in line and "4.01 MiB" in line for line in lines)
    assert not any(
        "collectives" in line and "a gap" in line for line in lines
    )  # the text between them breaks


def test_lines_between_columns_go_before_a_number_breaks(printed):
    lines = printed([ROW], 37)
    assert max(map(len, lines)) <= 37
    assert any("all_reduce" in line and "4.01 MiB" in line and "│" not in line for line in lines)


def test_numbers_break_before_their_unit_where_they_must(printed):
    lines = printed([ROW], 32)
    assert max(map(len, lines)) <= 32
    assert any("all_reduce" in line and "4.01" in line for line in lines)
    assert any("MiB" in line and "4.01" not in line for line in lines)


def test_names_break_between_their_words_where_they_must(printed):
    lines = printed([{"result": "base", "exposed_communication_ns": 9_130_000, "worst_is": "rank 3"}], 36)
    assert max(map(len, lines)) <= 36
    assert any("exposed" in line and "communication" not in line for line in lines)
    assert any("communication" in line for line in lines)


@pytest.mark.parametrize("width", [20, 30])
def test_nothing_is_lost_where_nothing_fits(printed, width):
    text = "".join(sign for line in printed([ROW], width) for sign in line if sign.isalnum())
    assert sorted(text) == sorted(
        sign for sign in "operationwhatsizeall_reduceagapbetweencollectives401MiB" if sign.isalnum()
    )
