"""Build SVG pictures as text, for the report, notebooks, calibrations and the docs."""

from __future__ import annotations

from html import escape


class Svg(str):
    """Text that is already SVG, which `element` does not escape."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | float | None) -> Svg:
    """Return the SVG element *name* with *content*: other elements, and strings, which are escaped.

    In names of attributes, underscores become dashes (``stroke_width``), and a trailing one is
    dropped (``class_``). Numbers get at most two decimals. Attributes that are None are left out.
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

    The picture scales to the available width unless *attributes* set a size.
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
