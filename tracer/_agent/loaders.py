"""Measure the waits of training for a ``DataLoader``, and the time that datasets take for a batch."""

from __future__ import annotations

import functools
import inspect
import mmap
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .modules import quick_range
from .phases import LOADER, PHASES

MAX_LISTED = 64
SLOTS = 64  # one slot per worker; workers beyond this number share a slot
# Classes that wrap a dataset and do not affect the creation of an item.
_WRAPPERS = ("Subset", "ConcatDataset")


class LoaderWatch:
    """Times ``__iter__``, ``__next__`` and ``fetch`` in the training thread, and ``fetch`` in workers.

    Workers write the times into memory that is shared with the training process.
    """

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self._fetched: memoryview | None = None
        self._unseen_workers = False

    @property
    def fetch_ns(self) -> int:
        """The time (ns) that datasets have taken for batches so far; -1 if some worker was not forked."""
        return -1 if self._unseen_workers else sum(self._fetched or ())

    def install(self, dataloader_module: Any, iterating: Callable[[], None]) -> None:
        """Wrap the iterators of *dataloader_module*; *iterating* is called when an iterator is created."""
        if self._fetched is not None:
            return
        self._fetched = memoryview(mmap.mmap(-1, SLOTS * 8)).cast("q")
        iterator_class, loader_class = dataloader_module._BaseDataLoaderIter, dataloader_module.DataLoader
        construct, advance = iterator_class.__init__, iterator_class.__next__
        loader_class.__iter__ = _timed_start(loader_class.__iter__)
        iterator_class._next_index = _marked_draw(iterator_class._next_index)

        @functools.wraps(construct)
        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            self._list(loader)
            iterating()
            construct(iterator, loader, *args, **kwargs)

        @functools.wraps(advance)
        def __next__(iterator: Any) -> Any:
            before = PHASES.enter(LOADER)
            try:
                return advance(iterator)
            finally:
                PHASES.leave(before)

        iterator_class.__init__, iterator_class.__next__ = __init__, __next__
        fetchers = dataloader_module._utils.fetch
        for kind in (fetchers._IterableDatasetFetcher, fetchers._MapDatasetFetcher):
            kind.fetch = self._timed_fetch(kind.fetch)

    def _timed_fetch(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fetch)
        def timed(fetcher: Any, index: Any) -> Any:
            started = time.perf_counter_ns()
            try:
                return fetch(fetcher, index)
            finally:
                if self._fetched is not None:
                    self._fetched[_worker_slot()] += time.perf_counter_ns() - started

        return timed

    def _list(self, loader: Any) -> None:
        """Record the dataset and settings of *loader*; errors are never raised in the script."""
        try:
            described = _description(loader)
        except Exception:
            return
        if described["workers"] and described["start_method"] != "fork":
            self._unseen_workers = True
        if described not in self.listed and len(self.listed) < MAX_LISTED:
            self.listed.append(described)


def _timed_start(iterate: Callable[..., Any]) -> Callable[..., Any]:
    """Time and mark the start of an epoch, like the profiler marks batches; ``__init__`` starts workers."""

    @functools.wraps(iterate)
    def timed(loader: Any) -> Any:
        kind = "MultiProcessing" if loader.num_workers else "SingleProcess"
        # Persistent workers stay with the loader's iterator.
        starts = loader.num_workers and getattr(loader, "_iterator", None) is None
        method = "__init__" if starts else "__iter__"
        before = PHASES.enter(LOADER)
        try:
            profiler = sys.modules["torch"].autograd.profiler
            with profiler.record_function(f"enumerate(DataLoader)#_{kind}DataLoaderIter.{method}"):
                return iterate(loader)
        finally:
            PHASES.leave(before)

    return timed


def _marked_draw(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Mark the drawing of a batch's indices as work of the sampler, which may permute the whole data set."""
    new_range = functools.partial(quick_range(), "chakrascope::sampler")

    @functools.wraps(draw)
    def marked(iterator: Any) -> Any:
        with new_range():
            return draw(iterator)

    return marked


def _worker_slot() -> int:
    """Return 0 in the training process, and the worker's number (from 1) in a worker process."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    info = worker.get_worker_info() if worker is not None else None
    return 0 if info is None else 1 + info.id % (SLOTS - 1)


def _description(loader: Any) -> dict[str, Any]:
    dataset = loader.dataset
    while type(dataset).__name__ in _WRAPPERS:
        inner = getattr(dataset, "datasets", None)
        dataset = inner[0] if inner else dataset.dataset
    kind = type(dataset)
    access = next((name for name in ("__getitems__", "__getitem__", "__iter__") if hasattr(kind, name)), "")
    code = getattr(inspect.unwrap(getattr(kind, access, kind)), "__code__", None)
    context = loader.multiprocessing_context or sys.modules["multiprocessing"].get_context()
    collate = loader.collate_fn
    return {
        "dataset": f"{kind.__qualname__}.{access}" if access else kind.__qualname__,
        "path": os.path.abspath(code.co_filename) if code else "",
        "line": code.co_firstlineno if code else 0,
        "collate": getattr(collate, "__qualname__", type(collate).__qualname__),
        "workers": int(loader.num_workers),
        "start_method": str(context.get_start_method()),
        "batch_size": -1 if loader.batch_size is None else int(loader.batch_size),
        "pin_memory": bool(loader.pin_memory),
    }


LOADERS = LoaderWatch()
