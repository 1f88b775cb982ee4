"""Text and quantities as people read and write them."""

from __future__ import annotations

import contextlib
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chakrascope import support
from chakrascope.support import (
    bandwidth_text,
    bytes_text,
    change_text,
    count_text,
    delta_text,
    duration_text,
    instant_text,
    ordinal_text,
    parse_bandwidth,
    parse_duration,
    parse_size,
    ranks_text,
    share_text,
    spreadsheet_text,
    visible,
)

# The viewer's scripts are tested with the same table, see tests/viewer/test_head.py.
TABLE = json.loads(Path(__file__).with_name("texts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("function", "value", "text"), [(f, v, t) for f in TABLE for v, t in TABLE[f]])
def test_texts(function, value, text):
    assert getattr(support, function)(*value if isinstance(value, list) else [value]) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_ordinals(number, text):
    assert ordinal_text(number) == text


@pytest.mark.parametrize(("delta_ns", "text"), [(1_234_567, "+1.23 ms"), (0, "0 ns"), (-12, "-12 ns")])
def test_changes_of_durations_have_signs(delta_ns, text):
    assert delta_text(delta_ns) == text


def _within_its_digits(text: str, shown: Fraction, value: float) -> bool:
    """Return whether *value* differs from the *text* by at most half of its last digit."""
    number, _, _unit = text.partition(" ")
    whole, _, decimals = number.replace(",", "").partition(".")
    one = shown / Fraction(f"{whole}.{decimals or 0}") if shown else Fraction(1)
    return abs(shown - Fraction(value)) <= Fraction(50_000_001, 100_000_000) * one / 10 ** len(decimals)


KINDS = {
    "duration": (duration_text, parse_duration, "s"),
    "size": (bytes_text, parse_size, "TiB"),
    "bandwidth": (bandwidth_text, parse_bandwidth, "TB/s"),
    "bits": (lambda rate: bandwidth_text(rate, "Gb/s"), parse_bandwidth, "Tb/s"),
    "binary": (lambda rate: bandwidth_text(rate, "GiB/s"), parse_bandwidth, "TiB/s"),
}
whole = st.integers(0, 1 << 52)


@pytest.mark.parametrize("kind", KINDS)
@given(value=whole | st.floats(1e-6, 1e15))
@example(value=999_999)
@example(value=999.999)
@example(value=1023 * 1024 + 1000)
def test_printed_quantities_can_be_parsed(kind, value):
    write, read, last = KINDS[kind]
    text = write(value)
    number, _, unit = text.partition(" ")
    assert "e" not in number.lower()
    assert _within_its_digits(text, Fraction(read(text)) if kind != "size" else _bytes(text), value)
    shown = float(number.replace(",", ""))
    assert unit == last or shown < (1024 if unit.startswith(("B", "Ki", "Mi", "Gi")) else 1000)
    if "." in number and shown >= 1:
        assert len(number.replace(".", "")) == 3


def _bytes(text: str) -> Fraction:
    """Return the value that `bytes_text` shows, before it is rounded to a whole byte."""
    number, _, unit = text.partition(" ")
    return Fraction(number.replace(",", "")) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)


@pytest.mark.parametrize("kind", KINDS)
@given(pair=st.tuples(whole, whole).map(sorted))
@example(pair=[999_499, 999_500])
def test_more_is_never_written_as_less(kind, pair):
    write, read, _ = KINDS[kind]
    shorter, longer = (read(write(value)) for value in pair)
    assert shorter <= longer


@given(st.integers(1, 1 << 52))
def test_a_difference_has_its_sign(value):
    assert duration_text(-value) == f"-{duration_text(value)}"
    assert bytes_text(-value) == f"-{bytes_text(value)}"


@given(st.integers(0, 10**12), st.sampled_from([1, 20, 1000, 5 * 10**5, 10**6]))
def test_instants_are_printed_with_distinct_digits(time_ns, resolution_ns):
    texts = [instant_text(time_ns + step * resolution_ns, resolution_ns) for step in range(3)]
    assert len(set(texts)) == 3


@given(st.floats(0, 1))
def test_shares_0_and_100_percent_are_exact(share):
    text = share_text(share)
    assert (text == "0.0 %") == (share == 0)
    assert (text == "100.0 %") == (share == 1)


@given(st.floats(-10, 10))
def test_a_change_without_a_sign_is_none(relative):
    text = change_text(relative)
    assert (text == "0.00 %") == (not text.startswith(("+", "-")))
    assert abs(float(text.removesuffix(" %").replace(",", "")) - 100 * relative) <= 0.0501


def test_counts():
    assert [count_text(n, "rank") for n in (0, 1, 8, 16384)] == [
        "0 ranks",
        "1 rank",
        "8 ranks",
        "16,384 ranks",
    ]
    assert count_text(2, "process", "processes") == "2 processes"
    assert count_text(1, "process", "processes") == "1 process"


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("500", 500),
        (500, 500),
        ("500ns", 500),
        ("1.5 us", 1500),
        ("1.5µs", 1500),
        ("1.5 μs", 1500),
        ("0.1ns", "0.1"),
        ("2 ms", 2 * 10**6),
        ("3s", 3 * 10**9),
        ("1e3", 1000),
        ("1E-3 s", 10**6),
        (".5 us", 500),
        ("250ps", "0.25"),
        (" 1,234 ms ", 1234 * 10**6),
        (0, 0),
        (1.5, "1.5"),
    ],
)
def test_durations_are_read(text, ns):
    assert parse_duration(text) == Fraction(ns)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("25MB", 25 * 10**6),
        ("25 MiB", 25 << 20),
        ("4096", 4096),
        (4096, 4096),
        ("25M", 25 * 10**6),
        ("1e9", 10**9),
        ("1 KB", 1000),
        ("1 kB", 1000),
        ("1.5 GiB", 3 << 29),
        ("1,000 KiB", 1_024_000),
        ("1.1 KiB", 1126),
    ],
)
def test_sizes_are_read(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "bytes_per_ns"),
    [
        ("10GB/s", 10),
        ("80 Gb/s", 10),
        ("80Gbps", 10),
        ("80 Gbit/s", 10),
        ("10 GBps", 10),
        ("10", 10),
        (10, 10),
        ("1e9", 10**9),
        ("1 TB/s", 1000),
        ("1 GiB/s", Fraction(1 << 30, 10**9)),
        ("5e-1 GB/s", "0.5"),
        ("0", 0),
    ],
)
def test_bandwidths_are_read(text, bytes_per_ns):
    assert parse_bandwidth(text) == Fraction(bytes_per_ns)


def test_a_number_alone_is_in_the_unit_named():
    assert parse_duration("2", bare="s") == 2 * 10**9
    assert parse_bandwidth("400e9", bare="bps") == parse_bandwidth("400G", bare="bps") == 50
    assert parse_bandwidth("2", bare="GiB/s") == Fraction(1 << 31, 10**9)
    assert parse_size("3", bare="MiB") == 3 << 20


JUNK = [
    "",
    "-5",
    "-5 ns",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "ten",
    "5 parsecs",
    "1_000",
    "1,5 us",
    "5 e",
    "²",
    "0x10",
]


@pytest.mark.parametrize(
    "text", [*JUNK, float("nan"), float("inf"), -1, True, "9" * 10_000, "1e999999999", "5 5 ns"]
)
@pytest.mark.parametrize(
    ("read", "accepted"), [(parse_duration, "1.5 us"), (parse_size, "25 MiB"), (parse_bandwidth, "80 Gb/s")]
)
def test_invalid_values_are_refused_with_valid_ones(read, accepted, text):
    with pytest.raises(ValueError, match=f"such as .*{accepted}.*a number alone is in") as caught:
        read(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("read", "text"),
    [(parse_bandwidth, "80G"), (parse_bandwidth, "80 gb/s"), (parse_duration, "5m"), (parse_size, "8 Mb")],
)
def test_a_unit_that_could_mean_two_things_is_refused(read, text):
    with pytest.raises(ValueError, match="such as"):
        read(text)


@pytest.mark.parametrize("read", [parse_duration, parse_size, parse_bandwidth])
@given(
    text=st.text(max_size=20)
    | st.from_regex(r"\A[0-9.,]{1,5}([eE][-+]?[0-9]{1,3})? ?[kKMGTinuµmsBbp/]{0,4}\Z")
)
def test_no_text_breaks_the_parsers(read, text):
    with contextlib.suppress(ValueError):
        assert read(text) >= 0


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], ""), ([3], "3"), ([2, 0, 1], "0-2"), ([0, 1, 5, 7, 8], "0-1, 5, 7-8"),
     (range(0, 20, 2), "0, 2, 4, 6 and 6 more")],
)  # fmt: skip
def test_ranks_are_printed_as_ranges(ranks, text):
    assert ranks_text(ranks) == text


# Foreign text is printed without characters that control a terminal or start a formula.


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
