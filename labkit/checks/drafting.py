"""Is drafting on, is it the drafting that was asked for, does it accept, and does the draft read the head whole?"""

from collections.abc import Sequence

from labkit.checks.check import FAIL, PASS, UNKNOWN, Check
from labkit.checks.observed import Observed, first_position
from labkit.engines.config import Speculative
from labkit.measure.doubts import fixed_steps
from labkit.measure.estimates import NOTHING_ACCEPTED, accept_length, drafts_a_round

FIRST_POSITION = 0.05  # below this share of accepted first drafts, the draft does not work
LATER_LEAST = 20  # rounds that got as far as a position before its acceptance says something
ALIASES = {"NEXTN": ("NEXTN", "EAGLE")}  # SGLang resolves NEXTN to EAGLE
_INFO = "/server_info speculative_algorithm"


def on(seen: Observed) -> tuple[bool | None, str, str]:
    """(drafting happens, what shows it, where): True and False only with a sign, None where nothing tells."""
    told, drafted = algorithm(seen), drafted_rows(seen.good)
    if drafted:
        name = told or (seen.proof and seen.proof.algorithm) or "an algorithm that is not named"
        return True, name, "our requests: verify rounds counted"
    lengths = seen.proof.accept_lengths if seen.proof else []
    if told:
        if seen.good:
            return False, f"{told} named, but no request of ours was drafted", f"{_INFO}, our requests"
        return True, told, _INFO
    if lengths and not seen.good:
        return True, f"accept len {lengths[-1]:.2f} on a decode line", "log"
    if "speculative_algorithm" not in seen.info:
        return None, "nothing", "/server_info has no speculative_algorithm"
    loaded = seen.info.get("speculative_draft_model_path")
    return False, "none" + (f"; draft weights {loaded} are loaded and idle" if loaded else ""), _INFO


def algorithm(seen: Observed) -> str | None:
    """What the server calls its drafting; None for none, however it is written."""
    told = seen.info.get("speculative_algorithm")
    return None if told is None or str(told).strip().upper() in ("", "NONE", "NULL", "OFF", "FALSE") else str(told)


def drafted_rows(rows: Sequence[dict]) -> list[dict]:
    return [r for r in rows if r.get("verify_ct")]


def none(seen: Observed) -> Check:
    """The check of an arm that must not draft."""
    happens, what, where = on(seen)
    verdict = {True: FAIL, False: PASS, None: UNKNOWN}[happens]
    note = "a comparison with this arm would compare drafting with drafting" if happens else ""
    return Check("no drafting", "none", what, where, verdict, note)


def checks(seen: Observed, spec: Speculative | None, *, any_kind: bool = False) -> list[Check]:
    """spec: what was asked (None: no numbers). any_kind: whether another algorithm than the one asked is fine too."""
    happens, what, where = on(seen)
    note = "requested, loaded or named, but not in effect" if happens is False else ""
    out = [Check("drafting", "on", what, where, {True: PASS, False: FAIL, None: UNKNOWN}[happens], note)]
    if not happens:
        return out
    other = False
    if not any_kind:
        wanted = getattr(spec, "algorithm", None) or "NEXTN"
        told = algorithm(seen)
        other = told is not None and told.upper() not in ALIASES.get(wanted.upper(), (wanted.upper(),))
        verdict = UNKNOWN if told is None else FAIL if other else PASS
        note = "drafting is on, with a different algorithm than requested" if other else ""
        out.append(Check("drafting algorithm", wanted, told or "not named", _INFO, verdict, note))
    if spec is not None and not other:
        out += _numbers(seen, spec)
    elif len(_steps(seen)) > 1:
        out.append(_varied(seen, "one number"))
    out.append(accepting(seen))
    out += positions(seen)
    if out[-1].verdict != FAIL:
        out.append(_pays(seen))
    return out


def _pays(seen: Observed) -> Check:
    """Whether a exceeds c takes the same server without drafting: configuration alone cannot tell."""
    rows = drafted_rows(seen.good)
    a = accept_length(rows)
    most = max((s + 1 for s in _steps(seen)), default=None)
    made_up = ", simulated" if seen.simulated else ""
    shown = f"a = {a:.2f}{made_up}" + (f" of at most {most:.3g}" if most else "") if a else "a not measured"
    note = "measure against the same server without drafting: --against URL, or bench on both and compare"
    if seen.simulated:
        note = "the accept length is simulated: c is measured, but a and S are not this model's"
    return Check("drafting pays", "a > c", f"{shown}; c not measured", "our requests", UNKNOWN, note)


def _numbers(seen: Observed, spec: Speculative) -> list[Check]:
    out = []
    for field, label, asked in (
        ("speculative_num_steps", "draft steps", spec.steps),
        ("speculative_eagle_topk", "draft topk", spec.topk),
        ("speculative_num_draft_tokens", "draft tokens", spec.draft_tokens),
    ):
        if asked is None:  # NGRAM drafts from the text and has no steps
            continue
        got, note = seen.info.get(field), ""
        if label == "draft steps" and (most := _most(seen)) is not None:
            out.append(_at_most(asked, *most))
            continue
        ran = _steps(seen) if label == "draft steps" and spec.topk == 1 else []
        if ran and ran != [asked]:
            out.append(_varied(seen, str(asked)))
            continue
        if got is None:
            out.append(Check(label, str(asked), "nothing", f"/server_info has no {field}", UNKNOWN))
            continue
        same = str(got).strip() == str(asked)  # some servers tell numbers as text
        if not same:
            note = "resolved to a value other than the one requested"
            if field == "speculative_num_draft_tokens" and spec.topk == 1:
                note += ": with topk 1 the engine rewrites draft tokens to steps + 1"
        where = f"/server_info {field}" + (", our requests" if ran else "")
        out.append(Check(label, str(asked), str(got), where, PASS if same else FAIL, note))
    rewritten = seen.proof.rewritten if seen.proof else None
    if rewritten and out[-1].verdict == PASS:
        out[-1] = Check("draft tokens", str(spec.draft_tokens), rewritten, "log", FAIL, "not used as requested")
    return out


def _steps(seen: Observed) -> list[float]:
    """Distinct proposed / verify of our requests: the draft steps that really ran."""
    return fixed_steps(drafted_rows(seen.good))


def _most(seen: Observed) -> tuple[float, float] | None:
    """(mean drafts of a round, those of the request with most) where the engine chooses their number in each round."""
    rows = [r for r in drafted_rows(seen.good) if r.get("drafts_vary") and r.get("proposed_drafts") is not None]
    mean = drafts_a_round(rows)
    return None if mean is None else (mean, max(r["proposed_drafts"] / r["verify_ct"] for r in rows))


def _at_most(asked: int, mean: float, most: float) -> Check:
    seen = f"{mean:.3g} in the mean round, {most:.3g} in the request with most"
    note = "" if most <= asked else "more drafts than asked for"
    where = "our requests: proposed drafts / verify rounds"
    return Check("draft steps", f"at most {asked}", seen, where, PASS if most <= asked else FAIL, note)


def _varied(seen: Observed, asked: str) -> Check:
    ran = _steps(seen)
    shown = ", ".join(f"{s:.3g}" for s in ran)
    told = seen.info.get("speculative_num_steps")
    also = f"; {told} told" if told is not None else ""
    note = "steps change from request to request: one c does not describe this server, and none is given for it"
    if len(ran) == 1:
        note = "the number of draft steps that ran is not the one requested"
    where = "our requests: proposed drafts / verify rounds"
    return Check("draft steps", asked, shown + also, where, FAIL, note)


def accepting(seen: Observed) -> Check:
    """Does any draft come through? a > 1 is needed, and a > c for a gain, which no configuration check can show."""
    name, asked = "accept length", "above 1.00"
    rows = drafted_rows(seen.good)
    a, where = accept_length(rows), "our requests: tokens per verify round"
    if a is not None:
        pass
    elif seen.proof and seen.proof.accept_lengths:
        lengths = seen.proof.accept_lengths
        a, where = sum(lengths) / len(lengths), f"log, {len(lengths)} decode lines"
    else:
        states = seen.info.get("internal_states")
        state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
        a, where = state.get("avg_spec_accept_length"), "/server_info, cumulative and refreshed at intervals"
    if isinstance(a, bool) or not isinstance(a, (int, float)) or not 0 < a < 1e3:
        return Check(name, asked, "nothing yet", where, UNKNOWN, "send requests, or allow the check to")
    if seen.simulated:
        return Check(name, asked, f"{a:.2f}, simulated", where, UNKNOWN, "a simulated accept length is no evidence")
    if a < NOTHING_ACCEPTED and seen.dummy:
        return Check(name, asked, f"{a:.2f}", where, UNKNOWN, "dummy weights accept no drafts in any case")
    if a < NOTHING_ACCEPTED:
        note = "no draft is accepted: slower than no speculation at all; see the candidate causes"
        return Check(name, asked, f"{a:.2f}", where, FAIL, note)
    return Check(name, asked, f"{a:.2f}", where, PASS, "a gain needs more: a must exceed c (--against, bench, compare)")


def positions(seen: Observed) -> list[Check]:
    """Acceptance at each draft position of our requests: the first must work, and no later one may be dead."""
    histograms = [r["histogram"] for r in drafted_rows(seen.good) if r.get("histogram")]
    first = first_position(seen.good)
    if first is None or seen.simulated or seen.dummy:
        return []
    where = "histogram of our requests"
    verdict = PASS if first > FIRST_POSITION else FAIL
    out = [Check("first draft position", f"above {FIRST_POSITION:.0%} accepted", f"{first:.1%}", where, verdict)]
    if verdict == FAIL:
        return out
    steps = max([*map(int, _steps(seen)), *(len(h) - 1 for h in histograms)])
    got = [sum(sum(h[i:]) for h in histograms) for i in range(steps + 1)]  # rounds that accepted i drafts or more
    dead = next(
        (i for i in range(2, steps + 1) if got[i - 1] >= LATER_LEAST and got[i] < FIRST_POSITION * got[i - 1]), 0
    )
    if dead:
        note = (
            "a draft that predicts one token and never the next is broken (its own layer's weights, scales or state), "
            "not a hard load"
        )
        seen_text = f"position {dead}: {got[dead]} of the {got[dead - 1]} rounds that accepted {dead - 1}"
        out.append(Check("later draft positions", f"above {FIRST_POSITION:.0%}", seen_text, where, FAIL, note))
    elif steps >= 2 and got[1] >= LATER_LEAST:
        share = f"position 2: {got[2]} of the {got[1]} rounds that accepted 1"
        out.append(Check("later draft positions", f"above {FIRST_POSITION:.0%}", share, where, PASS))
    return out


def sharing(seen: Observed) -> Check:
    """With an FP8 head the draft must take the head's module, scales included, not its weight tensor."""
    name, asked = "draft shares the head", "the whole module, scales included"
    shared = seen.proof.module_shared if seen.proof else None
    if shared is False:
        note = "the draft reads FP8 numbers without their scales: a = 1.00 and no error"
        return Check(name, asked, "keeps the bare weight tensor", "log", FAIL, note)
    if shared:
        return Check(name, asked, "shares the target's lm_head module", "log", PASS)
    found = accepting(seen)
    seen_text = f"accept length {found.seen}"
    if found.verdict == PASS:
        note = "indirect evidence: a draft without the scales accepts nothing"
        return Check(name, asked, seen_text, found.where, PASS, note)
    if found.verdict == FAIL:
        note = "the commonest cause with an FP8 head, not the only one"
        return Check(name, asked, seen_text, found.where, FAIL, note)
    return Check(name, asked, "nothing", "log, accept length", UNKNOWN)
