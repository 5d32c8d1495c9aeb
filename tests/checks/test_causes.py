"""Candidate causes: listed with what would decide and a command, never one picked unproved."""

import pytest

from labkit.checks import causes
from labkit.checks.causes import judge
from labkit.checks.check import FAIL, PASS, Check
from labkit.cli import _names as commands


def _supported(benefit):
    return [c.name for c in benefit.causes if c.supported]


def _excluded(benefit):
    return [c.name for c in benefit.causes if c.supported is False]


def test_a_clear_gain_needs_no_excuse():
    assert judge("mtp", 1.5, 1.4, 1.6, accept=3.9, c=2.5).causes == ()


@pytest.mark.parametrize(
    "low, high, verdict",
    [
        (1.01, 1.1, "gain"),
        (0.9, 0.99, "loss"),
        (0.9, 1.1, "no difference shown"),
        (None, None, "no difference shown"),
    ],
)
def test_verdict_follows_the_whole_interval(low, high, verdict):
    assert judge("kernels", 1, low, high).verdict == verdict


def test_accepting_nothing_with_an_fp8_head_has_several_candidates_until_the_log_decides():
    open_case = judge("mtp", 0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True)
    names = [c.name for c in open_case.causes]
    assert "the draft's head is a bare tensor" in names and "the draft layer is misread" in names
    assert "the draft's head is a bare tensor" not in _supported(open_case)
    decided = judge("mtp", 0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True, module_shared=False)
    assert "the draft's head is a bare tensor" in _supported(decided)
    cleared = judge("mtp", 0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True, module_shared=True)
    assert "the draft's head is a bare tensor" in _excluded(cleared)


def test_a_high_accept_length_below_c_is_named():
    benefit = judge("mtp", 0.9, 0.85, 0.95, accept=2.68, c=3.0)
    assert _supported(benefit) == ["the round costs more than it accepts"]
    assert "a = 2.68, c = 3.00" in benefit.causes[0].why


def test_unequal_prompts_and_noise_are_named():
    benefit = judge("fp8-head", 1.01, 0.97, 1.05, same_prompts=False, spread=0.08)
    assert set(_supported(benefit)) == {"not the same load", "noise"}


def test_a_fallen_back_runner():
    assert "another kernel runs" in _supported(judge("kernels", 1.0, 0.99, 1.01, backend_seen=False))
    assert "another kernel runs" in _excluded(judge("kernels", 1.0, 0.99, 1.01, backend_seen=True))


def test_configuration_checks_decide_what_they_saw():
    checks = [Check("MoE kernels", "humming", "triton", "log", FAIL), Check("CUDA graph", "on", "yes", "log", PASS)]
    benefit = judge("kernels", 1.0, 0.99, 1.01, checks=checks)
    assert _supported(benefit) == ["another kernel runs"]
    assert "decoding runs without CUDA graphs" in _excluded(benefit)


@pytest.mark.parametrize("kind", ["mtp", "kernels", "fp8-head", "a > c", "fewer bytes", "something else"])
def test_every_candidate_has_an_experiment_and_several_stay_open(kind):
    benefit = judge("this step", 0.9, 0.85, 0.95, kind=kind, accept=1.4, c=2.0)
    assert len(benefit.causes) >= 4
    assert all(c.decide and c.command.split()[0] == "labkit" for c in benefit.causes)
    assert {c.command.split()[1] for c in benefit.causes} <= set(commands())
    # Ranked: what fits, then what is open, then what is excluded.
    order = [{True: 0, None: 1, False: 2}[c.supported] for c in benefit.causes]
    assert order == sorted(order)
    text = "\n".join(benefit.lines())
    assert "none proved" in text and "the cause is" not in text


def test_candidates_from_configuration_checks_alone():
    nothing = [
        Check("FP8 head", "on", "on", "log", PASS),
        Check("accept length", "above 1.00", "1.00", "our requests", FAIL),
        Check("draft shares the head", "module", "keeps the bare weight tensor", "log", FAIL),
    ]
    assert causes.of_checks(nothing)[0].name == "the draft's head is a bare tensor"
    indirect = [*nothing[:2], Check("draft shares the head", "module", "accept length 1.00", "our requests", FAIL)]
    assert not any(c.supported for c in causes.of_checks(indirect))
    dead = [
        Check("accept length", "above 1.00", "1.50", "our requests", PASS),
        Check("later draft positions", "above 5%", "0 of 96", "histogram", FAIL),
    ]
    found = causes.of_checks(dead)
    assert found[0].name == "the draft layer is damaged in part" and found[0].supported
    assert causes.of_checks([Check("accept length", "above 1.00", "2.70", "our requests", PASS)]) == ()
