"""Prepare the fake environment of a script, record one training step, and end the process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gzip
import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..fake_world import CREATED_GROUPS
from ..optimizers import OptimizerOrder, watch_steps
from ..process import launch_options, write_atomically
from ..recorder import process_groups
from . import devices, groups
from .adaptations import MESHES
from .program import PROGRAM
from .recording import Memory, Names, make_mode

_VERSION = 1


class _Session:
    """The recording of one process, with its output files."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.memory = Memory(PROGRAM.freed)
        self.names = PROGRAM.names = Names(torch)
        self.order = OptimizerOrder()
        self.done = False
        self.inside = False
        self.seen: set[int] = set()

    @contextlib.contextmanager
    def optimizer_step(self, optimizer: Any) -> Iterator[None]:
        """Wrap a step of *optimizer*; the recording covers the work between the ends of two steps."""
        if self.inside:
            yield
            return
        self.inside, PROGRAM.phase = True, "optimizer"
        try:
            yield
        finally:
            self.inside, PROGRAM.phase = False, ""
        first = id(optimizer) not in self.seen
        self.seen.add(id(optimizer))
        if self.order.ends_step(id(optimizer)) and not first:
            self.finish()
        elif first:
            self.begin()

    def begin(self) -> None:
        self.names.forget()
        self.memory.begin()
        PROGRAM.begin()

    def finish(self) -> None:
        """Write the recording, and end the process without the rest of the script."""
        self.leave(
            {
                "entries": PROGRAM.entries,
                "modules": PROGRAM.modules,
                "compiled": sorted(set(PROGRAM.compiled)),
                "tf32": _tf32_classes(self.torch),
            }
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def leave(self, what: dict[str, Any]) -> None:
        """Write the rank's file, unless it has already been written."""
        if self.done:
            return
        self.done = True
        options = launch_options()["fake_run"]
        document = {
            "format": "chakrascope recording",
            "version": _VERSION,
            "rank": options["rank"],
            "world": options["world"],
            "groups": {group["name"]: group["ranks"] for group in process_groups()[0]},
            "made_groups": CREATED_GROUPS,
            "meshes": MESHES,
            "notes": PROGRAM.notes,
            "memory_bytes": {"fixed": self.memory.fixed_bytes, "most": self.memory.most_bytes},
            "torch_version": str(self.torch.__version__),
            **what,
        }
        path = Path(options["out"]) / f"rank{options['rank']}.json.gz"
        write_atomically(path, gzip.compress(json.dumps(document).encode(), 3))


def _tf32_classes(torch: Any) -> list[str]:
    """Return the classes of operators that compute FP32 operands in TF32 by PyTorch's settings."""
    matmul = torch.backends.cuda.matmul
    settings = {"gemm": matmul, "attention": matmul, "convolution": torch.backends.cudnn}
    classes = []
    for name, setting in settings.items():
        try:
            precision = getattr(setting, "conv", setting).fp32_precision
        except AttributeError:  # the attribute is new in PyTorch 2.9
            precision = "tf32" if setting.allow_tf32 else "ieee"
        if precision == "tf32":
            classes.append(name)
    return classes


_sessions: list[_Session] = []


def start(torch: Any) -> None:
    """Make all further tensors of this process fake, and record the operators on fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: PLC0415

    torch.set_num_threads(1)
    session = _Session(torch)
    _sessions.append(session)
    devices.stand_in_for_cuda(torch)
    devices.move_modules(torch)
    groups.watch_works(torch)
    _count_foreach(FakeTensor)
    resize = torch.UntypedStorage.resize_

    def resize_(storage: Any, size: int) -> Any:
        result = resize(storage, size)
        session.memory.resized(storage, size)
        return result

    torch.UntypedStorage.resize_ = resize_
    torch.save = lambda *_args, **_kwargs: PROGRAM.note("checkpoints are not written")
    torch.multiprocessing.spawn = _run_inline
    session.names.watch()
    FakeTensorMode(allow_non_fake_inputs=True).__enter__()
    make_mode(torch, session.names, session.memory).__enter__()
    devices.make_function_mode(torch).__enter__()
    sys.excepthook = _failed
    atexit.register(_ended)


def _count_foreach(fake: Any) -> None:
    """Make optimizers and gradient clipping process lists of tensors (foreach), as on GPUs."""
    from torch.utils import _foreach_utils  # noqa: PLC0415

    optimizer: Any = sys.modules["torch.optim.optimizer"]
    modules: tuple[Any, ...] = (optimizer, _foreach_utils)
    for module in modules:
        module._get_foreach_kernels_supported_devices = lambda: ["cuda", "cpu"]
    optimizer._foreach_supported_types.append(fake)
    for name in ("torch.nn.utils.clip_grad", "torch.utils._foreach_utils"):
        if name in sys.modules:
            sys.modules[name]._has_foreach_support = (  # type: ignore[attr-defined]
                lambda tensors, *_, **__: not _is_mixed(tensors)
            )


def _is_mixed(tensors: Iterable[Any]) -> bool:
    """Return whether *tensors* contains distributed tensors (DTensor) and other tensors.

    No operator takes a list that mixes DTensor and other tensors. On the host, tensors are processed one by
    one.
    """
    return len({hasattr(tensor, "placements") for tensor in tensors if tensor is not None}) > 1


def _run_inline(function: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
    """Call *function* once in this process instead of spawning processes."""
    function(launch_options()["fake_run"]["rank"], *args)


def watch_optimizers(optimizer_module: Any) -> None:
    """Detect the end of a step at optimizer calls, and avoid mixed lists of tensors."""
    chosen = optimizer_module._default_to_fused_or_foreach

    @functools.wraps(chosen)
    def choose(params: list[Any], *args: Any, **kwargs: Any) -> tuple[bool, bool]:
        fused, foreach = chosen(params, *args, **kwargs)
        return fused, foreach and not _is_mixed(params)

    optimizer_module._default_to_fused_or_foreach = choose
    watch_steps(optimizer_module, lambda: None, _optimizer_step)


def _optimizer_step(optimizer: Any) -> Any:
    return _sessions[0].optimizer_step(optimizer)


def _failed(kind: Any, error: Any, trace: Any) -> None:
    """Write an error file with the exception and its source location in the script."""
    frames = traceback.extract_tb(trace)
    library = os.path.dirname(os.path.dirname(sys.modules["torch"].__file__ or ""))
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    foreign = (library, ours, os.path.dirname(os.__file__), "<")
    own = [frame for frame in frames if not frame.filename.startswith(foreign)]
    what = {
        "kind": kind.__name__,
        "message": str(error)[:600],
        "place": f"{own[-1].filename}:{own[-1].lineno}" if own else "",
        "stack": traceback.format_exception(kind, error, trace),
    }
    if _sessions:
        _sessions[0].leave({"failure": what})


def _ended() -> None:
    """Write an error file for a script that ended before a step was recorded."""
    if _sessions:
        _sessions[0].leave({"failure": {"kind": "", "message": "", "place": "", "stack": []}})
