"""Traces as their tools leave them: names of PyTorch's making, and archives, whoever packed them."""

import gzip
import io
import json
import shutil
import tarfile
import zipfile

import pytest
from kineto_trace import edit_json, read_json

from chakrascope.converter import _files, convert_files, doctor
from chakrascope.converter.readers import _archives, common_name, kind_of, stated_rank, unpacked
from chakrascope.errors import TraceFormatError, UsageError


@pytest.fixture
def device(data_dir):
    """Return the device traces of two ranks, which state their ranks."""
    return [data_dir / "converter" / "mlp_2" / f"rank{rank}.device.json.gz" for rank in (0, 1)]


def silent(path, target):
    """Copy a trace without what it says about its rank, as jobs write that do not use torch.distributed."""
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
    given = convert_files(device_trace=[tmp_path / name for name in names])
    assert convert_files(device_trace=str(tmp_path)).graphs == given.graphs


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
def test_without_metadata_a_name_tells_a_rank_or_none_but_no_process_and_no_time(
    tmp_path, device, name, rank
):
    silent(device[0], tmp_path / name)
    assert stated_rank(tmp_path / name) == rank
    assert convert_files(device_trace=str(tmp_path)).num_ranks >= 1  # one file stands for all


def test_a_rank_in_the_folder_s_name_counts_where_the_file_s_has_none(tmp_path, device):
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


def test_a_rank_recorded_twice_is_told_apart_from_two_ranks(tmp_path, device):
    for name in ("h_1.1732250000000000001.pt.trace.json.gz", "h_1.1732250000000000009.pt.trace.json.gz"):
        shutil.copy(device[0], tmp_path / name)
    with pytest.raises(UsageError, match=r"belongs to rank 0, like .*recorded more than once"):
        convert_files(device_trace=str(tmp_path))


def packed(path, members):
    """Write an archive of *members* (name, bytes) in the way that the name of *path* says."""
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
def test_archives_are_opened(tmp_path, data_dir, device, name):
    folder = data_dir / "converter" / "mlp_2"
    files = [("job/" + path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    path = packed(tmp_path / name, files)
    loose = convert_files(f"{folder}/rank{{rank}}.host.json.gz", f"{folder}/rank{{rank}}.device.json.gz")
    found = convert_files(str(path), str(path))
    assert found.graphs == loose.graphs
    assert found.metadata["trace_set"] == "job"
    assert [finding.severity for finding in doctor(path)] == []  # the manifest inside is used


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
    with pytest.raises(TraceFormatError, match="a path outside of it"), unpacked(path):
        pass
    assert not list(tmp_path.parent.glob("out.json"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_an_archive_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("trace.json")
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.addfile(member)
    with pytest.raises(TraceFormatError, match="not a plain file"), unpacked(tmp_path / "t.tar"):
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
    monkeypatch.setattr(_archives, "_PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(_archives, "_MOST_MEMBERS", 16)
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
    monkeypatch.setattr(_archives, "_MOST_MEMBERS", 3)
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
    with pytest.raises(TraceFormatError, match="not the trace it should be"):
        convert_files(device_trace=str(tmp_path / "nuls.json"))
