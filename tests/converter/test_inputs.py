"""Bad, partial and foreign input: an error that names it, or an assumption that says it."""

import gzip
import json
import tarfile

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from kineto_trace import edit_json

from chakrascope.converter import Workload, convert, convert_files, read_et, read_logs
from chakrascope.converter.readers import find_rank_traces, read_device_trace, read_linked
from chakrascope.errors import ChakrascopeError, TraceError, TraceFormatError, UsageError


def test_a_capture_that_broke_off_in_its_first_step_says_why(trace_set):
    reason = "the command exited with code 1 after 3 training steps, before the capture's first was whole"
    edit_json(trace_set / "manifest.json", lambda manifest: manifest.update(partial=True, reasons=[reason]))
    with pytest.raises(TraceError, match=r"no complete step of rank 0: the command exited with code 1"):
        convert(trace_set)


def test_a_partial_capture_with_steps_converts_and_says_so(trace_set):
    def change(manifest):
        manifest.update(partial=True, reasons=["rank 1 ended after 1 of 3 captured steps."])
        steps = convert_steps(trace_set)
        for entry in manifest["ranks"]:
            entry["steps"] = steps[entry["rank"]]

    edit_json(trace_set / "manifest.json", change)
    assumptions = convert(trace_set).metadata["assumptions"]
    assert "partial (rank 1 ended after 1 of 3 captured steps)" in assumptions[0]


def convert_steps(folder):
    from chakrascope.converter.building import annotated_steps
    from chakrascope.converter.readers import read_device_trace

    return [
        [
            {"index": step.index, "start_ns": step.start_ns, "end_ns": step.end_ns}
            for step in annotated_steps(read_device_trace(folder / f"rank{rank}.device.json.gz")).steps[:1]
        ]
        for rank in range(2)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["ranks"].clear(), "no usable trace of rank 0, 1"),
        (lambda m: m["ranks"].pop(0) and m.update(fake_world=True), "no usable trace of rank 0"),
        (lambda m: m.update(world_size=10**5), r"rank 2, 3, .* and 99990 more"),
        (
            lambda m: m["ranks"][0].update(device="cuda:0"),
            "computed on cuda:0, but the trace holds no kernel",
        ),
    ],
)
def test_unusable_manifests(trace_set, change, message):
    edit_json(trace_set / "manifest.json", change)
    with pytest.raises(TraceError, match=message):
        convert(trace_set)


def _gpu_without(data_dir, folder, categories):
    source = data_dir / "converter" / "dlrm_v100_8"

    def without(document):
        document["traceEvents"] = [e for e in document["traceEvents"] if e.get("cat") not in categories]

    edit_json(source / "kineto_0.json.gz", without, folder / "kineto_0.json")
    return [source / "et_0.json.gz"], [folder / "kineto_0.json"]


@pytest.mark.parametrize(
    "categories",
    [("kernel", "gpu_memcpy"), ("kernel", "gpu_memcpy", "cuda_runtime")],
    ids=["calls", "nothing"],
)
def test_a_gpu_job_without_its_kernels_is_refused(data_dir, tmp_path, categories):
    with pytest.raises(TraceError, match=r"kineto_0\.json.*holds no kernel"):
        convert_files(*_gpu_without(data_dir, tmp_path, categories))


def test_kernels_that_nothing_ties_to_the_host_are_refused(data_dir, tmp_path):
    with pytest.raises(TraceError, match=r"kineto_0\.json: none of rank 0's 261 kernels and copies"):
        convert_files(*_gpu_without(data_dir, tmp_path, ("cuda_runtime",)))


def test_a_trace_of_impossibly_many_ranks_is_refused(data_dir, tmp_path):
    host, (device,) = _gpu_without(data_dir, tmp_path, ())
    many = {"distributedInfo": {"rank": 0, "world_size": 2**62}}
    device.write_text(json.dumps(json.loads(device.read_text()) | many))
    with pytest.raises(TraceError, match="claims 4611686018427387904 ranks"):
        convert_files(host, [device])


def test_no_step_marks_count_as_one_step_and_say_so(data_dir, tmp_path):
    for path in (data_dir / "converter" / "mlp_2").glob("rank*.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            text = file.read().replace("ProfilerStep#", "Some step ")
        (tmp_path / path.stem).write_text(text, encoding="utf-8")
    workload = convert_files(
        f"{tmp_path}/rank{{rank}}.host.json", f"{tmp_path}/rank{{rank}}.device.json", tmp_path / "w"
    )
    assert "no step is marked" in workload.metadata["assumptions"][0]
    assert Workload.load(tmp_path / "w").num_ranks == 2


def test_a_pattern_may_have_brackets_in_its_folder(tmp_path):
    folder = tmp_path / "lr=[0.1]"
    folder.mkdir()
    for rank in range(2):
        (folder / f"d_{rank}.json").write_text("{}")
    found = find_rank_traces(None, None, f"{folder}/d_{{rank}}.json")
    assert [traces.device_path for traces in found] == [folder / f"d_{rank}.json" for rank in range(2)]


@pytest.mark.parametrize(
    ("host", "device", "message"),
    [
        ("h_{rank}.json", "d_{rank}.json", "Rank 1 has only a host trace"),
        ("x_{rank}.json", "d_{rank}.json", r"No file matches '.*x_\{rank\}\.json'"),
        ("h_{rank}_{rank}.json", "d_{rank}.json", "more than once"),
        ("h_{rank}.json", "gap_{rank}.json", "Rank 1 has only a host trace"),
        ("gap_{rank}.json", "gap_{rank}.json", "none of rank 1"),
        ("h_{rank}.json", "two{rank}*.json", "two device traces of rank 0"),
        ("h_0.json", "all.tar.gz", r"all\.tar\.gz holds no device trace"),
        ("h_0.json", "hidden.json", r"hidden\.json holds no device trace"),
        ("h_0.json", "all{rank}.tar.gz", "is an archive, not a trace. Give it alone"),
        ("h_0.json", "absent.json", "does not exist"),
    ],
)
def test_patterns_and_archives(tmp_path, host, device, message):
    names = ["h_0", "h_1", "d_0", "gap_0", "gap_2", "two0a", "two0b"]
    for name in names:
        (tmp_path / f"{name}.json").write_text("{}")
    for name in ("all.tar.gz", "all0.tar.gz", "hidden.json"):
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            archive.add(tmp_path / "h_0.json")
    with pytest.raises(UsageError, match=message):
        convert_files(str(tmp_path / host), str(tmp_path / device))


@pytest.mark.parametrize(
    ("name", "begins", "read"),
    [
        ("trace.json.gz", b'{"traceEvents": [', read_device_trace),
        ("linked.json.gz", b'{"nodes": [', read_linked),
        ("logs.gz", b'{"dump_stats": {}}\n', lambda path: read_logs([path])),
        ("graph.0.et", b"", read_et),
    ],
)
def test_a_file_that_unpacks_to_gigabytes_is_refused_before_it_does(tmp_path, name, begins, read):
    (tmp_path / name).write_bytes(gzip.compress(begins) + gzip.compress(b" " * 2**20) * 100)
    with pytest.raises(ChakrascopeError, match=f"{name} unpacks to more than 200 times its size"):
        read(tmp_path / name)


@given(st.binary(max_size=300))
@example(b"PK\x05\x06")
@settings(max_examples=25, deadline=None)
def test_any_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data)
    refused = (TraceFormatError, UsageError)  # the latter for what begins as an archive does
    with pytest.raises(refused, match=r"any\.json"):
        convert_files([path], [path])
    with pytest.raises(refused, match=r"any\.json"):
        convert_files(linked_trace=[path])
