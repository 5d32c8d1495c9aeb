"""The one runner: arms x load x repeats become rows. No widgets here.

Arms of one load are measured pass by pass. Where engines may run side by side they alternate request by request; where
one engine fills the machine each is visited twice, the second time in reversed order. A comparison is only ever drawn
from passes in which all of its arms took part: what was measured at another time is `kept` and never mixed in.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit import workloads
from labkit.engines import owner
from labkit.engines.http import Unreachable
from labkit.engines.ladder import FAULT
from labkit.errors import LabError
from labkit.measure import estimates, session
from labkit.measure.answer import Answer
from labkit.measure.forecast import Forecast
from labkit.measure.plan import Block
from labkit.measure.pool import NotStarted, Running, describe
from labkit.measure.prompts import prompts_of, tokenizer_of
from labkit.measure.recall import Memory
from labkit.measure.results import Arm, Result
from labkit.records import RunWriter

Tell = Callable[[str], None]


@dataclass
class Progress:
    """Where a measurement stands. text: what it does now; eta_s: seconds that are left; row: what was just measured."""

    done: int = 0
    total: int = 0
    text: str = ""
    eta_s: float | None = None
    row: dict | None = None


class ArmFailed(LabError):
    """One arm cannot be measured, others may: its engine did not start or died, or it failed too often. Has arm."""

    def __init__(self, arm: str, why: str):
        self.arm = arm
        super().__init__(why)


@dataclass
class Runner(Memory):
    """Runs arms and keeps what came out.

    fresh     by arm name: the rows of the run under way, or of the last one
    check     looks at an engine that has just started, before any request: (its result without rows, its log's path) ->
              a sentence for each option that is not in effect. What it said is in `noticed`, by arm name
    strict    refuse to measure an arm of which it said anything, unless the arm is broken on purpose
    """

    check: Callable[[Result, Path | None], list[str]] | None = None
    strict: bool = False
    noticed: dict[str, list[str]] = field(default_factory=dict)
    fresh: dict[str, list[dict]] = field(default_factory=dict)
    watch: Callable[[str, Answer], None] | None = None  # told of each answer before it streams (session.interleave)
    _new: list[tuple[Arm, str]] = field(default_factory=list)

    # --- what is to be done ----------------------------------------------------------------------------------------

    def forecast(self, blocks: Sequence[Block], resumed: Sequence[dict] = ()) -> tuple[float, bool]:
        """(predicted seconds, whether they rest on measurements of these very settings). resumed: rows that a record
        holds already."""
        arms = [a for b in blocks for a in b.arms]
        times = Forecast(self.pool, {a.name: self._rows(a) for a in arms})
        for row in resumed:
            if row["repeat"] >= 0:
                times.add(row)
        return times.seconds(blocks, _done(resumed), self._digests()), all(map(times.knows, arms))

    def _digests(self) -> set[str]:
        return {e.config.digest() for e in self.pool.running()}

    # --- doing it --------------------------------------------------------------------------------------------------

    def run(
        self,
        blocks: Sequence[Block],
        writer: RunWriter,
        *,
        cancel: threading.Event | None = None,
        tell: Tell = lambda text: None,
    ) -> Iterator[Progress]:
        """Measure the blocks; yields before each start and after each request. `results` are up to date at each yield.

        A row is in the writer before it is seen here, and what a resumed writer holds is not asked again. A cancelled
        run ends early without raising. What was measured is kept when it raises: ArmFailed when an engine does not
        start or dies (with its last log lines), when three requests in a row fail or are refused, of all or of one arm,
        or when an arm has no request that counts; NoRoom when the disk takes no more.
        """
        cancel = cancel or threading.Event()
        done = _done(writer.resumed)
        arms = {a.name: a for b in blocks for a in b.arms}
        earlier = self._shared_rows(list(arms.values()))
        self.results = {n: self._result(a, earlier[n]) for n, a in arms.items() if earlier[n]}
        self.fresh = {n: [r for r in writer.resumed if r["arm"] == n and r["repeat"] >= 0] for n in arms}
        times = Forecast(self.pool, {n: [*earlier[n], *self.fresh[n]] for n in arms})
        progress = Progress(len(done), sum(b.requests for b in blocks))
        with owner.measuring():
            for at, block in enumerate(blocks):
                if not block.left(done):
                    continue
                for part in self._measure(block, earlier, done, writer, cancel, tell):
                    progress.text, progress.row = part if isinstance(part, tuple) else (part, None)
                    if progress.row is not None:
                        row = progress.row
                        times.add(row)
                        done.add((row["arm"], row["repeat"], row["index"]))
                        progress.done += 1
                        rest = sum(times.request(a) for a in block.left(done))
                        progress.eta_s = rest + times.seconds(blocks[at + 1 :], done, self._digests())
                    yield progress
                if cancel.is_set():
                    progress.text, progress.row = "cancelled", None
                    yield progress
                    break
        self._recall_kept(list(arms.values()))

    def _measure(self, block, earlier, done, writer, cancel, tell) -> Iterator[str | tuple[str, dict]]:
        """One block: what it does now, and (the same, the row) for each request."""
        yield "starting " + ", ".join(a.name for a in block.arms)
        engines = self._engines(block, earlier, writer, cancel, tell)
        params = block.arms[0].params
        sides = [self._side(a, e) for a, e in zip(block.arms, engines, strict=True)]
        stamp = {"session": writer.session} | ({} if block.start is None else {"start": block.start})
        fresh: dict[str, list[dict]] = {a.name: [] for a in block.arms}
        asked, last, expected, failed = 0, None, len(block.left(done)), dict.fromkeys(fresh, 0)
        yield from self._unlike_asked()
        yield "warming up"
        try:
            for row in session.interleave(
                sides,
                prompts_of(params, self.results[block.arms[0].name].info),
                repeats=block.repeats,
                warmup=params.warmup,
                writer=writer,
                cancel=cancel,
                timeout_s=params.timeout_s,
                first_repeat=block.first,
                done=frozenset(done),
                stamp=stamp,
                watch=self.watch,
            ):
                self._alive(row, block.arms, engines)
                if row["repeat"] < 0:
                    continue
                asked, last = asked + 1, row
                failed[row["arm"]] = failed[row["arm"]] + 1 if row["status"] in ("error", "refused") else 0
                fresh[row["arm"]].append(row)
                self.fresh[row["arm"]].append(row)
                old = self.results[row["arm"]]
                # A new object, because the old one has cached its numbers.
                self.results[old.name] = Result(old.arm, [*old.rows, row], old.info, old.start_s)
                yield f"{row['arm']}: repeat {row['repeat'] + 1}, prompt {row['index'] + 1}", row
                if failed[row["arm"]] == session.FAILURES_IN_A_ROW:
                    break  # the others answer in between, so the session goes on
        finally:
            self._store(block, fresh)
        if cancel.is_set():
            return
        if asked < expected:
            raise ArmFailed(
                last["arm"] if last else block.arms[0].name,
                f"{session.FAILURES_IN_A_ROW} requests in a row were {last['status']}, the last one by {last['arm']}:"
                f" {last['error']}. {asked} of {expected} requests were made; they are in the record."
                if last
                else "no request was made",
            )
        for arm in block.arms:
            if self.fresh[arm.name] and not estimates.good(self.fresh[arm.name]):
                try:
                    estimates.estimate(self.fresh[arm.name])
                except estimates.NoSamples as e:
                    raise ArmFailed(arm.name, str(e)) from None

    def _engines(self, block, earlier, writer, cancel, tell) -> list[Running]:
        def heard(e) -> None:
            tell(f"{e.kind}: {e.text}" if e.kind in ("phase", "ready", "retry") else e.text)

        configs, self._new = [a.config for a in block.arms], []
        try:
            engines = self.pool.ensure(configs, writer.directory, cancel=cancel, on_event=heard)
        except NotStarted as e:
            raise ArmFailed(next(a.name for a in block.arms if a.config.digest() == e.digest), str(e)) from e
        for arm, engine in zip(block.arms, engines, strict=True):
            try:
                info = engine.server_info()
            except LabError as e:
                raise ArmFailed(arm.name, str(e)) from e
            self.versions[arm.config.engine] = str(info.get("version", ""))
            rows = [*earlier[arm.name], *self.fresh[arm.name]]
            self._started[arm.config.digest()] = (info, engine.start_seconds)
            self.results[arm.name] = self._result(arm, rows)
            self._look(arm, info, getattr(engine, "log_path", None))
            describe(writer, arm, engine, info, arm.load)
        return engines

    def _look(self, arm: Arm, info: dict, log: Path | None) -> None:
        """Ask `check` about an engine that is ready; what it says anew is told before the first request."""
        if self.check is None:
            return
        said, known = self.check(Result(arm, [], info), log), self.noticed.get(arm.name, [])
        self._new += [(arm, text) for text in said if text not in known]
        self.noticed[arm.name] = said

    def _unlike_asked(self) -> Iterator[str]:
        yield from (f"warning: {arm.name}: {text}" for arm, text in self._new)
        if not self.strict:
            return
        for arm, text in self._new:
            if arm.expect != FAULT:
                raise LabError(f"{arm.name} is not measured, because it is not what was asked for: {text}")

    def _side(self, arm: Arm, engine: Running) -> session.Side:
        info = self.results[arm.name].info
        tokenizer = tokenizer_of(arm.params, info)
        own = tokenizer is not None or "pocket" in (arm.config.engine, info.get("engine"))
        return session.Side.of(
            arm.name,
            engine.url,
            info,
            engine.dialect,
            getattr(engine, "api_key", None),
            count_tokens=workloads.counter(tokenizer) if own else None,
            prepare=getattr(engine, "prepare", None),
        )

    def _alive(self, row: dict, arms: Sequence[Arm], engines: Sequence[Running]) -> None:
        """A failed request is a row; a dead engine is the end of the run, said with its last log lines."""
        if row["status"] != "error":
            return
        at = [a.name for a in arms].index(row["arm"])
        time.sleep(0.2)  # the watcher needs a moment to notice
        try:
            gone = engines[at].failure()
        except Unreachable as e:
            gone = str(e)
        if gone:
            raise ArmFailed(row["arm"], gone)

    def _store(self, block: Block, fresh: Mapping[str, list[dict]]) -> None:
        if self.store is None:
            return
        for arm in block.arms:
            rows = [r for r in fresh[arm.name] if r["status"] == "ok"]
            if rows:
                self.store.add(arm.config, arm.load, self.versions[arm.config.engine], rows)

    def beside(self, base: Arm, arm: Arm) -> tuple[Result, Result] | None:
        """A reference and an arm, from the whole passes that they share in whatever comparison, those of the run under
        way among them; None before the first."""
        fresh = {}
        for a in (base, arm):
            now = self.results.get(a.name)
            if now is not None and now.arm.setting == a.setting:
                fresh[a.name] = [r for r in self.fresh.get(a.name, ()) if r["status"] == "ok"]
        rows = self._shared_rows([base, arm], fresh)
        if not rows[arm.name]:
            return None
        earlier = rows[arm.name][-1] not in fresh.get(arm.name, ())
        found = [self._result(a, rows[a.name], earlier=earlier) for a in (base, arm)]
        return found[0], found[1]

    def summary(self) -> dict[str, dict]:
        """The rows of the last run by arm, as its record has them (estimates.summarise)."""
        counted = {n: rows for n, rows in self.fresh.items() if estimates.good(rows)}
        return {n: estimates.summarise(rows, seed=self.results[n].arm.params.seed) for n, rows in counted.items()}


def _done(rows: Sequence[dict]) -> set[tuple[str, int, int]]:
    """(arm, repeat, index) of the requests that a record holds, so that they are not asked again."""
    return {(r["arm"], r["repeat"], r["index"]) for r in rows if r["status"] == "ok"}
