"""The engines that this kernel's panels run: started when a measurement needs them, shared by all panels."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import waits
from labkit.disk import NoRoom
from labkit.engines import memory, process
from labkit.engines.adapter import adapter, evidence
from labkit.engines.attach import Attached
from labkit.engines.config import EngineConfig
from labkit.engines.process import EngineProcess, Event
from labkit.engines.turn import Busy, notebook_of
from labkit.errors import LabError
from labkit.records import RunWriter

if TYPE_CHECKING:
    from labkit.engines import ladder
    from labkit.measure.results import Arm

START_S = 3600.0  # two cold starts of a large model on a GPU
STOP_S = 30.0
SIDE_BY_SIDE = 8  # engines of one comparison that may be in memory together
Running = EngineProcess | Attached


def together(configs: Sequence[EngineConfig]) -> bool:
    """May these run side by side, so that their requests alternate? An idle engine on a CPU costs no time, only memory;
    a GPU holds one model, so there the engines take turns, as they do where memory does not hold them all."""
    idle = all(getattr(adapter(c.engine), "SIDE_BY_SIDE", False) for c in configs)
    return len(configs) <= SIDE_BY_SIDE and idle and memory.together(configs)


def _usable(engine: Running, digest: str) -> bool:
    """Is it there? One of ours knows that it lives; one borrowed from another notebook may have been stopped there."""
    if isinstance(engine, Attached):
        return engine.config.digest() == digest or engine.failure() is None
    return engine.alive


def engine_name(engine: Running) -> str:
    """An engine that is no arm of the panel at hand, for people."""
    return "an attached server" if isinstance(engine, Attached) else engine.config.engine


def describe(writer: RunWriter, arm: "ladder.Arm | Arm", engine: Running, info: dict, load: dict) -> None:
    """An arm whose engine runs, in its record: what was asked, sent and seen. info: the engine's description."""
    writer.add_arm(
        arm.name,
        requested=arm.config.as_dict(),
        server_info=info,
        launch=engine.launch_record(),
        title=arm.title,
        expect=arm.expect,
        before=arm.before,
        options=evidence(arm.config, info),
        load=load,
    )


class NotStarted(LabError):
    """An engine of several did not start; digest says of which configuration, the cause has the rest."""

    def __init__(self, digest: str, cause: LabError):
        self.digest = digest
        super().__init__(str(cause))


class Pool:
    """Running engines by configuration. One pool a kernel (`pool()`), because a machine has one lab."""

    def __init__(self):
        self._running: dict[str, Running] = {}
        self._lock = threading.RLock()
        self.starts: dict[str, float] = {}  # seconds that the last start of a configuration took

    def running(self) -> list[Running]:
        """Engines that are alive now, oldest first."""
        # Without the lock: a page that asks must not wait for the start of an engine.
        return [e for digest, e in list(self._running.items()) if _usable(e, digest)]

    def get(self, config: EngineConfig) -> Running | None:
        """The running engine of exactly this configuration, None when there is none."""
        engine = self._running.get(config.digest())
        return engine if engine is not None and _usable(engine, config.digest()) else None

    def ensure(
        self,
        configs: Sequence[EngineConfig],
        run_dir: Path,
        *,
        cancel: threading.Event | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> list[Running]:
        """Have these engines running and no others of ours; starts what is missing, in order.

        Raises NotStarted with the last log lines, Owned where another lab has the machine, StartCancelled, NoRoom.
        """
        with waits.holding(self._lock, "another panel of this kernel to start its engines", START_S):
            wanted = [c.digest() for c in configs]
            for digest in [d for d in self._running if d not in wanted]:
                self._running.pop(digest).stop()
            found = []
            for config, digest in zip(configs, wanted, strict=True):
                engine = self.get(config)
                if engine is None:
                    try:
                        engine = self._start(config, run_dir, on_event, cancel=cancel)
                    except (process.Owned, process.StartCancelled, NoRoom, Busy):
                        raise
                    except LabError as e:
                        raise NotStarted(digest, e) from e
                    self._running[digest] = engine
                    self.starts[digest] = engine.start_seconds
                found.append(engine)
            return found

    def _start(self, config: EngineConfig, run_dir: Path, on_event, *, cancel) -> Running:
        """Start it beside those that this kernel runs, or attach to the same one where another notebook owns it."""
        try:
            return process.start(config, run_dir, on_event, beside=True, cancel=cancel)
        except process.Owned as e:
            same = [o for o in e.owner.engines if o.get("digest") == config.digest() and o.get("ready")]
            if e.owner.mine:
                raise
            if not same:
                where = f" at {e.owner.url}" if e.owner.url else ""
                raise Busy(
                    f"{notebook_of(e.owner.pid)} runs an engine with other settings{where}, and one notebook at a time"
                    " owns the engines. Press Stop engine there (or shut its kernel down), then press Run here again."
                ) from None
            url = same[-1]["url"]
            return process.start(
                EngineConfig(engine="attach", url=url, api_key_env=config.api_key_env), run_dir, on_event
            )

    def needs_start(self, config: EngineConfig) -> bool:
        """Would measuring this configuration start an engine?"""
        return self.get(config) is None

    def start_seconds(self, config: EngineConfig) -> float | None:
        """How long the last start of this configuration took here, else the longest of any; None before the first."""
        return self.starts.get(config.digest(), max(self.starts.values(), default=None))

    def drop(self, *configs: EngineConfig) -> None:
        """Stop the engines of these configurations: they hang, or answered with errors."""
        with waits.holding(self._lock, "a start to end that is under way", STOP_S):
            for engine in [self._running.pop(c.digest(), None) for c in configs]:
                if engine is not None:
                    engine.stop()

    def stop(self) -> None:
        """Stop every engine of ours; attached servers stay."""
        with waits.holding(self._lock, "a start to end that is under way (Cancel ends it)", STOP_S):
            for engine in self._running.values():
                engine.stop()
            self._running.clear()


_pool = Pool()


def pool() -> Pool:
    """The kernel's pool."""
    return _pool
