"""Benefit checks: did a step pay, at equal load? On rows that were measured, apart from what any configuration says.

Every check is one line as configuration checks are: asked, seen, where, verdict; "cannot tell" where the samples do not
reach. None of them names a cause (labkit.checks.causes lists candidates).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from labkit.checks import drafting
from labkit.checks.check import FAIL, PASS, UNKNOWN, Check
from labkit.checks.observed import Observed
from labkit.measure import estimates
from labkit.measure.doubts import fixed_steps

FALLS = 0.8  # accept length on the longest contexts over that on the shortest, below which it falls
LONGER = 2.0  # how many times longer the longest contexts must be to compare them
EXPECTED = 0.7  # share of the accept length known for this model below which something is wrong with the draft
JUMP = 1.2  # times slower or faster from one request on, that is no noise
SIDE = 4  # requests on either side of such a point; fewer may be a pause
QUIET = 3.5  # times the scatter within both sides that the step must be
EVERY_STEP = 0.5  # share of such a change (in logarithms) that the usual gap between events must show as well
GAPS_LEAST = 16  # gaps between events that have a median to rely on
EXPLAINS = 0.5  # share of the scatter that may be left once such a step is taken out
ALIKE_LEAST = 48  # tokens from which equal answers are no accident of a shared beginning
NO_INTERVAL = "fewer than three repeats give no interval"
NO_OVERLAP = "every request of one side was faster than every one of the other"
KNOWN = ": acceptance as known"
_VERDICTS = {True: PASS, False: FAIL, None: UNKNOWN}


@dataclass(frozen=True)
class Side:
    """One measured arm. rows: as in a record; info: the server's description; floor_s: its byte floor, where known.

    expected_accept: accept length known for this model and draft length, and where from.
    """

    name: str
    rows: Sequence[Mapping]
    info: dict = field(default_factory=dict)
    floor_s: float | None = None
    expected_accept: tuple[float, str] | None = None

    @property
    def good(self) -> list[Mapping]:
        return [r for r in estimates.good(self.rows) if r["repeat"] >= 0]

    @property
    def drafts(self) -> bool:
        return bool(self.good) and all(r.get("verify_ct") for r in self.good)

    @property
    def seen(self) -> Observed:
        return Observed(self.info, None, tuple(self.good))


def of(sides: Sequence[Side], *, seed: int = 0) -> list[Check]:
    """All benefit checks of arms in their order, each against the one before; then what single arms show."""
    out: list[Check] = []
    usable = [s for s in sides if s.good]
    out += [
        Check(f"{s.name}: samples", "at least one", "none that counts", "rows", UNKNOWN) for s in sides if not s.good
    ]
    for before, after in zip(usable, usable[1:], strict=False):
        out += step(before, after, seed=seed)
    drafting_arms = [s for s in usable if s.drafts]
    if len(usable) > 2 and drafting_arms:
        plain = [s for s in usable if not s.drafts]
        if len(plain) > 1:
            out.append(_all_on(plain[0], plain[-1], drafting_arms[-1], seed))
    for s in usable:
        out += alone(s)
    return out


def step(before: Side, after: Side, *, seed: int = 0) -> list[Check]:
    """One arm against the one before it: the same prompts, measured in turns, faster by its whole interval; a > c."""
    out = paired(before, after)
    found = estimates.compare(after.good, before.good, seed=seed)
    out.append(_faster(f"{after.name} against {before.name}", found))
    if found.accept is not None:
        out.append(_pays(after, found))
    return out


def _faster(name: str, found: estimates.Comparison) -> Check:
    seen, where = f"x{_span(found.speedup)}", "TPOT before / after, same prompts"
    verdict = _VERDICTS[found.faster]
    notes = ["a loss: leave this change out for this load"] if verdict == FAIL else []
    if found.speedup.low is None:
        notes.append(NO_INTERVAL + (f", but {NO_OVERLAP}" if found.apart else ""))
    elif verdict == UNKNOWN:
        notes.append("no difference shown: the interval holds 1")
    return Check(name, "faster", seen, where, verdict, "; ".join(notes))


def _pays(after: Side, found: estimates.Comparison) -> Check:
    name, asked, where = f"{after.name}: a against c", "a > c", "our requests, rounds over plain steps"
    ran = fixed_steps(after.good)
    a = f"a = {found.accept.value:.2f}"
    if found.cost is None:
        shown = ", ".join(f"{s:.3g}" for s in ran)
        note = "one c would average rounds of different lengths"
        return Check(name, asked, f"{a}; draft steps varied ({shown}), so no c", where, UNKNOWN, note)
    shown, verdict = f"{a}, c = {_span(found.cost)}", _VERDICTS[found.faster]
    note = "a round costs more plain steps than the tokens it yields" if verdict == FAIL else ""
    if verdict == UNKNOWN and found.speedup.low is None:
        note = NO_INTERVAL
    return Check(name, asked, shown, where, verdict, note)


def _all_on(first: Side, last: Side, everything: Side, seed: int) -> Check:
    """All options on against those without drafting: the published ladder's own test of its last step."""
    found = estimates.compare(everything.good, last.good, seed=seed)
    total = estimates.compare(everything.good, first.good, seed=seed).speedup
    line = _faster(f"all on ({everything.name}) against without drafting ({last.name})", found)
    seen = f"{line.seen}; x{_span(total)} against {first.name}"
    note = line.note and f"{line.note}; the interface, the draft's cost, the load and noise are all candidates"
    return Check(line.name, "faster", seen, line.where, line.verdict, note)


def paired(before: Side, after: Side) -> list[Check]:
    """Were both arms asked the same, and in turns?"""
    name, where = f"{after.name} and {before.name}: prompts", "prompt digests"
    left, right = ({r.get("prompt_sha256") for r in s.good} for s in (before, after))
    verdict = PASS if left == right else FAIL
    seen = f"{len(right)} distinct" if left == right else f"{len(left)} and {len(right)}, {len(left & right)} shared"
    note = "" if left == right else "a gain measured on different prompts cannot be attributed to this step"
    out = [Check(name, "the same on both sides", seen, where, verdict, note)]
    spans = [_span_of(s.good) for s in (before, after)]
    if all(spans):
        (a0, a1), (b0, b1) = spans
        apart = b0 > a1 or a0 > b1
        verdict = UNKNOWN if apart else PASS
        seen = "sequential" if apart else "alternating, or in mirrored order"
        note = "drift of the machine would look like a gain or a loss" if apart else ""
        out.append(
            Check(f"{after.name} and {before.name}: order", "alternating", seen, "start of each request", verdict, note)
        )
    return out


def alone(side: Side) -> list[Check]:
    """What one arm's own rows show."""
    out = [*_change_point(side), *answers(side), *_random_ids(side), *_impossible(side)]
    if side.drafts:
        out += [_named(side, c) for c in (drafting.accepting(side.seen), *drafting.positions(side.seen))]
        out += _over_contexts(side)
        out += _as_expected(side)
    return out


def alarms(side: Side) -> list[str]:
    """The failures of `alone`, what random ids do not show, and an accept length far below the known one, as sentences
    for a bench without a second arm."""
    out = []
    for c in alone(side):
        if c.verdict == FAIL or (c.note and c.name.endswith((": load", KNOWN))):
            about = f", asked {c.asked}" if c.name.endswith(KNOWN) else ""
            out.append(f"{c.name.removeprefix(side.name + ': ')}: {c.seen}{about}" + (f" ({c.note})" if c.note else ""))
    return out


def _named(side: Side, check: Check) -> Check:
    return Check(f"{side.name}: {check.name}", check.asked, check.seen, check.where, check.verdict, check.note)


def _over_contexts(side: Side) -> list[Check]:
    """Accept length on the longest third of contexts against the shortest third."""
    rows = sorted(side.good, key=lambda r: r["prompt_tokens"])
    third = len(rows) // 3
    if third < 2 or rows[-third]["prompt_tokens"] < LONGER * max(1, rows[third - 1]["prompt_tokens"]):
        return []
    short, long = (
        sum(r["output_tokens"] for r in g) / sum(r["verify_ct"] for r in g) for g in (rows[:third], rows[-third:])
    )
    name, asked = f"{side.name}: acceptance over context", f"at least {FALLS:.0%} of that on short contexts"
    upto, on = rows[third - 1]["prompt_tokens"], rows[-third]["prompt_tokens"]
    seen = f"{short:.2f} at {upto} tokens and less, {long:.2f} from {on} on"
    falls = long < FALLS * short
    note = "the draft may lose its state or positions as the context grows, or the texts differ" if falls else ""
    return [Check(name, asked, seen, "our requests", FAIL if falls else PASS, note)]


def _as_expected(side: Side) -> list[Check]:
    """The accept length against the one known for this model and draft length; a load may lower it, not this far."""
    if side.expected_accept is None or side.seen.simulated or side.seen.dummy:
        return []
    wanted, source = side.expected_accept
    a = estimates.accept_length(side.good)
    if a is None:
        return []
    low = a < EXPECTED * wanted
    note = "a harder load may explain it, and so may a partly damaged draft" if low else ""
    name, asked = f"{side.name}{KNOWN}", f"about {wanted:.2f} ({source})"
    return [Check(name, asked, f"{a:.2f}", "our requests", UNKNOWN if low else PASS, note)]


def _change_point(side: Side) -> list[Check]:
    """The run in order: a request from which on everything is slower or faster, and stays so."""
    rows = sorted((r for r in side.good if r.get("started_unix")), key=lambda r: r["started_unix"])
    if len(rows) < 2 * SIDE:
        return []
    times = np.log([r["tpot_s"] for r in rows])
    # Prompts differ in their own speed; a prompt that was measured once tells nothing about a change.
    prompts = [r.get("prompt_sha256") for r in rows]
    groups = [np.array([p == q for p in prompts]) for q in dict.fromkeys(prompts)]
    if any(g.sum() < 2 for g in groups):
        groups = [np.ones(len(rows), bool)]
    _, none = _without_step(times, groups, len(rows))
    found = {k: _without_step(times, groups, k) for k in range(SIDE, len(rows) - SIDE + 1)}
    at = min(found, key=lambda k: np.abs(found[k][1]).sum())
    step, rest = found[at]
    name, asked, where = f"{side.name}: run order", "no lasting change", "TPOT in the order measured"
    noise = max(float(np.quantile(np.abs(rest), 0.9)), 0.005)
    lasting = np.abs(rest).sum() < EXPLAINS * np.abs(none).sum() and abs(step) > QUIET * noise
    if not lasting or abs(step) < np.log(JUMP):
        return [Check(name, asked, f"none in {len(rows)} requests", where, PASS)]
    how = f"{np.exp(step):.2g} times slower" if step > 0 else f"{np.exp(-step):.2g} times faster"
    seen = f"from request {at + 1} on {how}, and stays so"
    gaps = [_usual_gap(r) for r in rows]
    if None not in gaps and _without_step(np.log(gaps), groups, at)[0] / step < EVERY_STEP:
        note = "a few events took most of the time: something else used the machine for a while"
        return [Check(name, asked, seen, where, UNKNOWN, note)]
    note = "the machine or the engine changed during the run: no single TPOT describes both parts"
    return [Check(name, asked, seen, where, FAIL, note)]


def _usual_gap(row: Mapping) -> float | None:
    """Median time between events of an answer, s; None for too few events. A slower engine or machine slows every
    step; a core that is taken away for a moment delays some events, and those behind them come at once."""
    gaps = np.diff(row.get("chunk_times") or [])
    return float(np.median(gaps[gaps > 0])) if (gaps > 0).sum() >= GAPS_LEAST else None


def _without_step(times: np.ndarray, groups: list[np.ndarray], at: int) -> tuple[float, np.ndarray]:
    """(height of a step before place `at`, what is left of the log times without it and each prompt's own level)."""
    after = np.arange(len(times)) >= at
    heights = [
        np.median(times[g & after]) - np.median(times[g & ~after])
        for g in groups
        if (g & after).any() and (g & ~after).any()
    ]
    height = float(np.median(heights)) if heights else 0.0
    rest = times - height * after
    for g in groups:
        rest[g] -= np.median(rest[g])
    return height, rest


def answers(side: Side) -> list[Check]:
    """Answers against what was asked: other prompts must get other answers, and a temperature must vary them."""
    rows = [r for r in side.good if r.get("text_sha256") and r["output_tokens"] >= ALIKE_LEAST]
    out = []
    prompts = {r.get("asked_sha256") or r.get("prompt_sha256") for r in rows}
    texts = {r["text_sha256"] for r in rows}
    if len(prompts) > 2:
        name = f"{side.name}: answers"
        verdict = FAIL if len(texts) == 1 else PASS
        note = "the answers do not depend on the prompts" if verdict == FAIL else ""
        seen = f"{len(texts)} different answers to {len(prompts)} prompts"
        out.append(Check(name, "different answers to different prompts", seen, "digests of the texts", verdict, note))
    by_prompt: dict[object, list[Mapping]] = defaultdict(list)
    for r in rows:
        if r.get("temperature") and r.get("asked_sha256"):
            by_prompt[r["asked_sha256"]].append(r)
    several = [g for g in by_prompt.values() if len({r["prompt_sha256"] for r in g}) > 2]  # other seeds, same prompt
    if several:
        same = [g for g in several if len({r["text_sha256"] for r in g}) == 1]
        t = several[0][0]["temperature"]
        seen = f"{len(same)} of {len(several)} prompts with the same answer for every seed"
        note = "the requested temperature is not applied: this is greedy decoding" if same else ""
        verdict = FAIL if len(same) == len(several) else UNKNOWN if same else PASS
        where = "digests of the texts"
        out.append(Check(f"{side.name}: sampling", f"answers vary at temperature {t:g}", seen, where, verdict, note))
    return out


def _random_ids(side: Side) -> list[Check]:
    if not any(r.get("workload") == "synthetic" for r in side.good):
        return []
    note = "the speed applies to text of this length; acceptance and answers do not"
    return [Check(f"{side.name}: load", "text", "random token ids", "rows", UNKNOWN, note)]


def _impossible(side: Side) -> list[Check]:
    """A plain step cannot be faster than its bytes over the bandwidth of the machine."""
    if side.floor_s is None or side.drafts:
        return []
    tpot = float(np.median([r["tpot_s"] for r in side.good]))
    name, asked = f"{side.name}: byte floor", f"at least {side.floor_s * 1e3:.3f} ms per token"
    seen, where = f"{tpot * 1e3:.3f} ms", "TPOT, bytes of a step over bandwidth"
    if tpot >= side.floor_s:
        return [Check(name, asked, seen, where, PASS)]
    note = (
        f"impossible: {side.floor_s / tpot:.2f} times this machine's bandwidth. Tokens are overcounted, the "
        "account includes bytes that are not read, a different model runs, or the bandwidth is underestimated"
    )
    return [Check(name, asked, seen, where, FAIL, note)]


def _span_of(rows: Sequence[Mapping]) -> tuple[float, float] | None:
    starts = [r["started_unix"] for r in rows if r.get("started_unix")]
    return (min(starts), max(starts)) if starts else None


def _span(i: estimates.Interval) -> str:
    return f"{i.value:.2f}" if i.low is None else f"{i.value:.2f} [{i.low:.2f}, {i.high:.2f}]"
