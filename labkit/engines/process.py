"""Start an engine and watch it come up. One lab at a time owns engines (see owner.py)."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from labkit import waits
from labkit.engines import keys, logs, memory, remote, running
from labkit.engines.adapter import Launch, Phase, adapter
from labkit.engines.attach import Attached, api_key, attach
from labkit.engines.config import EngineConfig
from labkit.engines.http import Unreachable, get_json
from labkit.engines.owner import Owned, Owner, owner
from labkit.engines.running import GRACE_S, EngineFailed, EngineProcess
from labkit.errors import SECRET_NAME, LabError

WATCHER_S = 30.0  # for the watcher to read what to start, and to say that it has
_PORT_BUSY = re.compile(r"address already in use|errno 98\b|port \d+ is (already )?in use", re.IGNORECASE)
_PORT_TRIES = 3

__all__ = ["EngineFailed", "EngineProcess", "Event", "Owned", "Owner", "StartCancelled", "owner", "start"]


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
    there = [e for e in running.ENGINES if e.alive]
    if there and not beside:
        raise Owned(Owner(os.getpid(), tuple(running.described(e) for e in there)))
    running.begin()
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
        running.end()


def _start_once(config, run_dir, tell, cancel, module, key, timeout_scale, grace_s) -> EngineProcess:
    memory.check(config)
    picks = getattr(module, "PICKS_PORT", False)
    port = config.port or (0 if picks else free_port(config.host))
    launch = module.command(config, port)
    run_dir.mkdir(parents=True, exist_ok=True)
    log_path = logs.new(run_dir)
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
        explain=getattr(module, "explain", lambda log: None),
        grace_s=grace_s,
    )
    tell(Event("command", running.command_line(config, recorded), 0.0))
    try:
        with keys.handed(config, launch, key) as (words, secret_env, warning):
            if warning:
                tell(Event("line", f"warning: {warning}", 0.0))
            env = {**recorded.env, **secret_env}
            engine.watch = _watcher(config, [*launch.argv, *words], env, log_path, key, grace_s)
            engine.pid = _pid(engine)
            running.ENGINES.append(engine)
            running.publish()
            _follow(engine, module.PHASES, picks, tell, cancel, began, timeout_scale)
        engine.start_seconds = time.monotonic() - began
        running.publish()
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
        running.end_by_force(watch, 0)
        raise
    except OSError:
        pass  # it died at once; _pid reports it
    return watch


def _pid(engine: EngineProcess) -> int:
    """The engine's process id, as its watcher says it. Raises EngineFailed, TookTooLong."""
    out = engine.watch.stdout.fileno()
    words = waits.read_line(out, "the process that watches the engine to start it", WATCHER_S).decode().split()
    if len(words) != 2 or words[0] != "pid":
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.watch.wait(5.0)
        raise engine.failed("could not be started", "start")
    return int(words[1])


def _follow(engine, phases: list[Phase], picks, tell, cancel, began, scale) -> None:
    """Read the log until the last phase's line, then ask /health once."""
    log, at, since, heard = logs.Tail(engine.log_path), 0, began, began
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
                raise engine.failed(f'did not start, ended during "{phase.name}"', phase.name)
            if time.monotonic() - since > phase.timeout_s * scale:
                raise engine.failed(
                    f'did not start: "{phase.name}" took longer than {phase.timeout_s * scale:g} s', phase.name
                )
            # Quiet for long (a load, a held start): look less often, so that watching costs a measurement nothing.
            time.sleep(min(0.25, max(0.02, (time.monotonic() - heard) / 50)))
    try:
        get_json(engine.url, "/health", engine.api_key, timeout_s=30.0)
    except Unreachable as e:
        raise engine.failed(f"said it was ready, but does not answer: {e}", "health") from None


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now; if another process takes it before the engine does, start() notices and retries."""
    with socket.socket() as s:
        s.bind(("127.0.0.1" if host == "localhost" else host, 0))
        return s.getsockname()[1]


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
