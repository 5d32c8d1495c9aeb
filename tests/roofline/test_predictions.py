import pytest
import shapes

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import Tier, reported, spec
from labkit.roofline import predictions as p
from labkit.roofline.account import draft_pass, per_tensor
from labkit.roofline.quantization import quantization_of

LING = catalog.model("ling-3.0-flash").config


def test_rungs():
    assert p.next_rung(25.35, 3.355, 2.952) == pytest.approx(22.305, abs=1e-3)
    assert p.saving(27.71e-3, 3.355e9, 0.402e9) == pytest.approx(3.32e-3, abs=1e-5)
    got = p.next_rung(reported(25.35, "ms", "blog"), spec(3.355, "GB", "c"), spec(2.952, "GB", "c"))
    assert got.tier is Tier.DERIVED and got.to("ms").value == pytest.approx(22.305, abs=1e-3)


def test_rounds():
    r = p.round_bytes(LING, context=33792, drafts=3, head="fp8")
    plain, draft = per_tensor(LING, context=33792, head="fp8"), draft_pass(LING, context=33792, head="fp8")
    verify = per_tensor(LING, context=33792, head="fp8", positions=4)
    assert (r.plain, r.verify, r.draft, r.drafts) == (plain, verify, draft, 3)
    assert r.total_bytes == verify.total_bytes + 3 * draft.total_bytes
    assert r.c == pytest.approx(1.9299, abs=1e-4)
    without = p.round_bytes(LING, context=33792, drafts=3, head="fp8", draft_kv=False)
    assert r.total_bytes - without.total_bytes == pytest.approx(3 * 33792 * 1152)
    few = p.round_bytes(LING, context=0, drafts=1, distinct_experts=8)
    assert few.verify.distinct_experts == 8 and few.verify.positions == 2
    wide = p.round_bytes(LING, context=0, drafts=1, quant=quantization_of(LING).with_formats(experts="bf16"))
    assert wide.plain.quant.experts.name == wide.verify.quant.experts.name == wide.draft.quant.experts.name == "bf16"
    for bad in (0, 1.5, True):
        with pytest.raises(BadInput, match="drafts"):
            p.round_bytes(LING, context=0, drafts=bad)


def test_split():
    known = {"a": 3.9, "step_bytes": 2.9524e9, "base_bytes": 3.35478e9, "tpot": 9.72e-3, "base_tpot": 27.71e-3}
    s = p.two_factor_split(2.26, **known)
    assert s.bytes_per_token == pytest.approx(1.7109e9, rel=1e-4) and s.bytes_factor == pytest.approx(1.961, abs=1e-3)
    assert s.bandwidth == pytest.approx(176.0e9, rel=1e-3) and s.bandwidth_factor == pytest.approx(1.454, abs=1e-3)
    assert s.c == 2.26
    curve = p.split_curve([1.5, 2.0, 2.5], **known)
    gain = known["base_tpot"] / known["tpot"]
    assert [x.c for x in curve] == [1.5, 2.0, 2.5]
    assert all(x.bytes_factor * x.bandwidth_factor == pytest.approx(gain) for x in curve)
    assert curve[0].bytes_factor > curve[1].bytes_factor > curve[2].bytes_factor
    for name in ("c", *known):
        with pytest.raises(BadInput, match=f"^{name}:"):
            p.two_factor_split(**({"c": 2} | known | {name: 0}))


def test_capacity():
    assert p.weights_bytes(124e9, 4) == 62e9 and p.weights_bytes(10, 16) == 20
    assert p.room(128e9, 62e9) == 66e9 and p.room(1, 3) == -2
    for bad in ((0, 4), (1, 0)):
        with pytest.raises(BadInput):
            p.weights_bytes(*bad)


@pytest.mark.parametrize("model", [m for m in catalog.catalog().models if m != "pocket"])
def test_the_crossover_is_where_kv_equals_weights(model):
    config = catalog.model(model).config
    tokens = round(p.context_crossover(config))
    account = per_tensor(config, context=tokens)
    assert account.kv_bytes == pytest.approx(account.weight_bytes, rel=1e-5)


def test_crossover_choices():
    plain, fp8 = p.context_crossover(LING), p.context_crossover(LING, head="fp8")
    assert plain == pytest.approx(4813.867e6 / 8064, rel=1e-6) and fp8 < plain
    half = p.context_crossover(LING, quantization_of(LING).with_formats(kv="fp8-tensor"))
    assert half == pytest.approx(2 * plain)
    windowed = shapes.GPT_OSS | {"layer_types": ["sliding_attention"] * 5}
    with pytest.raises(BadInput, match="can outgrow its weights"):
        p.context_crossover(windowed)


def test_the_crossover_beside_a_window_by_hand():
    config = shapes.GPT_OSS | {"vocab_size": 10**5}
    weights = per_tensor(config, context=0).weight_bytes
    assert p.context_crossover(config) == pytest.approx((weights - 3 * 28 * 30 * 2) / (2 * 28 * 2))
    # A window too wide to fill: every layer grows until the crossing.
    wide = config | {"sliding_window": 10**9}
    assert p.context_crossover(wide) == pytest.approx(weights / (5 * 28 * 2))
    # Windows alone may suffice, or fill exactly at the crossing.
    only = config | {"layer_types": ["sliding_attention"] * 5, "sliding_window": 10**6}
    assert p.context_crossover(only) == pytest.approx(weights / (5 * 28 * 2))
    assert p.context_crossover(config | {"sliding_window": int(weights / 280)}) == pytest.approx(
        (weights - 3 * 28 * int(weights / 280) * 2) / (2 * 28 * 2)
    )


def test_latency():
    assert p.latency(0.207, 26.45e-3, 567) == pytest.approx(0.207 + 26.45e-3 * 566)
    assert p.latency(0.2, 1, 1) == 0.2
    assert p.latency(1, 2, 3, 4) == 9
    total = p.latency(reported(0.2, "s", "b"), reported(10, "ms", "b"), 101, reported(1, "s", "b"))
    assert total.to("s").value == pytest.approx(2.2)
    with pytest.raises(BadInput, match="output_tokens"):
        p.latency(1, 1, 0)


def test_sensitivity():
    found = p.sensitivity(lambda a, c, t: t * c / a**2, {"a": 3.9, "c": 2.26, "t": 20.0})
    by_name = {i.name: i for i in found}
    assert found[0].name == "a" and by_name["a"].elasticity == pytest.approx(-2, abs=1e-3)
    assert by_name["c"].elasticity == pytest.approx(1, abs=1e-6) and by_name["t"].elasticity == pytest.approx(
        1, abs=1e-6
    )
    centre = 20 * 2.26 / 3.9**2
    assert by_name["c"].low == pytest.approx(0.9 * centre) and by_name["c"].high == pytest.approx(1.1 * centre)
    wide = p.sensitivity(lambda x: x + 1, {"x": 1.0}, swing=0.5)[0]
    assert (wide.low, wide.high) == (1.5, 2.5) and wide.elasticity == pytest.approx(0.5, abs=1e-6)
    with pytest.raises(BadInput, match="prediction"):
        p.sensitivity(lambda x: 0 * x, {"x": 1})
    for bad in (0, 1):
        with pytest.raises(BadInput, match="swing"):
            p.sensitivity(lambda x: x, {"x": 1}, swing=bad)


def test_the_batch_axis():
    config = shapes.BAILING
    points = p.batch_axis(config, [1, 2, 100], context=50, bandwidth=1e6, peak_flops=1e9)
    one = per_tensor(config, context=50)
    assert points[0].step_bytes == pytest.approx(one.total_bytes)
    two = per_tensor(config, context=50, positions=2)
    assert points[1].step_bytes == pytest.approx(
        two.weight_bytes + 2 * (one.kv_bytes + one.state_bytes + one.convolution_bytes)
    )
    assert points[1].distinct_experts == pytest.approx(12 * (1 - (7 / 12) ** 2))
    assert points[2].distinct_experts == pytest.approx(12)
    for x in points:
        assert x.memory_s == x.step_bytes / 1e6
        assert x.compute_s == pytest.approx(2 * shapes.BAILING_ACTIVE * x.batch / 1e9)
        assert x.step_s == max(x.memory_s, x.compute_s) and x.tokens_per_s == x.batch / x.step_s
        assert x.label == "analytical, not measured"
    assert [x.batch for x in points] == [1, 2, 100]
    slow = p.batch_axis(config, [1], context=0, bandwidth=1e12, peak_flops=1.0)[0]
    assert slow.step_s == slow.compute_s
    free = p.batch_axis(config, [1], context=0, bandwidth=1e6)[0]
    assert free.compute_s is None and free.step_s == free.memory_s
    fp8 = p.batch_axis(config, [1], context=0, bandwidth=1e6, head="fp8")[0]
    assert fp8.step_bytes < free.step_bytes
    wide = p.batch_axis(
        config, [1], context=0, bandwidth=1e6, quant=quantization_of(config).with_formats(dense="fp32")
    )[0]
    assert wide.step_bytes > free.step_bytes
    with pytest.raises(BadInput, match="bandwidth"):
        p.batch_axis(config, [1], context=0, bandwidth=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: p.next_rung(x, 1, 1),
        lambda x: p.next_rung(1, x, 1),
        lambda x: p.next_rung(1, 1, x),
        lambda x: p.saving(x, 1, 1),
        lambda x: p.saving(1, x, 1),
    ],
)
def test_only_positive_numbers(call):
    for x in (0, -1, float("nan")):
        with pytest.raises(BadInput, match="positive number"):
            call(x)


def test_the_crossover_to_the_byte():
    wide = quantization_of(shapes.QWEN).with_formats(experts="fp32")
    weights = per_tensor(shapes.QWEN, context=0, quant=wide).weight_bytes
    assert p.context_crossover(shapes.QWEN, wide) == pytest.approx(weights / (6 * 28 * 2), abs=1e-9)
    # Where the windows are full exactly at the crossing, that is the crossing.
    only = shapes.GPT_OSS | {"layer_types": ["sliding_attention"] * 5, "head_dim": 1, "num_key_value_heads": 1}
    only["num_local_experts"] = 10
    weights = per_tensor(only, context=0).weight_bytes
    assert weights % 20 == 0, "a token of context is 5 layers * 2 values * 2 bytes"
    exact = only | {"sliding_window": int(weights // 20)}
    assert p.context_crossover(exact) == weights / 20
    with pytest.raises(BadInput):
        p.context_crossover(exact | {"sliding_window": int(weights // 20) - 1})
