"""How long a measurement will take: from bytes before anything was timed, then from what was timed."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

from labkit import workloads
from labkit.engines.config import EngineConfig
from labkit.errors import LabError
from labkit.measure import estimates, machine, session
from labkit.measure.plan import Block
from labkit.measure.results import Arm

# Seconds until an engine serves, and the bytes of a step above which a model runs from a GPU's memory (200 GB/s are
# easily reached there) and not from a host's (10 GB/s): for a first estimate.
FIRST_START_S = {"pocket": 5.0, "sglang": 180.0, "llamacpp": 5.0}
SMALL = 1e9
OVERHEAD_S = 0.03  # a flush and a connection


class Starts(Protocol):
    """Whoever knows how long engines take to start (a Pool does)."""

    def start_seconds(self, config: EngineConfig) -> float | None: ...


class Forecast:
    """Seconds of requests, starts and whole plans. timed: rows by arm name of the very settings, as far as known."""

    def __init__(self, pool: Starts, timed: Mapping[str, Sequence[dict]]):
        self._pool = pool
        # Sums by arm, [requests, s to the first token, s to the last]: asked anew after every one of many requests.
        self._sums: dict[str, list[float]] = {}
        self._by_bytes: dict[str, tuple[float, float]] = {}
        for name, rows in timed.items():
            for row in rows:
                self._count(name, row)

    def add(self, row: dict) -> None:
        """One more request that was timed."""
        self._count(row["arm"], row)

    def _count(self, name: str, row: dict) -> None:
        for good in estimates.good([row]):
            sums = self._sums.setdefault(name, [0, 0.0, 0.0])
            for i, value in enumerate((1, good["ttft_s"], good["latency_s"])):
                sums[i] += value

    def knows(self, arm: Arm) -> bool:
        """Does the time of this arm's requests rest on its own measurements?"""
        return arm.name in self._sums

    def request(self, arm: Arm) -> float:
        """Seconds of one measured request."""
        return sum(self._parts(arm)) + OVERHEAD_S

    def warmup(self, arm: Arm) -> float:
        """Seconds of an arm's warm-up requests, which are cut short."""
        first, rest = self._parts(arm)
        tokens = arm.params.output_tokens or workloads.loads.FREE_LENGTH / 2
        return arm.params.warmup * (first + rest * min(1.0, session.WARMUP_TOKENS / tokens) + OVERHEAD_S)

    def start(self, arm: Arm) -> float:
        """Seconds until an engine of this arm serves."""
        return self._pool.start_seconds(arm.config) or FIRST_START_S.get(arm.config.engine, 0.0)

    def seconds(
        self, blocks: Sequence[Block], done: Container[tuple[str, int, int]] = (), running: Iterable[str] = ()
    ) -> float:
        """Seconds of these blocks without the requests that are done. running: digests of the engines that serve now;
        a block stops those that it does not need, as the pool does."""
        total, running = 0.0, set(running)
        for block in blocks:
            left = block.left(done)
            if left:
                fresh = {a.config.digest(): a for a in block.arms if a.config.digest() not in running}
                running = {a.config.digest() for a in block.arms}
                total += sum(map(self.start, fresh.values())) + sum(map(self.warmup, block.arms))
                total += sum(map(self.request, left))
        return total

    def _parts(self, arm: Arm) -> tuple[float, float]:
        """(to the first token, after it) of a request, s."""
        if arm.name in self._sums:
            requests, first, last = self._sums[arm.name]
            return first / requests, (last - first) / requests
        return self._said(arm)

    def _said(self, arm: Arm) -> tuple[float, float]:
        """The same as its bytes say it."""
        if arm.name not in self._by_bytes:
            self._by_bytes[arm.name] = _parts_by_bytes(arm)
        return self._by_bytes[arm.name]


def _parts_by_bytes(arm: Arm) -> tuple[float, float]:
    """The same before anything was timed, from the bytes of a step."""
    tokens = arm.params.output_tokens or workloads.loads.FREE_LENGTH / 2
    prompt = arm.params.prompt_tokens or 200
    step = _step_bytes(arm, prompt + int(tokens / 2))
    if step < SMALL:
        # Attention over what came before makes a long prompt's tokens dearer; 8K doubles them, roughly.
        return prompt * (1 + prompt / 8192) * step / 40e9, tokens * step / 10e9
    return prompt * step / 15e12, tokens * step / 200e9


def _step_bytes(arm: Arm, context: int) -> float:
    """Bytes of a step, or those of a small model where the config is not at hand."""
    try:
        return machine.account(arm.config, context=context, model=machine.model_of(arm.params)).total_bytes
    except LabError:
        return 30e6
