"""Component costs under two roofs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.roofline.cost import Component, c_of, experts_cached_s, largest_residual, pass_s

PARTS = [Component("head", 2e6, 50e-6, 210e-6), Component("state", 0, 30e-6, 60e-6)]


def test_each_part_takes_its_higher_roof():
    assert [p.bound(10e9) for p in PARTS] == ["memory", "arithmetic"]
    assert pass_s(PARTS, 10e9) == pytest.approx(230e-6)
    assert pass_s(PARTS, 10e9, bytes_alone=True) == pytest.approx(200e-6)
    assert PARTS[0].bound(1e12) == "arithmetic"


def test_c_is_a_round_over_a_step():
    round_ = [Component("head", 6e6, 50e-6), Component("state", 0, 90e-6)]
    assert c_of(PARTS, round_, 10e9) == pytest.approx(690 / 230)
    assert c_of(PARTS, round_, 10e9, bytes_alone=True) == pytest.approx(3)


def test_the_largest_residual_is_found_whatever_its_sign():
    assert largest_residual(PARTS, 10e9).name == "state"
    assert largest_residual([Component("fast", 4e6, 0, 100e-6), PARTS[1]], 10e9).name == "fast"
    with pytest.raises(BadInput, match="head"):
        largest_residual([Component("head", 1, 0)], 1e9)
    with pytest.raises(BadInput):
        Component("head", 1, 0).memory_s(0)


@given(own=st.floats(0, 1e-5), each=st.floats(1e-8, 1e-5), experts=st.integers(8, 24), pairs=st.integers(8, 96))
def test_two_probes_give_an_experts_own_cost_and_each_tokens(own, each, experts, pairs):
    one, four = 8 * (own + each), 8 * (own + 4 * each)
    assert experts_cached_s(one, four, 8, experts, pairs) == pytest.approx(own * experts + each * pairs, rel=1e-6)
