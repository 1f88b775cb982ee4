"""The classes of operators by name; a class determines how operations and bytes are counted."""

from __future__ import annotations

from typing import NamedTuple


class Attention(NamedTuple):
    """The positions of an attention operator's arguments.

    *query* is the index of the query, followed by key and value. *causal* is the index of the causal flag (or
    of a mask type above 0). With ``heads_first``, the layout is batch, heads, sequence, width. Otherwise, the
    layout is batch, sequence, heads, width. *lengths* is the index of the cumulative lengths of packed
    sequences (-1: none).
    """

    query: int
    causal: int
    heads_first: bool = True
    lengths: int = -1


# The signatures come from aten/src/ATen/native/native_functions.yaml of PyTorch 2.8, flash_attn_interface.py
# of flash-attention 2.8, aiter/ops/mha.py.
ATTENTIONS = {
    "scaled_dot_product_attention": Attention(0, 5),
    "_scaled_dot_product_attention_math": Attention(0, 5),
    "_scaled_dot_product_flash_attention": Attention(0, 4),
    "_scaled_dot_product_flash_attention_for_cpu": Attention(0, 4),
    "_scaled_dot_product_efficient_attention": Attention(0, 6),
    "_scaled_dot_product_cudnn_attention": Attention(0, 6),
    "_scaled_dot_product_fused_attention_overrideable": Attention(0, 5),
    "_scaled_dot_product_flash_attention_backward": Attention(1, 11),
    "_scaled_dot_product_flash_attention_for_cpu_backward": Attention(1, 7),
    "_scaled_dot_product_efficient_attention_backward": Attention(1, 11),
    "_scaled_dot_product_cudnn_attention_backward": Attention(1, 14),
    "_scaled_dot_product_fused_attention_overrideable_backward": Attention(1, 13),
    "_flash_attention_forward": Attention(0, 8, heads_first=False, lengths=3),
    "_flash_attention_backward": Attention(1, 11, heads_first=False, lengths=6),
    "_efficient_attention_forward": Attention(0, 9, heads_first=False, lengths=4),
    "_efficient_attention_backward": Attention(1, 14, heads_first=False, lengths=6),
    "_flash_attn_forward": Attention(0, 5, heads_first=False),
    "_flash_attn_backward": Attention(1, 11, heads_first=False),
    "_flash_attn_varlen_forward": Attention(0, 9, heads_first=False, lengths=3),
    "_flash_attn_varlen_backward": Attention(1, 15, heads_first=False, lengths=9),
    "fmha_v3_fwd": Attention(0, 5, heads_first=False),
    "mha_fwd": Attention(0, 5, heads_first=False),
}

# The positions of the two factors among the arguments of matmuls, by name.
GEMM_FACTORS = {
    "mm": (0, 1), "bmm": (0, 1), "matmul": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_int_mm": (0, 1),
    "_scaled_mm": (0, 1), "_addmm_activation": (1, 2), "addbmm": (1, 2), "mv": (0, 1), "addmv": (1, 2),
    "dot": (0, 1), "_grouped_mm": (0, 1), "_scaled_grouped_mm": (0, 1),
}  # fmt: skip
# Products of an input with the transpose of a weight.
LINEARS = frozenset({
    "linear", "mkldnn_linear", "_linear_pointwise", "_mkl_linear", "gemm_a16w16", "rocm_unquantized_gemm",
})  # fmt: skip
_CONVOLUTIONS = (
    "convolution", "conv1d", "conv2d", "conv3d", "conv_depthwise", "slow_conv", "conv_transpose",
)  # fmt: skip
COPY, EXPERTS, TRITON = "copy", "experts", "triton"
# The classes that process each element independently, so that one kernel can fuse adjacent operators.
FUSIBLE_CLASSES = ("elementwise", COPY)
# The classes whose operations run on the chip's matrix units, if it has any.
MATRIX_CLASSES = ("gemm", "convolution", "attention", EXPERTS)
# The prefixes of the names of Inductor's Triton kernels, and of the operators that launch these kernels.
_TRITON_PREFIXES = ("triton_poi_", "triton_red_", "triton_per_")

_NAMES = {
    "normalization": """
        native_layer_norm _fused_rms_norm rms_norm native_batch_norm _native_batch_norm_legit cudnn_batch_norm
        miopen_batch_norm native_group_norm batch_norm_elemt batch_norm_stats fused_add_rms_norm rmsnorm
        add_rmsnorm fused_add_rmsnorm rmsnorm2d_fwd rmsnorm2d_fwd_with_add rmsnorm2d_fwd_with_add_ck
        _groupnorm_run layer_norm""",
    "softmax": "_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data",
    "reduction": """
        sum mean amax amin max min prod norm linalg_vector_norm var std var_mean std_mean argmax argmin all
        any logsumexp""",
    COPY: """
        copy clone _to_copy contiguous cat _cat stack _chunk_cat chunk_cat fill zero zeros ones full
        zeros_like ones_like arange repeat roll flip constant_pad_nd replication_pad1d replication_pad2d
        replication_pad3d slice_backward select_backward permute_copy split_with_sizes_copy
        all_gather_copy_in pin_memory _pin_memory tril triu reshape_and_cache reshape_and_cache_flash
        store_cache""",
    "embedding": """
        embedding embedding_dense_backward index_select gather index index_copy index_put _index_put_impl
        scatter scatter_add index_add""",
    "optimizer": "_fused_adam _fused_adamw _fused_sgd _fused_adagrad",
    "elementwise": """
        abs absolute neg sgn sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal pow square sin cos
        tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sigmoid logit erf erfc erfinv relu relu6
        leaky_relu elu selu celu silu gelu hardtanh hardswish hardsigmoid softplus mish glu threshold clamp
        clamp_min clamp_max floor ceil round trunc frac remainder fmod floor_divide add sub rsub mul div
        true_divide maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or logical_not logical_xor
        bitwise_and bitwise_or bitwise_not bitwise_xor isnan isinf isfinite nan_to_num where masked_fill
        addcmul addcdiv lerp hypot angle native_dropout dropout bernoulli uniform normal random exponential
        polar silu_and_mul gelu_and_mul gelu_tanh_and_mul rotary_embedding""",
}
_CLASSES = {name: kind for kind, names in _NAMES.items() for name in names.split()}
# Operators that access no element: they make views, allocate memory, or query properties.
TOUCHES_NOTHING = frozenset({
    "view", "as_strided", "as_strided_", "reshape", "_reshape_alias", "transpose", "t", "permute", "slice",
    "select", "narrow", "expand", "expand_as", "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "detach",
    "detach_", "alias", "empty", "empty_strided", "resize_", "set_", "split", "split_with_sizes", "chunk",
    "result_type", "resolve_conj", "resolve_neg", "lift_fresh", "is_pinned", "record_stream", "view_as",
    "flatten", "numpy_T", "tensor_split", "unbind", "_unsafe_view", "to", "item", "is_nonzero", "size",
    "empty_like", "new_empty", "wait_tensor", "unfold", "movedim", "_local_scalar_dense", "real", "conj",
})  # fmt: skip


def plain_name(name: str) -> str:
    """Return the *name* of an operator without its namespace."""
    return name.rpartition("::")[2]


def class_of(name: str) -> str:
    """Return the class of the operator *name* (without namespace), or "" if no model covers the operator.

    In-place, list (``_foreach_``) and backward variants of an operator have the same class as the operator.
    """
    if name in GEMM_FACTORS or name in LINEARS:
        return "gemm"
    if name in ATTENTIONS:
        return "attention"
    if name.startswith(_TRITON_PREFIXES):  # Triton kernels contain the names of fused operators
        return TRITON
    if any(part in name for part in _CONVOLUTIONS):
        return "convolution"
    for spelled in (name, name.removesuffix("_"), name.removesuffix("_backward")):
        if spelled in _CLASSES:
            return _CLASSES[spelled]
    one = name.removeprefix("_foreach_").removesuffix("_")
    return "optimizer" if one != name and one in _CLASSES else ""
