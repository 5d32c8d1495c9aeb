"""Checks against recorded SGLang descriptions and logs, and against what each fault of an engine shows."""

import json
from pathlib import Path

import pytest

from labkit.checks import Check, Observed, configuration, expected
from labkit.engines.config import EngineConfig, Speculative
from labkit.errors import BadInput

LOGS = Path(__file__).parents[1] / "engines" / "sglang" / "data"
# Fields of the description of SGLang 0.5.23 as served on an H200 (NEXTN resolves to EAGLE there).
MTP = {
    "version": "0.5.23",
    "moe_runner_backend": "humming",
    "enable_fp32_lm_head": False,
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "internal_states": [{"avg_spec_accept_length": 2.7}],
}


def _log(name):
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def _rows(tokens=96, steps=36, histogram=(6, 6, 12, 12), status="ok", **more):
    row = {"status": status, "error": None, "verify_ct": steps, "output_tokens": tokens, "histogram": list(histogram)}
    return ({**row, **more},) * 3


def _verdicts(checks: list[Check]) -> dict[str, str]:
    return {c.name: c.verdict for c in checks}


def test_a_healthy_server_passes_every_check():
    seen = Observed(MTP, _log("mtp"), _rows())
    got = _verdicts(configuration(seen, "humming,fp8-head,mtp"))
    assert set(got.values()) == {"pass"}
    assert {"MoE kernels", "FP8 head", "MTP", "draft tokens", "accept length", "draft shares the head"} <= set(got)


def test_every_line_says_where_it_was_seen():
    for check in configuration(Observed(MTP, None, _rows()), "humming,fp8-head,mtp"):
        assert check.asked and check.seen and check.where
        assert set(check.as_dict()) >= {"name", "asked", "seen", "where", "verdict"}


def test_the_variable_that_the_release_does_not_read():
    """The recorded log of a server that was given the variable but no plugin: nothing in it proves the head."""
    seen = Observed({**MTP}, _log("humming"), (), {"SGLANG_ENABLE_FP8_LM_HEAD": "1"})
    got = {c.name: c for c in configuration(seen, "fp8-head")}
    assert got["FP8 head"].verdict == "fail"
    assert got["variable"].verdict == "fail" and "0.5.23" in got["variable"].where
    with_plugin = Observed(MTP, _log("fp8-head"), (), {"SGLANG_ENABLE_FP8_LM_HEAD": "1"})
    assert set(_verdicts(configuration(with_plugin, "fp8-head")).values()) == {"pass"}


def test_without_a_log_the_head_cannot_be_told_on_sglang():
    got = {c.name: c for c in configuration(Observed(MTP), "fp8-head")}
    assert got["FP8 head"].verdict == "cannot tell" and "--log" in got["FP8 head"].note


@pytest.mark.parametrize("name, known", [("SGLANG_SIMULATE_ACC_LEN", "pass"), ("SGLANG_NO_SUCH_THING", "fail")])
def test_variables_against_the_release_s_own_list(name, known):
    got = _verdicts(configuration(Observed(MTP, None, (), {name: "1", "HOME": "/"}), "mtp"))
    assert got["variable"] == known


def test_variables_of_another_release_cannot_be_told():
    seen = Observed({**MTP, "version": "0.6.0"}, None, (), {"SGLANG_NO_SUCH_THING": "1"})
    assert _verdicts(configuration(seen, "mtp"))["variable"] == "cannot tell"


def test_the_trap_is_named_by_the_log_line_and_by_the_accept_length():
    ones = _rows(steps=96, histogram=(96, 0, 0, 0))
    by_log = _verdicts(configuration(Observed(MTP, _log("trap")), "fp8-head,mtp"))
    assert by_log["draft shares the head"] == "fail" and by_log["FP8 head"] == "pass"
    by_length = _verdicts(configuration(Observed(MTP, None, ones), "fp8-head,mtp"))
    assert by_length["accept length"] == by_length["draft shares the head"] == "fail"
    assert by_length["first draft position"] == "fail"


def test_dummy_weights_prove_nothing_about_acceptance():
    seen = Observed({**MTP, "load_format": "dummy"}, None, _rows(steps=96, histogram=(96, 0, 0, 0)))
    assert _verdicts(configuration(seen, "mtp"))["accept length"] == "cannot tell"


def test_a_simulated_accept_length_proves_nothing():
    for seen in (
        Observed(MTP, None, _rows(), {"SGLANG_SIMULATE_ACC_LEN": "3.9"}),
        Observed({**MTP, "simulate_acc_len": 3.9}, None, _rows()),
        Observed(MTP, "labkit plugin: simulated accept length is now 3.9\n", _rows()),
    ):
        got = _verdicts(configuration(seen, "mtp"))
        assert got["accept length"] == "cannot tell" and "first draft position" not in got


def test_rewritten_draft_tokens_are_shown_with_the_rule():
    asked = Speculative(3, 1, 6)
    got = {c.name: c for c in configuration(Observed(MTP, None, _rows()), "mtp", speculative=asked)}
    assert got["draft tokens"].verdict == "fail"
    assert (got["draft tokens"].asked, got["draft tokens"].seen) == ("6", "4")
    assert "steps + 1" in got["draft tokens"].note and got["draft steps"].verdict == "pass"


def test_a_fallen_back_backend_is_caught_by_the_log_although_the_description_repeats_the_wish():
    seen = Observed(MTP, _log("baseline"))
    check = configuration(seen, "humming")[0]
    assert check.verdict == "fail" and "flashinfer" in check.seen
    resolved = configuration(Observed({**MTP, "moe_runner_backend": "triton"}), "humming")[0]
    assert resolved.verdict == "fail" and resolved.seen == "triton"
    assert configuration(Observed(MTP, "no such line\n"), "humming")[0].verdict == "cannot tell"
    assert configuration(Observed({}), "humming")[0].verdict == "cannot tell"


def test_the_baseline_is_checked_too():
    plain = {"version": "0.5.23", "moe_runner_backend": "flashinfer_mxfp4", "speculative_algorithm": None}
    assert set(_verdicts(configuration(Observed(plain, _log("baseline")), "baseline")).values()) == {"pass"}
    assert _verdicts(configuration(Observed(MTP, _log("mtp")), "baseline"))["no speculation"] == "fail"


def test_both_heads_at_once_fail():
    got = _verdicts(configuration(Observed({**MTP, "enable_fp32_lm_head": True}, _log("fp8-head")), "fp8-head"))
    assert got["FP8 head"] == "fail"


POCKET = {**MTP, "engine": "pocket", "version": "0.1.0", "moe_runner_backend": "jit", "fp8_lm_head": True}


def test_the_pocket_engine_and_what_its_faults_show():
    log = "[..] Preparing MXFP4 experts for jit backend, kernels avx512\n"
    healthy = configuration(Observed(POCKET, log, _rows()), "humming,fp8-head,mtp")
    assert set(_verdicts(healthy).values()) == {"pass"}
    ignored = _verdicts(configuration(Observed({**POCKET, "fp8_lm_head": False}, log), "fp8-head"))
    assert ignored["FP8 head"] == "fail"
    fallback = configuration(Observed(POCKET, log.replace("jit", "generic")), "jit")[0]
    assert fallback.verdict == "fail" and fallback.asked == "jit"
    bare = _verdicts(configuration(Observed(POCKET, log, _rows(steps=96, histogram=(96, 0, 0, 0))), "fp8-head,mtp"))
    assert bare["draft shares the head"] == "fail" and bare["FP8 head"] == "pass"


def test_unfit_requests_are_reported():
    rows = _rows(status="refused")
    seen = Observed(MTP, None, tuple({**r, "error": "12 prompt tokens came from the prefix cache"} for r in rows))
    got = {c.name: c for c in configuration(seen, "mtp")}
    assert got["requests"].verdict == "fail" and "prefix cache" in got["requests"].seen
    assert got["accept length"].where.startswith("/server_info")  # refused rows are not counted


def test_a_configuration_tells_what_was_asked():
    config = EngineConfig.from_dict({"engine": "sglang", "model": "m", "moe_runner_backend": "marlin"})
    assert configuration(Observed(MTP), "humming", config)[0].verdict == "fail"


@pytest.mark.parametrize("bad", ["", "fast", "humming,warp"])
def test_unknown_expectations_are_refused(bad):
    with pytest.raises(BadInput):
        expected(bad)
    assert expected("humming, jit,mtp") == ("kernels", "mtp")


def test_a_planted_key_reaches_no_check():
    from labkit.engines.server_info import allowed

    document = {
        **MTP,
        "api_key": "PLANTED-KEY",
        "admin_api_key": "PLANTED-ADMIN",
        "model_path": "m",
        "launch_command": "x --api-key PLANTED-KEY",
    }
    seen = Observed(allowed(document), _log("mtp"))
    shown = json.dumps([c.as_dict() for c in configuration(seen, "humming,fp8-head,mtp")])
    assert "PLANTED" not in shown
