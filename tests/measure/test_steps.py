"""A pass predicted from given rates: every piece's own time, in as many layers as the pass has of it."""

import json
from dataclasses import asdict, replace

import pytest

from labkit.measure.parts import DISTINCT, MOST, PASTS, TOKENS, kernel_name
from labkit.measure.rates import Rates
from labkit.measure.steps import Model
from labkit.pocket import pieces
from labkit.pocket.layout import PARTS
from labkit.pocket.loader import PocketConfig
from labkit.pocket.options import SHIPPED_WEIGHTS, Options

CONFIG = PocketConfig.from_json(SHIPPED_WEIGHTS / "config.json")
OPTIONS = Options(moe_runner_backend="jit", fp8_lm_head=True, dense_dtype="int8", speculative_algorithm="NEXTN")
OPTIONS = replace(OPTIONS, speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)
EXPERTS = {m: 8.0 + m for m in range(2, MOST + 1)} | {1: 8.0}
US = 1e-6
# microseconds of a piece with m tokens; every layer of the model that has it
TOOK = {
    "kda": lambda m: {"kda_projections": 500 + 50 * m, "kda_input": 50.0 * m, "kda_state": 40.0 * m},
    "mla": lambda m: {"mla_projections": 80 + 10 * m, "mla_attention": 6.0 * m},
    "dense": lambda m: {"mlp": 100.0 + m},
    "mix": lambda m: {"nextn_mix": 30.0 + m, "mla_projections": 2.0 * (m - 1)},
    "head": lambda m: {"head": 170.0 + 20 * m, "sampling": 2.0 * m},
    "around": lambda m: {"rest": 10.0 + m},
}


def scaled(by):
    return {part: s * US for part, s in by.items()}


def moe(m, experts):
    return {"mlp": 150 * US, "router": 90 * US, "experts": (60 * experts + 5 * m) * US, DISTINCT: experts}


@pytest.fixture(scope="module")
def rates():
    every = [m for parts in pieces.matrices(CONFIG, OPTIONS).values() for ms in parts.values() for m in ms]
    return Rates(
        bandwidth=12e9,
        kernels={kernel_name(x): {m: 1e-7 * m for m in TOKENS} for x in every},
        pieces={name: {m: scaled(took(m)) for m in TOKENS} for name, took in TOOK.items()},
        far={m: (6.0 * m + 0.5 * m * (PASTS[1] - PASTS[0])) * US for m in TOKENS},
        moe={m: [moe(m, 8.0), moe(m, 24.0)] for m in TOKENS},
        bytes_={k: dict.fromkeys(PARTS, 1000) for k in ("step", "draft")} | {"one": {"expert": 78336, "position": 160}},
        variant="avx2",
        dense="int8",
        threads=1,
        disturbed="",
        measured_unix=0.0,
    )


@pytest.fixture(scope="module")
def model(rates):
    return Model(rates, CONFIG, OPTIONS, EXPERTS)


def seconds(model, parts):
    return {p.name: p.predicted_s(model.rates.bandwidth) / US for p in parts}


def test_a_step_is_its_pieces(model):
    found = seconds(model, model.plain(PASTS[0]))
    assert found["kda_projections"] == pytest.approx(550) and found["mla_projections"] == pytest.approx(90)
    assert found["mlp"] == pytest.approx(101 + 150) and found["experts"] == pytest.approx(60 * 8 + 5)
    assert found["head"] == pytest.approx(190) and found["rest"] == pytest.approx(11)
    assert sum(found.values()) * US == pytest.approx(model.seconds(model.plain(PASTS[0])))


def test_attention_grows_with_what_came_before(model):
    near, far = (seconds(model, model.verify(4, n)) for n in (PASTS[0], PASTS[0] + 1000))
    assert far["mla_attention"] - near["mla_attention"] == pytest.approx(4 * 500)
    assert {n: s for n, s in far.items() if n != "mla_attention"} == pytest.approx(
        {n: s for n, s in near.items() if n != "mla_attention"}
    )


@pytest.mark.parametrize("tokens", [2, 4, 9])
def test_experts_are_read_as_often_as_the_text_chooses_them(model, tokens):
    found = seconds(model, model.verify(tokens, 200))
    assert found["experts"] == pytest.approx(60 * EXPERTS[tokens] + 5 * tokens)


def test_a_draft_is_one_layer_and_the_first_enters_what_was_accepted(model):
    first, later = (seconds(model, model.draft(i, PASTS[0])) for i in (1, 2))
    layers = pieces.layers(CONFIG, draft=False)
    assert later["experts"] == pytest.approx((60 * 8 + 5) / layers["moe"])
    assert later["mlp"] == pytest.approx(150 / layers["moe"]) and "kda_state" not in later
    assert later["mla_projections"] == pytest.approx(90 / layers["mla"]) and later["nextn_mix"] == pytest.approx(31)
    assert first["nextn_mix"] == pytest.approx(34) and first["mla_projections"] == pytest.approx(90 / layers["mla"] + 6)
    assert later["head"] == pytest.approx(190)  # the whole head, for each draft


def test_a_round_is_its_passes_and_c_follows(model):
    whole = model.seconds(model.verify(4, 200)) + sum(model.seconds(model.draft(i, 200)) for i in (1, 2, 3))
    assert model.seconds(model.round(200)) == pytest.approx(whole)
    assert sum(p.operations for p in model.round(200)) > 3 * sum(p.operations for p in model.plain(200))


def test_more_tokens_than_were_probed_go_on_as_before(model):
    nine, ten = (seconds(model, model._pass(m, 64, draft=False))["kda_state"] for m in (9, 9))
    assert nine == ten == pytest.approx(360)
    assert Model._at({1: 1.0, 4: 4.0, 9: 9.0}, 12) == pytest.approx(12.0)
    assert Model._at({4: 4.0, 5: 6.0, 8: 9.0}, 6) == pytest.approx(7.0)  # between two that were probed


def test_bytes_wait_where_they_are_asked_for(model):
    """With several tokens the projections ask for the state and the router while they multiply: the sum stays."""
    plain, many = (model._bytes(m, 64, draft=False) for m in (1, 4))
    more = 10 * (EXPERTS[4] - 8) * 78336 + 2 * 3 * 160
    assert sum(many.values()) == pytest.approx(sum(plain.values()) + more)
    assert many["kda_state"] == many["router"] == 0 < plain["kda_state"]


def test_an_engine_whose_memory_is_slower_waits_longer_for_bytes_and_for_nothing_else(model):
    slower = replace(model, reading=model.rates.bandwidth / 2)
    parts = model.plain(PASTS[0])
    assert slower.plain(PASTS[0]) == parts  # what is read and multiplied is the same
    waits = {p.name for p in parts if p.bound(slower.bandwidth) == "memory"}
    assert "experts" in waits and "rest" not in waits
    bytes_s = next(p for p in parts if p.name == "experts").bytes_read / model.rates.bandwidth
    assert slower.seconds(parts) > model.seconds(parts) and bytes_s > 0
    by_bytes = [m.evidence(parts, bytes_alone=True).si for m in (slower, model)]
    assert by_bytes[0] == pytest.approx(2 * by_bytes[1])


def test_rates_are_the_same_after_json(rates):
    assert Rates.from_dict(json.loads(json.dumps(asdict(rates)))) == rates
