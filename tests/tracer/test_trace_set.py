"""The manifest's reader against damaged, foreign and incomplete trace sets."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def write(folder, manifest=MANIFEST):
    (folder / "rank0.host.json.gz").write_bytes(b"")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_save_then_load_gives_the_same_manifest(tmp_path):
    write(tmp_path)
    loaded = TraceSet.load(tmp_path)
    loaded.save()
    assert TraceSet.load(tmp_path).manifest == MANIFEST
    assert (loaded.exit_code, loaded.partial, loaded.world_size, loaded.reasons) == (0, False, 1, [])


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
        ({"version": 9}, "version 9"),
        ({"format": "other"}, "format"),
        ({"ranks": [{}]}, "no rank number"),
        ({"ranks": [{"rank": 0, "host_trace": "../x"}]}, r"lists '\.\./x'"),
        ({"ranks": [{"rank": 0, "host_trace": 1}]}, "lists 1"),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path, change, message):
    write(tmp_path, {**MANIFEST, **change})
    with pytest.raises(TraceFormatError, match=message):
        TraceSet.load(tmp_path)


@settings(deadline=None)
@given(length=st.integers(0, len(json.dumps(MANIFEST)) - 1))
def test_every_truncation_of_a_manifest_is_a_format_error(tmp_path_factory, length):
    folder = tmp_path_factory.mktemp("truncated")
    (folder / "manifest.json").write_text(json.dumps(MANIFEST)[:length])
    with pytest.raises(TraceFormatError, match="damaged or truncated"):
        TraceSet.load(folder)
