"""A sweep within a budget, by the real driver: blocks are records on disk, and the clock is one that blocks move."""

import itertools
import math
import random
import types

import pytest

from labkit.cli import sweep as command
from labkit.measure import stats
from labkit.measure.sweep import again, drive, points
from labkit.measure.sweep.block import Task
from labkit.measure.sweep.costs import Costs
from labkit.records import RunWriter, environment, read_run
from labkit.records.sweep import BLOCKS, LOG, read_sweep

START_S, TPOT_S, TOKENS = 10.0, 0.05, 21
DOCUMENT = {
    "common": {"workload": "repetitive", "count": 1, "repeats": 3, "warmup": 0, "output_tokens": TOKENS},
    "sweep": {"grid": {"env.A": list(range(1, 13))}, "block": 4},
}


class Machine:
    """Stands for whoever measures: it writes the records of a machine on which configuration k is k% faster than the
    baseline, and moves the clock. slower: how many times longer block number `at` takes than its parts."""

    width = 1

    def __init__(self, *, slower=1.0, at=0, seed=0):
        self.now, self.slower, self.at, self.random = 0.0, slower, at, random.Random(seed)
        self.begun, self.cut = [], []

    def monotonic(self):
        return self.now

    def __call__(self, tasks, directory, tell, limit):
        for task in tasks:
            if not limit.fits(task):
                continue
            tell(f"{task.name}: measuring", None)
            self.begun.append(task)
            slower = self.slower if len(self.begun) == self.at else 1.0
            most = limit.cut_s()
            seconds = self.write(task, directory / BLOCKS / task.name, math.inf if most is None else most / slower)
            self.now += seconds * slower
            yield task
            if self.cut:
                return

    def write(self, task, directory, most=math.inf):
        """Seconds that it takes; all engines start first, then all make their first pass, and so on."""
        total = 0.0
        with RunWriter(directory, task.baselines[0].params.as_dict()) as writer:
            arms = (*task.baselines, *task.arms)
            for arm in arms:
                writer.add_arm(arm.name, requested=arm.config.as_dict(), launch={"start_seconds": START_S})
                total += START_S
            for repeat, arm in itertools.product(range(task.repeats), arms):
                gain = 1 + (0.0 if arm.name.startswith("baseline") else int(arm.name[1:]) / 100)
                tpot = TPOT_S / gain * self.random.gauss(1, 0.02)
                row = {"arm": arm.name, "repeat": repeat, "index": 0, "status": "ok", "session": writer.session}
                row |= {"tpot_s": tpot, "ttft_s": 0.1, "latency_s": 0.1 + tpot * (TOKENS - 1)}
                total += row["latency_s"] + 0.03
                if total > most:
                    writer.finish(status="failed")
                    self.cut.append(task.name)
                    return most
                writer.append(row | {"output_tokens": TOKENS, "prompt_tokens": 8, "started_unix": self.now})
        return total


@pytest.fixture
def go(tmp_path, monkeypatch):
    """Runs a sweep of twelve configurations, or goes on with it: (its folder as read, the machine)."""

    def run(budget_s, **how):
        folder = tmp_path / "s"
        if not folder.exists():
            folder.mkdir()
            drive.create(DOCUMENT, folder, budget_s)
        machine = Machine(**how)
        for name in ("capture", "changing", "git_state"):  # half a second a record, and no part of this
            monkeypatch.setattr(environment, name, dict)
        clock = types.SimpleNamespace(monotonic=machine.monotonic, time=lambda: 1e9)
        monkeypatch.setattr(drive, "time", clock)
        with drive.Driver(folder, machine, lambda text, eta: None) as driver:
            driver.go()
        return read_sweep(folder), machine

    return run


FIRST_S = 15 * (
    START_S + stats.LEAST * (0.13 + TPOT_S * (TOKENS - 1))
)  # twelve, and a baseline in each of three blocks


@pytest.mark.parametrize("more", [0.5, 4, 12])
def test_what_a_budget_buys(go, more):
    run, machine = go(more * FIRST_S)
    assert machine.now <= more * FIRST_S and not machine.cut
    rounds = [x for x in run.lines if "round" in x]
    status = {r["config"]: r["status"] for r in run.rows}
    found = again.standings(run.rows)
    assert bool(again.unlooked(run.rows, run.finals)) is not bool(run.finals)
    if more < 1:  # the rest is said to be missing, by name
        missed = [n for n, s in status.items() if s == "pending"]
        assert missed and found[0]["missed"] == missed
        assert any("c0" in text and str(len(missed)) in text for text in command.lines(run.rows, run.finals))
    else:
        assert set(status.values()) == {"measured"} and len(run.finals) == 1
    if more > 1:
        later = [c for x in rounds[1:] for cs in x["blocks"].values() for c in cs]
        assert later.count("c012") >= later.count("c006") and "c001" not in later
        repeats = {r["config"]: r["repeats"] for r in run.rows}
        assert repeats["c012"] > repeats["c001"] == stats.LEAST
        assert run.finals[0]["best"] in found[0]["able"]
    if more > 10:
        assert run.finals[0]["called"] == "c012"


def test_a_block_that_takes_longer_than_it_should_is_ended_and_the_second_look_still_has_time(go):
    run, machine = go(4 * FIRST_S, slower=8.0, at=4)
    assert machine.cut == ["r1-000"] and machine.now <= 4 * FIRST_S
    assert all(r["status"] == "measured" for r in run.rows) and len(run.finals) == 1
    assert any(r["rounds"] == 2 and r["repeats"] > stats.LEAST for r in run.rows)  # its whole passes count
    assert [x["block"] for x in run.lines if x.get("whole") is False] == ["r1-000"]


def test_a_configuration_with_too_few_passes_stays_pending(go):
    run, machine = go(0.5 * FIRST_S, slower=3, at=1)
    assert machine.cut == ["r0-000"] and {r["status"] for r in run.rows} == {"pending"}


def test_a_sweep_that_goes_on_has_what_is_left_of_its_budget(go):
    _, first = go(4 * FIRST_S, slower=60.0, at=2)
    run, second = go(4 * FIRST_S)
    assert first.now + second.now <= 4 * FIRST_S + 1.0  # seconds are kept with three digits
    assert read_sweep(run.directory).lines[: len(run.lines)] == run.lines


def test_the_first_block_is_measured_whatever_bytes_say_and_ended_with_the_budget(go):
    run, machine = go(5.0)
    assert machine.now == 5.0 and len(machine.begun) == 1 and not run.finals
    assert {r["status"] for r in run.rows} == {"pending"}
    assert any("c001" in text for text in command.lines(run.rows, run.finals))


def test_starts_are_counted_apart_from_requests(tmp_path):
    plan = points.read(DOCUMENT | {"sweep": {"grid": {"env.A": [1, 2, 3], "prompt_tokens": [8, 16]}}})
    costs, machine = Costs(), Machine()
    base = next(iter(plan.baselines.values())).arm
    some = [p.arm for p in plan.measured if p.arm.load == base.load]

    def task(arms, repeats):
        return Task("b", tuple(arms), (base,), repeats)

    assert not costs.known and costs.block(task(some, 3)) > 0
    took = machine.write(task(some[:2], 3), tmp_path / "b")
    costs.learn(task(some[:2], 3), read_run(tmp_path / "b"), took)
    each = 0.13 + TPOT_S * (TOKENS - 1)
    assert costs.known and costs.block(task(some[:2], 3)) == pytest.approx(took, rel=0.01)
    # More passes cost requests alone, another engine its start too, and it is not known yet.
    assert costs.block(task(some[:2], 13)) - took == pytest.approx(3 * 10 * each, rel=0.1)
    assert costs.block(task(some, 3)) - took == pytest.approx(START_S + 3 * each, rel=0.1)
    costs.learn(task(some[:2], 3), read_run(tmp_path / "b"), 2 * took)
    costs.learn(task(some[:2], 3), read_run(tmp_path / "b"), 2 * took)
    assert costs.block(task(some[:2], 3)) == pytest.approx(2 * took, rel=0.05)  # the machine is busier than its parts


def test_no_secret_reaches_the_log_or_the_table(go, tmp_path):
    run, machine = go(5.0)
    why = {
        "status": "failed",
        "reason": "no answer: Authorization: Bearer sk-hidden",
        "command": ["x", "--api-key", "sk-hidden"],
    }
    with drive.Driver(tmp_path / "s", machine, lambda text, eta: None) as driver:
        driver._append([{"config": "c001", **why}])
    assert "sk-hidden" not in (tmp_path / "s" / LOG).read_text()
    shown = [r | why if r["config"] == "c001" else r for r in run.rows]
    assert any("Bearer" in text for text in command.lines(shown, []))
    assert "sk-hidden" not in "".join(command.lines(shown, []))
