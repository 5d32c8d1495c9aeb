"""Probes in sweeps: what disturbed a sweep does not reach the result, and a busy machine is named."""

import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.measure import rates, sweeps
from labkit.measure.sweeps import LEAST, OTHERS, WANTED, Others, Sweep, quiet, swept

PROBES = {"one": lambda: 1.0, "two": lambda: {"a": 2.0, "b": 3.0}}


def sweep(slow=1.0, **how):
    """A sweep in which everything took `slow` times as long, canaries too."""
    took = {"one": slow, "two": {"a": 2 * slow, "b": 3 * slow}}
    return Sweep(took, {"reading": [slow, slow, slow], "arithmetic": [slow]}, **how)


@pytest.fixture(autouse=True)
def as_many_as_usual(monkeypatch):
    monkeypatch.delenv(sweeps.PASSES, raising=False)


@pytest.fixture
def made(monkeypatch):
    """Sweeps that `swept` gets, one after another, the last one again and again; -> the list to be filled."""
    given_, count = [], iter(range(10**6))
    monkeypatch.setattr(sweeps, "_sweep", lambda *_: given_[min(next(count), len(given_) - 1)])
    return given_


def test_a_slow_sweep_is_made_again(made):
    made += [sweep(), sweep(1.5), sweep(), sweep(2.0), sweep()]
    found = swept(PROBES, {"reading": float, "arithmetic": float})
    assert found.took == {"one": 1.0, "two": {"a": 2.0, "b": 3.0}}
    assert found.canaries == {"reading": 1.0, "arithmetic": 1.0}
    assert not found.disturbed and len(found.sweeps) == WANTED + 2


@pytest.mark.parametrize("how", [{"others": 2 * OTHERS}, {"share": 0.5}])
def test_a_busy_machine_is_named_and_not_waited_for(made, how):
    made += [sweep(1.0 + i / 10, **how) for i in range(LEAST + 5)]
    found = swept(PROBES, {"reading": float, "arithmetic": float})
    assert found.disturbed and len(found.sweeps) == LEAST
    assert found.took["one"] == found.canaries["arithmetic"] == pytest.approx(1.2)  # of 1.0 to 1.4: what a request sees


def test_fewer_sweeps_where_less_is_enough(made, monkeypatch):
    made += [sweep(1.5), sweep(1.0)]
    for passes in ("1", "2"):
        monkeypatch.setenv(sweeps.PASSES, passes)
        assert len(swept(PROBES, {"reading": float, "arithmetic": float}).sweeps) == int(passes)
    for wrong in ("0", "-1", "many"):
        monkeypatch.setenv(sweeps.PASSES, wrong)
        with pytest.raises(BadInput, match=sweeps.PASSES):
            swept(PROBES, {"reading": float, "arithmetic": float})


def test_one_interrupted_probe_of_five_says_nothing(made):
    made += [sweep(), sweep(1.01), sweep(1.02), sweep(), sweep(1.03)]
    made[3].took["one"] = 50.0
    assert swept(PROBES, {"reading": float, "arithmetic": float}).took["one"] == pytest.approx(1.02)


def test_a_canary_that_slowed_down_for_a_moment_is_no_disturbance():
    one = sweep()
    one.canaries["reading"] = [1.0, 3.0, 1.0]
    assert len(quiet([sweep(), sweep(), one])) == 3


@given(st.lists(st.floats(1.3, 10), max_size=WANTED), st.randoms())
def test_the_result_is_that_of_the_quiet_sweeps_in_whatever_order(slow, random):
    every = [sweep() for _ in range(WANTED + len(slow))] + [sweep(s) for s in slow]
    random.shuffle(every)
    assert all(s.took["one"] == 1.0 for s in quiet(every)) and len(quiet(every)) >= WANTED


def test_another_programs_time_is_seen():
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        machine = Others()
        time.sleep(0.5)
        assert machine.share() > 0
    finally:
        other.kill()
        other.wait()


def test_a_real_sweep_runs_every_probe_between_canaries():
    ran = []
    made = sweeps._sweep(
        {i: lambda i=i: ran.append(i) or float(i) for i in range(60)}, {"reading": lambda: ran.append("c") or 1.0}
    )
    assert ran[0] == "c" and ran[-1] == "c" and ran.count("c") == len(made.canaries["reading"]) == 4
    assert made.took == {i: float(i) for i in range(60)} and 0 <= made.others <= 1


def test_each_sweep_runs_in_a_thread_of_its_own_and_what_fails_there_fails_here():
    ran = []
    swept({"one": lambda: ran.append(threading.get_ident()) or 1.0}, {"reading": lambda: 1.0})
    assert ran and threading.get_ident() not in ran
    with pytest.raises(ZeroDivisionError):
        swept({"one": lambda: 1 / 0}, {"reading": lambda: 1.0})


def test_what_a_busy_machine_gave_is_soon_asked_again():
    def of(disturbed, age_s):
        facts = dict.fromkeys(("variant", "dense"), "x")
        tables = {n: {} for n in ("kernels", "pieces", "far", "moe", "bytes_")}
        rest = {"threads": 1, "disturbed": disturbed, "measured_unix": time.time() - age_s}
        return rates.Rates(bandwidth=1e10, **tables, **facts, **rest)

    assert rates._counts(of("", 3000)) and not rates._counts(of("", 3700))
    assert rates._counts(of("busy", 200)) and not rates._counts(of("busy", 400))
