"""Intervals: seeded, clustered, and honest about how often they cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.measure import stats
from labkit.measure.stats import median_interval


def test_same_seed_same_interval():
    values, repeats = [1.0, 2.0, 3.0, 4.0, 6.0, 9.0], [0, 0, 1, 1, 2, 2]
    assert median_interval(values, repeats, seed=3) == median_interval(values, repeats, seed=3)
    assert median_interval(values, repeats).value == 3.5
    assert median_interval(values, repeats).spread == pytest.approx((7.5 - 1.5) / 3.5)


def test_clusters_widen_the_interval():
    """Three repeats that differ among themselves know less than the same numbers as one repeat claim."""
    values = [1.0] * 10 + [1.2] * 10 + [1.4] * 10
    clustered = median_interval(values, [0] * 10 + [1] * 10 + [2] * 10)
    loose = median_interval(values, [0] * 30)
    assert (clustered.low, clustered.high) == (1.0, 1.4)
    assert clustered.repeats == 3 and loose.repeats == 1
    assert loose.low is None and loose.high is None  # one repeat says nothing about another


@settings(max_examples=40)
@given(st.lists(st.floats(1e-6, 1e3), min_size=5, max_size=30), st.integers(3, 5))
def test_interval_holds_the_median_and_stays_in_the_data(values, repeats):
    i = median_interval(values, [n % repeats for n in range(len(values))])
    assert min(values) <= i.low <= i.value <= i.high <= max(values)
    assert i.value == pytest.approx(float(np.median(values)))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(0, 99))
def test_draws_take_whole_repeats_and_leave_empty_places_empty(repeats, seed):
    at = stats.resample(repeats, seed=seed, draws=30)
    sizes = {r: repeats.count(r) for r in set(repeats)}
    assert at.shape == (30, len(sizes) * max(sizes.values()))
    for draw in at.reshape(30, len(sizes), -1):
        for group in draw:
            taken = [repeats[i] for i in group if i >= 0]
            assert len(set(taken)) == 1 and len(taken) == sizes[taken[0]]


@given(st.lists(st.floats(-5, 5) | st.just(float("nan")), min_size=1, max_size=9))
def test_the_median_leaves_nan_out(values):
    if not all(np.isnan(values)):
        assert stats.median(np.array(values)) == pytest.approx(np.nanmedian(values))


def test_coverage_over_many_runs():
    """95% intervals of five repeats with a between-repeat effect must hold the true median most of the time."""
    rng = np.random.default_rng(11)
    hits = 0
    for n in range(200):
        shift = rng.normal(0, 0.05, 5).repeat(4)
        values = 1.0 + shift + rng.normal(0, 0.02, 20)
        i = median_interval(values, np.arange(5).repeat(4), seed=n)
        hits += i.low <= 1.0 <= i.high
    assert hits >= 170


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
def test_nothing_and_nan_are_refused(values):
    with pytest.raises(BadInput):
        median_interval(values, [0] * len(values))
