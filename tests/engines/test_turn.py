"""Headless runs wait for each other, with a word and a limit."""

import subprocess
import sys
import textwrap
import threading
from contextlib import nullcontext

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


@pytest.fixture
def lab():
    """A lab that owns an engine at port 1234. Each line that it reads begins or ends a measurement; it answers "ok"."""
    program = (
        OWNS_ENGINES
        + """
    while True:
        with owner.measuring():
            print("ok", flush=True)
            input()
        print("ok", flush=True)
        input()
"""
    )
    argv = [sys.executable, "-c", textwrap.dedent(program)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"

    def go_on():
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "ok\n"

    yield go_on
    child.kill()
    child.wait()


@pytest.mark.parametrize("url, waits", [("http://localhost:1234", False), ("http://127.0.0.1:1235", True)])
def test_an_idle_server_of_the_lab_that_owns_engines_can_be_measured(url, waits, lab):
    """It may idle for hours, and is what is to be measured; another lab's server is not."""
    with pytest.raises(turn.Busy, match="idle engine at http://127.0.0.1:1234") if waits else nullcontext():
        with turn.turn("labkit bench", 0, pytest.fail, urls=[url]):
            pass


def test_its_server_is_waited_for_while_that_lab_measures(lab):
    lab()
    with pytest.raises(turn.Busy, match="measures.*not waiting, as asked"):
        with turn.turn("labkit bench", 0, pytest.fail, urls=["http://127.0.0.1:1234"]):
            pass
    said = []

    def say(text):
        said.append(text)
        lab()  # it is done

    with turn.turn("labkit bench", 240, say, urls=["http://127.0.0.1:1234"]):
        assert len(said) == 1 and "measures" in said[0] and "4 min" in said[0]


def test_notebooks_on_an_idle_server_of_another_lab_begin(lab, capfd, tmp_path):
    """Waiting for that lab to end could take days. Nobody serves at this address, and that is what is said."""
    from labkit.cli import main

    params = tmp_path / "attach.yaml"
    params.write_text(f"common: {{engine: {{engine: attach, url: 'http://127.0.0.1:1234'}}, out_dir: {tmp_path}}}")
    assert main(["run", "02", "-f", str(params), "--no-wait"]) == 1
    told = capfd.readouterr()
    assert "not waiting" not in told.out + told.err and "127.0.0.1:1234" in told.out


@pytest.mark.parametrize(
    "command",
    [
        ["ladder"],
        ["bench", "--url", "http://127.0.0.1:9"],
        ["eval"],
        ["check", "--url", "http://127.0.0.1:9", "--expect", "mtp"],
        ["profile"],
        ["selfbench"],
        ["run", "02"],
        ["walk"],
    ],
    ids=lambda c: c[0],
)
def test_every_command_that_measures_takes_its_turn(other, command, capsys, tmp_path, monkeypatch):
    from labkit.cli import main

    folder = [] if command[0] in ("check", "profile", "selfbench", "run", "walk") else ["--out", str(tmp_path)]
    assert main([*command, *folder, "--no-wait"]) == 1
    told = capsys.readouterr()
    assert f"process {other.pid}" in told.err and "not waiting, as asked" in told.err
    assert not list(tmp_path.glob("*/run.json"))  # nothing is begun that would be left unfinished
