"""07: three arms on two loads; what leads from the one gain to the other multiplies to it, here and as published."""

import math

import pytest
from conftest_panels import result

from labkit.errors import BadInput
from labkit.evidence import Tier
from labkit.figures import decode
from labkit.figures.theme import alt_of
from labkit.measure import gain
from labkit.notebook import render
from labkit.notebook.experiments.real_answers import GREEDY, QUESTIONS, REAL, SAMPLED, TIMING, on
from labkit.notebook.experiments.real_load import RealLoad

TIMES = {"baseline": 2.2e-3, "fp8-head": 1.8e-3}
ROUND = {
    TIMING: (3.6e-3, 3.9),
    REAL: (4.0e-3, 2.7),
    GREEDY: (3.8e-3, 2.8),
    SAMPLED: (4.0e-3, 2.8),
    QUESTIONS: (4e-3, 3),
}


@pytest.fixture
def lab(parameters):
    return RealLoad(**{k: v for k, v in parameters.items() if k != "output_tokens"}, questions=4)


def measured(lab):
    """Results in which the real load accepts less, and sampling makes a round dearer."""
    out = {}
    for i, arm in enumerate(lab.arms()):
        name, _, load = arm.name.partition(" on ")
        time, accept = TIMES.get(name), None
        if time is None:
            round_s, accept = ROUND[load]
            time = round_s / accept
        found = result(arm, time, accept=accept, start=1000.0 + 0.1 * i)
        for row in found.rows:
            row |= {"text_sha256": f"text {row['index']}", "temperature": 0.0 if load in (TIMING, GREEDY) else 1.0}
            if load == QUESTIONS:
                wrong = name == "mtp" and row["index"] == 1
                row |= {"expected": "4", "text": f"#### {5 if wrong else 4}", "finish_reason": "stop"}
        out[arm.name] = found
    return out


def test_three_arms_of_the_ladder_on_every_load(lab):
    loads = (TIMING, REAL, GREEDY, SAMPLED, QUESTIONS)
    assert [a.name for a in lab.arms()] == [on(a, load) for load in loads for a in ("baseline", "fp8-head", "mtp")]
    by_name = {a.name: a.params for a in lab.arms()}
    assert by_name["mtp on timing"].output_tokens == 128 and by_name["mtp on real"].output_tokens is None
    assert by_name["mtp on greedy"].workload == by_name["mtp on real"].workload
    assert by_name["mtp on questions"].repeats == 1 and by_name["mtp on questions"].count == 4
    none = RealLoad(**{**lab.parameters(), "questions": 0})
    assert not any(a.name.endswith(QUESTIONS) for a in none.arms())


def test_before_a_run_no_figure_says_what_the_engine_would_report(lab):
    assert {alt_of(f) for f in lab.figures({}, None)} == {decode.NOT_YET}


def test_whatever_rests_on_a_doubtful_arm_is_marked(lab):
    results = measured(lab)
    cold = results[on("mtp", SAMPLED)]
    lines = render.doubted(lab.findings(results), cold.numbers())
    marked = {what for what, _, remark in lines if render.DOUBT in remark}
    assert {"sampling alone: round", "real over timing load: sampling, in c"} <= marked
    assert "sampling alone: plain step" not in marked and "real load: TPOT, mtp" not in marked


def test_a_ladder_of_two_arms_has_no_middle(parameters):
    arms = [
        {"name": "plain"},
        {"name": "jit", "set": {"moe_runner_backend": "jit"}, "expect": "same bytes, better kernels"},
    ]
    own = {k: v for k, v in parameters.items() if k != "output_tokens"} | {"arms": arms}
    lab = RealLoad(**own, questions=0)
    assert lab.parts == ["jit over plain"] and len(lab.arms()) == 8
    results = {a.name: result(a, 2e-3 if a.name.startswith("plain") else 1.5e-3) for a in lab.arms()}
    assert [name for name, _ in lab.lost(results)] == ["jit over plain"]
    assert (
        lab.findings(results) and lab.verdict(results) and len(lab.figures(results, None)) == len(lab.figures({}, None))
    )
    with pytest.raises(BadInput, match="arm"):
        RealLoad(**{**own, "arms": arms[:1]}).arms()


def test_factors_multiply_to_the_ratio_of_the_gains(lab):
    results = measured(lab)
    made, real = lab.gains(results, TIMING), lab.gains(results, REAL)
    factors = dict(lab.lost(results))
    assert math.prod(f.value for f in factors.values()) == pytest.approx(real.whole.value / made.whole.value, rel=1e-9)
    assert factors["accept length a"].value == pytest.approx(real.last.accept.value / made.last.accept.value)
    assert factors["sampling, in c"].value == pytest.approx(3.8 / 4.0, rel=0.02)
    for g in (made, real):
        split, by_time = lab.split(g), gain.split_by_time(g, model=lab.model)
        for s in (split, by_time):
            assert s.fewer_bytes.value * s.more_bandwidth.value == pytest.approx(g.whole.value, rel=1e-6)
        assert split.fewer_bytes.value != pytest.approx(by_time.fewer_bytes.value)  # another c, another split


def test_the_sentences_follow_the_numbers(lab):
    results = measured(lab)
    said = " ".join(lab.verdict(results))
    made, real = (lab.gains(results, load).whole.value for load in (TIMING, REAL))
    assert f"x{made:.2f}" in said and f"x{real:.2f}" in said and "accept length a" in said
    assert "x1.36" in said and "x1.20" in said and all(f"{n}. " in said for n in (1, 2, 3))
    lines = {what: (value, remark) for what, value, remark in lab.findings(results)}
    share = lines["accuracy, mtp"][0]
    assert share.tier is Tier.MEASURED and (share.value, share.low < 0.5 < share.high) == (0.5, True)
    assert "only baseline right: 1" in lines["mtp against baseline: McNemar"][1]
    step, ratio = (lines[f"sampling alone: {name}"] for name in ("plain step", "round"))
    assert step[0].value == pytest.approx(1.0) and ratio[0].value == pytest.approx(4.0 / 3.8, rel=0.02)
    assert "2 of 2 texts" in ratio[1]


def test_other_text_under_sampling_is_said(lab):
    results = measured(lab)
    for row in results["mtp on sampled as greedy"].rows:
        row["text_sha256"] = "something else"
    assert gain.same_text(results["mtp on greedy"], results["mtp on sampled as greedy"]) == (0, 2)


def test_published_figures_stand_beside(lab):
    found = lab.published_runs()
    splits = {name: (s.fewer_bytes.value, s.more_bandwidth.value) for name, s in found.splits()}
    assert splits["DGX Spark, synthetic"] == (pytest.approx(1.96, abs=0.005), pytest.approx(1.45, abs=0.005))
    assert splits["DGX Spark, GSM8K"] == (pytest.approx(1.35, abs=0.005), pytest.approx(1.06, abs=0.005))
    assert found.residual.value == pytest.approx(1.36, abs=0.005)
    assert found.residual_real.value == pytest.approx(1.20, abs=0.005)
    assert all(e.tier is Tier.DERIVED for _, s in found.splits() for e in (s.fewer_bytes, s.more_bandwidth))
    own = RealLoad(**{**lab.parameters(), "arms": [{"name": "a"}, {"name": "b", "set": {"fp8_lm_head": True}}]})
    assert own.published_runs() is None and own.predictions({}) == []
    assert not lab.instead() and "Compared on both loads: a, b." in own.instead()


def test_many_arms_with_one_doubt_are_one_sentence(lab):
    results = measured(lab)
    for r in results.values():
        for row in r.rows:
            row["tpot_s"] *= 1 + 0.2 * row["repeat"]
    said = [w for w in lab.warnings(results) if "unstable" in w]
    assert len(said) == 1 and said[0].startswith("12 arms")
