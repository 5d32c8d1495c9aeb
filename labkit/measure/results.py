"""What was measured on one arm, as evidence: the numbers of labkit.measure.estimates with their source."""

import json
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.evidence import Evidence, Tier, measured, spec
from labkit.measure import doubts, estimates
from labkit.measure.stats import Interval
from labkit.params import Params
from labkit.records import Run, read_run
from labkit.records.store import clock


@dataclass
class Arm:
    """An arm of a ladder (labkit.engines.ladder.Arm) under a load."""

    name: str
    title: str
    config: EngineConfig
    params: Params
    expect: str = ladder.NOTHING
    before: str | None = None

    @property
    def load(self) -> dict:
        return self.params.load()

    @property
    def setting(self) -> str:
        """Equal for arms that ask the same of the same engine configuration, whatever they are called."""
        return json.dumps([self.config.digest(), self.load], sort_keys=True)

    @classmethod
    def of(cls, arm: ladder.Arm, params: Params) -> "Arm":
        """An arm of a ladder under a load."""
        return cls(arm.name, arm.title, arm.config, params, arm.expect, arm.before)

    @classmethod
    def read(cls, name: str, title: str, config: dict, load: dict) -> "Arm":
        """An arm as a record or the store describes it. Raises BadInput."""
        engine = EngineConfig.of_record(config)
        return cls(name, title, engine, Params.checked(load).model_copy(update={"engine": engine}))


@dataclass
class Result:
    """One measured arm. start_s: the engine's start. earlier: recalled, so that its time is shown. record: the finished
    run that it was read from."""

    arm: Arm
    rows: list[dict]
    info: dict = field(default_factory=dict)
    start_s: float | None = None
    earlier: bool = False
    record: str = ""

    @property
    def name(self) -> str:
        return self.arm.name

    @property
    def when(self) -> str:
        """When its newest request ended, e.g. "at 14:32"; empty for what this run measured."""
        if not self.earlier or not self.rows:
            return ""
        return clock(max(r["started_unix"] + (r.get("latency_s") or 0) for r in self.rows), time.time())

    @cached_property
    def used(self) -> list[dict]:
        """The rows that count."""
        return estimates.counted([r for r in self.rows if r["repeat"] >= 0])

    @cached_property
    def estimates(self) -> estimates.Estimates:
        """All numbers of this arm. Raises NoSamples when no row counts."""
        return estimates.estimate([r for r in self.rows if r["repeat"] >= 0], seed=self.arm.params.seed)

    @cached_property
    def summary(self) -> dict:
        """The same, JSON-ready, with warnings (labkit.measure.estimates.summarise). Raises NoSamples."""
        return estimates.summarise([r for r in self.rows if r["repeat"] >= 0], seed=self.arm.params.seed)

    @property
    def warnings(self) -> list[str]:
        return self.summary["warnings"]

    def _evidence(self, found: Interval, unit: str) -> Evidence:
        return measured(found.value, unit, self.source(found), found.low, found.high)

    def source(self, found: Interval) -> str:
        """Where and how, for the evidence."""
        version = self.info.get("version", "")
        engine = f"{self.info.get('engine', self.arm.config.engine)} {version}".strip()
        when = f", run {self.record}" if self.record else f", measured {self.when}" if self.when else ""
        return f"this lab, {engine}, arm {self.name}: {found.count} requests in {found.repeats} repeats{when}"

    @cached_property
    def tpot(self) -> Evidence:
        """Time per output token, s: round time / a (labkit.measure.estimates)."""
        return self._evidence(self.estimates.tpot, "s")

    @cached_property
    def ttft(self) -> Evidence:
        """Median time to the first token, s."""
        return self._evidence(self.estimates.ttft, "s")

    @cached_property
    def accept(self) -> Evidence | None:
        """Accept length a in tokens per verify step; None without speculation."""
        return self.estimates.accept and self._evidence(self.estimates.accept, "1")

    @cached_property
    def throughput(self) -> Evidence:
        """Tokens/s of all requests together, without the time to the first token."""
        return measured(self.estimates.throughput, "tok/s", self.source(self.estimates.tpot))

    @cached_property
    def pass_s(self) -> Evidence:
        """Median time of a round, or of a plain step without drafting, s."""
        return self._evidence(self.estimates.round, "s")

    def numbers(self) -> list[Evidence]:
        """What other numbers are derived from."""
        return [n for n in (self.tpot, self.ttft, self.accept, self.throughput, self.pass_s) if n is not None]

    def doubtful(self) -> list[Evidence]:
        """Those that its warnings make doubtful: a machine that was disturbed changes times, and no count."""
        if not self.used or not self.warnings:
            return []
        of_times = all(w.startswith(estimates.OF_TIMES) for w in self.warnings)
        return [n for n in self.numbers() if n is not self.accept or not of_times]

    @cached_property
    def histogram(self) -> list[int]:
        """Correct drafts per verify step over all requests; empty without speculation."""
        columns = [r["histogram"] for r in self.used if r.get("histogram")]
        width = max(map(len, columns), default=0)
        return [sum(c[i] for c in columns if i < len(c)) for i in range(width)]

    @property
    def context(self) -> int:
        """Mean tokens of context during decoding."""
        return estimates.context(self.used)


def results_of(run: Run | str | Path) -> dict[str, Result]:
    """The measured arms of a record by name. Raises BadInput for a directory without a record."""
    run = run if isinstance(run, Run) else read_run(run)
    out = {}
    for described in run.meta["arms"]:
        load = described.get("load") or {}
        arm = Arm.read(described["name"], described.get("title", ""), described["engine"], load)
        # Rows of other records may carry the same repeat numbers: a session's name keeps them from making pairs.
        rows = [{**r, "session": r.get("session") or run.meta["id"]} for r in run.arm(arm.name)]
        started = (described.get("launch") or {}).get("start_seconds")
        result = Result(arm, rows, described.get("server_info", {}), started, record=run.meta["id"])
        if result.used:
            out[arm.name] = result
    return out


def cost(speculative: Result, plain: Result) -> Evidence:
    """c: time of a round over the plain step of the same configuration, same load, same run (derived)."""
    found = _against(speculative, plain).cost
    if found is None:
        if varies(speculative):
            raise BadInput(
                "arms", speculative.name, "an arm whose draft steps stay the same: here they varied, so no c"
            )
        raise BadInput("arms", f"{speculative.name} over {plain.name}", "an arm that drafts, over one that does not")
    return _derived(found, "round time / plain step", speculative.tpot, speculative.accept, plain.tpot)


def speedup(fast: Result, slow: Result, *, together: bool | None = None) -> Evidence:
    """How many times faster one arm makes a token than another (derived): a / c where it drafts and the other not.

    together: whether they took turns request by request; None tells it by the rows.
    """
    found = _against(fast, slow, together)
    if found.cost is not None:
        return _derived(found.speedup, "a / c", fast.accept, cost(fast, slow))
    return _derived(found.speedup, f"TPOT of {slow.name} / TPOT of {fast.name}", slow.tpot, fast.tpot)


def varies(result: Result) -> bool:
    """Whether draft steps that should be fixed changed from request to request: one c does not describe this arm."""
    return len(doubts.fixed_steps(result.used)) > 1


def drafts_a_round(result: Result) -> float | None:
    """Mean drafts of a round where the engine chooses their number anew each time; None where it is fixed."""
    return estimates.drafts_a_round(result.used)


def _against(result: Result, base: Result, together: bool | None = None) -> estimates.Comparison:
    return estimates.compare(result.used, base.used, seed=base.arm.params.seed, together=together)


def _derived(found: Interval, formula: str, *inputs: Evidence) -> Evidence:
    sources = "; ".join(dict.fromkeys(i.source for i in inputs))
    return Evidence(found.value, "1", Tier.DERIVED, sources, found.low, found.high, formula, inputs)


def count(value: float, unit: str, what: str) -> Evidence:
    """A setting as evidence, for formulas that use it."""
    return spec(value, unit, f"setting: {what}")
