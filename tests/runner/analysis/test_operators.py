"""Shares of the roofline that operators reach on the chip of a trace."""

import dataclasses
import json
import math

import command_line
import pytest
from studies import study_of
from workloads import comp, workload

from chakrascope.converter import convert_files
from chakrascope.errors import BackendError
from chakrascope.runner import summarize
from chakrascope.runner.analysis import TABLES, analyse_run, joined_operators, operators_text
from chakrascope.runner.analysis._operators import OperatorRate, operator_rates, reach_in_tf32, reaches_of
from chakrascope.runner.chips import chip_of_device, find_chip

KINDS = ("compute", "host")


def run_of(folder, program):
    return analyse_run(study_of(folder, program))


@pytest.fixture
def bert(data_dir):
    return convert_files(None, str(data_dir / "converter/kineto/bert_small_h100.json.gz"), None)


def row_of(table, operator, arguments):
    return table[(table["operator"] == operator) & (table["arguments"] == arguments)].iloc[0]


def test_gemm_rates_match_another_tool(bert, tmp_path):
    """FLOPs, bytes, time, TFLOP/s and TB/s of TraceLens's report of this trace."""
    table = TABLES["operators"](run_of(tmp_path, bert))
    row = row_of(table, "aten::addmm", "bf16[512] [141,512] [512,512]")
    assert row["calls"] == 17
    assert row["flops"] == pytest.approx(0.0739968e9, rel=0.01)
    assert row["size_bytes"] == pytest.approx(0.7763671875 * 2**20, rel=0.01)
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
        memory = row["calls"] * row["size_bytes"] / chip.memory_bytes_per_s * 1e9
        assert row["roofline_share"] == pytest.approx(max(compute, memory) / row["time_ns"])
        assert row["bound"] == ("compute" if compute > memory else "memory")
    assert "Peaks of NVIDIA H100 SXM 80 GB: FP8 1,979" in operators_text(table)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("", "The trace does not name the chip"),
        ("ABC 1", "The peaks of the chip 'ABC 1' are unknown"),
    ],
)
def test_without_peaks_there_is_no_share(bert, tmp_path, device, said):
    bert.metadata["chips"] = {"0": device}
    table = TABLES["operators"](run_of(tmp_path, bert))
    assert table["roofline_share"].isna().all()
    assert set(table["bound"]) == {""}
    assert said in operators_text(table)
    assert row_of(table, "aten::addmm", "bf16[512] [141,512] [512,512]")["reached"].endswith(" TFLOP/s")


def test_operators_without_shapes_have_missing_figures_and_copies_no_operations(bert, tmp_path):
    for row in bert.metadata["operators"]["kinds"]:
        if row[0] == "aten::addmm":
            row[1] = ""
    run = run_of(tmp_path, bert)
    for table in (TABLES["operators"](run), joined_operators(TABLES["operators"](run))):
        unknown, modelled = table[table["kind"] == ""], table[table["kind"] != ""]
        assert "aten::addmm" in set(unknown["operator"])
        assert unknown[["flops", "size_bytes", "tflops_per_s", "tb_per_s"]].isna().all(axis=None)
        assert modelled[["flops", "size_bytes", "tb_per_s"]].notna().all(axis=None)
        assert (table.loc[table["kind"] == "copy", "flops"] == 0).all()


@pytest.mark.parametrize(
    ("changed", "noted"),
    [
        ({}, False),
        ({1: "", 3: ""}, True),
        ({1: ""}, False),  # it has shapes, but no model
        ({0: "mine::product", 1: "", 3: ""}, False),  # shapes would not give it a model
    ],
)
def test_note_requests_shapes_if_useful(bert, tmp_path, changed, noted):
    for row in bert.metadata["operators"]["kinds"]:
        if row[0] == "aten::addmm":
            for column, value in changed.items():
                row[column] = value
    run = run_of(tmp_path, bert)
    for kind in KINDS:
        advised = dataclasses.replace(run._advised, half_kinds_ns=dict.fromkeys(KINDS, 1) | {kind: 1 << 40})
        notes = summarize(run.result, run.workload, run.path, advised).qualifiers
        assert any("record_shapes=True" in line for line in notes) == (noted and kind == "compute")


def test_ranks_are_joined_for_people(bert, tmp_path):
    known = bert.metadata["operators"]["ranks"]
    bert.metadata["operators"]["ranks"] = known | {"1": known["0"]}
    bert.metadata["chips"] |= {"1": bert.metadata["chips"]["0"]}
    table = TABLES["operators"](run_of(tmp_path, bert))
    joined = joined_operators(table)
    assert len(table) == 2 * len(joined)
    assert joined["time_ns"].sum() == table["time_ns"].sum()
    assert joined["share"].sum() == pytest.approx(1)
    one = joined_operators(table[table["rank"] == 1])
    assert one["tflops_per_s"].tolist() == pytest.approx(joined["tflops_per_s"].tolist())


def test_the_command_prints_people_the_sentences_and_others_all_rows(bert, tmp_path, capsys):
    run = run_of(tmp_path, bert)
    assert command_line.run("summary", str(run.study.path), "--view", "operators") == 0
    printed = capsys.readouterr().out
    assert "of the time is spent in operators with a cost model" in printed
    assert "TFLOP/s" in printed
    assert command_line.run("summary", str(run.study.path), "--view", "operators", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(TABLES["operators"](run))


def test_a_workload_without_traces_has_no_operators(tmp_path, capsys):
    run = run_of(tmp_path, workload([comp(0, 500)]))
    assert TABLES["operators"](run).empty
    assert command_line.run("summary", str(run.study.path), "--view", "operators") == BackendError.exit_code
    assert "has no operators: it was not converted from traces" in capsys.readouterr().err


def test_a_chip_is_found_by_the_name_of_its_device():
    assert chip_of_device("AMD Instinct MI300X").name == "mi300x"
    assert chip_of_device("NVIDIA H100 PCIe").name == "h100-pcie"
    assert chip_of_device("NVIDIA A100 80GB PCIe").memory_bytes_per_s == 1.935e12
    assert chip_of_device("NVIDIA B200").name == "b200"
    assert chip_of_device("NVIDIA GH200 480GB").name == "gh200"
    assert chip_of_device("Tesla T4").peak("fp16") == 65e12
    assert chip_of_device("Tesla V100-DGXS-32GB").name == "v100"
    assert chip_of_device("NVIDIA A10").name == "a10"
    assert chip_of_device("NVIDIA A2") is None
    assert chip_of_device("") is None


def rate(operator, kind, size, time_ns, **more):
    """Return a rate of 10 calls that each move *size* bytes, or do as many operations."""
    by_operations = kind in ("gemm", "convolution", "attention")
    flops, moved = (size, 1) if by_operations else (0, size)
    facts = {"rank": 0, "chip": "", "precision": "bf16", "arguments": f"bf16[{size}]", "kernels": 10} | more
    return OperatorRate(
        operator=operator, kind=kind, flops=flops, size_bytes=moved, calls=10, time_ns=time_ns, **facts
    )


def test_an_operator_is_held_against_the_fastest_of_its_class_and_size():
    slow = rate("aten::mul", "elementwise", 1_000, 4_000)
    found = reaches_of([slow, rate("aten::add", "elementwise", 1_500, 2_000)])
    assert set(found) == {"aten::mul"}
    assert found["aten::mul"].times == pytest.approx(3)
    assert found["aten::mul"].how.startswith("bf16[1000] reaches 2.5 GB/s, aten::add bf16[1500] 7.5 GB/s: ")


@pytest.mark.parametrize(
    "other",
    [
        rate("aten::add", "elementwise", 2_500, 2_000),  # larger
        rate("aten::add", "elementwise", 400, 200),  # smaller
        rate("aten::add", "elementwise", 1_000, 3_800),  # hardly faster
        rate("aten::add", "elementwise", 1_000, 1_000, chip="another"),
        rate("aten::embedding", "embedding", 1_000, 1_000),
        rate("aten::mm", "gemm", 1_000, 1_000),
        rate("aten::unique", "", 1_000, 1_000),
    ],
)
def test_what_is_not_comparable_is_no_evidence(other):
    assert "aten::mul" not in reaches_of([rate("aten::mul", "elementwise", 1_000, 4_000), other])


def test_products_are_compared_at_the_same_precision():
    product = rate("aten::mm", "gemm", 1_000, 4_000)
    assert not reaches_of([product, rate("aten::addmm", "gemm", 1_000, 1_000, precision="fp8")])
    assert reaches_of([product, rate("aten::addmm", "gemm", 1_000, 1_000)])["aten::mm"].times == 4


def test_only_the_slow_shapes_of_an_operator_count():
    rates = [rate("aten::mul", "elementwise", size, time) for size, time in ((1_000, 4_000), (1_001, 2_000))]
    assert reaches_of(rates)["aten::mul"].times == pytest.approx(6_000 / 4_000, rel=0.01)


def test_nothing_is_promised_above_the_roofline():
    chip = "NVIDIA H100 80GB HBM3"  # 3.35 TB/s
    slow = rate("aten::mul", "elementwise", 3_350_000, 20_000, chip=chip)
    cached = rate("aten::add", "elementwise", 3_350_000, 2_000, chip=chip)
    assert "aten::mul" not in reaches_of([slow, cached])
    streaming = rate("aten::add", "elementwise", 3_350_000, 12_500, chip=chip)  # 80 %
    assert reaches_of([slow, cached, streaming])["aten::mul"].times == pytest.approx(1.6)


def test_a_product_bound_by_memory_is_not_held_against_one_that_moves_less():
    """Without the chip's peaks, the bytes of matmuls with equal operations must also be similar."""
    thin = dataclasses.replace(rate("aten::mm", "gemm", 1_000, 4_000), size_bytes=5_000)
    square = dataclasses.replace(rate("aten::addmm", "gemm", 1_000, 1_000), size_bytes=100)
    assert not reaches_of([thin, square])
    alike = dataclasses.replace(square, size_bytes=4_000)
    assert reaches_of([thin, square, alike])["aten::mm"].times == 4


A100 = "NVIDIA A100-SXM4-80GB"  # 19.5 TFLOP/s of FP32, 156 of TF32, 2.039 TB/s
SINGLE = ["ampere_sgemm_128x64_nn", "cutlass_80_simt_sgemm_256x128_8x4_nt_align1"]


def product(time_ns=1_000_000, **more):
    """Return the rate of matmuls that take 0.8 ms at the FP32 peak of an A100."""
    return rate("aten::mm", "gemm", 1_560_000_000, time_ns, **({"chip": A100, "precision": "fp32"} | more))


def test_single_precision_near_the_peak_could_be_tf32():
    found = reach_in_tf32([product()], SINGLE)
    assert found.times == pytest.approx(8)
    assert found.how.startswith(
        "bf16[1560000000] reaches 15.6 TFLOP/s (80.0 % of the roofline) in FP32: TF32 "
    )
    assert "rounded from 23 to 10 bits of mantissa" in found.how
    bound_by_memory = dataclasses.replace(product(), size_bytes=101_950_000)  # 0.5 ms
    assert reach_in_tf32([bound_by_memory], SINGLE).times == pytest.approx(2)


@pytest.mark.parametrize(
    ("own", "kernels"),
    [
        (product(), ["ampere_tf32_s1688gemm_128x128"]),
        (product(), ["cutlass_80_tensorop_s1688gemm_128x128"]),
        (product(), [*SINGLE, "another"]),
        (product(4_000_000), SINGLE),  # far from the peak, so bound by its size
        (product(precision="bf16"), SINGLE),
        (product(chip="Tesla V100-SXM2-32GB"), SINGLE),  # has no TF32
        (product(chip=""), SINGLE),
    ],
)
def test_no_evidence_for_tf32(own, kernels):
    assert reach_in_tf32([own], kernels) is None


def test_advice_on_tf32_has_a_simulated_gain(tmp_path):
    program = workload([comp(0, 1_000_000, name="ampere_sgemm_128x64_nn", operator="aten::mm", stream=1007)])
    program = measured(program, [product()])
    program = dataclasses.replace(program, metadata={**program.metadata, "chips": {"0": A100}})
    (item,) = run_of(tmp_path, program).summary.advice
    assert (item.gain_ns, item.is_bound) == (875_000, False)
    assert "allow_tf32" in item.how


def measured(program, rates):
    """Return *program* with the facts on operators in its trace."""
    kinds = [
        [one.operator, one.kind, one.precision, one.arguments, one.flops, one.size_bytes, 0] for one in rates
    ]
    figures = [[number, one.calls, one.kernels, one.time_ns] for number, one in enumerate(rates)]
    operators = {"kinds": kinds, "ranks": {"0": figures}}
    return dataclasses.replace(
        program, metadata={**program.metadata, "operators": operators, "chips": {"0": ""}}
    )


def test_advice_has_evidence_or_is_not_given(tmp_path):
    on_device = {"stream": 1007}
    program = workload([
        comp(0, 4_000_000, operator="aten::mul", **on_device),
        comp(1, 1_000_000, (0,), operator="aten::add", **on_device),
        comp(2, 5_000_000, (1,), operator="aten::mm", **on_device),
    ])  # fmt: skip
    rates = [
        rate("aten::mul", "elementwise", 1_000, 4_000_000),
        rate("aten::add", "elementwise", 1_000, 1_000_000),
        rate("aten::mm", "gemm", 1_000, 5_000_000),
    ]
    (item,) = run_of(tmp_path, measured(program, rates)).summary.advice
    assert (item.what, item.key, item.gain_ns) == ("aten::mul (kernel op0)", "kernel:op0=4", 3_000_000)
    assert "4 times as fast: bf16[1000] reaches" in item.how
    plain = run_of(tmp_path / "plain", program).summary.advice  # without rates, advice on the dispatch
    assert len(plain) == 3


@pytest.mark.parametrize(
    "known",
    [
        None,
        [],
        {"kinds": []},
        {"kinds": [], "ranks": {"0": [[0, 1, 1, 5]]}},
        {"kinds": [["a", "gemm", "", "", 1, 1]], "ranks": {"0": [[0, 1, 1, 5]]}},
        {"kinds": [["a", "gemm", "", "", 1, 1, 1]], "ranks": {"x": [[0, 1, 1, 5]]}},
    ],
)
def test_odd_metadata_counts_as_absent(known):
    assert operator_rates({"operators": known}) == []
