"""Let one process pose as rank 0 of a large job through torch's fake process group."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

__all__ = ["created_groups", "install"]

_created: list[list[int]] = []


def install(distributed_module: Any, ranks: int) -> None:
    """Make every process group a fake one, the default one of *ranks* ranks.

    Fake collectives return at once and leave their outputs as they were: sizes and order are right, values
    and waiting times are not. Checks that ask other ranks are left out, as there are none.
    """
    initialise = distributed_module.init_process_group
    new_group = distributed_module._new_group_with_tag
    parameters = inspect.signature(new_group)

    @functools.wraps(initialise)
    def init_process_group(*_args: Any, **kwargs: Any) -> Any:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

        sys.modules["torch.distributed"]._verify_params_across_processes = _agree  # type: ignore[attr-defined]
        timeout = {"timeout": kwargs["timeout"]} if kwargs.get("timeout") else {}
        return initialise(backend="fake", store=FakeStore(), rank=0, world_size=ranks, **timeout)

    @functools.wraps(new_group)
    def _new_group_with_tag(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs).arguments
        given["backend"] = "fake"
        for option in ("backend_options", "pg_options", "device_id"):
            given.pop(option, None)
        if given.get("ranks") is not None:
            _created.append(sorted(int(rank) for rank in given["ranks"]))
        return new_group(**given)

    distributed_module.init_process_group = init_process_group
    distributed_module._new_group_with_tag = _new_group_with_tag


def created_groups() -> list[list[int]]:
    """Return the ranks of every group the script made, those without rank 0 included."""
    return list(_created)


def _agree(*_arguments: Any) -> None:
    """Stand in for a comparison of the model's shape with the other ranks'."""
