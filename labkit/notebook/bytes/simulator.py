"""When does drafting pay? A simulation from assumed acceptances and costs: no engine runs, nothing is measured."""

import plotly.graph_objects as go

from labkit.evidence import Evidence, Tier, derived, reported
from labkit.figures import bounds, speculation
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.bytes.offers import POSITIONS
from labkit.notebook.render import Line
from labkit.roofline.drafting import Round, needed

SOURCE = "a simulation of notebook 01: acceptances and costs are assumed"
TOKENS = 256
CONTROLS = (*(f"accept_{i}" for i in range(1, POSITIONS + 1)), "verify_cost", "draft_cost")


def evidence(at: Choice, r: Round) -> tuple[Evidence, Evidence]:
    """(a, c) of a simulated round. a's interval is where 95% of simulated runs of 256 tokens lie."""
    accepted = [reported(at.values[f"accept_{i}"], "1", SOURCE) for i in range(1, r.drafts + 1)]
    costs = [reported(at.values[name], "1", SOURCE) for name in ("verify_cost", "draft_cost")]
    a = Evidence(
        r.a, "1", Tier.DERIVED, SOURCE, r.low, r.high, "1 + sum of products of the acceptances", tuple(accepted)
    )
    return a, derived(r.c, "1", "1 + drafts * (cost of one more position + cost of one draft)", costs)


def plane(at: Choice) -> go.Figure:
    """a over c of every number of drafts, with the line S = 1."""
    points = [(f"{r.drafts} draft{'s' if r.drafts > 1 else ''}, simulated", *evidence(at, r)) for r in at.drafting()]
    figure = speculation.ac_plane(points, title="Simulated, not measured: yield a over cost c")
    for trace in figure.select_traces({"mode": "markers"}):  # filled markers are for what was measured
        trace.marker.symbol = f"{trace.marker.symbol}-open"
    return figure


def lines(at: Choice) -> list[Line]:
    rounds = at.drafting()
    best = max(rounds, key=lambda r: r.speedup)
    verify, draft = at.values["verify_cost"], at.values["draft_cost"]
    found: list[Line] = [
        ("these numbers", "simulated", "from assumed acceptances and costs: no engine ran, nothing was measured")
    ]
    if best.speedup > 1:
        word = "draft" if best.drafts == 1 else "drafts"
        spread = f"S from {best.low / best.c:.2f} to {best.high / best.c:.2f} in 95% of runs of {TOKENS} tokens"
        found.append(("best number of drafts", f"{best.drafts} {word}: S = {best.speedup:.2f}", f"◇ derived; {spread}"))
    else:
        found.append(("best number of drafts", "none", f"◇ derived; the best, {best.drafts}, gives {best.speedup:.2f}"))
    for k in (1, 3, POSITIONS):
        least = needed(k, verify, draft)
        said = "no acceptance" if least is None else f"acceptance above {least:.0%} at each position"
        found.append((f"{k} draft{'s' if k > 1 else ''} pay{'s' if k == 1 else ''} from", said, "◇ derived"))
    by_bytes = at.costs_by_bytes()
    basis = "" if at.shape.nextn else "; the draft's cost is assumed, because this model has no draft layer of its own"
    found.append(("costs by bytes alone", f"{by_bytes[0]:.3f} and {by_bytes[1]:.3f}", f"plain steps{basis}"))
    return found


def gains(at: Choice) -> go.Figure:
    """S over the number of drafts, with the range of short runs."""
    return bounds.simulated_gain([(r.drafts, r.speedup, r.low / r.c, r.high / r.c) for r in at.drafting()])
