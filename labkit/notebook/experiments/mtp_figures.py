"""The figures of the notebook on drafting: predictions of the present setting beside what was measured."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from labkit.engines.config import Speculative
from labkit.evidence import Evidence
from labkit.figures import decode, gains, passes, speculation
from labkit.measure.results import Arm, Result, cost, speedup
from labkit.measure.timed import beside
from labkit.notebook.experiments.drafts import PLAIN, verified
from labkit.notebook.reading import accepted, waiting
from labkit.roofline import floors
from labkit.roofline import speculation as formulas
from labkit.roofline.cost import Component

if TYPE_CHECKING:
    from labkit.notebook.experiments.mtp import Mtp

TITLES = (
    "Time per output token",
    "Speed-up over plain decoding",
    "Yield a over cost c",
    "c(n): what a round of n tokens costs",
    "Which drafts are accepted",
    "Distinct experts per layer",
    "Where the time goes: measured parts beside predicted ones",
)


def figures(lab: "Mtp", results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
    """Predictions of the present setting, and measured settings with an arrow from the one to the other."""
    base, drafted, s = lab.base(results), lab.drafted(results), lab.draft()
    if not lab.shape_known and (base is None or not drafted):
        return [waiting(t) for t in TITLES]
    here, known = lab.name_of(s), base is not None and bool(drafted)
    c = lab.expected_cost(lab.arms()[1], results)
    if not known:
        drafted = []
    open_ = here not in [r.name for r in drafted]  # not measured yet
    floor = floors.floor_s(lab.account_of(lab.plain_config(), context=lab.context(results)).evidence(), lab.bandwidth)
    least, most = lab.ends(s)
    chains = [r for r in drafted if r.arm.config.speculative.topk in (1, None)]
    costs = {verified(r): lab.cost_of(r.arm.config.speculative, results) for r in chains}
    if not chains:
        costs = {a.verified: lab.cost_of(a, results) for a in (a.config.speculative for a in _curve(lab))}
    costs.setdefault(s.verified, lab.cost_of(s, results))
    points = [(r.name, r.accept, cost(r, base)) for r in drafted]
    predicted = [(r.name, lab.expected_cost(r.arm, results), *lab.ends(r.arm.config.speculative)) for r in drafted]
    return [
        decode.tpot(
            [(r.name, r.tpot) for r in ([base, *drafted] if known else [])],
            floors=[(PLAIN, floor)],
            ranges=[(here, *_between(lab, floor, c, s, results))] if open_ else [],
        ),
        speculation.speedups(
            [(r.name, lab.predicted_speedup(r, results), speedup(r, base)) for r in drafted],
            ranges=[(here, formulas.speedup(least, c), formulas.speedup(most, c))] if open_ else [],
            guess=guess,
            guess_at=here,
        ),
        speculation.ac_plane(points, predicted=[*predicted, *([(here, c, least, most)] if open_ else [])]),
        speculation.cost_by_tokens(
            [(verified(r), cost(r, base)) for r in chains],
            list(costs.items()),
            [(verified(r), r.accept) for r in chains],
            [(verified(r), c) for r in chains if (c := lab.roof_cost(r.arm, results)) is not None],
        ),
        accepted(drafted),
        _experts(lab, results),
        _parts(lab),
    ]


def _parts(lab: "Mtp") -> go.Figure:
    """A plain step and a round of the present setting: their parts as predicted, and as the engines timed them."""
    plain, drafting = lab.arms()
    said = lab.foreseen.get(lab.said_of(drafting))
    if said is None or said.parts is None:
        return waiting(TITLES[-1], "This needs an engine whose parts can be probed on this machine.")
    shown = []
    for what, key, arm in (("plain step", "plain", plain), ("round", "round", drafting)):
        parts = [Component(**p) for p in said.parts[key]]
        phases = [p for name, p in lab.times.get(arm.setting, {}).items() if (name == "plain") == (arm is plain)]
        shown.append((what, beside(parts, phases) if phases else parts))
    return passes.parts(shown, said.parts["bandwidth"], title=TITLES[-1])


def _between(lab: "Mtp", floor: Evidence, c: Evidence, s: Speculative, results) -> tuple[Evidence, Evidence]:
    """TPOT with all drafts right and with none: part by part where that is known, else from the byte floor."""
    found = lab.foresee(lab.drafting(s), lab.context(results))
    least, most = lab.ends(s)
    return (found.best, found.worst) if found else (floor * c / most, floor * c / least)


def _curve(lab: "Mtp") -> list[Arm]:
    """The settings that c(n) is drawn for before anything is measured."""
    return [a for a in lab.sweep() if a.before and a.config.speculative.topk in (1, None)]


def _experts(lab: "Mtp", results: Mapping[str, Result]) -> go.Figure:
    most = max([2, lab.draft().verified, *(verified(r) for r in lab.drafted(results)), *lab.counted])
    expected = lab.distinct_experts(most)
    if not expected:
        return waiting("Distinct experts per layer", "This model has no experts, or its file does not name them.")
    return gains.experts(expected, {"by the engine": lab.counted} if lab.counted else {})
