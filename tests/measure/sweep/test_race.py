"""The race for the fastest configuration, simulated: truth known, noise drawn, time counted by a clock of its own."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.measure import stats
from labkit.measure.sweep import race
from labkit.measure.sweep.budget import Budget

BLOCK, START_S, PASS_S = 6, 4.0, 1.0


@dataclass(frozen=True)
class Task:
    names: tuple
    repeats: int

    @property
    def seconds(self):
        """Every engine and the baseline starts, and each of them makes its passes."""
        return (len(self.names) + 1) * (START_S + PASS_S * self.repeats)


class Costs:
    known = True

    def block(self, task):
        return task.seconds

    def blocks(self, tasks):
        return sum(t.seconds for t in tasks)


def tasks(names, repeats):
    return [Task(tuple(names[i : i + BLOCK]), repeats) for i in range(0, len(names), BLOCK)]


class Night:
    """A sweep of configurations with these true log speed-ups. noise: of a pass; start: of a visit to an engine."""

    def __init__(self, truth, total_s, *, noise, start=0.0, seed=0):
        self.truth, self.noise, self.start, self.rng = truth, noise, start, np.random.default_rng(seed)
        self.seen = [[] for _ in truth]
        self.clock, self.stood = 0.0, (0, None)
        self.budget = Budget(total_s, Costs(), lambda: self.clock)

    def measure(self, found, limit):
        for task in found:
            if limit.fits(task):
                self.clock += task.seconds
                for i in task.names:
                    mean = self.truth[i] + self.start * self.rng.standard_normal()
                    self.seen[i].append(mean + self.noise * self.rng.standard_normal(task.repeats))

    def standing(self):
        count = sum(map(len, self.seen))
        if count != self.stood[0]:
            self.stood = count, race.standing([row(i, v) for i, v in enumerate(self.seen) if v])
        return self.stood[1]

    def last(self, repeats):
        return tasks(list(self.standing().names[:2]), repeats) if self.standing() else []

    def run(self):
        self.measure(tasks(list(range(len(self.truth))), stats.LEAST), self.budget.rounds(self.last))
        while self.standing() and (found := self.budget.next({"": self.standing()}, tasks, self.last)):
            self.measure(tasks(*found), self.budget.rounds(self.last))
        return self.standing()


def row(name, visits):
    mean = math.exp(np.concatenate(visits).mean())
    told = [[len(v), float(v.mean()), float(v.std(ddof=1))] for v in visits]
    return {"config": name, "status": "measured", "speedup": mean, "visits": told}


def first_round_s(count):
    return sum(t.seconds for t in tasks(list(range(count)), stats.LEAST))


def nights(count, draw, *, noise, more, start=0.0, times=25):
    """(true best, standing, night) of so many sweeps; more: the budget over what the first round takes."""
    for seed in range(times):
        truth = draw(np.random.default_rng(seed + 1000))
        night = Night(truth, more * first_round_s(count), noise=noise, start=start, seed=seed)
        yield int(np.argmax(truth)), night.run(), night


def one_leads(count, lead):
    """One is faster by `lead`, all others are alike: the hardest case."""

    def draw(rng):
        truth = np.zeros(count)
        truth[rng.integers(count)] = math.log(1 + lead)
        return truth

    return draw


@pytest.mark.parametrize("start", [0.0, 0.01])
@pytest.mark.parametrize(("count", "lead"), [(24, 0.01), (40, 0.02)])
def test_the_fastest_is_not_put_out_while_it_is_within_the_noise(count, lead, start):
    found = list(nights(count, one_leads(count, lead), noise=0.03, start=start, more=3))
    kept = np.mean([best in s.able for best, s, _ in found])
    assert kept >= 0.9, kept


def test_where_the_lead_is_above_the_noise_it_is_found_and_the_time_is_not_spent():
    found = list(nights(24, one_leads(24, 0.1), noise=0.03, more=10))
    assert np.mean([best == s.names[0] for best, s, _ in found]) >= 0.95
    assert np.median([night.clock / night.budget.total_s for _, _, night in found]) < 0.8


def test_it_finds_the_fastest_more_often_than_the_same_time_for_all_alike():
    """Five of forty are near the fastest, the others far behind."""

    def draw(rng):
        truth = np.concatenate([[0.0], np.full(4, -0.02), -rng.uniform(0.05, 0.5, 35)])
        rng.shuffle(truth)
        return truth

    found = list(nights(40, draw, noise=0.06, more=3, times=40))
    raced = np.mean([best in s.names[:2] for best, s, _ in found])
    alike = []
    for best, _, night in found:
        passes = stats.LEAST
        while sum(t.seconds for t in tasks(list(range(40)), passes + 1)) <= 0.85 * night.budget.total_s:
            passes += 1
        seen = night.truth + night.noise / math.sqrt(passes) * night.rng.standard_normal(40)
        alike.append(best in np.argsort(-seen)[:2])
    assert raced >= np.mean(alike) + 0.05 and raced >= 0.8, (raced, np.mean(alike))


def near(rng):
    """Five of twenty are near the fastest, the others far behind."""
    truth = np.concatenate([[0.0], np.full(4, -0.02), -rng.uniform(0.05, 0.5, 15)])
    rng.shuffle(truth)
    return truth


@pytest.mark.parametrize("draw", [lambda rng: 0.02 * rng.standard_normal(20), near], ids=["alike", "a few near"])
def test_the_chance_that_is_told_is_the_chance_that_there_is(draw):
    """How often the first one is the fastest, and how often another one is faster by more than what matters."""
    said, true, clear_said, clear = [], [], [], []
    for best, s, night in nights(20, draw, noise=0.03, start=race.START_SD, more=2, times=60):
        lead = s.names[0]
        said.append(s.chance[lead])
        true.append(best == lead)
        clear_said.append(s.clear[lead])
        clear.append(night.truth[best] - night.truth[lead] > race.CLEAR)
    assert abs(np.mean(said) - np.mean(true)) < 0.2, (np.mean(said), np.mean(true))
    assert abs(np.mean(clear_said) - np.mean(clear)) < 0.15, (np.mean(clear_said), np.mean(clear))


@given(
    st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=30),
    st.floats(0.0, 0.1),
    st.floats(0.2, 8.0),
    st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_no_budget_is_overdrawn_and_the_second_look_has_its_time(truth, noise, more, seed):
    night = Night(np.array(truth), more * first_round_s(len(truth)), noise=noise, start=0.01, seed=seed)
    stands = night.run()
    assert night.clock <= night.budget.total_s
    if stands is None:
        return
    assert sum(stands.chance.values()) == pytest.approx(1) and set(stands.able) <= set(stands.names)
    assert stands.names[0] in stands.able
    passes = night.budget.last(night.last)
    last = sum(t.seconds for t in night.last(stats.LEAST))
    if passes:
        assert sum(t.seconds for t in night.last(passes)) <= night.budget.left_s
    # It is left out only where half of the budget would not have been enough for it.
    assert passes or last > night.budget.total_s / 2 or night.budget.total_s < first_round_s(len(truth)) + last


@given(st.permutations(range(8)))
def test_the_order_of_the_rows_decides_nothing(order):
    rng = np.random.default_rng(3)
    rows = [row(i, [0.1 * i / 8 + 0.01 * rng.standard_normal(3)]) for i in range(8)]
    one, other = race.standing(rows), race.standing([rows[i] for i in order])
    assert one.names == other.names and set(one.able) == set(other.able)


def test_an_older_row_is_read_by_its_interval_and_one_alone_has_nobody_to_beat():
    old = {"config": "c1", "status": "measured", "speedup": 1.2, "speedup_low": 1.1, "speedup_high": 1.3, "repeats": 3}
    assert race.standing([]) is None and race.standing([{"config": "x", "status": "failed"}]) is None
    alone = race.standing([old])
    assert alone.names == alone.able == ("c1",) and alone.chance["c1"] == 1 and alone.focus() == []
    both = race.standing([old, old | {"config": "c2", "speedup": 1.19}])
    assert set(both.able) == {"c1", "c2"} and len(both.focus()) == 2
