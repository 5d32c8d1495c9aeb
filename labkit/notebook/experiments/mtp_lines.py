"""What the notebook on drafting says about its numbers: the tables, and the sentences below them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.checks import judged
from labkit.engines import ladder
from labkit.measure.results import Result, cost, count, drafts_a_round, speedup, varies
from labkit.notebook.reading import NOTHING
from labkit.notebook.render import Line, span
from labkit.roofline import speculation as formulas

if TYPE_CHECKING:
    from labkit.notebook.experiments.mtp import Mtp


def predictions(lab: "Mtp", results: Mapping[str, Result]) -> list[Line]:
    s = lab.draft()
    c = lab.cost_of(s, results)
    roofs = lab.roof_cost(lab.arms()[1], results)
    lines: list[Line] = [
        (
            "c by bytes alone",
            c,
            f"a round of {s.verified - 1} drafts and a verify of {s.verified} tokens, in plain steps",
        ),
        *([("c by both roofs", roofs, "bytes, arithmetic and fixed parts, each rate probed")] if roofs else []),
        ("a to break even", roofs or c, "a must exceed c, or drafting loses"),
        (
            "S if every draft is accepted",
            formulas.speedup(count(s.most, "1", "drafts + 1"), roofs or c),
            "the most that this cost allows",
        ),
    ]
    a, published = (lab.reported(lab.subject, metric) for metric in ("accept_length", "verify_cost_ratio"))
    if a and published:
        lines += [
            (f"{lab.reported_on}: a", a, "synthetic greedy load"),
            (f"{lab.reported_on}: c", published, "head configuration not published"),
            (
                "S from the reported a and c",
                formulas.speedup(a, published),
                "the published step was faster: an open residual",
            ),
        ]
    return lines


def findings(lab: "Mtp", results: Mapping[str, Result]) -> list[Line]:
    base, drafted = lab.base(results), lab.drafted(results)
    if base is None or not drafted:
        return [NOTHING]
    lines: list[Line] = [(f"TPOT, {base.name}", base.tpot, base.arm.title)]
    for r in drafted:
        lines += [
            (f"TPOT, {r.name}", r.tpot, r.arm.title),
            (f"a, {r.name}", r.accept, "tokens per verify step"),
            _cost_line(lab, r, base, results),
            (f"speed-up, {r.name}", speedup(r, base), ""),
        ]
    first, lead = best(lab, results)
    lines.append(("best setting measured", first.name, lead))
    if lab.guessed is not None:
        here = [r for r in drafted if r.name == lab.name_of(lab.draft())]
        remark = f"measured {speedup(here[0], base).value:.2f}" if here else ""
        lines.append(("your guess of the speed-up", f"{lab.guessed:g}", remark))
    return lines


def _cost_line(lab: "Mtp", r: Result, base: Result, results: Mapping[str, Result]) -> Line:
    """Measured c beside both predictions and their errors."""
    c, by_bytes = cost(r, base), lab.cost_of(r.arm.config.speculative, results)
    said = [("bytes", by_bytes), ("both roofs", lab.roof_cost(r.arm, results))]
    shown = [f"by {how} {e.value:.2f} ({e.value / c.value - 1:+.1%})" for how, e in said if e is not None]
    return f"c, {r.name}", c, f"round time over the plain step; {', '.join(shown)}"


def best(lab: "Mtp", results: Mapping[str, Result]) -> tuple[Result, str]:
    """The draft setting (or plain) with the shortest TPOT, and how sure that is."""
    everything = sorted([lab.base(results), *lab.drafted(results)], key=lambda r: r.tpot.value)
    first, second = everything[0], everything[1]
    gain = speedup(first, second)
    sure = gain.above(1)
    against = f"{gain.value:.3f} times as fast as {second.name}, {span(gain)}"
    return first, against if sure else f"cannot be told apart from {second.name}: {against}"


def verdict(lab: "Mtp", results: Mapping[str, Result]) -> list[str]:
    base, drafted = lab.base(results), lab.drafted(results)
    out = [
        f"{r.name}: draft steps changed from request to request, so one c does not describe it, and none is given."
        for r in results.values()
        if r.used and r.arm.config.speculative is not None and varies(r)
    ]
    if base is None or not drafted:
        return out
    vary = [f"{n:.2g} with {r.name}" for r in drafted if (n := drafts_a_round(r)) is not None]
    if vary:
        out.append(
            "This engine chooses in each round how many tokens to draft, up to the setting (on average"
            f" {', '.join(vary)}): a and c are means over its rounds."
        )
    for r in drafted:
        gain, c = speedup(r, base), cost(r, base)
        if gain.below(1):
            out.append(
                f"{r.name} is slower than plain decoding: a = {r.accept.value:.2f} does not exceed c ="
                f" {c.value:.2f}. Stop the ladder here for this load."
            )
        out += judged.step(r, base, expect=ladder.DRAFTING, again="labkit ladder").lines()
    top = max(drafted, key=lambda r: speedup(r, base).value)
    gain, c = speedup(top, base), cost(top, base)
    if gain.above(1):
        out.append(
            f"Drafting pays on this load: {top.name} yields a = {top.accept.value:.2f} tokens for c ="
            f" {c.value:.2f} plain steps, {gain.value:.2f} times plain ({span(gain, '.2f')})."
        )
    if len(drafted) > 2:
        out.append(
            f"The best of {len(drafted)} settings was picked on these same samples, which overstates its lead a"
            " little: measure it again before you rely on it."
        )
    out.append(
        "The measured speed-up is a / c, with a and c from the same requests. The prediction is tested by"
        " c from bytes: what it misses is what bytes do not explain (sampling, arithmetic on several positions,"
        " experts that neighbouring tokens share)."
    )
    out.append("Acceptance depends on this load: another text or sampling gives another a, and c changes with context.")
    return out
