import pytest
import shapes

from labkit import catalog
from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.roofline.architectures import KNOWN, shape_of


@pytest.mark.parametrize("name", shapes.ALL)
def test_parameters_counted_by_hand(name):
    config, total, active, nextn = shapes.ALL[name]
    shape = shape_of(config)
    assert shape.total_parameters == total
    assert shape.active_parameters == active
    assert shape.nextn_parameters == nextn
    assert (shape.hidden, shape.vocab, shape.tied) == (shapes.D, shapes.V, False)
    assert shape.architecture == config["architectures"][0] in KNOWN


@pytest.mark.parametrize("name", shapes.ALL)
def test_a_tied_head_is_counted_once_but_read(name):
    config, total, active, _ = shapes.ALL[name]
    shape = shape_of(config | {"tie_word_embeddings": True})
    assert shape.total_parameters == total - shapes.V * shapes.D
    assert shape.active_parameters == active
    assert shape.tied


def test_caches_and_state():
    bailing = shape_of(shapes.BAILING)
    assert [(c.layers, c.values, c.window) for c in bailing.caches] == [(4, 22, None)]
    assert [(c.layers, c.values) for c in bailing.nextn_caches] == [(1, 22)]
    assert bailing.recurrent == 4 * 3 * 9 * 9 and bailing.convolution == 4 * 3 * 27 * 3
    assert (bailing.experts, bailing.top_k) == (12, 5)
    oss = shape_of(shapes.GPT_OSS)
    assert [(c.layers, c.values, c.window) for c in oss.caches] == [(2, 28, None), (3, 28, 30)]
    read = [sum(c.values_read(context) for c in oss.caches) for context in (10, 100)]
    assert read == [5 * 28 * 10, 28 * (2 * 100 + 3 * 30)]
    kimi = shape_of(shapes.KIMI)
    assert kimi.recurrent == 3 * 4 * 81 and kimi.convolution == 3 * 3 * 36 * 2
    assert kimi.caches[0].layers == 2 and not kimi.nextn and not kimi.nextn_caches
    for config, layers, values in ((shapes.QWEN, 6, 28), (shapes.GLM, 6, 28), (shapes.DEEPSEEK, 6, 22)):
        (cache,) = shape_of(config).caches
        assert (cache.layers, cache.values, cache.window) == (layers, values, None)
        assert shape_of(config).recurrent == shape_of(config).convolution == 0
    assert [(c.layers, c.values) for c in shape_of(shapes.GLM).nextn_caches] == [(1, 28)]
    assert [c.layers for c in shape_of(shapes.DEEPSEEK).nextn_caches] == [1]


def test_options_of_the_config_change_the_count():
    b = shapes.BAILING
    element_wise = shape_of(b | {"gated_attention_proj_granularity_type": "element_wise"})
    assert element_wise.total_parameters - shapes.BAILING_TOTAL == 4 * shapes.D * (3 * 10 - 3)
    none = shape_of(b | {"gated_attention_proj_granularity_type": None})
    assert shapes.BAILING_TOTAL - none.total_parameters == 4 * 3 * shapes.D
    low_rank = shape_of(b | {"no_kda_lora": False})
    assert shapes.BAILING_TOTAL - low_rank.total_parameters == 4 * (shapes.kda(3, 9, 4) - shapes.kda(3, 9, 4, True))
    rank = shape_of(b | {"q_lora_rank": 14})
    assert rank.total_parameters - shapes.BAILING_TOTAL == 4 * (shapes.mla(rank=14) - shapes.mla())
    assert not shape_of(b | {"num_nextn_predict_layers": 0}).nextn
    assert not shape_of({k: v for k, v in b.items() if k != "num_nextn_predict_layers"}).nextn
    assert shape_of(b | {"num_shared_experts": 0}).total_parameters == shapes.BAILING_TOTAL - 7 * 3 * shapes.D * 26
    assert shape_of(
        b | {"first_k_dense_replace": 0}
    ).total_parameters == shapes.BAILING_TOTAL - 3 * shapes.D * 50 + shapes.moe(12, 11, 26)
    plain = shape_of(shapes.GLM | {"attention_bias": False, "use_qk_norm": False, "num_nextn_predict_layers": 0})
    assert plain.total_parameters == shapes.GLM_TOTAL - 6 * (70 + 14) and not plain.nextn
    assert not shape_of(shapes.DEEPSEEK | {"num_nextn_predict_layers": 0}).nextn
    biased = shape_of(shapes.QWEN | {"attention_bias": True})
    assert biased.total_parameters == shapes.QWEN_TOTAL + 6 * (10 * 7 + shapes.D)
    every = shape_of({k: v for k, v in shapes.QWEN.items() if k not in ("decoder_sparse_step", "mlp_only_layers")})
    assert every.total_parameters == shapes.QWEN_TOTAL + 4 * (shapes.moe(9, 11, 0, False) - 3 * shapes.D * 50)


@pytest.mark.parametrize(
    "model, total, active",
    [
        ("ling-3.0-flash", 124.41e9, 5.10e9),
        ("gpt-oss-120b", 116.8e9, 5.13e9),
        ("deepseek-v3", 671e9, 36.6e9),
        ("qwen3-30b-a3b", 30.5e9, 3.04e9),
        ("glm-4.5-air", 106.8e9, 12.8e9),
        ("kimi-linear-48b-a3b", 49.1e9, 3.11e9),
        ("ling-3.0-tiny", 7.9e9, 1.14e9),
    ],
)
def test_published_parameter_counts_within_half_a_percent(model, total, active):
    shape = shape_of(catalog.model(model).config)
    assert shape.total_parameters == pytest.approx(total, rel=0.005)
    assert shape.active_parameters == pytest.approx(active, rel=0.005)


@pytest.mark.parametrize("model", [m for m in catalog.catalog().models if m != "pocket"])
def test_counts_against_what_the_makers_publish(model):
    known = catalog.model(model)
    shape = shape_of(known.config)
    for name, mine in (("total_parameters", shape.total_parameters), ("active_parameters", shape.active_parameters)):
        notes = known.published_notes[name]
        if notes.get("counts") == "embedding table":
            mine += shape.vocab * shape.hidden - shape.hidden
        slack = max(0.005 * known.published[name].si, notes.get("rounded_to", 0))
        if (model, name) == ("ling-3.0-tiny", "active_parameters"):
            slack = 0.17e9  # published as 1.3e9 by one source and 1.14e9 by another
        assert abs(mine - known.published[name].si) <= slack, name


def test_an_unknown_architecture_is_an_error_that_names_the_nearest():
    with pytest.raises(BadInput, match="Lama3ForCausalLM.*nearest by name: Llama.*no guess"):
        shape_of(shapes.QWEN | {"architectures": ["Lama3ForCausalLM"]})


def test_a_wrapper_is_known_by_its_language_model():
    inner = {k: v for k, v in shapes.QWEN.items() if k != "architectures"} | {"model_type": "qwen3_moe"}
    shape = shape_of({"architectures": ["NobodysWrapper"], "text_config": inner, "vision_config": {"hidden_size": 9}})
    assert shape.total_parameters == shapes.QWEN_TOTAL and "vision" in shape.notes[0]


@pytest.mark.parametrize(
    "field, value",
    [
        ("num_memory_heads", 4),
        ("use_latent_moe", True),
        ("attn_window_pattern", "LLLG"),
        ("cross_layer_kv_share", [1, 2]),
        ("mystery", 7),
        ("mtp_use_kda", True),
        ("expand_ratio", 1.5),
        ("linear_attn_config", {"num_heads": 3}),
    ],
)
def test_a_geometry_field_that_the_family_does_not_know_is_refused_by_name(field, value):
    with pytest.raises(BadInput, match=f"does not know for Qwen3MoeForCausalLM: got '{field}"):
        shape_of(shapes.QWEN | {field: value})


@pytest.mark.parametrize(
    "field, value",
    [
        ("num_memory_heads", None),
        ("use_latent_moe", False),
        ("attn_window_pattern", ""),
        ("bos_token_id", 151643),
        ("rope_scaling", {"factor": 4.0}),
        ("max_position_embeddings", 40960),
        ("router_aux_loss_coef", 0.001),
        ("initializer_range", 0.02),
        ("some_new_threshold", 0.5),
        ("unsloth_version", "2026.1"),
    ],
)
def test_fields_that_change_no_tensor_are_passed_over(field, value):
    assert shape_of(shapes.QWEN | {field: value}).total_parameters == shapes.QWEN_TOTAL


def test_one_count_told_twice_must_agree():
    assert shape_of(shapes.QWEN | {"num_local_experts": 9}).experts == 9
    with pytest.raises(BadInput, match="num_experts and num_local_experts"):
        shape_of(shapes.QWEN | {"num_local_experts": 8})


@pytest.mark.parametrize("name", shapes.ALL)
def test_every_field_is_needed_or_checked(name):
    """Take away or spoil each field in turn: no field of these configs may be silently replaced by a default."""
    config = shapes.ALL[name][0]
    optional = {"torch_dtype", "num_nextn_predict_layers", "decoder_sparse_step", "mlp_only_layers", "router_dtype"}
    for field in config:
        if field not in optional:
            with pytest.raises(BadInput, match=field):
                shape_of({k: v for k, v in config.items() if k != field})
        if field not in optional | {"linear_attn_config"}:
            with pytest.raises(BadInput):
                shape_of(config | {field: "many"})
        if isinstance(config[field], int) and not isinstance(config[field], bool):
            with pytest.raises(BadInput, match=field):
                shape_of(config | {field: -1})


def test_all_missing_fields_at_once():
    with pytest.raises(BadInput, match="missing fields.*num_hidden_layers, num_attention_heads, kv_lora_rank"):
        shape_of({"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 9, "hidden_size": 8})


@pytest.mark.parametrize(
    "change, what",
    [
        ({"architectures": []}, "architectures"),
        ({"architectures": "x"}, "architectures"),
        ({"architectures": [3]}, "architectures"),
        ({"num_experts_per_tok": 13}, "experts per token.*12"),
        ({"first_k_dense_replace": 8}, "first_k_dense_replace"),
        ({"mtp_use_kda": True}, "mtp_use_kda"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"gated_attention_proj_granularity_type": "row"}, "gated_attention"),
        ({"hidden_size": True}, "hidden_size"),
        ({"vocab_size": 1.5}, "vocab_size"),
        ({"q_lora_rank": 0}, "q_lora_rank"),
        ({"head_dim": 0}, "head_dim"),
    ],
)
def test_bad_fields(change, what):
    with pytest.raises(BadInput, match=what):
        shape_of(shapes.BAILING | change)


def test_limits_are_inclusive():
    assert shape_of(shapes.BAILING | {"num_experts_per_tok": 12}).top_k == 12
    assert shape_of(shapes.BAILING | {"first_k_dense_replace": 7}).total_parameters > 0
    assert shape_of(shapes.QWEN | {"num_key_value_heads": 6}).caches[0].values == 2 * 6 * 7


def test_bad_lists():
    with pytest.raises(BadInput, match="layer_types"):
        shape_of(shapes.GPT_OSS | {"layer_types": ["full_attention"] * 4})
    with pytest.raises(BadInput, match="layer_types"):
        shape_of(shapes.GPT_OSS | {"layer_types": ["full_attention"] * 4 + ["windowed"]})
    with pytest.raises(BadInput, match="num_key_value_heads"):
        shape_of(shapes.QWEN | {"num_key_value_heads": 4})
    linear = shapes.KIMI["linear_attn_config"]
    with pytest.raises(BadInput, match="lists of 5 layers"):
        shape_of(shapes.KIMI | {"linear_attn_config": linear | {"kda_layers": [1, 2]}})
    for field in linear:
        with pytest.raises(BadInput, match=field):
            shape_of(shapes.KIMI | {"linear_attn_config": {k: v for k, v in linear.items() if k != field}})
    with pytest.raises(BadInput, match="config"):
        shape_of(shapes.KIMI | {"linear_attn_config": None})
    with pytest.raises(BadInput, match="config"):
        shape_of([1])
    assert shape_of(ModelConfig(shapes.QWEN)).total_parameters == shapes.QWEN_TOTAL


@pytest.mark.parametrize("name", shapes.ALL)
def test_the_inventory_of_tensors(name):
    """inventory.json: name, group, role, rows, columns, layers and experts of every tensor of the small configs."""
    import json
    from pathlib import Path

    expected = json.loads((Path(__file__).parent / "inventory.json").read_text())[name]
    shape = shape_of(shapes.ALL[name][0])
    for part in ("tensors", "nextn"):
        found = [[t.name, t.group, t.role.value, t.rows, t.cols, t.layers, t.experts] for t in getattr(shape, part)]
        assert found == expected[part]


@pytest.mark.parametrize(
    "config, total, field, layers, inner",
    [
        (shapes.KIMI, shapes.KIMI_TOTAL, "num_shared_experts", 4, 22),
        (shapes.DEEPSEEK, shapes.DEEPSEEK_TOTAL, "n_shared_experts", 4, 22),
        (shapes.GLM, shapes.GLM_TOTAL, "n_shared_experts", 4, 22),
    ],
)
def test_no_shared_expert_is_allowed(config, total, field, layers, inner):
    assert shape_of(config | {field: 0}).total_parameters == total - layers * 3 * shapes.D * inner


@pytest.mark.parametrize("config", [shapes.BAILING, shapes.DEEPSEEK, shapes.GLM])
def test_without_the_field_there_is_no_nextn_layer(config):
    for bare in (
        {k: v for k, v in config.items() if k != "num_nextn_predict_layers"},
        config | {"num_nextn_predict_layers": 0},
    ):
        assert shape_of(bare).nextn == () and shape_of(bare).nextn_caches == ()
    two = shape_of(config | {"num_nextn_predict_layers": 2})
    assert [c.layers for c in two.nextn_caches] == [1] and two.nextn_layers == 2, "one pass goes through one layer"


def test_sparse_steps_count_from_one():
    third = shape_of(shapes.QWEN | {"decoder_sparse_step": 3})  # layers 2 and 5 of 6
    assert third.total_parameters == shapes.QWEN_TOTAL
    fourth = shape_of(shapes.QWEN | {"decoder_sparse_step": 4, "mlp_only_layers": []})  # layer 3 alone
    assert fourth.total_parameters == shapes.QWEN_TOTAL - shapes.moe(9, 11, 0, False) + 3 * shapes.D * 50


def test_no_field_that_some_family_counts_with_is_passed_over():
    """A pattern of ignorable.txt must not swallow a geometry field of a family that a config does not belong to."""
    from labkit.roofline.architectures import _table
    from labkit.roofline.geometry import _gives_geometry

    names = {n for aliases in _table()["fields"].values() for n in aliases}
    for spec in _table()["families"].values():
        names |= set(spec.get("needs", ())) | {n for aliases in spec.get("fields", {}).values() for n in aliases}
        names |= {v for part in ("attention", "linear", "moe") for v in spec.get(part, {}).values() if _is_field(v)}
    # Formats of a state, and a bias of one number an expert.
    told_elsewhere = {"mamba_ssm_cache_dtype", "mamba_ssm_dtype", "moe_router_enable_expert_bias"}
    missed = [n for n in sorted(names - told_elsewhere) if not _gives_geometry(n.rpartition(".")[2], 3)]
    assert not missed


def _is_field(value):
    return isinstance(value, str) and "_" in value and "." not in value and "=" not in value and " " not in value
