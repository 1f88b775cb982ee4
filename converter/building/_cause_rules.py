"""Tables that assign causes of host time to operators, annotations, functions and system calls by name.

To support a library, add a line to a table. If several lines match a name, the first line applies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Generic, NamedTuple, TypeVar

_T = TypeVar("_T")


class Mark(NamedTuple):
    """The *cause* of host time that a range on a host thread indicates.

    *covers* means that the operators inside the range have the same cause. *is_inside* means that the cause
    also applies if the range itself lies inside an operator.
    """

    cause: str
    covers: bool = True
    is_inside: bool = False


class _Rules(Generic[_T]):
    """Regular expressions, each with what it means. All are one expression, because most texts match none."""

    def __init__(self, *rules: tuple[str, _T]) -> None:
        self._rules = rules

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<_{row}>{pattern})" for row, (pattern, _) in enumerate(self._rules)))

    def first(self, text: str) -> _T | None:
        """Return what the first rule that matches the start of *text* means, or None."""
        found = self._pattern.match(text)
        return None if found is None else self._rules[int(str(found.lastgroup)[1:])][1]


# The annotations of PyTorch (torch/utils/data/dataloader.py, torch/optim/optimizer.py), annotations of
# Lightning's PyTorchProfiler ("[pl]..."), and common names of users' ranges.
_ANNOTATIONS = _Rules(
    (r"chakrascope::anomaly", Mark("anomaly_detection", is_inside=True)),
    (r"chakrascope::recomputation", Mark("recomputation")),
    (r"chakrascope::sampler", Mark("sampler")),
    (r"chakrascope::objects", Mark("object_collective")),
    (r"chakrascope::", None),
    (r"enumerate\(DataLoader\)#_MultiProcessing\w+\.__init__", Mark("process_start")),
    (r"enumerate\(DataLoader\)#_MultiProcessing", Mark("worker_wait")),
    (r"enumerate\((DataLoader|DataPipe)\)", Mark("input_pipeline")),
    (r"Optimizer\.(step|zero_grad)#", Mark("optimizer", covers=False)),
    (r"\[pl\].*(ModelCheckpoint|save_checkpoint)", Mark("checkpoint")),
    (r"\[pl\].*(validation_step|run_evaluation|EvaluationLoop)", Mark("validation")),
    (r"\[pl\].*(dataloader|_next\b|fetch)", Mark("input_pipeline")),
    (r"\[pl\].*(Logger|log_metrics|ProgressBar)", Mark("logging")),
    (r".*\(dynamo_timed\)$", Mark("compilation")),
    (r"(?i:.*\b(sav(e|ing)|writ(e|ing))[ _-]?(model|state|check-?point|ckpt))", Mark("checkpoint")),
    (r"(?i:.*\b(check-?point|ckpt)[ _-]?(sav|writ))", Mark("checkpoint")),
    (r"(?i:(.*[ _.:/-])?(data|batch|input)s?[ _-]?(load|fetch|wait|prep|pipeline))", Mark("input_pipeline")),
    (r"(?i:(.*[ _.:/-])?(load|get|fetch|next|prepare)[ _-]?(data|batch|inputs?)\b)", Mark("input_pipeline")),
    (r"(?i:(.*[ _.:/-])?(validat(e|ion)|evaluat(e|ion)|eval)([ _-](step|epoch|loop))?$)", Mark("validation")),
    (r"(?i:(.*[ _.:/-])?(logging|log[ _-](metrics|step|loss))\b)", Mark("logging")),
)
# Ranges that the profiler records as operators, although they do no work of the model. These ranges come from
# torch/_dynamo/utils.py (dynamo_timed), torch/_dynamo/callback.py and torch/_inductor.
_RANGES = _Rules(
    (r".*\(dynamo_timed\)$", Mark("compilation")),
    (r"(dynamo|entire_(frame|backward)_compile|compile_attempt_\d+|backend_compile)$", Mark("compilation")),
    (r"(bytecode_tracing|build_guards|create_aot_dispatcher_function|compile_file|gc)$", Mark("compilation")),
    (r"(inductor_compile|fx_codegen_and_compile|compile_fx_inner)$", Mark("compilation")),
    (r"(async_compile\.|GraphLowering\.|CachingAutotuner\.|PyCodeCache\.)", Mark("compilation")),
    (r"enumerate\(DataLoader\)#_MultiProcessing\w+\.__init__", Mark("process_start")),
    (r"enumerate\(DataLoader\)#_MultiProcessing", Mark("worker_wait")),
    (r"enumerate\((DataLoader|DataPipe)\)", Mark("input_pipeline")),
    (r"Optimizer\.(step|zero_grad)#", Mark("optimizer", covers=False)),
)
# Calls of the CUDA, HIP and driver APIs that map or unmap memory. PyTorch's caching allocator avoids these
# calls in steady steps.
_ALLOCATIONS = re.compile(
    r"(cuda|hip)(Ext|Host)?(Malloc|Alloc|Free|Register|Unregister)"
    r"|(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|Release|SetAccess|Address(Reserve|Free)|Host(Alloc|Register))"
)
OPERATORS: Mapping[str, str] = {
    "aten::item": "synchronisation",
    "aten::_local_scalar_dense": "synchronisation",
    "aten::is_nonzero": "synchronisation",
    "TorchDynamo Cache Lookup": "dispatch",
    "Pregraph bytecode": "dispatch",
    "PythonDispatchMode": "dispatch",
    "PythonSubclass": "dispatch",
}
"""Operators that compute nothing, and the cause of the time that a host thread spends in them."""
ACTIVITIES: Sequence[str] = (
    "validation",
    "checkpoint",
    "compilation",
    "process_start",
    "sampler",
    "worker_wait",
    "input_pipeline",
    "object_collective",
    "recomputation",
    "anomaly_detection",
    "logging",
)
"""Causes that include everything that runs inside them, even operators; of nested causes, the one
listed first counts."""

# Patterns of Python functions, written "path:qualified name", and the causes of their time.
_FRAMES = _Rules(
    (r"torch/serialization\.py:save\b", "checkpoint"),
    (r"torch/distributed/checkpoint/.*:.*(save|\bget_(\w+_)?state_dict\b)", "checkpoint"),
    (r"safetensors/.*:.*(save|serialize)", "checkpoint"),
    (r".*[:.]_?(save|write)_(checkpoint|ckpt|pretrained|model|state)", "checkpoint"),
    (
        r".*[:.]_?((run|do)_)?(validat(e|ion)|evaluat(e|ion)|eval)(_(loop|epoch|step|model|one_epoch))?$",
        "validation",
    ),
    (r"torch/_dynamo/(convert_frame|output_graph|symbolic_convert|guards)\.py:", "compilation"),
    (r"torch/_inductor/(compile|graph|codegen|scheduler|async_compile)", "compilation"),
    (r"torch/_functorch/(aot_autograd\.py:create_aot|_aot_autograd/(graph_compile|collect))", "compilation"),
    (
        r"torch/utils/data/dataloader\.py:(_MultiProcessing\w+\.)?(__init__|_shutdown_workers)$",
        "process_start",
    ),
    (r"multiprocessing/(context|process|popen_\w+)\.py:(.*\.)?(start|Pool|_launch)$", "process_start"),
    (r"multiprocessing/pool\.py:(.*\.)?(__init__|__exit__|terminate|join)$", "process_start"),
    (r"concurrent/futures/process\.py:(.*\.)?(_launch_processes|_spawn_process)$", "process_start"),
    (r"torch/utils/data/dataloader\.py:(.*\.)?(_try_get_data|_get_data)$", "worker_wait"),
    (r"torch/utils/data/((distributed|sampler)\.py:|dataloader\.py:(.*\.)?_next_index$)", "sampler"),
    (r"torch/utils/data/", "input_pipeline"),
    (r"(webdataset|torchdata|datasets|ffcv|nvidia/dali|streaming)/", "input_pipeline"),
    (r"(numpy|scipy|pandas|polars|torch|transformers)/.*__getitem__$", ""),
    (r".*[:.]__getitem__$", "input_pipeline"),
    (r"torch/utils/checkpoint\.py:(.*\.)?recompute_fn$", "recomputation"),
    (r"torch/fx/traceback\.py:format_stack$", "anomaly_detection"),
    # PyTorch asks for the level of a logger in each backward pass, and usually logs nothing.
    (r"logging/__init__\.py:(.*\.)?(getEffectiveLevel|isEnabledFor)$", ""),
    (r"logging/|torch/_tensor_str\.py:|torch/utils/tensorboard/|traceback\.py:|pprint\.py:", "logging"),
    (r"(tqdm|rich|tensorboardX?|wandb|mlflow|loguru|structlog|comet_ml|neptune|aim)/", "logging"),
    (r"(subprocess|(multiprocessing/)?queues?|concurrent/futures/\w+)\.py:", "process_wait"),
    (r"multiprocessing/((pool|connection)\.py:|process\.py:(.*\.)?join$)", "process_wait"),
    (r"threading\.py:(.*\.)?(wait|wait_for|acquire|join|__enter__|_wait_for_tstate_lock)$", "lock"),
    (r"multiprocessing/synchronize\.py:", "lock"),
    (r"(socket|ssl|selectors|shutil|tempfile|ftplib|smtplib)\.py:", "io"),
    (r"(http|urllib|urllib3|requests|httpx|httpcore|aiohttp|asyncio|redis|pymongo|sqlite3)/", "io"),
    (r"(fsspec|s3fs|gcsfs|botocore|boto3|h5py|zarr|pyarrow|kafka|psycopg2?)/", "io"),
    (r"torch/distributed/distributed_c10d\.py:\w+_object(_list)?$", "object_collective"),
    (r"torch/distributed/(distributed_c10d|_functional_collectives)\.py:", "communication_call"),
    (r"chakrascope/tracer/_agent/phases\.py:_?waiting\b", "communication_call"),
    (r"torch/optim/(?!lr_scheduler).*[:.](step|zero_grad)$|torch/amp/", "optimizer"),
)
CALLS: Mapping[str, str] = {
    "print": "logging",
    "item": "synchronisation",
    "sleep": "sleep",
    "collect": "garbage_collection",
    **dict.fromkeys(("acquire", "__enter__", "wait", "join", "result"), "lock"),
    **dict.fromkeys(("open", "read", "readinto", "readline", "write", "writelines", "flush", "fsync"), "io"),
    **dict.fromkeys(("fdatasync", "recv", "recv_into", "send", "sendall", "connect", "accept"), "io"),
    # Python's database API (PEP 249), whose drivers are extension modules.
    **dict.fromkeys(("execute", "executemany", "commit", "rollback", "fetchone", "fetchall"), "io"),
}
"""Functions without a Python frame, by name, and the cause of the time in them."""
_INPUT_OUTPUT = (
    "fsync fdatasync read pread64 readv write pwrite64 writev openat sendfile getdents64 unlink unlinkat "
    "rename close sync msync flock fallocate ftruncate recvfrom recvmsg sendto sendmsg connect accept "
    "accept4 wait4 waitid poll ppoll select pselect6 epoll_wait epoll_pwait io_getevents"
)
SYSTEM_CALLS: Mapping[str, str] = {
    "clock_nanosleep": "sleep",
    "nanosleep": "sleep",
    "futex": "lock",
    **dict.fromkeys(_INPUT_OUTPUT.split(), "io"),
}
"""System calls in which a thread sleeps, each with the cause of the time in it."""


@lru_cache(maxsize=1 << 14)
def mark_of(name: str, is_operator: bool) -> Mark | None:
    """Return the mark for a host range called *name*, or None if no rule matches the name."""
    return (_RANGES if is_operator else _ANNOTATIONS).first(name)


@lru_cache(maxsize=1 << 14)
def frame_cause(path: str, function: str) -> str:
    """Return the cause of host time in *function* of the file at *path*, or "" if there is no rule."""
    return _FRAMES.first(f"{path}:{function}") or ""


def is_allocation(call: str) -> bool:
    """Return whether the runtime call *call* allocates or frees memory of the device or pinned memory."""
    return _ALLOCATIONS.match(call) is not None


def is_engine_range(name: str) -> bool:
    """Return whether *name* is the name of autograd's range around one backward node and the node's hooks.

    Autograd's engine computes nothing itself, so time in the range outside operators is spent in Python
    hooks.
    """
    return name.startswith("autograd::engine::evaluate_function: ")


def is_compiled_region(name: str) -> bool:
    """Return whether *name* is dynamo's range around a compiled function.

    Compiled code has separate operators or ranges, so other time in the range is spent in Python, such as
    the code at a graph break.
    """
    return name.startswith("Torch-Compiled Region")


def is_python_operator(operator: str, place: str) -> bool:
    """Return whether *operator* runs a `torch.autograd.Function` and *place* is in the code of this function.

    The profiler names the operator after the function's class, with ``Backward`` in the backward pass.
    """
    name = operator.removesuffix("Backward")
    method = "forward" if name == operator else "backward"
    return f".{place.partition(' (')[0]}".endswith(f".{name}.{method}")
