"""Progress on a terminal and in a log."""

import io

import pytest

from labkit.batch.line import Line


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock():
    now = [100.0]

    def read():
        return now[0]

    read.now = now
    return read


def test_a_log_gets_each_stage_and_now_and_then_a_line(clock):
    out = io.StringIO()
    with Line(out, clock) as line:
        line.tell("reading memory", 60)
        clock.now[0] += 2
        line.tell("1 of 9 requests, a: repeat 1", 50)
        line.tell("2 of 9 requests, b: repeat 1", 48)  # at once: says nothing new
        clock.now[0] += 11
        line.tell("3 of 9 requests, a: repeat 2", 40)
    assert out.getvalue().splitlines() == [
        "[1 s] reading memory, about 60 s left",
        "[2 s] 1 of 9 requests, a: repeat 1, about 50 s left",
        "[13 s] 3 of 9 requests, a: repeat 2, about 40 s left",
    ]


def test_a_terminal_has_one_line_that_goes_when_all_is_done(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    with Line(out, clock) as line:
        line.tell("measuring", 90)
        line.tell("x" * 100, None)
    shown = out.getvalue()
    assert "\n" not in shown and shown.endswith("\r\x1b[2K") and "about 1.5 min left" in shown
    assert all(len(part) <= 39 for part in shown.split("\r\x1b[2K"))
