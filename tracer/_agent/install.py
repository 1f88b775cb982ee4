"""Attach the agent to torch's modules as the process imports them."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from . import fake_run, fake_world, modules, optimizers, phases, profilers
from .agent import Agent, current_agent, existing_agent
from .loaders import LOADERS
from .process import launch_options


class ForwardCounter:
    """Calls ``on_step`` between consecutive calls of the script's outermost module.

    Before the first step, the counter calls ``on_model`` at the first outermost call of each module with
    parameters or buffers.

    The outermost module is the first module with parameters or buffers that is called twice outside any other
    module. Until the outermost module is detected, ``Module.__call__`` is wrapped for outermost calls.
    Afterwards, only ``__call__`` of the outermost module's class is wrapped. Hooks are not used, because they
    cause warnings and recompilation under torch.compile. Module attributes are not used, because they would
    be pickled with the module. Code that is being compiled sees the original calls.
    """

    def __init__(self, torch: Any, on_step: Callable[[], None], on_model: Callable[[], None]) -> None:
        self._torch = torch
        self._on_step = on_step
        self._on_model = on_model
        self._module_class = torch.nn.Module
        self.original_call: Callable[..., Any] = torch.nn.Module.__call__
        self._called_once: weakref.WeakSet[Any] = weakref.WeakSet()
        self._undo: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the search for the outermost module."""
        self._wrap(self._module_class, self._search)

    def stop(self) -> None:
        """Restore ``__call__`` of every wrapped class."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _wrap(self, owner: type, around: Callable[..., Any]) -> None:
        """Route calls of *owner*'s instances through ``around(call, module)`` until :meth:`stop`."""
        inherited = owner.__call__
        own = owner.__dict__.get("__call__")
        compiling, tracing = self._torch.compiler.is_compiling, self._torch._C._get_tracing_state

        @functools.wraps(inherited)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or tracing():  # a call by torch.compile, torch.export or torch.jit
                return inherited(module, *args, **kwargs)
            return around(functools.partial(inherited, module, *args, **kwargs), module)

        def undo() -> None:
            if owner.__dict__.get("__call__") is not call:
                return  # another wrapper was added, so this wrapper only forwards calls
            if own is None:
                del owner.__call__
            else:
                owner.__call__ = own  # type: ignore[method-assign]

        owner.__call__ = call  # type: ignore[method-assign]
        self._undo = undo

    def _search(self, call: Callable[[], Any], module: Any) -> Any:
        """Handle an outermost call during the search for the repeated module."""
        if self._undo is None or type(module).__hash__ is None:  # torch cannot list its parameters
            return call()
        self.stop()  # nested calls are not outermost, and a running compiler must see the original
        if module in self._called_once:
            self._follow(module)
            self._on_step()
            return call()
        if _has_state(module):
            self._called_once.add(module)
            self._on_model()
        try:
            return call()
        finally:
            if self._undo is None:
                self.start()

    def _follow(self, found: Any) -> None:
        """Count the calls of the outermost module *found*."""
        reference = weakref.ref(found)

        def around(call: Callable[[], Any], module: Any) -> Any:
            if self._undo is not None and module is reference():
                self._on_step()
            return call()

        self._wrap(type(found), around)


def _has_state(module: Any) -> bool:
    """Return whether *module* has parameters or buffers, unlike transforms and losses."""
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


# The levels of triggers with which a capture of the first step may begin. A trigger with a higher level is
# more reliable.
_SCRIPT, _MODEL, _DATA = range(3)
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")

_state: dict[str, ForwardCounter | None] = {"forwards": None}


def count_steps(optimizer_module: Any) -> None:
    """Count the outermost ``step`` calls of every optimizer that is created later."""
    optimizers.watch_steps(
        optimizer_module, _optimizer_created, lambda optimizer: current_agent().optimizer_step(optimizer)
    )


def count_forwards(torch: Any) -> None:
    """Count the calls of the outermost module until an optimizer is created."""
    phases.watch_backward(torch)
    modules.mark_gradients(torch)
    counter = _state["forwards"] = ForwardCounter(torch, _forward_called, _model_called)
    counter.start()
    if _begins_at_once() and _is_script():
        current_agent().begin(_SCRIPT)


def _begins_at_once() -> bool:
    options = launch_options()
    return options.get("warmup") == 0 and not options.get("fake_run")


def _is_script() -> bool:
    """Return whether this process runs the user's script, and not a launcher or helper of torch."""
    words = sys.orig_argv[1:]
    module = words[words.index("-m") + 1 : words.index("-m") + 2] if "-m" in words else []
    file = str(getattr(sys.modules.get("__main__"), "__file__", ""))
    is_launcher = os.path.basename(file) in LAUNCHERS or (module and module[0] in LAUNCHERS)
    return not is_launcher and "site-packages" not in file and multiprocessing.parent_process() is None


def _model_called() -> None:
    agent = _agent_of_trainer() if _begins_at_once() else None
    if agent is not None:
        agent.begin(_MODEL)


def _forward_called() -> None:
    agent, counter = current_agent(), _state["forwards"]
    if counter is not None and (not agent.counts_on or agent.trigger == "manual" or _loads_data()):
        counter.stop()
    else:
        agent.forward_step()


def _loads_data() -> bool:
    """Return whether this process is a worker of a ``DataLoader``, which may also run a model."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None


def _optimizer_created() -> None:
    counter, _state["forwards"] = _state["forwards"], None
    if counter is not None:
        counter.stop()
    agent = _agent_of_trainer()
    if agent is not None:
        agent.expect_optimizer()
        agent.observe()
        agent.begin(_MODEL)


def _agent_of_trainer() -> Agent | None:
    """Return this process's agent, or None in a data loader's process or before `capture`."""
    is_wanted = "out" in launch_options() and not _loads_data()
    return current_agent() if is_wanted else existing_agent()


def _data_wanted() -> None:
    agent = _agent_of_trainer() if _begins_at_once() else existing_agent()
    if agent is not None:
        agent.begin(_DATA)


watch_loaders = functools.partial(LOADERS.install, iterating=_data_wanted)
watch_profilers = functools.partial(profilers.watch, listener=existing_agent)
watch_profiled_steps = functools.partial(profilers.watch_steps, listener=existing_agent)


def spare_the_compiler(dynamo_utils: Any) -> None:
    """Let torch.compile recognise ``Module.__call__``, which is wrapped during torch.compile's import."""
    counter = _state["forwards"]
    if counter is not None and hasattr(dynamo_utils, "unpatched_nn_module_call"):
        dynamo_utils.unpatched_nn_module_call = counter.original_call


def watch_the_world(distributed_module: Any) -> None:
    """Time the waits for peers, and make process groups fake if the launcher requests a fake world."""
    ranks = _fake_ranks()
    modules.mark_object_collectives(distributed_module)
    if ranks:
        fake_world.install(distributed_module, ranks)
    else:
        phases.watch_communication(distributed_module)


def watch_the_reduction(parallel_module: Any) -> None:
    """Time waits for buffers; record communication hooks completely or, in a fake world, replace them."""
    if _fake_ranks():
        fake_world.reduce_gradients(parallel_module, _communication_hook_dropped)
        return
    model_class = parallel_module.DistributedDataParallel
    register = model_class.register_comm_hook

    @functools.wraps(register)
    def register_comm_hook(*args: Any, **kwargs: Any) -> Any:
        current_agent().all_threads = True  # a hook continues in the thread that ends its collective
        return register(*args, **kwargs)

    model_class.register_comm_hook = register_comm_hook
    model_class._sync_buffers = phases.waiting(model_class._sync_buffers)  # other ranks wait for rank 0


def _communication_hook_dropped() -> None:
    current_agent().notes.append(
        "gradients were reduced by a plain all-reduce: the script's own communication hook needs real ranks"
    )


def _fake_ranks() -> int:
    return int(launch_options().get("fake_world", 0))


_OF_CAPTURES: Mapping[str, Callable[[Any], None]] = {
    "torch": count_forwards,
    "torch._dynamo.utils": spare_the_compiler,
    "torch.autograd.profiler": watch_profilers,
    "torch.distributed.distributed_c10d": watch_the_world,
    "torch.fx.traceback": modules.mark_anomaly_detection,
    "torch.nn.parallel.distributed": watch_the_reduction,
    "torch.optim.optimizer": count_steps,
    "torch.profiler.profiler": watch_profiled_steps,
    "torch.utils.checkpoint": modules.mark_recomputation,
    "torch.utils.data.dataloader": watch_loaders,
}


def _install(name: str, module: Any) -> None:
    """Apply the launcher's options to *module*, which has just been imported."""
    wanted = fake_run.INSTALLATIONS if launch_options().get("fake_run") else _OF_CAPTURES
    if name in wanted:
        wanted[name](module)


INSTALLATIONS: Mapping[str, Callable[[Any], None]] = {
    name: functools.partial(_install, name) for name in {**_OF_CAPTURES, **fake_run.INSTALLATIONS}
}
