"""Traces that do not belong together are refused or doubted, by convert and by the doctor."""

import gzip
import shutil

import pytest
from kineto_trace import edit_json, read_json

from chakrascope.converter import convert, convert_files, doctor
from chakrascope.converter.readers import find_rank_traces, find_sides, stated_rank
from chakrascope.errors import TraceError, UsageError
from chakrascope.runner import Study, find_items
from chakrascope.runner.study import import_item


def _files(folder, hosts=(0, 1), devices=(0, 1)):
    """Return the host and device traces of mlp_2 that represent ranks 0, 1, ..."""
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


# The folders and names of two ranks, each as the tool writes them: device traces, then host traces.
MEGATRON = [("torch_profile/rank-0.json.gz", "chakra/rank-0.json.gz"),
            ("torch_profile/rank-1.json.gz", "chakra/rank-1.json.gz")]  # fmt: skip
VLLM = [(f"dp0_pp0_tp{rank}_dcp0_ep{rank}_rank{rank}.178225000000000000{rank}.pt.trace.json.gz",
         f"execution_trace_dp0_pp0_tp{rank}_dcp0_ep{rank}_rank{rank}.json") for rank in (0, 1)]  # fmt: skip
# Each data-parallel replica numbers its ranks from 0; only device traces contain the ranks of the job.
VLLM_DP = [(f"dp{rank}_pp0_tp0_dcp0_ep{rank}_rank0.178225000000000000{rank}.pt.trace.json.gz",
            f"execution_trace_dp{rank}_pp0_tp0_dcp0_ep{rank}_rank0.json") for rank in (0, 1)]  # fmt: skip
VLLM_BEFORE = [(f"a1b2c-rank-{rank}.178225000000000000{rank}.pt.trace.json.gz",
                f"execution_trace_a1b2c-rank-{rank}.json") for rank in (0, 1)]  # fmt: skip
OMNI = [(f"20260715-101500_stage_0/trace_rank{rank}.json.gz",
         f"20260715-101500_stage_0/execution_trace_rank{rank}.json") for rank in (0, 1)]  # fmt: skip
SGLANG = [(f"1782250000.5155685-TP-{rank}.trace.json.gz", f"1782250000.5155685-TP-{rank}.et.json")
          for rank in (0, 1)]  # fmt: skip
SGLANG_PP = [(f"1782250000.51-TP-0-PP-{rank}.trace.json.gz", f"1782250000.51-TP-0-PP-{rank}.et.json")
             for rank in (0, 1)]  # fmt: skip
ENVIRONMENT = [("gpu7_4242.1732250000000000001.pt.trace.json.gz", "tmpab12cd_3.et.json"),
               ("gpu7_4241.1732250000000000002.pt.trace.json.gz", "tmp9_x7q2ab.et.json")]  # fmt: skip
LAYOUTS = {
    "megatron": MEGATRON,
    "vllm": VLLM,
    "vllm data parallel": VLLM_DP,
    "vllm before 0.17": VLLM_BEFORE,
    "vllm-omni": OMNI,
    "sglang": SGLANG,
    "sglang pipeline": SGLANG_PP,
    "environment": ENVIRONMENT,
}


# Traces under the names that frameworks give them: Megatron, vLLM, vLLM-Omni, SGLang, PyTorch.


@pytest.fixture(scope="module")
def captured(data_dir):
    folder = data_dir / "converter" / "mlp_2"
    return [tuple(folder / f"rank{rank}.{side}.json.gz" for side in ("device", "host")) for rank in (0, 1)]


def _put(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    data = source.read_bytes()
    target.write_bytes(data if target.suffix == ".gz" else gzip.decompress(data))


def _lay_out(folder, captured, names):
    for sources, targets in zip(captured, names, strict=True):
        for source, target in zip(sources, targets, strict=True):
            _put(source, folder / target)
    return tuple(str((folder / name).parent) for name in names[0])


def _silent(source, target):
    """Write the device trace *source* without facts on its job."""
    edit_json(source, lambda document: document.pop("distributedInfo"), target)


@pytest.fixture(scope="module")
def graphs(captured):
    """The graphs of both traces, passed one by one."""
    return convert_files([pair[1] for pair in captured], [pair[0] for pair in captured]).graphs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_files_are_found_as_they_are(tmp_path, captured, layout):
    names = LAYOUTS[layout]
    devices, hosts = _lay_out(tmp_path, captured, names)
    found = find_rank_traces(hosts, devices)
    assert [(traces.device_path, traces.host_path) for traces in found] == [
        (tmp_path / device, tmp_path / host) for device, host in names
    ]
    (item,) = [item for item in find_items(tmp_path) if item.kind == "traces"]
    assert (item.problem, item.ranks) == ("", 2)
    assert list(zip(item.files[:2], item.host_files, strict=True)) == names
    (tmp_path / "run_config.json").write_text("{}")  # other files in the folder hide nothing
    assert find_sides(str(tmp_path)) == {"host": str(tmp_path), "device": str(tmp_path)}


@pytest.mark.parametrize("layout", ["megatron", "vllm data parallel", "environment"])
def test_one_folder_is_enough_to_convert_and_for_the_doctor(tmp_path, captured, graphs, layout):
    devices, hosts = _lay_out(tmp_path, captured, LAYOUTS[layout])
    assert convert_files(hosts, devices).graphs == graphs
    assert not [finding for finding in doctor(tmp_path) if finding.severity == "error"]


def test_several_captures_in_one_folder_are_several_jobs(tmp_path, captured):
    _lay_out(tmp_path, captured, SGLANG)
    later = [tuple(name.replace("1782250000", "1782250999") for name in pair) for pair in SGLANG]
    _lay_out(tmp_path, captured, later)
    items = [item for item in find_items(tmp_path) if item.kind == "traces"]
    assert [list(zip(item.files[:2], item.host_files, strict=True)) for item in items] == [SGLANG, later]
    with pytest.raises(UsageError, match=r"belongs to rank 0, like .*\{rank\}"):
        find_rank_traces(str(tmp_path), str(tmp_path))
    pattern = f"{tmp_path}/1782250999.5155685-TP-{{rank}}"
    found = find_rank_traces(f"{pattern}.et.json", f"{pattern}.trace.json.gz")
    assert [traces.host_path.name for traces in found] == [pair[1] for pair in later]


@pytest.mark.parametrize(
    "name", ["gpu7_4240.async_llm.1782250000000000000.pt.trace.json.gz", "merged-1782250000.trace.json.gz"]
)
def test_what_is_of_no_single_rank_is_left_out(tmp_path, captured, name):
    _lay_out(tmp_path, captured, VLLM)
    _silent(captured[0][0], tmp_path / name)
    assert len(find_rank_traces(str(tmp_path), str(tmp_path))) == 2
    (item,) = [item for item in find_items(tmp_path) if item.kind == "traces"]
    assert item.ranks == 2


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("1782250000.5-TP-3.trace.json.gz", 3),
        ("1782250000.5-TP-3-EP-1-DECODE.trace.json.gz", 3),
        ("1782250000.5-TP-1-DP-0.trace.json.gz", None),
        ("1782250000.5-TP-0-PP-1.trace.json.gz", None),
        ("dp1_pp0_tp3_dcp0_ep3_rank3.1782250000000000000.pt.trace.json.gz", 3),
        ("tmpab12cd_3.et.json", None),
    ],
)
def test_an_index_in_a_group_is_no_rank_of_the_job(tmp_path, captured, name, rank):
    (tmp_path / name).write_bytes(b"{}")
    assert stated_rank(tmp_path / name) == rank
    shutil.copy(captured[1][0], tmp_path / "told.json.gz")
    assert stated_rank(tmp_path / "told.json.gz") == 1  # metadata take precedence over names


def test_bare_indices_are_refused_with_a_next_step(tmp_path, captured):
    for rank, (device, _) in enumerate(captured):
        _silent(device, tmp_path / f"17-TP-0-PP-{rank}.trace.json.gz")
    with pytest.raises(UsageError, match=r"only has indices in groups \(TP-0, PP-0\)"):
        convert_files(device_trace=str(tmp_path))
    found = convert_files(device_trace=f"{tmp_path}/17-TP-0-PP-{{rank}}.trace.json.gz")
    assert found.num_ranks == 2


def test_equal_process_ids_on_two_hosts_are_distinguished(tmp_path, captured):
    """Containers give each rank the same process id."""
    _lay_out(tmp_path, captured, ENVIRONMENT)
    for path, (device, _) in zip(sorted(tmp_path.glob("gpu7*")), reversed(captured), strict=True):
        alike = [event | {"pid": 1} for event in read_json(device)["traceEvents"]]
        edit_json(device, lambda document, alike=alike: document.update(traceEvents=alike), path)
    with pytest.raises(UsageError, match="has no rank"):
        find_rank_traces(str(tmp_path), str(tmp_path))


def test_host_traces_of_another_job_are_ignored(tmp_path, captured):
    _lay_out(tmp_path / "mine", captured, VLLM)
    for device, _ in VLLM:
        (tmp_path / "alone").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "mine" / device, tmp_path / "alone" / device)
    items = {item.place.partition("/")[0]: item for item in find_items(tmp_path) if item.kind == "traces"}
    assert [len(items[name].host_files) for name in ("alone", "mine")] == [0, 2]


def test_what_lies_in_two_folders_is_imported(tmp_path, captured, graphs):
    _lay_out(tmp_path / "job", captured, MEGATRON)
    (item,) = find_items(tmp_path / "job")
    study = Study.create(tmp_path / "study")
    name = import_item(study, tmp_path / "job", item.id, "mine", lambda _done, _total: None)
    assert study.workload(name).graphs == graphs
