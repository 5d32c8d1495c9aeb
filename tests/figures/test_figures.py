"""Each figure draws what it was given: values, intervals, tiers, and an alt text with the numbers in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import BAILING

from labkit.catalog.config import ModelConfig
from labkit.evidence import derived, measured, reported, spec
from labkit.figures import decode, gains, live, runs, speculation
from labkit.roofline.account import per_tensor

MS = [measured(v * 1e-3, "s", "here", v * 0.9e-3, v * 1.2e-3) for v in (2.0, 1.5, 1.2)]
ROWS = [
    {
        "status": "ok",
        "repeat": r,
        "index": 0,
        "tpot_s": 1e-3 + r * 1e-4,
        "started_unix": 100.0 + r,
        "latency_s": 0.2,
        "ttft_s": 0.01,
        "output_tokens": 8,
        "chunk_times": [0.01, 0.1, 0.2],
        "chunk_tokens": [1, 4, 8],
    }
    for r in range(3)
]
CONFIG = ModelConfig(BAILING, "small")
ACCOUNT = per_tensor(CONFIG, context=100)


def traces(figure):
    return {t.name: t for t in figure.data}


def test_tpot_has_intervals_floor_prediction_and_guess():
    floor = spec(1, "MB", "config") / spec(1, "GB/s", "sheet")
    figure = decode.tpot(
        [("baseline", MS[0]), ("kernels", MS[1])],
        floors=[("baseline", floor)],
        predicted=[("kernels", MS[0] * 0.8)],
        guess_s=3e-3,
    )
    seen = traces(figure)
    point = seen["baseline ● measured"]
    assert point.y == (2.0,) and point.error_y.array[0] == pytest.approx(0.4)
    assert seen["byte floor ◇ derived"].y[:3] == pytest.approx((1.0, 1.0, 1.0))
    assert seen["predicted ◇ derived"].y == pytest.approx((1.6,))
    assert seen["your guess ✎"].y == pytest.approx((3.0, 3.0))
    assert "2 [1.8, 2.4] ms" in figure.layout.meta["alt"]


def test_account_bars_add_up_to_the_account():
    figure = decode.account_bars(ACCOUNT)
    assert sum(sum(t.x) for t in figure.data) == pytest.approx(ACCOUNT.total_bytes / 1e6)


def test_treemap_areas_are_the_accounts_bytes():
    figure = decode.bytes_treemap(ACCOUNT)
    assert sum(figure.data[0].values) == pytest.approx(ACCOUNT.total_bytes)
    assert {"routed experts", "head", "KV cache"} <= set(figure.data[0].labels)


def test_ladder_steps_add_up_to_the_last_arm():
    figure = decode.ladder([("baseline", MS[0]), ("kernels", MS[1]), ("fp8-head", MS[2])])
    fall = next(t for t in figure.data if t.type == "waterfall")
    assert sum(fall.y) == pytest.approx(1.2) and list(fall.measure) == ["absolute", "relative", "relative"]
    points = next(t for t in figure.data if t.type == "scatter")
    assert points.error_y.array is not None


def test_roofline_point_lies_where_its_numbers_say():
    intensity, flops = spec(3, "FLOP/B", "config"), measured(5e9, "FLOP/s", "here", 4e9, 6e9)
    figure = decode.roofline([("baseline", intensity, flops)], spec(10, "GB/s", "sheet"))
    roof, point = figure.data[0], figure.data[1]
    assert point.x == (3.0,) and point.y == pytest.approx((5.0,))
    assert roof.y[0] / roof.x[0] == pytest.approx(10.0)


def test_ac_plane_draws_both_intervals_and_break_even():
    a, c = measured(3.5, "1", "here", 3.2, 3.6), measured(2, "1", "here", 1.8, 2.2) * 1
    figure = speculation.ac_plane([("mtp 3/1/4", a, c)])
    point = figure.data[-1]
    assert point.error_x.array[0] == pytest.approx(0.2) and point.error_y.arrayminus[0] == pytest.approx(0.3)
    assert "S = 1" in {n.text for n in figure.layout.annotations} and "S 1.75" in figure.layout.meta["alt"]


def test_positions_are_marginal_rates_with_wilson_intervals():
    figure = speculation.by_position([("mtp", [10, 0, 30, 60])])
    assert figure.data[0].y == pytest.approx((0.9, 0.9, 0.6))
    low = figure.data[0].y[0] - figure.data[0].error_y.arrayminus[0]
    assert low == pytest.approx(0.8256, abs=1e-3)  # Wilson's interval of 90 in 100


@given(total=st.integers(1, 10_000), share=st.floats(0, 1))
def test_wilson_holds_the_rate_and_stays_a_probability(total, share):
    hits = round(share * total)
    low, high = speculation.wilson(hits, total)
    assert 0 <= low <= hits / total + 1e-9 and hits / total - 1e-9 <= high <= 1


def test_costs_by_tokens_keep_bytes_and_times_apart():
    figure = speculation.cost_by_tokens([(2, MS[0] / MS[1])], [(2, spec(3, "B", "c") / spec(2, "B", "c"))])
    names = [t.name for t in figure.data]
    assert names == ["c from measured times ◇ derived", "c by bytes alone ◇ derived"]
    assert len({t.marker.symbol for t in figure.data}) == 2


def test_speedups_show_what_is_not_measured_yet_as_absent():
    figure = speculation.speedups([("a", MS[0] / MS[1], None)], reported=[("a", spec(1.1, "1", "x"))], guess=2.0)
    assert [t.name for t in figure.data] == ["predicted ◇ derived", "reported elsewhere △ spec", "your guess ✎"]


def test_words_for_a_figure_say_what_it_shows():
    items = [("here", None, MS[0] / MS[1]), ("there", None, None)]
    alt = speculation.speedups(items, reported=[("there", spec(1.4, "1", "x"))], guess=2.0).layout.meta["alt"]
    assert "not yet" not in alt and "reported elsewhere, there: 1.4; your guess: 2." in alt
    assert "here: not yet" in speculation.speedups([("here", None, None)]).layout.meta["alt"]
    # Nothing measured yet: a caption begins with what is predicted, not with a sign between two parts.
    early = [
        speculation.speedups([], ranges=[("here", MS[0] / MS[1], MS[0] / MS[1])]),
        speculation.ac_plane([], predicted=[("here", MS[0] / MS[1], spec(1, "1", "x"), spec(4, "1", "x"))]),
        speculation.cost_by_tokens([], [(2, MS[0] / MS[1])]),
        runs.context_sweep({"plain": []}, {"plain": [(1024, MS[0])]}),
    ]
    assert all(f.layout.meta["alt"][0].isalnum() and ": ." not in f.layout.meta["alt"] for f in early)
    # The median of an even number of latencies is the one that tables show.
    assert "median 0.63 s" in runs.latency_ecdf([("a", [0.3, 0.39, 0.87, 0.92])]).layout.meta["alt"]


def test_expert_counts_stand_beside_their_expectation():
    expected = derived(10.0, "1", "N(...)", (spec(24, "1", "config"),))
    figure = gains.experts([(1, expected), (2, expected)], {"by the engine": {1: measured(8, "1", "engine", 8, 8)}})
    assert len(figure.data[0].x) == 2 and figure.data[1].x == (1,)


def test_run_order_draws_every_good_request_where_it_ran():
    bad = {**ROWS[0], "status": "error", "tpot_s": None}
    figure = runs.run_order({"baseline": [*ROWS, bad]})
    assert figure.data[0].x == pytest.approx((0.0, 1.0, 2.0)) and figure.data[0].y == pytest.approx((1.0, 1.1, 1.2))


def test_ecdf_reaches_one_and_has_a_band():
    figure = runs.latency_ecdf([("baseline", [0.3, 0.1, 0.2])])
    band, line = figure.data
    assert line.x == (0.1, 0.2, 0.3) and line.y[-1] == 1.0 and band.fill == "toself"


def test_context_sweep_keeps_the_order_and_the_floors():
    figure = runs.context_sweep({"plain": [(1024, MS[0]), (2048, MS[1])]}, {"plain": [(1024, MS[0] * 0.5)]})
    assert figure.data[0].x == (1024, 2048) and figure.layout.xaxis.ticktext == ("1K", "2K")
    assert figure.data[1].name == "plain, by bytes ◇ derived"


def test_arrivals_and_starts():
    assert runs.arrivals(ROWS[:1]).data[0].x == pytest.approx((10.0, 100.0, 200.0))
    figure = runs.starts([("kernels", 1.5, 0.5)])
    assert figure.data[0].y == (0.5,) and figure.data[1].y == (1.0,)


def test_a_board_holds_what_it_shows_and_sends_plotly_only_when_asked():
    board = live.Board([decode.tpot([("baseline", MS[0])])])
    assert board.figures[0]["data"][0]["y"] == [2.0] and len(json.dumps(board.get_state(), default=str)) < 50_000
    board.show([decode.tpot([("baseline", MS[1])]), decode.bytes_treemap(ACCOUNT)])
    assert board.figures[0]["data"][0]["y"] == [1.5] and board.figures[1]["data"][0]["type"] == "treemap"
    sent = []
    board.send = lambda content, buffers: sent.append((content, len(buffers[0])))
    board._asked(board, {"kind": "something else"}, [])
    board._asked(board, {"kind": "plotly"}, [])
    assert len(sent) == 1 and sent[0][0] == {"kind": "plotly"} and sent[0][1] > 1_000_000


@pytest.mark.parametrize(
    "figure",
    [
        decode.waiting("Nothing"),
        decode.tpot([]),
        speculation.ac_plane([]),
        runs.latency_ecdf([]),
        runs.run_order({}),
        decode.roofline([], spec(1, "GB/s", "sheet")),
    ],
)
def test_empty_figures_still_say_something(figure):
    assert figure.layout.meta["alt"] and figure.layout.title.text


def test_a_lost_gain_ends_where_its_factors_lead():
    whole = [measured(v, "1", "here") for v in (2.2, 1.4)]
    factors = [("a", whole[0] / 3.0), ("c", whole[1] * 0.6)]
    figure = gains.lost(("timing", whole[0]), factors, ("real", whole[1]))
    (waterfall,) = [t for t in figure.data if t.type == "waterfall"]
    last = 2.2 * factors[0][1].value * factors[1][1].value
    assert sum(waterfall.y[:-1]) == pytest.approx(last) and waterfall.y[-1] == 1.4


def test_parts_of_a_gain_stand_side_by_side_for_each_load():
    here = {"timing": [("b over a", measured(1.9, "1", "here", 1.8, 2.0))]}
    there = {"elsewhere": [("b over a", reported(2.8, "1", "paper"))]}
    figure = gains.by_load(here, there, order=["b over a"], guess=("b over a", 1.5))
    places = [t.x[0] for t in figure.data]
    assert len(set(places)) == 3 and "elsewhere: b over a 2.8" in figure.layout.meta["alt"]
    assert {t.name.rpartition(" ")[2] for t in figure.data[:2]} == {"measured", "reported"}


def test_a_floor_has_the_interval_of_its_bandwidth():
    floor = spec(1, "MB", "config") / measured(1, "GB/s", "here", 0.8, 1.25)
    seen = traces(decode.tpot([("baseline", MS[0])], floors=[("baseline", floor)]))
    bar = seen["byte floor, interval"]
    assert bar.error_y.array == pytest.approx((0.25,)) and bar.error_y.arrayminus == pytest.approx((0.2,))
    assert -0.3 < bar.x[0] < 0  # on the line, clear of the measured point
    assert seen["byte floor ◇ derived"].error_y.array is None  # a bar of no length would still have its caps


def test_predictions_of_two_kinds_stand_apart():
    kinds = {"predicted from a": [("b", MS[0] * 0.8)], "predicted from c": [("b", MS[0] * 0.9)]}
    seen = traces(decode.tpot([("b", MS[1])], predicted=kinds))
    one, other = (seen[f"{name} ◇ derived"] for name in kinds)
    assert all(f"b {name} " in decode.tpot([], predicted=kinds).layout.meta["alt"] for name in kinds)
    assert one.x != other.x and one.marker.symbol != other.marker.symbol and one.marker.color != other.marker.color


def test_each_roof_ends_where_the_other_is_lower():
    work, flops = spec(3, "FLOP/B", "config"), measured(5e9, "FLOP/s", "here", 4e9, 6e9)
    figure = decode.roofline(
        [("here", work, flops)], spec(10, "GB/s", "sheet"), peak=spec(100, "GFLOP/s", "sheet"), peak_name="FP4 peak"
    )
    slope, flat = figure.data[0], figure.data[1]
    assert slope.x[-1] == flat.x[0] == pytest.approx(10) and slope.y[-1] == pytest.approx(flat.y[0])
    assert flat.name == "FP4 peak △ spec"


def test_bandwidths_stand_under_what_memory_sustains():
    step, sustained = spec(10, "MB", "config"), measured(12, "GB/s", "here", 11, 13)
    figure = decode.bandwidths([("kernels", step / MS[0])], sustained, order=["baseline", "kernels"])
    seen = traces(figure)
    assert seen["kernels ◇ derived"].x == (1,) and seen["kernels ◇ derived"].y == pytest.approx((5,))
    assert set(seen["memory sustains ● measured"].y) == {12, None} and "5 [" in figure.layout.meta["alt"]


def test_hover_shows_quotation_marks_as_they_are():
    said = traces(decode.tpot([("baseline", measured(1, "ms", 'a page, "Ways" & <more>'))]))["baseline ● measured"]
    assert '"Ways" &amp; &lt;more&gt;' in said.hovertext[0]


def test_alt_text_of_speedups_names_intervals_reports_and_guess():
    figure = speculation.speedups([("a", None, MS[0] / MS[1])], reported=[("a", spec(1.1, "1", "x"))], guess=2.0)
    alt = figure.layout.meta["alt"]
    assert "[" in alt and "reported elsewhere, a: 1.1" in alt and "your guess: 2" in alt


def test_bars_of_starts_say_their_seconds_in_words():
    figure = runs.starts([("baseline", 3.0, 2.0)])
    assert all("%{y:.2f} s of" in t.hovertemplate for t in figure.data)
