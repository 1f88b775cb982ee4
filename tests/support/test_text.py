"""Texts of others: nothing that a terminal obeys or a spreadsheet computes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chakrascope.support import spreadsheet_text, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("aten::mm", "aten::mm"),
        ("Größe 2 µs → 3 · ✓ 模型", "Größe 2 µs → 3 · ✓ 模型"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\x9b31mb\rc\x00", r"a\x9b31mb\rc\x00"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert visible(text) == shown


def test_some_may_be_kept():
    assert visible("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


@given(st.text())
def test_what_is_shown_moves_no_cursor_and_is_shown_once(text):
    shown = visible(text)
    assert shown.isascii() or not set(shown) & {chr(code) for code in range(0x80, 0xA0)}
    assert all(sign >= " " and sign != "\x7f" for sign in shown)
    assert visible(shown) == shown


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('=HYPERLINK("http://a","b")', '\'=HYPERLINK("http://a","b")'),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("-2.5 ms", "-2.5 ms"),
        ("-x", "'-x"),
        ("\t=1", "'\t=1"),
        ("-1.5e-9", "-1.5e-9"),
        ("+12.5%", "+12.5%"),
        ("-", "-"),
        ("aten::add", "aten::add"),
        ("\x1b[0m", r"\x1b[0m"),
    ],
)
def test_formulas_are_quoted(text, cell):
    assert spreadsheet_text(text) == cell
