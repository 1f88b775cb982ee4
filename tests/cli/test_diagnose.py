"""``chakrascope diagnose`` on a run with a slow link, on a sound one, and on one without messages."""

from __future__ import annotations

import csv
import io
import json

import command_line
import pytest
from noisy_runs import star, training

from chakrascope.converter import CollectiveType
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import TABLES, analyse_run


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Study.create(tmp_path_factory.mktemp("diagnose") / "study")
    prefix = made.add_workload(training(4, 8, CollectiveType.ALL_REDUCE), "job")
    for slow, backend in ((None, "flow"), (2, "flow"), (None, "analytical-unaware")):
        experiment = prepare(prefix, "default", star(4, slow, 0.5), backend=backend)
        made.add_run(experiment, get_backend(backend).run(experiment))
    return made


def run_of(study, *, backend="flow", slow=False):
    for info in study.runs():
        rates = {link.bandwidth for link in study.experiment(info.id).network.links}
        if info.backend == backend and (len(rates) > 1) == slow:
            return info.id
    raise AssertionError


def shown(capsys, study, *options):
    assert command_line.run("diagnose", study.path, *options) == 0
    return capsys.readouterr().out


def test_a_slow_nic_is_told_with_what_to_do_next(study, capsys):
    run = run_of(study, slow=True)
    text = shown(capsys, study, "--run", run)
    for part in ("NIC of rank 2", "slow NIC", "of its peers' rate", "Check the speed it has negotiated"):
        assert part in text
    assert f"--run {run} --view flows" in text


def test_json_holds_the_messages_that_show_it(study, capsys):
    run = run_of(study, slow=True)
    told = json.loads(shown(capsys, study, "--run", run, "--format", "json"))
    (one,) = told["anomalies"]
    assert (one["what"], one["hosts"]) == ("slow NIC", ["rank 2"])
    flows = study.result(run).flows.loc[[row["flow"] for row in one["evidence"]]]
    assert ((flows["src"] == 2) | (flows["dst"] == 2)).all()
    assert one["cost_low_ns"] <= one["cost_ns"] <= one["cost_high_ns"]


def test_csv_is_the_table_of_the_run(study, capsys):
    run = run_of(study, slow=True)
    rows = list(csv.DictReader(io.StringIO(shown(capsys, study, "--run", run, "--format", "csv"))))
    table = TABLES["anomalies"](analyse_run(study, run))
    assert [row["where"] for row in rows] == table["where"].tolist() == ["NIC of rank 2"]


def test_a_sound_run_has_none(study, capsys):
    assert "No NIC, link or host is slower than its peers." in shown(capsys, study, "--run", run_of(study))


def test_a_run_without_messages_says_so(study, capsys):
    text = shown(capsys, study, "--run", run_of(study, backend="analytical-unaware"))
    assert "no records of messages" in text
