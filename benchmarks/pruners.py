"""The race of `labkit sweep --budget` beside Optuna's pruners, simulated: how often is the fastest configuration still
there when the time is over? One of 24 leads by 1%, a pass has 3% noise, and there is time for ten passes each.

    python -m benchmarks.pruners [--draws N]      needs optuna: pip install -e '.[yardsticks]'

Time is counted in passes; what Optuna cannot use (baselines and engine starts that configurations share) costs nothing
here. Each pruner's longest trial is the one with which its mean use of time fits.
"""

import argparse
import math
from collections.abc import Callable, Iterator

import numpy as np
import optuna

from labkit.measure import stats
from labkit.measure.sweep import race
from labkit.measure.sweep.budget import ROUND_SHARE

COUNT, LEAD, NOISE, PASSES = 24, 0.01, 0.03, 10
LONGEST = (3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40, 60)
Measure = Callable[[int, int], np.ndarray]  # (configuration, passes) -> log speed-ups


def raced(measure: Measure, budget: float) -> tuple[list[int], int]:
    """(configurations that are still there, fastest first; passes that were made)."""
    seen = [[measure(i, stats.LEAST)] for i in range(COUNT)]
    used = COUNT * stats.LEAST
    while True:
        stands = race.standing([_row(i, visits) for i, visits in enumerate(seen)])
        left, focus = int(budget) - used, stands.focus()
        if not focus or left < 2 * stats.LEAST:
            return [n for n in stands.names if n in stands.able], used
        focus = focus[: left // stats.LEAST]
        passes = max(stats.LEAST, int(left * ROUND_SHARE / len(focus)))
        if left - passes * len(focus) < 2 * stats.LEAST:
            passes = left // len(focus)
        for i in focus:
            seen[i].append(measure(i, passes))
        used += passes * len(focus)


def _row(name: int, visits: list[np.ndarray]) -> dict:
    told = [[len(v), float(v.mean()), float(v.std(ddof=1))] for v in visits]
    return {"config": name, "status": "measured", "speedup": math.exp(np.concatenate(visits).mean()), "visits": told}


def pruned(make: Callable[[int], optuna.pruners.BasePruner], longest: int, paired: bool):
    """The same by a pruner that is asked after each pass. paired: it takes single passes, not their mean so far."""

    def run(measure: Measure, budget: float) -> tuple[list[int], int]:
        study = optuna.create_study(direction="maximize", pruner=make(longest))
        kept, used = {}, 0
        for i in range(COUNT):
            trial, seen, out = study.ask(), [], False
            while len(seen) < longest and used < budget and not out:
                seen.append(float(measure(i, 1)[0]))
                used += 1
                trial.report(seen[-1] if paired else float(np.mean(seen)), len(seen) - 1)
                out = len(seen) >= stats.LEAST and trial.should_prune()
            if not seen:
                break
            if out:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                study.tell(trial, float(np.mean(seen)))
                kept[i] = float(np.mean(seen))
        return sorted(kept, key=lambda i: -kept[i]), used

    return run


def nights(policy, budget: float, draws: int, seed: int) -> Iterator[tuple[bool, bool, int]]:
    """(is the best still there, is it among the two fastest, passes that were made) of so many draws."""
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw])
        truth = np.zeros(COUNT)
        best = int(rng.integers(COUNT))
        truth[best] = math.log1p(LEAD)
        kept, used = policy(lambda i, n, t=truth, r=rng: t[i] + NOISE * r.standard_normal(n), budget)
        yield best in kept, best in kept[:2], used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruners = optuna.pruners
    policies: dict[str, Callable] = {
        "successive halving": lambda longest: pruned(
            lambda m: pruners.SuccessiveHalvingPruner(min_resource=stats.LEAST, reduction_factor=3), longest, False
        ),
        "Hyperband": lambda longest: pruned(
            lambda m: pruners.HyperbandPruner(min_resource=stats.LEAST, max_resource=m, reduction_factor=3),
            longest,
            False,
        ),
        "Wilcoxon, p < 0.05": lambda longest: pruned(
            lambda m: pruners.WilcoxonPruner(p_threshold=0.05, n_startup_steps=stats.LEAST), longest, True
        ),
    }
    budget = COUNT * PASSES
    for name, make in [("labkit sweep --budget", None), *policies.items()]:
        policy = raced
        if make is not None:
            fitting = [n for n in LONGEST if np.mean([u for *_, u in nights(make(n), math.inf, 8, 7)]) <= budget]
            policy = make(max(fitting, default=LONGEST[0]))
        found = list(nights(policy, budget, draws, 1))
        kept, two, used = np.mean(found, axis=0)
        print(
            f"{name:24s} of {draws} draws the best was still there in {kept:.0%}, and among the two fastest in"
            f" {two:.0%}; {used / budget:.0%} of the time used"
        )


if __name__ == "__main__":
    main()
