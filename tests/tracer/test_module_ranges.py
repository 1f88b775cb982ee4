"""Modules are marked in the trace, and so are calls of models that are not trained."""

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
