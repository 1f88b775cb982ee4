"""Callbacks that capture from inside a trainer's loop, as an alternative to the launcher.

The callbacks capture the same data as ``chakrascope trace``. Each trainer library is imported only by its
callback.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import CaptureError, ChakrascopeError
from ._capture import Capture, capture


class _Window:
    """A capture window that a trainer's events open, advance and close."""

    def __init__(self, out: str | Path, warmup: int, steps: int, modules: bool) -> None:
        self._options: dict[str, Any] = {"warmup": warmup, "steps": steps, "modules": modules}
        self._out = out
        self._exit = contextlib.ExitStack()
        self._capture: Capture | None = None

    def open(self) -> None:
        """Start to count steps."""
        if self._capture is None:
            self._capture = self._exit.enter_context(capture(self._out, **self._options))

    def step(self) -> None:
        """Count one training step."""
        if self._capture is not None:
            self._capture.step()

    def close(self) -> None:
        """Save the capture; an error must not make the training run fail."""
        self._capture = None
        try:
            self._exit.close()
        except ChakrascopeError as error:
            warnings.warn(error.message, stacklevel=2)

    def again(self, make: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the function and arguments that create the same callback in another process (pickle)."""
        return functools.partial(make, **self._options), (self._out,)


def hugging_face_callback(out: str | Path, *, warmup: int = 3, steps: int = 3, modules: bool = True) -> Any:
    """Return a ``transformers.TrainerCallback`` that captures *steps* optimizer steps into *out*.

    Use the callback on every rank: ``Trainer(..., callbacks=[hugging_face_callback("traces")])``.

    Raises:
        CaptureError: transformers is not installed.

    """
    window = _Window(out, warmup, steps, modules)

    class ChakrascopeCallback(_library("transformers").TrainerCallback):  # type: ignore[misc]
        """Counts the trainer's optimizer steps."""

        def on_train_begin(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
            window.open()

        def on_step_end(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
            window.step()

        def on_train_end(self, _args: Any, _state: Any, _control: Any, **_others: Any) -> None:
            window.close()

        def __reduce__(self) -> Any:
            return window.again(hugging_face_callback)

    return ChakrascopeCallback()


def lightning_callback(out: str | Path, *, warmup: int = 3, steps: int = 3, modules: bool = True) -> Any:
    """Return a Lightning ``Callback`` that captures *steps* optimizer steps into *out*.

    Use the callback on every rank: ``Trainer(callbacks=[lightning_callback("traces")])``.

    Raises:
        CaptureError: neither lightning nor pytorch_lightning is installed.

    """
    window = _Window(out, warmup, steps, modules)

    class ChakrascopeCallback(_library("lightning.pytorch", "pytorch_lightning").Callback):  # type: ignore[misc]
        """Counts the trainer's optimizer steps; with gradient accumulation, a step has several batches."""

        _seen = 0

        def on_train_start(self, trainer: Any, _module: Any) -> None:
            self._seen = trainer.global_step
            window.open()

        def on_train_batch_end(self, trainer: Any, *_others: Any) -> None:
            if trainer.global_step != self._seen:
                self._seen = trainer.global_step
                window.step()

        def on_train_end(self, _trainer: Any, _module: Any) -> None:
            window.close()

        def on_exception(self, _trainer: Any, _module: Any, _exception: BaseException) -> None:
            window.close()

        def __reduce__(self) -> Any:
            return window.again(lightning_callback)

    return ChakrascopeCallback()


def _library(*names: str) -> ModuleType:
    """Import and return the first of *names* that is installed."""
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    package = names[0].partition(".")[0]
    raise CaptureError(
        f"The callback needs {package}, which is not installed. Install it with `pip install {package}`, or "
        "capture the script without a callback: `chakrascope trace -- python train.py`."
    )
