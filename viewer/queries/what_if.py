"""Ask what a step would take if one thing were faster: the questions of the command `what-if`."""

from ...runner.what_if import Target, sensitivity, simulate_faster, targets

__all__ = ["Target", "sensitivity", "simulate_faster", "targets"]
