"""Facts are computed inside the tests, never while they are collected: a broken formula must fail a test."""

import json

import pytest

from labkit import catalog
from labkit.catalog.read import Published, last_place
from labkit.errors import LabError
from labkit.evidence import Tier, reported, spec
from labkit.roofline import facts as module
from labkit.roofline.facts import Fact, facts


def published(figure="2.5", unit="ms", within=0.05):
    return Published("x", figure, unit, "blog", within, "none", "why")


def test_each_published_number_is_reproduced():
    for f in facts():
        assert f.ok, f"{f.name}: published {f.published.figure}, computed {f.value:.8g} {f.published.unit}"


def test_all_are_derived_and_none_rests_on_a_measurement_of_ours():
    for f in facts():
        assert f.computed.tier is Tier.DERIVED, f"{f.name} is not computed here"
        assert Tier.MEASURED not in f.computed.rests_on(), f.name
        assert f.computed.formula and f.computed.source


def test_the_table_is_complete_and_in_the_catalogs_order():
    rows = facts()
    assert [f.name for f in rows] == list(catalog.catalog().published)
    assert len(rows) >= 130


def test_disagreeing_figures_appear_together_with_the_reason():
    rows = facts()
    for pair in ("44% or 69%", "20 or 24 tok/s", "K = 1000 or 1024", "c by time or byte style", "sparse or dense"):
        assert len([f for f in rows if f.published.reason.startswith(pair)]) >= 2, pair
    by_name = {f.name: f for f in rows}
    assert by_name["utilisation, baseline, simple account"].published.figure == "44"
    assert by_name["utilisation, baseline, per tensor"].published.figure == "69"
    # Where the other figure has no row, it stands beside.
    also = {name: f.also.to(f.published.unit).value for name, f in by_name.items() if f.also is not None}
    assert also == {
        "parameters, Ling-3.0-flash": 124498834912,
        "checkpoint": pytest.approx(70.4535, abs=1e-3),
        "silent fallback, estimate, throughput": pytest.approx(19.441, abs=1e-3),
        "silent fallback, share of the baseline": pytest.approx(53.868, abs=1e-3),
        "c from bytes, 2 positions, 33792 tokens": pytest.approx(1.3132, abs=1e-4),
        "c from bytes, 3 positions, 33792 tokens": pytest.approx(1.6231, abs=1e-4),
        "c from bytes, 4 positions, 33792 tokens": pytest.approx(1.9299, abs=1e-4),
        "c from bytes, 5 positions, 33792 tokens": pytest.approx(2.2337, abs=1e-4),
        "c from bytes, 6 positions, 33792 tokens": pytest.approx(2.5344, abs=1e-4),
        "c from bytes, 4 positions, 1200 tokens": pytest.approx(1.9588, abs=1e-4),
    }


def test_tolerances_are_tight():
    """Half a unit of the last digit; wider only with a word about why, and never beyond two percent."""
    for p in catalog.catalog().published.values():
        if p.within > last_place(p.figure) / 2:
            assert p.assumptions, p.name
            assert p.within <= max(0.02 * abs(p.value), last_place(p.figure)), p.name


def test_a_wrong_number_is_seen():
    row = published("3.355", "GB", 0.0005)
    good = Fact(row, spec(3354.8, "MB", "c") * 1)
    assert good.ok and good.value == pytest.approx(3.3548) and good.name == "x" and good.also is None
    assert not Fact(row, spec(3.3556, "GB", "c") * 1).ok
    assert not Fact(row, spec(3.3544, "GB", "c") * 1).ok
    assert Fact(published("1.5", "1", 0.05), spec(1.55, "1", "c") * 1).ok


def test_a_number_without_a_formula_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "account_facts", lambda: [("invented", spec(1, "1", "c"))])
    with pytest.raises(LabError, match="KDA.*, invented, "):
        facts()


def test_last_place():
    assert [last_place(t) for t in ("3.355", "402", "124.41e9", "5.10e9", "-0.70")] == pytest.approx(
        [1e-3, 1, 1e7, 1e7, 1e-2]
    )


def test_json_rows():
    fact = Fact(published(), reported(5, "ms", "blog") / spec(2, "1", "c"), spec(4, "s", "c") * 1)
    assert json.loads(json.dumps(fact.as_dict())) == {
        "name": "x",
        "published": 2.5,
        "computed": pytest.approx(2.5),
        "unit": "ms",
        "tier": "derived",
        "source": "blog",
        "derived_there": False,
        "ok": True,
        "rests_on": ["reported", "spec"],
        "formula": "5 ms / 2",
        "inputs_from": "blog; c",
        "assumptions": "none",
        "reason": "why",
        "also": 4000,
    }
    assert Fact(published(), spec(2.5, "ms", "c") * 1).as_dict()["also"] is None


def test_formulas_are_named():
    """What stands behind the tables: the formula texts of the counted rows."""
    texts = {f.computed.formula for f in facts()}
    for text in (
        "N * (1 - (1 - k/N)^m)",
        "round(accuracy * questions)",
        "Wilson, 95%",
        "binomial, two-sided",
        "(b - c)/n in percentage points and its 95% normal interval",
        "sum of tensors",
        "dense tensors + 8 experts per layer + head",
        "sum of its tensors",
        "all tensors in their formats",
        "2 * state in FP32",
        "all groups",
        "context * KV per token",
        "(verify + drafts * draft pass) / plain step, draft KV left out",
        "their bytes",
        "MLA, total bytes",
        "routed experts, scale bytes",
        "KDA projections, payload bytes",
    ):
        assert text in texts, text


def test_every_number_says_where_it_comes_from():
    sources = {leaf.source for f in facts() for leaf in f.computed.leaves()}
    known = {str(s) for s in catalog.catalog().sources.values()}
    assert sources - known == {
        "number format",
        "two FLOP are one multiply-add",
        "percentage points in the whole",
        "three drafts and the token before them",
        "K = 1000",
        "K = 1024",
    }


def test_the_other_figures_say_what_they_are():
    texts = {f.also.formula for f in facts() if f.also is not None}
    assert texts == {
        "sum of tensors with 6912 and an element-wise gate",
        "the same with kv_b in BF16",
        "1 / 51.44 ms",
        "19.44 1/s / 36.09 tok/s",
        "(verify + drafts * draft pass) / plain step, draft KV counted",
    }


def test_some_values_to_more_digits_than_were_published():
    values = {f.name: f.value for f in facts()}
    for name, value in {
        "the per-tensor step above the simple one": 56.145089,
        "the simple step below the per-tensor one": 35.957000,
        "utilisation, baseline, per tensor": 69.245806,
        "share of the weights: KDA projections": 38.119207,
        "KV at 32K": 264.241152,
        "MTP TPOT, synthetic, predicted": 13.189128,
    }.items():
        assert values[name] == pytest.approx(value, rel=2e-6), name
    simple = next(f for f in facts() if f.name == "the simple step below the per-tensor one").computed
    assert "simple account" in {i.formula for i in _ancestors(simple)}


def _ancestors(e):
    for i in e.inputs:
        yield i
        yield from _ancestors(i)


def test_who_derived_what():
    """NVIDIA published measurements; the article's and the lab's derivations are not NVIDIA's."""
    rows = {f.name: f.published for f in facts()}
    assert "NVIDIA" in rows["change on GSM8K: TPOT"].source and not rows["change on GSM8K: TPOT"].derived_there
    for name in ("simple step, BF16 head", "utilisation, baseline, simple account", "ideal 4-bit weights"):
        assert "article" in rows[name].source and rows[name].derived_there
    for name in ("ridge point, assumed dense half", "c that would close it, by time", "KV read at 32K, K = 1024"):
        assert "this lab" in rows[name].source and rows[name].derived_there
    assert "Recipe repository" in rows["right answers, baseline"].source
    assert (rows["the accuracy change"].figure, rows["the accuracy change"].unit) == ("-0.08", "point")
