"""The look: tiers told apart without colour, contrast on both grounds, alt text never missing."""

import json
import re

import plotly.graph_objects as go
import pytest

from labkit.evidence import Tier, measured, spec
from labkit.figures import theme
from labkit.figures.marks import add_points, hover
from labkit.figures.show import PLOTLY_MIME, bundle


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    lin = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2]


def _contrast(a: str, b: str) -> float:
    x, y = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (x + 0.05) / (y + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_ink_is_readable_on_both_grounds(ground):
    assert _contrast(theme.INK, ground) > 4


def test_every_tier_has_a_marker_and_a_dash_of_its_own():
    assert set(theme.TIERS) == set(Tier)
    assert len({t.marker for t in theme.TIERS.values()}) == len({t.dash for t in theme.TIERS.values()}) == len(Tier)


def test_series_differ_in_colour_dash_and_marker():
    for part in ("colour", "dash", "marker"):
        assert len({getattr(s, part) for s in theme.SERIES}) == len(theme.SERIES)


def test_a_figure_without_alt_text_is_refused():
    with pytest.raises(ValueError, match="alt"):
        theme.new("x")


def test_zoom_survives_updates_and_the_ground_is_transparent():
    figure = theme.new("x", alt="y")
    assert figure.layout.uirevision and figure.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_points_carry_interval_tier_and_formula():
    figure = theme.new("x", alt="y")
    add_points(figure, ["a"], [measured(2e-3, "s", "here", 1.5e-3, 3e-3)], unit="ms", name="TPOT", look=theme.SERIES[0])
    trace = figure.data[0]
    assert trace.y == (2.0,) and trace.name == "TPOT ● measured"
    assert trace.error_y.array == pytest.approx((1.0,)) and trace.error_y.arrayminus == pytest.approx((0.5,))
    quotient = spec(2, "GB", "sheet") / spec(100, "GB/s", "other sheet")
    said = hover(quotient)
    assert "2 GB / 100 GB/s" in said and "derived from spec" in said and "other sheet" in said


def test_no_number_of_a_formula_is_left_unexplained():
    step = spec(2, "GB", "sheet") / spec(100, "GB/s", "other sheet")
    said = hover(step * spec(3, "1", "a count"), "three steps").split("<br>")
    assert said[2] == "= 20 ms * 3"
    assert said[3].endswith("20 ms (◇ derived from spec) = 2 GB / 100 GB/s") and said[4].endswith("3 (△ spec)")


def test_one_trace_never_mixes_tiers():
    figure = theme.new("x", alt="y")
    mixed = [measured(1, "s", "here"), spec(1, "s", "sheet")]
    with pytest.raises(ValueError, match="one tier"):
        add_points(figure, [1, 2], mixed, unit="s", name="n", look=theme.SERIES[0])


def test_derived_series_differ_in_shape_within_their_family():
    figure = theme.new("x", alt="y")
    value = measured(1, "s", "here") * 2
    for look in theme.SERIES:
        add_points(figure, [1], [value], unit="s", name="n", look=look)
    shapes = [t.marker.symbol for t in figure.data]
    assert len(set(shapes)) == len(shapes) and all(s.startswith("diamond") for s in shapes)


def test_hover_escapes_what_comes_from_outside():
    assert "<script" not in hover(measured(1, "s", "<script>x</script>"), "<script>")


def _figure() -> go.Figure:
    figure = theme.new("x", alt="two points")
    figure.add_scatter(x=[1, 2], y=[1, 2])
    return figure


def test_the_bundle_has_live_figure_and_words():
    data, _ = bundle(_figure(), picture=False)
    assert json.dumps(data[PLOTLY_MIME]) and data["text/plain"] == "Figure: two points"


def test_theme_css_covers_both_themes_of_both_pages():
    for scope in ("jp-theme-light='true'", "jp-theme-light='false'", "theme='light'", "theme='dark'"):
        assert f"[data-{scope}]" in theme.THEME_CSS
    assert not re.search(r"url\(|@import", theme.THEME_CSS)
