"""Where the pocket engine's time goes, part by part, beside what was predicted for each part before it was measured
(labkit.measure.steps)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from labkit.measure import rates as probes
from labkit.measure.probe import CLEAN
from labkit.measure.steps import Model, counted
from labkit.measure.timed import beside
from labkit.pocket.engine import Engine, Sampling
from labkit.pocket.options import Options
from labkit.roofline.cost import Component, added

TOKENS = 97
LEAST = 4  # bursts to go by when fewer were clean


@dataclass(frozen=True)
class Profile:
    """plain, round: components with predictions and measurements, a pass each. rates: what the predictions rest on.
    phases: those of a round one by one. overhead: share that timing adds to a step. cpu_share: CPU over wall time of
    the bursts that count; below CLEAN other programs had the core in between, and the measured times hold that too."""

    rates: probes.Rates
    plain: list[Component]
    round: list[Component]
    phases: dict[str, list[Component]]
    overhead: float
    cpu_share: float
    facts: dict

    @property
    def bandwidth(self) -> float:
        """B/s of reading alone."""
        return self.rates.bandwidth


def run(prompts: Sequence[Sequence[int]], options: Options, *, fresh: bool = True) -> Profile:
    """Predict, then measure: one greedy burst of TOKENS tokens a prompt, plain and speculative. options: of an engine
    that drafts by a chain. fresh: probe now, whatever is kept."""
    off = dict.fromkeys(f"speculative_{n}" for n in ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens"))
    rates = probes.of(options, fresh=fresh)
    with Engine(replace(options, **off)) as plain, Engine(options) as mtp:
        experts = counted(mtp, prompts[0])
        model = Model(rates, mtp.config, mtp.options, experts)
        facts = plain.describe()
        context = int(np.mean([len(p) for p in prompts])) + TOKENS // 2
        for engine in (plain, mtp):
            _burst(engine, prompts[0])
        bursts = [_compared(plain, mtp, ids) for ids in prompts]
    clean = [b for b in bursts if b.cpu_share >= CLEAN]
    bursts = clean if len(clean) >= LEAST else sorted(bursts, key=lambda b: -b.cpu_share)[:LEAST]
    predicted = {"plain": model.plain(context), "verify": model.verify(options.speculative_num_draft_tokens, context)}
    predicted |= {f"draft {i}": model.draft(i, context) for i in range(1, options.speculative_num_steps + 1)}
    phases = {name: _measured(parts, [b.parts[name] for b in bursts]) for name, parts in predicted.items()}
    overhead = float(np.median([b.timed_s / b.untimed_s for b in bursts]) - 1)
    round_ = added([parts for name, parts in phases.items() if name != "plain"])
    return Profile(rates, phases["plain"], round_, phases, overhead, min(b.cpu_share for b in bursts), facts)


@dataclass(frozen=True)
class _Burst:
    """One prompt on every arm: the parts of each phase, seconds a token of plain decode untimed and timed."""

    parts: dict[str, dict]
    untimed_s: float
    timed_s: float
    cpu_share: float


def _burst(engine: Engine, ids: Sequence[int]) -> tuple[float, float]:
    """Seconds a token, and the decoding thread's CPU time over wall time."""
    stats = engine.start(ids, Sampling(temperature=0, max_new_tokens=TOKENS, ignore_eos=True)).join(120)
    return stats.decode_s / (stats.completion_tokens - 1), stats.thread_cpu_s / stats.decode_s


def _compared(plain: Engine, mtp: Engine, ids: Sequence[int]) -> _Burst:
    untimed, share = _burst(plain, ids)
    parts, took, shares = {}, {}, [share]
    for engine in (plain, mtp):
        engine.time_parts(True)
        took[engine], share = _burst(engine, ids)
        engine.time_parts(False)
        parts |= {k: v for k, v in engine.part_times().items() if k != "prefill"}
        shares.append(share)
    again, share = _burst(plain, ids)  # before and after, so that a machine that warms up or slows down adds nothing
    return _Burst(parts, (untimed + again) / 2, took[plain], min([*shares, share]))


def _measured(parts: list[Component], seen: list[dict]) -> list[Component]:
    """Predicted parts of one phase with what was measured: medians over bursts."""
    names = dict.fromkeys([p.name for p in parts] + [n for s in seen for n, took in s["seconds"].items() if took])
    return beside(parts, [{n: float(np.median([s["seconds"][n] / s["passes"] for s in seen])) for n in names}])
