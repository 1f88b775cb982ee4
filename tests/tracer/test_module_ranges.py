"""Modules are marked in the trace, as are calls of models that are not trained, and anomaly detection."""

import threading
import time
import types

import pytest

pytestmark = pytest.mark.torch


def test_a_call_without_gradients_is_marked_with_its_place_in_the_script():
    import torch

    from chakrascope.tracer._agent.modules import ModuleRanges

    model, ranges = torch.nn.Sequential(torch.nn.Linear(4, 4)), ModuleRanges()

    def track(x):
        with torch.no_grad():
            return model(x)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert ranges.enable()
        model(torch.ones(2, 4))
        track(torch.ones(2, 4))
        ranges.disable()
    names = [event.name for event in profiler.events() if event.name.startswith("chakrascope::")]
    (call,) = (name for name in names if name.startswith("chakrascope::call "))
    line = track.__code__.co_firstlineno + 2
    assert "track (" in call
    assert call.endswith(f"test_module_ranges.py:{line})")
    assert names.count("chakrascope::module 0") == 2


@pytest.mark.parametrize("is_on", [False, True])
def test_stacks_of_anomaly_detection_are_marked(is_on):
    import torch

    from chakrascope.tracer._agent.modules import mark_anomaly_detection

    module = types.SimpleNamespace(format_stack=torch.fx.traceback.format_stack)
    mark_anomaly_detection(module)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(1)
        with torch.autograd.set_detect_anomaly(is_on):
            stack = module.format_stack()
    names = [event.name for event in profiler.events()]
    assert names.count("chakrascope::anomaly detection") == is_on
    assert "module.format_stack()" in stack[-1]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_start_of_an_epoch_is_marked_as_a_part_of_its_loader(workers):
    import torch
    from torch.utils.data import dataloader

    from chakrascope.tracer._agent.loaders import LoaderWatch
    from chakrascope.tracer._agent.phases import PHASES

    classes = [dataloader.DataLoader, dataloader._BaseDataLoaderIter]
    classes += [dataloader._utils.fetch._IterableDatasetFetcher, dataloader._utils.fetch._MapDatasetFetcher]
    originals = [(owner, dict(vars(owner))) for owner in classes]
    PHASES.thread, before = threading.get_ident(), PHASES.end_step(time.time_ns())[0]
    try:
        LoaderWatch().install(dataloader, lambda: None)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            iterator = iter(dataloader.DataLoader([1, 2], num_workers=workers))
        assert PHASES.end_step(time.time_ns())[0] > before
        assert len([*iterator]) == 2
    finally:
        PHASES.thread = None
        for owner, members in originals:
            for name in ("__init__", "__iter__", "__next__", "fetch"):
                if name in members:
                    setattr(owner, name, members[name])
    kind = "MultiProcessing" if workers else "SingleProcess"
    name = f"enumerate(DataLoader)#_{kind}DataLoaderIter.__iter__"
    assert [event.name for event in profiler.events()].count(name) == 1
