"""Models from a Hugging Face config.json: sizes of every kind of attention and feed-forward part."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.errors import UsageError
from chakrascope.runner.prediction.models import (
    Operator,
    Plan,
    Transformer,
    find_model,
    pass_over_layer,
    rank_memory,
    read_model,
)


def read(folder: Path, **config: Any) -> Transformer:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_model(path)


def sizes(  # noqa: PLR0917 - in the order of the models' tables
    kind: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int
) -> dict[str, Any]:
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
        "max_position_embeddings": 4096,
    }  # fmt: skip


DATA = Path(__file__).parents[2] / "data" / "runner"
EXPERTS = {"num_experts_per_tok": 4, "hidden_act": "silu"}
# The published configurations, without the keys that transformers omits because they equal its defaults. The
# parameters are those of transformers' models of these configurations, in units of 10^9.
MODELS: dict[str, tuple[dict[str, Any], float]] = {
    "tied in silence": (
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_inner": None,
         "vocab_size": 50257, "n_positions": 1024},
        0.1244,
    ),
    "one head of keys": (
        {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71,
         "num_kv_heads": 71, "multi_query": True, "new_decoder_architecture": False, "vocab_size": 65024,
         "max_position_embeddings": 2048},
        6.9217,
    ),
    "shared experts by their width": (
        {**sizes("qwen2_moe", 24, 2048, 16, 16, 5632, 151936), **EXPERTS, "num_experts": 60,
         "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1},
        14.3158,
    ),
    "experts of the plain width": (
        {**sizes("gpt_oss", 36, 2880, 64, 8, 2880, 201088), "head_dim": 64, "num_local_experts": 128,
         "experts_per_token": 4, "hidden_act": "silu"},
        116.829,
    ),
    "a head of positions": (
        {**sizes("deepseek_v3", 61, 7168, 128, 128, 18432, 129280), "head_dim": 64, "v_head_dim": 128,
         "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "kv_lora_rank": 512, "q_lora_rank": 1536,
         "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
         "n_shared_experts": 1, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4},
        671.026,
    ),
    "gates by the activation": (
        {**sizes("glm4", 40, 4096, 32, 2, 13696, 151552), "head_dim": 128, "hidden_act": "silu"}, 9.4003,
    ),
    "no gates": ({**sizes("starcoder2", 30, 3072, 24, 2, 12288, 49152), "hidden_act": "gelu"}, 3.0304),
    "parts of their own": (
        {"model_type": "mpt", "n_layers": 24, "d_model": 2048, "n_heads": 16, "vocab_size": 50368,
         "max_seq_len": 2048, "expansion_ratio": 4, "attn_config": {"alibi": True}},
        1.3112,
    ),
    "images": (
        {"model_type": "vit", "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12,
         "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "num_labels": 1000},
        0.0866,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_parameters_of_their_own_code(name: str, tmp_path: Path):
    config, params = MODELS[name]
    assert read(tmp_path, **config).params() / 1e9 == pytest.approx(params, rel=0.02 if params < 1 else 1e-3)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "jamba"}, "'model_type: jamba' means state-space layers"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "'is_encoder_decoder: true'"),
        (
            {**sizes("qwen3_next", 4, 64, 4, 4, 128, 100), "layer_types": ["linear_attention"] * 4},
            "'layer_types' has layers of another kind",
        ),
        # The published configurations: one key decides, and nothing else distinguishes them from attention.
        (
            {**sizes("qwen3_next", 48, 2048, 16, 2, 5120, 151936), "full_attention_interval": 4},
            "'full_attention_interval: 4' means linear attention",
        ),
        (
            {**sizes("deepseek_v32", 61, 7168, 128, 128, 18432, 129280), "index_topk": 2048},
            "'index_topk: 2048' means sparse attention",
        ),
        (
            {**sizes("kimi_linear", 27, 2304, 32, 32, 9216, 163840), "linear_attn_config": {"full": [4]}},
            "'linear_attn_config: ",
        ),
        ({**sizes("a_new_one", 4, 64, 4, 4, 128, 100), "mamba_d_state": 16}, "'mamba_d_state: 16'"),
        ({**sizes("albert", 4, 64, 4, 4, 128, 100), "num_hidden_groups": 1}, "weights that layers share"),
        (
            {**sizes("a_new_one", 4, 64, 4, 4, 128, 100), "embedding_size": 32},
            "'embedding_size: 32' means embeddings of another width",
        ),
        (
            {"model_type": "a_new_one", "n_layers": 4, "d_model": 2048, "n_heads": 16, "vocab_size": 50280,
             "max_seq_len": 64, "embedding_size": 512},
            "'embedding_size: 512' means embeddings of another width than the layers (2048)",
        ),
        (
            {**sizes("mobilebert", 4, 64, 4, 4, 128, 100), "embedding_size": 64},
            "'model_type: mobilebert' means embeddings of another width",
        ),
        (
            {**sizes("electra", 4, 64, 4, 4, 128, 100), "embedding_size": None},
            "'model_type: electra' means embeddings of another width",
        ),
        (
            {"model_type": "gemma3n", "text_config": {"num_kv_shared_layers": 10}},
            "'num_kv_shared_layers: 10'",
        ),
        (
            {**sizes("openelm", 4, 64, 4, 4, 128, 100), "intermediate_size": [64, 128]},
            "'intermediate_size' differs",
        ),
        *(
            ({**sizes("a_new_one", 4, 64, 4, 4, 128, 100), **changed}, words)
            for changed, words in (
                ({"mova_num_experts": 8}, "'mova_num_experts: 8' means experts of values"),
                ({"num_values": 8}, "'num_values: 8' means experts of values"),
                ({"parallel_ffn_intermediate_size": 32}, "means a second feed-forward part"),
                (
                    {"sliding_window": 8, "hybrid_layers_types_block": ["sliding_attention"]},
                    "means blocks of layers with and without a window",
                ),
            )
        ),
        ({"model_type": "new_one", "hidden_size": 64}, "no 'num_hidden_layers'"),
        (
            {**sizes("qwen3_moe", 4, 64, 4, 4, 128, 100), "mlp_only_layers": 3},
            "'mlp_only_layers' must be a list of layers, not 3",
        ),
        ({**sizes("mixtral", 4, 64, 4, 4, 128, 100), "num_local_experts": [[1]]}, "whole number"),
        (
            {**sizes("llama", 4, 64, 4, 4, 128, 100), "num_attention_heads": [4, 2]},
            "'num_attention_heads' differs",
        ),
        ({**sizes("mixtral", 4, 64, 4, 4, 128, 100), "num_experts_per_tok": "two"}, "whole number"),
        ({**sizes("llama", 4, 64, 4, 4, 128, 100), "tie_word_embeddings": "true"}, "must be true or false"),
        *(
            ({**sizes("new", 4, 64, 4, 4, 128, 100), "intermediate_size": None, "mlp_ratio": ratio}, words)
            for ratio, words in (
                (math.inf, "'mlp_ratio' must be a number between 0 and 1000, not inf"),
                (math.nan, "not nan"),
                (1e308, "not 1e+308"),
                (0, "not 0"),
                (True, "not True"),
                ("4", "'mlp_ratio' must be a number, not '4'"),
                ([4, 8], "'mlp_ratio' differs between layers"),
            )
        ),
        (
            {**sizes("mixtral", 4, 64, 4, 4, 128, 100), **EXPERTS, "num_local_experts": 8,
             "moe_layer_freq": [0, 1, 0, 1]},
            "'moe_layer_freq' has layers without experts after",
        ),
    ],
)  # fmt: skip
def test_unsupported_models_are_refused_by_key(config: dict[str, Any], words: str, tmp_path: Path):
    with pytest.raises(UsageError, match=re.escape(words)):
        read(tmp_path, **config)


HUB = [json.loads(line) for line in (DATA / "hub_models.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("entry", HUB, ids=[entry["name"] for entry in HUB])
def test_models_of_a_hub_are_read_or_refused_by_the_key_that_decides(entry: dict[str, Any], tmp_path: Path):
    if "refused" in entry:
        with pytest.raises(UsageError, match=f"'{entry['refused']}\\b"):
            read(tmp_path, **entry["config"])
        return
    assert read(tmp_path, **entry["config"]).params() / 1e9 == pytest.approx(entry["billions"], rel=0.01)


@pytest.mark.parametrize(
    "unused",
    [
        *({key: 1} for key in ("num_loops", "loop_num", "total_ut_steps", "mean_recurrence")),
        {"sparse_config": {}},
        {"linear_attn_config": {}},
        {"embedding_size": 128},  # the padded vocabulary
    ],
)
def test_keys_without_effect_refuse_no_model(unused: dict[str, Any], tmp_path: Path):
    assert read(tmp_path, **sizes("llama", 4, 64, 4, 4, 128, 100), **unused).layers == 4


def test_feed_forward_width_is_a_ratio_of_the_hidden_size(tmp_path: Path):
    config = {**sizes("new_one", 4, 64, 4, 4, 128, 100), "intermediate_size": None}
    assert [read(tmp_path, **config, mlp_ratio=ratio).ffn for ratio in (2.5, [3, 3])] == [160, 192]


def test_use_gated_mlp_decides_regardless_of_the_activation(tmp_path: Path):
    config = {**sizes("dinov3_vit", 4, 64, 4, 4, 128, 100), "hidden_act": "silu"}
    assert [read(tmp_path, **config, use_gated_mlp=gated).gated for gated in (True, False)] == [True, False]


def test_only_multiquery_attention_has_a_single_head_of_keys(tmp_path: Path):
    config = {"model_type": "gpt2", "n_embd": 64, "n_head": 4}
    heads = [
        read(tmp_path, **config, attention_head_type=kind).kv_heads for kind in ("multihead", "multiquery")
    ]
    assert heads == [4, 1]


def test_experts_are_as_wide_as_the_intermediate_size_if_dense_layers_have_a_width(tmp_path: Path):
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "dense_intermediate_size": 512}
    model = read(tmp_path, **sizes("new_one", 4, 64, 4, 4, 128, 100), **experts, mlp_only_layers=[0])
    assert (model.ffn, model.expert_ffn, model.dense_layers) == (512, 128, 1)
    assert "dense_intermediate_size" not in "".join(model.remarks)


def test_unread_keys_of_unknown_types_are_named(tmp_path: Path):
    config = sizes("step3_text", 61, 7168, 64, 1, 18432, 128815)
    shared = {"share_expert_dim": 5120, "share_q_dim": 2048, "rope_theta": 500000, "use_cache": True}
    (remark,) = read(tmp_path, **config, **shared).remarks
    assert remark.endswith("of 3 matrices, without the keys share_expert_dim, share_q_dim")
    # Output matrices are shared unless a configuration says otherwise, as in the library.
    assert read(tmp_path, **config).tied
    assert not read(tmp_path, **config, tie_word_embeddings=False).tied


def test_keys_left_out_are_the_defaults_of_the_library(tmp_path: Path):
    # gemma-3-4b as it is published.
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **text}}
    model = read(tmp_path, **config, vision_config={"hidden_size": 1152})
    assert (model.vocab, model.heads, model.kv_heads, model.head_size) == (262208, 8, 4, 256)
    assert (model.window, model.full_every, model.gated, model.tied) == (1024, 6, True, True)
    assert model.params() / 1e9 == pytest.approx(3.88, rel=1e-3)  # the language model of gemma-3-4b
    assert read(tmp_path, model_type="gemma3", text_config=text).params() == model.params()


def test_list_of_layers_sets_the_first_expert_layer(tmp_path: Path):
    experts = {**EXPERTS, "num_experts": 8, "moe_intermediate_size": 32}
    text = {**sizes("new_one", 4, 64, 4, 4, 128, 100), **experts}
    for listed in ({"moe_layer_freq": [0, 1, 1, 1]}, {"mlp_layer_types": ["dense"] + ["sparse"] * 3}):
        model = read(tmp_path, **text, **listed)
        assert [model.is_expert_layer(layer) for layer in range(4)] == [False, True, True, True]


def test_omitted_parts_of_a_model_are_listed(tmp_path: Path):
    text = sizes("deepseek_v3", 4, 64, 4, 4, 128, 100)
    config = {
        "model_type": "seeing", "vision_config": {"a": 1}, "text_config": {**text, "model_type": "new"},
        "num_nextn_predict_layers": 1, "quantization_config": {"bits": 4}, "mlp_only_layers": [2],
        "num_experts": 4, "num_experts_per_tok": 2,
    }  # fmt: skip
    said = "; ".join(read(tmp_path, **config).remarks)
    for words in ("text part", "'new' is unknown", "further tokens", "quantized", "mlp_only_layers"):
        assert words in said
    assert read(tmp_path, **sizes("llama", 4, 64, 4, 4, 128, 100)).remarks == ()


WINDOWED = {**sizes("gemma2", 4, 64, 4, 4, 128, 100), "sliding_window": 1024}


@pytest.mark.parametrize(
    ("changed", "window", "full_every"),
    [
        ({}, 1024, 2),
        ({"model_type": "mistral"}, 1024, 0),
        ({"model_type": "qwen2", "use_sliding_window": False}, 0, 0),
        ({"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}, 1024, 4),
        ({"layer_types": ["full_attention"] * 4}, 0, 0),
        ({"hybrid_layer_pattern": [0, 1, 1, 0], "attention_chunk_size": 1024}, 1024, 2),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 6}, 1024, 6),
    ],
)
def test_windows_are_those_of_the_layers(
    changed: dict[str, Any], window: int, full_every: int, tmp_path: Path
):
    model = read(tmp_path, **{**WINDOWED, **changed})
    assert (model.window, model.full_every) == (window, full_every)


@given(st.integers(1, 300), st.integers(1, 300), st.booleans(), st.integers(0, 4))
def test_windows_count_the_pairs_that_they_leave(window: int, sequence: int, causal: bool, full_every: int):
    model = Transformer(
        name="m", layers=1, hidden=8, heads=1, ffn=8, vocab=8, sequence=8, window=window, causal=causal,
        full_every=full_every,
    )  # fmt: skip
    reach = model.reach(sequence)
    assert reach <= sequence
    assert model.reach(sequence + 1) >= reach
    assert replace(model, window=window + 1).reach(sequence) >= reach
    if causal and not full_every:
        seen = sum(min(token + 1, window) for token in range(sequence))
        assert reach * sequence / 2 == pytest.approx(seen, abs=sequence)  # half of the diagonal


@pytest.mark.parametrize(
    ("config", "attended"),
    [
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, (0, 8192, 4)),
        (
            {"model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layers": [1, 0, 1, 0]},
            (0, 64, 2),
        ),
        ({"model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layers": [0] * 4}, (0, 0, 0)),
        (
            {
                "model_type": "llama4_text",
                "attention_chunk_size": 64,
                "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
            },
            (0, 64, 4),
        ),
        ({"model_type": "gpt_neo"}, (256, 0, 2)),
        ({"model_type": "gpt_neo", "attention_types": [[["global"], 4]]}, (0, 0, 0)),
        ({"model_type": "gpt_neo", "attention_types": [[["local"], 4]], "window_size": 32}, (32, 0, 0)),
    ],
)
def test_chunks_are_those_of_the_layers(
    config: dict[str, Any], attended: tuple[int, int, int], tmp_path: Path
):
    model = read(tmp_path, **{**sizes("llama", 4, 64, 4, 4, 128, 100), **config})
    assert (model.window, model.chunk, model.full_every) == attended


@given(st.integers(1, 100), st.integers(1, 300), st.booleans())
def test_chunks_count_the_pairs_within_them(chunk: int, sequence: int, causal: bool):
    model = Transformer(
        name="m", layers=1, hidden=8, heads=1, ffn=8, vocab=8, sequence=8, chunk=chunk, causal=causal
    )
    reach = model.reach(sequence)
    pairs = sum(1 for query in range(sequence) for key in range(sequence) if query // chunk == key // chunk)
    assert reach * sequence == pytest.approx(pairs)

    def flops(plan: Plan) -> float:
        items = pass_over_layer(model, plan, 0)
        return sum(item.flops for item in items if isinstance(item, Operator) and item.name == "attention")

    # Two matmuls of four numbers each, half of them under a causal mask; all scores in memory are computed.
    assert flops(Plan(sequence=sequence)) == pytest.approx(4 * 8 * pairs * (0.5 if causal else 1))
    assert flops(Plan(sequence=sequence, fused_attention=False)) == 4 * 8 * sequence**2


def test_windows_and_chunks_exclude_each_other():
    with pytest.raises(UsageError, match="'window' and 'chunk'"):
        replace(find_model("llama4-scout"), window=64)


def test_keys_that_are_fewer_than_ranks_are_copied():
    model = find_model("llama3-8b")

    def input_flops(tp: int) -> float:
        items = pass_over_layer(model, Plan(tp=tp), 0)
        return sum(item.flops for item in items if isinstance(item, Operator) and item.name == "qkv")

    tokens, hidden, head = model.sequence, model.hidden, model.head_size
    assert input_flops(8) == 2 * tokens * hidden * head * (4 + 2)
    assert input_flops(32) == 2 * tokens * hidden * head * (1 + 2)
    kept = [rank_memory(model, Plan(tp=tp, recompute="none"), 0).activations for tp in (8, 16, 32)]
    assert kept[0] > kept[1] > kept[2]


@pytest.mark.parametrize(("groups", "chosen"), [(3, 1), (2, 3), (2, 0)])
def test_groups_of_experts_that_cannot_be_are_refused(groups: int, chosen: int):
    with pytest.raises(UsageError, match="'expert_groups' must divide the number of experts"):
        replace(find_model("mixtral-8x7b"), expert_groups=groups, top_groups=chosen)
