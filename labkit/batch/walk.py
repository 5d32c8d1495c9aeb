"""The optimisation walk: every arm of a ladder measured once, in turns, in one record that the notebooks then read.

Before an arm is asked anything, what it should cost is said and kept (labkit.measure.foresight). Those predictions rest
on a pilot: one pass of each arm as it is started, in a record of its own. What is shown as measured comes from the
walk's record alone, in which all arms alternate.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from labkit.batch import run as batch
from labkit.batch import schema
from labkit.checks import judged
from labkit.engines import ladder, turn
from labkit.errors import BadInput
from labkit.measure import machine
from labkit.measure.forecast import Forecast
from labkit.measure.foresight import Foreseen, by_parts, errors, foresee
from labkit.measure.plan import Block
from labkit.measure.pool import Pool, together
from labkit.measure.results import Arm, Result
from labkit.measure.runner import Runner
from labkit.measure.timed import readings
from labkit.notebook.experiment import Experiment
from labkit.notebook.given import settle
from labkit.params import Params, common
from labkit.records import RunWriter
from labkit.records.writer import new_directory

NOTEBOOK_S = 6.0  # a kernel that reads a record, draws its figures and ends, on two cores
REPORT_S = 4.0
Tell = Callable[[str, float | None], None]  # what happens now, seconds that are left


@dataclass
class Walk:
    """What a walk left. arms: of the ladder, in order; results: of the walk's record by the ladder's names; extra: what
    the experiments asked of the running engines."""

    run: batch.Executed
    params: Params
    arms: list[ladder.Arm]
    record: Path
    foreseen: dict[str, Foreseen] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    extra: dict = field(default_factory=dict)
    seconds: float = 0.0


class _Gathering(Pool):
    """A pool that stops no engine when another one joins."""

    def ensure(self, configs, run_dir, **how):
        wanted = {c.digest() for c in configs}
        others = [e.config for e in self.running() if e.config.digest() not in wanted]
        return super().ensure([*others, *configs], run_dir, **how)[len(others) :]


def walk(
    notebooks: Sequence[Path],
    given: dict,
    out_dir: Path,
    tell: Tell,
    *,
    cell_timeout_s: int = batch.CELL_TIMEOUT_S,
    wait_s: float = turn.WAIT_S,
) -> Walk:
    """Measure, then execute the notebooks on the record. `given`: a parameters document.

    Raises BadInput before anything starts, Busy, EngineFailed and whatever labkit.measure.runner.Runner.run raises:
    rows that were measured are kept.
    """
    began = time.monotonic()
    plans = batch.checked(list(notebooks), given, {})
    params = Params.checked(common(given))
    experiments = [_experiment(n, values) for n, values in plans]
    arms = params.ladder()
    wanted = _every(arms, params, experiments)
    urls = [a.config.url for a in arms if a.config.url]
    with turn.turn("the walk", wait_s, lambda text: tell(text, None), urls):
        done = batch.Executed(batch.fresh(out_dir, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-walk"))
        out = Walk(done, params, arms, done.directory / "records")
        pool = _Gathering() if together([a.config for a in wanted]) else Pool()
        try:
            _measure(out, wanted, experiments, pool, len(plans), tell)
        finally:
            pool.stop()
        each = NOTEBOOK_S
        for i, (notebook, values) in enumerate(plans):
            tell(f"{notebook.stem}: reading the record, drawing", each * (len(plans) - i) + REPORT_S)
            values = {**values, "record": os.path.relpath(out.record), "out_dir": os.path.relpath(out.record.parent)}
            outcome = batch.execute(
                notebook, done.directory / notebook.name, values, cell_timeout_s, wait_s, quiet=True
            )
            done.outcomes.append(outcome)
            each = sum(o.seconds for o in done.outcomes) / len(done.outcomes)
    out.seconds = time.monotonic() - began
    return out


def _experiment(notebook: Path, values: dict) -> Experiment:
    """What the notebook's kernel will build from these values, here."""
    from labkit.notebook.experiments import baseline, fallback, fp8_head, kernels, mtp

    kinds = (baseline.Baseline, kernels.Kernels, fp8_head.Fp8Head, mtp.Mtp, fallback.Fallback)
    kind = next((k for k in kinds if k.name == notebook.stem), None)
    if kind is None:
        raise BadInput("notebook", notebook.stem, "one of " + ", ".join(k.name for k in kinds))
    defaults = {name: p.default for name, p in schema.parameters_of(notebook).items()}
    return kind(**settle(kind.name, {**defaults, **values}, []))


def _asked(e: Experiment) -> list[Arm]:
    return e.sweep() or e.arms()


def _every(arms: Sequence[ladder.Arm], params: Params, experiments: Sequence[Experiment]) -> list[Arm]:
    """Every arm of ladder and notebooks, each setting once: what several ask for is measured once."""
    out: dict[str, Arm] = {}
    names: set[str] = set()
    mine = [Arm.of(a, params.replace(engine=a.config, arms=None, arm=None, only=())) for a in arms]
    for arm in (*mine, *(a for e in experiments for a in _asked(e))):
        if arm.setting in out:
            continue
        name = arm.name if arm.name not in names else f"{arm.name}, {arm.params.workload}"
        names.add(name)
        out[arm.setting] = replace(arm, name=name)
    return list(out.values())


def _measure(out: Walk, wanted: list[Arm], experiments, pool: Pool, notebooks: int, tell: Tell) -> None:
    """Predict and pilot arm by arm, then all in turns."""
    after_s = notebooks * NOTEBOOK_S + REPORT_S + sum(e.after_seconds() for e in experiments)
    runner = Runner(pool, check=judged.at_start)
    main = runner.plan(wanted)
    first_guess = Forecast(pool, {})
    on_ladder = wanted[: len(out.arms)]
    tell("reading this machine's memory", runner.forecast(main)[0] + after_s)
    threads = out.params.engine.threads or 1
    machine.bandwidth("this", threads)
    seen: dict[str, Result] = {}
    read: dict[str, float] = {}  # B/s at which engines read their weights, by digest
    context = out.params.context
    with RunWriter(new_directory(out.record, "pilot"), out.params.as_dict(), label="walk, pilot") as writer:
        for i, (arm, asked) in enumerate(zip(out.arms, on_ladder, strict=True)):
            found = foresee(out.arms, arm, seen, out.params, context)
            if found is not None and found.parts is not None:  # what its own memory makes of it
                read |= readings(pool, [asked.config], writer.directory)
                found = foresee(out.arms, arm, seen, out.params, context, read)
            if found is not None:
                out.foreseen[arm.name] = found
            left = sum(first_guess.request(a) * a.params.count for a in on_ladder[i:])
            for progress in runner.run([Block([asked], 1)], writer):
                tell(f"{arm.name}: {progress.text}", runner.forecast(main)[0] + left + after_s)
            seen[arm.name] = runner.results[asked.name]
            context = seen[arm.name].context
        writer.finish(runner.summary())
    out.record = new_directory(out.record, "walk")
    with RunWriter(out.record, out.params.as_dict(), label="walk") as writer:
        for arm in wanted[len(out.arms) :]:  # further settings of the notebooks
            found = by_parts(arm, arm.params, context)
            if found is not None and isinstance(pool, _Gathering):  # they will all run at once
                read |= readings(pool, [arm.config], writer.directory)
                found = by_parts(arm, arm.params, context, read)
            if found is not None:
                out.foreseen[arm.name] = found
        writer.meta["predictions"] = [f.as_dict() for f in out.foreseen.values()]
        writer.save()
        for progress in runner.run(main, writer):
            eta = runner.forecast(main)[0] if progress.eta_s is None else progress.eta_s
            tell(f"{progress.done} of {progress.total} requests, {progress.text}", eta + after_s)
        tell("looking at first starts, asking the engines what they counted", after_s)
        for e in experiments:
            e.after(pool)
            out.extra |= e.extra()
        out.results = {a.name: runner.results[w.name] for a, w in zip(out.arms, on_ladder, strict=True)}
        writer.meta["prediction_errors"] = errors(out.foreseen, runner.results | out.results)
        writer.finish(runner.summary() | out.extra)
    pool.stop()
    _look_again(out.record, experiments, pool)


def _look_again(record: Path, experiments: Sequence[Experiment], pool: Pool) -> None:
    """With nothing else going on: a time below its byte floor asks for another look at the memory, once for all."""
    for e in experiments:
        reader = Runner(pool)
        reader.adopt(record, _asked(e))
        if e.look_again(reader.results):
            return


def times(results: Mapping[str, Result]) -> dict[str, list[dict]]:
    """Rows by arm, as labkit.measure.ladder.table takes them."""
    return {name: r.rows for name, r in results.items()}
