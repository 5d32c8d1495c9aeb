"""Candidate causes: listed with what would decide, never one picked unproved."""

from labkit.checks.causes import judge


def _supported(benefit):
    return [c.name for c in benefit.causes if c.supported]


def test_a_clear_gain_needs_no_excuse():
    assert judge("mtp", 1.5, 1.4, 1.6, accept=3.9, c=2.5).causes == ()


def test_verdict_follows_the_whole_interval():
    assert [judge("kernels", 1, low, high).verdict for low, high in ((1.01, 1.1), (0.9, 0.99), (0.9, 1.1))] == [
        "gain",
        "loss",
        "no difference shown",
    ]


def test_accepting_nothing_with_an_fp8_head_has_several_candidates_until_the_log_decides():
    open_case = judge("mtp", 0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True)
    names = [c.name for c in open_case.causes]
    assert "the draft's head is a bare tensor" in names and "the draft layer is misread" in names
    assert "the draft's head is a bare tensor" not in _supported(open_case)
    decided = judge("mtp", 0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True, module_shared=False)
    assert decided.causes[0].name == "the draft's head is a bare tensor" and decided.causes[0].supported
    cleared = judge("mtp", 0.4, 0.38, 0.42, accept=1.0, c=2.5, fp8_head=True, module_shared=True)
    assert "the draft's head is a bare tensor" not in _supported(cleared)


def test_a_high_accept_length_below_c_is_named():
    benefit = judge("mtp", 0.9, 0.85, 0.95, accept=2.68, c=3.0)
    assert _supported(benefit) == ["the round costs more than it accepts"]
    assert "a = 2.68, c = 3.00" in benefit.causes[0].why


def test_unequal_prompts_and_noise_are_named():
    benefit = judge("fp8-head", 1.01, 0.97, 1.05, same_prompts=False, spread=0.08)
    assert set(_supported(benefit)) == {"not the same load", "noise"}
    assert all(c.decide for c in benefit.causes)


def test_a_fallen_back_runner():
    assert "another kernel runs" in _supported(judge("kernels", 1.0, 0.99, 1.01, backend_seen=False))
    assert "another kernel runs" not in _supported(judge("kernels", 1.0, 0.99, 1.01, backend_seen=True))
