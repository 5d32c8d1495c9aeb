"""Typed, validated parameters of a run: engine, load and plan. The same names in YAML, papermill and panels."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from labkit import fields as check
from labkit.engines.config import EngineConfig
from labkit.engines.ladder import RUNGS
from labkit.engines.ladder import name as rung_name
from labkit.errors import BadInput


@dataclass(frozen=True)
class Params:
    """One run. Units: seconds, tokens. `output_tokens` None lets the model stop by itself (at most 512 tokens).

    workload   a name that labkit.workloads.load knows
    count      distinct prompts; every repeat and every arm uses the same ones
    repeats    measured passes over the prompts; warmup requests before them are not counted
    rungs      which rungs `labkit ladder` and the notebooks climb
    out_dir    parent of the run's directory
    extra      fields that a notebook adds, checked by its own schema (see `load_params`)
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    workload: str = "word-problems"
    count: int = 4
    repeats: int = 5
    warmup: int = 2
    prompt_tokens: int | None = None
    output_tokens: int | None = 192
    seed: int = 1
    rungs: tuple[str, ...] = RUNGS
    out_dir: str = "outputs"
    tokenizer: str | None = None
    timeout_s: float = 300.0
    extra: dict[str, object] = field(default_factory=dict)

    def as_dict(self) -> dict:
        """JSON- and YAML-ready; `load_params` of it gives the same Params (extra fields stand at top level)."""
        out = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "extra"}
        out["engine"] = self.engine.as_dict()
        out["rungs"] = list(self.rungs)
        return {**out, **{k: list(v) if isinstance(v, tuple) else v for k, v in self.extra.items()}}

    def load(self) -> dict:
        """What the engine is asked to do, apart from which engine it is: the load part of a store's key."""
        names = ("workload", "count", "prompt_tokens", "output_tokens", "seed")
        return {n: getattr(self, n) for n in names}


def _rung(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadInput(name, value, "one of " + ", ".join(RUNGS))
    return rung_name(value)


KNOWN: dict[str, check.Check] = {
    "engine": lambda name, value: EngineConfig.from_dict(value, name),
    "workload": check.text,
    "count": check.integer(1, 10_000),
    "repeats": check.integer(1, 1000),
    "warmup": check.integer(0, 100),
    "prompt_tokens": check.optional(check.integer(4, 1 << 20)),
    "output_tokens": check.optional(check.integer(2, 1 << 20)),
    "seed": check.integer(0, 2**31 - 1),
    "rungs": check.list_of(_rung, least=1),
    "out_dir": check.text,
    "tokenizer": check.optional(check.text),
    "timeout_s": check.real(1, 86400),
}


def load_params(source: str | Path | dict, also: dict[str, check.Check] | None = None, **changes: object) -> Params:
    """Validate a YAML file or a mapping into Params; `changes` override it (a notebook's or a command line's values).

    `also` names further fields and their checks; they land in `Params.extra`. Raises BadInput naming the field, its
    value and what is accepted, for unknown names too. Environment: nothing is read from it.
    """
    given = dict(source) if isinstance(source, dict) else read_yaml(Path(source))
    given.pop("notebooks", None)  # a file's section of single notebooks' values: labkit.batch reads it
    given.update({k: v for k, v in changes.items() if v is not None})
    known = {**KNOWN, **(also or {})}
    got = check.mapping("", given, known)
    extra = {k: got.pop(k) for k in list(got) if k not in KNOWN}
    return Params(**got, extra=extra)


def dump_params(params: Params, path: str | Path) -> None:
    """Write YAML that `load_params` and papermill read back into exactly these parameters."""
    import yaml

    Path(path).write_text(yaml.safe_dump(params.as_dict(), sort_keys=False), encoding="utf-8")


def read_yaml(path: Path) -> dict:
    """A YAML file as a mapping, {} when it is empty. Raises BadInput for a missing, malformed or other document."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput("params", str(path), "an existing YAML file") from None
    except yaml.YAMLError as e:
        where = getattr(e, "problem_mark", None)
        line = f"line {where.line + 1}: " if where else ""
        raise BadInput("params", str(path), f"valid YAML ({line}{getattr(e, 'problem', e)})") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadInput("params", str(path), "a YAML mapping of names to values")
    return document
