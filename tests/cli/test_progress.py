"""A simulation tells how far it is, on a terminal and in a log file."""

from __future__ import annotations

import command_line
from studies import make_workload

from chakrascope.cli._output import counter, stage
from chakrascope.runner import get_backend


class Slow:
    """The unaware backend, asked for its progress at the seconds of a clock of ours."""

    def __init__(self, clock):
        self.clock = clock

    def run(self, experiment, progress=None):
        for second in (0.5, 1.5, 1.9, 3.0, 5.0, 40.0):
            self.clock[0] = second
            assert progress(round(second * 1e9), int(second)) is True
        return get_backend("analytical-unaware").run(experiment, progress)


def test_a_log_has_a_line_after_a_second_and_ever_fewer(capsys, monkeypatch, tmp_path):
    clock = [0.0]
    monkeypatch.setattr("chakrascope.cli._output.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("chakrascope.runner.get_backend", lambda _name: Slow(clock))
    make_workload().save(tmp_path / "w")
    assert command_line.run("run", "--workload-configuration", tmp_path / "w", "--network", "ring-2") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if " simulated, " in line]
    assert [line.split(": ", 2)[2] for line in lines] == [
        "1.50 s simulated, 1 of 2 ranks finished",
        "3.00 s simulated, 3 of 2 ranks finished",
        "5.00 s simulated, 5 of 2 ranks finished",
        "40.0 s simulated, 40 of 2 ranks finished",
    ]


def test_a_count_says_how_long_the_rest_will_take(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("chakrascope.cli._output.time.monotonic", lambda: clock[0])
    with stage("simulated") as status:
        progress = counter(status, "runs")
        for done in (1, 2, 4):
            clock[0] = 30.0 * done
            progress(done, 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "simulated: 1 of 4 runs, about 90.0 s to go",
        "simulated: 2 of 4 runs, about 60.0 s to go",
        "simulated: 4 of 4 runs",
    ]
