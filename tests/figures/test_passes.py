"""Figures of a pass and its parts: every bar and point is a number that was given."""

import pytest

from labkit.figures import passes
from labkit.roofline.cost import Component

PLAIN = [
    Component("experts", 6e6, 100e-6, 50e-6, 12e6, measured_s=700e-6),
    Component("head", 2e6, 300e-6, 5e-6, 4e6, measured_s=310e-6),
    Component("rest", 0, 0, 10e-6, measured_s=12e-6),
]


def test_measured_parts_stand_beside_predicted_ones_and_the_worst_is_named():
    round_ = [Component(p.name, p.bytes_read, p.kernel_s) for p in PLAIN]
    figure = passes.parts([("plain step", PLAIN), ("round", round_)], 10e9)
    heights = [sum(t.y[i] for t in figure.data) for i in range(3)]  # a round that was not measured has one bar
    assert heights == pytest.approx([650 + 305 + 10, 700 + 310 + 12, 600 + 300])
    assert "largest residual experts (+50 us)" in figure.layout.meta["alt"]
    assert len({t.name for t in figure.data}) == 3


def test_names_of_parts_lie_apart():
    """Three parts of nearly one intensity and rate, one at their right, as a step of the pocket engine has them."""
    points = [
        ("kda projections", 2.0, 21e9),
        ("mla projections", 2.0, 20e9),
        ("mlp", 2.0, 22e9),
        ("experts", 3.8, 16e9),
    ]
    found = passes.places([*points, ("head", 1.0, 11.5e9), ("router", 0.48, 2e9)], (0.16, 70))
    assert len(set(found[:3])) == 3 and len(found) == 6
    assert passes.places([], (1, 2)) == []


def test_parts_that_multiply_stand_under_the_roofs():
    figure = passes.roofs(PLAIN, 10e9, {"int8": 200e9})
    roof, flat, points = figure.data
    assert roof.x[1] * 10 == pytest.approx(roof.y[1]) and flat.y == (200.0, 200.0) and flat.x[0] == 20
    assert list(points.text) == ["experts", "head"]  # what does not multiply has no place here
    assert points.x == pytest.approx((2, 2)) and points.y[0] == pytest.approx(12e6 / 700e-6 / 1e9)


def test_a_part_that_a_busy_machine_left_without_a_time_has_no_point():
    less = Component("router", 1e3, 1e-9, fixed_s=-5e-6, operations=4e3)  # as probes of a busy machine left it once
    figure = passes.roofs([*PLAIN, less], 10e9, {"int8": 200e9})
    assert list(figure.data[-1].text) == ["experts", "head"]
    bars = passes.parts([("plain step", [less, PLAIN[0]])], 10e9)
    assert all(y >= 0 for t in bars.data for y in t.y)
