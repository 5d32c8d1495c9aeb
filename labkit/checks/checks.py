"""Configuration checks: what was asked, what is seen, where, and the verdict. "Option set" is not "option in effect".

A verdict is "cannot tell" wherever the evidence does not reach: a check never passes because nothing spoke against it.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from labkit.checks.observed import Observed, first_position
from labkit.engines.config import EngineConfig, Speculative
from labkit.engines.ladder import name as rung_name
from labkit.engines.sglang import environment
from labkit.errors import BadInput
from labkit.measure.estimates import NOTHING_ACCEPTED, accept_length

PASS, FAIL, UNKNOWN = "pass", "fail", "cannot tell"
FIRST_POSITION = 0.05  # below this share of accepted first drafts, the draft does not work
HEAD_PROOF = re.compile(r"labkit plugin: FP8 lm_head on|Online FP8 quantization (?:enabled for|of) lm_head")
MODULE_PROOF = re.compile(r"shares the target's lm_head module")
TENSOR_ONLY = re.compile(r"keeps the bare weight tensor")
_BACKEND_NAMES = {"humming": "humming", "jit": "jit", "flashinfer_mxfp4": "flashinfer", "generic": "generic"}


@dataclass(frozen=True)
class Check:
    """One line of a verdict table; `note` says what follows from it."""

    name: str
    asked: str
    seen: str
    where: str
    verdict: str
    note: str = ""

    def as_dict(self) -> dict:
        return asdict(self)


def expected(names: str | Iterable[str]) -> tuple[str, ...]:
    """Rung names from "humming,fp8-head,mtp" or a list; aliases resolved, order kept. Raises BadInput."""
    parts = names.split(",") if isinstance(names, str) else list(names)
    try:
        found = [rung_name(p.strip()) for p in parts if p.strip()]
    except BadInput as e:
        raise BadInput("expect", e.value, "baseline, humming (kernels), fp8-head, mtp, separated by commas") from None
    if not found:
        raise BadInput("expect", names, "one or more of baseline, humming (kernels), fp8-head, mtp")
    return tuple(dict.fromkeys(found))


def configuration(
    seen: Observed, expect: Iterable[str], config: EngineConfig | None = None, speculative: Speculative | None = None
) -> list[Check]:
    """All checks that `expect` (rung names) calls for; `config`, if the lab started the server, says what was asked.

    speculative: what was asked of drafting when there is no config (default 3 steps, topk 1, 4 tokens).
    """
    expect = expected(expect)
    spec = speculative or (config.speculative if config else None) or Speculative()
    out: list[Check] = []
    if "baseline" in expect:
        out += [_moe(seen, _asked_backend(seen, config, tuned=False)), _no_speculation(seen)]
    if "kernels" in expect:
        out.append(_moe(seen, _asked_backend(seen, config, tuned=True)))
    if "fp8-head" in expect:
        out += _head(seen)
    if "mtp" in expect:
        out += _drafting(seen, spec)
    if "mtp" in expect and "fp8-head" in expect:
        out.append(_sharing(seen))
    out += _environment(seen, config)
    out += _samples(seen)
    return out


def _asked_backend(seen: Observed, config: EngineConfig | None, tuned: bool) -> str:
    if config is not None and config.moe_runner_backend:
        return config.moe_runner_backend
    if seen.pocket:
        return "jit" if tuned else "generic"
    return "humming" if tuned else "flashinfer_mxfp4"


def _moe(seen: Observed, asked: str) -> Check:
    told = seen.info.get("moe_runner_backend")
    if told is not None and told != asked:
        return Check(
            "MoE kernels",
            asked,
            str(told),
            "/server_info moe_runner_backend",
            FAIL,
            "the engine resolved another runner than the one asked for",
        )
    prepared = re.findall(r"Preparing \S+ MXFP4 experts for (\S+)|Preparing MXFP4 experts for (\S+)", seen.log or "")
    names = {(a or b).strip(",").lower() for a, b in prepared}
    if names:
        ran = ", ".join(sorted(names))
        fits = any(_BACKEND_NAMES.get(asked, asked) in n for n in names)
        return Check(
            "MoE kernels",
            asked,
            f"experts prepared for {ran}",
            "log",
            PASS if fits else FAIL,
            "" if fits else "set, and even reported, but another kernel runs",
        )
    if told is None:
        return Check("MoE kernels", asked, "nothing", "/server_info has no moe_runner_backend", UNKNOWN)
    if seen.log is not None:
        return Check(
            "MoE kernels",
            asked,
            f"{told} reported, no line about preparing experts",
            "/server_info, log",
            UNKNOWN,
            "without a proof line, what is reported may not be what runs",
        )
    return Check(
        "MoE kernels",
        asked,
        str(told),
        "/server_info moe_runner_backend",
        PASS,
        "as resolved by the engine; its log would prove which kernel was prepared",
    )


def _head(seen: Observed) -> list[Check]:
    name, asked = "FP8 head", "SGLANG_ENABLE_FP8_LM_HEAD=1"
    if seen.info.get("enable_fp32_lm_head") and not TENSOR_ONLY.search(seen.log or ""):
        return [Check(name, asked, "enable_fp32_lm_head is on", "/server_info", FAIL, "the two exclude each other")]
    told = seen.info.get("fp8_lm_head")
    if isinstance(told, bool):
        note = "" if told else "the variable had no effect: not set for the server process, or not read by it"
        return [Check(name, asked, f"fp8_lm_head {str(told).lower()}", "/server_info", PASS if told else FAIL, note)]
    if seen.log is not None:
        found = HEAD_PROOF.search(seen.log)
        if found:
            return [Check(name, asked, found[0], "log", PASS)]
        return [
            Check(
                name,
                asked,
                "no proof line",
                "log",
                FAIL,
                "the variable was ignored without a word; labkit's plugin was not loaded",
            )
        ]
    version = seen.info.get("version")
    known = environment.knows("SGLANG_ENABLE_FP8_LM_HEAD", version)
    why = f"SGLang {version} does not read this variable" if known is False else "no field of /server_info tells"
    return [Check(name, asked, "nothing", "/server_info", UNKNOWN, f"{why}; give the log (--log)")]


def _no_speculation(seen: Observed) -> Check:
    told = seen.info.get("speculative_algorithm")
    return Check(
        "no speculation", "none", str(told or "none"), "/server_info speculative_algorithm", FAIL if told else PASS
    )


def _drafting(seen: Observed, spec: Speculative) -> list[Check]:
    told = seen.info.get("speculative_algorithm")
    on = str(told).upper() in ("NEXTN", "EAGLE")  # SGLang resolves NEXTN to EAGLE
    out = [Check("MTP", "NEXTN", str(told or "none"), "/server_info speculative_algorithm", PASS if on else FAIL)]
    if not on:
        return out
    for field, label, asked in (
        ("speculative_num_steps", "draft steps", spec.steps),
        ("speculative_eagle_topk", "draft topk", spec.topk),
        ("speculative_num_draft_tokens", "draft tokens", spec.draft_tokens),
    ):
        got = seen.info.get(field)
        if got is None:
            out.append(Check(label, str(asked), "nothing", f"/server_info has no {field}", UNKNOWN))
            continue
        note = ""
        if got != asked:
            note = "resolved to something else than asked"
            if field == "speculative_num_draft_tokens" and spec.topk == 1:
                note += ": with topk 1 the engine rewrites draft tokens to steps + 1"
        out.append(Check(label, str(asked), str(got), f"/server_info {field}", PASS if got == asked else FAIL, note))
    out.append(_accepting(seen))
    first = first_position(seen.good)
    if first is not None and not seen.simulated and seen.info.get("load_format") != "dummy":
        out.append(
            Check(
                "first draft position",
                f"above {FIRST_POSITION:.0%} accepted",
                f"{first:.1%}",
                "histogram of our requests",
                PASS if first > FIRST_POSITION else FAIL,
            )
        )
    return out


def _accepting(seen: Observed) -> Check:
    name, asked = "accept length", "above 1.00"
    a, where = accept_length(seen.good), "our requests: tokens per verify step"
    if a is None:
        states = seen.info.get("internal_states") or [{}]
        a, where = states[0].get("avg_spec_accept_length"), "/server_info, cumulative and refreshed at intervals"
    if not isinstance(a, (int, float)) or a <= 0:
        return Check(name, asked, "nothing yet", where, UNKNOWN, "send requests, or allow the check to")
    if seen.simulated:
        return Check(name, asked, f"{a:.2f}, simulated", where, UNKNOWN, "a simulated accept length proves nothing")
    dummy = seen.info.get("load_format") == "dummy"
    if a < NOTHING_ACCEPTED and dummy:
        return Check(name, asked, f"{a:.2f}", where, UNKNOWN, "dummy weights: no draft would be accepted anyway")
    if a < NOTHING_ACCEPTED:
        return Check(
            name,
            asked,
            f"{a:.2f}",
            where,
            FAIL,
            "no draft is accepted: slower than no speculation at all; see the candidate causes",
        )
    return Check(name, asked, f"{a:.2f}", where, PASS, "a gain needs more: a must exceed c")


def _sharing(seen: Observed) -> Check:
    name, asked = "draft shares the head", "the whole module, scales included"
    log = seen.log or ""
    if TENSOR_ONLY.search(log):
        return Check(
            name,
            asked,
            TENSOR_ONLY.search(log)[0],
            "log",
            FAIL,
            "the draft reads FP8 numbers without their scales: a = 1.00 and no error",
        )
    if MODULE_PROOF.search(log):
        return Check(name, asked, MODULE_PROOF.search(log)[0], "log", PASS)
    accepting = _accepting(seen)
    if accepting.verdict == PASS:
        return Check(
            name,
            asked,
            f"accept length {accepting.seen}",
            accepting.where,
            PASS,
            "indirect: a draft without the scales accepts nothing",
        )
    if accepting.verdict == FAIL:
        return Check(
            name,
            asked,
            f"accept length {accepting.seen}",
            accepting.where,
            FAIL,
            "the commonest cause with an FP8 head, not the only one",
        )
    return Check(name, asked, "nothing", "log, accept length", UNKNOWN)


def _environment(seen: Observed, config: EngineConfig | None) -> list[Check]:
    """One line for each SGL* variable that the server was given: does this engine read it at all?"""
    given = {**(dict(config.env) if config else {}), **seen.env}
    version, out = seen.info.get("version"), []
    for name, value in sorted(given.items()):
        if not name.startswith(environment.PREFIXES):
            continue
        shown = f"{name}={value}"
        if seen.pocket:
            known = name in ("SGLANG_ENABLE_FP8_LM_HEAD", "SGLANG_SIMULATE_ACC_LEN")
            where = "the pocket engine's own list"
        else:
            known, where = environment.knows(name, version), f"names that SGLang {version} declares"
            if not known and name in environment.PLUGIN and "labkit plugin:" in (seen.log or ""):
                known, where = True, "read by labkit's plugin, which the log shows"
        verdict = UNKNOWN if known is None else PASS if known else FAIL
        note = "" if verdict != FAIL else "unknown variables are ignored without a word"
        out.append(
            Check(
                "variable", shown, {PASS: "known", FAIL: "unknown", UNKNOWN: "no list"}[verdict], where, verdict, note
            )
        )
    return out


def _samples(seen: Observed) -> list[Check]:
    """Whether our own requests were fit to be measured."""
    if not seen.rows:
        return []
    bad = [r for r in seen.rows if r["status"] != "ok"]
    asked = f"{len(seen.rows)} clean requests"
    if bad:
        return [Check("requests", asked, f"{len(bad)} {bad[0]['status']}: {bad[0]['error']}", "our requests", FAIL)]
    return [Check("requests", asked, "all flushed with 200, none from the prefix cache", "our requests", PASS)]
