"""Drafting without an engine: accept length and cost from assumed numbers, and how far a short run strays from them.

Nothing here was measured. A round drafts k tokens in a chain and verifies k + 1 positions at once. Draft i is accepted
with a probability, given that all before it were; the first rejection ends the round, and one token always comes from
the verify itself. Cost, in plain steps: 1 + k * (verify + draft), linear in k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import BadInput
from labkit.roofline.speculation import accept_length, speedup


@dataclass(frozen=True)
class Round:
    """A setting of `drafts` drafts: expected accept length a, cost c in plain steps, and a's range in short runs: 95%
    of simulated runs lie in [low, high]."""

    drafts: int
    a: float
    c: float
    low: float
    high: float

    @property
    def speedup(self) -> float:
        """S = a / c: above 1 drafting pays."""
        return speedup(self.a, self.c)


def marginal(conditional: Sequence[float]) -> list[float]:
    """P(draft i is accepted) from P(draft i is accepted, given all before it). BadInput outside 0 to 1."""
    found, last = [], 1.0
    for p in conditional:
        if not 0 <= p <= 1:
            raise BadInput("acceptance", p, "a probability for each position")
        last *= p
        found.append(last)
    return found


def cost(drafts: int, verify: float, draft: float) -> float:
    """c of a round of `drafts` drafts. verify: plain steps that one further position adds to the verify; draft: plain
    steps of one draft pass."""
    for name, value in (("verify", verify), ("draft", draft)):
        if not value >= 0:
            raise BadInput(f"{name} cost", value, "plain steps, 0 or more")
    return 1 + drafts * (verify + draft)


def simulate(
    conditional: Sequence[float], *, verify: float, draft: float, tokens: int = 256, runs: int = 400, seed: int = 0
) -> list[Round]:
    """Rounds of 1, 2, ... drafts, as many as there are acceptances. a is the expectation; low and high come from `runs`
    simulated runs of `tokens` tokens each, drawn with `seed`."""
    import numpy as np

    chances = marginal(conditional)
    draw = np.random.default_rng(seed)
    found = []
    for k in range(1, len(conditional) + 1):
        a = accept_length(chances[:k])
        rounds = max(1, round(tokens / a))
        right = draw.random((runs, rounds, k)) < np.asarray(conditional[:k])
        yields = 1 + np.logical_and.accumulate(right, axis=2).sum(axis=2)  # up to the first rejection
        low, high = np.quantile(yields.mean(axis=1), (0.025, 0.975))
        # The expectation lies in it, also where rounding puts a sure outcome beside itself.
        found.append(Round(k, a, cost(k, verify, draft), min(a, float(low)), max(a, float(high))))
    return found


def needed(drafts: int, verify: float, draft: float) -> float | None:
    """The acceptance, equal at each position, from which `drafts` drafts pay (a = c); None where even all of them
    accepted would not."""
    c = cost(drafts, verify, draft)
    if c > drafts + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if accept_length(marginal([middle] * drafts)) >= c else (middle, high)
    return high
