"""The configurations of a sweep: expanded, checked one by one against the engine's own rules, each with a name."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from labkit.engines.config import EngineConfig
from labkit.engines.speculative import Speculative
from labkit.errors import BadInput
from labkit.fields import NOT_SHOWN, check
from labkit.measure.results import Arm
from labkit.params import COMMON, NOTEBOOKS, SWEEP, Params, Sampling, Sweep, common

LOAD = ("workload", "count", "prompt_tokens", "output_tokens", "seed", "shots", "sampling")  # as in Params.load()
MACHINE, THIS = "machine", "this"
AT_ONCE = ("concurrency", "clients", "rate")  # as labkit load calls what no block of a sweep measures
MOST = 10_000  # configurations of one sweep
_NO_DRAFTS = {"steps": 0, "topk": 0, "draft_tokens": 0}  # so that a condition can compare them


@dataclass(frozen=True)
class Point:
    """One configuration. fields: what it sets; arm: None where it cannot be measured, `skipped` then says why."""

    name: str
    fields: dict[str, Any]
    arm: Arm | None = None
    machine: str = THIS
    skipped: str = ""


@dataclass(frozen=True)
class Plan:
    """A checked sweep. baselines: by group, i.e. machine and load, the reference under that load."""

    params: Params
    sweep: Sweep
    points: tuple[Point, ...]
    baselines: dict[str, Point] = field(default_factory=dict)
    excluded: int = 0

    @property
    def measured(self) -> list[Point]:
        """Those that can be measured."""
        return [p for p in self.points if p.arm is not None]


def group(point: Point) -> str:
    """Equal for configurations that can be compared: one machine, one load."""
    return json.dumps([point.machine, point.arm.load], sort_keys=True)


def read(document: dict) -> Plan:
    """The plan of a params document with a `sweep` section. Raises BadInput naming the field, also where no single
    configuration is left. The same document always gives the same plan."""
    if document.get(SWEEP) is None:
        raise BadInput(SWEEP, None, "a section that says what to vary: grid, list (see labkit schema)")
    sweep = Sweep.checked(document[SWEEP], SWEEP)
    values = common({k: v for k, v in document.items() if k not in (SWEEP, NOTEBOOKS)})
    if values.get("arms") is not None or values.get("only"):
        raise BadInput(f"{COMMON}.arms", "a ladder", "no ladder beside `sweep`, which has configurations of its own")
    params = Params.checked(values)
    conditions = [_Condition(text, f"{SWEEP}.where[{i}]") for i, text in enumerate(sweep.where)]
    for where, fields in _said(sweep):
        for name, value in fields.items():
            _check(name, value, f"{where}.{name}", sweep)
    _of_machines(sweep)
    base = Point("baseline", dict(sweep.baseline), *_arm("baseline", sweep.baseline, params, sweep))
    seen: dict[str, str] = {}
    points, baselines, excluded, first = [], {}, 0, None
    for i, fields in enumerate(_combinations(sweep)):
        fields = {**sweep.baseline, **fields}
        if not all(c.holds(fields, params) for c in conditions):
            excluded += 1
            continue
        name = f"c{i + 1:03d}"
        try:
            arm, machine = _arm(name, fields, params, sweep)
        except BadInput as e:
            if e.value == NOT_SHOWN:  # a secret, and the whole document is kept with the sweep
                raise
            first = first or e
            points.append(Point(name, fields, None, str(fields.get(MACHINE, THIS)), str(e)))
            continue
        point = Point(name, fields, arm, machine)
        baselines.setdefault(group(point), _reference(point, base, sweep))
        same = seen.setdefault(json.dumps([group(point), arm.config.digest()]), name)
        why = f"to the engine the same as {same}" if same != name else ""
        points.append(Point(name, fields, None if why else arm, machine, why))
    if not any(p.arm for p in points):
        if first is not None:
            raise first
        raise BadInput(
            SWEEP, f"{excluded} excluded", "at least one configuration: grid or list, and conditions that it meets"
        )
    return Plan(params, sweep, tuple(points), baselines, excluded)


def _combinations(sweep: Sweep) -> Iterator[dict[str, Any]]:
    size = 1
    for values in sweep.grid.values():
        size *= len(values)
    if size + len(sweep.list) > MOST:
        raise BadInput(f"{SWEEP}.grid", f"{size} combinations", f"at most {MOST}")
    if sweep.grid:
        for values in itertools.product(*sweep.grid.values()):
            yield dict(zip(sweep.grid, values, strict=True))
    yield from map(dict, sweep.list)


def _said(sweep: Sweep) -> Iterator[tuple[str, dict[str, Any]]]:
    yield f"{SWEEP}.baseline", sweep.baseline
    for name, values in sweep.grid.items():
        yield from ((f"{SWEEP}.grid", {name: v}) for v in values)
    yield from ((f"{SWEEP}.list[{i}]", fields) for i, fields in enumerate(sweep.list))


def _check(name: str, value: object, where: str, sweep: Sweep) -> None:
    """A name that there is, and a value of its type; whether values fit each other is asked of the engine."""
    if name == MACHINE:
        if value != THIS and value not in sweep.machines:
            raise BadInput(where, value, "one of " + ", ".join([THIS, *sweep.machines]))
        return
    if name.startswith("env.") or name == "extra_args":
        whole = {"env": {name[4:]: "" if value is None else value}} if name != "extra_args" else {name: value}
        kind = "env" if name != "extra_args" else name
        check(_type(EngineConfig, kind), where.removesuffix(name) + kind, whole[kind])
        return
    if name in AT_ONCE:
        raise BadInput(
            where, value, "one request at a time: labkit load -f FILE --concurrency 1,4 asks several at once"
        )
    head, _, below = name.partition(".")
    model = {"speculative": Speculative, "sampling": Sampling}.get(head) if below else None
    if model is None:
        model, below = (Params if name in LOAD else EngineConfig), name
    if below not in model.model_fields or name == "env":
        accepted = [*LOAD, MACHINE, *EngineConfig.model_fields, "speculative.steps", "sampling.temperature", "env.NAME"]
        raise BadInput(where, value, "a field of the load or the engine: " + ", ".join(accepted))
    check(_type(model, below), where, value)


def _type(model: type, name: str) -> Any:
    found = model.model_fields[name]
    return Annotated[(found.annotation, *found.metadata)] if found.metadata else found.annotation


def _of_machines(sweep: Sweep) -> None:
    for name, fields in sweep.machines.items():
        for key in fields:
            if key not in ("url", "host", "port", "python", "command_prefix"):
                accepted = "how an engine is reached there: url, host, port, python, command_prefix"
                raise BadInput(f"{SWEEP}.machines.{name}.{key}", fields[key], accepted)


def _arm(name: str, fields: Mapping[str, Any], params: Params, sweep: Sweep) -> tuple[Arm, str]:
    """The configuration as an arm, and its machine. Raises BadInput where the engine would refuse or rewrite it."""
    machine = str(fields.get(MACHINE, THIS))
    engine, load = _split(fields, params)
    config = EngineConfig.from_dict({**engine, **sweep.machines.get(machine, {})})
    changed = Params.checked({**_given(params), **load, "engine": config})
    title = ", ".join(f"{k} {_word(v)}" for k, v in fields.items()) or "as the common settings have it"
    return Arm(name, title, config, changed), machine


def _reference(point: Point, base: Point, sweep: Sweep) -> Point:
    """The baseline under a configuration's load and on its machine."""
    config = EngineConfig.from_dict({**base.arm.config.given(), **sweep.machines.get(point.machine, {})})
    params = point.arm.params.replace(engine=config)
    return Point(base.name, base.fields, Arm(base.name, base.arm.title, config, params), point.machine)


def _split(fields: Mapping[str, Any], params: Params) -> tuple[dict, dict]:
    """(engine section, load) with these fields in place."""
    engine, load = json.loads(json.dumps(params.engine.given())), {}
    if params.sampling is not None:
        load["sampling"] = params.sampling.given()
    for name, value in fields.items():
        head, _, below = name.partition(".")
        side = load if head in LOAD else engine
        if name == MACHINE:
            continue
        if name == "extra_args":
            engine[name] = [*engine.get(name, []), *value]
        elif not below:
            side[name] = value
        else:
            inner = dict(side.get(head) or {}) | {below: value}
            side[head] = {k: v for k, v in inner.items() if head != "env" or v is not None}
    return engine, load


def _given(params: Params) -> dict:
    return {n: getattr(params, n) for n in params.model_fields_set}


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class _Condition:
    """An expression over the fields of a configuration, in Jinja's sandbox: comparisons, and, or, not, in, sums."""

    def __init__(self, text: str, where: str):
        self._text, self._where = text, where
        try:
            sandbox = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
            self._holds = sandbox.compile_expression(text, undefined_to_none=False)
        except TemplateError as e:
            raise BadInput(where, text, f"an expression ({e.message})") from None

    def holds(self, fields: Mapping[str, Any], params: Params) -> bool:
        """Raises BadInput where the expression asks for a field that there is not, or compares what cannot be."""
        engine, load = _split(fields, params)
        defaults = {n: f.get_default(call_default_factory=True) for n, f in EngineConfig.model_fields.items()}
        known = {**defaults, **engine, **params.load(), **load, MACHINE: fields.get(MACHINE, THIS)}
        known["speculative"] = _NO_DRAFTS | dict(known["speculative"] or {})
        try:
            return bool(self._holds(**known))
        except (TemplateError, TypeError, ArithmeticError) as e:
            raise BadInput(self._where, self._text, f"a condition on fields of a configuration ({e})") from None


def label(point: Point) -> str:
    """The fields of a configuration's load that the sweep varies, in words; "" for the common load."""
    return ", ".join(f"{k} {_word(v)}" for k, v in point.fields.items() if k.partition(".")[0] in LOAD)
