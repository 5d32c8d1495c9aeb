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
    row |= {"proposed_drafts": steps and 3 * steps, "cached_tokens": 0, "doubts": []}
    return ({**row, **more},) * 3


def _verdicts(checks: list[Check]) -> dict[str, str]:
    return {c.name: c.verdict for c in checks}


def _failed(checks: list[Check]) -> set[str]:
    return {c.name for c in checks if c.verdict == "fail"}


def test_a_healthy_server_passes_every_check():
    seen = Observed(MTP, _log("mtp"), _rows())
    got = _verdicts(configuration(seen, "humming,fp8-head,mtp"))
    # This log is of FlashInfer attention, for whose draft-extend SGLang has no graph.
    assert {name for name, verdict in got.items() if verdict != "pass"} == {"drafting pays", "draft-extend CUDA graph"}
    assert {"MoE kernels", "FP8 head", "drafting", "draft tokens", "accept length", "draft shares the head"} <= set(got)
    assert {"who is serving", "drafting algorithm", "CUDA graph", "prefix cache", "requests"} <= set(got)


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
    assert not _failed(configuration(with_plugin, "fp8-head"))
    assert _verdicts(configuration(with_plugin, "fp8-head"))["variable"] == "pass"


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
    asked = Speculative(steps=3, topk=1, draft_tokens=6)
    got = {c.name: c for c in configuration(Observed(MTP, None, _rows()), "mtp", speculative=asked)}
    assert got["draft tokens"].verdict == "fail"
    assert (got["draft tokens"].asked, got["draft tokens"].seen) == ("6", "4")
    assert "steps + 1" in got["draft tokens"].note and got["draft steps"].verdict == "pass"


def test_a_fallen_back_backend_is_caught_by_the_log_although_the_description_repeats_the_wish():
    seen = Observed(MTP, _log("baseline"))
    check = configuration(seen, "humming")[1]
    assert check.verdict == "fail" and "flashinfer" in check.seen
    resolved = configuration(Observed({**MTP, "moe_runner_backend": "triton"}), "humming")[1]
    assert resolved.verdict == "fail" and resolved.seen == "triton"
    assert configuration(Observed(MTP, "no such line\n"), "humming")[1].verdict == "cannot tell"
    assert configuration(Observed({}), "humming")[1].verdict == "cannot tell"


PLAIN = {k: v for k, v in MTP.items()} | {
    "moe_runner_backend": "flashinfer_mxfp4",
    "speculative_algorithm": None,
    "speculative_num_steps": None,
    "speculative_eagle_topk": None,
    "speculative_num_draft_tokens": None,
    "internal_states": [{}],
}


def test_the_baseline_is_checked_too():
    got = configuration(Observed(PLAIN, _log("baseline"), _rows(steps=None, histogram=())), "baseline")
    assert set(_verdicts(got).values()) == {"pass"}
    assert _verdicts(configuration(Observed(MTP, _log("mtp")), "baseline"))["no drafting"] == "fail"


def test_both_heads_at_once_fail():
    got = _verdicts(configuration(Observed({**MTP, "enable_fp32_lm_head": True}, _log("fp8-head")), "fp8-head"))
    assert got["FP8 head"] == "fail"


POCKET = {**MTP, "engine": "pocket", "version": "0.1.0", "moe_runner_backend": "jit", "fp8_lm_head": True}
POCKET |= {"weights_sha256": "ab12"}


def test_the_pocket_engine_and_what_its_faults_show():
    log = "[..] Preparing MXFP4 experts for jit backend, kernels avx512\n"
    healthy = configuration(Observed(POCKET, log, _rows()), "humming,fp8-head,mtp")
    assert not _failed(healthy) and set(_verdicts(healthy).values()) == {"pass", "cannot tell"}
    ignored = _verdicts(configuration(Observed({**POCKET, "fp8_lm_head": False}, log), "fp8-head"))
    assert ignored["FP8 head"] == "fail"
    fallback = configuration(Observed(POCKET, log.replace("jit", "generic")), "jit")[1]
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
    assert configuration(Observed(MTP), "humming", config)[1].verdict == "fail"


@pytest.mark.parametrize("bad", ["", "fast", "humming,warp"])
def test_unknown_expectations_are_refused(bad):
    with pytest.raises(BadInput):
        expected(bad)
    assert expected("humming, jit,mtp,jit") == ("humming", "jit", "mtp")


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


@pytest.mark.parametrize("none", [None, "NONE", "none", "", "null"])
def test_no_drafting_by_any_name(none):
    rows = _rows(steps=None, histogram=())
    assert _verdicts(configuration(Observed({**PLAIN, "speculative_algorithm": none}, None, rows), "baseline"))[
        "no drafting"
    ] == ("pass")


@pytest.mark.parametrize("name", ["EAGLE3", "DSPARK", "DFLASH", "NGRAM", "STANDALONE"])
def test_drafting_of_another_kind_is_on_and_other_than_asked(name):
    seen = Observed({**MTP, "speculative_algorithm": name}, None, _rows())
    got = {c.name: c for c in configuration(seen, "mtp")}
    assert got["drafting"].verdict == "pass" and got["drafting algorithm"].verdict == "fail"
    assert got["drafting algorithm"].seen == name and got["accept length"].seen == "2.64"
    assert not _failed(configuration(seen, "drafting"))
    assert "no drafting" in _failed(configuration(seen, "baseline"))


def test_a_name_or_weights_without_a_drafted_request_are_not_in_effect():
    undrafted = _rows(steps=None, histogram=())
    assert "drafting" in _failed(configuration(Observed(MTP, None, undrafted), "mtp"))
    loaded = {**PLAIN, "speculative_draft_model_path": "example/draft"}
    got = {c.name: c for c in configuration(Observed(loaded, None, undrafted), "mtp")}
    assert got["drafting"].verdict == "fail" and "loaded and idle" in got["drafting"].seen
    hidden = {k: v for k, v in PLAIN.items() if k != "speculative_algorithm"}
    assert _verdicts(configuration(Observed(hidden, None, undrafted), "baseline"))["no drafting"] == "cannot tell"
    # The requests tell what the description does not.
    assert _verdicts(configuration(Observed(hidden, None, _rows()), "baseline"))["no drafting"] == "fail"


def test_steps_that_change_from_request_to_request():
    rows = tuple(r | {"proposed_drafts": k * r["verify_ct"]} for r, k in zip(_rows(), (1, 3, 5), strict=True))
    got = {c.name: c for c in configuration(Observed(MTP, None, rows), "mtp")}
    assert got["draft steps"].verdict == "fail" and got["draft steps"].seen.startswith("1, 3, 5")
    assert "one c" in got["draft steps"].note
    other = tuple(r | {"proposed_drafts": 2 * r["verify_ct"]} for r in _rows())
    assert _verdicts(configuration(Observed(MTP, None, other), "mtp"))["draft steps"] == "fail"


def test_a_dead_later_position_is_no_plain_pass():
    rows = _rows(tokens=96, steps=64, histogram=(32, 32))
    got = {c.name: c for c in configuration(Observed(MTP, None, rows), "mtp")}
    assert got["accept length"].seen == "1.48" and got["later draft positions"].verdict == "fail"
    few = _rows(tokens=24, steps=16, histogram=(12, 4))  # too few rounds to say so
    assert "later draft positions" not in _verdicts(configuration(Observed(MTP, None, few), "mtp"))


def _graph_log(*told):
    line = "[t] Decode batch. #running-req: 1, #token: 853, cuda graph: {}, gen throughput (token/s): 31.2\n"
    return "Prefill batch. #running-req: 0, cuda graph: False\n" + "".join(line.format(t) for t in told)


@pytest.mark.parametrize(
    "info, log, verdict",
    [
        ({"disable_cuda_graph": False}, _graph_log(False, False), "fail"),
        ({"disable_cuda_graph": False}, _graph_log(True, False), "fail"),
        ({"disable_cuda_graph": False}, _graph_log(True, True), "pass"),
        ({"disable_cuda_graph": False}, None, "cannot tell"),
        ({"disable_cuda_graph": True}, None, "fail"),
        ({"cuda_graph_bs_decode": [8, 16]}, None, "fail"),
        ({}, "nothing of it\n", "cannot tell"),
        # A batch of several requests says nothing about batch size 1.
        ({}, _graph_log(False).replace("#running-req: 1", "#running-req: 7"), "cannot tell"),
    ],
)
def test_cuda_graphs_at_batch_size_1(info, log, verdict):
    assert _verdicts(configuration(Observed({**PLAIN, **info}, log), "baseline"))["CUDA graph"] == verdict


def test_the_server_s_own_flags_against_what_it_resolved():
    command = "sglang.launch_server --moe-runner-backend humming --speculative-algorithm NEXTN --disable-radix-cache"
    info = {**MTP, "launch_command": command, "disable_radix_cache": True}
    assert _verdicts(configuration(Observed(info), "mtp"))["flags"] == "pass"
    changed = {**info, "moe_runner_backend": "triton", "disable_radix_cache": False}
    assert _failed(configuration(Observed(changed), "mtp")) == {
        "flag --moe-runner-backend",
        "flag --disable-radix-cache",
    }


@pytest.mark.parametrize(
    "info, words",
    [
        ({"enable_fp32_lm_head": True, "fp8_lm_head": True}, "FP32 logits"),
        ({"speculative_num_draft_tokens": 6}, "make 4 draft tokens"),
        ({"speculative_algorithm": None, "speculative_draft_model_path": "d"}, "draft weights loaded"),
        ({"simulate_acc_len": 3.0}, "simulated"),
    ],
)
def test_options_that_cannot_both_be_meant(info, words):
    got = {c.name: c for c in configuration(Observed({**MTP, **info}), "drafting")}
    assert got["conflicting options"].verdict == "fail" and words in got["conflicting options"].seen


def test_memory_against_the_context_that_is_promised():
    info = {**PLAIN, "context_length": 65536, "max_total_num_tokens": 20000}
    assert _verdicts(configuration(Observed(info), "baseline"))["memory"] == "fail"
    log = "[t] max_total_num_tokens=3068032, chunked_prefill_size=8192\n"
    assert _verdicts(configuration(Observed({**PLAIN, "context_length": 65536}, log), "baseline"))["memory"] == "pass"
    assert "memory" not in _verdicts(configuration(Observed(PLAIN), "baseline"))


def test_the_prefix_cache_is_shown_empty_by_requests_never_assumed():
    rows = _rows(steps=None, histogram=())
    told = _verdicts(configuration(Observed(PLAIN, None, tuple({**r, "cached_tokens": 3} for r in rows)), "baseline"))
    assert told["prefix cache"] == "fail"
    silent = tuple({**r, "cached_tokens": None} for r in rows)
    assert _verdicts(configuration(Observed(PLAIN, None, silent), "baseline"))["prefix cache"] == "cannot tell"
    assert _verdicts(configuration(Observed(PLAIN), "baseline"))["prefix cache"] == "cannot tell"


def test_an_arm_before_the_fp8_head_that_has_it_already():
    assert "no FP8 head" in _failed(configuration(Observed(PLAIN, _log("fp8-head")), "baseline"))


def test_an_unknown_server_s_own_word_passes_nothing():
    for info in ({"version": "0.26.0"}, {**PLAIN, "engine": "another"}):
        got = configuration(Observed(info, None, _rows(steps=None, histogram=())), "baseline")
        told = [c for c in got if c.verdict == "pass" and c.where.startswith("/server_info")]
        assert not told and got[0].name == "who is serving" and got[0].verdict == "cannot tell"


def test_drafts_that_vary_by_nature_are_held_against_the_most_that_was_asked():
    from labkit.engines.identify import Identity
    from labkit.engines.speculative import Speculative

    who = Identity("llamacpp", None, ("/props", "/v1/models"))
    info = {"engine": "llamacpp", "speculative_algorithm": "ngram-mod"}
    most = zip(_rows(drafts_vary=True), (1, 3, 5), strict=True)
    rows = tuple(r | {"proposed_drafts": k * r["verify_ct"]} for r, k in most)
    for asked, verdict in ((8, "pass"), (4, "fail")):
        spec = Speculative(algorithm="ngram-mod", steps=asked)
        got = {c.name: c for c in configuration(Observed(info, None, rows, who=who), "ngram", speculative=spec)}
        assert got["draft steps"].verdict == verdict, got["draft steps"]


def test_a_backend_that_is_not_resolved_or_otherwise_spelt_is_no_failure():
    for told, verdict in (("auto", "cannot tell"), ("Humming", "pass"), ("humming", "pass"), ("triton", "fail")):
        got = _verdicts(configuration(Observed({**MTP, "moe_runner_backend": told}, None, _rows()), "humming"))
        assert got["MoE kernels"] == verdict, told
    got = _verdicts(configuration(Observed({**MTP, "moe_runner_backend": "auto"}, _log("mtp"), _rows()), "humming"))
    assert got["MoE kernels"] == "pass"


def test_numbers_told_as_text_are_numbers():
    info = {**MTP, "speculative_num_draft_tokens": "4", "speculative_num_steps": "3", "speculative_eagle_topk": "1"}
    got = _verdicts(configuration(Observed(info, None, _rows()), "mtp"))
    assert got["draft steps"] == got["draft topk"] == got["draft tokens"] == "pass"


@pytest.mark.parametrize("line", ["cuda graph: False", "cuda_graph=False", "CUDA graph: false"])
def test_an_eager_decode_line_by_any_spelling(line):
    log = f"[t] Decode batch, #running-req: 1, #token: 9, {line}, gen throughput (token/s): 9.0\n"
    got = _verdicts(configuration(Observed(MTP, log * 3, _rows()), "drafting"))
    assert got["CUDA graph"] == "fail"
