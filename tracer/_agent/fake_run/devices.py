"""Emulate the GPUs of a script that runs with fake tensors on the host."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from .program import PROGRAM, Event, Stream

_MEMORY_BYTES = 80 << 30
_NAME = "NVIDIA H100 80GB HBM3"


def record_streams(cpu_module: Any) -> None:
    """Replace the inactive streams and events of ``torch.cpu`` by recorded streams and events."""
    for name, value in _streams().items():
        setattr(cpu_module, name, value)


def _streams() -> dict[str, Any]:
    default = Stream()
    PROGRAM.current = default

    @contextlib.contextmanager
    def stream(wanted: Any) -> Any:
        with wanted if isinstance(wanted, Stream) else contextlib.nullcontext():
            yield

    return {
        "Stream": Stream,
        "Event": Event,
        "stream": stream,
        "current_stream": lambda *_: PROGRAM.current,
        "default_stream": lambda *_: default,
        "set_stream": lambda wanted: setattr(PROGRAM, "current", wanted),
        "synchronize": lambda *_: None,
    }


def stand_in_for_cuda(torch: Any) -> None:
    """Answer the script's calls of ``torch.cuda`` as on a node with GPUs; torch's own code sees no GPU."""
    cuda, rank = torch.cuda, int(os.environ.get("LOCAL_RANK", "0"))
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    properties = SimpleNamespace(
        name=_NAME, major=9, minor=0, total_memory=_MEMORY_BYTES, multi_processor_count=132, warp_size=32
    )
    answers: dict[str, Any] = {
        "current_device": rank,
        "get_device_capability": (9, 0),
        "get_device_name": _NAME,
        "get_device_properties": properties,
        "is_bf16_supported": True,
        "is_initialized": True,
        "mem_get_info": (_MEMORY_BYTES, _MEMORY_BYTES),
        "memory_stats": defaultdict(int),
        "memory_summary": "",
    }
    nothing = (
        "empty_cache", "init", "ipc_collect", "manual_seed", "manual_seed_all", "reset_max_memory_allocated",
        "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_per_process_memory_fraction",
        "set_rng_state", "set_rng_state_all", "synchronize",
    )  # fmt: skip
    zero = (
        "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "utilization",
    )  # fmt: skip
    answers |= dict.fromkeys(nothing) | dict.fromkeys(zero, 0)
    _give_answers(cuda, answers)
    cuda.is_available = _outside_torch(True, False)
    cuda.device_count = _outside_torch(count, 0)
    cuda.get_rng_state = lambda *_: torch.random.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.random.get_rng_state()]
    cuda.device = _Nothing
    for name, value in _streams().items():
        setattr(cuda, name, value)
    _stand_in_for_accelerator(torch, rank, count)
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor
    torch.Tensor.record_stream = lambda *_: None
    torch.set_default_device = functools.partial(_with_mapped, torch, torch.set_default_device)
    torch.compile = _uncompiled
    torch.nn.Module.compile = _mark_compiled


def _stand_in_for_accelerator(torch: Any, rank: int, count: int) -> None:
    """Answer the script's calls of ``torch.accelerator`` like calls of ``torch.cuda``."""
    known = getattr(torch, "accelerator", None)  # new in torch 2.6
    if known is None:
        return
    known.current_accelerator = _outside_torch(torch.device("cuda"), None)
    known.is_available = _outside_torch(True, False)
    known.device_count = _outside_torch(count, 0)
    nothing = (
        "set_device_index", "set_device_idx", "synchronize", "empty_cache", "reset_peak_memory_stats",
    )  # fmt: skip
    zero = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    answers: dict[str, Any] = {"current_device_index": rank, "current_device_idx": rank}
    _give_answers(known, answers | dict.fromkeys(nothing) | dict.fromkeys(zero, 0))
    known.device_index = _Nothing
    known.current_stream, known.set_stream = torch.cuda.current_stream, torch.cuda.set_stream


def move_modules(torch: Any) -> None:
    """Let modules replace parameters instead of swapping their contents, which fake tensors lack."""

    def apply(module: Any, function: Any, recurse: bool = True) -> Any:
        for part in module.modules() if recurse else [module]:
            _convert_own(torch, part, function)
        return module

    torch.nn.Module._apply = apply


def _convert_own(torch: Any, module: Any, function: Any) -> None:
    for key, parameter in module._parameters.items():
        if parameter is None:
            continue
        known = getattr(parameter, "_chakrascope_moved", None)  # shared parameters remain shared
        with torch.no_grad():
            result = known if known is not None else function(parameter)
        if result is not parameter:
            if known is None:
                result = torch.nn.Parameter(result, parameter.requires_grad)
                parameter._chakrascope_moved = result
            module._parameters[key] = result
    for key, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[key] = function(buffer)


def _give_answers(module: Any, answers: dict[str, Any]) -> None:
    """Replace the functions of *module* named in *answers* by functions that return the answers."""
    for name, answer in answers.items():
        setattr(module, name, lambda *_, _answer=answer, **__: _answer)


def _outside_torch(outside: Any, inside: Any) -> Any:
    """Return a function that returns *inside* to torch's own code, and *outside* to all other callers."""

    def asked(*_: Any, **__: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        return inside if caller == "torch" or caller.startswith("torch.") else outside

    return asked


class _Nothing(contextlib.nullcontext[None]):
    """A context manager without effect."""

    def __init__(self, *_: Any) -> None:
        super().__init__()


def _uncompiled(model: Any = None, **options: Any) -> Any:
    """Return *model* (a module or a function) with its operators marked as fused."""
    if model is None:
        return functools.partial(_uncompiled, **options)
    if options.get("disable"):
        return model
    if hasattr(model, "named_modules"):
        _mark_compiled(model)
        return model
    name = str(getattr(model, "__name__", type(model).__name__)).strip("<>")

    @functools.wraps(model)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        with PROGRAM.names.compiled(name) if PROGRAM.names is not None else contextlib.nullcontext():
            return model(*args, **kwargs)

    return compiled


def _mark_compiled(module: Any, *_args: Any, **_options: Any) -> None:
    """Mark the operators of *module* as fused in the recording."""
    module._chakrascope_compiled = True


def map_autocast(autocast_module: Any) -> None:
    """Apply the GPU's mixed precision to the host tensors that represent GPU tensors."""
    construct = autocast_module.autocast.__init__

    @functools.wraps(construct)
    def __init__(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if str(device_type).startswith("cuda"):
            device_type, dtype = "cpu", dtype or sys.modules["torch"].float16
        construct(self, device_type, dtype, *args, **kwargs)

    autocast_module.autocast.__init__ = __init__


def make_function_mode(torch: Any) -> Any:
    """Return the torch mode that creates tensors on the host if a script requests a GPU."""
    from torch.overrides import TorchFunctionMode  # noqa: PLC0415

    class OnHost(TorchFunctionMode):
        """Replaces devices among the arguments of torch's functions."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if "device" in kwargs:
                kwargs = {**kwargs, "device": _mapped(torch, kwargs["device"])}
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
            if func is torch.Tensor.to:
                args = tuple(_mapped(torch, value) for value in args)
            elif func in _VALUES:
                return _VALUES[func](*args)
            return func(*args, **kwargs)

    _VALUES.update({torch.Tensor.numpy: _numpy, torch.Tensor.tolist: _tolist})
    return OnHost()


_VALUES: dict[Any, Any] = {}


def _numpy(tensor: Any, **_: Any) -> Any:
    import numpy as np  # noqa: PLC0415

    if not _is_fake(tensor):
        return sys.modules["torch"].Tensor.numpy(tensor)
    name = str(tensor.dtype).rpartition(".")[2]
    return np.ones(tuple(tensor.shape), dtype="float32" if name == "bfloat16" else name)


def _tolist(tensor: Any) -> Any:
    return _numpy(tensor).tolist() if _is_fake(tensor) else sys.modules["torch"].Tensor.tolist(tensor)


def _is_fake(tensor: Any) -> bool:
    return hasattr(tensor, "fake_mode")


def _mapped(torch: Any, value: Any) -> Any:
    """Return the host device for a GPU; return any other value unchanged."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type in ("cuda", "cpu") else value
    if isinstance(value, str) and value.partition(":")[0] in ("cuda", "cpu"):
        return "cpu"
    if isinstance(value, int) and not isinstance(value, bool):
        return "cpu"
    return value


def _with_mapped(torch: Any, function: Any, value: Any) -> Any:
    return function(_mapped(torch, value))
