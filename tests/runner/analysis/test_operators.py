"""What operators reach of the roofline of the chip that a trace names."""

from __future__ import annotations

import json
import math

import pytest
from workloads import comp, workload

from chakrascope.cli import main
from chakrascope.converter import convert_files
from chakrascope.errors import BackendError
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import TABLES, analyse_run, joined_ranks, operators_text, reached_text
from chakrascope.runner.chips import chip_of_device, find_chip


def run_of(folder, program):
    study = Study.create(folder / "study")
    experiment = prepare(study.add_workload(program, "job"), "default", None, backend="replay")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="job")
    return analyse_run(study)


@pytest.fixture
def bert(data_dir):
    return convert_files(None, str(data_dir / "converter/kineto/bert_small_h100.json.gz"), None)


def exit_code_of(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def row_of(table, operator, arguments):
    return table[(table["operator"] == operator) & (table["arguments"] == arguments)].iloc[0]


def test_products_reach_what_another_tool_says(bert, tmp_path):
    """FLOPs, bytes, time, TFLOP/s and TB/s of TraceLens's report of this trace."""
    table = TABLES["operators"](run_of(tmp_path, bert))
    row = row_of(table, "aten::addmm", "bf16[512] [141,512] [512,512]")
    assert row["calls"] == 17
    assert row["flops"] == pytest.approx(0.0739968e9, rel=0.01)
    assert row["bytes"] == pytest.approx(0.7763671875 * 2**20, rel=0.01)
    assert row["time_ns"] == pytest.approx(98_718, rel=0.01)
    assert row["tflops_per_s"] == pytest.approx(12.747, rel=0.01)
    assert row["tb_per_s"] == pytest.approx(0.14024, rel=0.01)


def test_shares_of_a_rank_add_up_to_its_device_time(bert, tmp_path):
    table = TABLES["operators"](run_of(tmp_path, bert))
    assert table["share"].sum() == pytest.approx(1)
    device = bert.graphs[0].nodes.query("kind in ('compute', 'copy') and not is_cpu_op")
    assert table["time_ns"].sum() == device["duration_ns"].sum()


def test_the_roofline_is_that_of_the_chip_that_the_trace_names(bert, tmp_path):
    bert.metadata["chips"] = {"0": "NVIDIA H100 80GB HBM3"}
    table = TABLES["operators"](run_of(tmp_path, bert))
    chip = find_chip("h100")
    for row in table.to_dict("records"):
        if not row["kind"] or not row["bound"]:
            assert math.isnan(row["roofline_share"])
            continue
        peak = chip.peak(
            row["precision"] if row["kind"] == "gemm" else "bf16" if row["kind"] == "attention" else "fp32"
        )
        compute = row["calls"] * row["flops"] / peak * 1e9
        memory = row["calls"] * row["bytes"] / chip.memory_bytes_per_s * 1e9
        assert row["roofline_share"] == pytest.approx(max(compute, memory) / row["time_ns"])
        assert row["bound"] == ("compute" if compute > memory else "memory")
    assert "Peaks of NVIDIA H100 SXM 80 GB: FP8 1,979" in operators_text(table)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("", "The trace names no chip: no bound"),
        ("ABC 1", "No peaks are known of the chip 'ABC 1': no bound"),
    ],
)
def test_without_peaks_there_is_no_share(bert, tmp_path, device, said):
    bert.metadata["chips"] = {"0": device}
    table = TABLES["operators"](run_of(tmp_path, bert))
    assert table["roofline_share"].isna().all()
    assert set(table["bound"]) == {""}
    assert said in operators_text(table)
    assert reached_text(row_of(table, "aten::addmm", "bf16[512] [141,512] [512,512]")).endswith(" TFLOP/s")


def test_ranks_are_joined_for_people(bert, tmp_path):
    known = bert.metadata["operators"]["ranks"]
    bert.metadata["operators"]["ranks"] = known | {"1": known["0"]}
    bert.metadata["chips"] |= {"1": bert.metadata["chips"]["0"]}
    table = TABLES["operators"](run_of(tmp_path, bert))
    joined = joined_ranks(table)
    assert len(table) == 2 * len(joined)
    assert joined["time_ns"].sum() == table["time_ns"].sum()
    assert joined["share"].sum() == pytest.approx(1)
    one = joined_ranks(table[table["rank"] == 1])
    assert one["tflops_per_s"].tolist() == pytest.approx(joined["tflops_per_s"].tolist())


def test_the_command_prints_people_the_sentences_and_others_all_rows(bert, tmp_path, capsys):
    run = run_of(tmp_path, bert)
    assert exit_code_of("summary", str(run.study.path), "--view", "operators") == 0
    printed = capsys.readouterr().out
    assert "of the time is of operators with a model" in printed
    assert "TFLOP/s" in printed
    assert exit_code_of("summary", str(run.study.path), "--view", "operators", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(TABLES["operators"](run))


def test_a_workload_without_traces_has_no_operators(tmp_path, capsys):
    run = run_of(tmp_path, workload([comp(0, 500)]))
    assert TABLES["operators"](run).empty
    assert exit_code_of("summary", str(run.study.path), "--view", "operators") == BackendError.exit_code
    assert "has no operators: it was not converted from traces" in capsys.readouterr().err


def test_a_chip_is_found_by_the_name_of_its_device():
    assert chip_of_device("AMD Instinct MI300X").name == "mi300x"
    assert chip_of_device("NVIDIA H100 PCIe") is None
    assert chip_of_device("") is None
