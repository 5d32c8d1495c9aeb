"""Definitions, checked against numbers worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.measure import metrics


def row(**over):
    base = {
        "status": "ok",
        "repeat": 0,
        "index": 0,
        "ttft_s": 1.0,
        "latency_s": 3.0,
        "output_tokens": 11,
        "tpot_s": 0.2,
        "accept_length": None,
        "verify_ct": None,
        "error": None,
        "fixed_length": True,
    }
    return base | over


def test_tpot():
    assert metrics.tpot(3.0, 1.0, 11) == pytest.approx(0.2)
    with pytest.raises(BadInput):
        metrics.tpot(3.0, 1.0, 1)


def test_throughput_is_an_aggregate_not_a_mean_of_ratios():
    rows = [row(), row(ttft_s=0.0, latency_s=1.0, output_tokens=101, tpot_s=0.01)]
    assert metrics.decode_throughput(rows) == pytest.approx(110 / 3)  # a mean of ratios would say 52.5
    assert metrics.decode_throughput([row(status="refused")]) is None


def test_accept_length_pools_requests():
    rows = [row(output_tokens=10, verify_ct=5), row(output_tokens=90, verify_ct=25)]
    assert metrics.accept_length(rows) == pytest.approx(100 / 30)  # a mean of ratios would say 2.8
    assert metrics.accept_length([row()]) is None
    assert metrics.accept_length([row(verify_ct=math.nan)]) is None


def test_by_position():
    h = [10, 20, 30, 40]
    assert metrics.by_position(h) == pytest.approx([0.9, 0.7, 0.4])
    assert metrics.by_position(h, conditional=True) == pytest.approx([0.9, 7 / 9, 4 / 7])
    with pytest.raises(BadInput):
        metrics.by_position([0, 0])


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=9).filter(any))
def test_marginal_rates_sum_to_the_mean_of_accepted_drafts(h):
    mean = sum(i * n for i, n in enumerate(h)) / sum(h)
    rates = metrics.by_position(h)
    assert sum(rates) == pytest.approx(mean)
    assert all(a >= b for a, b in zip(rates, rates[1:], strict=False))


def test_round_time_c_and_speedup():
    # 1.5 ms a token at a = 3: rounds of 4.5 ms; plain 2 ms a token: c = 2.25, S = 4/3 = 2 / 1.5.
    assert metrics.round_time(1.5e-3, 3) == pytest.approx(4.5e-3)
    c = metrics.relative_cost(1.5e-3, 3, 2e-3)
    assert c == pytest.approx(2.25)
    assert metrics.speedup(3, c) == pytest.approx(2 / 1.5)


def test_itl_divides_by_the_tokens_of_a_chunk():
    assert metrics.itl([0.1, 0.4, 0.5], [1, 4, 4]) == pytest.approx([0.1])


def test_summary_leaves_out_what_does_not_count_and_says_so():
    rows = [row(repeat=r, tpot_s=0.2 + 0.001 * r) for r in range(3)]
    rows += [row(repeat=1, status="refused", error="flush"), row(repeat=-1, status="warmup", tpot_s=9.0)]
    s = metrics.summarise(rows)
    assert (s["requests"], s["left_out"]) == (3, 1)
    assert s["tpot_s"]["median"] == pytest.approx(0.201)
    assert s["accept_length"] is None
    assert s["warnings"] == ["1 of 4 samples refused: flush"]


def test_warnings():
    few = metrics.summarise([row(), row(tpot_s=0.3, repeat=1, output_tokens=7, thread_cpu_s=1.0)])
    assert any("2 repeat(s)" in w for w in few["warnings"])
    assert any(w.startswith("unstable") for w in few["warnings"])
    assert any("output lengths differ (7 to 11)" in w for w in few["warnings"])
    assert any("a core only 50%" in w for w in few["warnings"])


def test_a_long_prompt_is_no_disturbance():
    """The CPU time is decoding's, so the seconds before the first token are not held against it."""
    rows = [row(repeat=r, ttft_s=60.0, latency_s=62.0, thread_cpu_s=1.98) for r in range(3)]
    assert not any("disturbed" in w for w in metrics.summarise(rows)["warnings"])


def test_no_sample_is_an_error_that_names_the_reason():
    with pytest.raises(metrics.NoSamples, match="HTTP 500"):
        metrics.summarise([row(status="error", error="HTTP 500: no", tpot_s=None)])
