"""Component costs under two roofs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.roofline.cost import Component, added, c_of, experts_s, largest_residual, pass_s

PARTS = [
    Component("head", 2e6, 50e-6, 5e-6, 4e6, measured_s=210e-6),
    Component("state", 0, 30e-6, 10e-6, measured_s=60e-6),
]


def test_each_part_takes_its_higher_roof_and_its_fixed_part():
    assert [p.bound(10e9) for p in PARTS] == ["memory", "arithmetic"]
    assert pass_s(PARTS, 10e9) == pytest.approx(245e-6)
    assert pass_s(PARTS, 10e9, bytes_alone=True) == pytest.approx(200e-6)
    assert PARTS[0].bound(1e12) == "arithmetic" and Component("rest", 1, 1e-6, 9e-6).bound(1e9) == "fixed"


def test_no_part_takes_less_than_nothing():
    assert Component("router", 1e3, 1e-9, fixed_s=-5e-6).predicted_s(1e10) == 0.0


def test_c_is_a_round_over_a_step():
    round_ = [Component("head", 6e6, 50e-6), Component("state", 0, 90e-6)]
    assert c_of(PARTS, round_, 10e9) == pytest.approx(690 / 245)
    assert c_of(PARTS, round_, 10e9, bytes_alone=True) == pytest.approx(3)


def test_passes_add_up_part_by_part():
    total = {p.name: p for p in added([PARTS, PARTS, [Component("mix", 1e6, 1e-6, measured_s=1e-6)]])}
    assert total["head"] == Component("head", 4e6, 100e-6, 10e-6, 8e6, 420e-6)
    assert total["mix"].measured_s == 1e-6
    assert added([PARTS, [Component("head", 1e6, 0)]])[0].measured_s is None  # what was not measured has no sum


def test_the_largest_residual_is_found_whatever_its_sign():
    assert largest_residual(PARTS, 10e9).name == "state"
    assert largest_residual([Component("fast", 4e6, 0, measured_s=100e-6), PARTS[1]], 10e9).name == "fast"
    with pytest.raises(BadInput, match="head"):
        largest_residual([Component("head", 1, 0)], 1e9)
    with pytest.raises(BadInput):
        Component("head", 1, 0).memory_s(0)


@given(own=st.floats(0, 1e-5), each=st.floats(1e-8, 1e-5), experts=st.integers(8, 24), pairs=st.integers(8, 96))
def test_two_probes_give_an_experts_own_cost_and_each_tokens(own, each, experts, pairs):
    one, four = own + each, own + 4 * each
    assert experts_s(one, four, experts, pairs) == pytest.approx(own * experts + each * pairs, rel=1e-6)
