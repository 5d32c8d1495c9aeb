"""Loaded into the kernel of a headless run (an IPython extension): what dies beside a cell makes the cell fail.

A notebook's cell is done when its last line is done. A thread, an asyncio task or a forked child that it started may
die meanwhile or later, with a traceback on stderr at most, and the cells after it would present half of a measurement.
Here such a death is the failure of the cell that ran when it was noticed, and it names the cell that began it. What
only shows when the kernel ends is written to the file named by LABKIT_WATCH, for labkit.batch.run.
"""

import asyncio
import atexit
import json
import multiprocessing.process
import os
import signal
import threading
import weakref

FILE = "LABKIT_WATCH"


class BackgroundFailure(Exception):
    """A thread, task or child that a notebook started died."""


class Watch:
    """Deaths since the last look. cell: number of the running (or the last) cell."""

    def __init__(self, shell):
        self.shell, self.pid = shell, os.getpid()
        self.cell = 0
        self.deaths: list[str] = []
        self.threads: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # thread -> its cell
        self.tasks: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # task -> its cell
        self.children: dict = {}  # multiprocessing's Process -> its cell
        self.forked: dict[int, int] = {}  # pid -> its cell

    def install(self) -> None:
        """Put the watch in place; whatever was in place before is still called."""
        self.shell.events.register("pre_run_cell", self.before)
        self.shell.events.register("post_run_cell", self.after)
        atexit.register(self.at_exit)
        self._wrap(threading.Thread, "start", lambda thread, _: self.threads.setdefault(thread, self.cell))
        self._wrap(
            multiprocessing.process.BaseProcess, "start", lambda child, _: self.children.setdefault(child, self.cell)
        )
        hook, fork = threading.excepthook, os.fork

        def thread_died(args):
            hook(args)
            if args.exc_type is not SystemExit:
                name = getattr(args.thread, "name", "a thread")
                self._died(f"thread {name}", self.threads.get(args.thread, 0), _said(args.exc_type, args.exc_value))

        def remembered_fork():
            pid = fork()
            if pid:
                self.forked[pid] = self.cell
            return pid

        threading.excepthook, os.fork = thread_died, remembered_fork

    def _wrap(self, kind, name, then) -> None:
        plain = getattr(kind, name)

        def wrapped(it, *args, **more):
            then(it, args)
            return plain(it, *args, **more)

        setattr(kind, name, wrapped)

    def before(self, info) -> None:
        """A cell begins: the kernel's loop runs by now."""
        self.cell = self.shell.execution_count - 1  # IPython has counted on before it says that the cell begins
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if getattr(loop.get_task_factory(), "labkit", None) is self:
            return
        made_before = loop.get_task_factory()

        def make(loop, coro, **more):
            task = made_before(loop, coro, **more) if made_before else asyncio.Task(coro, loop=loop, **more)
            self.tasks[task] = self.cell
            return task

        make.labkit = self
        loop.set_task_factory(make)

    def after(self, result) -> None:
        """A cell has ended: it fails if something died beside it."""
        if os.getpid() != self.pid:  # a fork that fell out of its cell must not go on as a second kernel
            os._exit(0 if result.success else 1)
        self._look_at_children()
        if not self.deaths or not result.success:
            return
        failure = BackgroundFailure("; ".join(self.deaths))
        self.deaths.clear()
        self.shell.showtraceback((type(failure), failure, None))
        result.error_in_exec = failure

    def at_exit(self) -> None:
        """What is only known now: tasks that failed and were never asked, children that failed after the last cell."""
        if os.getpid() != self.pid:
            return
        self._look_at_children()
        for task, cell in list(self.tasks.items()):
            # The flag says that nobody has asked for the exception: what asyncio itself reports once a task is dropped.
            if task.done() and not task.cancelled() and getattr(task, "_log_traceback", False):
                failure = task.exception()
                self._died(f"task {task.get_name()}", cell, _said(type(failure), failure))
        if self.deaths and os.environ.get(FILE):
            with open(os.environ[FILE], "w", encoding="utf-8") as file:
                json.dump(self.deaths, file)

    def _look_at_children(self) -> None:
        for child, cell in list(self.children.items()):
            try:
                code = child.exitcode
            except ValueError:  # closed: its end was seen
                code = 0
            if code is None:
                continue
            del self.children[child]
            self.forked.pop(child.pid, None)
            if code not in (0, -signal.SIGTERM):  # terminate() is somebody's wish
                self._died(f"child process {child.name}", cell, f"exit code {code}")
        for pid, cell in list(self.forked.items()):
            try:  # without reaping it: the notebook may want to
                seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # somebody has waited for it, and saw how it ended
                del self.forked[pid]
                continue
            if seen is not None:
                del self.forked[pid]
                if seen.si_status and not (seen.si_code != os.CLD_EXITED and seen.si_status == signal.SIGTERM):
                    self._died(f"forked child {pid}", cell, f"exit code or signal {seen.si_status}")

    def _died(self, what: str, cell: int, why: str) -> None:
        began = f" (started in cell {cell})" if cell and cell != self.cell else ""
        self.deaths.append(f"{what}{began} died: {why}")


def _said(kind: type, value: object) -> str:
    return f"{kind.__name__}: {value}" if str(value) else kind.__name__


def load_ipython_extension(shell) -> None:
    """IPython calls this for `--ext labkit.batch.watch`."""
    Watch(shell).install()
