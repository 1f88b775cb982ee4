"""Traces that do not belong together are refused, or said to be doubtful: by convert and by the doctor."""

import shutil

import pytest
from kineto_trace import edit_json

from chakrascope.converter import convert, convert_files, doctor
from chakrascope.errors import TraceError


def _files(folder, hosts=(0, 1), devices=(0, 1)):
    """Return the host and device traces of mlp_2 that stand for ranks 0, 1, ..."""
    return (
        [folder / f"rank{rank}.host.json.gz" for rank in hosts],
        [folder / f"rank{rank}.device.json.gz" for rank in devices],
    )


@pytest.fixture
def mlp(data_dir):
    return data_dir / "converter" / "mlp_2"


def _exchange(folder, side):
    first, second = (folder / f"rank{rank}.{side}.json.gz" for rank in range(2))
    first.rename(folder / "kept")
    second.rename(first)
    (folder / "kept").rename(second)


@pytest.mark.parametrize(
    ("hosts", "devices", "cause"),
    [
        (
            (1, 0),
            (0, 1),
            r"rank1.host.json.gz: It belongs to process 19125 \(rank 1\), but is given as rank 0",
        ),
        ((0, 0), (0, 1), r"rank0.host.json.gz: Ranks 0 and 1 were given the same trace"),
        ((0, 1), (1, 0), r"rank1.device.json.gz: It is the trace of rank 1, but is given as rank 0"),
        ((1, 0), (1, 0), r"rank1.device.json.gz: It is the trace of rank 1, but is given as rank 0"),
        ((0, 1), (0, 0), r"rank0.device.json.gz: It is the trace of rank 0, like .*rank0.device.json.gz"),
        ((0, 0), (0, 0), r"Ranks 0 and 1 were given the same trace"),
        ((0, 1, 1), (0, 1, 1), r"given the same trace"),
    ],
)
def test_files_of_other_ranks_are_refused(mlp, hosts, devices, cause):
    with pytest.raises(TraceError, match=cause):
        convert_files(*_files(mlp, hosts, devices))


def test_copies_of_a_trace_are_refused_whatever_they_are_called(mlp, tmp_path):
    paths = [tmp_path / f"k{rank}.json.gz" for rank in range(2)]
    for path in paths:
        shutil.copy(mlp / "rank0.device.json.gz", path)
        edit_json(path, lambda document: document.pop("distributedInfo"))
    with pytest.raises(TraceError, match=r"k1.json.gz: Ranks 0 and 1 were given the same trace"):
        convert_files(device_trace=paths)


@pytest.mark.parametrize("side", ["host", "device"])
def test_files_exchanged_in_a_trace_set_are_refused_and_found_by_the_doctor(trace_set, side):
    _exchange(trace_set, side)
    with pytest.raises(TraceError, match="but is given as rank"):
        convert(trace_set)
    causes = [finding.cause for finding in doctor(trace_set) if finding.severity == "error"]
    assert any("but is given as rank 0" in cause for cause in causes)
    assert any("but is given as rank 1" in cause for cause in causes)


def test_the_doctor_finds_exchanged_host_traces_of_others(mlp, tmp_path):
    for rank in range(2):
        shutil.copy(mlp / f"rank{rank}.device.json.gz", tmp_path / f"kineto_rank{rank}.json.gz")
        shutil.copy(mlp / f"rank{rank}.host.json.gz", tmp_path / f"et_rank{1 - rank}.json.gz")
    first, second = [finding for finding in doctor(tmp_path) if finding.severity == "error"]
    assert "(rank 1), but is given as rank 0" in first.cause
    assert "(rank 0), but is given as rank 1" in second.cause


def test_jobs_of_other_sizes_are_refused(mlp, trace_set, data_dir):
    dlrm = data_dir / "converter" / "dlrm_v100_8" / "kineto_1.json.gz"
    with pytest.raises(
        TraceError, match=r"kineto_1.json.gz: It belongs to a job of 8 ranks, but .* of 2 ranks\."
    ):
        convert_files(device_trace=[mlp / "rank0.device.json.gz", dlrm])
    edit_json(trace_set / "rank1.device.json.gz", lambda d: d["distributedInfo"].update(world_size=4))
    with pytest.raises(
        TraceError, match=r"It belongs to a job of 4 ranks, but the manifest belongs to a job of 2 ranks\."
    ):
        convert(trace_set)
    assert any("a job of 4 ranks" in finding.cause for finding in doctor(trace_set))


def test_traces_of_other_jobs_are_refused(mlp, data_dir):
    other = data_dir / "converter" / "fsdp2_2"
    (host, *_), (device, *_) = _files(other, (1,), (1,))
    hosts, devices = _files(mlp)
    with pytest.raises(
        TraceError,
        match=r"rank 1, .*device trace come from different runs: only \d+ of",
    ):
        convert_files(hosts, [devices[0], device])
    with pytest.raises(
        TraceError, match=r"ranks 0 and 1: In step .* different collectives: .* different jobs"
    ):
        convert_files([hosts[0], host], [devices[0], device])


def test_what_is_only_likely_is_an_assumption_and_a_warning(mlp, tmp_path):
    for rank in range(2):
        shutil.copy(mlp / f"rank{rank}.device.json.gz", tmp_path / f"kineto_rank{rank}.json.gz")
        shutil.copy(mlp / f"rank{rank}.host.json.gz", tmp_path / f"et_rank{rank}.json.gz")
    edit_json(tmp_path / "et_rank1.json.gz", lambda document: document.update(pid=7))
    workload = convert_files(str(tmp_path), str(tmp_path))
    told = "process 7, the device trace from process 19125: they come from different runs"
    assert [note for note in workload.metadata["assumptions"] if told in note]
    (warning,) = [finding for finding in doctor(tmp_path) if told in finding.cause]
    assert warning.severity == "warning"


def test_ranks_of_one_job_at_different_times_are_an_assumption(mlp, tmp_path):
    paths = [tmp_path / f"rank{rank}.json.gz" for rank in range(2)]
    for rank, path in enumerate(paths):
        shutil.copy(mlp / f"rank{rank}.device.json.gz", path)
    edit_json(
        paths[1],
        lambda document: document.update(baseTimeNanoseconds=document["baseTimeNanoseconds"] + 10**10),
    )
    assumptions = convert_files(device_trace=paths).metadata["assumptions"]
    clash = "before rank 1 began: their clocks disagree"
    assert any(clash in note for note in assumptions)
    assert any(clash in finding.cause for finding in doctor(tmp_path))


def test_a_host_trace_of_a_part_of_the_steps_is_no_other_run(mlp, tmp_path):
    hosts, devices = _files(mlp, (0,), (0,))
    path = tmp_path / "et.json.gz"
    shutil.copy(hosts[0], path)

    def half(document):
        document["nodes"] = document["nodes"][: len(document["nodes"]) // 2]

    edit_json(path, half)
    assumptions = convert_files([path], devices).metadata["assumptions"]
    assert any("the host trace covers little of the device trace: only" in note for note in assumptions)
