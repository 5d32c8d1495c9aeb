"""What dies beside a cell, in a real kernel: the notebook is marked failed and its cell is named."""

import nbformat
import pytest

from labkit.batch import run

THREAD = """
import threading
def measure():
    raise RuntimeError("the server went away")
t = threading.Thread(target=measure, name="measuring")
t.start()
t.join()
"""
LATE_THREAD = """
import threading, time
gate = threading.Event()
def measure():
    gate.wait(60)
    raise RuntimeError("the server went away")
threading.Thread(target=measure, name="measuring").start()
"""
TASK = """
import asyncio
async def measure():
    raise RuntimeError("the server went away")
task = asyncio.create_task(measure(), name="measuring")
await asyncio.sleep(0)
"""
CHILD = """
import multiprocessing
def measure():
    raise RuntimeError("the server went away")
child = multiprocessing.get_context("fork").Process(target=measure, name="measuring")
child.start()
child.join()
"""
FORK = """
import os
pid = os.fork()
if pid == 0:
    raise RuntimeError("the server went away")
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
"""
FINE = """
import subprocess, threading
subprocess.run(["false"])
threading.Thread(target=int).start()
try:
    await task
except RuntimeError as e:
    print("asked:", e)
"""


def outcome(make, tmp_path, *cells):
    (found,) = run.run([make("02_x", *cells)], {}, tmp_path / "out").outcomes
    marked = nbformat.read(found.path, as_version=4).metadata.labkit
    assert marked.status == found.status and marked.get("error", "") == found.error
    return found


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ((THREAD, "print(1)"), "cell 3: BackgroundFailure: thread measuring died: RuntimeError: the server went away"),
        (
            (LATE_THREAD, "print(1)", "gate.set()\ntime.sleep(1)"),
            "cell 5: BackgroundFailure: thread measuring (started in cell 3) died: RuntimeError: the server went away",
        ),
        ((TASK, "print(1)"), "after its last cell: task measuring (started in cell 3) died: RuntimeError: the server"),
        ((CHILD, "print(1)"), "cell 3: BackgroundFailure: child process measuring died: exit code 1"),
        ((FORK, "print(1)"), "cell 3: BackgroundFailure: forked child"),
        (("import sys; sys.exit(0)", "print(1)"), "cell 3 ended the notebook (sys.exit or the like)"),
        (("import sys; sys.exit(3)",), "cell 3: SystemExit: 3"),
        (("%prof_decode_steps --on", "print(1)"), "cell 3: CellExecutionError: UsageError: Line magic function"),
    ],
    ids=["thread", "late thread", "task", "child", "fork", "exit early", "exit code", "magic"],
)
def test_a_death_is_the_failure_of_a_cell(make, tmp_path, cells, says):
    found = outcome(make, tmp_path, *cells)
    assert (found.status, found.error[: len(says)]) == ("failed", says)


def test_what_a_notebook_looks_after_itself_is_no_failure(make, tmp_path):
    """A task that it asks, a program whose exit code it may ignore, and sys.exit(0) when everything has run."""
    assert outcome(make, tmp_path, TASK, FINE, "import sys; sys.exit(0)").status == "ok"
