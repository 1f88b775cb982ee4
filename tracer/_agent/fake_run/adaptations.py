"""Adapt data loaders, pipelines and device meshes of torch to fake tensors.

Batches are loaded in the training process, because fake tensors cannot pass between processes. The tensors of
device meshes stay real, because these small tensors contain ranks.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from .program import PROGRAM


def infer_shapes(schedules_module: Any) -> None:
    """Exchange shapes between pipeline stages as objects, because torch's vote needs real messages."""
    for kind in vars(schedules_module).values():
        if isinstance(kind, type) and "_warmup_p2p" in vars(kind):
            kind._warmup_p2p = _always_infer  # type: ignore[attr-defined]


def _always_infer(_schedule: Any, stages: list[Any], *_: Any) -> None:
    mode = sys.modules["torch.distributed.pipelining._utils"].InferenceMode.DYNAMIC
    for stage in stages:
        stage._inference_mode = mode


def stay_in_process(dataloader_module: Any) -> None:
    """Make every ``DataLoader`` load in this process, without pinned memory."""
    loader = dataloader_module.DataLoader
    construct = loader.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args[:5], **{**kwargs, **_ALONE})

    loader.__init__ = __init__


_ALONE = {
    "num_workers": 0,
    "pin_memory": False,
    "persistent_workers": False,
    "prefetch_factor": None,
    "timeout": 0,
    "multiprocessing_context": None,
}


def keep_generators(random_module: Any) -> None:
    """Skip the exchange of random states between ranks, because fake random states have no values."""
    for name in ("synchronize_rng_state", "synchronize_rng_states"):
        setattr(random_module, name, lambda *_args, **_kwargs: None)


# Functions of device meshes that are called thousands of times per step.
_WITHOUT_TENSORS = frozenset({
    "__eq__", "__hash__", "__repr__", "device_type", "get_group", "get_rank", "mesh_dim_names", "ndim",
    "shape", "size",
})  # fmt: skip
MESHES: list[dict[str, Any]] = []
"""The names and sizes of the device meshes that the script created."""


def compute_for_real(mesh_module: Any) -> None:
    """Exclude meshes and computations on ranks from the fake tensors; all meshes are on the host."""
    kind = mesh_module.DeviceMesh
    for name, value in [*vars(kind).items()]:
        if name == "__init__":
            kind.__init__ = _constructing(_real(value))
        elif name in _WITHOUT_TENSORS:
            continue
        elif isinstance(value, FunctionType):
            setattr(kind, name, _real(value))
        elif isinstance(value, property) and value.fget is not None:
            setattr(kind, name, property(_real(value.fget), value.fset, value.fdel, value.__doc__))
    initialise = _real(mesh_module.init_device_mesh)

    @functools.wraps(initialise)
    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return initialise(_host(device_type), *args, **kwargs)

    mesh_module.init_device_mesh = init_device_mesh


def _host(device_type: str) -> str:
    return "cpu" if device_type.partition(":")[0] == "cuda" else device_type


def _constructing(construct: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(construct)
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        construct(self, _host(device_type), *args, **kwargs)
        names = self.mesh_dim_names
        if names:
            MESHES.append({"names": list(names), "sizes": [int(self.size(at)) for at in range(len(names))]})

    return __init__


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        from torch.utils._python_dispatch import _disable_current_modes  # noqa: PLC0415

        with _disable_current_modes():
            return function(*args, **kwargs)

    return call


def keep_global_shapes_out(module: Any) -> None:
    """Record nothing while DTensor computes global shapes."""
    propagator = module.ShardingPropagator
    for name, function in [*vars(propagator).items()]:
        if name.startswith(("_propagate", "propagate")) and isinstance(function, FunctionType):
            setattr(propagator, name, _quiet(function))


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        PROGRAM.quiet += 1
        try:
            return function(*args, **kwargs)
        finally:
            PROGRAM.quiet -= 1

    return call
