"""Operation counts agree with torch.utils.flop_counter; bytes with hand-computed cases."""

import csv
from pathlib import Path

import pytest
from gloo_thread import Thread, write_trace_set
from kineto_trace import KinetoTrace

from chakrascope.converter import convert, convert_files
from chakrascope.converter import kernels as patterns
from chakrascope.converter.building._costs import operator_cost, returned_shapes
from chakrascope.converter.kernels import function_name, kernel_pattern, read_patterns
from chakrascope.converter.readers import HostOp, kernel_width, precision_of, read_host_trace, short_type
from chakrascope.errors import ConfigError
from chakrascope.support import KERNEL_PATTERNS

torch = pytest.importorskip("torch")


def _models():
    from torch import nn

    def transposed():
        return nn.ConvTranspose2d(3, 5, 3, stride=2)(torch.randn(2, 3, 7, 7, requires_grad=True))

    return {
        "linear": lambda: nn.Linear(32, 48)(torch.randn(5, 6, 32, requires_grad=True)),
        "bmm": lambda: torch.bmm(torch.randn(3, 4, 5, requires_grad=True), torch.randn(3, 5, 7)),
        "conv": lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1)(
            torch.randn(2, 3, 17, 17, requires_grad=True)
        ),
        "conv1d": lambda: nn.Conv1d(4, 6, 5)(torch.randn(2, 4, 30, requires_grad=True)),
        "transposed": transposed,
        "network": lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 10)
        )(torch.randn(2, 3, 8, 8)),
    }


COUNTED = ("mm", "bmm", "addmm", "convolution", "convolution_backward")


@pytest.mark.parametrize("name", sorted(_models()))
def test_operations_are_those_of_the_flop_counter(name, tmp_path):
    from torch.profiler import ExecutionTraceObserver
    from torch.utils.flop_counter import FlopCounterMode

    function = _models()[name]
    with FlopCounterMode(display=False) as counter:
        function().sum().backward()
    observer = ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "et.json"))
    observer.start()
    function().sum().backward()
    observer.stop()
    observer.unregister_callback()
    host = read_host_trace(tmp_path / "et.json")
    counted = sum(operator_cost(op)[0] for op in map(host.operator, host.records.tolist()) if _is_counted(op))
    assert counted == counter.get_total_flops() > 0


def test_attention_is_counted_as_by_the_flop_counter():
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    query, key, value = [2, 4, 16, 8], [2, 4, 32, 8], [2, 4, 32, 12]
    out = [2, 4, 16, 12]
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert operator_cost(_op(name, [query, key, value], [out]))[0] == sdpa_flop_count(query, key, value)
    backward = operator_cost(_op(f"{name}_backward", [out, query, key, value], [query, key, value]))[0]
    assert backward == sdpa_backward_flop_count(out, query, key, value)


def _is_counted(op):
    return op.name.removeprefix("aten::") in COUNTED


def _op(name, shapes, outputs, inputs=(), schema=""):
    return HostOp(name, list(inputs), [], schema, shapes=shapes, output_shapes=outputs)


@pytest.mark.parametrize(
    ("op", "operations"),
    [
        (_op("aten::addmm", [[48], [30, 32], [32, 48]], [[30, 48]]), 2 * 30 * 32 * 48),
        (
            _op("aten::_flash_attention_forward", [[2, 16, 4, 8]] * 3, [[2, 16, 4, 8]]),
            2 * 2 * 4 * 16 * 16 * 16,
        ),
        (
            _op("aten::_scaled_dot_product_flash_attention_backward", [[2, 4, 16, 8]] * 4, []),
            2 * 128 * 16 * 40,
        ),
        (_op("aten::native_layer_norm", [[8, 64, 128]], [[8, 64, 128]]), 8 * 65536),
        (_op("aten::_foreach_add_", [[[10], [20]], [[10], [20]]], []), 30),
        # PyTorch 1.9: the input, the gradient of the output, the weight; then each gradient by itself.
        (_op("aten::cudnn_convolution_backward", [[2, 4, 8, 8], [2, 6, 6, 6], [6, 4, 3, 3]], []), 2 * 31104),
        # cuDNN's argument for its benchmark has the position of other convolutions' argument `transposed`.
        (
            _op(
                "aten::cudnn_convolution_backward",
                [[2, 4, 8, 8], [2, 6, 3, 3], [6, 4, 3, 3]],
                [],
                ["", "", "", [0, 0], [2, 2], [1, 1], 1, True, False, True, [True, True]],
            ),
            2 * 7776,
        ),
        (
            _op(
                "aten::cudnn_convolution",
                [[2, 4, 8, 8], [6, 4, 3, 3]],
                [[2, 6, 3, 3]],
                ["", "", [0, 0], [2, 2], [1, 1], 1, True, False, True],
            ),
            7776,
        ),
        (_op("aten::cudnn_convolution_backward_input", [[], [2, 6, 6, 6], [6, 4, 3, 3]], []), 31104),
        (
            _op(
                "aten::cudnn_convolution_backward_weight",
                [[], [2, 6, 6, 6], [2, 4, 8, 8]],
                [],
                [[6, 4, 3, 3]],
            ),
            31104,
        ),
        (_op("aten::cudnn_convolution_backward_weight", [[], [2, 6, 6, 6], [2, 4, 8, 8]], []), 1),
        (_op("aten::view", [[8, 8]], [[64]]), 1),
        (_op("aten::copy_", [[8, 8], [8, 8]], [[8, 8]]), 1),
        (_op("aten::mm", ["odd"], []), 1),
    ],
)
def test_operations_of_one_operator(op, operations):
    assert operator_cost(op)[0] == operations


def test_an_elementwise_operator_that_converts_a_scalar_has_its_own_cost(tmp_path):
    thread = Thread(0)
    thread.op("aten::mul", 1_000, 2_000, 1)
    thread.op("aten::copy_", 1_100, 1_200, 2, length=1)
    entry = thread.write(tmp_path, [(1_000, 3_000)]) | {"process_groups": []}
    write_trace_set(tmp_path, [entry])
    nodes = convert(tmp_path, step=0).graphs[0].nodes
    sizes = nodes.groupby("operator")["tensor_size_bytes"].max()
    assert (sizes["aten::mul"], sizes["aten::copy_"]) == (2 * 4096, 1)


def test_bytes_count_what_is_read_and_written():
    weight, index, row = [1, 2, 0, 128000, 4, "cpu"], [3, 4, 0, 512, 8, "cpu"], [5, 6, 0, 65536, 4, "cpu"]
    add = HostOp("aten::add", [row, row], [row], "")
    assert operator_cost(add)[1] == 3 * 65536 * 4
    embedding = HostOp("aten::embedding", [weight, index], [row], "")
    assert operator_cost(embedding)[1] == 2 * 65536 * 4 + 512 * 8
    given = HostOp("aten::mul", [row, row, row], [row], "mul.out(Tensor self, Tensor other, Tensor(a!) out)")
    assert operator_cost(given)[1] == 3 * 65536 * 4
    in_place = HostOp("aten::_foreach_mul_", [[row, row]], [], "_foreach_mul_(Tensor(a!)[] self)")
    assert operator_cost(in_place)[1] == 4 * 65536 * 4


@pytest.mark.parametrize(
    ("name", "shapes", "values", "returned"),
    [
        ("aten::mm", [[4, 8], [8, 3]], [], [4, 3]),
        ("aten::baddbmm", [[2, 4, 3], [2, 4, 8], [2, 8, 3]], [], [2, 4, 3]),
        ("aten::mv", [[4, 8], [8]], [], [4]),
        ("aten::linear", [[5, 2, 8], [3, 8], [3]], [], [5, 2, 3]),
        ("aten::embedding", [[1000, 16], [4, 7]], [], [4, 7, 16]),
        ("aten::index_select", [[1000, 16], [], [7]], [0, 0, 0], [7, 16]),
        ("aten::index_select", [[4, 1000], [], [7]], [0, 1, 0], [4, 7]),
        ("aten::convolution", [[2, 3, 9, 9], [5, 3, 3, 3]], [0, 0, 0, [2, 2], [1, 1], [1, 1]], [2, 5, 5, 5]),
        ("aten::cudnn_convolution", [[2, 3, 9], [5, 3, 3]], [0, 0, [0], [3], [1]], [2, 5, 3]),
        ("aten::cudnn_convolution", [[2, 3, 9], [5, 3, 3]], [], [2, 5, 9]),
        (
            "aten::_slow_conv2d_forward",
            [[2, 99, 9, 9], [99, 99, 3, 3]],
            [0, 0, [3, 3], 0, [2, 2], [1, 1]],
            [2, 99, 5, 5],
        ),
        ("aten::some_convolution", [[2, 99, 9, 9], [99, 99, 3, 3]], [], [2, 99, 9, 9]),
        ("aten::cat", [[[2, 3], [4, 3]], []], [], [18]),
        ("aten::relu", [[2, 3]], [], [2, 3]),
        ("fbgemm::embedding_codegen_lookup", [[10_000, 64]], [], []),
        ("aten::mm", [[4, 8]], [], [4, 8]),
        ("aten::ones", [], [], []),
    ],
)
def test_what_an_operator_returns_follows_from_its_arguments(name, shapes, values, returned):
    assert returned_shapes(name, shapes, values) == [returned]


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (3, 2, 2)])
def test_convolutions_return_what_torch_returns(stride, padding, dilation):
    source, weight = torch.zeros(2, 4, 17, 13), torch.zeros(6, 4, 3, 5)
    output = torch.nn.functional.conv2d(source, weight, None, stride, padding, dilation)
    values = [None, None, None, [stride], [padding], [dilation]]
    shapes = [list(source.shape), list(weight.shape)]
    assert returned_shapes("aten::conv2d", shapes, values) == [list(output.shape)]


@pytest.mark.parametrize(
    ("name", "values", "share"),
    [
        ("aten::_scaled_dot_product_flash_attention", [0, 0, 0, 0.0, True], 0.5),
        ("aten::_scaled_dot_product_flash_attention", [0, 0, 0, 0.0, False], 1),
        ("aten::_scaled_dot_product_efficient_attention", [0, 0, 0, 0, True, 0.0, True], 0.5),
        ("aten::_scaled_dot_product_cudnn_attention", [0, 0, 0, 0, True, 0.0, True], 0.5),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", [0, 0, 0, 0.0], 1),
    ],
)
def test_causal_attention_leaves_half_of_the_pairs_out(name, values, share):
    shapes = [[2, 4, 16, 8]] * 3
    assert operator_cost(_op(name, shapes, [], values))[0] == share * 2 * 128 * 16 * 16


def test_a_causal_mask_leaves_out_half_of_the_square_of_the_shorter_sequence():
    shapes = [[1, 1, 4, 8], [1, 1, 16, 8], [1, 1, 16, 8]]
    op = _op("aten::_scaled_dot_product_flash_attention", shapes, [], [0, 0, 0, 0.0, True])
    assert operator_cost(op)[0] == 2 * (4 * 16 - 4 * 4 // 2) * 16


def test_packed_sequences_count_as_equally_long():
    shapes = [[64, 4, 8]] * 3 + [[5], [5]]
    op = _op("flash_attn::_flash_attn_varlen_forward", shapes, [])
    assert operator_cost(op)[0] == 4 * 2 * 4 * 16 * 16 * 16


# FLOPs and bytes of operators, from the arguments that a device trace recorded.


HALF = "c10::BFloat16"
FIELDS = ("operator", "kind", "precision", "arguments", "flops", "read", "written", "calls", "kernels", "ns")


def traced(tmp_path, calls, **more):
    """Write and convert a trace of *calls*: name, shapes, types, values, and kernels with their durations."""
    trace, time = KinetoTrace(), 1_000.0
    for number, (name, shapes, types, values, *kernels) in enumerate(calls, 1):
        called = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}
        trace.op(name, time, 50.0, number, **called)
        for place, (kernel, duration, *other) in enumerate(kernels):
            category, size = other or ("kernel", 0)
            call = trace.call("cudaLaunchKernel", time + 5 + place, 1.0)
            trace.work(kernel, time + 100, duration, call, category=category, bytes=size)
            time += duration
        time += 200.0
    path = trace.write(tmp_path / "trace.json", **more)
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


def test_a_device_with_another_number_is_the_only_chip_of_the_trace(tmp_path):
    # ROCm's device 2 is PyTorch's device 0 on a machine with two CPUs.
    call = ("aten::relu", [[8]], ["float"], [""], ("k", 5.0))
    listed = [{"id": number, "name": "AMD Instinct MI300X"} for number in (3, 4)]
    _, metadata = traced(tmp_path, [call], deviceProperties=listed)
    assert metadata["chips"] == {"0": "AMD Instinct MI300X"}
    other = {"id": 5, "name": "AMD Instinct MI210"}
    _, metadata = traced(tmp_path, [call], deviceProperties=[*listed, other])
    assert metadata["chips"] == {"0": ""}


def test_a_convolution_without_a_recorded_stride_has_no_model(tmp_path):
    call = ("aten::cudnn_convolution", [[2, 4, 8, 8], [6, 4, 3, 3]], ["float", "float"])
    bare = only(tmp_path, *call, [], ("k", 5.0))
    assert (bare["kind"], bare["ns"]) == ("", 5_000)
    values = ["", "", "[0, 0]", "[2, 2]", "[1, 1]", "1", "True", "False", "True"]
    known = only(tmp_path, *call, values, ("k", 5.0))
    assert (known["kind"], known["flops"]) == ("convolution", 7776)


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


def test_one_byte_holds_two_numbers_of_four_bits(tmp_path):
    types = ["c10::Float4_e2m1fn_x2"] * 2 + ["c10::Float8_e4m3fn"] * 2
    product = ("aten::_scaled_mm", [[64, 16], [16, 128], [64, 2], [128, 2]], types, [""] * 4)
    row = only(tmp_path, *product, ("k", 5.0))
    assert (row["flops"], row["read"], row["precision"]) == (2 * 64 * 32 * 128, 48 * 64, "nvfp4")


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
    packed = ["c10::Float4_e2m1fn_x2"] * 2
    assert precision_of([*packed, "c10::Float8_e4m3fn", "c10::BFloat16"]) == "nvfp4"
    assert precision_of([*packed, "c10::Float8_e8m0fnu", "c10::BFloat16"]) == "mxfp4"
    assert short_type("GenericList[Tensor(c10::Half),Tensor(c10::Half)]") == "fp16"
    assert (
        kernel_width("multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2>>")
        == 4
    )
    assert kernel_width("memset") == 0


# The table of communication kernels: real names, patterns of users, and invalid files.


# Kernel names from public traces and from the libraries' sources; computation kernels have no library.
with (Path(__file__).parents[1] / "data/kernel_names.tsv").open(encoding="utf-8") as _lines:
    NAMES = [
        (row["library"], row["operation"], row["kernel"]) for row in csv.DictReader(_lines, delimiter="\t")
    ]
COMMUNICATING = [row for row in NAMES if row[0]]


@pytest.mark.parametrize(("library", "operation", "name"), COMMUNICATING)
def test_kernels_that_communicate_are_known_by_their_names(library, operation, name):
    found = kernel_pattern(name)
    assert found is not None
    assert (found.library, found.operation, found.kind) == (library, operation, "communication")


@pytest.mark.parametrize("name", ["", "<<<", *(name for library, _, name in NAMES if not library)])
def test_compute_kernels_are_not_communication(name):
    assert kernel_pattern(name) is None


def test_every_library_that_ships_names_its_source_and_version_and_has_a_real_name():
    shipped = read_patterns(patterns._SHIPPED)
    assert all(pattern.source.startswith("https://") and pattern.version for pattern in shipped)
    assert {pattern.library for pattern in shipped} == {library for library, _, _ in COMMUNICATING}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void a::b<int, c<d>>::run<e>(f<g>, h)", ("a::b", "run")),
        ("triton_poi_fused_add_0.kd", ("", "triton_poi_fused_add_0")),
        ("void (anonymous namespace)::k<1>(int)", ("anonymous", "k")),
        ("void a::cut<b<c", ("a", "cut")),
        ("x" * 10_000, ("", "x" * 2_000)),
    ],
)
def test_the_function_of_a_kernel_is_read_from_its_whole_name(name, function):
    assert function_name(name) == function


OWN = """
- library: ours
  kernels:
    - {name: 'ring_exchange_.*', operation: send_recv}
    - {name: 'ncclDevKernel_Generic', operation: collective, kind: compute}
"""


def test_patterns_of_a_user_go_first(tmp_path, monkeypatch):
    assert kernel_pattern("ring_exchange_v2<4>(int)") is None
    (tmp_path / "own.yml").write_text(OWN)
    monkeypatch.setenv(KERNEL_PATTERNS, str(tmp_path / "own.yml"))
    own = kernel_pattern("ring_exchange_v2<4>(int)")
    assert own is not None
    assert (own.library, own.operation) == ("ours", "send_recv")
    generic = kernel_pattern("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)")
    assert generic is not None
    assert generic.kind == "compute"
    assert kernel_pattern("kernel_dispatch_token") is not None


WRONG = [
    ("library: x", "Expected `array`"),
    ("- {library: x, kernels: [{name: '(', operation: a}]}", "is not a regular expression"),
    ("- {library: x, kernels: [{name: 'a{99999999999}', operation: a}]}", "is not a regular expression"),
    ("- {library: x, kernels: [{name: 3, operation: a}]}", r"`\$\[0\].kernels\[0\].name`"),
    ("- {library: x, kernels: [{operation: a}]}", "missing required field `name`"),
    ("- {library: x, kernels: [{name: a, operation: All Reduce}]}", "the operation 'All Reduce' must be"),
    ("- {library: x, kernels: [{name: a, operation: a, kind: idle}]}", "Invalid enum value 'idle'"),
    ("- {library: x, kernels: [{name: a, operation: a, colour: b}]}", "unknown field `colour`"),
    ("- {library: x, kernels: [{name: '', operation: a}]}", "0 characters"),
    (f"- {{library: x, kernels: [{{name: {'a' * 2000}, operation: a}}]}}", "2,000 characters"),
    ("- library: x\n  kernels:\n" + "  - {name: a, operation: a}\n" * 101, "more than 100 kernels"),
    ("- {library: x, library: y, kernels: []}", "the key 'library' occurs twice"),
    ("#" * (1 << 20) + "#\n", "larger than 1 MiB"),
    ("#" + "é" * 600_000, "larger than 1 MiB"),
    ("[" * 5_000, "nested too deeply"),
    ("- {library: x, kernels: [", "is not valid YAML"),
    ("\x00", "is not valid YAML"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_invalid_file_is_named_with_its_error(tmp_path, monkeypatch, text, message):
    path = tmp_path / "own.yml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv(KERNEL_PATTERNS, str(path))
    monkeypatch.setattr(patterns, "_MAX_PATTERNS", 100)
    with pytest.raises(ConfigError, match=message) as refused:
        kernel_pattern("gemm")
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv(KERNEL_PATTERNS, str(tmp_path / "absent.yml"))
    with pytest.raises(ConfigError, match=KERNEL_PATTERNS):
        kernel_pattern("gemm")


# Operators of inference engines have FLOPs and bytes if annotations and allocations determine them.

VLLM = "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)"
DECODING = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
QUERIES = ("vllm::unified_attention_with_output", [[32, 64, 64], [32, 8, 64], [32, 8, 64], [32, 64, 64]])
LAYER = ("vllm::moe_forward", [[32, 3072], [32, 32]])


def converted(tmp_path, *calls, kernel="kernel"):
    """Return the rows of the table of *calls*: annotation, operator, shapes, types, allocated shapes."""
    trace = KinetoTrace()
    for number, (annotation, name, shapes, types, allocated) in enumerate(calls, 1):
        time = 1_000.0 * number
        if annotation:
            trace.add("user_annotation", annotation, time, 90.0)
        called = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": [""] * len(shapes)}
        trace.op(name, time + 5, 50.0, 2 * number, **called)
        for place, shape in enumerate(allocated):
            asked = {"Input Dims": [[]], "Input type": ["ScalarList"], "Concrete Inputs": [shape]}
            trace.op("aten::empty", time + 6 + place, 0.5, **asked)
        trace.launch((time + 40, 1.0), [(time + 60, 10.0)], work=kernel)
    path = trace.write(tmp_path / "trace.json")
    table = convert_files(None, str(path), None, step="all").metadata["operators"]
    fields = ("operator", "kind", "precision", "arguments", "flops", "read", "written", "calls")
    return [
        dict(zip(fields, [*table["kinds"][number], calls], strict=True))
        for number, calls, *_ in table["ranks"]["0"]
    ]


def attended(tmp_path, annotation, name=QUERIES[0], shapes=QUERIES[1]):
    (row,) = converted(tmp_path, (annotation, name, shapes, [HALF] * len(shapes), []))
    return row["kind"], row["flops"], row["read"] + row["written"]


def test_decoding_attends_all_keys_of_the_batch(tmp_path):
    # TraceLens reports these values for this call in its trace vllm_decode_full.
    assert attended(tmp_path, DECODING) == ("attention", 902_529_024, 113_340_416)


def test_a_prefill_attends_half_of_its_own_square(tmp_path):
    shapes = [[8192, 64, 64], [8192, 8, 64], [8192, 8, 64], [8192, 64, 64]]
    assert attended(tmp_path, VLLM, shapes=shapes) == ("attention", 65_010_180_096, 222_115_840)


def test_the_cache_may_have_pages_and_the_range_the_number_of_a_layer(tmp_path):
    name = "sglang_profiler::attention_paged_attention_ragged_100"
    pages = [[32, 32, 128], [9000], [32, 32, 128], [835874, 1, 8, 128], [835874, 1, 8, 128]]
    sums = "step[DECODE bs=32 g_sq=32 g_sqsq=32 g_sqsk=32785 g_sk=32785]"
    assert attended(tmp_path, sums, name, pages) == ("attention", 537_149_440, 134_811_648)


@pytest.mark.parametrize("annotation", ["", "step[DECODE bs=32]", "execute_context_2(64)_generation_0(0)"])
def test_without_sums_of_the_batch_attention_has_no_model(tmp_path, annotation):
    assert attended(tmp_path, annotation)[0] == ""


def test_each_batch_counts_for_itself(tmp_path):
    call = (*QUERIES, [HALF] * 4, [])
    longer = DECODING.replace("55086", "110172")
    rows = converted(tmp_path, (DECODING, *call), (longer, *call), (DECODING, *call))
    assert sorted((row["flops"], row["calls"]) for row in rows) == [(902_529_024, 2), (1_805_058_048, 1)]


def experts(tmp_path, allocated, kernel, layer=LAYER):
    (row,) = converted(tmp_path, ("", *layer, [HALF, HALF], allocated), kernel=kernel)
    return row


def test_a_layer_of_experts_has_the_width_that_it_allocates(tmp_path):
    row = experts(
        tmp_path, ["[32, 3072]", "[1, 128, 2944]", "[1, 1, 128, 3072]"], "_matmul_ogs_bf16xmxfp4_swiglu"
    )
    active = 32 * (1 - (28 / 32) ** 32)
    moved = 2 * 2 * (128 * 2944 + 32 * 3072)
    assert (row["kind"], row["flops"]) == ("experts", 2 * 128 * 3072 * 3 * 2944)
    assert row["read"] + row["written"] == moved + round(active * 3072 * 3 * 2944 * 4.25 / 8)


def test_without_a_gate_the_first_product_is_as_wide_as_its_result(tmp_path):
    assert experts(tmp_path, ["[128, 2944]"], "_matmul_ogs_bf16xbf16")["flops"] == 2 * 128 * 3072 * 2 * 2944


@pytest.mark.parametrize("allocated", [[], ["[32, 3072]"], ["[33, 2944]"], ["no shape"], ["[true]"], ["7"]])
def test_a_layer_that_allocates_no_routed_rows_has_no_model(tmp_path, allocated):
    assert experts(tmp_path, allocated, "_matmul_ogs_swiglu")["kind"] == ""


def test_experts_cost_the_same_by_their_weights_and_by_their_layer(tmp_path):
    layer = experts(tmp_path, ["[128, 2944]"], "_matmul_ogs_bf16_swiglu")
    shapes = [[32, 3072], [32, 5888, 3072], [32, 3072, 2944], [32, 4], [32, 4]]
    types = [HALF, HALF, HALF, "float", "int"]
    (row,) = converted(tmp_path, ("", "vllm::outplace_fused_experts", shapes, types, []))
    costs = ("kind", "flops", "read", "written")
    assert [row[key] for key in costs] == [layer[key] for key in costs]


def test_packed_weights_have_the_work_of_their_elements_and_the_bytes_of_their_packs(tmp_path):
    shapes = [[32, 3072], [32, 5888, 1536], [32, 3072, 1472], [32, 4], [32, 4]]
    types = [HALF, "unsigned char", "unsigned char", "float", "int"]
    (row,) = converted(tmp_path, ("", "sglang::inplace_fused_experts", shapes, types, []))
    active = 32 * (1 - (28 / 32) ** 32)
    assert row["flops"] == 2 * 128 * 3072 * 3 * 2944
    assert row["read"] - row["written"] == round(active * 3072 * 3 * 2944 / 2)


@pytest.mark.parametrize("shapes", [[[32, 3072]], [[32], [1], [2], [3], [4]], [[], [], [], [], []]])
def test_experts_of_odd_shapes_have_no_model(tmp_path, shapes):
    (row,) = converted(tmp_path, ("", "aiter::fused_moe_", shapes, [HALF] * len(shapes), []))
    assert row["kind"] == ""
