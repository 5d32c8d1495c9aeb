"""What a Dask worker runs: a look at its machine, and one block. JSON text comes in and goes out, so that nothing of a
params file is ever pickled, and what arrives is validated like a file that somebody wrote.

A running task cannot be cancelled from outside, so each watches its own state and ends its engines when it is no longer
wanted: after Ctrl-C, when whoever submitted it is gone, and when the scheduler is gone.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import labkit
from labkit import disk, waits
from labkit.engines import owner
from labkit.engines.config import EngineConfig
from labkit.engines.turn import Busy, turn
from labkit.errors import LabError
from labkit.measure.pool import Pool
from labkit.measure.sweep.block import Task, measure
from labkit.records import environment

BEGUN, SAYS, ENDED = "begun", "says", "ended"  # kinds of events
BEAT_S = 5.0  # between two signs of life
_TICK_S, _SAY_S = 0.5, 1.0
_LEAST_ROOM = 64 << 20  # bytes, for a record and an engine's log
_LONGEST_LOG = 200_000  # bytes of an engine's log that travel
_SOURCES = (".py", ".c", ".h", ".yaml")


def look(text: str) -> str:
    """Can this worker measure? text: engine (its section of a params file), wait_s, topic, key.

    Starts the engine once, because a compiler and a model that are there prove less than an engine that answers.
    Returns facts of the machine, or `lacks` with a reason.
    """
    order = json.loads(text)
    facts = {
        **versions(),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "runtime": str(owner.runtime_dir()),
        "environment": environment.machine() | {"packages": environment.packages()},
    }
    with _Line(order["topic"], order["key"]) as line:
        try:
            config = EngineConfig.from_dict(order["engine"])
            with _place(line) as directory, _machine("looks at this worker", line, order["wait_s"]), _engines() as pool:
                line.say(f"starting {config.engine}")
                info = pool.ensure([config], directory, cancel=line.cancel)[0].server_info()
                facts["engine"] = {k: info.get(k) for k in ("version", "kernel_variant")}
        except Exception as e:
            return json.dumps({"lacks": _short(e)})
        return json.dumps(facts)


def block(text: str) -> str:
    """Measure a block. text: task (block.Task as text), cut_s (seconds until a budget ends it, or None), wait_s, topic,
    key.

    Returns the record's files by name and took_s, or `failed` with a reason that is no configuration's fault; `unfit`
    where this machine can measure no other block either (its disk is full, somebody else measures on it).
    """
    order = json.loads(text)
    with _Line(order["topic"], order["key"]) as line:
        try:
            task = Task.read(order["task"])
            with _place(line) as directory, _machine(task.name, line, order["wait_s"]):
                began = time.monotonic()
                over = line.cancel_after(order["cut_s"])
                try:
                    with _engines() as pool:
                        for p in measure(task, directory / "record", pool, cancel=line.cancel, tell=line.say):
                            line.say(p.text, p.eta_s)
                except LabError:
                    if not over.is_set():  # whole passes count, where a budget ends the block
                        raise
                return json.dumps({"files": _files(directory / "record"), "took_s": time.monotonic() - began})
        except Exception as e:
            return json.dumps({"failed": _short(e), "unfit": isinstance(e, (disk.NoRoom, Busy))})


def versions() -> dict[str, str]:
    """What must be equal here and there: the lab's version, and a digest of its code, because two checkouts of one
    version may measure differently."""
    found, root = hashlib.sha256(), Path(labkit.__file__).parent
    for path in sorted(p for p in root.rglob("*") if p.suffix in _SOURCES):
        found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return {"version_of_labkit": labkit.__version__, "digest_of_labkit's_code": found.hexdigest()[:16]}


class _Line:
    """A task's line to whoever submitted it: what it does goes out, and `cancel` is set once it is no longer wanted."""

    def __init__(self, topic: str, key: str):
        from distributed import get_worker

        self._topic, self._key, self._worker = topic, key, get_worker()
        self.cancel, self._over = threading.Event(), threading.Event()
        self._said = self._beat = 0.0

    @property
    def directory(self) -> str:
        """Where this worker may write."""
        return self._worker.local_directory

    def say(self, text: str, eta_s: float | None = None) -> None:
        """What happens now; every word of a chatty engine is not worth a message."""
        if time.monotonic() - self._said > _SAY_S:
            self._said = time.monotonic()
            self._send(SAYS, text, eta_s)

    def cancel_after(self, seconds: float | None) -> threading.Event:
        """Set `cancel` after this time; the event tells that this is why."""
        over = threading.Event()
        if seconds is not None:
            timer = threading.Timer(seconds, lambda: (over.set(), self.cancel.set()))
            timer.daemon = True
            timer.start()
        return over

    def _send(self, kind: str, text: str = "", eta_s: float | None = None) -> None:
        self._beat = time.monotonic()
        event = {"key": self._key, "kind": kind, "text": text, "eta_s": eta_s, "pid": os.getpid()}
        self._worker.log_event(self._topic, json.dumps(event))

    def _watch(self) -> None:
        while not self._over.wait(_TICK_S):
            if not self._wanted():
                self.cancel.set()
            if time.monotonic() - self._beat > BEAT_S:
                self._send(SAYS)

    def _wanted(self) -> bool:
        state = self._worker.state.tasks.get(self._key)
        running = self._worker.status.name in ("running", "paused")
        return running and state is not None and state.state in ("executing", "long-running")

    def __enter__(self) -> "_Line":
        self._send(BEGUN)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        with contextlib.suppress(waits.TookTooLong):
            waits.join([self._thread], "a watching thread", 5.0)
        self._send(ENDED)


@contextlib.contextmanager
def _place(line: _Line) -> Iterator[Path]:
    """A folder of this task, gone when it ends. Raises NoRoom, LabError where too little is free."""
    with disk.told(line.directory, "nothing was measured here"):
        path = Path(tempfile.mkdtemp(prefix="labkit-", dir=line.directory))
    try:
        free = shutil.disk_usage(path).free
        if free < _LEAST_ROOM:
            raise LabError(f"{line.directory} has {free >> 20} MiB left, and {_LEAST_ROOM >> 20} MiB are needed")
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _machine(what: str, line: _Line, wait_s: float) -> Iterator[None]:
    """The machine for this task alone, also against a person's lab and against another worker here; a wait for it ends
    once the task is no longer wanted. Raises Busy."""
    until = time.monotonic() + wait_s
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(turn(f"labkit sweep: {what}", 0.0, line.say))
                break
            except Busy as e:
                who = str(e).partition(";")[0]
                if line.cancel.wait(_TICK_S) or time.monotonic() > until:
                    raise Busy(f"{who}; waited {wait_s:g} s") from None
                line.say(who)
        yield


@contextlib.contextmanager
def _engines() -> Iterator[Pool]:
    """Engines that end with the task."""
    _undo_nanny()
    pool = Pool()
    try:
        yield pool
    finally:
        pool.stop()


def _undo_nanny() -> None:
    """Dask's nanny gives its workers OMP_NUM_THREADS=1 and the like, which an engine would inherit; a params file's own
    `env` still says it."""
    import dask
    from distributed import get_worker

    if get_worker().nanny:
        for name, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
            if os.environ.get(name) == str(value):
                del os.environ[name]


def _files(record: Path) -> dict[str, str]:
    """A record as text: of a long engine log its end."""
    out = {}
    for path in sorted(p for p in record.iterdir() if p.is_file()):
        data = path.read_bytes()
        out[path.name] = (data[-_LONGEST_LOG:] if path.suffix == ".log" else data).decode(errors="replace")
    return out


def _short(e: Exception) -> str:
    lines = [x.strip() for x in str(e).splitlines() if x.strip()] or [type(e).__name__]
    text = lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"
    return text if isinstance(e, LabError) else f"{type(e).__name__}: {text}"
