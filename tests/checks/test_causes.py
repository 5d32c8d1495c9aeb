"""Candidate causes: listed with what would decide and a command, never one picked unproved."""

import pytest
from compared import compared

from labkit.checks import causes
from labkit.checks.check import FAIL, PASS, Check
from labkit.cli import _names as commands
from labkit.engines import ladder


def judge(ratio, low, high, *, expect=ladder.NOTHING, accept=None, c=None, apart=False, **more):
    found = compared(ratio, low, high, accept=accept, c=c, apart=apart)
    return causes.judge("after against before", found, expect=expect, **more)


def saw(name, verdict):
    return Check(name, "asked", "seen", "log", verdict)


def _supported(benefit):
    return [c.name for c in benefit.causes if c.supported]


def _excluded(benefit):
    return [c.name for c in benefit.causes if c.supported is False]


def test_a_clear_gain_needs_no_excuse():
    assert judge(1.5, 1.4, 1.6, accept=3.9, c=2.5).causes == ()


@pytest.mark.parametrize(
    "low, high, verdict",
    [
        (1.01, 1.1, "gain"),
        (0.9, 0.99, "loss"),
        (0.9, 1.1, "no difference shown"),
        (None, None, "too few repeats to tell"),
    ],
)
def test_verdict_follows_the_whole_interval(low, high, verdict):
    assert judge(1, low, high, expect=ladder.FASTER).verdict == verdict


@pytest.mark.parametrize("ratio, verdict", [(1.85, "gain"), (0.6, "loss")])
def test_without_an_interval_requests_that_do_not_overlap_decide(ratio, verdict):
    found = judge(ratio, None, None, accept=3.9, c=2.1, spread=0.16, apart=True)
    assert found.verdict == verdict and verdict in found.lines()[0] and "no interval" in found.lines()[0]
    assert bool(found.causes) == (verdict == "loss")


def test_too_few_repeats_are_no_ground_to_look_for_faults():
    found = judge(1.85, None, None, accept=3.9, c=2.1, spread=0.16, fp8_head=True)
    assert found.verdict == causes.TOO_FEW and "noise" not in _excluded(found)
    assert {c.name for c in found.causes} == {"noise", "not the same load", "something else used the cores"}
    assert "the draft layer is misread" in [c.name for c in judge(0.8, None, None, accept=1.0, c=2.1).causes]


@pytest.mark.parametrize(
    "ratio, low, high, spread, noise",
    [
        (0.5, 0.48, 0.52, 0.02, False),  # a loss far beyond what repeats differ by
        (0.85, 0.8, 0.9, 0.16, None),  # shown, but repeats differ by as much
        (0.98, 0.9, 1.1, 0.01, None),  # not shown: nothing is excluded
        (0.98, 0.9, 1.1, 0.08, True),
        (0.5, None, None, 0.0, None),  # one repeat has no spread
    ],
)
def test_noise_is_excluded_only_by_an_effect_that_is_shown_and_large(ratio, low, high, spread, noise):
    found = judge(ratio, low, high, spread=spread, expect=ladder.FASTER)
    assert next(c for c in found.causes if c.name == "noise").supported is noise


def test_accepting_nothing_with_an_fp8_head_has_several_candidates_until_the_log_decides():
    open_case = judge(0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True)
    names = [c.name for c in open_case.causes]
    assert "the draft's head is a bare tensor" in names and "the draft layer is misread" in names
    assert "the draft's head is a bare tensor" not in _supported(open_case)
    decided = judge(0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True, checks=[saw("draft shares the head", FAIL)])
    assert "the draft's head is a bare tensor" in _supported(decided)
    cleared = judge(0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True, checks=[saw("draft shares the head", PASS)])
    assert "the draft's head is a bare tensor" in _excluded(cleared)


def test_a_high_accept_length_below_c_is_named():
    benefit = judge(0.9, 0.85, 0.95, accept=2.68, c=3.0)
    assert _supported(benefit) == ["the round costs more than it accepts"]
    assert "a = 2.68, c = 3.00" in benefit.causes[0].why


def test_unequal_prompts_and_noise_are_named():
    benefit = judge(1.01, 0.97, 1.05, same_prompts=False, spread=0.08, expect=ladder.BYTES)
    assert set(_supported(benefit)) == {"not the same load", "noise"}


def test_a_fallen_back_runner():
    assert "another kernel runs" in _supported(
        judge(1.0, 0.99, 1.01, checks=[saw("MoE kernels", FAIL)], expect=ladder.FASTER)
    )
    assert "another kernel runs" in _excluded(
        judge(1.0, 0.99, 1.01, checks=[saw("MoE kernels", PASS)], expect=ladder.FASTER)
    )


def test_configuration_checks_decide_what_they_saw():
    checks = [Check("MoE kernels", "humming", "triton", "log", FAIL), Check("CUDA graph", "on", "yes", "log", PASS)]
    benefit = judge(1.0, 0.99, 1.01, checks=checks, expect=ladder.FASTER)
    assert _supported(benefit) == ["another kernel runs"]
    assert "decoding runs without CUDA graphs" in _excluded(benefit)


@pytest.mark.parametrize("accept", [None, 1.4])
@pytest.mark.parametrize("expect", ladder.EXPECT)
def test_every_candidate_has_an_experiment_and_several_stay_open(expect, accept):
    benefit = judge(0.9, 0.85, 0.95, expect=expect, accept=accept, c=accept and 2.0)
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
