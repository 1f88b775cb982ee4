"""Operation counts agree with torch.utils.flop_counter; bytes with hand-computed cases."""

import pytest

from chakrascope.converter.costs import operator_cost
from chakrascope.converter.host_trace import HostOp, read_host_trace

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
    counted = sum(operator_cost(op)[0] for op in host.operators.values() if _is_counted(op))
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


def test_bytes_count_what_is_read_and_written():
    weight, index, row = [1, 2, 0, 128000, 4, "cpu"], [3, 4, 0, 512, 8, "cpu"], [5, 6, 0, 65536, 4, "cpu"]
    add = HostOp("aten::add", [row, row], [row], "")
    assert operator_cost(add)[1] == 3 * 65536 * 4
    embedding = HostOp("aten::embedding", [weight, index], [row], "")
    assert operator_cost(embedding)[1] == 2 * 65536 * 4 + 512 * 8
    in_place = HostOp("aten::_foreach_mul_", [[row, row]], [], "_foreach_mul_(Tensor(a!)[] self)")
    assert operator_cost(in_place)[1] == 4 * 65536 * 4
