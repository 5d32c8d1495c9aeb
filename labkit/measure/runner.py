"""The one runner: arms x load x repeats become rows. No widgets here.

Arms of one load are measured pass by pass. Where engines may run side by side they alternate request by request; where
one engine fills the machine each is visited twice, the second time in reversed order. A comparison is only ever drawn
from passes in which all of its arms took part: what was measured at another time is `kept` and never mixed in.
"""

import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit import workloads
from labkit.engines.adapter import evidence
from labkit.engines.http import Unreachable
from labkit.engines.ladder import FAULT
from labkit.errors import LabError
from labkit.measure import estimates, session
from labkit.measure.forecast import Forecast
from labkit.measure.plan import Block, comparisons, in_turns, shared
from labkit.measure.pool import Pool, Running, together
from labkit.measure.prompts import prompts_of, tokenizer_of
from labkit.measure.results import Arm, Result, results_of
from labkit.records import Run, RunWriter, Store

Tell = Callable[[str], None]


@dataclass
class Progress:
    """Where a measurement stands. text: what it does now; eta_s: seconds that are left; row: what was just measured."""

    done: int = 0
    total: int = 0
    text: str = ""
    eta_s: float | None = None
    row: dict | None = None


@dataclass
class Runner:
    """Runs arms and keeps what came out.

    results   by arm name: the present comparison, filled as rows arrive; only passes that all of its arms share
    kept      by arm name: what was measured of other settings or at other times, for showing with its age
    fresh     by arm name: the rows of the run under way, or of the last one
    check     looks at an engine that has just started, before any request: (its result without rows, its log's path) ->
              a sentence for each option that is not in effect. What it said is in `noticed`, by arm name
    strict    refuse to measure an arm of which it said anything, unless the arm is broken on purpose
    """

    pool: Pool
    store: Store | None = None
    check: Callable[[Result, Path | None], list[str]] | None = None
    strict: bool = False
    noticed: dict[str, list[str]] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    kept: dict[str, Result] = field(default_factory=dict)
    fresh: dict[str, list[dict]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    on_chunk: Callable[[float, int], None] | None = None  # told of each event of a stream, between two of them
    _new: list[tuple[Arm, str]] = field(default_factory=list)
    _started: dict[str, tuple[dict, float | None]] = field(default_factory=dict)  # by configuration: info, seconds

    # --- what is there ---------------------------------------------------------------------------------------------

    def recall(self, *choices: Sequence[Arm]) -> None:
        """Show what the store has of the first of these comparisons that is there whole, else of the last one; all
        else that it has of these loads becomes `kept`."""
        if self.store is None:
            return
        chosen = next((arms for arms in choices if arms and not self.plan(arms)), choices[-1])
        rows = self._shared_rows(chosen)
        self.results = {a.name: self._result(a, rows[a.name], earlier=True) for a in chosen if rows[a.name]}
        self._recall_kept([a for arms in choices for a in arms])

    def _result(self, arm: Arm, rows: list[dict], *, earlier: bool = False) -> Result:
        info, start_s = self._started.get(arm.config.digest(), ({}, None))
        return Result(arm, rows, info, start_s, earlier)

    def _recall_kept(self, arms: Sequence[Arm]) -> None:
        """Every other setting that was measured under one of these arms' loads."""
        loads, shown = [a.load for a in arms], {r.arm.setting for r in self.results.values()}
        self.kept = {}
        for found in self.store.settings() if self.store else ():
            if found.load in loads and found.digest is not None:
                name = found.rows[-1]["arm"]
                result = Result(Arm.read(name, "", found.config, found.load), found.rows, earlier=True)
                if result.arm.setting not in shown and result.used:
                    self.kept[name] = result

    def adopt(self, run: Run | str | Path, arms: Sequence[Arm]) -> list[Arm]:
        """Take from a finished record what fits these arms by configuration and load; returns the arms that it lacks.

        The record is one comparison of its own: nothing measured elsewhere is mixed into it.
        """
        there = {r.arm.setting: r for r in results_of(run).values()}
        self.results = {a.name: replace(there[a.setting], arm=a) for a in arms if a.setting in there}
        return [a for a in arms if a.setting not in there]

    def _rows(self, arm: Arm) -> list[dict]:
        kept = self.store.get(arm.config, arm.load, self.versions.get(arm.config.engine)) if self.store else None
        return kept.rows if kept else []

    def _shared_rows(self, arms: Sequence[Arm]) -> dict[str, list[dict]]:
        """By arm name: the rows of passes that all arms of a comparison have in full."""
        out: dict[str, dict[tuple, dict]] = {a.name: {} for a in arms}
        for group in comparisons(arms):
            mine = {a.name: self._rows(a) for a in group}
            passes = shared(mine, group[0].params.count)
            for name, rows in mine.items():
                for row in rows:
                    if estimates.pass_of(row) in passes:
                        out[name][*estimates.pass_of(row), row["index"]] = row
        return {name: list(rows.values()) for name, rows in out.items()}

    # --- what is to be done ----------------------------------------------------------------------------------------

    def plan(self, arms: Sequence[Arm], *, again: bool = False) -> list[Block]:
        """What has to be measured so that each comparison has its repeats: whole passes of all of its arms. `again`
        adds as many passes once more; nothing is overwritten."""
        blocks = []
        for group in comparisons(arms):
            mine = {a.name: self._rows(a) for a in group}
            repeats = max(a.params.repeats for a in group)
            if not again:
                repeats -= len(shared(mine, group[0].params.count))
            if repeats > 0:
                taken = [r["repeat"] for rows in mine.values() for r in rows]
                blocks.append(Block(list(group), repeats, 1 + max(taken, default=-1)))
        if all(together([a.config for a in b.arms]) for b in blocks):
            return blocks
        return in_turns(blocks)

    def forecast(self, blocks: Sequence[Block], resumed: Sequence[dict] = ()) -> tuple[float, bool]:
        """(predicted seconds, whether they rest on measurements of these very settings). resumed: rows that a record
        holds already."""
        arms = [a for b in blocks for a in b.arms]
        times = Forecast(self.pool, {a.name: self._rows(a) for a in arms})
        for row in resumed:
            if row["repeat"] >= 0:
                times.add(row)
        return self._seconds(blocks, times, _done(resumed)), all(map(times.knows, arms))

    def _seconds(self, blocks: Sequence[Block], times: Forecast, done: Container) -> float:
        total, running = 0.0, {e.config.digest() for e in self.pool.running()}
        for block in blocks:
            left = block.left(done)
            if left:
                fresh = [a for a in block.arms if a.config.digest() not in running]
                running = {a.config.digest() for a in block.arms}
                total += sum(map(times.start, fresh)) + sum(map(times.warmup, block.arms))
                total += sum(map(times.request, left))
        return total

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
        run ends early without raising. Raises LabError when an engine dies (with its last log lines), when three
        requests in a row fail or are refused, or when an arm has no request that counts: what was measured is kept.
        """
        cancel = cancel or threading.Event()
        done = _done(writer.resumed)
        arms = {a.name: a for b in blocks for a in b.arms}
        earlier = self._shared_rows(list(arms.values()))
        self.results = {n: self._result(a, earlier[n]) for n, a in arms.items() if earlier[n]}
        self.fresh = {n: [r for r in writer.resumed if r["arm"] == n and r["repeat"] >= 0] for n in arms}
        times = Forecast(self.pool, {n: [*earlier[n], *self.fresh[n]] for n in arms})
        progress = Progress(len(done), sum(b.requests for b in blocks))
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
                    progress.eta_s = rest + self._seconds(blocks[at + 1 :], times, done)
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
        asked, last, expected = 0, None, len(block.left(done))
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
                on_chunk=self.on_chunk,
            ):
                self._alive(row, block.arms, engines)
                if row["repeat"] < 0:
                    continue
                asked, last = asked + 1, row
                fresh[row["arm"]].append(row)
                self.fresh[row["arm"]].append(row)
                old = self.results[row["arm"]]
                # A new object, because the old one has cached its numbers.
                self.results[old.name] = Result(old.arm, [*old.rows, row], old.info, old.start_s)
                yield f"{row['arm']}: repeat {row['repeat'] + 1}, prompt {row['index'] + 1}", row
        finally:
            self._store(block, fresh)
        if cancel.is_set():
            return
        if asked < expected:
            raise LabError(
                f"{session.FAILURES_IN_A_ROW} requests in a row were {last['status']}, the last one by {last['arm']}:"
                f" {last['error']}. {asked} of {expected} requests were made; they are in the record."
                if last
                else "no request was made"
            )
        for arm in block.arms:
            if self.fresh[arm.name] and not estimates.good(self.fresh[arm.name]):
                estimates.estimate(self.fresh[arm.name])  # raises with the reasons

    def _engines(self, block, earlier, writer, cancel, tell) -> list[Running]:
        def heard(e) -> None:
            tell(f"{e.kind}: {e.text}" if e.kind in ("phase", "ready", "retry") else e.text)

        configs, self._new = [a.config for a in block.arms], []
        engines = self.pool.ensure(configs, writer.directory, cancel=cancel, on_event=heard)
        for arm, engine in zip(block.arms, engines, strict=True):
            info = engine.server_info()
            self.versions[arm.config.engine] = str(info.get("version", ""))
            rows = [*earlier[arm.name], *self.fresh[arm.name]]
            self._started[arm.config.digest()] = (info, engine.start_seconds)
            self.results[arm.name] = self._result(arm, rows)
            self._look(arm, info, getattr(engine, "log_path", None))
            writer.add_arm(
                arm.name,
                requested=arm.config.as_dict(),
                server_info=info,
                launch=engine.launch_record(),
                title=arm.title,
                expect=arm.expect,
                before=arm.before,
                options=evidence(arm.config, info),
                load=arm.load,
            )
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
        count = workloads.counter(tokenizer) if own else None
        key, prepare = getattr(engine, "api_key", None), getattr(engine, "prepare", None)
        return session.Side(arm.name, engine.url, key, count, session.draft_tokens(info), engine.dialect, prepare)

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
            raise LabError(gone)

    def _store(self, block: Block, fresh: Mapping[str, list[dict]]) -> None:
        if self.store is None:
            return
        for arm in block.arms:
            rows = [r for r in fresh[arm.name] if r["status"] == "ok"]
            if rows:
                self.store.add(arm.config, arm.load, self.versions[arm.config.engine], rows)

    def summary(self) -> dict[str, dict]:
        """The rows of the last run by arm, as its record has them (estimates.summarise)."""
        counted = {n: rows for n, rows in self.fresh.items() if estimates.good(rows)}
        return {n: estimates.summarise(rows, seed=self.results[n].arm.params.seed) for n, rows in counted.items()}


def _done(rows: Sequence[dict]) -> set[tuple[str, int, int]]:
    """(arm, repeat, index) of the requests that a record holds, so that they are not asked again."""
    return {(r["arm"], r["repeat"], r["index"]) for r in rows if r["status"] == "ok"}
