"""Settings in effect: MoE kernels, the head, CUDA graphs, prefix cache, flags and variables, memory, our requests."""

import re
import shlex

from labkit.checks import rounds
from labkit.checks.check import FAIL, PASS, UNKNOWN, Check
from labkit.checks.drafting import algorithm
from labkit.checks.observed import Observed
from labkit.engines.adapter import evidence
from labkit.engines.config import EngineConfig
from labkit.engines.identify import LLAMACPP, POCKET, SGLANG
from labkit.engines.sglang import environment

# What the log calls a backend that a flag names.
_BACKEND_NAMES = {"humming": "humming", "jit": "jit", "flashinfer_mxfp4": "flashinfer", "generic": "generic"}
EAGER_SHARE = 0.1  # share of decode lines without a graph that is more than an accident
# Flags whose resolved value /server_info shows under the same name and in the same words.
_FLAGS = re.compile(
    r"(moe_runner_backend|attention_backend|sampling_backend|enable_\w+|disable_\w+|max_running_requests|context_length|"
    r"mem_fraction_static|load_format|chunked_prefill_size|cuda_graph_max_bs\w*|"
    r"speculative_(num_steps|eagle_topk|num_draft_tokens|algorithm|adaptive|use_block_verification|token_map))"
)
_RESOLVED_AS = {("speculative_algorithm", "NEXTN"): "EAGLE"}


def who(seen: Observed) -> Check:
    identity = seen.identity
    name, asked = "who is serving", "an engine that the lab knows"
    if not identity.known:
        return Check(
            name,
            asked,
            f"unknown: {identity.open}",
            "/server_info",
            UNKNOWN,
            "fields of an unknown server prove nothing",
        )
    shown = f"{identity.engine} {identity.version or '(no version)'}: {'; '.join(identity.signs)}"
    return Check(name, asked, shown, "/server_info", PASS)


def moe(seen: Observed, asked: str) -> Check:
    name = "MoE kernels"
    told, where = seen.info.get("moe_runner_backend"), "/server_info moe_runner_backend"
    undecided = told is not None and str(told).lower() in ("auto", "")
    if told is not None and not undecided and _word(told) != _word(asked):
        note = "the engine resolved a different runner than requested"
        return Check(name, asked, str(told), where, FAIL, note)
    prepared = seen.proof.prepared if seen.proof else []
    if prepared:
        fits = all(_BACKEND_NAMES.get(asked, asked) in p for p in prepared)
        some = any(_BACKEND_NAMES.get(asked, asked) in p for p in prepared)
        note = (
            ""
            if fits
            else "some layers run a different kernel"
            if some
            else "set and reported, but another kernel runs"
        )
        return Check(name, asked, f"experts prepared for {', '.join(prepared)}", "log", PASS if fits else FAIL, note)
    if told is None:
        return Check(name, asked, "nothing", "/server_info has no moe_runner_backend", UNKNOWN)
    if undecided:
        note = "not resolved there; the log line about preparing experts shows it (--log)"
        return Check(name, asked, str(told) or "nothing", where, UNKNOWN, note)
    if seen.proof:
        note = "without a proof line, what is reported may not be what runs"
        return Check(
            name, asked, f"{told} reported, no line about preparing experts", "/server_info, log", UNKNOWN, note
        )
    return Check(
        name, asked, str(told), where, PASS, "as resolved by the engine; its log would prove which kernel was prepared"
    )


def fp8_head(seen: Observed) -> Check:
    name, asked = "FP8 head", "SGLANG_ENABLE_FP8_LM_HEAD=1"
    log = seen.proof
    if seen.info.get("enable_fp32_lm_head") and not (log and log.module_shared is False):
        return Check(name, asked, "enable_fp32_lm_head is on", "/server_info", FAIL, "the two exclude each other")
    told = seen.info.get("fp8_lm_head")
    if isinstance(told, bool):
        note = "" if told else "the variable had no effect: not set for the server process, or not read by it"
        return Check(name, asked, f"fp8_lm_head {str(told).lower()}", "/server_info", PASS if told else FAIL, note)
    if log:
        if log.head:
            return Check(name, asked, log.head, "log", PASS)
        note = "the variable was silently ignored; labkit's plugin was not loaded"
        return Check(name, asked, "no proof line", "log", FAIL, note)
    version = seen.info.get("version")
    known = environment.knows("SGLANG_ENABLE_FP8_LM_HEAD", version) if seen.identity.engine == SGLANG else None
    why = f"SGLang {version} does not read this variable" if known is False else "no field of /server_info tells"
    return Check(name, asked, "nothing", "/server_info", UNKNOWN, f"{why}; give the log (--log)")


def plain_head(seen: Observed, fp32: bool | None) -> list[Check]:
    """An arm before the FP8 head must not have one. fp32: whether FP32 logits were asked for; None: not said."""
    told, proof = seen.info.get("fp8_lm_head"), seen.proof.head if seen.proof else None
    out = []
    if told is True or proof:
        note = "this arm should not have it yet"
        where = "log" if proof else "/server_info"
        out.append(Check("no FP8 head", "off", proof or "fp8_lm_head true", where, FAIL, note))
    if fp32 is not None:
        got = seen.info.get("enable_fp32_lm_head")
        verdict = UNKNOWN if got is None else PASS if bool(got) == fp32 else FAIL
        shown = "nothing" if got is None else str(bool(got)).lower()
        where = "/server_info enable_fp32_lm_head" if got is not None else "/server_info has no enable_fp32_lm_head"
        out.append(Check("logits in FP32", str(fp32).lower(), shown, where, verdict))
    return out


def cuda_graph(seen: Observed) -> list[Check]:
    """At batch size 1 a decode step without its graph is bound by launches. Only an engine on a GPU has graphs."""
    name, asked = "CUDA graph", "on at batch size 1"
    disabled, log = seen.info.get("disable_cuda_graph"), seen.proof
    graphs, eager = log.graphs if log else (0, 0)
    if seen.identity.engine in (POCKET, LLAMACPP):  # a CPU, or a backend that keeps its graphs to itself
        return []
    if disabled is True:
        return [
            Check(name, asked, "disable_cuda_graph true", "/server_info", FAIL, "each kernel is launched separately")
        ]
    sizes = seen.info.get("cuda_graph_bs_decode") or seen.info.get("cuda_graph_bs")
    if isinstance(sizes, list) and sizes and 1 not in sizes:
        return [
            Check(name, asked, f"captured for {sizes[:4]}", "/server_info", FAIL, "batch size 1 is padded or eager")
        ]
    if graphs + eager:
        share = eager / (graphs + eager)
        shown = f"{graphs} of {graphs + eager} decode lines with a graph"
        note = "captured and reported as enabled, but decoding does not use it" if share > EAGER_SHARE else ""
        return [Check(name, asked, shown, "log", FAIL if share > EAGER_SHARE else PASS, note)]
    shown = "nothing" if disabled is None else "disable_cuda_graph false"
    return [Check(name, asked, shown, "/server_info", UNKNOWN, "only a decode line of the log proves it (--log)")]


def prefix_cache(seen: Observed) -> list[Check]:
    """A prompt must be read anew: cache off, or flushed and without cached tokens in our requests."""
    name, asked = "prefix cache", "off, or empty for each request"
    sent = [r for r in seen.rows if r["status"] in ("ok", "refused")]
    cached = [r["cached_tokens"] for r in sent if r.get("cached_tokens")]
    if cached:
        note = "TTFT would be too short; the sample is refused"
        return [Check(name, asked, f"{max(cached)} cached prompt tokens", "our requests", FAIL, note)]
    if seen.info.get("disable_radix_cache") is True:
        return [Check(name, asked, "disable_radix_cache true", "/server_info", PASS)]
    good = [r for r in sent if r["status"] == "ok"]
    if good and all(r.get("cached_tokens") == 0 for r in good):
        return [Check(name, asked, "on, and 0 cached tokens in each request", "our requests", PASS)]
    return [Check(name, asked, "no evidence", "our requests, /server_info", UNKNOWN)]


def flags(seen: Observed) -> list[Check]:
    """The server's own command line against what it resolved: a line for all that agree, one for each that does not."""
    words = _words(seen.info.get("launch_command"))
    agree, out = [], []
    for name, asked in sorted(words.items()):
        if name not in seen.info or not _FLAGS.fullmatch(name) or asked == "auto":
            continue
        got = seen.info[name]
        wanted = _RESOLVED_AS.get((name, asked), asked)
        if _same(got, asked) or _same(got, wanted):
            agree.append(name)
        else:
            where, note = f"launch command, /server_info {name}", "resolved to a value other than its flag's"
            out.append(Check(f"flag --{name.replace('_', '-')}", str(asked), str(got), where, FAIL, note))
    if agree and not out:
        where = "launch command, /server_info"
        out.append(Check("flags", f"{len(agree)} as given", "all resolved as passed", where, PASS))
    return out


def options(seen: Observed, config: EngineConfig) -> list[Check]:
    """Every option that was asked for against what the running engine shows, as its adapter declares it."""
    told = evidence(config, seen.info)
    out = []
    for option in told:
        if option["in_effect"] is False:
            name, note = f"option {option['field']}", "resolved to a value other than the one requested"
            out.append(Check(name, str(option["asked"]), str(option["seen"]), option["where"], FAIL, note))
    shown = [o["field"] for o in told if o["in_effect"]]
    silent = [o["field"] for o in told if o["in_effect"] is None]
    if shown:
        out.append(Check("options", f"{len(shown)} as asked", ", ".join(shown), "/server_info", PASS))
    if silent:
        note = "the engine does not report these; only a log line or a benefit check can show them"
        out.append(
            Check("options not shown", f"{len(silent)} as asked", ", ".join(silent), "/server_info", UNKNOWN, note)
        )
    return out


def conflicts(seen: Observed, config: EngineConfig | None = None) -> list[Check]:
    """Options that cannot both be in effect, or that make a measurement of the other one meaningless."""
    info, found = seen.info, []
    if info.get("enable_fp32_lm_head") and (info.get("fp8_lm_head") is True or (seen.proof and seen.proof.head)):
        found.append("FP32 logits and an FP8 head")
    if info.get("disable_cuda_graph") is True and (info.get("cuda_graph_bs_decode") or info.get("cuda_graph_max_bs")):
        found.append("CUDA graph sizes given and CUDA graphs disabled")
    if info.get("speculative_draft_model_path") and not algorithm(seen) and "speculative_algorithm" in info:
        found.append("draft weights loaded without a speculative algorithm: memory spent for nothing")
    steps, topk, tokens = (info.get(f"speculative_{n}") for n in ("num_steps", "eagle_topk", "num_draft_tokens"))
    numbers = all(isinstance(n, int) for n in (steps, topk, tokens))
    if algorithm(seen) and numbers and topk == 1 and tokens != steps + 1:
        found.append(f"{steps} draft steps with topk 1 make {steps + 1} draft tokens, not {tokens}")
    if seen.simulated and not seen.dummy:
        found.append("a simulated accept length on real weights: the text is not the model's")
    if frozen := rounds.frozen_plan(seen, config):
        found.append(frozen)
    where, asked = "/server_info, log, environment", "none"
    if found:
        return [Check("conflicting options", asked, "; ".join(found), where, FAIL)]
    return []


def memory(seen: Observed, tokens: int | None = None) -> list[Check]:
    """Does the KV cache hold a whole context? tokens: longest prompt and output wanted (default: context_length)."""
    wanted = tokens or seen.info.get("context_length")
    states = seen.info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    usage = state.get("memory_usage") if isinstance(state.get("memory_usage"), dict) else {}
    holds = seen.info.get("max_total_num_tokens") or usage.get("token_capacity")
    where = "/server_info"
    if holds is None and seen.proof and seen.proof.capacity:
        holds, where = seen.proof.capacity, "log"
    if not _count(wanted) or not _count(holds):
        return []
    note = (
        ""
        if holds >= wanted
        else "longer requests are rejected, truncated or preempted: free memory, or lower the context length"
    )
    asked = f"room for {wanted} tokens of context"
    return [Check("memory", asked, f"KV cache holds {holds} tokens", where, PASS if holds >= wanted else FAIL, note)]


def variables(seen: Observed, config: EngineConfig | None) -> list[Check]:
    """One line for each SGL* variable that the server was given: does this engine read it at all?"""
    given = {**(dict(config.env) if config else {}), **seen.env}
    version, out = seen.info.get("version"), []
    for name, value in sorted(given.items()):
        if not name.startswith(environment.PREFIXES):
            continue
        if seen.identity.engine == POCKET:
            known, where = name in environment_of_pocket(), "the pocket engine's own list"
        elif seen.identity.engine == SGLANG:
            known, where = environment.knows(name, version), f"names that SGLang {version} declares"
            if not known and name in environment.PLUGIN and seen.proof and seen.proof.plugin:
                known, where = True, "read by labkit's plugin, which the log shows"
        else:
            known, where = None, "the server could not be identified"
        verdict = UNKNOWN if known is None else PASS if known else FAIL
        note = "the engine silently ignores variables it does not know" if verdict == FAIL else ""
        shown = {PASS: "known", FAIL: "unknown", UNKNOWN: "no list"}[verdict]
        out.append(Check("variable", f"{name}={value}", shown, where, verdict, note))
    return out


def environment_of_pocket() -> set[str]:
    from labkit.pocket import options

    return {options.FP8_HEAD_VARIABLE, options.ACCEPT_LENGTH_VARIABLE}


def requests(seen: Observed) -> list[Check]:
    """Whether our own requests were fit to be measured, and what was odd about them."""
    if not seen.rows:
        return []
    bad = [r for r in seen.rows if r["status"] != "ok"]
    asked = f"{len(seen.rows)} clean requests"
    if bad:
        return [Check("requests", asked, f"{len(bad)} {bad[0]['status']}: {bad[0]['error']}", "our requests", FAIL)]
    from labkit.measure import doubts

    odd = doubts.said(seen.rows)
    note = "notes: " + "; ".join(odd) if odd else ""
    return [Check("requests", asked, "all flushed, with consistent counts and times", "our requests", PASS, note)]


def _words(command: object) -> dict[str, object]:
    """Flags of a command line by ServerArgs name; a flag without a value is True."""
    if not isinstance(command, str):
        return {}
    try:
        parts = shlex.split(command)
    except ValueError:
        return {}
    out: dict[str, object] = {}
    for i, word in enumerate(parts):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        following = parts[i + 1] if i + 1 < len(parts) else "--"
        out[name.replace("-", "_")] = value if equals else True if following.startswith("--") else following
    return out


def _word(value: object) -> str:
    return str(value).strip().lower().replace("-", "_")


def _same(got: object, asked: object) -> bool:
    if isinstance(got, bool) or got is None or isinstance(asked, bool):
        return str(bool(got)).lower() == str(asked).lower() if isinstance(got, bool) else got == asked
    try:
        return abs(float(got) - float(asked)) < 1e-9
    except (TypeError, ValueError):
        return str(got).lower() == str(asked).lower()


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
