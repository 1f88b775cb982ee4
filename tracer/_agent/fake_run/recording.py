"""Record every operator after DTensor has split it, and before the fake tensors execute it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .memory import Memory
from .program import PROGRAM

# The operators that launch no kernel: they create views, allocate memory, or query properties.
_NO_KERNEL = frozenset({
    "aten::_local_scalar_dense", "aten::_reshape_alias", "aten::as_strided_", "aten::detach", "aten::detach_",
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::is_pinned", "aten::lift_fresh",
    "aten::new_empty", "aten::new_empty_strided", "aten::record_stream", "aten::resize_", "aten::set_",
    "aten::sym_size", "aten::t_", "aten::transpose_", "aten::unsqueeze_", "aten::squeeze_",
    "aten::_unsafe_view", "aten::_has_compatible_shallow_copy_type", "aten::equal", "aten::is_nonzero",
    "aten::item",
})  # fmt: skip
_COMMUNICATION = ("c10d", "_c10d_functional", "c10d_functional")
_UNSEEN = frozenset({"prim", "prims", "profiler"})


def make_mode(torch: Any, names: Any, memory: Memory) -> Any:
    """Return the torch mode that records operators in the program; *names* gives the operators' modules."""
    from torch._subclasses.fake_tensor import (  # noqa: PLC0415
        DataDependentOutputException,
        FakeTensor,
    )
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    plain = {torch.Tensor, torch.nn.Parameter, FakeTensor}

    class Recording(TorchDispatchMode):
        """The torch mode that records each operator with the local shapes of this rank."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(kind not in plain for kind in types):
                return NotImplemented  # DTensor and similar subclasses call operators on their local tensors
            try:
                result = func(*args, **(kwargs or {}))
            except DataDependentOutputException:
                result = _assumed(func, args)
            if func.namespace not in _UNSEEN:
                memory.note(result)
                if PROGRAM.active:
                    _note(torch, func, (args, kwargs or {}), result, names)
            return result

    return Recording()


def _assumed(func: Any, args: Any) -> Any:
    """Return an assumed value for *func*, which needs a value that fake tensors do not have."""
    name = func._schema.name
    if name == "aten::equal":
        return True
    if name not in ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::item"):
        raise  # noqa: PLE0704
    return _assumed_value(args[0].dtype)


def _assumed_value(dtype: Any) -> Any:
    """Return an assumed value of the type *dtype*."""
    if dtype.is_complex or dtype.is_floating_point:
        return 1.0
    return False if str(dtype) == "torch.bool" else 1


def _tensors(value: Any) -> Iterator[Any]:
    """Yield every tensor in *value*, which is an argument or a list of arguments."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _note(torch: Any, func: Any, given: tuple[Any, Any], result: Any, names: Any) -> None:
    """Append a call of *func* with the positional and keyword arguments *given* that returned *result*."""
    args, kwargs = given
    name = func._schema.name
    if func.namespace in _COMMUNICATION:
        if name.endswith("::wait_tensor"):
            PROGRAM.wait_for_data(_storages(args))
            return
        if not name.rpartition("::")[2].startswith("_wrap_tensor_autograd"):
            _note_communication(torch, name, args, result, names)
        return
    if name in _NO_KERNEL or func.is_view:
        names.passed()
        return
    arguments = func._schema.arguments
    values = [*args, *(kwargs[one.name] for one in arguments[len(args) :] if one.name in kwargs)]
    writes = _storages(result)
    reads: set[int] = set()
    changed = False
    for argument, value in zip(arguments, args, strict=False):
        used = _storages(value)
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes |= used
            changed = True
        reads |= used
    for key, value in kwargs.items():
        reads |= _storages(value)
        if key == "out" or any(a.name == key and a.alias_info and a.alias_info.is_write for a in arguments):
            writes |= _storages(value)
            changed = True
    outputs = [] if changed and not _storages(result) - reads else [result]
    PROGRAM.compute(_entry(name, values, outputs, names, changed=changed), reads, writes)


def _note_communication(torch: Any, name: str, args: Any, result: Any, names: Any) -> None:
    group = _group(torch, args)
    entry = _entry(name, [*args], [result], names, changed=False)
    entry["group"] = group
    functional = not name.startswith("c10d::")
    writes = _storages(result) if functional else _storages(args[:1])
    if name == "c10d::send":
        writes = set()
    line: object = ("collectives", group)
    if name in ("c10d::send", "c10d::recv_"):
        entry["peer"], entry["tag"] = int(args[2]), int(args[3])
        line = (name, group, entry["peer"])
    PROGRAM.communicate(entry, line, _storages(args), writes)


def _group(torch: Any, args: Any) -> str:
    """Return the name of the process group among the arguments of a communication."""
    for value in args:
        if isinstance(value, torch.ScriptObject):
            try:
                return str(torch.distributed.ProcessGroup.unbox(value).group_name)
            except RuntimeError:  # the argument is a reduction or another object
                continue
    return next((value for value in reversed(args) if isinstance(value, str)), "")


def _storages(value: Any) -> set[int]:
    found = set()
    for tensor in _tensors(value):
        try:
            found.add(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # noqa: PERF203 - such a tensor has no storage
            continue
    return found


def _entry(name: str, given: list[Any], outputs: list[Any], names: Any, *, changed: bool) -> dict[str, Any]:
    module, phase = names.here()
    if PROGRAM.phase:
        phase = PROGRAM.phase
    return {
        "name": name,
        "inputs": [_value(value) for value in given],
        "shapes": [_shape(value) for value in given],
        "outputs": [_value(value) for value in outputs],
        "output_shapes": [_shape(value) for value in outputs],
        "changes": changed,
        "module": PROGRAM.module_number(module),
        "phase": phase,
    }


def _value(value: Any) -> Any:
    """Return an argument in the format of host traces, with tensors as storage, elements and bytes."""
    if hasattr(value, "untyped_storage"):
        (storage,) = _storages(value) or {0}
        number = PROGRAM.storage_number(storage) if storage else 0
        return [0, number, 0, _int(value.numel()), value.element_size(), "cuda:0"]
    if isinstance(value, (list, tuple)):
        return [_value(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return "<None>" if value is None else value
    return str(value) if type(value).__module__ == "torch" else "<Object>"


def _shape(value: Any) -> Any:
    if hasattr(value, "untyped_storage"):
        return [_int(size) for size in value.shape]
    if isinstance(value, (list, tuple)) and any(hasattr(part, "untyped_storage") for part in value):
        return [_shape(part) for part in value]
    return []


def _int(size: Any) -> int:
    return int(size)
