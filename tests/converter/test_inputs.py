"""Invalid, partial and foreign input, PyTorch's file names, and archives: errors or assumptions."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
import zipfile

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from kineto_trace import edit_json, read_json

from chakrascope.converter import Workload, _files, convert, convert_files, doctor, read_et, read_logs
from chakrascope.converter.readers import (
    _file_kinds,
    common_name,
    find_rank_traces,
    kind_of,
    read_device_trace,
    read_linked,
    read_operation_table,
    stated_rank,
    unpacked,
)
from chakrascope.errors import ChakrascopeError, TraceError, TraceFormatError, UsageError


def test_capture_interrupted_in_its_first_step_is_explained(trace_set):
    reason = (
        "the command exited with code 1 after 3 training steps, before the first captured step was complete"
    )
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
    with pytest.raises(TraceError, match="a job size of 4611686018427387904 ranks"):
        convert_files(host, [device])


def test_trace_without_step_marks_is_one_step_with_a_note(data_dir, tmp_path):
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
        ("h_0.json", "all{rank}.tar.gz", "is an archive, not a trace. Next: give only the archive"),
        ("h_0.json", "absent.json", "No such file"),
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


READERS = [
    ("trace.json.gz", b'{"traceEvents": [', read_device_trace),
    ("linked.json.gz", b'{"nodes": [', read_linked),
    ("operations.csv", b"step,optype\n", read_operation_table),
    ("logs.gz", b'{"dump_stats": {}}\n', lambda path: read_logs([path])),
    ("graph.0.et", b"", read_et),
]


@pytest.mark.parametrize(("name", "begins", "read"), READERS)
def test_a_file_that_unpacks_to_gigabytes_is_refused_before_it_does(tmp_path, name, begins, read):
    (tmp_path / name).write_bytes(gzip.compress(begins) + gzip.compress(b" " * 2**20) * 100)
    with pytest.raises(ChakrascopeError, match=f"{name} unpacks to more than 200 times its size"):
        read(tmp_path / name)


@pytest.mark.parametrize(("name", "_", "read"), READERS)
def test_a_named_pipe_is_refused_instead_of_waited_for(tmp_path, name, _, read):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ChakrascopeError, match=name):
        read(tmp_path / name)


def test_a_named_pipe_given_as_a_trace_is_called_one(tmp_path):
    os.mkfifo(tmp_path / "rank0.json")
    with pytest.raises(UsageError, match=r"rank0\.json cannot be opened \(it is a device or a named pipe"):
        convert_files(device_trace=str(tmp_path / "rank0.json"))


@given(st.binary(max_size=300))
@example(b"PK\x05\x06")
@settings(max_examples=25, deadline=None)
def test_any_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data)
    refused = (TraceFormatError, UsageError)  # the latter for files that begin like an archive
    with pytest.raises(refused, match=r"any\.json"):
        convert_files([path], [path])
    with pytest.raises(refused, match=r"any\.json"):
        convert_files(linked_trace=[path])


@pytest.fixture
def device(data_dir):
    """Return the device traces of two ranks, which state their ranks."""
    return [data_dir / "converter" / "mlp_2" / f"rank{rank}.device.json.gz" for rank in (0, 1)]


def silent(path, target):
    """Copy a trace without its rank, as in jobs that do not use torch.distributed."""
    edit_json(path, lambda document: document.pop("distributedInfo"), target)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (("gpu7_4242.1732250000000000001.pt.trace.json.gz", "gpu7_4241.1732250000000000002.pt.trace.json.gz"),
         "*.pt.trace.json.gz"),
        (("worker0_step_12.1234.pt.trace.json.gz", "worker1_step_12.1233.pt.trace.json.gz"),
         "worker{rank}_step_12.*.pt.trace.json.gz"),
        (("rank0.1234.pt.trace.json.gz", "rank1.1233.pt.trace.json.gz"), "rank{rank}.*.pt.trace.json.gz"),
        (("trace_rank_0_v2.json.gz", "trace_rank_1_v2.json.gz"), "trace_rank_{rank}_v2.json.gz"),
        (("kineto_0.json.gz", "kineto_1.json.gz"), "kineto_{rank}.json.gz"),
    ],
)  # fmt: skip
def test_names_of_tools_are_understood(tmp_path, device, names, pattern):
    for path, name in zip(device, names, strict=True):
        shutil.copy(path, tmp_path / name)
    assert [stated_rank(tmp_path / name) for name in names] == [0, 1]
    assert {common_name(name) for name in names} == {pattern}


def test_the_traces_in_a_folder_are_found_by_their_ranks(tmp_path, device):
    for path, name in zip(device, ("kineto_1.json.gz", "kineto_0.json.gz"), strict=True):
        shutil.copy(path, tmp_path / name)  # the files themselves state the other ranks
    assert convert_files(device_trace=str(tmp_path)).graphs == convert_files(device_trace=device).graphs


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("worker1_step_12.1234.pt.trace.json.gz", 1),
        ("worker1.1732250000000000001.pt.trace.json.gz", 1),
        ("node3-rank_1.pt.trace.json.gz", 1),
        ("worker5_4242.1732250000000000001.pt.trace.json.gz", None),  # a host called worker5
        ("gpu7_4242.1732250000000000001.pt.trace.json.gz", None),
        ("trace.json.gz", None),
    ],
)
def test_rank_comes_from_the_file_name_without_metadata(tmp_path, device, name, rank):
    silent(device[0], tmp_path / name)
    assert stated_rank(tmp_path / name) == rank
    assert convert_files(device_trace=str(tmp_path)).num_ranks >= 1  # one file represents all ranks


def test_rank_of_the_folder_name_is_the_fallback(tmp_path, device):
    for rank, path in enumerate(device):
        (tmp_path / f"rank{rank}").mkdir()
        silent(path, tmp_path / f"rank{rank}" / f"host_{9 - rank}.1732250000000000001.pt.trace.json.gz")
    assert convert_files(device_trace=str(tmp_path)).num_ranks == 2


def test_metadata_behind_the_events_is_found(tmp_path, device):
    document = read_json(device[1])
    info = document.pop("distributedInfo")
    document["traceEvents"] *= 3
    text = json.dumps({**document, "distributedInfo": info})
    assert len(text) > 1 << 20
    (tmp_path / "trace.json").write_text(text)
    assert stated_rank(tmp_path / "trace.json") == 1


def test_rank_recorded_twice_is_an_error(tmp_path, device):
    for name in ("h_1.1732250000000000001.pt.trace.json.gz", "h_1.1732250000000000009.pt.trace.json.gz"):
        shutil.copy(device[0], tmp_path / name)
    with pytest.raises(UsageError, match=r"belongs to rank 0, like .*recorded more than once"):
        convert_files(device_trace=str(tmp_path))


def packed(path, members):
    """Write an archive of *members* (name, bytes) in the format of the suffix of *path*."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members:
                archive.writestr(name, data)
        return path
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}.get(path.suffix, "w")
    with tarfile.open(path, mode) as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["t.tar", "t.tar.gz", "t.tgz", "t.tar.bz2", "t.tar.xz", "t.zip", "nameless"])
def test_archives_are_opened(tmp_path, device, name):
    files = {path.name: path.read_bytes() for path in device}
    path = packed(tmp_path / name, [("job/" + name, content) for name, content in files.items()])
    with unpacked(path) as folder:
        assert {found.name: found.read_bytes() for found in folder.rglob("*.gz")} == files


def test_an_archive_is_converted_like_its_files(tmp_path, data_dir):
    folder = data_dir / "converter" / "mlp_2"
    files = [("job/" + path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    path = packed(tmp_path / "t.tar.gz", files)
    loose = convert_files(f"{folder}/rank{{rank}}.host.json.gz", f"{folder}/rank{{rank}}.device.json.gz")
    found = convert_files(str(path), str(path))
    assert found.graphs == loose.graphs
    assert found.metadata["trace_set"] == "job"
    assert [finding.severity for finding in doctor(path)] == []  # the manifest in the archive is used


def test_the_doctor_names_files_as_they_are_called_in_the_archive(tmp_path, device):
    path = packed(tmp_path / "t.zip", [("a/rank0.json.gz", device[0].read_bytes()[:-900])])
    (finding,) = (finding for finding in doctor(path) if finding.severity == "error")
    assert finding.place == f"{path}/a/rank0.json.gz"
    with pytest.raises(TraceFormatError, match=rf"{path}/a/rank0\.json\.gz is truncated"):
        convert_files(device_trace=str(path))


@pytest.mark.parametrize(
    "name", ["../out.json", "/out.json", "a/../../out.json", "C:/out.json", "a\\out.json"]
)
@pytest.mark.parametrize("kind", ["t.tar.gz", "t.zip"])
def test_what_leads_out_of_an_archive_is_refused(tmp_path, name, kind):
    path = packed(tmp_path / kind, [("first.json", b"{}"), (name, b"{}")])
    with pytest.raises(TraceFormatError, match="a path outside of the archive"), unpacked(path):
        pass
    assert not list(tmp_path.parent.glob("out.json"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_an_archive_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("trace.json")
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.addfile(member)
    with (
        pytest.raises(TraceFormatError, match="another special file"),
        unpacked(tmp_path / "t.tar"),
    ):
        pass


def test_a_link_in_a_zip_is_refused(tmp_path):
    entry = zipfile.ZipInfo("trace.json")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(TraceFormatError, match="a link"), unpacked(tmp_path / "t.zip"):
        pass


@pytest.mark.parametrize("kind", ["t.tar.gz", "t.tar.xz", "t.zip"])
def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(_files, "_UNPACKED_FREELY", 1 << 20)
    monkeypatch.setattr(_file_kinds, "_PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(_file_kinds, "_MAX_MEMBERS", 16)
    path = packed(tmp_path / kind, [("trace.json", bytes(1 << 24))])
    with pytest.raises(TraceFormatError, match="unpacks to more than"), unpacked(path):
        pass


def test_a_header_that_announces_gigabytes_is_not_read(tmp_path):
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    (tmp_path / "t.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16))
    with pytest.raises(TraceFormatError, match="unpacks to more than"), unpacked(tmp_path / "t.tar"):
        pass


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_file_kinds, "_MAX_MEMBERS", 3)
    path = packed(tmp_path / "t.zip", [(f"{number}.json", b"{}") for number in range(4)])
    with pytest.raises(TraceFormatError, match="more than 3 files"), unpacked(path):
        pass


@pytest.mark.parametrize("cut", [7, 300, 2000])
@pytest.mark.parametrize("kind", ["t.tar.gz", "t.zip", "t.tar"])
def test_cut_off_archives_are_an_error_or_what_they_hold(tmp_path, device, kind, cut):
    path = packed(tmp_path / kind, [("trace.json", device[0].read_bytes())])
    path.write_bytes(path.read_bytes()[:cut])
    found = doctor(path) if kind_of(path) == "archive" else []
    assert all(finding.severity == "error" for finding in found)


def test_a_file_of_nuls_is_no_archive(tmp_path):
    (tmp_path / "nuls.json").write_bytes(bytes(20_000))
    (tmp_path / "nuls.json.gz").write_bytes(gzip.compress(bytes(20_000)))
    assert [kind_of(path) for path in tmp_path.iterdir()] == ["other", "other"]
    with pytest.raises(TraceFormatError, match="not a trace of the expected kind"):
        convert_files(device_trace=str(tmp_path / "nuls.json"))
