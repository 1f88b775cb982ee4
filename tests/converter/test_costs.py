"""Operation counts agree with torch.utils.flop_counter; bytes with hand-computed cases."""

import pytest
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import convert
from chakrascope.converter.building._costs import operator_cost, returned_shapes
from chakrascope.converter.readers import HostOp, read_host_trace

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
