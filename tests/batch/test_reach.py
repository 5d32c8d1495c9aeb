"""A value that would reach nobody is refused in one line that says why."""

import pytest

from labkit.batch import reach
from labkit.cli import main
from labkit.errors import BadInput

PARAMETERS = "repeats: int = 5  # passes\nbound: float = 1.0  # most\nout_dir: str = 'outputs'  # where"


@pytest.mark.parametrize(
    ("cell", "unread"),
    [
        ("print(repeats, bound, out_dir)", {}),
        ("repeats = 5\nprint(repeats, bound, out_dir)", {"repeats": "overwrites it"}),
        ("repeats = repeats + 1; repeats += 1; print(bound, out_dir)", {}),
        ("for repeats in range(3): print(bound, out_dir)", {"repeats": "overwrites it"}),
        ("print(repeats, out_dir)", {"bound": "no cell reads it"}),
        ("%time print(repeats, bound, out_dir)", {}),
        ("def f(repeats):\n    return out_dir\nf(bound)", {"repeats": "no cell reads it"}),
    ],
)
def test_what_a_notebook_reads(make, cell, unread):
    found = reach.unread_in(make("02_x", cell, parameters=PARAMETERS))
    assert set(found) == set(unread) and all(unread[n] in said for n, said in found.items())


@pytest.mark.parametrize(
    ("given", "over", "says"),
    [
        ({}, {"repeats": 9}, "^02_x: repeats: got 9; accepted: nothing, because code cell 2 overwrites it"),
        ({"repeats": 9}, {}, "^02_x: repeats: got 9"),
        ({}, {"seed": 9}, "^seed: got 9; accepted: a parameter of 02_x: bound, out_dir, repeats"),
        ({"notebooks": {"02_y": {"bound": 1}}}, {}, "^notebooks.02_y: got .*; accepted: a section for one of 02_x$"),
        ({"notebooks": {"02_x": {"seed": 1}}}, {}, "^notebooks.02_x.seed: got 1"),
    ],
)
def test_refused(make, given, over, says):
    notebook = make("02_x", "repeats = 3\nprint(repeats, bound, out_dir)", parameters=PARAMETERS)
    with pytest.raises(BadInput, match=says):
        reach.check([notebook], given, over)


def test_the_command_line_says_it_in_one_line(capsys):
    assert main(["run", "01_bytes", "-p", "repeats", "99"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("labkit run: repeats: got 99;") and "01_bytes: " in line and "context, " in line
