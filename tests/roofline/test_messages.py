# ruff: noqa: E501 (the messages stand whole)
"""Every refusal of the roofline, word for word: the one line that a person gets must name field, value and remedy."""

import pytest
import shapes

from labkit.errors import BadInput
from labkit.roofline.account import draft_pass, per_tensor, simple
from labkit.roofline.architectures import shape_of
from labkit.roofline.floors import Work, compare_utilisation, floor_s, utilisation
from labkit.roofline.formats import Format
from labkit.roofline.predictions import context_crossover, latency, next_rung, round_bytes, sensitivity
from labkit.roofline.proportions import mcnemar_exact, paired_difference, wilson
from labkit.roofline.quantization import recipe_of
from labkit.roofline.speculation import accept_length, accept_length_at, expected_distinct_experts, speedup

REFUSALS = [
    (
        lambda: Format.parse("fp3"),
        "format: got 'fp3'; accepted: fp32, bf16, fp16, fp8-block128, fp8-row, fp8-tensor, int8-row, mxfp4, mxfp8, nvfp4, int4-g32 (2 to 8 bits, any group; z at the end for zero points), int4-row, nf4-g64, mlx4-g64, any GGUF type such as Q4_K",
    ),
    (
        lambda: recipe_of(shapes.QWEN).with_formats(heads="bf16", extra="bf16"),
        "recipe: got 'extra, heads'; accepted: experts, dense, absorbed, router, head, embedding, gate, small, kv, state, convolution",
    ),
    (
        lambda: recipe_of(shapes.QWEN | {"torch_dtype": "int4"}),
        "config: torch_dtype: got 'int4'; accepted: bfloat16, float16, float32",
    ),
    (
        lambda: recipe_of(shapes.QWEN | {"quantization_config": "fp8"}),
        "config: quantization_config: got 'fp8'; accepted: an object",
    ),
    (
        lambda: recipe_of(shapes.QWEN | {"quantization_config": {"quant_method": "odd"}}),
        "config: quantization_config.quant_method: got 'odd'; accepted: 'fp8', 'mxfp4', 'gptq', 'awq', 'compressed-tensors', 'modelopt', 'modelopt_fp4', 'modelopt_mixed', 'auto-round', 'bitsandbytes', 'fbgemm_fp8', 'quark'",
    ),
    (
        lambda: recipe_of(shapes.QWEN | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}),
        "config: weight_block_size: got [128]; accepted: [rows, columns]",
    ),
    (
        lambda: recipe_of(
            shapes.QWEN | {"quantization_config": {"quant_method": "fp8", "routed_experts_quant_method": "int4"}}
        ),
        "config: routed_experts_quant_method: got 'int4'; accepted: 'fp8', 'mxfp4'",
    ),
    (
        lambda: recipe_of(
            shapes.QWEN
            | {
                "quantization_config": {
                    "quant_method": "fp8",
                    "routed_experts_quant_method": "mxfp4",
                    "routed_experts_group_size": 16,
                }
            }
        ),
        "config: routed_experts_group_size: got 16; accepted: 32, the group of MXFP4",
    ),
    (
        lambda: recipe_of(shapes.QWEN | {"quantization_config": {"quant_method": "awq", "bits": 9, "group_size": 64}}),
        "config: weight bits and group size: got (9, 64); accepted: 2 to 8 bits, a group of at least 1 or -1",
    ),
    (
        lambda: recipe_of(
            shapes.QWEN | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": [1]}}
        ),
        "config: config_groups: got [1]; accepted: groups of weights with their targets",
    ),
    (
        lambda: recipe_of(
            shapes.QWEN
            | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}}}
        ),
        "config: config_groups.a.weights: got {'weights': None}; accepted: bits, type, strategy and group size",
    ),
    (
        lambda: shape_of(shapes.DEEPSEEK | {"first_k_dense_replace": 6}),
        "config: first_k_dense_replace: got 6; accepted: fewer than num_hidden_layers (6)",
    ),
    (
        lambda: shape_of(shapes.DEEPSEEK | {"num_experts_per_tok": 10}),
        "config: experts per token: got 10; accepted: at most the number of experts (9)",
    ),
    (
        lambda: shape_of(shapes.BAILING | {"mtp_use_kda": 1}),
        "config: mtp_use_kda: got 1; accepted: false (a NEXTN layer with MLA)",
    ),
    (
        lambda: shape_of(shapes.KIMI | {"linear_attn_config": shapes.KIMI["linear_attn_config"] | {"kda_layers": [1]}}),
        "config: linear_attn_config: got '1 + 2 layers'; accepted: lists of 5 layers together",
    ),
    (
        lambda: shape_of(shapes.KIMI | {"linear_attn_config": {}}),
        "config: missing fields: got 'linear_attn_config.num_heads, linear_attn_config.head_dim, linear_attn_config.short_conv_kernel_size'; accepted: a config.json of KimiLinearForCausalLM that has them",
    ),
    (
        lambda: shape_of(shapes.GPT_OSS | {"layer_types": ["full_attention"]}),
        "config: layer_types: got ['full_attention']; accepted: 5 times full_attention or attention or indexed_attention or deepseek_sparse_attention or sliding_attention or chunked_attention or linear_attention or mamba or mamba2 or conv or short_conv",
    ),
    (
        lambda: shape_of(shapes.QWEN | {"num_key_value_heads": 4}),
        "config: num_key_value_heads: got 4; accepted: a divisor of num_attention_heads (6)",
    ),
    (
        lambda: shape_of(shapes.BAILING | {"gated_attention_proj_granularity_type": "row"}),
        "config: gated_attention_proj_granularity_type: got 'row'; accepted: None, 'head_wise', 'element_wise'",
    ),
    (
        lambda: shape_of(shapes.QWEN | {"tie_word_embeddings": 1.5}),
        "config: tie_word_embeddings: got 1.5; accepted: True, False",
    ),
    (lambda: shape_of(shapes.GLM | {"use_qk_norm": 3}), "config: use_qk_norm: got 3; accepted: True, False"),
    (lambda: shape_of(shapes.GLM | {"attention_bias": 3}), "config: attention_bias: got 3; accepted: True, False"),
    (lambda: shape_of(shapes.QWEN | {"attention_bias": 3}), "config: attention_bias: got 3; accepted: True, False"),
    (lambda: shape_of(shapes.BAILING | {"no_kda_lora": 3}), "config: no_kda_lora: got 3; accepted: True, False"),
    (
        lambda: shape_of(shapes.QWEN | {"decoder_sparse_step": 0}),
        "config: decoder_sparse_step: got 0; accepted: an integer of at least 1",
    ),
    (
        lambda: per_tensor(shapes.QWEN, context=0).group("nothing"),
        "group: got 'nothing'; accepted: attention projections, routed experts, head, router, dense MLP, norms, embedding row",
    ),
    (lambda: per_tensor(shapes.QWEN, context=-1), "context: got -1; accepted: an integer of at least 0"),
    (lambda: per_tensor(shapes.QWEN, context=0, tokens=0), "tokens: got 0; accepted: an integer of at least 1"),
    (lambda: per_tensor(shapes.QWEN, context=0, head="int4"), "head: got 'int4'; accepted: bf16, fp8, fp32"),
    (
        lambda: per_tensor(shapes.QWEN, context=0, tokens=2, distinct_experts=3),
        "distinct_experts: got 3; accepted: 4 to 8 for 2 positions",
    ),
    (lambda: simple(shapes.QWEN, 0), "head_bits: got 0; accepted: a positive number"),
    (lambda: simple(shapes.QWEN, active_parameters=0), "active_parameters: got 0; accepted: a positive number"),
    (lambda: simple(shapes.QWEN, weight_bits=-1), "weight_bits: got -1; accepted: a positive number"),
    (
        lambda: draft_pass(shapes.QWEN, context=0),
        "config: num_nextn_predict_layers: got 0; accepted: a model with a NEXTN layer",
    ),
    (
        lambda: draft_pass(shapes.BAILING | {"num_nextn_predict_layers": 0}, context=0),
        "config: num_nextn_predict_layers: got 0; accepted: a model with a NEXTN layer",
    ),
    (lambda: expected_distinct_experts(8, 9, 1), "k: got 9; accepted: 1 to the number of experts (8)"),
    (lambda: expected_distinct_experts(8, 2, 0), "m: got 0; accepted: at least 1 position"),
    (
        lambda: accept_length([0.5, 0.6]),
        "by_position: got [0.5, 0.6]; accepted: probabilities from 1 down, none above the one before it",
    ),
    (lambda: accept_length_at(1.5, 3), "rate: got 1.5; accepted: a probability"),
    (lambda: accept_length_at(0.5, 0), "drafts: got 0; accepted: at least 1"),
    (lambda: speedup(0, 1), "a: got 0; accepted: a positive number"),
    (lambda: floor_s(0, 1), "step_bytes: got 0; accepted: a positive number"),
    (lambda: utilisation(1, 1, 0), "bandwidth: got 0; accepted: a positive number"),
    (
        lambda: compare_utilisation((Work("a", "b", "c", "d"), 1), (Work("x", "b", "c", "y"), 1)),
        "utilisation: got 'byte_model, load differ'; accepted: two of the same byte model, model version, precision recipe and load",
    ),
    (lambda: round_bytes(shapes.BAILING, context=0, drafts=0), "drafts: got 0; accepted: an integer of at least 1"),
    (
        lambda: round_bytes(shapes.BAILING, context=0, drafts=2).bytes_per_token(4),
        "a: got 4; accepted: 1 to 3 (drafts + 1)",
    ),
    (
        lambda: context_crossover(shapes.GPT_OSS | {"layer_types": ["sliding_attention"] * 5}),
        "context_crossover: got 'config'; accepted: a model whose KV can outgrow its weights",
    ),
    (lambda: latency(1, 1, 0), "output_tokens: got 0; accepted: at least 1"),
    (
        lambda: sensitivity(lambda x: 0 * x, {"x": 1}),
        "prediction: got 0; accepted: one that is not zero at the given inputs",
    ),
    (lambda: sensitivity(lambda x: x, {"x": 1}, 0), "swing: got 0; accepted: a share between 0 and 1"),
    (lambda: next_rung(0, 1, 1), "tpot: got 0; accepted: a positive number"),
    (lambda: wilson(3, 2), "correct: got 3; accepted: 0 to the number of questions (2)"),
    (lambda: mcnemar_exact(-1, 2), "discordant pairs: got (-1, 2); accepted: two counts"),
    (lambda: paired_difference(5, 5, 9), "questions: got 9; accepted: at least the discordant pairs (10)"),
]


@pytest.mark.parametrize("call, message", REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(call, message):
    with pytest.raises(BadInput) as refused:
        call()
    assert str(refused.value) == message
