"""Load batches in the training process, because fake tensors cannot pass between processes."""

from __future__ import annotations

import functools
from typing import Any


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
