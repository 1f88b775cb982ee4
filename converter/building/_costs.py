"""How many operations an operator performs and how many bytes it moves, from its schema and shapes.

Multiply and add count as two operations, as in ``torch.utils.flop_counter``:

* matrix product m x k by k x n: 2 m k n (times the batch);
* convolution: 2 x output positions x kernel positions x channels in (per group) x channels out; its backward
  the same for each gradient asked for;
* attention: 2 x batch x heads x queries x keys x (width of q + width of v); its backward, which recomputes
  the scores, 2 x batch x heads x queries x keys x (3 x width of q + 2 x width of v);
* everything else a number of operations per element of its largest tensor (`_PER_ELEMENT`, else 1);
* copies, gathers and memory management: none.

Bytes are those of all tensors read and written; a gather reads what it returns, not the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..readers import HostOp, tensors

__all__ = ["counts_whole", "operator_cost", "returned_shape"]

Shape = Sequence[int]
_MOST = 2**62

_MATMULS = {
    # name -> positions of the two factors
    "mm": (0, 1), "bmm": (0, 1), "matmul": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_int_mm": (0, 1),
    "_scaled_mm": (0, 1), "_addmm_activation": (1, 2), "addbmm": (1, 2), "mv": (0, 1), "addmv": (1, 2),
    "dot": (0, 1), "_grouped_mm": (0, 1),
}  # fmt: skip
_LINEARS = frozenset({"linear", "mkldnn_linear", "_linear_pointwise", "_mkl_linear"})
_CONVOLUTIONS = (
    "convolution", "conv1d", "conv2d", "conv3d", "conv_depthwise", "slow_conv", "conv_transpose",
)  # fmt: skip
# Where stride, padding and dilation of forward convolutions stand among their arguments.
_CONVOLUTION_ARGUMENTS = {
    "conv1d": (3, 4, 5), "conv2d": (3, 4, 5), "conv3d": (3, 4, 5), "convolution": (3, 4, 5),
    "_convolution": (3, 4, 5), "convolution_overrideable": (3, 4, 5), "cudnn_convolution": (3, 2, 4),
    "mkldnn_convolution": (4, 3, 5), "miopen_convolution": (4, 3, 5), "_conv_depthwise2d": (4, 5, 6),
    "cudnn_convolution_relu": (3, 4, 5), "cudnn_convolution_add_relu": (5, 6, 7),
}  # fmt: skip
_SDPA = "scaled_dot_product"
_OTHER_ATTENTION = {
    "_flash_attention_forward": (0, 1, 2), "_efficient_attention_forward": (0, 1, 2),
    "_flash_attention_backward": (1, 2, 3), "_efficient_attention_backward": (1, 2, 3),
}  # fmt: skip
# Operators that move data or manage memory without computing.
_MOVES = frozenset({
    "copy_", "_to_copy", "clone", "contiguous", "cat", "_cat", "stack", "_chunk_cat", "fill_", "zero_",
    "zeros", "ones", "full", "empty_like", "index_select", "index", "gather", "embedding", "slice_backward",
    "split_with_sizes_copy", "_foreach_copy_", "chunk_cat", "all_gather_copy_in", "repeat", "roll", "flip",
    "constant_pad_nd", "permute_copy", "select_backward", "index_copy", "_index_put_impl_", "index_put_",
    "scatter_", "_foreach_zero_", "zeros_like", "ones_like", "arange", "pin_memory", "_pin_memory", "one_hot",
    "tril", "triu", "masked_fill_", "where", "masked_fill",
})  # fmt: skip
# Operators that touch no element: they make views, allocate, or ask.
_TOUCHES_NOTHING = frozenset({
    "view", "as_strided", "as_strided_", "reshape", "_reshape_alias", "transpose", "t", "permute", "slice",
    "select", "narrow", "expand", "expand_as", "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "detach",
    "detach_", "alias", "empty", "empty_strided", "resize_", "set_", "split", "split_with_sizes", "chunk",
    "result_type", "resolve_conj", "resolve_neg", "lift_fresh", "is_pinned", "record_stream", "view_as",
    "flatten", "numpy_T", "tensor_split", "unbind", "_unsafe_view", "to", "item", "is_nonzero", "size",
    "empty_like", "new_empty", "wait_tensor", "unfold", "movedim", "_local_scalar_dense", "real", "conj",
})  # fmt: skip
_PER_ELEMENT = {
    "addcmul_": 3, "addcdiv_": 3, "lerp_": 3, "addcmul": 3, "addcdiv": 3, "lerp": 3, "gelu": 8,
    "gelu_backward": 12, "silu": 5, "silu_backward": 8, "sigmoid": 4, "tanh": 5, "_softmax": 5,
    "_softmax_backward_data": 4, "_log_softmax": 5, "_log_softmax_backward_data": 5, "native_layer_norm": 8,
    "native_layer_norm_backward": 14, "_fused_rms_norm": 6, "_fused_rms_norm_backward": 11,
    "native_batch_norm": 8, "cudnn_batch_norm": 8, "miopen_batch_norm": 8, "cudnn_batch_norm_backward": 12,
    "native_batch_norm_backward": 12, "miopen_batch_norm_backward": 12, "native_group_norm": 8,
    "native_group_norm_backward": 14, "native_dropout": 2, "_foreach_addcdiv_": 3, "_foreach_addcmul_": 3,
    "_foreach_lerp_": 3, "_fused_adam_": 14, "_fused_adamw_": 15, "_fused_sgd_": 4, "std": 4, "var": 4,
    "binary_cross_entropy_with_logits": 8, "mse_loss": 3, "smooth_l1_loss": 5, "pow": 2,
}  # fmt: skip


def operator_cost(op: HostOp) -> tuple[int, int]:
    """Return (operations, bytes moved) of *op*, both at least 1, which is what simulators need."""
    name = op.name.rpartition("::")[2]
    if name in _TOUCHES_NOTHING or name.startswith("new_"):
        return 1, 1
    return _counted(_operations(name, op)), _counted(_bytes(name, op))


def _counted(amount: int) -> int:
    """Return *amount*, which simulators need to be positive and to fit 64 bits."""
    return min(max(1, amount), _MOST)


def returned_shape(name: str, shapes: Sequence[Any], values: Sequence[Any]) -> list[int]:
    """Return the shape of what an operator called *name* returns, from those of its arguments.

    *values* are the arguments that are no tensors. What is neither a product nor a convolution nor an
    embedding is taken to return as much as its largest argument, [] if it has none.
    """
    plain = name.rpartition("::")[2]
    try:
        if plain in _MATMULS:
            left, right = (_first([shapes[index]]) for index in _MATMULS[plain])
            return [*left[:-1], *right[1:][-1:]]
        if plain in _LINEARS:
            return [*_first(shapes)[:-1], _first(shapes[1:])[0]]
        if plain == "embedding":
            return [*_first(shapes[1:]), _first(shapes)[-1]]
        if "embedding" in plain:
            return []  # some rows of its largest argument, the table
        if plain in _CONVOLUTION_ARGUMENTS:
            return _convolved(_first(shapes), _first(shapes[1:]), plain, values)
    except (IndexError, TypeError, ValueError):
        pass  # shapes that such an operator cannot have
    candidates = [list(shape) for shape in shapes if _is_shape(shape)]
    candidates += [
        [sum(math.prod(shape) for shape in listed if _is_shape(shape))]
        for listed in shapes
        if isinstance(listed, list) and listed and isinstance(listed[0], list)
    ]
    return max(candidates, key=math.prod, default=[])


def _convolved(source: Shape, weight: Shape, name: str, values: Sequence[Any]) -> list[int]:
    """Return the shape of a convolution's output; without recorded strides, positions are the input's."""
    arguments = [
        values[at] for at in _CONVOLUTION_ARGUMENTS[name] if at < len(values) and _is_shape(values[at])
    ]
    if len(arguments) < len(_CONVOLUTION_ARGUMENTS[name]):
        return [source[0], weight[0], *source[2:]]
    positions = [
        (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, padding, dilation in zip(
            source[2:],
            weight[2:],
            *(_spread(argument, len(source) - 2) for argument in arguments),
            strict=True,
        )
    ]
    return [source[0], weight[0], *positions]


def _spread(argument: Sequence[int], dimensions: int) -> Sequence[int]:
    """Return *argument* for each dimension; one number stands for all."""
    return [*argument] * dimensions if len(argument) == 1 else argument


def counts_whole(name: str) -> bool:
    """Return whether the cost of an operator called *name* includes that of the operators it calls."""
    return _counter(name.rpartition("::")[2]) is not None


def _operations(name: str, op: HostOp) -> int:
    """Return the operations *op*, called *name* without its namespace, performs."""
    counter = _counter(name)
    if counter is not None:
        try:
            return counter(name, op)
        except (IndexError, TypeError, ValueError):
            pass  # shapes that such an operator cannot have: the trace is odd, so count elements
    if name in _MOVES or name.startswith(("split", "_foreach_copy", "embedding")):
        return 0
    return _PER_ELEMENT.get(name, 1) * _largest(op)


def _counter(name: str) -> Callable[[str, HostOp], int] | None:
    """Return the function that counts operators called *name*, None for those counted by element."""
    if name in _MATMULS:
        return _matmul
    if name in _LINEARS:
        return _linear
    if _SDPA in name or name in _OTHER_ATTENTION:
        return _attention
    if any(part in name for part in _CONVOLUTIONS):
        return _convolution
    return None


def _matmul(name: str, op: HostOp) -> int:
    left, right = (_shape(op, index) for index in _MATMULS[name])
    columns = right[-1] if len(right) > 1 else 1
    return 2 * math.prod(left) * columns


def _linear(_: str, op: HostOp) -> int:
    return 2 * math.prod(_shape(op, 0)) * _shape(op, 1)[0]


def _convolution(name: str, op: HostOp) -> int:
    if name.endswith("_backward"):
        output, weight, source = _shape(op, 0), _shape(op, 2), _shape(op, 1)
        asked = op.inputs[-1] if op.inputs and isinstance(op.inputs[-1], list) else [True, True]
        times = sum(bool(gradient) for gradient in asked[:2])
        transposed = len(op.inputs) > 7 and op.inputs[7] is True
    else:
        source, weight, output, times = _shape(op, 0), _shape(op, 1), _first(op.output_shapes), 1
        transposed = "transpose" in name or (len(op.inputs) > 6 and op.inputs[6] is True)
    positions = source if transposed else output
    return times * 2 * positions[0] * math.prod(positions[2:]) * math.prod(weight)


def _attention(name: str, op: HostOp) -> int:
    backward = "backward" in name
    at = _OTHER_ATTENTION.get(name, (1, 2, 3) if backward else (0, 1, 2))
    query, key, value = (_shape(op, index) for index in at)
    if name in _OTHER_ATTENTION:  # batch, sequence, heads, width
        query, key = (_swapped(query), _swapped(key))
    pairs = math.prod(query[:-1]) * key[-2]
    wide, deep = query[-1], value[-1]
    return 2 * pairs * (3 * wide + 2 * deep if backward else wide + deep)


def _swapped(shape: Shape) -> list[int]:
    return [*shape[:-3], shape[-2], shape[-3], shape[-1]]


def _shape(op: HostOp, index: int) -> Shape:
    """Return the shape of argument *index*; raises ValueError unless it is a tensor's."""
    return _first([op.shapes[index]])


def _first(shapes: Sequence[Any]) -> Shape:
    """Return the first of *shapes*; raises ValueError unless it is a tensor's."""
    shape = shapes[0]
    if not isinstance(shape, list) or not shape or not all(isinstance(size, int) for size in shape):
        raise ValueError(shape)
    return shape


def _largest(op: HostOp) -> int:
    """Return the elements of the largest tensor of *op*, of all tensors together if it has lists of them."""
    singles = [math.prod(shape) for shape in [*op.shapes, *op.output_shapes] if _is_shape(shape)]
    lists = [
        sum(math.prod(shape) for shape in shapes if _is_shape(shape))
        for shapes in [*op.shapes, *op.output_shapes]
        if isinstance(shapes, list) and shapes and isinstance(shapes[0], list)
    ]
    return max([*singles, *lists], default=0)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(size, int) for size in value)


def _bytes(name: str, op: HostOp) -> int:
    """Return the bytes *op* reads and writes."""
    written = sum(tensor.size_bytes for tensor in tensors(op.outputs))
    if name in ("embedding", "index_select", "index", "gather"):
        indices = sum(tensor.size_bytes for tensor in tensors(op.inputs[1:]))
        return 2 * written + indices
    read = sum(tensor.size_bytes for tensor in tensors(op.inputs))
    if not written and "!" in op.schema:
        written = sum(tensor.size_bytes for tensor in tensors(op.inputs[:1]))
    return read + written
