"""Communication of unknown size counts as communication, and results that depend on it say so."""

import json

import command_line
import pytest
from studies import study_of
from workloads import coll, comp, workload

from chakrascope.converter.checks._workload_checks import check_workload
from chakrascope.converter.kernels import unsized_communication
from chakrascope.runner import (
    NetworkConfig,
    SystemConfig,
    collective_overview,
    compare,
    simulate,
    summarize,
)
from chakrascope.runner.analysis import KIND_LABELS, Target, layer_table, targets
from chakrascope.runner.analysis._advice import advise
from chakrascope.support.table import Table

DISPATCH = "void deep_ep::internode::dispatch<false, 8, true, 8>(int4*, float*, long*)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FACTS = {"module": "mlp", "phase": "forward"}


def job(ranks=2):
    """Return ranks that dispatch, compute, copy and are idle; stream 1007 beside 1020."""
    nodes = [
        comp(0, 300_000, kind="communication", name=DISPATCH, stream=1020, **FACTS),
        comp(1, 100_000, kind="compute", stream=1007, **FACTS),
        comp(2, 50_000, (1,), kind="copy", name="Memcpy HtoD (Pageable -> Device)", stream=1007, **FACTS),
        comp(3, 400_000, (0, 2), kind="idle", name="device latency before x", stream=1007, **FACTS),
        comp(4, 50_000, (3,), kind="communication", name=NCCL, stream=1020, **FACTS),
        comp(5, 70_000, (4,), kind="host", is_cpu_op=True, **FACTS),
    ]
    return workload(*([nodes] * ranks), metadata={"measured_step_ns": {"0": 820_000}})


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "flow", "packet", "replay"])
def test_every_backend_shows_it_as_communication_of_its_measured_time(backend):
    result = simulate(job(), "default", "ring-2", backend=backend, semantics="trace")
    ranks = summarize(result, job()).ranks
    assert result.makespan_ns == 820_000
    assert ranks["compute_ns"].tolist() == [100_000] * 2
    assert ranks["overlap_ns"].tolist() == [100_000] * 2
    assert ranks["exposed_comm_ns"].tolist() == [250_000] * 2
    assert ranks["copy_ns"].tolist() == [50_000] * 2
    assert ranks["exposed_copy_ns"].tolist() == [0] * 2
    assert ranks["idle_ns"].tolist() == [470_000] * 2


def test_answers_name_it():
    model = job()
    found = unsized_communication(model)
    assert found is not None
    assert (found.rank, found.kernels, found.duration_ns) == (0, 2, 350_000)
    assert found.by_operation == {"DeepEP dispatch": 300_000, "NCCL all_reduce": 50_000}
    assert "350 µs in 2 kernels on rank 0 (DeepEP dispatch 300 µs, NCCL all_reduce 50.0 µs)" in found.text
    results = [simulate(model, "default", network, backend="analytical-unaware", semantics="trace")
               for network in ("ring-2", "ring-2")]  # fmt: skip
    summary = summarize(results[0], model)
    assert found.text in summary.qualifiers
    assert found.text in summary.to_json()["qualifiers"]
    assert "faster network cannot" not in summary.headline
    assert found.text in compare(results, model).notes
    notes = [finding for finding in check_workload(model) if finding.cause == found.text]
    assert [finding.severity for finding in notes] == ["note"]
    assert not any("never communicate" in finding.cause for finding in check_workload(model))


def test_the_command_line_has_it_in_summary_and_what_if(tmp_path, capfd):
    study = study_of(tmp_path, job(), "ring-2", backend="analytical-unaware", semantics="trace")
    said = []
    for command, *options in (["summary"], ["what-if", "--faster", "kind:compute=2"], ["what-if"]):
        assert command_line.run(command, study.path, *options, "--format", "json") == 0
        answer = json.loads(capfd.readouterr().out)
        said += [one["qualifiers"] for one in (answer if isinstance(answer, list) else [answer])]
    assert unsized_communication(job()).text in said[0]
    assert all(one == said[0] for one in said)


def test_repeated_ranks_get_no_note_on_missing_communication():
    assumptions = " ".join(job().scale_out(4).metadata["assumptions"])
    assert "never communicate" not in assumptions
    assert "lack the sizes of communication" in assumptions


def test_sized_communication_yields_no_note():
    model = workload([comp(0, 100)], [comp(0, 100)])
    assert unsized_communication(model) is None
    result = simulate(model, "default", "ring-2", backend="replay")
    assert not any("measured time on any network" in line for line in summarize(result, model).qualifiers)


def test_kernels_of_unknown_names_are_called_by_their_function():
    model = workload([comp(0, 9, kind="communication", name="void ours::exchange<4>(int)")])
    found = unsized_communication(model)
    assert found is not None
    assert found.by_operation == {"exchange": 9}


def test_layer_times_include_device_work():
    model = job()
    result = simulate(model, "default", "ring-2", backend="analytical-unaware", semantics="trace")
    (row,) = layer_table(result, model, summarize(result, model).path).to_dict("records")
    times = (row["forward_ns"], row["communication_ns"], row["other_ns"])
    assert times == (150_000, 350_000, 0)


# Host time inside the communication library's calls.


@pytest.fixture(scope="module")
def blocked():
    """Ranks that spend 8 ms inside a call, then compute for 1 ms; simulated."""
    call = {"name": "c10d::recv_", "operator": "c10d::recv_", "kind": "host", "cause": "communication_call"}
    rank = [comp(0, 8_000_000, **call), comp(1, 1_000_000, after=(0,)), coll(2, 1024, after=(1,))]
    program = workload(rank, rank)
    return program, simulate(program, SystemConfig.preset("default"), NetworkConfig.preset("ring-2"))


def test_the_summary_names_the_calls(blocked):
    program, result = blocked
    summary = summarize(result, program)
    assert "is bound by host work: 8" in summary.headline
    assert "the largest contributor is inside communication calls (8.00 ms, 88.8 %)" in summary.headline
    assert KIND_LABELS[summary.kinds["key"].iloc[0]] == "Host work"


def test_no_faster_kernel_is_advised_for_them(blocked):
    program, result = blocked
    path = summarize(result, program).path
    overview = Table.of(collective_overview(result, program.node_table(), path)).columns()
    first = advise(path, result, program, overview).advice[0]
    assert (first.what, first.gain_ns) == (
        "Inside communication calls, especially for c10d::recv_",
        8_000_000,
    )
    assert first.is_bound
    assert "kernel" not in first.how
    assert "blocked in the call" in first.how


def test_what_if_can_ask_for_less_of_them(blocked):
    program, result = blocked
    labels = {
        target.key: target.label
        for target in targets(summarize(result, program).path, "analytical-unaware", 1)
    }
    assert labels["cause:communication_call"] == "host work: inside communication calls"
    assert Target("cause", "lock").label == "host work: waiting for a lock or the GIL"
    assert labels["operator:c10d::recv_"] == "operator c10d::recv_"
