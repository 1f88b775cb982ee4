"""Mark modules, model calls, autograd calls and recomputation in the trace, which PyTorch does not do."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from .phases import PHASES
from .sources import script_frame, script_place

WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_MAX_FUNCTIONS = 256
_differentiating: set[CodeType] = set()  # the script's functions that have called torch.autograd.grad
_enabled: list[ModuleRanges] = []

# Functions of torch.distributed that pickle Python objects and exchange the bytes.
_OBJECT_COLLECTIVES = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip


class ModuleRanges:
    """Profiler ranges ``chakrascope::module <path>`` around every module's forward pass while enabled.

    Calls outside the training pass have a range ``chakrascope::call <place>``, which names the line of the
    script. These calls are model calls from outside any module while gradients are off, model calls from a
    function that calls ``torch.autograd.grad``, and calls of ``grad``. The ranges are disjoint.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # keeps ids valid during the window
        self._open = threading.local()
        self._handles: list[Any] = []
        self._range: Any = None
        self._has_gradients: Any = None

    def enable(self) -> bool:
        """Register global hooks, except with torch.compile, because hooks would force a recompilation.

        Returns whether modules are marked.
        """
        if _compiled_code_is_running():
            return False
        import torch  # noqa: PLC0415
        from torch.nn.modules import module  # noqa: PLC0415

        self._range, self._has_gradients = quick_range(), torch.is_grad_enabled
        _enabled.append(self)
        self._handles = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
        ]
        return True

    def disable(self) -> None:
        """Remove the hooks, and close the open module ranges of the calling thread."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        _enabled.clear()
        stack = self._stack()
        while stack:
            _close(stack.pop()[1])

    def _enter(self, module: Any, _inputs: Any) -> None:
        if id(module) not in self._names:
            self._learn(module)
        stack, spans = self._stack(), [self._range(self._names[id(module)])]
        if not stack and not self._is_in_grad():
            spans[:0] = self._call_range(sys._getframe(1))
        stack.append((module, spans))
        for span in spans:
            span.__enter__()

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        stack = self._stack()
        if stack and stack[-1][0] is module:
            _close(stack.pop()[1])

    def _call_range(self, frame: FrameType) -> list[Any]:
        """Return the range around a model call at *frame*, if the call's source location is informative."""
        own = script_frame(frame)
        if own is None or (self._has_gradients() and own.f_code not in _differentiating):
            return []
        return [self._range(f"chakrascope::call {script_place(own)}")]

    def with_gradients(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the parameter for every parameter with a gradient in the executed modules."""
        for module in self._kept:
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.grad is not None:
                    path = self._names[id(module)].removeprefix("chakrascope::module ")
                    yield f"{path}.{name}", parameter

    @contextlib.contextmanager
    def gradient_range(self, frame: FrameType | None) -> Iterator[None]:
        """Mark a call of ``torch.autograd.grad`` at *frame*, except inside another call's range."""
        stack = self._stack()
        if frame is None or self._is_in_grad() or (stack and len(stack[0][1]) > 1):
            yield
            return
        self._open.in_grad = True
        try:
            with self._range(f"chakrascope::call {script_place(frame)}"):
                yield
        finally:
            self._open.in_grad = False

    def _is_in_grad(self) -> bool:
        return bool(getattr(self._open, "in_grad", False))

    def _stack(self) -> list[tuple[Any, list[Any]]]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        return self._open.stack  # type: ignore[no-any-return]

    def _learn(self, root: Any) -> None:
        unhashable = type(root).__hash__ is None  # torch cannot list the modules of a dataclass
        for name, module in [(type(root).__name__, root)] if unhashable else module_names(root):
            self._names.setdefault(id(module), f"chakrascope::module {name}")
            self._kept.append(module)


def _close(spans: list[Any]) -> None:
    for span in reversed(spans):
        span.__exit__(None, None, None)


def module_names(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield *root* and all its submodules with their paths, without the names of wrappers."""
    for path, module in root.named_modules():
        parts = [part for part in path.split(".") if part and part not in WRAPPERS]
        yield ".".join(parts) or type(module).__name__, module


def quick_range() -> Any:
    """Return a range class that costs a tenth of ``record_function``, if torch has the class."""
    import torch  # noqa: PLC0415

    quick = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    return quick or torch.autograd.profiler.record_function


def mark_gradients(torch: Any) -> None:
    """Mark calls of ``torch.autograd.grad`` while modules are marked, and note the functions with such calls.

    The operators of ``torch.autograd.grad`` belong to a backward pass inside a function of the script.
    """
    grad, compiling = torch.autograd.grad, torch.compiler.is_compiling

    @functools.wraps(grad)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return grad(*args, **kwargs)
        PHASES.passes += 1
        frame = script_frame(sys._getframe(1))
        if frame is not None and len(_differentiating) < _MAX_FUNCTIONS:
            _differentiating.add(frame.f_code)
        with _enabled[0].gradient_range(frame) if _enabled else contextlib.nullcontext():
            return grad(*args, **kwargs)

    if not hasattr(grad, "__wrapped__"):
        torch.autograd.grad = marked


def mark_object_collectives(distributed_module: Any) -> None:
    """Mark the collectives of Python objects, which pickle and unpickle, as ``chakrascope::objects``."""
    new_range = functools.partial(quick_range(), "chakrascope::objects")
    for name in _OBJECT_COLLECTIVES:
        function = getattr(distributed_module, name, None)
        if function is not None:
            marked = functools.partial(_within, new_range, function)
            setattr(distributed_module, name, functools.update_wrapper(marked, function))


def mark_anomaly_detection(traceback_module: Any) -> None:
    """Mark each stack that autograd's anomaly detection stores as ``chakrascope::anomaly detection``."""
    import torch  # noqa: PLC0415

    format_stack, new_range = traceback_module.format_stack, quick_range()

    @functools.wraps(format_stack)
    def marked() -> list[str]:
        is_on = torch.is_anomaly_enabled()
        with new_range("chakrascope::anomaly detection") if is_on else contextlib.nullcontext():
            stack: list[str] = format_stack()
        return stack[:-1] if stack and __file__ in stack[-1] else stack

    traceback_module.format_stack = marked


def mark_recomputation(checkpoint_module: Any) -> None:
    """Mark the recomputation of activation checkpointing as ``chakrascope::recomputation``."""
    new_range = functools.partial(quick_range(), "chakrascope::recomputation")
    hook, function = checkpoint_module._recomputation_hook, checkpoint_module.CheckpointFunction
    enter, leave, forward = hook.__enter__, hook.__exit__, function.forward

    def marked_enter(self: Any) -> Any:
        self._chakrascope_range = new_range()
        self._chakrascope_range.__enter__()
        return enter(self)

    def marked_leave(self: Any, *error: Any) -> Any:
        left = leave(self, *error)
        self._chakrascope_range.__exit__(None, None, None)
        return left

    def marked_forward(ctx: Any, run_function: Any, *inputs: Any) -> Any:
        outputs = forward(ctx, run_function, *inputs)
        ctx.run_function = functools.partial(_within, new_range, run_function)
        return outputs

    hook.__enter__, hook.__exit__ = marked_enter, marked_leave
    function.forward = staticmethod(marked_forward)


def _within(new_range: Any, function: Any, *inputs: Any, **options: Any) -> Any:
    with new_range():
        return function(*inputs, **options)


def _compiled_code_is_running() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])
