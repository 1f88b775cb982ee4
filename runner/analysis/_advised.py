"""Advice as text, table and JSON, and the remedy for each kind and cause of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ...support import duration_text

if TYPE_CHECKING:
    import pandas as pd

    from ...converter.building import FreeCores

_MIN_MOVED = 0.1  # minimum fraction of the work that free cores must be able to take over

MOVABLE: Mapping[str, tuple[str, str]] = {
    "input_pipeline": (
        "more data loader workers, and prefetching", "cheaper loading and transforms of samples",
    ),
    "worker_wait": (
        "more data loader workers or a larger prefetch_factor, as the workers cannot keep up",
        "cheaper transforms",
    ),
    "io": (
        (
            "file and network access in another thread, next to the step"
        ), "local or cached files, or fewer and larger requests",
    ),
    "checkpoint": (
        "asynchronous checkpoints in another process (torch.distributed.checkpoint.async_save; a thread "
        "would wait for the GIL, which pickling holds)", "fewer checkpoints",
    ),
}  # fmt: skip
"""For each host cause that can be moved: the remedy with free processor cores, and without."""
REMEDIES: Mapping[str, str] = {
    **{cause: f"if cores are free, {moved}; or {less}" for cause, (moved, less) in MOVABLE.items()},
    "communication": "smaller messages (compression, lower precision), larger buckets if there are many, a "
    "faster network or another algorithm, or an earlier start so that computation covers it",
    "accumulation": "communicate once per step: no_sync() of DistributedDataParallel, or for FSDP "
    "set_requires_gradient_sync(False) and, if memory allows, set_reshard_after_backward(False), in all "
    "micro-batches but the last",
    "barrier": "no barrier in the step: collectives already make ranks wait for each other's data, and only "
    "file access and measurements need a barrier",
    "buffers": "broadcast_buffers=False of DistributedDataParallel, unless the ranks need equal buffers",
    "latency": "fewer and larger messages (fused collectives, larger buckets), or lower latency; more "
    "bandwidth or compression would not help, because the messages are small",
    "small": "fewer and larger collectives, because each takes a fixed time: FSDP units of several layers, "
    "larger buckets, or one collective for several tensors",
    "compute": "a faster kernel or chip for it, fusion, or lower precision",
    "fusion": (
        "one fused kernel for each chain (torch.compile), which keeps intermediate results in registers"
    ),
    "precision": "single precision: call .float() where float64 data enters, such as tensors made from NumPy "
    "arrays (torch.from_numpy, torch.tensor)",
    "bfloat16": "float32 (no autocast to bfloat16): the processor has no units for bfloat16 and emulates it",
    "repeated": "keep the result of the first cast or copy for all uses in the step",
    "sparse": "sparse gradients, which have only the rows of the batch: nn.Embedding(sparse=True) and SGD, "
    "Adagrad or SparseAdam, which then update only these rows",
    "module": "a smaller module (width, tokens, calls), lower precision, or fused kernels",
    "function": "call the function less often or on less data, or move it out of the step",
    "copy": "fewer or smaller copies, or copies during computation",
    "memory": "keep the data local, or a faster remote memory",
    "wait": "a more even load: this operator waits for other ranks or the device",
    "skew": "a more even load: the other ranks wait for this one in collectives",
    "unlogged": (
        "a capture of some steps ('chakrascope trace'), which shows what the ranks do in this time; the logs "
        "do not"
    ),
    "launches": (
        "fewer launches, because the device waits for them: torch.compile, CUDA graphs, larger batches"
    ),
    "operators": "fewer and larger operators: batched or foreach variants, torch.compile, larger batches",
    "stall": (
        "move the work that runs here out of the step or to another thread, because the host thread stops "
        "for it"
    ),
    "launch_stall": "warm up before the measured steps, because first calls load, compile or tune kernels "
    "and reserve memory; if later steps stall as well, avoid new shapes and large allocations here",
    "compiled": "fewer launches by the Python code of compiled functions: CUDA graphs "
    "(torch.compile with mode='reduce-overhead') or a C++ wrapper (torch._inductor.config.cpp_wrapper)",
    "host_operator": "run the operator on the device, if its tensors are needed there, or before the step: "
    "the operator launches no device work",
    "sync": "avoid the synchronisation (.item(), .cpu(), printing device values), or synchronise less often: "
    "the host cannot launch ahead while it waits",
    "process_start": "start processes once, before the loop: persistent_workers=True for a data loader, and "
    "one pool for all steps",
    "process_wait": "ask for the results later (apply_async, submit), so that the work overlaps with the "
    "step, or give the other process or thread less work",
    "sampler": "draw fewer indices at a time: shuffle blocks, draw with replacement (num_samples), or start "
    "the loader less often; RandomSampler lists a permutation of the whole data set, and workers do not help",
    "garbage_collection": "gc.freeze() after setup, gc.disable() with a collection between steps, or fewer "
    "live Python objects",
    "lock": "less Python in other threads of the process, such as pickling by a queue's thread: move the "
    "work to another process, pass tensors in shared memory, or release the lock or the GIL earlier",
    "descheduled": "free processor cores: fewer threads than cores (OMP_NUM_THREADS), ranks pinned to cores "
    "of their own, nothing else on them, and a higher CPU limit of the container",
    "sleep": "remove the sleep, or wait for an event instead",
    "validation": "validate less often, on fewer batches, or in another job",
    "logging": "log less often, or format and write in another thread",
    "recomputation": "recompute fewer layers if memory allows, or save the results of matmuls "
    "(torch.utils.checkpoint.create_selective_checkpoint_contexts)",
    "page_faults": "reuse large tensors across steps (out=, in-place operators), or use an allocator that "
    "keeps freed memory (LD_PRELOAD of jemalloc or tcmalloc)",
    "allocation": "no calls of the driver's allocator in steady steps: PyTorch's caching allocator "
    "(no PYTORCH_NO_CUDA_MEMORY_CACHING, no torch.cuda.empty_cache()), spare memory or "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and a warm-up with the largest shapes",
    "anomaly_detection": "torch.autograd.set_detect_anomaly(False) except for debugging: anomaly detection "
    "stores the Python stack of each operator of the forward pass",
    "synchronisation": "read fewer values of tensors (.item(), .tolist(), .cpu(), printing), or read them "
    "less often",
    "compilation": "avoid recompilation: constant shapes or dynamic=True, padding to few sizes, or a warm "
    "cache (TORCH_LOGS=recompiles prints the reason)",
    "object_collective": "exchange tensors (all_gather, all_reduce), because objects are pickled and "
    "unpickled, or exchange objects less often",
    "communication_call": "fewer and larger communications (buckets), earlier communication calls, or free "
    "cores for the threads of the communication library: the host thread was blocked in the call",
    "optimizer": "a fused optimizer (fused=True), fewer and larger parameter tensors, or states in lower "
    "precision",
    "zero_grad": "zero_grad(set_to_none=True), the default since PyTorch 2.0: a gradient that does not exist "
    "needs no kernel that fills it",
    "python": "less Python code here: call it less often, vectorise loops, or use batched and foreach "
    "operators",
}  # fmt: skip
"""The remedy for each kind of time, and for each host cause."""
_LESS_HTOD = "smaller types until the data is on the device, or a copy of the next batch during computation"
PINNED_REMEDIES: Mapping[str, str] = {
    "HtoD": f"non_blocking=True if the call blocks, {_LESS_HTOD}",
    "DtoH": "copy less and less often, with non_blocking=True",
}
"""The remedy for copies from or to pinned memory by direction."""
COPY_REMEDIES: Mapping[str, str] = {
    "HtoD": f"pinned memory with non_blocking=True, {_LESS_HTOD}",
    "DtoH": "copy less and less often, into pinned memory with non_blocking=True",
    "DtoD": "views instead of copies, one layout from producer to consumer, or fusion (torch.compile)",
    "PtoP": "fewer or smaller copies, or copies during computation",
}  # fmt: skip
"""The remedy for copies by direction."""


def copy_remedy(direction: str, names: Iterable[str]) -> str:
    """Return the remedy for copies with *names* in *direction*, or "" if none is known."""
    remedies = PINNED_REMEDIES if all("Pinned" in name for name in names) else COPY_REMEDIES
    return remedies.get(direction, "")


MORE_THREADS = ", or more threads (OMP_NUM_THREADS) if cores are free"
LOWER = "lower precision (bfloat16 under torch.autocast) if the processor has units for it"
NOT_LOWER = "fewer or smaller calls (the processor has no units for bfloat16)"
HOST_REMEDIES: Mapping[str, str] = {
    "gemm": f"{LOWER}{MORE_THREADS}",
    "convolution": f"channels_last, {LOWER}{MORE_THREADS}",
    "attention": f"{LOWER}{MORE_THREADS}",
    "normalization": "fusing it with its neighbours (torch.compile), or lower precision",
    "softmax": "fusion with neighbouring operators (torch.compile), or scaled_dot_product_attention if the "
    "softmax belongs to attention",
    "reduction": "fusion with neighbouring operators (torch.compile), or fewer calls",
    "elementwise": (
        "fusion with neighbouring operators (torch.compile), in-place operators, or lower precision"
    ),
    "copy": "views or in-place operators instead of copies, or the same layout and type throughout",
    "": "fewer or smaller calls, channels_last if the input is images, or fusion (torch.compile)",
}  # fmt: skip
"""The remedy for operators computed on a host, by operator class; "" is any other class."""
UNKNOWN = "less work of this kind, or overlap with other work"


def moved(cause: str, work_ns: int, step_ns: int, cores: FreeCores | None) -> tuple[int, str]:
    """Return how much work (ns) of a *cause* free *cores* can take over in a step, and the remedy.

    Returns 0 and other remedies if free cores can take over hardly any work. If the free cores are unknown,
    or the cause cannot be moved, returns *work_ns* and the general remedy.
    """
    if cores is None or cause not in MOVABLE:
        return work_ns, REMEDIES.get(cause, UNKNOWN)
    others, less = MOVABLE[cause]
    moved_ns = round(cores.movable_share * step_ns)
    if moved_ns < _MIN_MOVED * work_ns:
        return 0, f"{less} (only {cores.text})"
    return min(work_ns, moved_ns), f"{others} ({cores.text}); or {less}"


MEAN_STEP, MEDIAN_STEP, SHOWN_STEP = "the mean step", "the median step", "the step shown"


@dataclass(frozen=True)
class Advice:
    """One cause of step time and a remedy.

    *gain_ns* is the gain in a replay of the step with *key* changed (``what-if --faster KEY``), and
    *share* that gain as a fraction of the step. With *is_bound*, the gain is an upper bound without a
    replay. Work without a known best time is removed entirely, and *half_ns* is the gain of halving it. The
    free cores limit the work that can be moved, and *whole_ns* is the gain of removing all of the work.
    *half_ns* and *whole_ns* are 0 for other advice.

    Advice on recurring long steps, or on a cause whose mean time in the run differs, has no key and a
    measured gain. *steps* names the steps to which the gain applies, such as the median unprofiled step, to
    which the gain of the replay was scaled; "" is the displayed step. *then* is the kind of work that bounds
    the replay, and *overlaps* lists other advice for the same time. *rank* and *node_id* are the longest
    segment (-1: it has no node), and *place* its function, file and line.
    """

    what: str
    how: str
    gain_ns: int
    share: float
    key: str
    is_bound: bool
    kind: str
    cause: str
    path_ns: int
    then: str = ""
    overlaps: str = ""
    rank: int = -1
    node_id: int = -1
    place: str = ""
    half_ns: int = 0
    whole_ns: int = 0
    steps: str = ""

    @property
    def _likely_ns(self) -> int:
        """The gain by which advice is sorted: for necessary work, the gain of halving it.

        A function of the script may be called less often or outside the step, so its gain includes all its
        time.
        """
        return self.gain_ns if self.key.startswith("place:") else self.half_ns or self.gain_ns


@dataclass(frozen=True)
class Cause:
    """A contributor to the critical path: *path_ns* ns in *pieces* segments, and a *key* for ``what-if``."""

    what: str
    kind: str
    cause: str
    path_ns: int
    pieces: int
    key: str
    rank: int
    node_id: int
    place: str


@dataclass(frozen=True)
class Advised:
    """The result of `advise`: *advice* by gain, and the largest *contributor* to the critical path.

    *contributor* is the largest named candidate, and *causes* the largest candidates.
    *half_kinds_ns* is the gain of halving a kind of work, if replayed. *together_ns* is the gain of
    all advice in one replay if that is clearly less than the sum of single gains; otherwise, or if
    a gain was measured in other steps, it is 0.
    """

    advice: tuple[Advice, ...]
    contributor: Cause | None
    causes: tuple[Cause, ...]
    half_kinds_ns: Mapping[str, int]
    together_ns: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Advised:
        """Restore the result of `to_json`; raises `KeyError` or `TypeError` for other JSON."""
        contributor = data["contributor"]
        return cls(
            tuple(Advice(**item) for item in data["advice"]),
            None if contributor is None else Cause(**contributor),
            tuple(Cause(**item) for item in data["causes"]),
            {str(kind): int(gain_ns) for kind, gain_ns in data["half_kinds_ns"].items()},
            int(data["together_ns"]),
        )


def gain_text(item: Advice, steps: str = "") -> str:
    """Return the gain of *item*, such as ``12 ms``, or ``at most 12 ms`` for an upper bound.

    If work can be faster but cannot disappear, the text states that this is the gain of removing the work. If
    the gain applies to steps other than *steps*, the text names these steps.
    """
    text = f"{'at most ' * item.is_bound}{duration_text(item.gain_ns)}{' if removed' * (item.half_ns > 0)}"
    return text if item.steps == steps else f"{text} in {item.steps or SHOWN_STEP}"


def common_steps(items: Sequence[Advice]) -> str:
    """Return the steps to which the gains of most *items* apply; "" for the displayed step."""
    steps = [item.steps for item in items]
    return max(steps, key=steps.count, default="")


def together_text(together_ns: int) -> str:
    """Return a sentence with the gain of all advice together, or "" if that is 0."""
    gain = duration_text(together_ns)
    return f"Together they gain {gain}, less than the sum of their gains." if together_ns else ""


def advice_text(item: Advice) -> str:
    """Return the remedy of *item*, other advice for the same time, and what bounds the replay."""
    half = f"{'at most ' * item.is_bound}{duration_text(item.half_ns)} if " * (item.half_ns > 0)
    parts = [f"{half}{item.how}"]
    if item.whole_ns:
        parts.append(f"{duration_text(item.whole_ns)} if {MOVABLE[item.cause][1]} take over all of it")
    if item.overlaps:
        parts.append(f"overlaps with: {item.overlaps}")
    if item.then:
        parts.append(f"then bound by {item.then}")
    return "; ".join(parts)


def advice_table(items: Sequence[Advice]) -> pd.DataFrame:
    """Return *items* as a table with a column per field of `Advice`."""
    import pandas as pd  # noqa: PLC0415

    table: pd.DataFrame = pd.DataFrame(
        [asdict(item) for item in items], columns=[field.name for field in fields(Advice)]
    )
    return table
