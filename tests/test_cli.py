"""The command line as a person meets it: real processes, exit codes, one line for bad input."""

import importlib
import pkgutil
import subprocess
import sys
import types

import pytest

from labkit import cli
from labkit.errors import BadInput, LabError

COMMANDS = sorted(m.name for m in pkgutil.iter_modules(cli.__path__) if not m.name.startswith("_"))


def run(*argv):
    return subprocess.run([sys.executable, "-m", "labkit", *argv], capture_output=True, text=True, timeout=240)


def test_help_names_every_command():
    out = run("--help")
    assert out.returncode == 0
    for name in COMMANDS:
        assert f"\n    {name}" in out.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_command_module_has_the_three_parts(name):
    module = importlib.import_module(f"labkit.cli.{name}")
    assert module.HELP and callable(module.add_arguments) and callable(module.main)


def test_unknown_command_is_one_line_and_exit_2():
    out = run("fly")
    assert out.returncode == 2 and out.stdout == ""
    assert len(out.stderr.strip().splitlines()) == 1 and "fly" in out.stderr


@pytest.mark.parametrize(
    "error, code, text",
    [
        (BadInput("repeats", "banana", "a number"), 2, "repeats: got 'banana'; accepted: a number"),
        (LabError("the engine did not start"), 1, "the engine did not start"),
    ],
)
def test_errors_for_people_become_one_line(monkeypatch, capsys, error, code, text):
    def main(args):
        raise error

    broken = types.SimpleNamespace(HELP="always fails", add_arguments=lambda parser: None, main=main)
    monkeypatch.setattr(cli, "_names", lambda: ["broken"])
    monkeypatch.setitem(sys.modules, "labkit.cli.broken", broken)
    assert cli.main(["broken"]) == code
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1 and text in err


def test_bad_input_keeps_a_long_value_short():
    assert len(str(BadInput("text", "x" * 5000, "at most 100 characters"))) < 220


def test_a_reader_that_leaves_early_is_no_error():
    """More lines than a pipe holds, read by nobody."""
    loud = "import sys, types; from labkit import cli\n"
    loud += "def main(args):\n for _ in range(20000): print('x' * 80)\n return 0\n"
    loud += "parts = dict(HELP='', add_arguments=lambda p: 0, main=main)\n"
    loud += "sys.modules['labkit.cli.loud'] = types.SimpleNamespace(**parts)\n"
    loud += "cli._names = lambda: ['loud']; sys.exit(cli.main(['loud']))"
    child = subprocess.Popen([sys.executable, "-c", loud], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.close()
    assert child.wait(240) == 0 and child.stderr.read() == b""
