"""Typed, validated parameters of a run: engine, arms, load and plan. The same names in YAML, papermill and panels."""

from pathlib import Path
from typing import Any

from pydantic import Field

from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.fields import Flag, Model, Text, list_of, real, whole

COMMON, NOTEBOOKS, SWEEP = "common", "notebooks", "sweep"  # the sections of a params file
ROOT = "LABKIT_ROOT"  # the variable with the folder that relative paths in a notebook's parameters count from


class Sampling(Model):
    """How tokens are drawn, in SGLang's names; what is not given is the load's own. temperature 0 is greedy."""

    temperature: real(0, 5) | None = None
    top_p: real(0.01, 1) | None = None
    top_k: whole(-1, 1 << 20) | None = None
    min_p: real(0, 1) | None = None

    def given(self) -> dict[str, float]:
        """What was given, as a request has it."""
        return self.model_dump(exclude_none=True)


class Params(Model):
    """One run. Units: seconds, tokens. `output_tokens` None lets the model stop by itself (at most 512 tokens).

    arms       what is measured: see labkit.engines.ladder.Step; None: the engine's own ladder
    only       names of the arms that `labkit ladder` measures; empty: all that are not broken on purpose
    arm        the arm that a notebook is about; None: the first whose `expect` is the notebook's subject
    workload   a name that labkit.workloads.load knows
    count      distinct prompts; every repeat and every arm uses the same ones
    repeats    measured passes over the prompts; warmup requests before them are not counted
    sampling   instead of the load's own sampling
    shots      worked examples before each question of gsm8k; None: 5, on the pocket model none
    keep_answers  keep the text of every answer in the record (at most 20,000 characters each)
    out_dir    parent of the run's directory
    """

    engine: EngineConfig = Field(default_factory=EngineConfig)
    arms: list_of(ladder.Step, least=1) | None = None
    only: list_of(ladder.Name) = ()
    arm: ladder.Name | None = None
    workload: Text = "word-problems"
    count: whole(1, 10_000) = 4
    repeats: whole(1, 1000) = 5
    warmup: whole(0, 100) = 2
    prompt_tokens: whole(4, 1 << 20) | None = None
    output_tokens: whole(2, 1 << 20) | None = 192
    seed: whole(0, 2**31 - 1) = 1
    sampling: Sampling | None = None
    shots: whole(0, 64) | None = None
    keep_answers: Flag = True
    out_dir: Text = "outputs"
    tokenizer: Text | None = None
    timeout_s: real(1, 86400) = 300.0

    def as_dict(self) -> dict:
        """JSON- and YAML-ready; `load_params` of it gives the same Params."""
        out = self.model_dump(mode="json", exclude={"engine", "arms"})
        arms = None if self.arms is None else [a.as_dict() for a in self.arms]
        return {"engine": self.engine.given(), "arms": arms, **out}

    def ladder(self) -> list[ladder.Arm]:
        """The arms of these parameters, in order. Raises BadInput."""
        return ladder.arms(self.engine, self.arms)

    def load(self) -> dict:
        """What the engine is asked to do, apart from which engine it is: the load part of a store's key."""
        names = ("workload", "count", "prompt_tokens", "output_tokens", "seed", "shots")
        return {n: getattr(self, n) for n in names} | {"sampling": self.sampling and self.sampling.given()}

    @property
    def context(self) -> int:
        """Tokens of context half-way through an answer: what a step's account counts before anything is measured. A
        prompt or an answer without a fixed length is taken as one of 150 or 256 tokens."""
        return (self.prompt_tokens or 150) + (self.output_tokens or 256) // 2

    def replace(self, **changes: object) -> "Params":
        """A checked copy with some fields changed."""
        return Params.checked({**{n: getattr(self, n) for n in self.model_fields_set}, **changes})


class Sweep(Model):
    """What `labkit sweep` varies. A field belongs to the load (workload, prompt_tokens, sampling.temperature ...) or to
    the engine (fp8_lm_head, speculative.steps, env.NAME, extra_args, model ...), or is `machine`.

    grid       field -> its values: every combination of them is one configuration
    list       further configurations, each a mapping of fields
    where      conditions that a configuration meets, as in "speculative.steps < 4 or not fp8_lm_head"; all must hold
    baseline   fields of the reference that every block measures again; by default the common settings as they are
    machines   name -> engine fields that reach it (url, host, python, command_prefix); `machine` takes these names
    block      configurations that are measured together with one baseline
    answers    questions with known answers that every configuration is asked once, for its accuracy; 0: none
    seed       of the order
    """

    grid: dict[Text, list_of(Any, least=1)] = Field(default_factory=dict)
    list: list_of(dict[str, Any]) = ()
    where: list_of(Text) = ()
    baseline: dict[str, Any] = Field(default_factory=dict)
    machines: dict[Text, dict[str, Any]] = Field(default_factory=dict)
    block: whole(1, 64) = 6
    answers: whole(0, 10_000) = 0
    seed: whole(0, 2**31 - 1) = 1


def load_params(source: str | Path | dict, **changes: object) -> Params:
    """Validate a params file or a mapping into Params; `changes` that are not None (a command line's) override it.

    Of a file's sections, `common` is read here, `notebooks` by labkit.batch and `sweep` by labkit.measure.sweep; names
    outside of them count as common. Raises BadInput naming the field, its value and what is accepted, for unknown
    names too; Params.ladder says whether the arms fit the engine. Environment: nothing is read from it.
    """
    given = common(source if isinstance(source, dict) else read_yaml(Path(source)))
    return Params.checked({**given, **{k: v for k, v in changes.items() if v is not None}})


def common(document: dict) -> dict:
    """The common values of a document. Raises BadInput for a section that is no mapping, or a name given twice."""
    section = document.get(COMMON) or {}
    if not isinstance(section, dict):
        raise BadInput(COMMON, section, "a mapping of names to values")
    loose = {k: v for k, v in document.items() if k not in (COMMON, NOTEBOOKS, SWEEP)}
    for name in loose:
        if name in section:
            raise BadInput(str(name), loose[name], f"one place: it stands in {COMMON} too")
    return {**section, **loose}


def read_yaml(path: Path) -> dict:
    """A YAML file as a mapping, {} when it is empty. Raises BadInput for a missing, malformed or other document."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput("params", str(path), "an existing YAML file") from None
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput("params", str(path), f"a YAML file that can be read ({e})") from None
    except yaml.YAMLError as e:
        where = getattr(e, "problem_mark", None)
        line = f"line {where.line + 1}: " if where else ""
        raise BadInput("params", str(path), f"valid YAML ({line}{getattr(e, 'problem', e)})") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadInput("params", str(path), "a YAML mapping of names to values")
    return document


def schema() -> dict:
    """JSON schema of a params file, for editors: completion, help and red lines while typing."""
    inner = Params.model_json_schema(by_alias=True)
    definitions = inner.pop("$defs")
    swept = Sweep.model_json_schema()
    sections = {
        COMMON: {**inner, "description": "values of every notebook and command"},
        SWEEP: swept,
        NOTEBOOKS: {"type": "object", "additionalProperties": {"type": "object"}, "description": "of single notebooks"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "labkit params",
        "type": "object",
        "properties": sections,
        "additionalProperties": False,
        "$defs": definitions,
    }
