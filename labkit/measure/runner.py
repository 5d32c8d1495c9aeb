"""Measure the arms of an experiment: engines, order, rows, store, progress. No widgets here."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit import workloads
from labkit.engines.adapter import evidence
from labkit.engines.http import Unreachable
from labkit.errors import LabError
from labkit.measure import session
from labkit.measure.pool import Pool, Running, together
from labkit.measure.results import Arm, Result
from labkit.records import RunWriter, Store

# For a first estimate, before anything was timed: seconds until an engine serves, and the bytes of a step above which a
# model runs from a GPU's memory (200 GB/s are easily reached there) and not from a host's (10 GB/s).
FIRST_START_S = {"pocket": 5.0, "sglang": 180.0, "llamacpp": 5.0}
SMALL = 1e9


@dataclass
class Progress:
    """Where a measurement stands. text: what it does now; eta_s: None until a request has been timed."""

    done: int = 0
    total: int = 0
    text: str = ""
    eta_s: float | None = None


@dataclass
class Block:
    """Arms that share a load and are measured in one go, `repeats` passes from number `first` on."""

    arms: list[Arm]
    repeats: int
    first: int = 0

    @property
    def requests(self) -> int:
        return len(self.arms) * self.repeats * self.arms[0].params.count


@dataclass
class Runner:
    """Runs arms and keeps what came out. results: by arm name, filled as rows arrive."""

    pool: Pool
    store: Store | None = None
    results: dict[str, Result] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def recall(self, arms: Sequence[Arm]) -> None:
        """Take what the store has of these arms, so that a setting measured before shows its result at once."""
        for arm in arms:
            kept = self._kept(arm)
            if kept is not None and arm.name not in self.results:
                self.results[arm.name] = Result(arm, kept.rows, age=kept.age())

    def _kept(self, arm: Arm):
        if self.store is None:
            return None
        version = self.versions.get(arm.config.engine) or self._last_version(arm)
        return self.store.get(arm.config, arm.load, version) if version else None

    def _last_version(self, arm: Arm) -> str | None:
        """The engine version of the newest measurement of this setting: before an engine runs, nobody can ask it."""
        fitting = [
            s
            for s in self.store.settings()
            if s["config"] == arm.config.as_dict() and s["load"] == arm.load and s["rows"]
        ]
        newest = max(fitting, key=lambda s: s["rows"][-1].get("started_unix", 0), default=None)
        return newest["version"] if newest else None

    def plan(self, arms: Sequence[Arm], *, again: bool = False) -> list[Block]:
        """What has to be measured: arms of one load together where engines may run side by side; what the store has in
        full is left out unless `again`, which adds passes and never overwrites."""
        todo: list[tuple[Arm, int, int]] = []
        for arm in arms:
            kept = self._kept(arm)
            have = _full_passes(kept.rows, arm.params.count) if kept else 0
            repeats = arm.params.repeats if again else arm.params.repeats - have
            if repeats > 0:
                todo.append((arm, repeats, kept.next_repeat if kept else 0))
        blocks: list[Block] = []
        for arm, repeats, first in todo:
            last = blocks[-1] if blocks else None
            fits = (
                last is not None
                and last.arms[0].load == arm.load
                and together([a.config for a in last.arms] + [arm.config])
            )
            if fits:
                last.arms.append(arm)
                # One pass number for all arms of a pass; numbers may leave gaps, they only have to be new.
                last.first, last.repeats = max(last.first, first), max(last.repeats, repeats)
            else:
                blocks.append(Block([arm], repeats, first))
        return _turned(blocks)

    def seconds(self, blocks: Sequence[Block]) -> tuple[float, bool]:
        """(predicted seconds, whether it rests on measurements of these very settings)."""
        total, known, will_run = 0.0, True, {d.config.digest() for d in self.pool.running()}
        for block in blocks:
            digests = {a.config.digest() for a in block.arms}
            for arm in block.arms:
                if arm.config.digest() not in will_run:
                    total += self.pool.start_seconds(arm.config) or FIRST_START_S.get(arm.config.engine, 0.0)
                one, warm, sure = self._request_seconds(arm)
                known = known and sure
                total += one * block.repeats * arm.params.count + warm * arm.params.warmup
            will_run = digests
        return total, known

    def _request_seconds(self, arm: Arm) -> tuple[float, float, bool]:
        """(seconds of a request of this arm, of a warm-up request, whether they were measured); else from bytes."""
        kept = self.results.get(arm.name)
        rows = kept.used if kept else []
        tokens = arm.params.output_tokens or workloads.loads.FREE_LENGTH / 2
        if rows:
            first = sum(r["ttft_s"] for r in rows) / len(rows)
            rest = sum(r["latency_s"] for r in rows) / len(rows) - first
            tokens = sum(r["output_tokens"] for r in rows) / len(rows)
        else:
            prompt = arm.params.prompt_tokens or 200
            step = self._step_bytes(arm, prompt + int(tokens / 2))
            if step < SMALL:
                # Attention over what came before makes a long prompt's tokens dearer; 8K doubles them, roughly.
                rest, first = tokens * step / 10e9, prompt * (1 + prompt / 8192) * step / 40e9
            else:
                rest, first = tokens * step / 200e9, prompt * step / 15e12
        short = rest * min(1.0, session.WARMUP_TOKENS / tokens)
        return first + rest + 0.03, first + short + 0.03, bool(rows)

    def _step_bytes(self, arm: Arm, context: int) -> float:
        """Bytes of a step, or those of a small model where the config is not at hand."""
        from labkit.measure.machine import account, model_of

        try:
            return account(arm.config, context=context, model=model_of(arm.params)).total_bytes
        except LabError:
            return 30e6

    def run(
        self,
        blocks: Sequence[Block],
        writer: RunWriter,
        *,
        cancel: threading.Event | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> Iterator[Progress]:
        """Measure the blocks; yields after every request. `results` are up to date at each yield.

        Rows are in the writer before they are seen here. A cancelled run ends early without raising.
        Raises EngineFailed or LabError with the engine's last log lines when an engine dies.
        """
        cancel = cancel or threading.Event()
        progress = Progress(total=sum(b.requests for b in blocks))
        timed, began = 0.0, None
        for block in blocks:
            progress.text = "starting the engine"
            yield progress
            engines = self._engines(block, writer, cancel, tell)
            keys = [getattr(e, "api_key", None) for e in engines]
            sides = [
                session.Arm(a.name, e.url, k, dialect=e.dialect)
                for a, e, k in zip(block.arms, engines, keys, strict=True)
            ]
            first = block.arms[0].params
            fresh: dict[str, list[dict]] = {a.name: [] for a in block.arms}
            prompts = prompts_of(first)
            began = time.monotonic()
            progress.text = "warming up"
            yield progress
            try:
                for row in session.interleave(
                    sides,
                    prompts,
                    repeats=block.repeats,
                    warmup=first.warmup,
                    writer=writer,
                    cancel=cancel,
                    timeout_s=first.timeout_s,
                    first_repeat=block.first,
                ):
                    if row["repeat"] < 0 and row["status"] != "error":
                        continue
                    self._check(row, block.arms, engines)
                    self._take(row, block, fresh)
                    progress.done += row["repeat"] >= 0
                    timed += time.monotonic() - began
                    began = time.monotonic()
                    progress.text = f"{row['arm']}: repeat {row['repeat'] + 1}, prompt {row['index'] + 1}"
                    progress.eta_s = timed / max(1, progress.done) * (progress.total - progress.done)
                    yield progress
            finally:
                self._store(block, fresh)
            if cancel.is_set():
                progress.text = "cancelled"
                yield progress
                return

    def _engines(self, block: Block, writer: RunWriter, cancel: threading.Event, tell) -> list[Running]:
        engines = self.pool.ensure(
            [a.config for a in block.arms],
            writer.directory,
            cancel=cancel,
            on_event=lambda e: tell(f"{e.kind}: {e.text}") if e.kind in ("phase", "ready", "retry") else tell(e.text),
        )
        for arm, engine in zip(block.arms, engines, strict=True):
            info = engine.server_info()
            self.versions[arm.config.engine] = str(info.get("version", ""))
            known = self.results.get(arm.name)
            rows = list(known.rows) if known is not None and known.arm == arm else []
            age = known.age if rows else ""
            self.results[arm.name] = Result(arm, rows, info, age, engine.start_seconds)
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

    def _check(self, row: dict, arms: Sequence[Arm], engines: Sequence[Running]) -> None:
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

    def _take(self, row: dict, block: Block, fresh: dict[str, list[dict]]) -> None:
        if row["repeat"] < 0:
            return
        fresh[row["arm"]].append(row)
        old = self.results[row["arm"]]
        # A new object, because the old one has cached its medians.
        self.results[row["arm"]] = Result(old.arm, [*old.rows, row], old.info, "", old.start_s)

    def _store(self, block: Block, fresh: dict[str, list[dict]]) -> None:
        if self.store is None:
            return
        for arm in block.arms:
            rows = [r for r in fresh[arm.name] if r["status"] == "ok"]
            if rows:
                self.store.add(arm.config, arm.load, self.versions[arm.config.engine], rows)


def _full_passes(rows: Sequence[dict], count: int) -> int:
    """Passes that have all of their requests: one that a crash or a cancel cut short has yet to be measured."""
    sizes = Counter(r["repeat"] for r in rows if r["repeat"] >= 0)
    return sum(size >= count for size in sizes.values())


def _turned(blocks: list[Block]) -> list[Block]:
    """Where engines take turns, go through the arms forwards and then backwards, each with half of the passes: a drift
    of the machine then hits first and last alike."""
    if len(blocks) < 2 or any(len(b.arms) > 1 for b in blocks) or len({str(b.arms[0].load) for b in blocks}) > 1:
        return blocks
    if min(b.repeats for b in blocks) < 2:
        return blocks
    there = [Block(b.arms, b.repeats - b.repeats // 2, b.first) for b in blocks]
    back = [Block(b.arms, b.repeats // 2, b.first + b.repeats - b.repeats // 2) for b in reversed(blocks)]
    return there + back


def prompts_of(params) -> list[workloads.Prompt]:
    tokenizer: str | Path | None = params.tokenizer
    if tokenizer is None and params.engine.model != "pocket" and Path(params.engine.model).is_dir():
        tokenizer = params.engine.model
    return workloads.load(
        params.workload,
        count=params.count,
        seed=params.seed,
        tokenizer_path=tokenizer,
        prompt_tokens=params.prompt_tokens,
        output_tokens=params.output_tokens,
    )
