"""What a sweep's rows say: effects of settings from pairs, the Pareto front, a params file per configuration."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sweeps import DOCUMENT, GAIN, made, row

from labkit.measure.sweep import again, effects, points
from labkit.params import load_params
from labkit.records.sweep import read_sweep


def of(run):
    return {(e.field, e.value): e for e in effects.effects(effects.filled(run.rows, points.read(DOCUMENT)))}


def test_effects_are_the_ratios_that_went_in(tmp_path):
    found = of(read_sweep(made(tmp_path / "s")))
    for name, (value, other) in {
        "fp8_lm_head": ("true", "false"),
        "moe_runner_backend": ("jit", "generic"),
        "prompt_tokens": ("256", "64"),
    }.items():
        e = found[name, value]
        assert e.against == other and e.ratio.count == 4 and e.ratio.repeats >= 3
        assert e.ratio.value == pytest.approx(GAIN[name]) == pytest.approx(e.least) == pytest.approx(e.most)
        assert e.ratio.low == pytest.approx(GAIN[name]) == pytest.approx(e.ratio.high)


def test_the_error_of_a_block_is_in_the_interval_and_raw_averages_are_not_used():
    """One block of four is 30% off: an average over rows would see 400 pairs and a tight interval."""
    rows = []
    for block in range(4):
        for i in range(50):
            for value, gain in ((0, 1.0), (1, 1.1 * (1.3 if block == 0 else 1.0))):
                fields = {"x": value, "y": f"{block} {i}"}
                rows.append(row(f"c{len(rows)}", gain, f"b{block}") | {"fields": fields, "load": ""})
    (e,) = [e for e in effects.effects(rows) if e.field == "x"]
    assert e.ratio.count == 200 and e.ratio.repeats == 4
    assert e.ratio.low < 1.11 and e.ratio.high > 1.2 and e.ratio.low <= e.ratio.value <= e.ratio.high


def test_too_few_blocks_have_no_interval_and_a_field_that_never_changes_alone_no_effect(tmp_path):
    run = read_sweep(made(tmp_path / "s"))
    rows = [r | {"blocks": ["one"]} for r in effects.filled(run.rows, points.read(DOCUMENT))]
    found = effects.effects(rows)
    assert found and all(e.ratio.low is None for e in found)
    lone = [row(f"c{i}", 1.0, "b") | {"fields": {"x": i, "y": i}, "load": ""} for i in range(3)]
    tied = effects.effects(lone)
    assert {e.field for e in tied} == {"x"} and tied[0].along == ("y",)
    crossed = [
        row(n, 1.0, "b") | {"fields": f, "load": ""} for n, f in (("a", {"x": 0, "y": 0}), ("b", {"x": 1, "y": 1}))
    ]
    crossed.append(row("c", 1.0, "b") | {"fields": {"x": 0, "y": 2}, "load": ""})
    assert {e.field for e in effects.effects(crossed)} == {"y"}


points_of = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=20)


@given(points_of, st.booleans())
def test_nothing_beats_what_is_on_the_front_and_something_beats_or_equals_the_rest(pairs, asked):
    rows = []
    for i, (tpot, other) in enumerate(pairs):
        counts = {"accuracy": other / 10} if asked else {"ttft_s": float(other)}
        rows.append({"config": str(i), "status": "measured", "tpot_s": float(tpot), **counts})
    key, more = effects.second_count(rows)
    assert more == asked
    best = set(effects.front(rows))
    good = [(-r["tpot_s"], r[key] if more else -r[key]) for r in rows]

    def beaten(i, j):
        return good[j][0] >= good[i][0] and good[j][1] >= good[i][1] and good[j] != good[i]

    for i in range(len(rows)):
        by = [j for j in range(len(rows)) if beaten(i, j)]
        assert not (str(i) in best and by)
        assert str(i) in best or by or any(good[j] == good[i] and str(j) in best for j in range(len(rows)))


def test_without_accuracy_speed_stands_against_the_first_token(tmp_path):
    rows = read_sweep(made(tmp_path / "s")).rows
    assert effects.second_count(rows) == ("ttft_s", False)
    rows[0]["accuracy"] = 0.5
    assert effects.second_count(rows) == ("accuracy", True)


OTHERS = """
common: {engine: {engine: pocket, extra_args: [--log-level, info], env: {A: 1}}, workload: synthetic, repeats: 2}
sweep:
  grid: {prompt_tokens: [64, 128], moe_runner_backend: [generic, jit]}
  list: [{env.A: 2}, {env.A: null, env.B: 3}, {extra_args: [--log-requests]}, {sampling.temperature: 0.5}]
  baseline: {fp8_lm_head: true}
"""


@pytest.mark.parametrize("document", [DOCUMENT, yaml.safe_load(OTHERS)], ids=["drafting", "environment"])
def test_each_params_file_measures_that_very_configuration_beside_its_baseline(document):
    plan = points.read(document)
    for p in plan.measured:
        params = load_params(yaml.safe_load(again.params_file(plan, p.name)))
        base, arm = params.ladder()
        assert arm.config.digest() == p.arm.config.digest()
        assert base.config.digest() == plan.baselines[points.group(p)].arm.config.digest()
        assert params.load() == p.arm.load


def test_an_unknown_configuration_is_one_line():
    with pytest.raises(again.BadInput, match="c009") as refused:
        again.document(points.read(DOCUMENT), "c999")
    assert refused.value.field == "config"
