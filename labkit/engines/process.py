"""Start an engine, watch it come up, stop it for certain. One lab at a time owns engines (see owner.py)."""

import atexit
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import psutil

from labkit import waits
from labkit.engines import memory, remote
from labkit.engines import owner as ownership
from labkit.engines.adapter import Launch, Phase, adapter
from labkit.engines.attach import Attached, api_key, attach
from labkit.engines.config import EngineConfig
from labkit.engines.dialects import SGLANG, Dialect
from labkit.engines.http import Unreachable, get_json
from labkit.engines.owner import Owned, Owner, owner
from labkit.engines.server_info import HIDDEN, allowed, scrub
from labkit.errors import LabError
from labkit.fields import SECRET_NAME

GRACE_S = 10.0  # from SIGTERM to SIGKILL
TAIL_LINES = 20
WATCHER_S = 30.0  # for the watcher to read what to start, and to say that it has
_PORT_BUSY = re.compile(r"address already in use|errno 98\b|port \d+ is (already )?in use", re.IGNORECASE)
_PORT_TRIES = 3

__all__ = ["EngineFailed", "EngineProcess", "Event", "Owned", "Owner", "StartCancelled", "owner", "start"]


class EngineFailed(LabError):
    """The engine did not start or died. Has phase, returncode (None on a timeout), explanation, log_tail, log_path."""

    def __init__(self, what: str, *, phase: str, returncode: int | None, explanation: str | None, tail: list[str], log):
        self.phase, self.returncode, self.explanation = phase, returncode, explanation
        self.log_tail, self.log_path = tail, log
        lines = [what + (f": {explanation}" if explanation else ""), f"its log: {log}"]
        super().__init__("\n".join(lines + (["last lines:"] + [f"  {t}" for t in tail] if tail else [])))


class StartCancelled(LabError):
    """Starting was cancelled; nothing is left running."""

    def __init__(self):
        super().__init__("starting the engine was cancelled")


@dataclass(frozen=True)
class Event:
    """Progress of a start. kind: command, phase (what it does now), line (a log line), retry, ready (text = url)."""

    kind: str
    text: str
    seconds: float


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
    _watch: subprocess.Popen | None = field(default=None, repr=False)
    _explain: Callable[[str], str | None] = field(default=lambda log: None, repr=False)
    _grace_s: float = GRACE_S
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
                raise self._failed("the engine died", "running") from None
            raise

    @property
    def dialect(self) -> Dialect:
        return getattr(adapter(self.config.engine), "DIALECT", SGLANG)

    @property
    def alive(self) -> bool:
        return self._watch is not None and self._watch.poll() is None

    def failure(self) -> str | None:
        """What happened to an engine that is gone, with its last log lines; None while it runs."""
        return None if self.alive else str(self._failed("the engine died", "running"))

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The log's last lines."""
        return tail(self.log_path, lines)

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
            watch = self._watch
            if watch is None:
                return
            try:
                watch.stdin.close()  # to the watcher this is the same as our death
            except OSError:
                pass
            try:
                watch.wait(self._grace_s + 6.0)
            except subprocess.TimeoutExpired:
                _end_by_force(watch, self.pid)  # the watcher hangs, or somebody stopped it
            watch.stdout.close()
        _forget(self)

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def _failed(self, what: str, phase: str) -> EngineFailed:
        code = _exit_code(self._watch)
        lines = self.tail()
        how = "" if code is None else f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"
        explanation = self._explain("\n".join(tail(self.log_path, 400))) or _by_signal(code)
        return EngineFailed(
            f"{self.config.engine}: {what}{how}",
            phase=phase,
            returncode=code,
            explanation=explanation,
            tail=lines,
            log=self.log_path,
        )


def start(
    config: EngineConfig,
    run_dir: str | Path,
    on_event: Callable[[Event], None] | None = None,
    *,
    beside: bool = False,
    cancel: threading.Event | None = None,
    launcher: ModuleType | None = None,
    timeout_scale: float = 1.0,
    grace_s: float = GRACE_S,
) -> EngineProcess | Attached:
    """Start the configured engine (or attach) and return when it is ready and has answered /health.

    run_dir    gets the log, engine-<n>.log (created where missing)
    on_event   progress, called from this thread
    beside     allow a second engine next to one that this lab already runs (interleaved arms)
    cancel     set it from another thread to give up
    launcher   the engine's adapter module, by default labkit.engines.<engine>.launch
    Raises EngineFailed (phase, log lines, known cause), Owned (another lab or an engine of ours runs), StartCancelled,
    BadInput (API key variable not set, a model too large for this machine's memory).
    """
    if config.engine == "attach":
        return attach(config)
    tell = on_event or (lambda event: None)
    key = api_key(config)
    module = launcher if launcher is not None else adapter(config.engine)
    running = [e for e in _running if e.alive]
    if running and not beside:
        raise Owned(Owner(os.getpid(), tuple(_described(e) for e in running)))
    _begin()
    try:
        for attempt in range(_PORT_TRIES):
            try:
                return _start_once(config, Path(run_dir), tell, cancel, module, key, timeout_scale, grace_s)
            except EngineFailed as e:
                # A port that was free when we looked can be gone when the engine binds it.
                busy = config.port == 0 and any(_PORT_BUSY.search(line) for line in e.log_tail)
                if not busy or attempt == _PORT_TRIES - 1:
                    raise
                tell(Event("retry", "the port was taken; trying another", 0.0))
        raise AssertionError("unreachable")
    finally:
        _end()


def _start_once(config, run_dir, tell, cancel, module, key, timeout_scale, grace_s) -> EngineProcess:
    memory.check(config)
    picks = getattr(module, "PICKS_PORT", False)
    port = config.port or (0 if picks else free_port(config.host))
    launch = module.command(config, port)
    run_dir.mkdir(parents=True, exist_ok=True)
    log_path = _log_path(run_dir)
    began = time.monotonic()
    recorded = Launch(list(launch.argv), {"PYTHONUNBUFFERED": "1", **launch.env, **dict(config.env)}, launch.key_flag)
    if key is not None and launch.key_flag is not None:
        recorded.argv.extend([launch.key_flag, f"${config.api_key_env}"])
    secret = next((name for name in recorded.env if SECRET_NAME.search(name)), None)
    if secret is not None:
        raise LabError(f"the launch environment would record {secret}: secrets go through api_key_env")
    engine = EngineProcess(
        config,
        recorded,
        log_path,
        config.url or f"http://{_reachable(config.host)}:{port}",
        api_key=key,
        _explain=getattr(module, "explain", lambda log: None),
        _grace_s=grace_s,
    )
    tell(Event("command", command_line(config, recorded), 0.0))
    argv = [key if key is not None and a == f"${config.api_key_env}" else a for a in recorded.argv]
    engine._watch = _watcher(config, argv, recorded.env, log_path, key, grace_s)
    try:
        engine.pid = _pid(engine)
        _running.append(engine)
        _publish()
        _follow(engine, module.PHASES, picks, tell, cancel, began, timeout_scale)
        engine.start_seconds = time.monotonic() - began
        _publish()
        tell(Event("ready", engine.url, engine.start_seconds))
        return engine
    except BaseException:
        engine.stop()
        raise


def _watcher(config, argv, env, log_path, key, grace_s) -> subprocess.Popen:
    if config.command_prefix:
        argv = remote.wrap(config.command_prefix, argv, env)
    spec = {
        "argv": argv,
        "env": {**os.environ, **env},
        "log": str(log_path),
        "secrets": [key] if key else [],
        "grace_s": grace_s,
        "keep_stdin": bool(config.command_prefix),
    }
    watch = subprocess.Popen(
        [sys.executable, "-m", "labkit.engines.watch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,  # closing its standard input must never wait for it to read
        start_new_session=True,
    )
    try:
        line = json.dumps(spec).encode() + b"\n"
        waits.write(watch.stdin.fileno(), line, "the process that watches the engine to read its task", WATCHER_S)
    except waits.TookTooLong:
        _end_by_force(watch, 0)
        raise
    except OSError:
        pass  # it died at once; _pid reports it
    return watch


def _pid(engine: EngineProcess) -> int:
    """The engine's process id, as its watcher says it. Raises EngineFailed, TookTooLong."""
    out = engine._watch.stdout.fileno()
    words = waits.read_line(out, "the process that watches the engine to start it", WATCHER_S).decode().split()
    if len(words) != 2 or words[0] != "pid":
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine._watch.wait(5.0)
        raise engine._failed("could not be started", "start")
    return int(words[1])


def _follow(engine, phases: list[Phase], picks, tell, cancel, began, scale) -> None:
    """Read the log until the last phase's line, then ask /health once."""
    log, at, since, heard = _Tail(engine.log_path), 0, began, began
    tell(Event("phase", phases[0].name, 0.0))
    while at < len(phases):
        alive = engine.alive  # before reading: what a dying engine wrote last is then still read
        for line in log.lines():
            now = heard = time.monotonic()
            tell(Event("line", line, now - began))
            found = next(((i, m) for i in range(at, len(phases)) if (m := re.search(phases[i].pattern, line))), None)
            if found is None:
                continue
            engine.phases.append((phases[found[0]].name, now - since))
            at, since = found[0] + 1, now
            if at == len(phases):
                if picks and engine.config.url is None and "url" in found[1].groupdict():
                    engine.url = found[1]["url"]
                break
            tell(Event("phase", phases[at].name, now - began))
        else:
            phase = phases[at]
            if cancel is not None and cancel.is_set():
                raise StartCancelled
            if not alive:
                raise engine._failed(f'did not start, ended during "{phase.name}"', phase.name)
            if time.monotonic() - since > phase.timeout_s * scale:
                raise engine._failed(
                    f'did not start: "{phase.name}" took longer than {phase.timeout_s * scale:g} s', phase.name
                )
            # Quiet for long (a load, a held start): look less often, so that watching costs a measurement nothing.
            time.sleep(min(0.25, max(0.02, (time.monotonic() - heard) / 50)))
    try:
        get_json(engine.url, "/health", engine.api_key, timeout_s=30.0)
    except Unreachable as e:
        raise engine._failed(f"said it was ready, but does not answer: {e}", "health") from None


class _Tail:
    """Complete new lines of a growing file; a progress bar's \\r ends a line too."""

    def __init__(self, path: Path):
        self._path, self._at, self._rest = path, 0, ""

    def lines(self) -> list[str]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        self._at += len(data)
        *lines, self._rest = re.split(r"[\r\n]+", self._rest + data.decode(errors="replace"))
        return [line for line in lines if line.strip()]


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log file, [] when there is none."""
    try:
        data = Path(path).read_bytes()[-200_000:]
    except OSError:
        return []
    return [s for s in re.split(r"[\r\n]+", data.decode(errors="replace")) if s.strip()][-lines:]


def command_line(config: EngineConfig, launch: Launch) -> str:
    """The command as one may type it in a shell, without secrets."""
    env = [f"{k}={v}" for k, v in launch.env.items()]
    words = [*config.command_prefix, *(["env"] if config.command_prefix else []), *env, *launch.argv]
    # A variable's name stays unquoted, so that the printed command works where the variable is set.
    return scrub(" ".join(w if w == f"${config.api_key_env}" else shlex.quote(w) for w in words)).replace(
        f"--api-key {HIDDEN}", f"--api-key ${config.api_key_env}"
    )


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now; if another process takes it before the engine does, start() notices and retries."""
    with socket.socket() as s:
        s.bind(("127.0.0.1" if host == "localhost" else host, 0))
        return s.getsockname()[1]


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host


def _log_path(run_dir: Path) -> Path:
    n = 1
    while True:
        path = run_dir / f"engine-{n}.log"
        try:
            path.touch(mode=0o600, exist_ok=False)
            return path
        except FileExistsError:
            n += 1


def _exit_code(watch: subprocess.Popen) -> int | None:
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


def _by_signal(code: int | None) -> str | None:
    """The likely cause of a death by signal, where the log names none; shells and docker say 128 + the signal."""
    if code is None:
        return None
    return _SIGNALS.get(-code if code < 0 else code - 128)


def _end_by_force(watch: subprocess.Popen, pid: int) -> None:
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


_running: list[EngineProcess] = []
_starting = 0  # threads inside start(): an engine that is not in _running yet is owned all the same
_state = threading.RLock()


def _begin() -> None:
    """A start begins. Raises Owned."""
    global _starting
    with _state:
        ownership.acquire()
        _starting += 1


def _end() -> None:
    global _starting
    with _state:
        _starting -= 1
        _publish()


def _described(engine: EngineProcess) -> dict:
    return {
        "url": engine.url,
        "pid": engine.pid,
        "ready": engine.start_seconds > 0,
        "engine": engine.config.engine,
        "digest": engine.config.digest(),
        "log": str(engine.log_path),
        "started_unix": engine.started_unix,
    }


def _publish() -> None:
    with _state:
        alive = [e for e in _running if e.alive]
        if alive or _starting:
            ownership.publish([_described(e) for e in alive])
        else:
            ownership.release()


def _forget(engine: EngineProcess) -> None:
    if engine in _running:
        _running.remove(engine)
    _publish()


@atexit.register
def stop_all() -> None:
    """End every engine of this lab."""
    for engine in list(_running):
        engine.stop()
