"""Run a training script without devices, peers and data, and record the work of one rank.

Tensors are fake: they have shapes and no values, so no memory is allocated. Process groups are torch's fake
process groups. Devices are emulated, including streams and events, so that the order of device work is
recorded. The recording covers one training step. The process ends after the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import adaptations, devices, groups, reducer, session

INSTALLATIONS: Mapping[str, Callable[[Any], None]] = {
    "accelerate.utils.random": adaptations.keep_generators,
    "torch": session.start,
    "torch.amp.autocast_mode": devices.map_autocast,
    "torch.cpu": devices.record_streams,
    "torch.distributed.device_mesh": adaptations.compute_for_real,
    "torch.distributed.distributed_c10d": groups.install,
    "torch.distributed.pipelining.schedules": adaptations.infer_shapes,
    "torch.distributed.tensor._sharding_prop": adaptations.keep_global_shapes_out,
    "torch.nn.parallel.distributed": reducer.install,
    "torch.optim.optimizer": session.watch_optimizers,
    "torch.utils.data.dataloader": adaptations.stay_in_process,
}
