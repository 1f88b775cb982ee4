"""The viewer's own scripts write quantities exactly as Python does."""

from __future__ import annotations

import json
import random
from pathlib import Path

from chakrascope import support, viewer

ROOT = Path(__file__).resolve().parent.parent
TABLE = json.loads((ROOT / "support" / "texts.json").read_text(encoding="utf-8"))
SCRIPT = Path(viewer.__file__).with_name("assets") / "02_units.js"


def in_browser(browser, cases):
    """Return what the script writes for each ``[function, arguments]`` of *cases*."""
    page = browser.new_page()
    page.add_script_tag(path=SCRIPT)
    texts = page.evaluate(
        "cases => cases.map(([name, values]) => window.chakrascopeUnits["
        "name.replace('_text', 'Text')](...values))",
        cases,
    )
    page.close()
    return texts


def test_the_table(browser):
    cases = [
        (function, value if isinstance(value, list) else [value], text)
        for function, rows in TABLE.items()
        for value, text in rows
    ]
    assert in_browser(browser, [case[:2] for case in cases]) == [text for *_, text in cases]


def test_any_number(browser):
    """Numbers of all sizes, and those that are about to be rounded up."""
    numbers = random.Random(1)
    values = [int(10 ** numbers.uniform(0, 15)) for _ in range(2000)]
    values += [
        int(digits * 10**power) + off
        for digits in (0.9995, 9.995, 99.95, 1.005, 1.125)
        for power in range(3, 14)
        for off in (-1, 0, 1)
    ]
    cases = [[name, [value]] for name in ("duration_text", "instant_text", "bytes_text") for value in values]
    cases += [["bandwidth_text", [10 ** numbers.uniform(-8, 5)]] for _ in range(1000)]
    cases += [["share_text", [numbers.random()]] for _ in range(1000)]
    cases += [["change_text", [numbers.uniform(-1, 1) ** 5]] for _ in range(1000)]
    assert in_browser(browser, cases) == [getattr(support, name)(*arguments) for name, arguments in cases]
