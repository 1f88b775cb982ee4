"""Remedies for each kind and cause of time, as sentences for advice."""

from __future__ import annotations

from collections.abc import Mapping

from ...converter.building import FreeCores

_LEAST_MOVED = 0.1  # least share of the work that free cores must be able to take over

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
"""For each movable host cause, a remedy that uses free processor cores and a remedy that needs none."""
REMEDIES: Mapping[str, str] = {
    **{cause: f"if cores are free, {moved}; or {less}" for cause, (moved, less) in MOVABLE.items()},
    "communication": "smaller messages (compression, lower precision), larger buckets if there are many, a "
    "faster network or another algorithm, or an earlier start so that computation covers it",
    "accumulation": "communicate once per step: no_sync() of DistributedDataParallel, or for FSDP "
    "set_requires_gradient_sync(False) and, if memory allows, set_reshard_after_backward(False), in all "
    "micro-batches but the last",
    "barrier": "no barrier in the step: collectives already make ranks wait for each other's data, and only "
    "file access and measurements need a barrier",
    "latency": "fewer and larger messages (fused collectives, larger buckets), or lower latency; more "
    "bandwidth or compression would not help, because the messages are small",
    "compute": "a faster kernel or chip for it, fusion, or lower precision",
    "fusion": (
        "one fused kernel for each chain (torch.compile), which keeps intermediate results in registers"
    ),
    "precision": "single precision: call .float() where float64 data enters, such as tensors made from NumPy "
    "arrays (torch.from_numpy, torch.tensor)",
    "repeated": "keep the result of the first cast or copy for all uses in the step",
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
    "lock": "less Python in other threads of the process: move their work to another process, or release "
    "the lock or the GIL earlier",
    "descheduled": "free processor cores: fewer threads and processes per core, or a larger CPU quota",
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
    "synchronisation": "avoid .item(), .cpu() and printing of device values, or do them less often",
    "compilation": "avoid recompilation: constant shapes or dynamic=True, padding to few sizes, or a warm "
    "cache (TORCH_LOGS=recompiles prints the reason)",
    "object_collective": "exchange tensors (all_gather, all_reduce), because objects are pickled and "
    "unpickled, or exchange objects less often",
    "communication_call": "fewer and larger communications (buckets), earlier communication calls, or free "
    "cores for the threads of the communication library: the host thread was blocked in the call",
    "optimizer": "a fused optimizer (fused=True), fewer and larger parameter tensors, or states in lower "
    "precision",
    "python": "less Python code here: vectorise the loop, or use batched and foreach operators",
}  # fmt: skip
"""The remedy for each kind of time and for each host cause."""
COPY_REMEDIES: Mapping[str, str] = {
    "HtoD": "pinned memory with non_blocking=True, smaller types until the data is on the device, or a copy "
    "of the next batch during computation",
    "DtoH": "copy less and less often, into pinned memory with non_blocking=True",
    "DtoD": "views instead of copies, one layout from producer to consumer, or fusion (torch.compile)",
    "PtoP": "fewer or smaller copies, or copies during computation",
}  # fmt: skip
"""The remedy for copies, by direction."""
MORE_THREADS = ", or more threads (OMP_NUM_THREADS) if cores are free"
_LOWER = "lower precision (bfloat16 under torch.autocast) if the processor has units for it"
HOST_REMEDIES: Mapping[str, str] = {
    "gemm": f"{_LOWER}{MORE_THREADS}",
    "convolution": f"channels_last, {_LOWER}{MORE_THREADS}",
    "attention": f"{_LOWER}{MORE_THREADS}",
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
"""The remedy for operators that a host computes, by operator class; "" is any other class."""
UNKNOWN = "less work of this kind, or overlap with other work"


def moved(cause: str, work_ns: int, step_ns: int, cores: FreeCores | None) -> tuple[int, str]:
    """Return the work (ns) of a *cause* in a step that free *cores* can take over, and the remedy.

    If the cores could take over hardly any work, return 0 and other remedies. If the free cores are unknown,
    or the cause has no movable work, return *work_ns* and the general remedy.
    """
    if cores is None or cause not in MOVABLE:
        return work_ns, REMEDIES.get(cause, UNKNOWN)
    others, less = MOVABLE[cause]
    moved_ns = round(cores.movable_share * step_ns)
    if moved_ns < _LEAST_MOVED * work_ns:
        return 0, f"{less} (only {cores.text})"
    return min(work_ns, moved_ns), f"{others} ({cores.text}); or {less}"
