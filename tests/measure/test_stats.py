"""Intervals: seeded, clustered, and honest about how often they cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.measure.stats import median_interval, paired_ratio, ratio_interval


def test_same_seed_same_interval():
    values, repeats = [1.0, 2.0, 3.0, 4.0, 6.0, 9.0], [0, 0, 1, 1, 2, 2]
    assert median_interval(values, repeats, seed=3) == median_interval(values, repeats, seed=3)
    assert median_interval(values, repeats).median == 3.5
    assert median_interval(values, repeats).spread == pytest.approx((7.5 - 1.5) / 3.5)


def test_clusters_widen_the_interval():
    """Three repeats that differ among themselves know less than the same numbers as one repeat claim."""
    values = [1.0] * 10 + [1.2] * 10 + [1.4] * 10
    clustered = median_interval(values, [0] * 10 + [1] * 10 + [2] * 10)
    loose = median_interval(values, [0] * 30)
    assert (clustered.low, clustered.high) == (1.0, 1.4)
    assert clustered.repeats == 3 and loose.repeats == 1
    assert loose.low >= clustered.low and loose.high <= clustered.high


@settings(max_examples=40)
@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30), st.integers(1, 5))
def test_interval_holds_the_median_and_stays_in_the_data(values, repeats):
    i = median_interval(values, [n % repeats for n in range(len(values))], draws=100)
    assert min(values) <= i.low <= i.median <= i.high <= max(values)
    assert i.median == pytest.approx(float(np.median(values)))


def test_coverage_over_many_runs():
    """95% intervals of five repeats with a between-repeat effect must hold the true median most of the time."""
    rng = np.random.default_rng(11)
    hits = 0
    for n in range(200):
        shift = rng.normal(0, 0.05, 5).repeat(4)
        values = 1.0 + shift + rng.normal(0, 0.02, 20)
        i = median_interval(values, np.arange(5).repeat(4), seed=n, draws=300)
        hits += i.low <= 1.0 <= i.high
    assert hits >= 170


def test_ratio():
    r = ratio_interval([2.0, 2.2, 1.8], [0, 1, 2], [1.0, 1.1, 0.9], [0, 1, 2])
    assert r.median == pytest.approx(2.0) and r.low < 2.0 < r.high


def test_a_ratio_of_medians_by_pairs_is_narrow_where_both_sides_saw_the_same():
    noise = np.random.default_rng(5).uniform(1, 3, 20)
    own = 1 + np.random.default_rng(6).normal(0, 0.01, 20)
    repeats = [i // 4 for i in range(20)]
    together = ratio_interval(1.25 * noise * own, repeats, noise, repeats, paired=True)
    apart = ratio_interval(1.25 * noise * own, repeats, noise, repeats)
    assert together.median == apart.median
    assert together.low <= 1.25 <= together.high
    assert together.high - together.low < 0.3 * (apart.high - apart.low)
    with pytest.raises(BadInput):
        ratio_interval([1.0, 2.0], [0, 1], [1.0, 2.0], [0, 2], paired=True)


def test_pairs_cancel_what_both_sides_saw():
    noise = [1.0, 3.0, 1.5, 2.0, 1.0, 4.0]
    bottom = {(i // 2, i % 2): n for i, n in enumerate(noise)}
    top = {k: 1.25 * v for k, v in bottom.items()}
    paired = paired_ratio(top, bottom)
    assert paired.low == paired.high == pytest.approx(1.25)
    with pytest.raises(BadInput):
        paired_ratio(top, {(9, 9): 1.0})


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
def test_nothing_and_nan_are_refused(values):
    with pytest.raises(BadInput):
        median_interval(values, [0] * len(values))
