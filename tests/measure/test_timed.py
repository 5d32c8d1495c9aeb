"""Times of an engine's parts over HTTP, beside the prediction."""

import json
from types import SimpleNamespace

import pytest

from labkit.measure import client, timed
from labkit.roofline.cost import Component

PARTS = [Component("head", 100.0, 1.0), Component("router", 10.0, 0.5)]


def test_phases_add_up_beside_the_prediction():
    found = timed.beside(PARTS, [{"head": 2.0, "router": 1.0}, {"head": 1.0, "sampling": 0.25}])
    assert {p.name: p.measured_s for p in found} == {"head": 3.0, "router": 1.0, "sampling": 0.25}
    assert found[0].bytes_read == 100.0 and found[2].predicted_s(1.0) == 0


def test_a_pass_is_the_sum_over_passes_by_their_number(monkeypatch):
    plain = {"passes": 4, "seconds": {"head": 2.0, "mlp": 0}}
    answers = {
        "/start_part_times": (200, b""),
        "/stop_part_times": (
            200,
            json.dumps({"prefill": {"passes": 1, "seconds": {"head": 9.0}}, "plain": plain}).encode(),
        ),
    }
    asked = []
    monkeypatch.setattr(client, "request", lambda url, how, path, *_, **__: answers[path])
    monkeypatch.setattr(client, "generate", lambda url, **how: asked.append(how["text"]))
    prompt = SimpleNamespace(text="a", input_ids=None, sampling={}, max_new_tokens=4)
    assert timed.timed("http://x", [prompt, prompt]) == {"plain": {"head": 0.5}} and asked == ["a", "a"]


@pytest.mark.parametrize("status", [404, 501])
def test_an_engine_that_does_not_time_itself_is_asked_nothing_more(monkeypatch, status):
    monkeypatch.setattr(client, "request", lambda *_, **__: (status, b""))
    monkeypatch.setattr(client, "generate", lambda *_, **__: pytest.fail("asked"))
    assert timed.timed("http://x", [SimpleNamespace(text="a")]) == {}
