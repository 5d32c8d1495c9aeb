"""Bytes grow with bits, context and window; experts stay within their bounds; for every known architecture."""

import shapes
from hypothesis import given
from hypothesis import strategies as st

from labkit.roofline.account import draft_pass, per_tensor
from labkit.roofline.formats import Format
from labkit.roofline.predictions import round_bytes
from labkit.roofline.quantization import quantization_of
from labkit.roofline.simple import simple
from labkit.roofline.speculation import expected_distinct_experts

configs = st.sampled_from([c for c, *_ in shapes.ALL.values()])
contexts = st.integers(0, 300_000)
# By bits a value, scales included: each entry takes at most as much as the next for any matrix side of 16 or more.
WIDTHS = ("mxfp4", "nvfp4", "int8-g64", "bf16", "fp32")
roles = st.sampled_from(
    ("experts", "dense", "absorbed", "router", "head", "embedding", "gate", "small", "kv", "state", "convolution")
)


@given(configs, roles, contexts, st.integers(1, 6))
def test_more_bits_more_bytes(config, role, context, tokens):
    quant = quantization_of(config)
    totals = [
        per_tensor(config, context=context, positions=tokens, quant=quant.with_formats(**{role: w})).total_bytes
        for w in ("fp16", "fp32")
    ]
    assert totals[0] <= totals[1]
    eight = per_tensor(config, context=context, positions=tokens, quant=quant.with_formats(**{role: "int8-g64"}))
    assert role in ("router", "small") or eight.total_bytes <= totals[0] * (1 + 1e-12)


@given(st.integers(32, 400), st.integers(32, 400))
def test_formats_are_ordered_by_width(rows, cols):
    sizes = [Format.parse(w).size(rows, cols - cols % 32) for w in WIDTHS]
    assert [s.total for s in sizes] == sorted(s.total for s in sizes)
    assert all(s.payload >= 0 and s.scale >= 0 and s.padding >= 0 for s in sizes)


@given(configs, contexts, contexts)
def test_more_context_more_bytes(config, one, other):
    low, high = sorted((one, other))
    a, b = (per_tensor(config, context=c) for c in (low, high))
    assert a.kv_bytes <= b.kv_bytes and a.weight_bytes == b.weight_bytes and a.state_bytes == b.state_bytes
    assert a.total_bytes <= b.total_bytes


@given(configs, contexts, st.integers(1, 64))
def test_a_wider_window_reads_more_but_less_than_as_many_plain_steps(config, context, tokens):
    plain, window, next_window = (per_tensor(config, context=context, positions=m) for m in (1, tokens, tokens + 1))
    assert plain.total_bytes <= window.total_bytes <= next_window.total_bytes
    assert window.total_bytes <= tokens * plain.total_bytes * (1 + 1e-12)
    # Rounding of 1 - (1 - k/n) may lie a hair below k.
    assert window.distinct_experts >= plain.distinct_experts * (1 - 1e-12)


@given(st.integers(1, 1024), st.data())
def test_distinct_experts_lie_between_k_and_all(n, data):
    k, m = data.draw(st.integers(1, n)), data.draw(st.integers(1, 200))
    distinct = expected_distinct_experts(n, k, m)
    slack = 1e-9 * n
    assert k - slack <= distinct <= min(n, m * k) + slack
    assert distinct <= expected_distinct_experts(n, k, m + 1) + slack


@given(st.sampled_from([c for c, _, _, nextn in shapes.ALL.values() if nextn]), contexts, st.integers(1, 7))
def test_a_round_costs_more_than_its_verify_and_less_than_doing_all_apart(config, context, drafts):
    r = round_bytes(config, context=context, drafts=drafts)
    assert r.verify.total_bytes < r.total_bytes
    assert r.c > 1
    assert r.total_bytes < round_bytes(config, context=context, drafts=drafts + 1).total_bytes
    assert draft_pass(config, context=context).total_bytes < r.plain.total_bytes


@given(configs, st.floats(1, 32), st.floats(1, 32), st.floats(1, 32))
def test_the_simple_account_is_monotone_in_bits(config, weight, head, more):
    base = simple(config, head, weight_bits=weight).total_bytes
    assert base <= simple(config, head, weight_bits=weight + more).total_bytes
    assert base <= simple(config, head + more, weight_bits=weight).total_bytes


@given(configs, contexts, st.integers(1, 8))
def test_a_total_is_the_sum_of_its_parts(config, context, tokens):
    a = per_tensor(config, context=context, positions=tokens)
    parts = sum(g.payload_bytes + g.scale_bytes + g.padding_bytes for g in a.groups)
    assert abs(a.total_bytes - parts - a.kv_bytes - a.state_bytes - a.convolution_bytes) <= 1e-6 * a.total_bytes
