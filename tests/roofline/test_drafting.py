"""Simulated drafting: expectations by formula, runs that scatter around them, thresholds that are thresholds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.roofline import drafting

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=5)
COST = st.floats(0, 1)


@given(shares=SHARES, verify=COST, draft=COST)
def test_a_stays_in_reach_and_c_grows(shares, verify, draft):
    rounds = drafting.simulate(shares, verify=verify, draft=draft, runs=20, tokens=64)
    for before, r in zip([None, *rounds], rounds, strict=False):
        assert 1 <= r.low <= r.a <= r.high <= r.drafts + 1 + 1e-9
        assert r.speedup == pytest.approx(r.a / r.c)
        assert before is None or (r.a >= before.a and r.c >= before.c)


@given(drafts=st.integers(1, 5), verify=COST, draft=COST)
def test_from_the_needed_acceptance_on_drafting_pays(drafts, verify, draft):
    least = drafting.needed(drafts, verify, draft)
    if least is None:
        assert drafting.cost(drafts, verify, draft) > drafts + 1
        return
    speeds = {}
    for p in (max(0.0, least - 0.01), min(1.0, least + 0.01)):
        speeds[p] = drafting.simulate([p] * drafts, verify=verify, draft=draft, runs=2)[-1].speedup
    assert max(speeds.values()) >= 1 - 1e-9 and (least < 0.01 or min(speeds.values()) <= 1 + 1e-9)


def test_simulated_runs_scatter_as_the_distribution_says():
    """One draft at p = 0.5: a is 1.5 with a deviation of 0.5 / sqrt(rounds)."""
    (r,) = drafting.simulate([0.5], verify=0.1, draft=0.1, tokens=600, runs=4000)
    assert r.a == 1.5 and r.high - r.low == pytest.approx(2 * 1.96 * 0.5 / 400**0.5, rel=0.1)


def test_the_same_seed_gives_the_same_runs():
    one, two, other = (drafting.simulate([0.7, 0.6], verify=0.1, draft=0.1, seed=s) for s in (1, 1, 2))
    assert one == two and one != other


@pytest.mark.parametrize("shares, verify, draft", [([1.1], 0, 0), ([-0.1], 0, 0), ([0.5], -1, 0), ([0.5], 0, -1)])
def test_what_cannot_be_is_refused(shares, verify, draft):
    with pytest.raises(BadInput):
        drafting.simulate(shares, verify=verify, draft=draft)
