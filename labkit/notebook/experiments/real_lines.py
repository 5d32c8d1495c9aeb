"""What the notebook on the real load says about its numbers: the table and the sentences below it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.evidence import Evidence
from labkit.measure import gain
from labkit.measure.gain import Gains
from labkit.measure.results import Result
from labkit.notebook.experiments import real_answers
from labkit.notebook.experiments.real_answers import GREEDY, REAL, TIMING, label, on
from labkit.notebook.render import Line, span

if TYPE_CHECKING:
    from labkit.notebook.experiments.real_load import RealLoad


def findings(lab: "RealLoad", results: Mapping[str, Result]) -> list[Line]:
    """Every measured number of the notebook, load by load."""
    out: list[Line] = []
    for role in (TIMING, REAL):
        g = lab.gains(results, role)
        if g is not None:
            out += _gain_lines(lab, g, role)
    for name, factor in lab.lost(results):
        out.append((f"real over timing load: {name}", factor, "below 1: lost on the real load"))
    out += _sampling_lines(lab, results)
    out += _expert_lines(lab)
    for a in lab.ends:
        found = results.get(on(a.name, REAL))
        if found is not None and found.used:
            out += real_answers.latency_lines(a.name, found, seed=lab.params.seed)
    out += real_answers.lines(lab.asked(results), seed=lab.params.seed)
    real = lab.gains(results, REAL)
    if real is not None and lab.guessed is not None:
        out.append(("your guess of the speed-up", f"{lab.guessed:g}", f"measured {real.whole.value:.2f}"))
    return out


def _gain_lines(lab: "RealLoad", g: Gains, role: str) -> list[Line]:
    load = label(role)
    asked = g.last.arm.params
    length = "own length" if asked.output_tokens is None else f"{asked.output_tokens} tokens of output"
    out: list[Line] = [(load, asked.workload, f"{length}; {len(g.last.used)} requests of each arm")]
    out += [(f"{load}: TPOT, {a.name}", r.tpot, a.title) for a, r in zip(lab.ends, _arms(g), strict=True)]
    known = [g.rungs, g.final, g.whole] if g.rungs is not None else [g.final]
    out += [(f"{load}: {part}", e, "") for part, e in zip(lab.parts, known, strict=True)]
    if g.last.accept is not None:
        out.append((f"{load}: a", g.last.accept, "tokens per verify step"))
    if g.cost is not None:
        out.append((f"{load}: c", g.cost, "round time over the plain step"))
    split = lab.split(g)
    if split is not None:
        out += [
            (f"{load}: fewer bytes per token", split.fewer_bytes, "by the per-tensor account"),
            (f"{load}: more bandwidth", split.more_bandwidth, "counted bytes per second, after over before"),
        ]
        if g.cost is not None:
            by_time = gain.split_by_time(g, model=lab.model)
            factors = f"{by_time.fewer_bytes.value:.2f} x {by_time.more_bandwidth.value:.2f}"
            out += [
                (f"{load}: the same, c from times", factors, f"c = {g.cost.value:.2f} taken as a ratio of bytes"),
                (f"{load}: c by bytes", gain.cost_by_bytes(g, model=lab.model), "what bytes alone would cost"),
            ]
    return out


def _arms(g: Gains) -> list[Result]:
    return list({r.name: r for r in (g.first, g.middle, g.last)}.values())


def _sampling_lines(lab: "RealLoad", results: Mapping[str, Result]) -> list[Line]:
    ratios, out = lab.sampling_ratios(results), []
    for name, (greedy, cold) in lab.sampling(results).items():
        same, asked = gain.same_text(greedy, cold)
        remark = f"time sampled over time greedy; {same} of {asked} texts are equal"
        if greedy.accept is not None and cold.accept is not None:
            remark += f", a = {greedy.accept.value:.2f} and {cold.accept.value:.2f}"
        out.append((f"sampling alone: {name}", ratios[name], remark))
    return out


def _expert_lines(lab: "RealLoad") -> list[Line]:
    expected = dict(lab.expected_experts())
    most = max(expected, default=0)
    out: list[Line] = []
    for role in (TIMING, REAL):
        counted = lab.counted.get(role, {}).get(most)
        if counted is not None:
            remark = f"{expected[most].value:.1f} expected for {most} positions that choose independently"
            out.append((f"{label(role)}: distinct experts per layer", counted, remark))
    return out


def verdict(lab: "RealLoad", results: Mapping[str, Result]) -> list[str]:
    """What the numbers show and what they do not; [] until both loads are measured."""
    made, real = (lab.gains(results, role) for role in (TIMING, REAL))
    if made is None or real is None:
        return []
    return [
        _shrinks(made, real),
        *_where(lab, results),
        *_residual(lab, results, real),
        *_published(lab),
        *_accuracy(lab, results),
        "TPOT, throughput and latency are three numbers: latency also holds TTFT and the length of the answer, which"
        " differs between arms wherever one of them rounds differently and so samples another text.",
        "The gain on one load does not carry over to another: measure it on yours (`workload: file:PATH`).",
    ]


def _shrinks(made: Gains, real: Gains) -> str:
    loads = f"x{made.whole.value:.2f} on the timing load, x{real.whole.value:.2f} on the real one"
    ratio = real.whole / made.whole
    if ratio.below(1):
        end = f"the gain shrinks by x{ratio.value:.2f} ({span(ratio, '.2f')})."
    elif ratio.above(1):
        end = "here the real load gains more, not less."
    else:
        end = f"the two cannot be told apart (x{ratio.value:.2f}, {span(ratio, '.2f')})."
    return f"All changes together: {loads}; {end}"


def _where(lab: "RealLoad", results: Mapping[str, Result]) -> list[str]:
    factors = lab.lost(results)
    if not factors:
        return []
    least = min(factors, key=lambda f: f[1].value)
    told = ", ".join(f"{name} x{factor.value:.2f}" for name, factor in factors)
    most = f" Most of the loss is in: {least[0]}." if least[1].below(1) else ""
    return [f"The factors between the two gains: {told}.{most}"]


def _residual(lab: "RealLoad", results: Mapping[str, Result], real: Gains) -> list[str]:
    """What bytes do not explain of the drafting on the real load, and what was measured here of each candidate."""
    if real.cost is None or not lab.shape_known or not gain.one_size(real.last):
        return []
    by_bytes = gain.cost_by_bytes(real, model=lab.model)
    residual = real.cost / by_bytes
    out = [
        f"By bytes a round costs {by_bytes.value:.2f} plain steps here; measured are {real.cost.value:.2f}:"
        f" x{residual.value:.2f} ({span(residual, '.2f')}) is what bytes do not explain. Three candidates:"
    ]
    ratios = lab.sampling_ratios(results)
    if ratios:
        step, whole = ratios["plain step"], ratios["round"]
        own = whole / step
        out.append(
            f"1. Sampling: on the same text, so at the same accept length, it makes a plain step x{step.value:.3f} and"
            f" a round x{whole.value:.3f} as long: x{own.value:.3f} ({span(own)}) in c."
        )
    greedy = lab.gains(results, GREEDY)
    if greedy is not None and greedy.cost is not None:
        rest = greedy.cost / gain.cost_by_bytes(greedy, model=lab.model)
        out.append(
            f"2. Work that is no reading (arithmetic for several positions, the sequence of drafts, launches): without"
            f" sampling, c is still x{rest.value:.2f} ({span(rest, '.2f')}) of what bytes give."
        )
    out += _overlap(lab, real, by_bytes)
    return out


def _overlap(lab: "RealLoad", real: Gains, by_bytes: Evidence) -> list[str]:
    expected = dict(lab.expected_experts())
    most = max(expected, default=0)
    counted = lab.counted.get(REAL, {}).get(most)
    if not expected:
        return ["3. Experts that neighbouring tokens share: this model has none."]
    if counted is None:
        return ["3. Experts that neighbouring tokens share: not counted, because the engine does not report them."]
    with_them = gain.cost_by_bytes(real, model=lab.model, distinct=counted.value)
    return [
        f"3. Experts that neighbouring tokens share: {most} positions use {counted.value:.1f} of a layer's experts"
        f" where {expected[most].value:.1f} are expected; with the counted ones c by bytes is {with_them.value:.2f}"
        f" instead of {by_bytes.value:.2f}."
    ]


def _published(lab: "RealLoad") -> list[str]:
    found = lab.published_runs()
    if found is None:
        return []
    return [
        f"In the published runs a / c leaves x{found.residual.value:.2f} open on the synthetic load, and"
        f" x{found.residual_real.value:.2f} on GSM8K (where it also holds the other changes). The c of"
        f" {found.c.value:.2f} was published without its head configuration and load, and without saying whether it"
        " includes the drafts. The same three candidates stand there, and these numbers prove none of them."
    ]


def _accuracy(lab: "RealLoad", results: Mapping[str, Result]) -> list[str]:
    asked = lab.asked(results)
    if len(asked) < 2:
        return []
    from labkit.measure import evaluation

    first, last = list(asked)[0], list(asked)[-1]
    pair = evaluation.pair(asked[last], asked[first], seed=lab.params.seed)
    if not pair["questions"]:
        return []
    n = pair["non_inferiority"]
    shown = "is shown" if n["holds"] else "is NOT shown"
    return [
        f"Accuracy on {lab.question_workload}: {last} against {first} {100 * pair['difference']:+.2f} points (95%"
        f" interval {100 * pair['low']:+.2f} to {100 * pair['high']:+.2f}, {pair['questions']} pairs, exact McNemar"
        f" p = {pair['mcnemar']['p']:.3g}). That it is not worse by {100 * n['margin']:g} point or more {shown}."
        " `labkit eval --full` asks all questions."
    ]
