"""Times of an engine's parts over HTTP, beside the prediction."""

import json
from types import SimpleNamespace

import pytest

from labkit.errors import LabError
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


def test_reading_is_bytes_by_seconds_without_what_was_interrupted(monkeypatch):
    body = json.dumps({"bytes": 20e6, "seconds": [0.002] * 8 + [0.9, 0.001]}).encode()
    monkeypatch.setattr(client, "request", lambda url, how, path, *_, **__: (200, body))
    assert timed.reading("http://x") == pytest.approx(1e10)
    monkeypatch.setattr(client, "request", lambda *_, **__: (404, b""))
    assert timed.reading("http://x") is None


def test_engines_are_read_in_turns_and_one_that_does_not_start_is_left_to_whoever_measures_it(monkeypatch, tmp_path):
    rates = {"http://a": iter([1.0, 9.0, 2.0]), "http://b": iter([None] * 3)}
    monkeypatch.setattr(timed, "reading", lambda url, api_key: next(rates[url]))
    a, b = (SimpleNamespace(digest=lambda n=n: n) for n in "ab")
    engines = [SimpleNamespace(url=f"http://{n}", api_key=None) for n in "ab"]
    pool = SimpleNamespace(ensure=lambda configs, run_dir: engines)
    assert timed.readings(pool, [a, b], tmp_path) == {"a": 2.0}

    def fails(configs, run_dir):
        raise LabError("does not start")

    assert timed.readings(SimpleNamespace(ensure=fails), [a], tmp_path) == {}
