"""What operators do and take, from the arguments that a device trace recorded."""

from __future__ import annotations

import json

import pytest

from chakrascope.converter import convert_files
from chakrascope.converter.readers import kernel_width, precision_of, short_type

HALF = "c10::BFloat16"
FIELDS = ("operator", "kind", "precision", "arguments", "flops", "read", "written", "calls", "kernels", "ns")


def traced(tmp_path, calls, **more):
    """Write and convert a trace of *calls*: name, shapes, types, values, and kernels with their durations."""
    events, time = [], 1_000.0
    for number, (name, shapes, types, values, *kernels) in enumerate(calls, 1):
        called = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}
        about = {"Record function id": number, "External id": number}
        common = {"ph": "X", "pid": 1, "tid": 1, "ts": time}
        events.append(common | {"cat": "cpu_op", "name": name, "dur": 50.0, "args": about | called})
        for place, (kernel, duration, *other) in enumerate(kernels):
            cat, size = other or ("kernel", 0)
            ids = {"correlation": 10 * number + place, "External id": number}
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": time + 5 + place, "dur": 1.0}
            events.append(common | launch | {"args": ids})
            work = {"cat": cat, "name": kernel, "pid": 0, "tid": 7, "ts": time + 100, "dur": duration}
            events.append({"ph": "X"} | work | {"args": ids | {"device": 0, "stream": 7, "bytes": size}})
            time += duration
        time += 200.0
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, **more}))
    metadata = convert_files(None, str(path), None).metadata
    known = metadata["operators"]
    rows = [
        dict(zip(FIELDS, [*known["kinds"][number], *figures], strict=True))
        for number, *figures in known["ranks"]["0"]
    ]
    return {row["operator"]: row for row in rows}, metadata


def only(tmp_path, *call):
    rows, _ = traced(tmp_path, [call])
    return next(iter(rows.values()))


def test_calls_with_the_same_arguments_are_a_row(tmp_path):
    product = ("aten::mm", [[64, 32], [32, 16]], [HALF, HALF], ["", ""])
    other = ("aten::relu", [[64, 16]], ["float"], [""])
    calls = [
        (*product, ("gemm", 10.0), ("Memset (Device)", 2.0)),
        (*product, ("gemm", 20.0)),
        (*other, ("k", 5.0)),
    ]
    devices = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    rows, metadata = traced(tmp_path, calls, deviceProperties=devices)
    assert metadata["chips"] == {"0": "NVIDIA H100 80GB HBM3"}
    assert list(rows["aten::mm"].values()) == [
        "aten::mm", "gemm", "bf16", "bf16[64,32] [32,16]", 2 * 64 * 32 * 16, 2 * (64 * 32 + 32 * 16),
        2 * 64 * 16, 2, 3, 32_000,
    ]  # fmt: skip
    assert rows["aten::relu"]["read"] == rows["aten::relu"]["written"] == 4 * 64 * 16


@pytest.mark.parametrize("odd", ["H100", [1], [{"id": "x"}], {"id": 0}, None])
def test_odd_device_properties_count_as_absent(tmp_path, odd):
    call = ("aten::relu", [[8]], ["float"], [""], ("k", 5.0))
    _, metadata = traced(tmp_path, [call], deviceProperties=odd)
    assert metadata["chips"] == {"0": ""}


def test_what_has_no_model_is_listed_without_costs(tmp_path):
    sort = only(tmp_path, "aten::sort", [[8]], ["float"], [""], ("k", 5.0))
    assert (sort["kind"], sort["ns"]) == ("", 5_000)
    bare = only(tmp_path, "aten::add", [], [], [], ("k", 5.0))
    assert bare["kind"] == ""


def test_a_copy_from_the_host_is_no_work_of_the_memory(tmp_path):
    copy = ("aten::copy_", [[64], [64]], ["float", "float"], ["", ""])
    row = only(tmp_path, *copy, ("Memcpy HtoD (Pageable -> Device)", 9.0, "gpu_memcpy", 256))
    assert row["kind"] == "transfer"


def test_tensors_of_a_list_have_the_type_that_the_kernel_names(tmp_path):
    lists = ("aten::cat", [[[4, 8], [4, 8]], []], ["TensorList", "Scalar"], ["", "0"])
    row = only(tmp_path, *lists, ("CatArrayBatchedCopy<OpaqueType<2u>, unsigned>", 5.0))
    assert (row["kind"], row["arguments"]) == ("copy", "2 tensors of [4,8]")
    assert row["read"] + row["written"] == 2 * 2 * 64
    assert only(tmp_path, *lists, ("mystery", 5.0))["kind"] == ""


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values", "read", "written"),
    [
        ("aten::copy_", [[64], [64]], ["float", HALF], ["", ""], 128, 256),
        ("aten::fill_", [[64], []], ["float", "Scalar"], ["", "0"], 0, 256),
        ("aten::add", [[8, 4], [4]], [HALF, "float"], ["", ""], 64 + 16, 128),
        ("aten::mul", [[8, 4], []], [HALF, "double"], ["", ""], 64 + 8, 64),
        ("aten::mul", [[8, 1], [1, 4]], ["float", "float"], ["", ""], 48, 128),
        ("aten::lt", [[8], [8]], ["float", "float"], ["", ""], 64, 8),
        ("aten::sum", [[8, 4], [], []], ["float", "ScalarList", "Scalar"], ["", "[-1]", "True"], 128, 32),
        ("aten::mean", [[8, 4], []], ["float", ""], ["", ""], 128, 4),
        ("aten::embedding", [[100, 16], [5]], [HALF, "long int"], ["", ""], 160 + 40, 160),
        ("aten::mm", [[8, 4], [4, 2], [8, 2]], ["float"] * 3, ["", "", ""], 128 + 32, 64),
        ("sgl_kernel::silu_and_mul", [[8, 4], [8, 8]], [HALF] * 2, ["", ""], 128, 64),
        ("aiter::rmsnorm", [[8, 4], [8, 4], [4]], [HALF] * 3, ["", "", ""], 72, 64),
        ("aiter::rms_norm", [[8, 4], [4]], [HALF] * 2, ["", ""], 72, 64),
        ("triton_poi_fused_add_gelu_1", [[8, 4], [4], []], [HALF, HALF, "Scalar"], ["", "", "32"], 72, 64),
        ("triton_poi_fused_clone_2", [[8, 4], [8, 4], []], [HALF, HALF, "Scalar"], ["", "", "32"], 128, 0),
    ],
)  # fmt: skip
def test_bytes_read_and_written(tmp_path, name, shapes, types, values, read, written):  # noqa: PLR0917
    row = only(tmp_path, name, shapes, types, values, ("k", 5.0))
    assert (row["read"], row["written"]) == (read, written)


def test_gradients_are_written(tmp_path):
    shapes = [[2, 4, 16, 8]] * 5
    name = "aten::_scaled_dot_product_flash_attention_backward"
    attention = only(tmp_path, name, shapes, [HALF] * 5, [""] * 5, ("k", 5.0))
    assert (attention["read"], attention["written"]) == (5 * 2048, 3 * 2048)
    call = (
        [[2, 6, 8, 8], [2, 4, 8, 8], [6, 4, 3, 3], []],
        ["float"] * 3 + ["ScalarList"],
        ["", "", "", "[true, false]"],
    )
    row = only(tmp_path, "aten::convolution_backward", *call, ("k", 5.0))
    assert row["written"] == 4 * 2 * 4 * 64


def test_precision_is_the_narrowest_floating_type():
    assert precision_of(["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float"]) == "fp8"
    assert precision_of(["Tensor(float)", "Int"]) == "fp32"
    assert precision_of(["float"], ["cutlass_80_tensorop_s1688gemm_128x128"]) == "tf32"
    assert precision_of(["long int", "", 3]) == ""
    assert short_type("GenericList[Tensor(c10::Half),Tensor(c10::Half)]") == "fp16"
    assert (
        kernel_width("multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2>>")
        == 4
    )
    assert kernel_width("memset") == 0
