"""Load the capture agent into a training process when the process imports torch.

Python imports ``sitecustomize`` at start-up. The launcher puts the folder of this file first on
``PYTHONPATH``, so that every Python process under the training command (``torchrun`` workers, spawned
children) imports this ``sitecustomize``. This module does not import user modules early. It hides its folder
from ``sys.path``, and runs the environment's ``sitecustomize``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))
_AGENT_FILE = os.path.join(os.path.dirname(_HERE), "_agent", "__init__.py")
_AGENT_NAME = "_chakrascope_agent"
_OPTIONS = os.environ.get("CHAKRASCOPE_CAPTURE")  # read before the script can clear its environment
_TARGETS = {  # modules (in the agent's INSTALLATIONS) that load the agent on import
    "accelerate.utils.random",
    "torch",
    "torch._dynamo.utils",
    "torch.amp.autocast_mode",
    "torch.autograd.profiler",
    "torch.cpu",
    "torch.distributed.device_mesh",
    "torch.distributed.distributed_c10d",
    "torch.distributed.pipelining.schedules",
    "torch.distributed.tensor._sharding_prop",
    "torch.fx.traceback",
    "torch.nn.parallel.distributed",
    "torch.optim.optimizer",
    "torch.profiler.profiler",
    "torch.utils.checkpoint",
    "torch.utils.data.dataloader",
}


def _load_agent() -> ModuleType:
    """Return the agent package, loaded by file path, because chakrascope may not be installed."""
    if _AGENT_NAME in sys.modules:
        return sys.modules[_AGENT_NAME]
    spec = importlib.util.spec_from_file_location(
        _AGENT_NAME, _AGENT_FILE, submodule_search_locations=[os.path.dirname(_AGENT_FILE)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(_AGENT_FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_AGENT_NAME] = module
    spec.loader.exec_module(module)
    module.keep_launch_options(_OPTIONS)
    return module


class _ImportHook(importlib.abc.MetaPathFinder):
    """A finder that loads torch's modules by the real finders and installs the agent in these modules."""

    _searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the real spec of a module, with the agent's installation added to the module's execution."""
        if fullname not in _TARGETS or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            _install_after(spec.loader, fullname)
        return spec


def _install_after(loader: importlib.abc.Loader, name: str) -> None:
    """Make *loader* pass the module *name* to the agent after the module has been executed."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            _load_agent().INSTALLATIONS[name](module)
        except Exception as error:  # a failure of the capture must not reach the training job
            print(f"chakrascope: this process is not captured: {error!r}", file=sys.stderr)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _chain() -> None:
    """Run the environment's ``sitecustomize`` that this module hides, if any."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")  # the next sitecustomize on the path
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


if _OPTIONS:
    sys.meta_path.insert(0, _ImportHook())
_chain()
