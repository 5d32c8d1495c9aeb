"""A ladder is data: named arms, each the arm before it (or another one) plus a change. Nothing in code names an arm.

A params file lists the arms; without a list an engine's own ladder is taken (engines/ladders/ENGINE.yaml).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Annotated

import yaml
from pydantic import AfterValidator, Field

from labkit.engines.config import Argument, EngineConfig, Speculative
from labkit.errors import BadInput
from labkit.fields import Model, Text, list_of, one_of, refuse

# What an arm should do to a token's time, and so what it is judged by.
NOTHING = "nothing"  # a reference, or a control
FASTER = "same bytes, better kernels"
BYTES = "fewer bytes"
DRAFTING = "a > c"  # tokens that a round yields over plain steps that it costs
FAULT = "a silent fault"  # broken on purpose: slower, and no error says so
EXPECT = (NOTHING, FASTER, BYTES, DRAFTING, FAULT)


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", value):
        raise refuse("a name of letters, digits and . _ + -")
    return value


Name = Annotated[str, Field(max_length=40), AfterValidator(_name)]


class Step(Model):
    """One arm as a params file has it.

    from      the arm that it changes; by default the one before it, for the first the engine section itself
    set       fields of the engine's configuration; env: variables (null takes one out); extra_args: added at the end
    title     in a few words; {field} stands for a setting, as in "draft steps: {speculative.steps}"; by default the
              change itself
    expect    one of EXPECT
    also      other words for it, e.g. in `labkit check --expect`
    reported  the published result beside it, by its id in the catalog
    """

    name: Name
    from_: Name | None = Field(None, alias="from")
    title: Text | None = None
    expect: one_of(*EXPECT) = NOTHING
    set: dict[str, object] = Field(default_factory=dict)
    env: dict[str, str | int | float | None] = Field(default_factory=dict)
    extra_args: list_of(Argument) = ()
    also: list_of(Name) = ()
    reported: Text | None = None

    def as_dict(self) -> dict:
        """As a params file has it."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class _File(Model):
    arms: list_of(Step, least=1)


@dataclass(frozen=True)
class Arm:
    """One thing to measure: its configuration, what it should do, and the arm that it changes (None: the first)."""

    name: str
    title: str
    config: EngineConfig
    expect: str = NOTHING
    before: str | None = None
    reported: str | None = None


@cache
def shipped(engine: str) -> tuple[Step, ...]:
    """The engine's own ladder."""
    text = files("labkit.engines").joinpath("ladders", f"{engine}.yaml").read_text(encoding="utf-8")
    return _File.checked(yaml.safe_load(text), f"ladders/{engine}").arms


def arms(engine: EngineConfig, steps: Sequence[Step] | None = None) -> list[Arm]:
    """The arms of a ladder over an engine section, in order. steps None: the engine's own ladder.

    With the engine's own ladder, `engine.speculative` is the setting of the arms that draft. Any other field of the
    engine section that an arm sets otherwise is refused (BadInput), as is an arm that changes nothing though it expects
    to: what is asked for once cannot be said twice.
    """
    where = "arms" if steps is not None else "arms (the engine's own)"
    chosen = list(shipped(engine.engine) if steps is None else steps)
    if steps is None and engine.speculative is not None:
        engine, chosen = _drafts_as_asked(engine, chosen)
    _said_once(engine, chosen)
    out: dict[str, Arm] = {}
    for i, step in enumerate(chosen):
        at = f"{where}[{i}]"
        if step.name in out:
            raise BadInput(f"{at}.name", step.name, "each name once")
        before = step.from_ or next(reversed(out), None)
        if step.from_ is not None and step.from_ not in out:
            raise BadInput(f"{at}.from", step.from_, "an arm above it" + (f": {', '.join(out)}" if out else ""))
        base = out[before].config if before else engine
        config = _changed(base, step, at)
        if before and step.expect != NOTHING and config.digest() == base.digest():
            raise BadInput(f"{at}.set", step.as_dict().get("set"), f"a change: {before} already has these settings")
        title = _filled(step.title, config, at) if step.title else _change(step) or "as the engine section has it"
        out[step.name] = Arm(step.name, title, config, step.expect, before, step.reported)
    return list(out.values())


def choose(found: Sequence[Arm], names: Iterable[str] = ()) -> list[Arm]:
    """The arms of these names, in the ladder's order; without names all that are not broken on purpose. Each one's
    `before` is the nearest of them that leads to it. Raises BadInput for an unknown name."""
    names = list(names)
    for name in names:
        get(found, name)
    chosen = [a for a in found if (a.name in names if names else a.expect != FAULT)]
    kept = {a.name for a in chosen}
    return [replace(a, before=_nearest(found, a, kept)) for a in chosen]


def _nearest(found: Sequence[Arm], arm: Arm, kept: set[str]) -> str | None:
    by_name = {a.name: a.before for a in found}
    before = arm.before
    while before is not None and before not in kept:
        before = by_name.get(before)
    return before


def get(found: Sequence[Arm], name: str, field: str = "arm") -> Arm:
    """The arm of a name. Raises BadInput naming those that there are."""
    arm = next((a for a in found if a.name == name), None)
    if arm is None:
        raise BadInput(field, name, "one of " + ", ".join(a.name for a in found))
    return arm


def first(found: Sequence[Arm], expect: str) -> Arm:
    """The first arm that expects this. Raises BadInput naming what there is."""
    arm = next((a for a in found if a.expect == expect), None)
    if arm is None:
        there = ", ".join(f"{a.name} ({a.expect})" for a in found)
        raise BadInput("arms", there, f'an arm that expects "{expect}"')
    return arm


def word(expect: str, engine: str = "sglang") -> str:
    """The name of the arm of an engine's own ladder that expects this. Raises BadInput as `first` does."""
    return first(shipped(engine), expect).name


def reference(found: Sequence[Arm], arm: Arm) -> Arm | None:
    """The arm that this one changes, and so is compared with; None for the first."""
    return next((a for a in found if a.name == arm.before), None)


def words() -> dict[str, set[str]]:
    """Every word for an arm of the shipped ladders: word -> engines that know it."""
    out: dict[str, set[str]] = {}
    for path in files("labkit.engines").joinpath("ladders").iterdir():
        engine = path.name.removesuffix(".yaml")
        for step in shipped(engine):
            for word in (step.name, *step.also):
                out.setdefault(word, set()).add(engine)
    return out


def asked(engine: str, names: Iterable[str]) -> dict[str, object]:
    """What these words for arms of an engine's own ladder ask for: field -> value, each arm its own change.

    An arm that expects nothing also asks for no drafting, unless another one does.
    """
    out: dict[str, object] = {}
    for name in names:
        step = next((s for s in shipped(engine) if name in (s.name, *s.also)), None)
        if step is None:
            raise BadInput("expect", name, "one of " + ", ".join(s.name for s in shipped(engine)))
        if step.expect == NOTHING:
            out.setdefault("speculative", None)
        out |= step.set
    return out


def _changed(base: EngineConfig, step: Step, at: str) -> EngineConfig:
    env = {**base.env, **step.env}
    changes = {
        **step.set,
        "env": {k: v for k, v in env.items() if v is not None},
        "extra_args": [*base.extra_args, *step.extra_args],
    }
    for name in ("env", "extra_args"):
        if name in step.set:
            raise BadInput(f"{at}.set.{name}", step.set[name], f"nothing: {name} stands beside `set`, and adds")
    if not changes["env"]:
        del changes["env"]
    if not changes["extra_args"]:
        del changes["extra_args"]
    given = {n: getattr(base, n) for n in base.model_fields_set}
    return EngineConfig.from_dict({**{k: v for k, v in given.items() if k != "env"}, **changes}, f"{at}.set")


def _drafts_as_asked(engine: EngineConfig, steps: list[Step]) -> tuple[EngineConfig, list[Step]]:
    spec = engine.speculative.model_dump(exclude_defaults=True)
    own = [s.model_copy(update={"set": {**s.set, "speculative": spec}}) if "speculative" in s.set else s for s in steps]
    left = {n: getattr(engine, n) for n in engine.model_fields_set - {"speculative"}}
    # A simulated accept length belongs to drafting, and goes where it goes.
    if "simulate_acc_len" in left:
        length = left.pop("simulate_acc_len")
        own = [
            s.model_copy(update={"set": {**s.set, "simulate_acc_len": length}}) if "speculative" in s.set else s
            for s in own
        ]
    return EngineConfig.from_dict(left), own


def _said_once(engine: EngineConfig, steps: Sequence[Step]) -> None:
    given = engine.given()
    for step in steps:
        for name, value in step.set.items():
            if name in given and given[name] != _plain(value):
                accepted = f"nothing here: the arm {step.name} sets it to {value!r}; change that arm instead"
                raise BadInput(f"engine.{name}", given[name], accepted)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _filled(title: str, config: EngineConfig, at: str) -> str:
    def setting(found: re.Match) -> str:
        name, _, below = found[1].partition(".")
        if name not in EngineConfig.model_fields or (below and below not in Speculative.model_fields):
            raise BadInput(f"{at}.title", title, "in braces only fields of the engine's configuration")
        return str(config.value(found[1]))

    return re.sub(r"\{([a-z_]+(?:\.[a-z_]+)?)\}", setting, title)


def _change(step: Step) -> str:
    parts = [word for name, value in {**step.set, **step.env}.items() for word in _said(name, value)]
    return ", ".join([*parts, *([" ".join(step.extra_args)] if step.extra_args else [])])


def _said(name: str, value: object) -> list[str]:
    if isinstance(value, dict):
        return [f"{name}.{below} {item}" for below, item in value.items()]
    return [f"{name} {', '.join(map(str, value)) if isinstance(value, (list, tuple)) else value}"]
