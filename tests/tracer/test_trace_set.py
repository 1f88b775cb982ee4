"""The manifest's reader against damaged, foreign and incomplete trace sets."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.converter import convert, doctor
from chakrascope.errors import TraceError, TraceFormatError
from chakrascope.tracer import TraceSet

MANIFEST = {
    "format": "chakrascope-trace-set",
    "version": 1,
    "created": "2026-01-01T00:00:00+00:00",
    "partial": False,
    "reasons": [],
    "command": ["python", "train.py"],
    "exit_code": 0,
    "torch_version": "2.13.0",
    "world_size": 1,
    "ranks": [{"rank": 0, "host_trace": "rank0.host.json.gz", "device_trace": None, "flight_record": None}],
    "options": {"warmup": 3, "steps": 3},
}


ESCAPES = ["../x", "/etc/passwd", "..", ".", "a/b", "x\0y", "./x"]


def entry(**changes):
    return {"rank": 0, **changes}


def write(folder, manifest=MANIFEST):
    (folder / "rank0.host.json.gz").write_bytes(b"")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_save_then_load_gives_the_same_trace_set(tmp_path):
    write(tmp_path)
    loaded = TraceSet.load(tmp_path)
    loaded.save()
    assert TraceSet.load(tmp_path) == loaded
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert {key: written[key] for key in MANIFEST if key != "ranks"} == {
        key: value for key, value in MANIFEST.items() if key != "ranks"
    }
    assert written["ranks"][0].items() >= MANIFEST["ranks"][0].items()
    assert "path" not in written
    assert (loaded.exit_code, loaded.partial, loaded.world_size, loaded.reasons) == (0, False, 1, [])


def test_ranks_are_in_rank_order_whatever_the_file_says(tmp_path):
    write(tmp_path, {**MANIFEST, "world_size": 3, "ranks": [{"rank": rank} for rank in (2, 0, 1)]})
    assert [entry.rank for entry in TraceSet.load(tmp_path).ranks] == [0, 1, 2]


def test_a_folder_without_manifest_says_how_to_get_one(tmp_path):
    with pytest.raises(TraceError, match=r"holds no trace set.*chakrascope trace"):
        TraceSet.load(tmp_path)


def test_a_missing_rank_file_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / "rank0.host.json.gz").unlink()
    with pytest.raises(TraceError, match=r"rank0\.host\.json\.gz is missing.*rank 0"):
        TraceSet.load(tmp_path)


@pytest.mark.parametrize("key", ["partial", "reasons", "command", "exit_code", "world_size", "ranks"])
def test_a_manifest_without_a_required_key_names_it(tmp_path, key):
    write(tmp_path, {name: value for name, value in MANIFEST.items() if name != key})
    with pytest.raises(TraceFormatError, match=key):
        TraceSet.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "version 9; this chakrascope reads version 1"),
        ({"version": 10**30}, "version 1000"),
        ({"version": True}, "version True"),
        ({"version": 99, "format": "something-else"}, "format"),
        ({"path": "/etc", "format": None}, "format"),
        ({"ranks": [{}]}, r"required field `rank` - at `\$\.ranks\[0\]`"),
        ({"ranks": [7]}, r"\$\.ranks\[0\]"),
        ({"ranks": {}}, r"Expected `array`, got `object` - at `\$\.ranks`"),
        ({"ranks": [{"rank": 0}, {"rank": 0}]}, "rank 0 is listed twice"),
        ({"ranks": [{"rank": 1}]}, "rank 1 of a job of 1 ranks"),
        ({"ranks": [{"rank": -1}]}, ">= 0"),
        ({"ranks": [{"rank": 10**30}]}, "damaged"),
        ({"ranks": [{"rank": True}]}, "got `bool`"),
        ({"world_size": 0}, ">= 1"),
        ({"world_size": 10**15}, "<= 1000000"),
        ({"world_size": "1"}, r"Expected `int`, got `str` - at `\$\.world_size`"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": 0, "end_ns": 10**30}])]}, "end_ns"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": 0, "end_ns": 2**63}])]}, "end_ns"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": -1, "end_ns": 1}])]}, "start_ns"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": 0.5, "end_ns": 1}])]}, "start_ns"),
        ({"ranks": [entry(process_groups=[{"name": "0", "ranks": [0, 1]}])]}, "has rank 1 of 1 ranks"),
        ({"ranks": [entry(all_groups=[[0, 4]])]}, "has rank 4 of 1 ranks"),
        *(({"ranks": [entry(host_trace=name)]}, "not the name of a file") for name in ESCAPES),
        ({"ranks": [entry(flight_record="a/../b")]}, "not the name of a file"),
        ({"ranks": [entry(host_trace=1)]}, r"Expected `str \| null`, got `int`"),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path, change, message):
    write(tmp_path, {**MANIFEST, **change})
    with pytest.raises(TraceFormatError, match=message):
        TraceSet.load(tmp_path)
    with pytest.raises(TraceFormatError, match=message):
        convert(tmp_path)
    (finding,) = doctor(tmp_path)
    assert (finding.severity, finding.place) == ("error", str(tmp_path / "manifest.json"))


def test_a_path_in_the_manifest_is_not_the_trace_sets(tmp_path):
    write(tmp_path, {**MANIFEST, "path": "/etc"})
    assert TraceSet.load(tmp_path).path == tmp_path


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b"[1]", b"7", b'"x"', b"{}", b"null"])
def test_what_is_no_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"manifest\.json"):
        TraceSet.load(tmp_path)


def test_a_huge_file_is_refused_unread(tmp_path):
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TraceFormatError, match="1048576 MiB"):
        TraceSet.load(tmp_path)


def test_a_manifest_that_is_a_folder_is_refused(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(TraceError, match="cannot be read"):
        TraceSet.load(tmp_path)


@settings(deadline=None)
@given(length=st.integers(0, len(json.dumps(MANIFEST)) - 1))
def test_every_truncation_of_a_manifest_is_a_format_error(tmp_path_factory, length):
    folder = tmp_path_factory.mktemp("truncated")
    (folder / "manifest.json").write_text(json.dumps(MANIFEST)[:length])
    with pytest.raises(TraceFormatError, match="damaged or truncated"):
        TraceSet.load(folder)
