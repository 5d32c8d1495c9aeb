"""Headless runs wait for each other, with a word and a limit."""

import subprocess
import sys
import textwrap
import threading

import pytest

from labkit.engines import turn

HOLDS_A_RUN = """
    from labkit.engines import turn
    with turn.turn("02_baseline", 0, print):
        print("held", flush=True)
        input()
"""
OWNS_ENGINES = """
    from labkit.engines import owner
    owner.acquire()
    owner.publish([{"url": "http://127.0.0.1:1234", "pid": 1, "engine": "pocket", "digest": "d"}])
    print("held", flush=True)
    input()
"""


@pytest.fixture(params=[HOLDS_A_RUN, OWNS_ENGINES], ids=["a run", "a lab with engines"])
def other(request):
    argv = [sys.executable, "-c", textwrap.dedent(request.param)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()


def test_not_waiting_is_one_line_that_names_the_other(other):
    with pytest.raises(turn.Busy) as e:
        with turn.turn("05_mtp", 0, pytest.fail):
            pass
    assert f"process {other.pid}" in str(e.value) and "not waiting, as asked" in str(e.value)
    assert len(str(e.value).splitlines()) == 1


def test_waiting_has_a_limit(other):
    said = []
    with pytest.raises(turn.Busy, match="waited 0.3 s"):
        with turn.turn("05_mtp", 0.3, said.append):
            pass
    assert len(said) == 1 and f"process {other.pid}" in said[0] and "Ctrl-C" in said[0]


def test_the_turn_comes_when_the_other_has_ended(other):
    def say(text):  # the other ends once this one has said that it waits
        threading.Thread(target=other.stdin.close).start()

    with turn.turn("05_mtp", 240, say):
        pass


def test_a_killed_run_holds_nothing(other):
    other.kill()
    other.wait()
    with turn.turn("05_mtp", 0, pytest.fail):
        pass
