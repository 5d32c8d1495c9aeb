"""What an arm of a ladder should cost per token, said before it is asked anything.

On the pocket engine a step and a round are predicted part by part, from bytes, arithmetic and fixed parts at rates that
probes of this machine gave (labkit.measure.steps). Elsewhere from bytes, and from the arms before it:

expects nothing        no faster than its bytes over what memory sustains
better kernels, fewer  the arm before, times the bytes of a step over its bytes
a > c                  the arm before, times c by bytes, over an a that is not known yet: from 1 (no draft is right)
                       to all drafts and the bonus token
a silent fault         a = 1, and c of the healthy arm before: every round costs its time and yields one token
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

from labkit.engines import ladder
from labkit.engines.ladder import Arm
from labkit.errors import BadInput
from labkit.evidence import Evidence
from labkit.measure import machine, steps
from labkit.measure.results import Arm as Loaded
from labkit.measure.results import Result, cost, count
from labkit.params import Params
from labkit.roofline import floors, predictions
from labkit.roofline import speculation as formulas

NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Foreseen:
    """A prediction of TPOT, s. best: what is predicted, or the least where the arm drafts; worst: the most there, else
    None. bound: best is a floor and no forecast. why: in words. made_unix: when it was made. pass_s: a step, or a round
    where the arm drafts, by both roofs; bytes_s: the same by bytes alone; c, c_bytes: of a round. None where only bytes
    are known. disturbed: why the probed rates are not to be trusted, "" if they are. parts: {"bandwidth": B/s, "plain",
    "round": fields of labkit.roofline.cost.Component, part by part}."""

    arm: str
    digest: str
    best: Evidence
    worst: Evidence | None
    bound: bool
    why: str
    made_unix: float
    pass_s: Evidence | None = None
    bytes_s: Evidence | None = None
    c: Evidence | None = None
    c_bytes: Evidence | None = None
    disturbed: str = ""
    parts: dict | None = None

    def error(self, result: Result) -> float | None:
        """Predicted over measured, less one: of a step's time, of a round's where the arm drafts (how many drafts are
        right is no question of time). None for a floor, and where only a range was said."""
        if self.pass_s is None:
            return None if self.bound or self.worst is not None else self.best.si / result.tpot.si - 1
        tokens = 1.0 if result.accept is None else result.accept.value
        return self.pass_s.si / (result.tpot.si * tokens) - 1

    def text(self) -> str:
        """In milliseconds, for a table."""
        best = f"{self.best.to('ms').value:.2f}"
        if self.worst is not None:
            return f"{best} to {self.worst.to('ms').value:.2f}"
        return f"at least {best}" if self.bound else best

    def as_dict(self) -> dict:
        """JSON-ready."""
        return {n: v.as_dict() if isinstance(v, Evidence) else v for n, v in vars(self).items()}

    @classmethod
    def from_dict(cls, d: dict) -> "Foreseen":
        """The inverse of as_dict."""
        return cls(**{n: Evidence.from_dict(v) if isinstance(v, dict) and n != "parts" else v for n, v in d.items()})


def errors(foreseen: Mapping[str, Foreseen], results: Mapping[str, Result]) -> dict[str, float | None]:
    """Foreseen.error by arm, of those that were measured."""
    return {n: f.error(results[n]) for n, f in foreseen.items() if n in results and results[n].used}


def foresee(
    arms: Sequence[Arm],
    arm: Arm,
    seen: Mapping[str, Result],
    params: Params,
    context: int,
    read: Mapping[str, float] = NOTHING,
) -> Foreseen | None:
    """The prediction for one arm from the results of arms before it (`seen`, by name); None where bytes are not known
    or an arm that it needs was not measured. context: tokens that a step's account counts. read: as for by_parts."""
    if not machine.shape_known(arm.config):
        return None
    found = by_parts(arm, params, context, read)
    if found is not None:
        return found
    try:
        model = machine.model_of(params.replace(engine=arm.config, arms=None, arm=None, only=()))
        found = _by_expectation(arms, arm, seen, model, context)
    except BadInput:  # a shape that is not at hand: a hub id without its config
        return None
    return found and Foreseen(arm.name, arm.config.digest(), *found, time.time())


def by_parts(arm: "Arm | Loaded", params: Params, context: int, read: Mapping[str, float] = NOTHING) -> Foreseen | None:
    """The prediction for an arm whose passes can be predicted part by part, whatever came before; else None. read: B/s
    at which running engines read their weights alone, by digest of their configuration (labkit.measure.timed)."""
    made, spec = time.time(), arm.config.speculative
    if arm.expect == ladder.FAULT or (spec is not None and spec.topk != 1):
        return None
    model = steps.model_for(params.replace(engine=arm.config, arms=None, arm=None, only=()))
    if model is None:
        return None
    own = read.get(arm.config.digest())
    undrafted = arm.config.replace(speculative=None, simulate_acc_len=None)
    here, base = _at(model, own), _at(model, read.get(undrafted.digest(), own))
    plain, disturbed = base.plain(context), model.rates.disturbed
    busy = f"; rates {disturbed}" if disturbed else ""
    parts = {"bandwidth": own or model.rates.bandwidth, "plain": [asdict(p) for p in plain]}
    step, bytes_s = base.evidence(plain), base.evidence(plain, bytes_alone=True)
    known = {"disturbed": disturbed, "parts": parts}
    if spec is None:
        why = f"bytes alone {_ms(bytes_s)}, arithmetic and fixed parts the rest{busy}"
        return Foreseen(arm.name, arm.config.digest(), step, None, False, why, made, step, bytes_s, **known)
    round_ = here.round(context)
    parts["round"] = [asdict(p) for p in round_]
    whole, round_bytes_s = here.evidence(round_), here.evidence(round_, bytes_alone=True)
    c, c_bytes = whole / step, round_bytes_s / bytes_s
    tokens = count(spec.most, "1", f"{spec.most} tokens per round")
    why = (
        f"a round takes {_ms(whole)} (c = {c.value:.2f}; by bytes alone {c_bytes.value:.2f}) and yields"
        f" {spec.most} tokens if every draft is right, 1 if none is{busy}"
    )
    ends = whole / tokens, whole
    return Foreseen(arm.name, arm.config.digest(), *ends, False, why, made, whole, round_bytes_s, c, c_bytes, **known)


def _at(model, reading: float | None):
    """The model of an engine that reads its weights at this rate, B/s."""
    return model if reading is None else replace(model, reading=reading)


def _ms(e: Evidence) -> str:
    return f"{e.to('ms').value:.2f} ms"


def _by_expectation(arms, arm: Arm, seen, model: str, context: int):
    """(best, worst, bound, why) or None."""
    before = ladder.reference(arms, arm)
    base = seen.get(before.name) if before else None
    spec = arm.config.speculative
    if arm.expect == ladder.FAULT:
        plain = ladder.reference(arms, before) if before else None
        if base is None or plain is None or plain.name not in seen or base.accept is None:
            return None
        c = cost(base, seen[plain.name])
        why = f"a = 1: every round costs the c = {c.value:.2f} of {before.name} and yields one token"
        return formulas.fallback_tpot(seen[plain.name].tpot, c), None, False, why
    if before is None or (base is None and spec is None):
        step = machine.account(arm.config, context=context, model=model).evidence()
        bandwidth = machine.bandwidth("this", arm.config.threads or 1)
        return floors.floor_s(step, bandwidth), None, True, "bytes of a step over what memory sustains"
    if base is None:
        return None
    plain_step = machine.account(before.config, context=context, model=model).evidence()
    if spec is not None and before.config.speculative is None:
        c = machine.byte_cost(before.config, spec, context=context, model=model)
        ends = [formulas.predicted_tpot(base.tpot, count(a, "1", f"{a} tokens per round"), c) for a in (spec.most, 1)]
        why = f"c = {c.value:.2f} by bytes; {spec.most} tokens per round if every draft is right, 1 if none is"
        return *ends, False, why
    step = machine.account(arm.config, context=context, model=model).evidence()
    why = f"{before.name} times the bytes of a step: {step.to('MB').value:.2f} of {plain_step.to('MB').value:.2f} MB"
    return predictions.next_rung(base.tpot, plain_step, step), None, False, why
