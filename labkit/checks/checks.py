"""Configuration checks: asked, seen, where, and the verdict. "Option set" is not "option in effect"."""

from collections.abc import Iterable
from dataclasses import replace

from labkit.checks import benefit, drafting, rounds, settings
from labkit.checks.check import FAIL, PASS, UNKNOWN, Check
from labkit.checks.observed import Observed
from labkit.engines import ladder
from labkit.engines.config import ENGINES, EngineConfig, Speculative
from labkit.engines.identify import SGLANG
from labkit.errors import BadInput

DRAFTING = "drafting"  # a word of its own: drafting of any kind, whatever its numbers


def expected(names: str | Iterable[str]) -> tuple[str, ...]:
    """Words for arms of the engines' own ladders, or `drafting`, from "humming,fp8-head,mtp" or a list, in order."""
    parts = names.split(",") if isinstance(names, str) else list(names)
    found = [p.strip() for p in parts if p.strip()]
    known = [*ladder.words(), DRAFTING]
    for word in found or [names]:
        if word not in known:
            raise BadInput("expect", word, "one or more of " + ", ".join(known) + ", separated by commas")
    return tuple(dict.fromkeys(found))


def configuration(
    seen: Observed, expect: Iterable[str], config: EngineConfig | None = None, speculative: Speculative | None = None
) -> list[Check]:
    """All checks that `expect` calls for, and those that any measurement needs.

    config: what was asked, if the lab started the server. speculative: what was asked of drafting when there is no
    config (default 3 steps, topk 1, 4 tokens).
    """
    expect = expected(expect)
    return _checks(seen, _asked(seen, expect, config), config, speculative, any_kind=DRAFTING in expect)


def of_config(seen: Observed, config: EngineConfig) -> list[Check]:
    """The same for a server that the lab started, or one whose configuration it knows: whatever `config` asks for."""
    names = ("moe_runner_backend", "fp8_lm_head", "enable_fp32_lm_head", "speculative")
    asked = {name: getattr(config, name) for name in names}
    if config.engine == "attach":
        asked = {}
    return _checks(seen, {k: v for k, v in asked.items() if v is not None or k == "speculative"}, config, None)


def _checks(
    seen: Observed,
    asked: dict[str, object],
    config: EngineConfig | None,
    speculative: Speculative | None,
    *,
    any_kind: bool = False,
) -> list[Check]:
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
    elif any_kind:
        out += drafting.checks(seen, None, any_kind=True)
    elif "speculative" in asked:
        out.append(drafting.none(seen))
    if asked.get("speculative") or any_kind:
        out += rounds.checks(seen)
    if config is not None:
        out += settings.options(seen, config)
    out += settings.cuda_graph(seen) + settings.prefix_cache(seen) + settings.flags(seen)
    out += settings.conflicts(seen, config)
    out += settings.memory(seen) + settings.variables(seen, config) + settings.requests(seen)
    if any(r.get("temperature") for r in seen.good):
        out += [c for c in benefit.answers(benefit.Side("probe", seen.rows, seen.info)) if "sampling" in c.name]
    return out if seen.identity.known else [_unproved(c) for c in out]


def _asked(seen: Observed, expect: tuple[str, ...], config: EngineConfig | None) -> dict[str, object]:
    """Fields of the engine's configuration that these words ask for, as its own ladder has them; `config`, where there
    is one, has their values."""
    words = [w for w in expect if w != DRAFTING]
    engine = seen.identity.engine if seen.identity.engine in ENGINES else SGLANG
    out = ladder.asked(engine, words)
    if out.get("speculative"):
        out["speculative"] = (config.speculative if config else None) or Speculative.checked(out["speculative"])
    elif DRAFTING in expect:
        out.pop("speculative", None)
    if config is None:
        out.pop("enable_fp32_lm_head", None)  # a foreign server may compute its plain head as it likes
        return out
    own = {name: getattr(config, name) for name in out if name != "speculative"}
    return out | {name: value for name, value in own.items() if value is not None}


def _unproved(check: Check) -> Check:
    """What an unknown server says of itself proves nothing: only the log and our own requests may pass."""
    if check.verdict != PASS or not check.where.startswith("/server_info"):
        return check
    return replace(check, verdict=UNKNOWN, note="the server could not be identified, so its own report is no proof")


__all__ = ["DRAFTING", "FAIL", "PASS", "UNKNOWN", "Check", "configuration", "expected"]
