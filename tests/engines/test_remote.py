"""Commands that run elsewhere keep their words and their standard input."""

import shlex
import subprocess

import pytest

from labkit.engines.remote import wrap
from labkit.errors import BadInput

WORDS = ["printf", "%s|", "two words", "$HOME", "a'b", '"q"', ";ls", ""]


@pytest.mark.parametrize("prefix", [("env",), ("nice", "-n", "1")])
def test_words_arrive_unchanged(prefix):
    held = subprocess.Popen(wrap(prefix, WORDS, {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert held.stdout.read() == "".join(w + "|" for w in WORDS[2:])
    assert held.wait(90) == 0


def test_ssh_gets_one_quoted_string():
    argv = wrap(("ssh", "-L", "1:h:1", "host"), WORDS, {"A": "x y"})
    assert argv[:4] == ["ssh", "-L", "1:h:1", "host"] and len(argv) == 5
    far = shlex.split(argv[4])
    assert far[:2] == ["sh", "-c"] and far[3:] == ["sh", "env", "A=x y", *WORDS]


def test_the_exit_code_comes_back():
    p = subprocess.Popen(wrap(("env",), ["sh", "-c", "exit 7"], {}), stdin=subprocess.PIPE)
    assert p.wait(90) == 7


def test_the_end_of_standard_input_ends_the_command():
    p = subprocess.Popen(wrap(("env",), ["sleep", "600"], {}), stdin=subprocess.PIPE)
    p.stdin.close()
    assert p.wait(90) == 143


@pytest.mark.parametrize("prefix", [("docker", "run", "img"), ("ssh", "-n", "h"), ("/usr/bin/podman", "run", "x")])
def test_prefixes_without_standard_input_are_refused(prefix):
    with pytest.raises(BadInput, match="command_prefix"):
        wrap(prefix, ["x"], {})


@pytest.mark.parametrize("flag", ["-i", "-it", "--interactive"])
def test_docker_with_standard_input(flag):
    assert wrap(("docker", "run", "--rm", flag, "img"), ["x"], {})[:5] == ["docker", "run", "--rm", flag, "img"]
