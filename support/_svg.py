"""Build SVG pictures as text, for the report, notebooks, algorithms, calibrations and the docs."""

from __future__ import annotations

from html import escape


class Svg(str):
    """A text that is already SVG, which `element` therefore does not escape."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | float | None) -> Svg:
    """Return the SVG element *name* with *content*, which are other elements, and strings to be escaped.

    Underscores in the names of attributes become dashes (``stroke_width``), and trailing underscores are
    removed (``class_``). Numbers have at most two decimals. Attributes with the value None are omitted.
    """
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(part if isinstance(part, Svg) else escape(part) for part in content)
    return Svg(f"<{name}{named}>{inside}</{name}>" if inside else f"<{name}{named}/>")


def picture(width: float, height: float, /, *content: str, label: str = "", **attributes: str | float) -> Svg:
    """Return *content* as an SVG picture of *width* by *height*, with *label* for screen readers.

    The picture scales to the available width, unless *attributes* set a size.
    """
    described: dict[str, str | float] = {"role": "img", "aria_label": label} if label else {}
    return element(
        "svg", *content, xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_value(width)} {_value(height)}", **described, **attributes,
    )  # fmt: skip


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
