"""Which step a moment of the converted stretch belongs to."""

from __future__ import annotations

import numpy as np

from chakrascope.converter import convert_files
from chakrascope.converter.building._steps import Window
from chakrascope.tracer import StepRange


def test_every_moment_belongs_to_a_step():
    window = Window.of([StepRange(7, 300, 400), StepRange(6, 100, 200)])
    moments = [0, 100, 199, 200, 299, 300, 400, 10**18]
    expected = [6, 6, 6, 6, 6, 7, 7, 7]
    assert window.steps_at(np.array(moments)).tolist() == expected


def test_device_work_after_the_last_event_of_the_host_has_a_step(shared):
    """The last kernel of this trace begins when its last of 40 steps has ended; its step was -1."""
    trace = shared / "traces" / "linear_1gpu_kineto.json.gz"
    (graph,) = convert_files(device_trace=[str(trace)], step="all").graphs
    assert set(graph.node_columns["step"].tolist()) == set(range(40))
