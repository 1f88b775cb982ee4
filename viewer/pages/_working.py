"""Slow work that a page waits for: a progress bar, and a button to cancel it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update

from ..queries import Work

_LOOK_MS = 400
_W = TypeVar("_W", bound=Work)


def progress_parts(name: str, label: str) -> list[Any]:
    """Return the progress bar of the work *name*, hidden while there is none; *label* describes it."""
    bar = dmc.Progress(id=f"{name}-bar", value=0, size="sm", **{"aria-label": label})
    text = dmc.Text(id=f"{name}-text", size="sm", **{"aria-live": "polite"})
    cancel = dmc.Button("Cancel", id=f"{name}-cancel", variant="default", size="compact-sm")
    moving = [bar, dmc.Group([text, cancel], justify="space-between", mt="xs")]
    return [
        # Tells the work for one open page from that for another, so that Cancel ends its own.
        dcc.Store(id=f"{name}-page", data=uuid.uuid4().hex),
        dcc.Interval(id=f"{name}-clock", interval=_LOOK_MS, disabled=True),
        html.Div(html.Div(moving, id=f"{name}-moving", hidden=True), id=f"{name}-working", hidden=True),
    ]


def while_working(name: str) -> list[tuple[Output, Any, Any]]:
    """Return the ``running`` of the callback that does the work *name*: button, clock and bar."""
    return [
        (Output(f"{name}-go", "loading"), True, False),
        (Output(f"{name}-clock", "disabled"), False, True),
        (Output(f"{name}-working", "hidden"), False, True),
    ]


class Works(Generic[_W]):
    """The work in progress, by the page that waits for it."""

    def __init__(self) -> None:
        self._by_page: dict[str, _W] = {}
        self._lock = threading.Lock()

    @contextmanager
    def of(self, page: str, work: _W) -> Iterator[_W]:
        """Show *work* on *page* while the block runs; earlier work for the page is cancelled."""
        with self._lock:
            if page in self._by_page:
                self._by_page[page].is_cancelled = True
            self._by_page[page] = work
        try:
            yield work
        finally:
            with self._lock:
                if self._by_page.get(page) is work:
                    del self._by_page[page]

    def get(self, page: str) -> _W | None:
        """Return the work for *page*, if there is any."""
        with self._lock:
            return self._by_page.get(page)

    def register(self, app: Dash, name: str) -> None:
        """Register the bar and the button of `progress_parts` for *name*."""

        @app.callback(
            Output(f"{name}-bar", "value"), Output(f"{name}-text", "children"),
            Output(f"{name}-moving", "hidden"),
            Input(f"{name}-clock", "n_intervals"), State(f"{name}-page", "data"), prevent_initial_call=True,
        )  # fmt: skip
        def look(_ticks: int | None, page: Any) -> tuple[Any, Any, Any]:
            work = self.get(str(page))
            return (no_update,) * 3 if work is None else (100 * work.share, work.text, False)

        @app.callback(
            Output(f"{name}-cancel", "data-asked"), Input(f"{name}-cancel", "n_clicks"),
            State(f"{name}-page", "data"), prevent_initial_call=True,
        )  # fmt: skip
        def cancel(clicks: int | None, page: Any) -> Any:
            work = self.get(str(page))
            if clicks and work is not None:
                work.is_cancelled = True
            return clicks
