"""Every refusal of the roofline: its one line names the field, shows the value and key words of what is accepted."""

import pytest
import shapes

from labkit.errors import BadInput
from labkit.roofline.account import draft_pass, per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.floors import Work, compare_utilisation, floor_s, utilisation
from labkit.roofline.formats import Format
from labkit.roofline.predictions import context_crossover, latency, next_rung, round_bytes, sensitivity
from labkit.roofline.proportions import mcnemar_exact, paired_difference, wilson
from labkit.roofline.quantization import quantization_of
from labkit.roofline.simple import simple
from labkit.roofline.speculation import accept_length, expected_distinct_experts, speedup

REFUSALS = [
    (lambda: Format.parse("fp3"), "format", "'fp3'", ["fp32", "bf16", "fp16", "fp8", "2", "8", "GGUF", "Q4_K"]),
    (
        lambda: quantization_of(shapes.QWEN).with_formats(heads="bf16", extra="bf16"),
        "quantization",
        "'extra, heads'",
        ["experts", "head", "router"],
    ),
    (
        lambda: quantization_of(shapes.QWEN | {"torch_dtype": "int4"}),
        "config: torch_dtype",
        "'int4'",
        ["bfloat16", "float16", "float32"],
    ),
    (
        lambda: quantization_of(shapes.QWEN | {"quantization_config": "fp8"}),
        "config: quantization_config",
        "'fp8'",
        ["object"],
    ),
    (
        lambda: quantization_of(shapes.QWEN | {"quantization_config": {"quant_method": "odd"}}),
        "config: quantization_config.quant_method",
        "'odd'",
        [
            "fp8",
            "mxfp4",
            "gptq",
            "awq",
            "compressed-tensors",
            "modelopt",
            "modelopt_fp4",
            "modelopt_mixed",
            "auto-round",
            "bitsandbytes",
            "fbgemm_fp8",
            "quark",
        ],
    ),
    (
        lambda: quantization_of(
            shapes.QWEN | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}
        ),
        "config: weight_block_size",
        "[128]",
        ["rows", "columns"],
    ),
    (
        lambda: quantization_of(
            shapes.QWEN | {"quantization_config": {"quant_method": "fp8", "routed_experts_quant_method": "int4"}}
        ),
        "config: routed_experts_quant_method",
        "'int4'",
        ["fp8", "mxfp4"],
    ),
    (
        lambda: quantization_of(
            shapes.QWEN
            | {
                "quantization_config": {
                    "quant_method": "fp8",
                    "routed_experts_quant_method": "mxfp4",
                    "routed_experts_group_size": 16,
                }
            }
        ),
        "config: routed_experts_group_size",
        "16",
        ["32", "MXFP4"],
    ),
    (
        lambda: quantization_of(
            shapes.QWEN | {"quantization_config": {"quant_method": "awq", "bits": 9, "group_size": 64}}
        ),
        "config: weight bits and group size",
        "(9, 64)",
        ["2", "8", "1"],
    ),
    (
        lambda: quantization_of(
            shapes.QWEN | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": [1]}}
        ),
        "config: config_groups",
        "[1]",
        ["targets"],
    ),
    (
        lambda: quantization_of(
            shapes.QWEN
            | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}}}
        ),
        "config: config_groups.a.weights",
        "{'weights': None}",
        ["strategy"],
    ),
    (
        lambda: shape_of(shapes.DEEPSEEK | {"first_k_dense_replace": 6}),
        "config: first_k_dense_replace",
        "6",
        ["num_hidden_layers", "6", "fewer"],
    ),
    (
        lambda: shape_of(shapes.DEEPSEEK | {"num_experts_per_tok": 10}),
        "config: experts per token",
        "10",
        ["9", "experts"],
    ),
    (lambda: shape_of(shapes.BAILING | {"mtp_use_kda": 1}), "config: mtp_use_kda", "1", ["MLA", "false", "NEXTN"]),
    (
        lambda: shape_of(shapes.KIMI | {"linear_attn_config": shapes.KIMI["linear_attn_config"] | {"kda_layers": [1]}}),
        "config: linear_attn_config",
        "'1 + 2 layers'",
        ["5"],
    ),
    (
        lambda: shape_of(shapes.KIMI | {"linear_attn_config": {}}),
        "config: missing fields",
        "'linear_attn_config.num_heads, linear_attn_config.head_dim, linear_attn_config.short_conv_kernel_size'",
        ["KimiLinearForCausalLM"],
    ),
    (
        lambda: shape_of(shapes.GPT_OSS | {"layer_types": ["full_attention"]}),
        "config: layer_types",
        "['full_attention']",
        [
            "5",
            "full_attention",
            "indexed_attention",
            "deepseek_sparse_attention",
            "sliding_attention",
            "chunked_attention",
            "linear_attention",
            "short_conv",
        ],
    ),
    (
        lambda: shape_of(shapes.QWEN | {"num_key_value_heads": 4}),
        "config: num_key_value_heads",
        "4",
        ["num_attention_heads", "6", "divisor"],
    ),
    (
        lambda: shape_of(shapes.BAILING | {"gated_attention_proj_granularity_type": "row"}),
        "config: gated_attention_proj_granularity_type",
        "'row'",
        ["head_wise", "element_wise", "None"],
    ),
    (
        lambda: shape_of(shapes.QWEN | {"tie_word_embeddings": 1.5}),
        "config: tie_word_embeddings",
        "1.5",
        ["True", "False"],
    ),
    (lambda: shape_of(shapes.GLM | {"use_qk_norm": 3}), "config: use_qk_norm", "3", ["True", "False"]),
    (lambda: shape_of(shapes.GLM | {"attention_bias": 3}), "config: attention_bias", "3", ["True", "False"]),
    (lambda: shape_of(shapes.QWEN | {"attention_bias": 3}), "config: attention_bias", "3", ["True", "False"]),
    (lambda: shape_of(shapes.BAILING | {"no_kda_lora": 3}), "config: no_kda_lora", "3", ["True", "False"]),
    (lambda: shape_of(shapes.QWEN | {"decoder_sparse_step": 0}), "config: decoder_sparse_step", "0", ["1", "integer"]),
    (lambda: per_tensor(shapes.QWEN, context=0).group("nothing"), "group", "'nothing'", ["experts", "head", "router"]),
    (lambda: per_tensor(shapes.QWEN, context=-1), "context", "-1", ["0", "integer"]),
    (lambda: per_tensor(shapes.QWEN, context=0, positions=0), "positions", "0", ["1", "integer"]),
    (lambda: per_tensor(shapes.QWEN, context=0, head="int4"), "head", "'int4'", ["bf16", "fp8", "fp32"]),
    (
        lambda: per_tensor(shapes.QWEN, context=0, positions=2, distinct_experts=3),
        "distinct_experts",
        "3",
        ["4", "8", "2"],
    ),
    (lambda: simple(shapes.QWEN, 0), "head_bits", "0", ["positive"]),
    (lambda: simple(shapes.QWEN, active_parameters=0), "active_parameters", "0", ["positive"]),
    (lambda: simple(shapes.QWEN, weight_bits=-1), "weight_bits", "-1", ["positive"]),
    (lambda: draft_pass(shapes.QWEN, context=0), "config: num_nextn_predict_layers", "0", ["NEXTN"]),
    (
        lambda: draft_pass(shapes.BAILING | {"num_nextn_predict_layers": 0}, context=0),
        "config: num_nextn_predict_layers",
        "0",
        ["NEXTN"],
    ),
    (lambda: expected_distinct_experts(8, 9, 1), "k", "9", ["1", "8", "experts"]),
    (lambda: expected_distinct_experts(8, 2, 0), "m", "0", ["1"]),
    (lambda: accept_length([0.5, 0.6]), "by_position", "[0.5, 0.6]", ["1", "probabilit"]),
    (lambda: speedup(0, 1), "a", "0", ["positive"]),
    (lambda: floor_s(0, 1), "step_bytes", "0", ["positive"]),
    (lambda: utilisation(1, 1, 0), "bandwidth", "0", ["positive"]),
    (
        lambda: compare_utilisation((Work("a", "b", "c", "d"), 1), (Work("x", "b", "c", "y"), 1)),
        "utilisation",
        "'byte_model, load differ'",
        ["byte model"],
    ),
    (lambda: round_bytes(shapes.BAILING, context=0, drafts=0), "drafts", "0", ["1", "integer"]),
    (
        lambda: context_crossover(shapes.GPT_OSS | {"layer_types": ["sliding_attention"] * 5}),
        "context_crossover",
        "'config'",
        ["KV"],
    ),
    (lambda: latency(1, 1, 0), "output_tokens", "0", ["1"]),
    (lambda: sensitivity(lambda x: 0 * x, {"x": 1}), "prediction", "0", ["zero"]),
    (lambda: sensitivity(lambda x: x, {"x": 1}, 0), "swing", "0", ["0", "1"]),
    (lambda: next_rung(0, 1, 1), "tpot", "0", ["positive"]),
    (lambda: wilson(3, 2), "correct", "3", ["0", "2"]),
    (lambda: mcnemar_exact(-1, 2), "discordant pairs", "(-1, 2)", ["counts"]),
    (lambda: paired_difference(5, 5, 9), "questions", "9", ["10"]),
]


@pytest.mark.parametrize("call, field, shown, accepted", REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(call, field, shown, accepted):
    with pytest.raises(BadInput) as refused:
        call()
    assert refused.value.field == field
    assert f"got {shown};" in str(refused.value) and "\n" not in str(refused.value)
    assert [word for word in accepted if word not in refused.value.accepted] == []
