import copy
import dataclasses
import json
import operator
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.evidence import Evidence, Tier, apply, derived, measured, reported, spec
from labkit.units import Unit

TPOT = reported(27.71, "ms", "blog [1]")
NOMINAL = spec(273, "GB/s", "product page [2]")
STEP = spec(3.355, "GB", "config [4]")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
positive = st.floats(1e-6, 1e12)
tiers = st.sampled_from([reported, spec, measured])


def test_reported_times_spec_is_derived_and_keeps_its_parents():
    u = STEP / TPOT / NOMINAL
    assert u.tier is Tier.DERIVED and u.unit == "1"
    assert u.value == pytest.approx(0.4435, abs=1e-4)
    assert u.leaves() == (STEP, TPOT, NOMINAL)
    assert u.rests_on() == (Tier.REPORTED, Tier.SPEC)
    assert "blog [1]" in u.source and "product page [2]" in u.source


@given(positive, positive, tiers, tiers, st.sampled_from("+-*/"))
def test_no_operation_yields_anything_but_derived(a, b, make_a, make_b, sign):
    x, y = make_a(a, "B", "x"), make_b(b, "B", "y")
    results = [OPERATIONS[sign](x, y)]
    results += [OPERATIONS[sign](x, 2), OPERATIONS[sign](2, x)] if sign in "*/" else []
    for result in results:
        assert result.tier is Tier.DERIVED
        assert set(result.leaves()) <= {x, y} and result.formula


def test_a_product_cannot_be_relabelled_measured():
    product = TPOT * NOMINAL
    with pytest.raises(BadInput, match="derived"):
        dataclasses.replace(product, tier=Tier.MEASURED)
    with pytest.raises(BadInput, match="plain number"):
        measured(product, "B", "wishful")
    with pytest.raises(BadInput):
        Evidence(1.0, "B", Tier.MEASURED, "x", inputs=(TPOT,))
    with pytest.raises(BadInput):
        Evidence(1.0, "B", Tier.MEASURED, "x", formula="a * b")
    with pytest.raises(TypeError):
        float(product)
    with pytest.raises(dataclasses.FrozenInstanceError):
        product.tier = Tier.MEASURED
    with pytest.raises(BadInput):
        Evidence.from_dict(product.as_dict() | {"tier": "measured"})


def test_derived_needs_a_formula_and_inputs():
    with pytest.raises(BadInput):
        Evidence(1.0, "B", Tier.DERIVED, "x")
    with pytest.raises(BadInput):
        derived(1.0, "B", "two", ())
    assert derived(2.0, "1", "round(x)", (TPOT,)).source == "blog [1]"
    assert apply(lambda x: x**2, "1", "x^2", spec(3, "1", "s")).value == 9


@given(positive, tiers, st.sampled_from(["B", "ms", "GB/s", "1", "%", "FLOP/B"]), st.sampled_from(["", ".3f", ".1e"]))
def test_formatting_always_shows_word_and_shape(v, make, unit, how):
    e = make(v, unit, "x")
    for evidence in (e, e * 2):
        text = format(evidence, how)
        assert evidence.tier.value in text and evidence.tier.shape in text
        assert evidence.tier.value in evidence.badge() and evidence.tier.shape in evidence.badge()
    assert str(e) == format(e)


def test_shapes_and_words_differ():
    assert len({t.shape for t in Tier}) == len({t.value for t in Tier}) == 4


def test_quantity_is_short():
    assert (TPOT * 1).quantity() == "27.71 ms"
    assert (STEP / TPOT).quantity() == "121.1 GB/s"
    assert spec(1234, "s", "x").quantity() == "1234 s"
    assert spec(0, "B", "x").quantity() == "0 B"
    assert spec(3663, "FLOP/B", "x").quantity() == "3663 FLOP/B"
    assert spec(0.5, "1", "x").quantity() == "0.5"
    assert measured(1.5, "s", "x", low=1.25, high=2).quantity(".2f") == "1.50 [1.25, 2.00] s"


def test_units_are_checked():
    assert (NOMINAL * TPOT).to("GB").value == pytest.approx(273 * 0.02771)
    assert (TPOT + spec(1, "s", "x")).value == pytest.approx(1.02771)
    assert (1 / TPOT).to("tok/s").value == pytest.approx(36.09, abs=0.01)
    assert spec(50, "%", "x").si == 0.5
    assert spec(1, "bit", "x").to("B").value == 0.125
    assert spec(1, "KiB", "x").to("B").value == 1024
    for bad in (lambda: TPOT + STEP, lambda: TPOT - 1, lambda: TPOT.to("B"), lambda: spec(1, "parsec", "x")):
        with pytest.raises(BadInput):
            bad()
    with pytest.raises(TypeError):
        TPOT + "1"
    with pytest.raises(TypeError):
        TPOT * True


@pytest.mark.parametrize("unit", ["B", "B/s", "GB/s", "FLOP/B", "1", "s", "B*s", "1/s"])
def test_base_units_parse_back(unit):
    u = Unit.parse(unit)
    assert Unit.parse(u.base()).dimension == u.dimension
    assert (u * u / u).dimension == u.dimension
    assert (u / u).base() == "1"


@pytest.mark.parametrize("bad", ["", "GB//s", "Kis", "B/", "/s", " B", None, "kKB"])
def test_bad_units(bad):
    with pytest.raises(BadInput, match="unit"):
        Unit.parse(bad)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"value": float("nan")},
        {"value": float("inf")},
        {"value": "3"},
        {"value": True},
        {"source": " "},
        {"tier": "guess"},
        {"low": 1.0},
        {"low": 2.0, "high": 3.0},
        {"inputs": (3,)},
    ],
)
def test_bad_evidence(kwargs):
    good = {"value": 1.0, "unit": "B", "tier": "measured", "source": "here"}
    assert Evidence(**good).tier is Tier.MEASURED
    with pytest.raises(BadInput):
        Evidence(**(good | kwargs))


@given(
    st.tuples(positive, positive, positive),
    st.tuples(positive, positive, positive),
    st.sampled_from("+-*/"),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_intervals_hold_every_combination(a, b, sign, u, v):
    (al, am, ah), (bl, bm, bh) = sorted(a), sorted(b)
    x, y = measured(am, "B", "x", al, ah), measured(bm, "B", "y", bl, bh)
    result = OPERATIONS[sign](x, y)
    inside = OPERATIONS[sign](al + u * (ah - al), bl + v * (bh - bl))
    slack = 1e-9 * max(abs(result.low), abs(result.high), ah, bh)
    assert result.low - slack <= inside <= result.high + slack


def test_a_divisor_around_zero_bounds_nothing():
    y = measured(1.0, "B", "y", -1.0, 2.0)
    assert (1 / y).low is None and (y / 2).low == -0.5


def test_round_trips():
    e = measured(1.5, "s", "host", 1.0, 2.0) * TPOT - spec(1, "s^2", "x")
    assert Evidence.from_dict(json.loads(json.dumps(e.as_dict()))) == e
    assert pickle.loads(pickle.dumps(e)) == e and copy.deepcopy(e) == e
    with pytest.raises(BadInput, match="evidence"):
        Evidence.from_dict({"value": 1})
