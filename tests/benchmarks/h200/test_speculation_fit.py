"""The law on rows whose times are known."""

import pytest

from benchmarks.h200 import speculation_fit as law
from labkit.errors import BadInput


def _rows(arm, tpot_s, accept=None, starts=(0, 1), n=5, drift=0.0):
    out = []
    for start in starts:
        for i in range(n):
            tokens = 193
            out.append(
                {
                    "arm": arm,
                    "status": "ok",
                    "start": start,
                    "repeat": start * n + i,
                    "ttft_s": 0.1,
                    "tpot_s": tpot_s * (1 + drift * start) * (1 + 0.001 * (i - 2)),
                    "output_tokens": tokens,
                    "verify_ct": tokens / accept if accept else None,
                    "latency_s": 1.0,
                }
            )
    return out


def test_starts_are_told_apart():
    got = law.arms(_rows("a", 0.005, drift=0.1), "a run")["a"]
    assert [m for m, _ in got.starts.values()] == pytest.approx([0.005, 0.0055]) and got.requests == 10
    assert got.disturbed == []
    assert got.between_starts == pytest.approx(0.1, rel=0.1)
    assert got.tpot.low <= 0.005 and got.tpot.high >= 0.0055 and got.tpot.tier == "measured"


def test_a_disturbed_start_is_named_and_kept_out_of_the_steady_median():
    rows = _rows("a", 0.005)
    for i, row in enumerate(r for r in rows if r["start"] == 1):
        row["tpot_s"] *= 1.05 + 0.04 * i
    got = law.arms(rows, "a run")["a"]
    assert got.disturbed == [1] and got.steady.value == pytest.approx(0.005) and got.tpot.value > 0.005
    for row in rows:
        row["tpot_s"] *= 1 + 0.1 * (row["repeat"] % 2)
    got = law.arms(rows, "a run")["a"]
    assert got.disturbed == [0, 1] and got.steady == got.tpot


def test_gain_and_cost_have_intervals_around_the_truth():
    rows = _rows("plain", 0.005) + _rows("mtp", 0.0125 / 2.5, accept=2.5)
    c = law.round_cost(rows, "plain", "mtp", "a run")
    assert c.low <= 2.5 <= c.high and c.high - c.low < 0.05
    assert law.gain(rows, "plain", "mtp", "a run").value == pytest.approx(1.0, abs=0.01)


def test_a_constant_round_time_makes_the_law_exact_and_a_growing_one_does_not():
    rows = _rows("plain", 0.005)
    for a in (1.0, 2.68, 3.9):
        rows += _rows(f"a={a}", 0.0125 / a, accept=a)
    held = law.law(rows, "plain", ["a=1.0", "a=2.68", "a=3.9"], "a=1.0", "a run")
    assert all(abs(h.error) < 0.01 for h in held)
    rows += _rows("slow", 0.015 / 3.9, accept=3.9)
    assert law.law(rows, "plain", ["slow"], "a=1.0", "a run")[0].error == pytest.approx(0.2, abs=0.01)


def test_arms_without_what_is_needed_are_refused():
    with pytest.raises(BadInput):
        law.gain(_rows("plain", 0.005), "plain", "gone", "a run")
    with pytest.raises(BadInput):
        law.round_cost(_rows("plain", 0.005), "plain", "plain", "a run")
