"""Checks and candidates of arms that were measured: the same for the ladder's table, the notebooks and the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from labkit.checks import benefit, causes, known
from labkit.checks.benefit import Side
from labkit.checks.causes import Benefit
from labkit.checks.check import FAIL, Check
from labkit.checks.checks import of_config
from labkit.checks.observed import Observed
from labkit.engines import ladder
from labkit.engines.adapter import not_in_effect, options
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.measure import estimates, machine
from labkit.measure.results import Result


def configuration(result: Result, log: str | Path | None = None) -> list[Check]:
    """Is what this arm's configuration asked for in effect, by the server's description, its log and these requests?"""
    text = None
    if log is not None and Path(log).is_file():
        text = Path(log).read_text(encoding="utf-8", errors="replace")
    env = dict(result.arm.config.env)
    return of_config(
        Observed(result.info, text, tuple(r for r in result.rows if r["repeat"] >= 0), env), result.arm.config
    )


def at_start(result: Result, log: str | Path | None = None) -> list[str]:
    """A sentence for each option of this arm that is not in effect on its engine, by description and log alone: what
    can be told before anything is measured."""
    failed = [c for c in configuration(result, log) if c.verdict == FAIL and not c.name.startswith("option ")]
    own = not_in_effect(result.arm.config, result.info)
    return own + [f"{c.name}: asked {c.asked}, seen {c.seen} ({c.where})" for c in failed]


def side(result: Result) -> Side:
    """The arm for benefit checks, with its byte floor on this machine where the model's shape is known."""
    floor = None
    config = result.arm.config
    if config.engine == "pocket" and config.speculative is None and result.used:
        try:
            step = machine.account(config, context=result.context, model=machine.model_of(result.arm.params))
            floor = step.total_bytes / machine.bandwidth("this", config.threads).si
        except BadInput:
            pass
    return Side(result.name, result.rows, result.info, floor, known_accept(result.rows, result.info))


def known_accept(rows: Sequence[Mapping], info: Mapping) -> known.Known | None:
    """The accept length known for these requests, where they are all of one load."""
    loads = {(r.get("workload"), bool(r.get("temperature"))) for r in rows if r["repeat"] >= 0}
    return known.accept(info, *loads.pop()) if len(loads) == 1 else None


def step(
    after: Result,
    before: Result,
    *,
    expect: str = ladder.NOTHING,
    checks: Sequence[Check] = (),
    again: str | None = None,
) -> Benefit:
    """Did `after` pay against `before`, and if not, what may be the cause. expect: what the ladder says of the arm.

    checks: its configuration checks. again: the command that measures both again.
    """
    engine = after.arm.config.engine

    def has(field: str) -> bool:
        """Whether the engine has this to set; an attached server may."""
        return engine == "attach" or field in options(engine)

    prompts = [{r.get("prompt_sha256") for r in r.used} for r in (after, before)]
    dead = [c for c in benefit.alone(side_of_rows(after)) if c.name.endswith("later draft positions")]
    named = [Check("later draft positions", c.asked, c.seen, c.where, c.verdict, c.note) for c in dead]
    return causes.judge(
        f"{after.name} against {before.name}",
        estimates.compare(after.used, before.used, seed=before.arm.params.seed),
        expect=expect,
        fp8_head=after.arm.config.fp8_lm_head,
        same_prompts=prompts[0] == prompts[1],
        sampled=any(r.get("temperature") for r in after.used),
        spread=max(r.estimates.tpot.spread for r in (after, before)),
        disturbed=_disturbed(after, before),
        gpu=engine in ("sglang", "attach"),
        head=has("fp8_lm_head"),
        moe=has("moe_runner_backend"),
        draft_layer=_drafts_by_a_layer(after.arm.config),
        checks=[*checks, *named],
        again=again,
    )


def _drafts_by_a_layer(config: EngineConfig) -> bool:
    spec = config.speculative
    return spec is None or not (spec.from_text or spec.draft_model_path)


def _disturbed(*results: Result) -> bool | None:
    """Whether an engine had to wait for a core; None where none of them reports its thread's time."""
    if not any(row.get("thread_cpu_s") for r in results for row in r.used):
        return None
    return any(w.startswith("disturbed") for r in results for w in r.warnings)


def side_of_rows(result: Result) -> Side:
    """The arm by its rows alone."""
    return Side(result.name, result.rows, result.info)
