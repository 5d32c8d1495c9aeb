"""The engines that this lab runs: each one's process, how it ended, and who owns it (see owner.py)."""

import atexit
import contextlib
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from labkit import waits
from labkit.engines import logs
from labkit.engines import owner as ownership
from labkit.engines.adapter import Launch, adapter
from labkit.engines.config import EngineConfig
from labkit.engines.dialects import SGLANG, Dialect
from labkit.engines.http import Unreachable, get_json
from labkit.engines.server_info import HIDDEN, allowed, scrub
from labkit.errors import LabError

GRACE_S = 10.0  # from SIGTERM to SIGKILL
TAIL_LINES = 20


class EngineFailed(LabError):
    """The engine did not start or died. Has phase, returncode (None on a timeout), explanation, log_tail, log_path."""

    def __init__(self, what: str, *, phase: str, returncode: int | None, explanation: str | None, tail: list[str], log):
        self.phase, self.returncode, self.explanation = phase, returncode, explanation
        self.log_tail, self.log_path = tail, log
        lines = [what + (f": {explanation}" if explanation else ""), f"its log: {log}"]
        super().__init__("\n".join(lines + (["last lines:"] + [f"  {t}" for t in tail] if tail else [])))


@dataclass
class EngineProcess:
    """A running engine of ours. Context manager: leaving it stops the engine.

    url          where it answers
    pid          the engine's process (behind a command prefix: the prefix's)
    phases       [(name, seconds)] as they took
    launch       argv and added environment as recorded: the API key replaced by the name of its variable
    """

    config: EngineConfig
    launch: Launch
    log_path: Path
    url: str = ""
    pid: int = 0
    start_seconds: float = 0.0
    phases: list[tuple[str, float]] = field(default_factory=list)
    api_key: str | None = field(default=None, repr=False)
    started_unix: float = field(default_factory=time.time)
    watch: subprocess.Popen | None = field(default=None, repr=False)
    explain: Callable[[str], str | None] = field(default=lambda log: None, repr=False)
    grace_s: float = GRACE_S
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def server_info(self) -> dict:
        """What the engine says of itself, allow-listed and without keys.

        Raises EngineFailed when the engine died, else Unreachable.
        """
        describe = getattr(adapter(self.config.engine), "describe", None)
        try:
            if describe is not None:
                return describe(self.url, self.api_key)
            return allowed(get_json(self.url, "/server_info", self.api_key))
        except Unreachable:
            if not self.alive:
                raise self.failed("the engine died", "running") from None
            raise

    @property
    def dialect(self) -> Dialect:
        return getattr(adapter(self.config.engine), "DIALECT", SGLANG)

    @property
    def alive(self) -> bool:
        return self.watch is not None and self.watch.poll() is None

    def failure(self) -> str | None:
        """What happened to an engine that is gone, with its last log lines; None while it runs."""
        return None if self.alive else str(self.failed("the engine died", "running"))

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The log's last lines."""
        return logs.tail(self.log_path, lines)

    def launch_record(self) -> dict:
        """What a record says about how this engine came to run; holds no secret."""
        return {
            "argv": self.launch.argv,
            "env": self.launch.env,
            "command_prefix": list(self.config.command_prefix),
            "command": command_line(self.config, self.launch),
            "log": self.log_path.name,
            "start_seconds": round(self.start_seconds, 3),
            "phases": [[n, round(s, 3)] for n, s in self.phases],
            "started_unix": self.started_unix,
        }

    def stop(self) -> None:
        """End the engine and all it started: SIGTERM, SIGKILL after the grace time. Bounded; may be called again."""
        with self._lock:
            watch = self.watch
            if watch is None:
                return
            try:
                watch.stdin.close()  # to the watcher this is the same as our death
            except OSError:
                pass
            try:
                watch.wait(self.grace_s + 6.0)
            except subprocess.TimeoutExpired:
                end_by_force(watch, self.pid)  # the watcher hangs, or somebody stopped it
            watch.stdout.close()
        _forget(self)

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def failed(self, what: str, phase: str) -> EngineFailed:
        code = exit_code(self.watch)
        lines = self.tail()
        how = "" if code is None else f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"
        explanation = self.explain("\n".join(logs.tail(self.log_path, 400))) or by_signal(code)
        return EngineFailed(
            f"{self.config.engine}: {what}{how}",
            phase=phase,
            returncode=code,
            explanation=explanation,
            tail=lines,
            log=self.log_path,
        )


def command_line(config: EngineConfig, launch: Launch) -> str:
    """The command as one may type it in a shell, without secrets."""
    env = [f"{k}={v}" for k, v in launch.env.items()]
    words = [*config.command_prefix, *(["env"] if config.command_prefix else []), *env, *launch.argv]
    # A variable's name stays unquoted, so that the printed command works where the variable is set.
    return scrub(" ".join(w if w == f"${config.api_key_env}" else shlex.quote(w) for w in words)).replace(
        f"--api-key {HIDDEN}", f"--api-key ${config.api_key_env}"
    )


def exit_code(watch: subprocess.Popen) -> int | None:
    """The engine's exit code as its watcher told it (minus the signal when killed), None while it runs."""
    if watch.poll() is None:
        return None
    if not hasattr(watch, "engine_code"):
        words = watch.stdout.read().decode().split() if not watch.stdout.closed else []
        at = words.index("exit") if "exit" in words else -1
        watch.engine_code = int(words[at + 1]) if at >= 0 else watch.returncode
    return watch.engine_code


_SIGNALS = {
    signal.SIGKILL: "most often memory ran out (the kernel's log says so: dmesg), or somebody killed it",
    signal.SIGTERM: "somebody stopped it from outside this lab",
    signal.SIGSEGV: "native code crashed: a bug in the engine or in a kernel",
    signal.SIGABRT: "native code gave up: its last lines say why",
    signal.SIGILL: "the processor does not know an instruction: kernels built for another machine",
    signal.SIGBUS: "a file or shared memory behind it went away: is the disk or /dev/shm full?",
}


def by_signal(code: int | None) -> str | None:
    """The likely cause of a death by signal, where the log names none; shells and docker say 128 + the signal."""
    if code is None:
        return None
    return _SIGNALS.get(-code if code < 0 else code - 128)


def end_by_force(watch: subprocess.Popen, pid: int) -> None:
    """SIGKILL to the watcher and to all that it started. pid: the engine's, 0 while the watcher has not said it."""
    try:
        family = psutil.Process(watch.pid).children(recursive=True)
    except psutil.Error:
        family = []
    waits.kill_group(pid)
    watch.kill()
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.kill()
    try:
        watch.wait(5.0)
    except subprocess.TimeoutExpired:
        raise waits.TookTooLong(f"process {watch.pid}, which watches an engine, to die of SIGKILL", 5.0) from None


ENGINES: list[EngineProcess] = []
_starting = 0  # threads inside start(): an engine that is not in ENGINES yet is owned all the same
_state = threading.RLock()


def begin() -> None:
    """A start begins. Raises Owned."""
    global _starting
    with _state:
        ownership.acquire()
        _starting += 1


def end() -> None:
    global _starting
    with _state:
        _starting -= 1
        publish()


def described(engine: EngineProcess) -> dict:
    return {
        "url": engine.url,
        "pid": engine.pid,
        "ready": engine.start_seconds > 0,
        "engine": engine.config.engine,
        "digest": engine.config.digest(),
        "log": str(engine.log_path),
        "started_unix": engine.started_unix,
    }


def publish() -> None:
    with _state:
        alive = [e for e in ENGINES if e.alive]
        if alive or _starting:
            ownership.publish([described(e) for e in alive])
        else:
            ownership.release()


def _forget(engine: EngineProcess) -> None:
    if engine in ENGINES:
        ENGINES.remove(engine)
    publish()


@atexit.register
def stop_all() -> None:
    """End every engine of this lab."""
    for engine in list(ENGINES):
        engine.stop()
