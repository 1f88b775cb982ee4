"""No name writes, replaces or removes anything outside of its place in a study."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import click
import command_line
import numpy as np
import pytest
from studies import run_in
from workloads import coll, comp, workload

from chakrascope.cli._main import cli
from chakrascope.converter import Workload, microbenchmark
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import JobStore, Study
from chakrascope.runner._checksums import write_checksums
from chakrascope.runner.chips import find_chip
from chakrascope.runner.config import NetworkConfig
from chakrascope.runner.prediction import Setting, keep_prediction, predict
from chakrascope.runner.prediction.models import Plan, find_model
from chakrascope.runner.study import Workspace, add_network, find_items, import_item, safe_name
from chakrascope.runner.sweep import run_sweep

RING = b"topology: [Ring]\nnpus_count: [4]\nbandwidth: [1.0]\nlatency: [1.0]\n"
STRANGE = (
    "../traces",
    "../runs",
    "../../victim",
    "../../beside/victim",
    ".",
    "..",
    "",
    "/",
    "a/b",
    "meta-llama/Llama-3-8B",
    ".hidden",
    "a\0b",
    "a\nb",
    "-o",
    "x" * 300,
    "\udcff",
)


def files(folder):
    """Return the files in *folder* with their content."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study with one item of each kind, in a folder with other files."""
    here = tmp_path_factory.mktemp("made")
    for folder in (here / "work" / "victim", here / "victim"):
        folder.mkdir(parents=True)
        (folder / "precious").write_text("mine")
    study = Study.create(here / "work" / "study")
    nodes = [comp(0, 5), coll(1, 64, (0,))]
    run_in(study, workload(nodes, nodes), "ring-2")
    (study.new_trace_dir() / "manifest.json").write_text("{}")
    add_network(study, "mine.yml", RING)
    microbenchmark("all-reduce", 2, 64).save(here / "work" / "given" / "w")
    return here


@pytest.fixture
def study(made, tmp_path, monkeypatch):
    """A copy of it; the working directory is next to it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "work")
    return Study.open(tmp_path / "work" / "study")


def imported(study, name):
    folder = study.path.parent / "given"
    import_item(study, folder, find_items(folder)[0].id, name, lambda *_: None)


def swept(study, name):
    run_sweep(study, {"network.bandwidth": [2.0]}, network="ring-2", name=name or "../x")


MAKERS = {
    "a workload": lambda study, name: study.add_workload(microbenchmark("all-reduce", 2, 64), name),
    "a conversion": lambda study, name: study.keep_converted(microbenchmark("all-reduce", 2, 64), name),
    "a trace set": lambda study, name: study.new_trace_dir(name),
    "an import": imported,
    "a sweep": swept,
    "a network": lambda study, name: add_network(study, f"{name}.yml", RING.replace(b"4", b"8")),
    "a study": lambda study, name: Workspace(study.path.parent).create(name),
    "a run": lambda study, name: study.run_dir(name).mkdir(),
    "a run removed": lambda study, name: study.delete_run(name),
    "a recording": lambda study, name: study.recording_dir(name).mkdir(parents=True),
    "findings": lambda study, name: study.findings_file(name).parent.mkdir(parents=True),
    "a job's algorithms": lambda study, name: study.algorithms_dir(name).mkdir(parents=True),
    "an import's ranks": lambda study, name: study.import_target(name),
}  # fmt: skip


@pytest.mark.parametrize("letter", ["x", "é", "漢", "𝔞"])
def test_names_are_short_enough_for_a_file_system(study, letter):
    """A file system counts bytes, up to 255; names of temporary files are longer."""
    long = safe_name(letter * 300, "job")
    assert study.add_workload(microbenchmark("all-reduce", 2, 64), long).parent.name == long
    assert len(long.encode()) > 70
    second = study.add_workload(microbenchmark("all-reduce", 2, 128), long).parent.name
    assert second == f"{long}-2"
    assert {long, second} <= {*study.workloads()}
    assert study.workload(second).num_ranks == 2
    with pytest.raises(ChakrascopeError, match="plain name"):
        add_network(study, letter * 300 + ".yml", RING)


@pytest.mark.parametrize("letter", ["x", "é", "漢", "𝔞"])
def test_another_network_of_the_longest_name_is_numbered(study, letter):
    stem = letter * min(96, 196 // len(letter.encode()))
    first = add_network(study, f"{stem}.yml", RING)
    second = add_network(study, f"{stem}.yml", RING.replace(b"4", b"8"))
    assert first == f"{stem}.yml"
    assert second.endswith("-2.yml")
    assert {first, second} <= {file.name for file in study.networks_dir.iterdir()}


@pytest.mark.parametrize("letter", ["x", "é", "漢", "𝔞"])
def test_an_import_into_a_study_of_the_longest_name_has_a_cache(tmp_path, letter):
    study = Study(tmp_path / (letter * (255 // len(letter.encode()))))
    cache = study.import_target("0123456789abcdef")
    assert cache.parent == tmp_path
    assert cache.name.endswith(".0123456789abcdef")


def test_predictions_of_a_model_with_a_long_name_are_stored(study):
    model = replace(find_model("llama3-8b"), layers=2, name="漢" * 90)
    for length in (64, 128):
        plan = Plan(tp=8, pp=1, dp=1, global_batch=1, sequence=length)
        network = NetworkConfig.preset("hgx-h100-8")
        keep_prediction(predict(Setting(model, plan, find_chip("h100"), network, "megatron")), study)
    first, second = (name for name in study.workloads() if name.startswith("漢"))
    assert {first, second} == {first, f"{first}-2"}
    assert first.endswith("-tp8-pp1-dp1")


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("maker", MAKERS)
def test_no_name_leads_out_of_its_place(study, maker, name):
    inside = (study.workloads_dir, study.networks_dir, study.jobs_dir, study.sweeps_dir)
    before = files(study.path.parents[1])
    with contextlib.suppress(ChakrascopeError):
        MAKERS[maker](study, name)
    after = files(study.path.parents[1])
    assert {path: after.get(path) for path in before} == before
    new = set(after) - set(before)
    places = [*inside, study.runs_dir, study.traces_dir, study.path / "recordings"]
    assert [path for path in new if not any(path.is_relative_to(place) for place in places)] == []
    depth = {
        len(path.relative_to(study.workloads_dir).parts)
        for path in new
        if path.is_relative_to(study.workloads_dir)
    }
    assert depth <= {1, 2}


def text_options():
    """Yield the command and the name of every option that accepts free text."""

    def walk(command, words):
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                yield from walk(command.get_command(click.Context(command), name), [*words, name])
        for option in command.params:
            takes = (
                isinstance(option, click.Option)
                and not option.is_flag
                and "name" in "".join([*option.opts, option.metavar or ""]).lower()
            )
            if takes:
                yield " ".join(words), option.opts[0]

    yield from walk(cli, [])


@pytest.mark.parametrize(("words", "option"), sorted(set(text_options())))
def test_no_option_that_takes_a_name_leads_out_of_the_study(study, words, option, capsys):
    before = files(study.path.parent)
    extra = {
        "rescale": ["--dp", "4"],
        "sweep": ["--network", "ring-2", "--set", "network.bandwidth=1,2"],
        "run": ["--network", "ring-2"],
    }
    for name in (*STRANGE[:4], "a/b"):
        assert command_line.run(*words.split(), "study", *extra.get(words, []), option, name) != 0, (
            words,
            option,
            name,
        )
        assert "Traceback" not in capsys.readouterr().err
    assert files(study.path.parent) == before


def test_a_model_named_as_on_the_hub_becomes_one_workload(study, tmp_path, capsys):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "vocab_size": 1000,
        "max_position_embeddings": 128,
    }
    for name, kept in (("meta-llama/Llama-3-8B", "meta-llama-Llama-3-8B"), ("../../victim", "victim")):
        (tmp_path / "config.json").write_text(json.dumps(config | {"_name_or_path": name}))
        command_line.answer(
            capsys,
            "predict",
            "--model",
            str(tmp_path / "config.json"),
            "--chip",
            "h100",
            "--network",
            "dgx-a100-8",
            "-o",
            "study",
        )
        assert f"{kept}-tp1-pp1-dp8" in study.workloads()
    assert [file.name for file in (tmp_path / "victim").iterdir()] == ["precious"]


def test_existing_files_are_not_overwritten(study, capsys):
    job, other = study.workload("job"), microbenchmark("all-reduce", 2, 128)
    assert study.add_workload(other, "job").parent.name == "job-2"
    assert study.add_workload(microbenchmark("all-reduce", 2, 256), "job").parent.name == "job-3"
    assert study.add_workload(other, "job").parent.name == "job-2"
    assert study.workload("job").summary() == job.summary()
    assert command_line.run("rescale", "study", "--dp", "4", "--name", "job") == 60
    assert "already has a workload 'job'. Next: choose another name" in capsys.readouterr().err


def test_equal_graphs_of_other_process_groups_or_ranks_are_another_workload(study):
    job = study.workload("job")
    regrouped = replace(job, groups={7: (1, 0)})
    assert study.add_workload(regrouped, "job").parent.name == "job-2"
    assert study.add_workload(regrouped, "job").parent.name == "job-2"
    assert study.workload("job-2").groups == {7: (1, 0)}
    assert study.workload("job").groups == job.groups
    one = workload([comp(0, 5)])
    both = Workload(one.graphs, np.array([0, 0]), {}, {}, np.array([0, 0]))
    assert study.add_workload(one, "one").parent.name == "one"
    assert study.add_workload(both, "one").parent.name == "one-2"
    assert study.workload("one").num_ranks == 1


def test_converting_again_replaces_only_that_workload(study):
    first = replace(microbenchmark("all-reduce", 2, 64), metadata={"trace_set": "capture-1"})
    again = replace(microbenchmark("all-reduce", 2, 96), metadata={"trace_set": "capture-1"})
    assert study.keep_converted(first, "capture-1").parent.name == "capture-1"
    assert study.keep_converted(again, "capture-1").parent.name == "capture-1"
    study.add_workload(again, "capture-2")
    mine = replace(microbenchmark("all-reduce", 2, 32), metadata={"trace_set": "capture-2"})
    assert study.keep_converted(mine, "job").parent.name == "job-2"


def test_a_run_edited_to_a_workload_elsewhere_is_damaged(study):
    file = study.run_file(study.run_info().id)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"workload": "../../victim"}))
    write_checksums(file.parent)
    with pytest.raises(ChakrascopeError, match="is not the name of a workload"):
        study.runs()


@pytest.mark.parametrize("text", STRANGE)
def test_a_safe_name_can_always_be_one(study, text):
    name = safe_name(text, "default")
    assert study.workload_dir(name).parent == study.workloads_dir
    study.check_new_workload(name)


def test_a_folder_of_a_stranger_name_is_still_read(study):
    (study.workloads_dir / "job").rename(study.workloads_dir / "job (copy)")
    assert study.workload("job (copy)").num_ranks == 2
    assert Path(study.workload_prefix("job (copy)")).parent.name == "job (copy)"


def test_a_workload_that_is_not_the_newest_can_be_queued(study, capsys):
    study.add_workload(microbenchmark("all-reduce", 2, 128), "newer")
    command_line.answer(capsys, "run", "study", "--workload", "job", "--network", "ring-2", "--queue")
    (job,) = JobStore(study).jobs()
    assert job.workload == "job"
