import json

import pytest
import shapes

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import Tier
from labkit.roofline.account import draft_pass, per_tensor
from labkit.roofline.quantization import quantization_of
from labkit.roofline.simple import bridge, simple
from labkit.roofline.sizes import checkpoint_bytes, kv_bytes_per_token

LING = catalog.model("ling-3.0-flash").config
D, V = shapes.D, shapes.V
QUANTISED = shapes.BAILING | {
    "quantization_config": {
        "quant_method": "fp8",
        "weight_block_size": [16, 16],
        "routed_experts_quant_method": "mxfp4",
    }
}


def blocks(rows, cols, side=16):
    return -(-rows // side) * -(-cols // side) * 4


def test_ling_line_by_line():
    account = per_tensor(LING, context=33792)
    lines = {g.name: (round(g.payload_bytes / 1e6, 2), round(g.scale_bytes / 1e6, 2), g.format) for g in account.groups}
    assert lines == {
        "KDA projections": (1835.01, 0.45, "fp8-block128"),
        "routed experts": (943.72, 58.98, "mxfp4"),
        "head": (804.78, 0.0, "bf16"),
        "KDA output projection": (367.0, 0.09, "fp8-block128"),
        "MLA": (253.7, 0.05, "fp8-block128"),
        "shared experts": (235.93, 0.06, "fp8-block128"),
        "router": (209.8, 0.0, "fp32"),
        "dense MLP": (94.37, 0.02, "fp8-block128"),
        "KDA small parts": (9.47, 0.0, "bf16"),
        "norms": (0.44, 0.0, "bf16"),
        "embedding row": (0.01, 0.0, "bf16"),
    }
    assert account.weight_bytes == pytest.approx(4813.867e6, rel=1e-6)
    assert (account.kv_bytes, account.state_bytes) == (33792 * 8064, 2 * 35 * 32 * 128 * 128 * 4)
    assert account.convolution_bytes == 2 * 35 * 3 * 4096 * 3 * 2
    assert account.total_bytes == pytest.approx(5.2383e9, rel=1e-5)
    assert account.what == "plain decode step" and account.distinct_experts == pytest.approx(8)


def test_a_quantised_step_by_hand():
    """Every group of the small BailingMoeV3 config, bytes written out."""
    account = per_tensor(QUANTISED, context=100)
    got = {g.name: (g.payload_bytes, g.scale_bytes, g.padding_bytes, g.format) for g in account.groups}
    wide = 27
    assert got["KDA projections"] == (4 * 5 * wide * D, 4 * 5 * blocks(wide, D), 0, "fp8-block16")
    assert got["KDA output projection"] == (4 * D * wide, 4 * blocks(D, wide), 0, "fp8-block16")
    assert got["KDA small parts"] == (4 * 2 * (3 * D + 3 * wide * 4 + wide + 3 + 9), 0, 0, "bf16")
    fp8 = 42 * D + 22 * D + 30 * D
    assert got["MLA"] == (
        4 * (fp8 + 2 * (16 + 54 * 16 + 3 * D)),
        4 * (blocks(42, D) + blocks(22, D) + blocks(D, 30)),
        0,
        "fp8-block16",
    )
    assert got["dense MLP"] == (3 * 50 * D, 2 * blocks(50, D) + blocks(D, 50), 0, "fp8-block16")
    assert got["shared experts"] == (7 * 3 * 26 * D, 7 * (2 * blocks(26, D) + blocks(D, 26)), 0, "fp8-block16")
    # Rows of 40 values take two groups of 32 (24 spare), rows of 11 one (21 spare).
    assert got["routed experts"] == (
        pytest.approx(7 * 5 * 3 * 11 * D / 2),
        pytest.approx(7 * 5 * (2 * 11 * 2 + D)),
        pytest.approx(7 * 5 * (2 * 11 * 24 + D * 21) / 2),
        "mxfp4",
    )
    assert got["router"] == (7 * 12 * (D + 1) * 4, 0, 0, "fp32")
    assert got["norms"] == (2 * (8 * 2 * D + D), 0, 0, "bf16")
    assert got["head"] == (2 * V * D, 0, 0, "bf16")
    assert got["embedding row"] == (2 * D, 0, 0, "bf16")
    assert account.kv_bytes == 4 * 22 * 100 * 2
    assert account.state_bytes == 2 * 4 * 3 * 81 * 4 and account.convolution_bytes == 2 * 4 * 3 * 27 * 3 * 2
    assert sum(g.parameters for g in account.groups) == pytest.approx(shapes.BAILING_ACTIVE)
    assert account.weight_bytes == pytest.approx(sum(a + b + c for a, b, c, _ in got.values()))
    assert account.total_bytes == pytest.approx(
        account.weight_bytes + account.kv_bytes + account.state_bytes + account.convolution_bytes
    )
    assert account.group("router").total_bytes == 7 * 12 * (D + 1) * 4


@pytest.mark.parametrize("name", shapes.ALL)
def test_a_plain_bf16_step_reads_two_bytes_for_each_active_parameter(name):
    config, _, active, _ = shapes.ALL[name]
    account = per_tensor(config | {"router_dtype": None}, context=0)
    assert account.weight_bytes == pytest.approx(2 * active)
    assert sum(g.parameters for g in account.groups) == pytest.approx(active)
    tied = per_tensor(config | {"router_dtype": None, "tie_word_embeddings": True}, context=0)
    assert tied.weight_bytes == pytest.approx(2 * active)


def test_heads():
    bf16, fp8, fp32 = (per_tensor(LING, context=0, head=h).group("head") for h in ("bf16", "fp8", "fp32"))
    assert (bf16.payload_bytes, bf16.scale_bytes) == (157184 * 2560 * 2, 0)
    assert (fp8.payload_bytes, fp8.scale_bytes, fp8.format) == (157184 * 2560, 157184 * 4, "fp8-row")
    assert fp32.payload_bytes == 157184 * 2560 * 4
    assert fp8.total_bytes == 157184 * 2564
    with pytest.raises(BadInput, match="head"):
        per_tensor(LING, context=0, head="int4")


def test_verify_steps():
    plain, verify = (per_tensor(QUANTISED, context=64, positions=m) for m in (1, 3))
    distinct = 12 * (1 - (7 / 12) ** 3)
    assert verify.distinct_experts == pytest.approx(distinct)
    ratio = distinct / 5
    assert verify.group("routed experts").total_bytes == pytest.approx(
        ratio * plain.group("routed experts").total_bytes
    )
    assert verify.group("embedding row").payload_bytes == 3 * plain.group("embedding row").payload_bytes
    for name in ("head", "MLA", "router", "norms", "KDA projections", "shared experts"):
        assert verify.group(name) == plain.group(name)
    assert (verify.kv_bytes, verify.state_bytes) == (plain.kv_bytes, plain.state_bytes)
    assert verify.what == "verify step of 3 positions" and verify.positions == 3
    given = per_tensor(QUANTISED, context=64, positions=3, distinct_experts=6)
    assert given.group("routed experts").payload_bytes == pytest.approx(
        6 / 5 * plain.group("routed experts").payload_bytes
    )
    for bad in (4.9, 12.1):
        with pytest.raises(BadInput, match="distinct_experts.*5 to 12"):
            per_tensor(QUANTISED, context=64, positions=3, distinct_experts=bad)
    for edge in (5, 12):
        assert per_tensor(QUANTISED, context=0, positions=3, distinct_experts=edge).distinct_experts == edge
    assert per_tensor(QUANTISED, context=0, positions=2, distinct_experts=10).distinct_experts == 10
    with pytest.raises(BadInput, match="5 to 10"):
        per_tensor(QUANTISED, context=0, positions=2, distinct_experts=11)


def test_draft_pass():
    draft = draft_pass(QUANTISED, context=100, head="fp8")
    got = {g.name: (g.payload_bytes, g.scale_bytes) for g in draft.groups}
    assert got["NEXTN projection"] == (2 * D * D, blocks(D, 2 * D))
    assert got["norms"] == (2 * 5 * D, 0) and got["embedding row"] == (2 * D, 0)
    assert got["head"] == (V * D, 4 * V)
    assert got["routed experts"][0] == 5 * 3 * 11 * D / 2
    assert got["router"] == (12 * (D + 1) * 4, 0)
    assert draft.kv_bytes == 22 * 100 * 2 and draft.state_bytes == draft.convolution_bytes == 0
    assert draft_pass(QUANTISED, context=100, own_kv=False).kv_bytes == 0
    assert draft.what == "draft pass" and draft.positions == 1 and draft.distinct_experts == 5
    assert sum(g.parameters for g in draft.groups) == pytest.approx(shapes.BAILING_NEXTN - 7 * 3 * D * 11 + V * D + D)
    with pytest.raises(BadInput, match="num_nextn_predict_layers.*NEXTN"):
        draft_pass(shapes.QWEN, context=1)


def test_checkpoint():
    assert checkpoint_bytes(LING) == pytest.approx(70.45e9, rel=0.005)
    assert checkpoint_bytes(LING) == pytest.approx(70.4e9, abs=0.05e9)
    plain = shapes.BAILING | {"router_dtype": None}
    assert checkpoint_bytes(plain) == 2 * (shapes.BAILING_TOTAL + shapes.BAILING_NEXTN)
    assert checkpoint_bytes(plain, nextn=False) == 2 * shapes.BAILING_TOTAL
    assert checkpoint_bytes(
        plain, quantization_of(plain).with_formats(dense="fp32", absorbed="fp16")
    ) > checkpoint_bytes(plain)
    # kv_b has the dense format on disk, whatever a step reads
    r = quantization_of(QUANTISED)
    assert checkpoint_bytes(QUANTISED, r) == checkpoint_bytes(QUANTISED, r.with_formats(absorbed="fp32"))


def test_simple_account():
    s = simple(LING, active_parameters=5.1e9)
    assert (s.weight_bytes, s.head_bytes) == (5.1e9 / 2, 157184 * 2560 * 2)
    assert s.total_bytes == pytest.approx(3.355e9, abs=0.5e6)
    assert simple(LING, 8, active_parameters=5.1e9).total_bytes == pytest.approx(2.952e9, abs=0.5e6)
    own = simple(LING)
    assert own.active_parameters == 5103304672 and own.weight_bits == 4 and own.head_bits == 16
    assert simple(shapes.QWEN).weight_bits == 16
    assert simple(shapes.QWEN, weight_bits=8).weight_bytes == shapes.QWEN_ACTIVE
    for bad in ({"head_bits": 0}, {"active_parameters": -1}, {"weight_bits": 0}, {"head_bits": float("nan")}):
        with pytest.raises(BadInput, match=next(iter(bad))):
            simple(LING, **bad)


def test_kv_a_token():
    assert kv_bytes_per_token(LING) == 8064
    assert kv_bytes_per_token(LING, quantization_of(LING).with_formats(kv="fp8-tensor")) == 4032
    for model, value in (
        ("ling-3.0-tiny", 6912),
        ("gpt-oss-120b", 73728),
        ("qwen3-30b-a3b", 98304),
        ("deepseek-v3", 70272),
        ("glm-4.5-air", 188416),
        ("kimi-linear-48b-a3b", 8064),
    ):
        assert kv_bytes_per_token(catalog.model(model).config) == value


def test_state_of_the_linear_models():
    for model, megabytes in (("ling-3.0-flash", 73), ("ling-3.0-tiny", 19), ("kimi-linear-48b-a3b", 42)):
        assert per_tensor(catalog.model(model).config, context=0).state_bytes / 2e6 == pytest.approx(megabytes, abs=0.5)


@pytest.mark.parametrize(
    "bad",
    [
        {"context": -1},
        {"context": 1.5},
        {"context": True},
        {"context": 0, "positions": 0},
        {"context": 0, "positions": 2.0},
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(BadInput, match="integer of at least"):
        per_tensor(LING, **bad)


def test_evidence_and_json():
    account = per_tensor(LING, context=1000)
    e = account.evidence()
    assert (e.tier, e.unit, e.value) == (Tier.DERIVED, "B", account.total_bytes)
    assert "config.json" in e.source and e.formula == "plain decode step" and e.inputs[0].value == 1000
    d = json.loads(json.dumps(account.as_dict()))
    assert d["total_bytes"] == account.total_bytes and d["kv_bytes"] == account.kv_bytes
    assert d["state_bytes"] == account.state_bytes and d["convolution_bytes"] == account.convolution_bytes
    assert d["model"] == "ling-3.0-flash" and d["context"] == 1000 and d["positions"] == 1
    assert d["weight_bytes"] == account.weight_bytes and d["what"] == "plain decode step"
    assert d["distinct_experts"] == account.distinct_experts and d["source"] == LING.source
    assert d["quantization"]["experts"] == "mxfp4"
    first = d["groups"][0]
    assert first == {
        "name": "KDA projections",
        "payload_bytes": account.groups[0].payload_bytes,
        "scale_bytes": account.groups[0].scale_bytes,
        "format": "fp8-block128",
        "padding_bytes": 0,
        "parameters": account.groups[0].parameters,
    }
    with pytest.raises(BadInput, match="group.*routed experts"):
        account.group("experts")


def test_the_bridge_between_the_accounts():
    account, short = per_tensor(LING, context=33792), simple(LING)
    steps = dict(bridge(short, account))
    assert sum(steps.values()) == pytest.approx(account.total_bytes - short.total_bytes)
    assert {k: round(v / 1e6) for k, v in steps.items()} == {
        "the head, counted twice": -201,
        "FP8 parts, not 4-bit": 1408,
        "FP32 parts, not 4-bit": 184,
        "BF16 parts, not 4-bit": 7,
        "block scales and padding": 60,
        "KV of the context": 272,
        "linear-attention state": 152,
    }
    head8 = dict(bridge(simple(LING, 16), per_tensor(LING, context=0, head="fp8")))
    assert head8["head in another format"] == -157184 * 2560 and "KV of the context" not in head8
    published = dict(bridge(simple(LING, active_parameters=5.1e9), account))
    assert published["other active parameters"] == pytest.approx((5103304672 - 5.1e9) / 2)
    oss = per_tensor(shapes.GPT_OSS | {"quantization_config": {"quant_method": "mxfp4"}}, context=0)
    steps = dict(bridge(simple(shapes.GPT_OSS, weight_bits=4), oss))
    assert steps["wider parts among the MXFP4"] == pytest.approx(5 * 4 * (22 + D) * 1.5)
    plain = per_tensor(shapes.QWEN, context=0)
    assert list(dict(bridge(simple(shapes.QWEN), plain))) == ["the head, counted twice"]
    # Less than a millionth of the step is no line of its own; padding belongs to the scales.
    tiny = simple(shapes.QWEN, active_parameters=shapes.QWEN_ACTIVE - 1e-7 * plain.total_bytes)
    assert list(dict(bridge(tiny, plain))) == ["the head, counted twice"]
    padded = per_tensor(QUANTISED, context=0)
    assert dict(bridge(simple(QUANTISED), padded))["block scales and padding"] == pytest.approx(
        sum(g.scale_bytes + g.padding_bytes for g in padded.groups)
    )
    assert padded.group("routed experts").padding_bytes > 0


def test_a_line_names_the_format_of_most_of_its_payload():
    mixed = quantization_of(QUANTISED).with_formats(gate="fp32")  # 480 bytes of gates, 726 of convolutions and the like
    assert per_tensor(QUANTISED, context=0, quant=mixed).group("KDA small parts").format == "bf16"
    wide = mixed.with_formats(gate="fp32", small="fp16")
    assert per_tensor(QUANTISED, context=0, quant=wide).group("KDA small parts").format == "fp16"
