"""Compute the operations and bytes of operators from their schemas and shapes.

Multiply and add count as two operations, as in ``torch.utils.flop_counter``:

* A matmul of m x k by k x n counts 2 m k n (times the batch).
* A convolution counts 2 x output positions x kernel positions x channels in (per group) x channels out. The
  backward pass of a convolution needs the same number of operations for each requested gradient.
* Attention counts 2 x batch x heads x queries x keys x (width of q + width of v). The backward pass of
  attention recomputes the scores: 2 x batch x heads x queries x keys x (3 x width of q + 2 x width of v). A
  causal mask excludes half of the square of the shorter sequence. Packed sequences count as equally long,
  which gives a lower bound.
* Other operators count `_PER_ELEMENT` operations per element of their largest tensor (default 1).
* Copies, gathers and memory management count no operations.

The bytes of an operator are the bytes of all tensors that the operator reads or writes, each counted once. A
gather reads only the returned rows of the table. Data that an operator only overwrites is not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._columns import which
from ..linking import KERNEL, Lane, Launches, host_rows
from ..readers import DeviceTrace, HostOp, HostTrace, Ops, numbers_per_element, tensors
from ._operator_classes import (
    ATTENTIONS,
    COPY,
    GEMM_FACTORS,
    LINEARS,
    TOUCHES_NOTHING,
    TRITON,
    class_of,
    plain_name,
)

Shape = Sequence[int]
_MOST = 2**62

# The positions of stride, padding and dilation among the arguments of forward convolutions. Without a
# position, dilation is 1.
_CONVOLUTION_ARGUMENTS = {
    "conv1d": (3, 4, 5), "conv2d": (3, 4, 5), "conv3d": (3, 4, 5), "convolution": (3, 4, 5),
    "_convolution": (3, 4, 5), "convolution_overrideable": (3, 4, 5), "cudnn_convolution": (3, 2, 4),
    "mkldnn_convolution": (4, 3, 5), "miopen_convolution": (4, 3, 5), "_conv_depthwise2d": (4, 5, 6),
    "cudnn_convolution_relu": (3, 4, 5), "cudnn_convolution_add_relu": (5, 6, 7), "thnn_conv2d": (4, 5),
    "_slow_conv2d_forward": (4, 5), "slow_conv3d": (4, 5), "slow_conv3d_forward": (4, 5),
    "miopen_depthwise_convolution": (4, 3, 5), "_convolution_pointwise": (4, 3, 5),
    "slow_conv_dilated2d": (4, 5, 6), "slow_conv_dilated3d": (4, 5, 6), "conv_depthwise3d": (4, 5, 6),
}  # fmt: skip
# Backward convolutions in traces written by PyTorch before 1.11. The arguments of the operators in
# _SOURCE_FIRST contain the input before the gradient of the output. The operators in _ONE_GRADIENT return
# only one gradient, whose size is their first argument.
_SOURCE_FIRST = frozenset(f"{library}_convolution_backward" for library in ("cudnn", "miopen", "mkldnn"))
_ONE_GRADIENT = re.compile(r"convolution_backward_(input|weights?)$")
# The position of the flag `transposed` among the arguments of convolutions. Convolutions of libraries have a
# different flag at this position.
_TRANSPOSED_AT = {
    "convolution": 6,
    "_convolution": 6,
    "convolution_overrideable": 6,
    "convolution_backward": 7,
}
# Convolutions that map input positions to output positions differently from forward convolutions.
_ELSEWHERE = re.compile("transpose|backward")
# Operators that move data without computing, although they do not belong to the class of copies.
_MOVES = frozenset({
    "index_select", "index", "gather", "embedding", "index_copy", "_index_put_impl_", "index_put_",
    "scatter_", "one_hot", "masked_fill_", "where", "masked_fill", "_foreach_copy_", "_foreach_zero_",
})  # fmt: skip
_GATHERS = ("embedding", "index_select", "index", "gather")
# In-place operators that do not read the old values.
_OVERWRITES = frozenset({
    "copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "exponential_", "bernoulli_",
    "_foreach_copy_", "_foreach_zero_",
})  # fmt: skip
# The kernels of inference engines that receive their outputs as arguments. Normalizations receive an output
# only if the first argument has the same shape as another argument.
_OUTPUT_ARGUMENTS = frozenset({
    "rmsnorm", "rms_norm", "add_rmsnorm", "rmsnorm2d_fwd_with_add", "rmsnorm2d_fwd_with_add_ck",
    "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul",
})  # fmt: skip
# The position of the optional output tensor (``out=``) among the arguments of operators, from PyTorch's
# native_functions.yaml.
_OUT_AT = {"mul": 2, "div": 2, "add": 3, "sub": 3, "addcmul": 4, "addcdiv": 4, "clamp_min": 2, "clamp_max": 2,
           "clamp": 3, "threshold": 3}  # fmt: skip
# The positions of arguments that the operator reads and writes in full, regardless of other
# arguments.
_REWRITTEN = {"rotary_embedding": (1, 2), "store_cache": (0, 1), "reshape_and_cache_flash": (0, 1),
              "reshape_and_cache": (0, 1)}  # fmt: skip
# The position of the dimensions among the arguments of a reduction.
_REDUCED = dict.fromkeys(
    ("sum", "mean", "amax", "amin", "max", "min", "prod", "var", "std", "var_mean", "std_mean", "argmax",
     "argmin", "all", "any", "logsumexp"), 1) | {"norm": 2, "linalg_vector_norm": 2}  # fmt: skip
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


class Work(NamedTuple):
    """The modelled work of an operator; *kind* is the operator's class, or "" if there is no model."""

    kind: str
    operations: int
    read_bytes: int
    written_bytes: int


def operator_work(op: HostOp) -> Work:
    """Return the work of operator *op*; without a model, one operation per element of the largest tensor."""
    name = plain_name(op.name)
    if name in TOUCHES_NOTHING or name.startswith("new_"):
        return Work("", 0, 0, 0)
    if _ONE_GRADIENT.search(name) and not _is_shape(_weight_of(name, op)):
        return Work("", 1, *_bytes(name, op))
    amounts = (_operations(name, op), *_bytes(name, op))
    kind = class_of(name)
    if kind == "convolution" and not (_ELSEWHERE.search(name) or _convolution_arguments(name, op.inputs)):
        kind = ""  # without a stride, the number of output positions is a guess
    return Work(kind, *(min(amount, _MOST) for amount in amounts))


def operator_cost(op: HostOp) -> tuple[int, int]:
    """Return (operations, bytes moved) of operator *op*; both are at least 1, as simulators require."""
    work = operator_work(op)
    return _counted(work.operations), _counted(work.read_bytes + work.written_bytes)


def _counted(amount: int) -> int:
    """Return *amount* limited to the positive 64-bit integers that simulators accept."""
    return min(max(1, amount), _MOST)


def returned_shapes(name: str, shapes: Sequence[Any], values: Sequence[Any]) -> list[list[int]]:
    """Return the shapes of the results of the operator *name*, computed from the *shapes* of its arguments.

    *values* are the arguments that are not tensors. Operators without a rule return the shape of their
    largest argument, or [] without arguments.
    """
    plain = plain_name(name)
    try:
        if plain in GEMM_FACTORS:
            left, right = (_first([shapes[index]]) for index in GEMM_FACTORS[plain])
            return [[*left[:-1], *right[1:][-1:]]]
        if plain in LINEARS:
            return [[*_first(shapes)[:-1], _first(shapes[1:])[0]]]
        if plain == "index_select":
            source, dimension = _first(shapes), values[1]
            return [[*source[:dimension], *_first(shapes[2:]), *source[dimension + 1 :]]]
        if plain == "embedding":
            return [[*_first(shapes[1:]), _first(shapes)[-1]]]
        if "embedding" in plain:
            return [[]]  # the result consists of rows of the largest argument, the table
        if class_of(plain) == "convolution" and not _ELSEWHERE.search(plain):
            return [_convolved(_first(shapes), _first(shapes[1:]), plain, values)]
        if plain.endswith("_backward") and class_of(plain) in {"attention", "convolution"}:
            return _gradients(plain, shapes, values)
        if plain in _REDUCED and not _is_shape([*shapes, None][1]):
            return [_reduced(_first(shapes), [*values, None, None][_REDUCED[plain]])]
        if class_of(plain) == "elementwise":
            return [_broadcast([shape for shape in shapes if _is_shape(shape)])]
    except (IndexError, TypeError, ValueError):
        pass  # the operator cannot have the recorded shapes
    return [max(_tensor_shapes(shapes), key=math.prod, default=[])]


def _tensor_shapes(shapes: Sequence[Any]) -> list[list[int]]:
    """Return the shapes of the tensors in *shapes*; the tensors of a list count as one tensor."""
    singles = [list(shape) for shape in shapes if _is_shape(shape)]
    lists = [
        [sum(math.prod(shape) for shape in listed if _is_shape(shape))]
        for listed in shapes
        if isinstance(listed, list) and listed and isinstance(listed[0], list)
    ]
    return [*singles, *lists]


def _gradients(name: str, shapes: Sequence[Any], values: Sequence[Any]) -> list[list[int]]:
    """Return the shapes of the gradients that an attention or convolution backward returns."""
    if name in ATTENTIONS:
        query = ATTENTIONS[name].query
        return [list(_first([shapes[query + index]])) for index in range(3)]
    asked = values[-1] if values and isinstance(values[-1], list) else [True, True, False]
    output, source, weight = (list(_first([shapes[index]])) for index in _backward_order(name))
    gradients = (source, weight, [output[1]])
    return [shape for shape, wanted in zip(gradients, asked, strict=False) if wanted]


def _reduced(source: Shape, dimensions: Any) -> list[int]:
    """Return the shape of *source* reduced over *dimensions*: a number, a list, or None for all."""
    if dimensions is None or dimensions == []:
        return [1]
    listed = dimensions if isinstance(dimensions, list) else [dimensions]
    gone = {dimension % len(source) for dimension in listed}
    return [size for place, size in enumerate(source) if place not in gone] or [1]


def _broadcast(shapes: Sequence[Shape]) -> list[int]:
    """Return the shape to which broadcasting extends all *shapes*."""
    longest = max(map(len, shapes))
    padded = [[1] * (longest - len(shape)) + list(shape) for shape in shapes]
    return [max(sizes) for sizes in zip(*padded, strict=True)]


def _convolved(source: Shape, weight: Shape, name: str, values: Sequence[Any]) -> list[int]:
    """Return the shape of a convolution's output; with unknown strides, positions are unchanged."""
    arguments = _convolution_arguments(name, values)
    if not arguments:
        return [source[0], weight[0], *source[2:]]
    arguments += [[1]] * (3 - len(arguments))
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


def _convolution_arguments(name: str, values: Sequence[Any]) -> list[Sequence[int]]:
    """Return stride, padding and any dilation of a forward convolution, or [] if one is unknown."""
    places = _CONVOLUTION_ARGUMENTS.get(name, ())
    arguments = [values[at] for at in places if at < len(values) and _is_shape(values[at])]
    return arguments if len(arguments) == len(places) else []


def _spread(argument: Sequence[int], dimensions: int) -> Sequence[int]:
    """Return the value of *argument* for each dimension; a single value applies to all dimensions."""
    return [*argument] * dimensions if len(argument) == 1 else argument


def counts_whole(name: str) -> bool:
    """Return whether the cost of the operator *name* includes the cost of operators that it calls."""
    return _counter(plain_name(name)) is not None


def _operations(name: str, op: HostOp) -> int:
    """Return the number of operations of *op*; *name* is the operator's name without namespace."""
    counter = _counter(name)
    if counter is not None:
        try:
            return counter(name, op)
        except (IndexError, OverflowError, TypeError, ValueError):
            pass  # the operator cannot have the recorded shapes, so count elements
    if name in _MOVES or class_of(name) == COPY or name.startswith(("split", "embedding")):
        return 0
    tensors_of_op = _tensor_shapes([*op.shapes, *op.output_shapes])
    return _PER_ELEMENT.get(name, 1) * max(map(math.prod, tensors_of_op), default=0)


def _counter(name: str) -> Callable[[str, HostOp], int] | None:
    """Return the function that counts the operations of *name*, or None to count elements."""
    if name in GEMM_FACTORS:
        return _matmul
    if name in LINEARS:
        return _linear
    return {"attention": _attention, "convolution": _convolution}.get(class_of(name))


def _matmul(name: str, op: HostOp) -> int:
    first, second = GEMM_FACTORS[name]
    left, right = shape_of(op, first), shape_of(op, second)
    columns = right[-1] if len(right) > 1 else 1
    packed = numbers_per_element(op.types[first]) if first < len(op.types) else 1
    return 2 * math.prod(left) * packed * columns


def _linear(_: str, op: HostOp) -> int:
    return 2 * math.prod(shape_of(op, 0)) * shape_of(op, 1)[0]


def _backward_order(name: str) -> tuple[int, int, int]:
    """Return the argument positions of output gradient, input and weight of a backward convolution."""
    return (1, 0, 2) if name in _SOURCE_FIRST else (0, 1, 2)


def _weight_of(name: str, op: HostOp) -> Any:
    """Return the weight's shape of the backward convolution *op*, or no shape if it was not recorded."""
    arguments = op.inputs[:1] if "_backward_weight" in name else op.shapes[2:3]
    return arguments[0] if arguments else None


def _is_transposed(name: str, op: HostOp) -> bool:
    at = _TRANSPOSED_AT.get(name, len(op.inputs))
    return at < len(op.inputs) and op.inputs[at] is True


def _convolution(name: str, op: HostOp) -> int:
    if _ONE_GRADIENT.search(name):
        source, output, weight, times = shape_of(op, 1), shape_of(op, 1), _first([_weight_of(name, op)]), 1
        transposed = False
    elif name.endswith("_backward"):
        output, source, weight = (shape_of(op, index) for index in _backward_order(name))
        asked = op.inputs[-1] if op.inputs and isinstance(op.inputs[-1], list) else [True, True]
        times = sum(bool(gradient) for gradient in asked[:2])
        transposed = _is_transposed(name, op)
    else:
        source, weight, output, times = shape_of(op, 0), shape_of(op, 1), _first(op.output_shapes), 1
        transposed = "transpose" in name or _is_transposed(name, op)
    positions = source if transposed else output
    return times * 2 * positions[0] * math.prod(positions[2:]) * math.prod(weight)


def _attention(name: str, op: HostOp) -> int:
    at = ATTENTIONS[name]
    query, key, value = (shape_of(op, at.query + index) for index in range(3))
    if not at.heads_first:
        query, key = (_swapped(query), _swapped(key))
    lengths = op.shapes[at.lengths] if 0 <= at.lengths < len(op.shapes) else []
    sequences = max(1, lengths[0] - 1) if _is_shape(lengths) else 1
    queries, keys = query[-2] / sequences, key[-2] / sequences
    pairs = queries * keys
    if at.causal < len(op.inputs) and op.inputs[at.causal] not in (False, 0, None):
        pairs -= min(queries, keys) ** 2 / 2
    wide, deep = query[-1], value[-1]
    factor = 3 * wide + 2 * deep if "backward" in name else wide + deep
    return round(2 * math.prod(query[:-2]) * sequences * pairs * factor)


def _swapped(shape: Shape) -> list[int]:
    return [*shape[:-3], shape[-2], shape[-3], shape[-1]]


def shape_of(op: HostOp, index: int) -> Shape:
    """Return the shape of argument *index* of *op*; raises ValueError if it is not a tensor."""
    return _first([op.shapes[index]])


def _first(shapes: Sequence[Any]) -> Shape:
    """Return the first of *shapes*; raises ValueError if it is not the shape of a tensor."""
    shape = shapes[0]
    if not _is_shape(shape):
        raise ValueError(shape)
    return shape  # type: ignore[no-any-return]


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(size, int) for size in value)


def _bytes(name: str, op: HostOp) -> tuple[int, int]:
    """Return the number of bytes that operator *op* reads, and the number of bytes that *op* writes."""
    written = _size(op.outputs)
    if name in _GATHERS:
        return written + _size(op.inputs[1:]), written
    if name in _REWRITTEN:
        once = sum(_size(op.inputs[index : index + 1]) for index in _REWRITTEN[name])
        return once, once
    if name in _OUTPUT_ARGUMENTS and (class_of(name) != "normalization" or op.shapes[0] in op.shapes[1:]):
        return _size(op.inputs[1:]), _size(op.inputs[:1])
    given = _size(op.inputs[_OUT_AT[name] :]) if name in _OUT_AT else 0
    if given:
        return _size(op.inputs) - given, given
    if class_of(name) == TRITON:
        return _size(op.inputs), _overwritten(op)
    if not written and "!" in op.schema:
        written = _size(op.inputs[:1])
    if name in GEMM_FACTORS:  # the argument after these may be the output tensor
        return _size(op.inputs[: GEMM_FACTORS[name][1] + 1]), written
    return _size(op.inputs[1:] if name in _OVERWRITES else op.inputs), written


def _overwritten(op: HostOp) -> int:
    """Return the bytes of the argument that a pointwise Triton kernel both reads and overwrites.

    A separate output is the last argument and has the size of the largest argument. Without a separate
    output, the kernel overwrites its first argument.
    """
    sizes = [(math.prod(shape), item) for shape, item in zip(op.shapes, op.inputs, strict=False)
             if _is_shape(shape) and tensors([item])]  # fmt: skip
    largest = max((size for size, _ in sizes), default=0)
    if "triton_poi_" not in op.name or not sizes or sizes[-1][0] == largest:
        return 0
    return _size([sizes[0][1]])


def _size(values: Sequence[Any]) -> int:
    return sum(tensor.size_bytes for tensor in tensors(values))


def work_costs(trace: DeviceTrace, launches: Launches, lanes: Sequence[Lane], host: HostTrace) -> np.ndarray:
    """Return the operations and bytes of each launch, both at least 1, as two columns.

    The cost of an operator is divided among its kernels in proportion to the kernels' measured time. The
    bytes of copies and memory sets come from the trace.
    """
    costs = np.ones((len(launches), 2), dtype=np.int64)
    is_kernel = launches.category == KERNEL
    costs[~is_kernel, 1] = np.maximum(1, trace.works.size_bytes[launches.work[~is_kernel]])
    rows = host_rows(launches, lanes, host)
    own = np.flatnonzero(is_kernel & ~launches.is_comm & (rows >= 0))
    kinds, kind = np.unique(host.kind[rows[own]], return_inverse=True)
    whole = np.array([operator_cost(host.kinds[number]) for number in kinds.tolist()], dtype=np.float64)
    _, operator = np.unique((launches.lane[own] << 32) + launches.op[own], return_inverse=True)
    times = np.maximum(1, launches.end_ns[own] - launches.start_ns[own])
    total = np.zeros(len(own), dtype=np.int64)
    np.add.at(total, operator, times)
    share = times / total[operator]
    costs[own] = np.maximum(1, np.rint(whole.reshape(-1, 2)[kind] * share[:, None])).astype(np.int64)
    return costs


def counted_operators(ops: Ops) -> np.ndarray:
    """Return the operators with costs to be counted, so that no work is counted twice.

    Matmuls, convolutions and attention are counted as a whole. Elementwise operators are counted as a whole
    because they may first convert scalars. If such operators are nested, the innermost operator counts. In
    all other operators, the leaf operators count.
    """
    whole = which(ops.trace.texts, _is_whole)[ops.name].tolist()
    parents = ops.parent.tolist()
    holds_whole = [False] * len(ops)
    for index in reversed(range(len(ops))):
        if parents[index] >= 0:
            holds_whole[parents[index]] |= whole[index] or holds_whole[index]
    inside = [False] * len(ops)
    for index, parent in enumerate(parents):
        inside[index] = parent >= 0 and (inside[parent] or (whole[parent] and not holds_whole[parent]))
    outermost = ~np.array(inside, dtype=bool) & ~np.array(holds_whole, dtype=bool)
    counted: np.ndarray = outermost & (np.array(whole, dtype=bool) | ops.is_leaf.astype(bool))
    return counted


def _is_whole(name: str) -> bool:
    return counts_whole(name) or class_of(plain_name(name)) == "elementwise"
