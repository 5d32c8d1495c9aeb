"""Checks and candidates of measured arms: what the ladder, the notebooks and the report show."""

import pytest

from labkit.checks import benefit, judged
from labkit.checks.causes import TOO_FEW
from labkit.engines.config import EngineConfig
from labkit.measure.results import Arm, Result
from labkit.params import Params

INFO = {
    "engine": "pocket",
    "version": "1",
    "weights_sha256": "ab",
    "moe_runner_backend": "jit",
    "speculative_algorithm": None,
    "fp8_lm_head": False,
    "threads": 1,
}


def result(name, tpot, info=INFO, log=None, rows=None, **config):
    config = EngineConfig(moe_runner_backend="jit", **config)
    made = rows or [
        {
            "arm": name,
            "status": "ok",
            "error": None,
            "repeat": i // 3,
            "index": i % 3,
            "tpot_s": tpot * (1 + i / 1000),
            "ttft_s": 0.01,
            "latency_s": 0.01 + 63 * tpot,
            "output_tokens": 64,
            "decode_tokens": 63,
            "prompt_tokens": 20,
            "cached_tokens": 0,
            "started_unix": 1000.0 + i,
            "prompt_sha256": f"p{i % 3}",
            "doubts": [],
            "verify_ct": None,
            "fixed_length": True,
            "temperature": 0.0,
            "flush_status": 200,
        }
        for i in range(9)
    ]
    return Result(Arm(name, name, config, Params(engine=config)), made, info)


def test_an_arm_s_configuration_is_checked_from_what_was_recorded(tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("Preparing MXFP4 experts for jit backend, kernels avx2\n")
    checks = {c.name: c.verdict for c in judged.configuration(result("kernels", 0.01), log)}
    assert checks["MoE kernels"] == checks["no drafting"] == checks["options"] == "pass"
    log.write_text("Preparing MXFP4 experts for generic backend\n")
    checks = {c.name: c.verdict for c in judged.configuration(result("kernels", 0.01), log)}
    assert checks["MoE kernels"] == "fail"


def test_an_option_that_the_engine_resolved_otherwise():
    checks = {c.name: c for c in judged.configuration(result("x", 0.01, INFO | {"threads": 2}, threads=1))}
    assert checks["option threads"].verdict == "fail"
    assert (checks["option threads"].asked, checks["option threads"].seen) == ("1", "2")


@pytest.mark.parametrize("tpot, lines", [(0.005, 0), (0.02, 5)])
def test_candidates_only_where_an_arm_brings_no_gain(tpot, lines):
    found = judged.step(result("after", tpot), result("before", 0.01), expect="same bytes, better kernels")
    assert len(found.lines()) >= lines and bool(found.lines()) == bool(lines)
    if lines:
        assert "another kernel runs" in found.lines()[1] and found.causes[-1].name == "noise"


def test_candidates_name_only_what_the_engine_has(tmp_path):
    """llama.cpp on a CPU: no CUDA graphs, no MoE runner or head to choose; n-gram drafts have no layer to misread."""
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    base = {"engine": "llamacpp", "model": str(tmp_path / "m.gguf")}

    def arm(name, tpot, **more):
        made = result(name, tpot)
        config = EngineConfig.from_dict(base | more)
        return Result(Arm(name, name, config, Params(engine=config)), made.rows, {"engine": "llamacpp"})

    before = arm("before", 0.01)
    for expect, change in (("same bytes, better kernels", {"threads": 2}), ("fewer bytes", {"kv_cache_dtype": "q8_0"})):
        said = " ".join(judged.step(arm("after", 0.02, **change), before, expect=expect).lines())
        assert said and not any(word in said for word in ("CUDA", "16-bit", "experts"))
    after = arm("ngram", 0.02, speculative={"algorithm": "ngram-mod", "steps": 4})
    after = Result(after.arm, [r | {"verify_ct": 60} for r in after.rows], after.info)
    said = " ".join(judged.step(after, before, expect="a > c").lines())
    assert "costs more than it accepts" in said and not any(word in said for word in ("head", "layer", "CUDA"))


def few(name, *times, verify=None):
    """Requests in two repeats."""
    rows = result(name, 1.0).rows[: len(times)]
    half = max(1, len(times) // 2)
    made = [
        {**r, "tpot_s": t, "repeat": i // half, "index": i % half, "prompt_sha256": f"p{i % half}", "verify_ct": verify}
        for i, (r, t) in enumerate(zip(rows, times, strict=True))
    ]
    return result(name, 1.0, rows=made)


def test_a_large_effect_of_few_requests_is_never_called_no_difference():
    plain = few("plain", 0.0040, 0.0041, 0.0046, 0.0047)
    found = judged.step(few("mtp", 0.0021, 0.0022, 0.0025, 0.0024, verify=20), plain, expect="a > c")
    assert found.low is None and found.verdict == "gain" and found.causes == () and len(found.lines()) == 1
    checks = {c.name: c for c in benefit.step(judged.side(plain), judged.side(few("x", 0.002, 0.002, 0.003, 0.003)))}
    assert checks["x against plain"].verdict == "pass" and benefit.NO_OVERLAP in checks["x against plain"].note
    overlapping = judged.step(few("x", 0.002, 0.002, 0.003, 0.0042), plain, expect="fewer bytes")
    assert overlapping.verdict == TOO_FEW
    two = judged.step(few("x", 0.002, 0.002), few("plain", 0.004, 0.004), expect="fewer bytes")
    assert two.verdict == TOO_FEW  # of two and two requests, one order in three has no overlap


def test_what_is_not_in_effect_is_known_before_anything_is_measured(tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("Preparing MXFP4 experts for jit backend, kernels avx2\n")
    sound = result("kernels", 0.01)
    assert judged.at_start(Result(sound.arm, [], sound.info), log) == []
    log.write_text("Preparing MXFP4 experts for generic backend\n")
    (said,) = judged.at_start(Result(sound.arm, [], sound.info), log)
    assert said.startswith("MoE kernels:") and "generic" in said and "log" in said
    two = judged.at_start(Result(result("x", 0.01, threads=1).arm, [], INFO | {"threads": 2}))
    assert len(two) == 1 and two[0].startswith("threads:")
