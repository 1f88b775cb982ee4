"""Configuration files and study files, damaged in every way: only errors of ours come out, soon and short."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import ChakrascopeError, ConfigError, StudyError
from chakrascope.runner import (
    Experiment,
    MemoryConfig,
    NetworkConfig,
    Study,
    SystemConfig,
    WorkloadSource,
    load_groups,
    simulate,
)
from chakrascope.runner.config import preset_path
from chakrascope.runner.sweep import Prices, parse_axis, read_points

from .workloads import comp, workload

MEMORY = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 9, "num-nodes": 2}
READERS = {
    "system.json": (SystemConfig.load, json.loads(preset_path("system", "default").read_text())),
    "network.yml": (
        NetworkConfig.load,
        {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500]},
    ),
    "memory.json": (MemoryConfig.load, MEMORY),
    "groups.json": (load_groups, {"1": [0, 1], "2": [2, 3, 4]}),
    "points.jsonl": (read_points, {"network.bandwidth": [25, 50], "system.endpoint-delay": 3}),
    "prices.yml": (lambda path: Prices.parse([str(path)]), {"ring-8": 0.5}),
}
DEEP, ENDLESS = "[" * 4000, int("9" * 400)
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text(max_size=9)
    | st.sampled_from([ENDLESS, -ENDLESS, 2**63, "9" * 5000, "../x", "0x10", "2001-13-45"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


def changed(data, draw):
    """Return a copy of *data* with one value somewhere in it replaced, removed, repeated or renamed."""
    if not isinstance(data, dict | list) or not data or draw(st.integers(0, 4)) == 0:
        return draw(odd)
    items = list(data.items()) if isinstance(data, dict) else list(enumerate(data))
    place, (key, value) = draw(st.sampled_from(list(enumerate(items))))
    change = draw(st.sampled_from(["inside", "remove", "rename", "repeat"]))
    new = {
        "inside": [(key, value)],
        "remove": [],
        "rename": [("9" * 5000, value)],
        "repeat": 2 * [(key, value)],
    }
    if change == "inside":
        new[change] = [(key, changed(value, draw))]
    items[place : place + 1] = new[change]
    return dict(items) if isinstance(data, dict) else [item for _, item in items]


def check(read, argument):
    message = ""
    try:
        read(argument)
    except ChakrascopeError as error:
        message = error.message
    assert len(message) < 20_000


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_changed_file_is_read_or_refused(tmp_path_factory, name, data):
    read, seed = READERS[name]
    path = tmp_path_factory.mktemp("changed") / name
    path.write_bytes(json.dumps(changed(seed, data.draw)).encode("utf-8", "surrogatepass"))
    check(read, path)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_cut_or_overwritten_file_is_read_or_refused(tmp_path_factory, name, data):
    read, seed = READERS[name]
    whole = json.dumps(seed).encode()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    path = tmp_path_factory.mktemp("cut") / name
    path.write_bytes(whole[:start] + data.draw(st.binary(max_size=9)) + whole[end:])
    check(read, path)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        '{"a":' * 4000,
        "&a [*a, *a]",
        "x: 2001-13-45",
        "x: !!bool y",
        "x: !!timestamp y",
        "x: 0x",
        "\udcff",
    ],
    ids=lambda content: content[:9],
)
def test_hostile_text_is_refused_soon(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    check(READERS[name][0], path)


def test_a_value_that_repeats_itself_is_shown_in_short(tmp_path):
    lines = [
        "a0: &a0 [x, x, x, x, x, x, x, x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9)),
    ]
    path = tmp_path / "network.yml"
    path.write_text(
        "\n".join([*lines, "topology: *a8", "npus_count: [4]", "bandwidth: [50]", "latency: [5]"])
    )
    with pytest.raises(ConfigError) as caught:
        NetworkConfig.load(path)
    assert len(caught.value.message) < 2000


@given(st.text(max_size=40))
def test_an_axis_is_parsed_or_refused(text):
    check(parse_axis, text)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a study with one run, and the files of both that hold settings, with what they hold."""
    job = workload([comp(1, 100)], [comp(1, 100)])
    prefix = tmp_path_factory.mktemp("job") / "workload"
    job.save(prefix)
    study = Study.create(tmp_path_factory.mktemp("study") / "study")
    experiment = Experiment(
        WorkloadSource.of_model(job), SystemConfig(), NetworkConfig.preset("ring-2"), MemoryConfig()
    )
    run_id = study.add_run(experiment, simulate(job, SystemConfig(), NetworkConfig.preset("ring-2")))
    study.import_workload(prefix)
    # As version 0.2 wrote it, without checksums: what is behind them has to notice by itself.
    (study.path / "runs" / run_id / "SHA256SUMS").unlink()
    files = [study.path / "study.json"]
    files += [study.path / "runs" / run_id / f"{name}.json" for name in ("run", "experiment", "result")]
    return study, {file: json.loads(file.read_text()) for file in files}


@settings(max_examples=25)
@given(data=st.data())
def test_a_study_with_a_changed_file_is_read_or_refused(run, data):
    study, files = run
    file, seed = data.draw(st.sampled_from(list(files.items())))
    try:
        file.write_bytes(json.dumps(changed(seed, data.draw)).encode("utf-8", "surrogatepass"))
        check(use, study.path)
    finally:
        file.write_text(json.dumps(seed))


def use(path):
    study = Study.open(path)
    study.result(study.runs()[0].id)
    study.experiment(study.runs()[0].id)


@pytest.mark.parametrize("content", [DEEP, "{}", "[]", '{"groups": 1, "backend": 2, "options": 3}'])
def test_a_damaged_file_of_a_run_is_named(run, content):
    study, files = run
    for file, seed in files.items():
        try:
            file.write_text(content)
            with pytest.raises(StudyError, match=file.parent.name):
                use(study.path)
        finally:
            file.write_text(json.dumps(seed))


@pytest.mark.parametrize("ranks", [3, 10**9, 10**30])
def test_a_run_that_states_other_ranks_than_its_result_is_refused_at_once(run, ranks):
    study, files = run
    run_id = study.runs()[0].id
    file = study.path / "runs" / run_id / "run.json"
    try:
        file.write_text(json.dumps(files[file] | {"num_ranks": ranks}))
        for read in (study.result, study.run_workload):
            with pytest.raises(StudyError, match=r"run\.json (says .* ranks, but|is damaged)"):
                read(run_id)
    finally:
        file.write_text(json.dumps(files[file]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.rename(columns={"finish_ns": "finish"}), "has no column finish_ns"),
        (lambda table: table.assign(rank="x"), "column rank of ranks.parquet does not hold whole numbers"),
        (lambda table: table.assign(comm_ns=0.5), "column comm_ns of ranks.parquet does not hold whole"),
    ],
)
def test_a_damaged_column_of_a_result_is_named(run, change, message):
    study, _ = run
    run_id = study.runs()[0].id
    file = study.path / "runs" / run_id / "ranks.parquet"
    whole = file.read_bytes()
    try:
        change(pd.read_parquet(file)).to_parquet(file)
        with pytest.raises(StudyError, match=message):
            study.result(run_id)
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("makespan_ns", [10**30, -1])
@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_makespan_beyond_64_bits_is_refused(run, name, makespan_ns):
    study, files = run
    file = study.path / "runs" / study.runs()[0].id / name
    try:
        file.write_text(json.dumps(files[file] | {"makespan_ns": makespan_ns}))
        with pytest.raises(StudyError, match="makespan"):
            use(study.path)
    finally:
        file.write_text(json.dumps(files[file]))
