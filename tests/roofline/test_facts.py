import json

import pytest

from labkit.evidence import Tier, reported, spec
from labkit.roofline.facts import Fact, facts, last_place

ROWS = facts()


@pytest.mark.parametrize("fact", ROWS, ids=lambda f: f.name)
def test_each_published_number_is_reproduced(fact):
    assert fact.ok, f"{fact.name}: published {fact.published}, computed {fact.value:g} {fact.unit}"
    assert fact.computed.tier is Tier.DERIVED, "a fact is computed here, whatever it rests on"
    assert Tier.MEASURED not in fact.computed.rests_on(), "nothing here was measured by this lab"


def test_the_table_is_complete():
    names = [f.name for f in ROWS]
    assert len(names) == len(set(names)) >= 130
    # Where published figures disagree, all of them appear, with the reason.
    for pair in ("44% or 69%", "20 or 24 tok/s", "K = 1000 or 1024", "c by time or byte style", "sparse or dense"):
        assert len([f for f in ROWS if f.reason.startswith(pair)]) >= 2, pair
    values = {f.name: f.published for f in ROWS}
    assert values["utilisation, baseline, simple account"] == "44"
    assert values["utilisation, baseline, per tensor"] == "69"


def test_tolerances_are_tight():
    """Half a unit of the last digit; wider only with a word about why, and never beyond two percent."""
    for f in ROWS:
        if f.within > last_place(f.published) / 2:
            assert f.assumptions, f.name
            assert f.within <= max(0.02 * abs(float(f.published)), last_place(f.published)), f.name


def test_a_wrong_number_is_seen():
    good = Fact("x", "3.355", spec(3.3548, "GB", "c") * 1, "GB", "s", 0.0005)
    assert good.ok and good.value == pytest.approx(3.3548)
    assert not Fact("x", "3.355", spec(3.3556, "GB", "c") * 1, "GB", "s", 0.0005).ok
    assert not Fact("x", "3.355", spec(3.3544, "GB", "c") * 1, "GB", "s", 0.0005).ok
    assert Fact("x", "1.5", spec(1.55, "1", "c") * 1, "1", "s", 0.05).ok


def test_last_place():
    assert [last_place(t) for t in ("3.355", "402", "124.41e9", "5.10e9", "-0.70")] == pytest.approx(
        [1e-3, 1, 1e7, 1e7, 1e-2]
    )


def test_json_rows():
    row = json.loads(
        json.dumps(
            Fact(
                "x", "2.5", reported(5, "ms", "blog") / spec(2, "1", "c"), "ms", "blog [1]", 0.05, "none", "why"
            ).as_dict()
        )
    )
    assert row == {
        "name": "x",
        "published": 2.5,
        "computed": pytest.approx(2.5),
        "unit": "ms",
        "tier": "derived",
        "source": "blog [1]",
        "ok": True,
        "rests_on": ["reported", "spec"],
        "formula": "5 ms / 2",
        "inputs_from": "blog; c",
        "assumptions": "none",
        "reason": "why",
    }
