"""Configuration checks: asked, seen, where, and the verdict. "Option set" is not "option in effect"."""

from collections.abc import Iterable
from dataclasses import replace

from labkit.checks import drafting, settings
from labkit.checks.check import FAIL, PASS, UNKNOWN, Check
from labkit.checks.observed import Observed
from labkit.engines.config import EngineConfig, Speculative
from labkit.engines.identify import POCKET
from labkit.engines.ladder import name as rung_name
from labkit.errors import BadInput

DRAFTING = "drafting"  # a word of its own: drafting of any kind, whatever its numbers


def expected(names: str | Iterable[str]) -> tuple[str, ...]:
    """Rung names from "humming,fp8-head,mtp" or a list; aliases resolved, order kept. Raises BadInput."""
    parts = names.split(",") if isinstance(names, str) else list(names)
    words = [p.strip() for p in parts if p.strip()]
    accepted = "baseline, humming (kernels), fp8-head, mtp, drafting, separated by commas"
    try:
        found = [w if w == DRAFTING else rung_name(w) for w in words]
    except BadInput as e:
        raise BadInput("expect", e.value, accepted) from None
    if not found:
        raise BadInput("expect", names, "one or more of " + accepted)
    return tuple(dict.fromkeys(found))


def configuration(
    seen: Observed, expect: Iterable[str], config: EngineConfig | None = None, speculative: Speculative | None = None
) -> list[Check]:
    """All checks that `expect` calls for, and those that any measurement needs.

    config: what was asked, if the lab started the server. speculative: what was asked of drafting when there is no
    config (default 3 steps, topk 1, 4 tokens).
    """
    expect = expected(expect)
    asked = _asked(seen, expect, config)
    out = [settings.who(seen)]
    if "moe_runner_backend" in asked:
        out.append(settings.moe(seen, str(asked["moe_runner_backend"])))
    if asked.get("fp8_lm_head"):
        out.append(settings.fp8_head(seen))
    elif "speculative" in asked and not asked["speculative"]:
        out += settings.plain_head(seen, asked.get("enable_fp32_lm_head"))
    if asked.get("speculative"):
        out += drafting.checks(seen, speculative or asked["speculative"])
        if asked.get("fp8_lm_head"):
            out.append(drafting.sharing(seen))
    elif DRAFTING in expect:
        out += drafting.checks(seen, None, any_kind=True)
    elif "speculative" in asked:
        out.append(drafting.none(seen))
    out += settings.cuda_graph(seen) + settings.prefix_cache(seen) + settings.flags(seen) + settings.conflicts(seen)
    out += settings.memory(seen) + settings.variables(seen, config) + settings.requests(seen)
    return out if seen.identity.known else [_unproved(c) for c in out]


def _asked(seen: Observed, expect: tuple[str, ...], config: EngineConfig | None) -> dict[str, object]:
    """Fields of the engine's configuration that these words ask for; `config`, where there is one, has their values."""
    out: dict[str, object] = {}
    tuned = {"kernels": True, "baseline": False}
    for word in expect:
        if word in tuned:
            names = (
                {False: "generic", True: "jit"}
                if seen.identity.engine == POCKET
                else {False: "flashinfer_mxfp4", True: "humming"}
            )
            out["moe_runner_backend"] = (config.moe_runner_backend if config else None) or names[tuned[word]]
        if word == "baseline" and DRAFTING not in expect:
            out.setdefault("speculative", None)
            if config is not None:
                out["enable_fp32_lm_head"] = config.enable_fp32_lm_head
        if word == "fp8-head":
            out["fp8_lm_head"] = True
        if word == "mtp":
            out["speculative"] = (config.speculative if config else None) or Speculative()
    return out


def _unproved(check: Check) -> Check:
    """What an unknown server says of itself proves nothing: only the log and our own requests may pass."""
    if check.verdict != PASS or not check.where.startswith("/server_info"):
        return check
    return replace(check, verdict=UNKNOWN, note="who is serving is not established, so its own word is no proof")


__all__ = ["DRAFTING", "FAIL", "PASS", "UNKNOWN", "Check", "configuration", "expected"]
