"""Numbers of a draft setting as settings of a notebook, and the rule that they keep among themselves."""

from collections.abc import Mapping

from labkit.engines.config import Speculative
from labkit.measure.results import Result
from labkit.notebook.settings import Setting, of_engine

PLAIN = "plain"  # the arm without drafting, whatever its ladder calls it
NUMBERS = {"steps": "draft steps", "topk": "topk", "draft_tokens": "draft tokens"}


def numbers(spec: Speculative) -> list[str]:
    """The numbers that this kind of drafting has."""
    return [n for n in NUMBERS if getattr(spec, n) is not None]


def settings(engine: str, spec: Speculative) -> list[Setting]:
    """The same as settings, in the ranges that the engine declares."""
    return [of_engine(engine, f"speculative.{n}", NUMBERS[n]) for n in numbers(spec)]


def of(spec: Speculative, given: Mapping[str, object]) -> Speculative:
    """The same drafting with other numbers; draft_tokens None: any, to ask for `largest`."""
    if spec.draft_tokens is not None and given.get("draft_tokens") is None:
        given = {**given, "draft_tokens": 2}
    return Speculative.checked({**spec.model_dump(), **given})


def ruled(spec: Speculative, given: Mapping[str, object]) -> Speculative:
    """The same with the rule applied: a chain verifies all that it drafts, a tree no more than it has."""
    if "steps" in given and "draft_tokens" in given:
        most = of(spec, {**given, "draft_tokens": None}).largest
        given = {**given, "draft_tokens": most if given["topk"] == 1 else min(given["draft_tokens"], most)}
    return of(spec, given)


def at(spec: Speculative, given: Mapping[str, object], wanted: Mapping[str, object]) -> Speculative:
    """The numbers of `given` with those that are wanted in their place, which no rule changes: what an engine would
    rewrite stays as it was asked for, and the engine's own check refuses it."""
    own = {n: wanted.get(n, given[n]) for n in numbers(spec)}
    return of(spec, own) if "draft_tokens" in wanted else ruled(spec, own)


def title(s: Speculative) -> str:
    """What a round does, in words."""
    if s.steps is None:
        return f"{s.algorithm}, {s.draft_tokens} tokens verified"
    if s.topk is None:
        return f"{s.algorithm}, at most {s.steps} draft{'s' if s.steps > 1 else ''} a round"
    what = "chain" if s.topk == 1 else f"tree of topk {s.topk}"
    return f"{s.steps} draft step{'s' if s.steps > 1 else ''}, {what}, {s.draft_tokens} tokens verified"


def verified(r: Result) -> int:
    """Tokens that a round of this result verifies."""
    return r.arm.config.speculative.verified
