"""What was measured on one arm, as evidence: medians with intervals, yields, and the bytes that belong to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from labkit.engines.config import EngineConfig
from labkit.evidence import Evidence, Tier, measured, spec
from labkit.measure import metrics
from labkit.measure.stats import Interval, ratio_interval
from labkit.params import Params


@dataclass
class Arm:
    """One thing to measure: a name, what it is in a few words, the engine's configuration and the load."""

    name: str
    title: str
    config: EngineConfig
    params: Params

    @property
    def load(self) -> dict:
        return self.params.load()


@dataclass
class Result:
    """One measured arm. age is empty for what this run measured, else how long ago; start_s: the engine's start."""

    arm: Arm
    rows: list[dict]
    info: dict = field(default_factory=dict)
    age: str = ""
    start_s: float | None = None

    @property
    def name(self) -> str:
        return self.arm.name

    @cached_property
    def used(self) -> list[dict]:
        """The rows that count."""
        return metrics.good([r for r in self.rows if r["repeat"] >= 0])

    @cached_property
    def summary(self) -> dict:
        """Medians, intervals and warnings (labkit.measure.metrics.summarise). Raises BadInput when no row counts."""
        return metrics.summarise([r for r in self.rows if r["repeat"] >= 0], seed=self.arm.params.seed)

    @property
    def warnings(self) -> list[str]:
        return self.summary["warnings"]

    def _evidence(self, key: str, unit: str) -> Evidence | None:
        found = self.summary[key]
        if found is None:
            return None
        return measured(found["median"], unit, self.source(found), found["low"], found["high"])

    def source(self, found: dict) -> str:
        """Where and how, for the evidence."""
        version = self.info.get("version", "")
        engine = f"{self.info.get('engine', self.arm.config.engine)} {version}".strip()
        when = f", {self.age}" if self.age else ""
        return f"this lab, {engine}, arm {self.name}: {found['count']} requests in {found['repeats']} repeats{when}"

    @cached_property
    def tpot(self) -> Evidence:
        """Median time per output token, s, with its bootstrap interval."""
        return self._evidence("tpot_s", "s")

    @cached_property
    def ttft(self) -> Evidence:
        """Median time to the first token, s."""
        return self._evidence("ttft_s", "s")

    @cached_property
    def accept(self) -> Evidence | None:
        """Median accept length a in tokens a verify step; None without speculation."""
        return self._evidence("accept_length", "1")

    @cached_property
    def histogram(self) -> list[int]:
        """Correct drafts per verify step over all requests; empty without speculation."""
        columns = [r["histogram"] for r in self.used if r.get("histogram")]
        width = max(map(len, columns), default=0)
        return [sum(c[i] for c in columns if i < len(c)) for i in range(width)]

    @property
    def context(self) -> int:
        """Mean tokens of context during decoding: the prompt and half of the output."""
        rows = self.used
        return round(sum(r["prompt_tokens"] + r["output_tokens"] / 2 for r in rows) / len(rows))


def ratio(top: Result, bottom: Result, *, formula: str) -> Evidence:
    """Median TPOT of one arm over that of another with a bootstrap interval of the ratio (derived).

    Narrower than the quotient of two intervals, because both ends are rarely at their extremes together.
    """
    found = _interval(top, bottom, lambda row: row["tpot_s"])
    inputs = (top.tpot, bottom.tpot)
    return Evidence(
        found.median, "1", Tier.DERIVED, "; ".join(i.source for i in inputs), found.low, found.high, formula, inputs
    )


def cost(speculative: Result, plain: Result) -> Evidence:
    """c: time of a round over the plain step of the same configuration, same load, same run."""
    found = _interval(speculative, plain, lambda row: metrics.round_time(row["tpot_s"], row["accept_length"]))
    return Evidence(
        found.median,
        "1",
        Tier.DERIVED,
        speculative.tpot.source,
        found.low,
        found.high,
        "TPOT * a / TPOT plain",
        (speculative.tpot, speculative.accept, plain.tpot),
    )


def _interval(top: Result, bottom: Result, value: Callable[[dict], float]) -> Interval:
    """Median of value(row) over the bottom arm's median TPOT; by pairs where the same requests ran on both arms."""
    above, below = (sorted(r.used, key=lambda row: (row["repeat"], row["index"])) for r in (top, bottom))
    keys = [[(row["repeat"], row["index"]) for row in rows] for rows in (above, below)]
    return ratio_interval(
        [value(row) for row in above],
        [k for k, _ in keys[0]],
        [row["tpot_s"] for row in below],
        [k for k, _ in keys[1]],
        paired=keys[0] == keys[1],
        seed=bottom.arm.params.seed,
    )


def speedup(fast: Result, slow: Result) -> Evidence:
    """How many times faster one arm decodes than another: TPOT slow over TPOT fast."""
    return ratio(slow, fast, formula="TPOT of the slower / TPOT of the faster")


def count(value: float, unit: str, what: str) -> Evidence:
    """A setting as evidence, for formulas that use it."""
    return spec(value, unit, f"setting: {what}")
