import pytest
import shapes

from labkit import catalog
from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.quantization import quantization_of
from labkit.roofline.tensors import Role


def quant(quantisation=None, **fields):
    config = shapes.BAILING | fields
    return quantization_of(config if quantisation is None else config | {"quantization_config": quantisation}).as_dict()


BF16 = ("experts", "dense", "absorbed", "head", "embedding", "gate", "small", "kv", "convolution")
PLAIN = dict.fromkeys(BF16, "bf16") | {
    "router": "fp32",
    "state": "fp32",
}


@pytest.mark.parametrize(
    "quantisation, changed",
    [
        (None, {}),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            {"dense": "fp8-block128", "experts": "fp8-block128"},
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [64, 128]},
            {"dense": "fp8-block64x128", "experts": "fp8-block64x128"},
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [1, 128]},
            {"dense": "fp8-block1x128", "experts": "fp8-block1x128"},
        ),
        ({"quant_method": "fp8"}, {"dense": "fp8-tensor", "experts": "fp8-tensor"}),
        (
            {"quant_method": "fp8", "weight_block_size": [1, 128]},
            {"dense": "fp8-block1x128", "experts": "fp8-block1x128"},
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128], "routed_experts_quant_method": "mxfp4"},
            {"dense": "fp8-block128", "experts": "mxfp4"},
        ),
        (
            {"quant_method": "fp8", "routed_experts_quant_method": "mxfp4", "routed_experts_group_size": 32},
            {"dense": "fp8-tensor", "experts": "mxfp4"},
        ),
        ({"quant_method": "mxfp4"}, {"experts": "mxfp4"}),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            {"dense": "int4-g128z", "experts": "int4-g128z"},
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 1},
            {"dense": "int4-g1z", "experts": "int4-g1z"},
        ),
        (
            {"quant_method": "awq", "bits": 8, "group_size": 64},
            {"dense": "int8-g64z", "experts": "int8-g64z"},
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            {"dense": "int4-g32", "experts": "int4-g32", "head": "int4-g32"},
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["re:.*attention.*", "lm_head"],
                "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            {"experts": "int4-g32"},
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["re:.*self_attn.*", "lm_head"],
                "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            {"experts": "int4-g32"},
        ),
    ],
)
def test_recipes_of_configs(quantisation, changed):
    assert quant(quantisation) == PLAIN | changed


def test_dtypes():
    assert quant(router_dtype="float32")["router"] == "fp32"
    assert quant(router_dtype=None)["router"] == "bf16"
    assert quant(torch_dtype="float16", router_dtype="bf16") == dict.fromkeys(PLAIN, "fp16") | {"state": "fp32"}
    no_dtype = {k: v for k, v in shapes.BAILING.items() if k != "torch_dtype"}
    assert quantization_of(no_dtype | {"dtype": "float32"}).dense.name == "fp32"
    assert quantization_of(no_dtype).dense.name == "bf16"
    with pytest.raises(BadInput, match="torch_dtype.*bfloat16, float16, float32"):
        quant(torch_dtype="int4")


@pytest.mark.parametrize(
    "quantisation, what",
    [
        ("fp8", "quantization_config"),
        ({}, "quant_method"),
        ({"quant_method": "exotic"}, "quant_method.*'gptq'"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size"),
        ({"quant_method": "fp8", "routed_experts_quant_method": "int4"}, "routed_experts_quant_method"),
        (
            {"quant_method": "fp8", "routed_experts_quant_method": "mxfp4", "routed_experts_group_size": 16},
            "group_size",
        ),
        ({"quant_method": "gptq", "bits": 1, "group_size": 128}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -2}, "group"),
        ({"quant_method": "awq", "bits": 4, "group_size": True}, "group"),
        ({"quant_method": "awq", "bits": 4}, "group"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": None}}, "config_groups.a.weights"),
    ],
)
def test_quantisation_that_is_not_known(quantisation, what):
    with pytest.raises(BadInput, match=what):
        quant(quantisation)


def test_roles_and_overrides():
    r = quantization_of(catalog.model("ling-3.0-flash").config)
    names = {role: r.of(role).name for role in Role}
    assert names == {
        Role.EXPERTS: "mxfp4",
        Role.EXPERT_BIAS: "bf16",
        Role.DENSE: "fp8-block128",
        Role.ABSORBED: "bf16",
        Role.ROUTER: "fp32",
        Role.HEAD: "bf16",
        Role.EMBEDDING: "bf16",
        Role.SMALL: "bf16",
        Role.GATE: "bf16",
    }
    assert r.of(Role.ABSORBED, on_disk=True).name == "fp8-block128"
    assert r.of(Role.DENSE, on_disk=True).name == "fp8-block128"
    changed = r.with_formats(head="fp8-row", experts=None, kv="fp8-tensor")
    assert (changed.head.name, changed.experts.name, changed.kv.name) == ("fp8-row", "mxfp4", "fp8-tensor")
    with pytest.raises(BadInput, match="quantization.*heads"):
        r.with_formats(heads="bf16")
    overridden = quantization_of(ModelConfig(shapes.BAILING, formats={"small": "fp32"}))
    assert overridden.small.name == "fp32" and overridden.dense.name == "bf16"
