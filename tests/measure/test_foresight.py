"""Predictions by what an arm is expected to do, from bytes and from arms before it."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from labkit.engines.config import Speculative
from labkit.evidence import measured
from labkit.measure import machine, steps
from labkit.measure.foresight import Foreseen, foresee
from labkit.measure.results import Arm, Result
from labkit.params import Params
from labkit.roofline.cost import Component, pass_s

PARAMS = Params.checked({"engine": "pocket", "workload": "repetitive", "count": 1})
ARMS = {a.name: a for a in PARAMS.ladder()}


@pytest.fixture(autouse=True)
def ten_gigabytes_a_second(monkeypatch):
    monkeypatch.setattr(machine, "bandwidth", lambda *_: measured(10, "GB/s", "test", 10, 10))


@pytest.fixture
def no_probes(monkeypatch):
    """As on an engine whose parts nobody here can probe: bytes are all there is."""
    monkeypatch.setattr(steps, "model_for", lambda params: None)


def result(name, tpot_s, accept=None):
    arm = Arm.of(ARMS[name], PARAMS.replace(engine=ARMS[name].config))
    rows = []
    for repeat in range(3):
        row = {"arm": name, "repeat": repeat, "index": 0, "status": "ok", "session": "s"}
        row |= {"prompt_tokens": 100, "output_tokens": 101, "ttft_s": 0.02, "tpot_s": tpot_s}
        row |= {"latency_s": 0.02 + 100 * tpot_s, "verify_ct": accept and round(100 / accept), "started_unix": repeat}
        rows.append(row)
    return Result(arm, rows)


def said(name, **seen):
    results = {n.replace("_", "-"): result(n.replace("_", "-"), *v) for n, v in seen.items()}
    return foresee(list(ARMS.values()), ARMS[name], results, PARAMS, 200)


def step(name):
    return machine.account(ARMS[name].config, context=200, model="pocket").total_bytes


def test_the_first_arm_has_a_floor_and_no_forecast(no_probes):
    found = said("baseline")
    assert found.bound and found.best.value == pytest.approx(step("baseline") / 10e9)
    assert found.text() == f"at least {found.best.to('ms').value:.2f}"


def test_changes_scale_the_arm_before_by_bytes(no_probes):
    assert said("kernels", baseline=(2e-3,)).best.value == pytest.approx(2e-3)  # the same bytes
    found = said("fp8-head", kernels=(1.6e-3,))
    assert found.best.value == pytest.approx(1.6e-3 * step("fp8-head") / step("kernels")) and found.best.value < 1.6e-3
    assert not found.bound and found.worst is None


def test_drafting_is_predicted_between_no_draft_right_and_all(no_probes):
    found = said("mtp", fp8_head=(1.5e-3,))
    assert found.worst.value == pytest.approx(4 * found.best.value)  # three steps: one to four tokens a round
    assert found.worst.value > 1.5e-3 and " to " in found.text()


def test_drafts_looked_up_in_the_text_cost_no_pass_over_weights():
    plain, at = ARMS["fp8-head"].config, {"context": 200, "model": "pocket"}
    looked_up = machine.byte_cost(plain, Speculative(algorithm="NGRAM", draft_tokens=4), **at)
    verify, step = (machine.account(plain, positions=n, **at).total_bytes for n in (4, 1))
    assert looked_up.value == pytest.approx(verify / step)
    assert machine.byte_cost(plain, Speculative(), **at).value > looked_up.value


def test_a_silent_fault_costs_the_healthy_round_and_yields_one_token(no_probes):
    found = said("broken-head", fp8_head=(1.5e-3,), mtp=(1.0e-3, 4.0))
    assert found.best.value == pytest.approx(4.0e-3)


def test_nothing_is_said_where_an_arm_before_is_missing_or_bytes_are_not_known(no_probes):
    assert said("fp8-head").bound  # a floor needs no arm before
    assert said("mtp") is None and said("broken-head", mtp=(1e-3, 4.0)) is None
    unknown = Params.checked({"engine": {"engine": "attach", "url": "http://127.0.0.1:9"}})
    (arm,) = unknown.ladder()[:1]
    assert foresee([arm], arm, {}, unknown, 200) is None


def test_it_is_kept_as_it_was_said(monkeypatch):
    found = said("mtp", fp8_head=(1.5e-3,))
    assert Foreseen.from_dict(found.as_dict()) == found
    monkeypatch.setattr(steps, "model_for", lambda params: HandMade())
    found = said("mtp")
    assert found.c.value and Foreseen.from_dict(found.as_dict()) == found
    old = {k: v for k, v in found.as_dict().items() if k not in ("pass_s", "bytes_s", "c", "c_bytes")}
    assert Foreseen.from_dict(old).pass_s is None  # a record of before there were any


class HandMade:
    """A cost model with known numbers: a step of 2 ms, 1.8 by bytes; a round of 4 ms, 3.2 by bytes."""

    rates = SimpleNamespace(bandwidth=1e10, disturbed="")

    def plain(self, context):
        return [Component("plain", 18e6, 0.0, 0.2e-3)]

    def round(self, context):
        return [Component("round", 32e6, 0.0, 0.8e-3)]

    def evidence(self, parts, bytes_alone=False):
        ms = {"plain": (2.0, 1.8), "round": (4.0, 3.2)}[parts[0].name][bytes_alone]
        return measured(ms * 1e-3, "s", "hand-made")


def test_parts_predict_every_arm_with_nothing_before_it(monkeypatch):
    monkeypatch.setattr(steps, "model_for", lambda params: HandMade())
    found = said("baseline")
    assert not found.bound and found.best.value == pytest.approx(2e-3) and found.bytes_s.value == pytest.approx(1.8e-3)
    found = said("mtp")
    assert found.c.value == pytest.approx(2) and found.c_bytes.value == pytest.approx(3.2 / 1.8)
    assert found.best.value == pytest.approx(1e-3) and found.worst.value == pytest.approx(4e-3)
    assert said("broken-head", fp8_head=(1.5e-3,), mtp=(1.0e-3, 4.0)).pass_s is None


def test_the_error_is_that_of_a_pass_whatever_was_accepted(monkeypatch):
    monkeypatch.setattr(steps, "model_for", lambda params: HandMade())
    assert said("baseline").error(result("baseline", 2.5e-3)) == pytest.approx(-0.2)
    assert said("mtp").error(result("mtp", 2.0e-3, 2.0)) == pytest.approx(0.0)
    assert said("mtp").error(result("mtp", 1.0e-3, 4.0)) == pytest.approx(0.0)


def test_a_floor_has_no_error(no_probes):
    assert said("baseline").error(result("baseline", 2e-3)) is None


def test_parts_and_disturbances_are_kept_with_the_prediction(monkeypatch):
    model = HandMade()
    model.rates = SimpleNamespace(bandwidth=1e10, disturbed="probed while others used 60% of the machine")
    monkeypatch.setattr(steps, "model_for", lambda params: model)
    kept = Foreseen.from_dict(json.loads(json.dumps(said("mtp").as_dict())))
    assert kept.parts == said("mtp").parts
    assert [p["name"] for key in ("plain", "round") for p in kept.parts[key]] == ["plain", "round"]
    assert "others used 60%" in kept.disturbed and kept.disturbed in kept.why


def test_an_engine_that_runs_is_predicted_by_its_own_memory(monkeypatch):
    """c is a round over the plain step of another engine, each at the speed of its own memory."""
    asked = []

    @dataclass(frozen=True)
    class Model(HandMade):
        reading: float | None = None

        def evidence(self, parts, bytes_alone=False):
            asked.append((parts[0].name, self.reading))
            return measured(pass_s(parts, self.reading or 1e10), "s", "hand-made")

    monkeypatch.setattr(steps, "model_for", lambda params: Model())
    mtp, plain = ARMS["mtp"], ARMS["fp8-head"]
    read = {mtp.config.digest(): 0.8e10, plain.config.digest(): 0.9e10}
    found = foresee(list(ARMS.values()), mtp, {}, PARAMS, 200, read)
    assert set(asked) == {("plain", 0.9e10), ("round", 0.8e10)} and found.parts["bandwidth"] == 0.8e10
    assert found.c.value == pytest.approx((32e6 / 0.8e10 + 0.8e-3) / (18e6 / 0.9e10 + 0.2e-3))
    assert foresee(list(ARMS.values()), mtp, {}, PARAMS, 200).parts["bandwidth"] == 1e10
