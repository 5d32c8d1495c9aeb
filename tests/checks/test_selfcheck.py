"""The checks put to the test: every fault caught, sound servers left alone, and honest counts of both."""

from random import Random

import pytest

from labkit.checks import faults, selfcheck
from labkit.checks.selfcheck import Case
from labkit.cli import selfcheck as cli
from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput, LabError
from labkit.pocket.options import FAULTS


def test_every_fault_of_the_engine_has_its_check_and_there_are_enough():
    assert set(selfcheck.POCKET) == set(FAULTS)
    assert len(faults.FAULTS) + len(selfcheck.POCKET) >= 20
    assert len({f.name for f in faults.FAULTS}) == len(faults.FAULTS)
    each, clean, rounds = selfcheck.FULL
    arms = ladder.choose(ladder.arms(EngineConfig()))
    assert each == 20 and clean + rounds * len(arms) >= 200


def test_summary_counts_misses_and_false_alarms():
    cases = [
        Case("pocket, bare-head", "bare-head", ("draft shares the head",), True),
        Case("pocket, ignore-env", "ignore-env", ("accept length",), False),
        Case("sound mtp", None, (), True),
        Case("sound kernels", None, ("MoE kernels",), False),
    ]
    got = selfcheck.summary(cases)
    assert (got["kinds"], got["faults"], got["caught"], got["clean"], got["false_alarms"]) == (2, 2, 1, 2, 1)
    assert got["cases"][1]["right"] is False


# One of each way in which a fault is found: streams, a description, a log, a pair.
@pytest.mark.parametrize(
    "name",
    [
        "every round billed with all its drafts, no ids",
        "held back by a proxy",
        "another drafting than asked",
        "the draft's head a bare tensor",
        "a step that makes it slower",
    ],
)
def test_a_fault_is_caught_and_by_the_right_check(name):
    fault = next(f for f in faults.FAULTS if f.name == name)
    assert fault.raised(Random(name)) & set(fault.caught_by)


@pytest.mark.parametrize("i", [1, 2, 4])
def test_a_sound_server_is_left_alone(i):
    assert faults.clean(i, Random(i)) == set()


@pytest.fixture
def own_runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "runtime"))
    return str(tmp_path)


def test_a_bare_head_is_told_from_a_sound_one(own_runtime):
    arms = ladder.choose(ladder.arms(EngineConfig()))
    expected = selfcheck._expected(arms, arms[-1])
    assert expected == ("kernels", "fp8-head", "mtp") and selfcheck._expected(arms, arms[0]) == ("baseline",)
    faulty = selfcheck._faulty(arms[-1].config, "bare-head")
    assert "draft shares the head" in selfcheck._judge(faulty, expected, own_runtime)
    assert selfcheck._judge(arms[-1].config, expected, own_runtime) == set()


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    ran = []

    def planned(full, seed, folder):
        for turn in range(3):
            yield selfcheck._Planned("f", "f", turn, ("seen",), lambda turn=turn: ran.append(turn) or {"seen"})

    monkeypatch.setattr(selfcheck, "_plan", planned)
    file = tmp_path / "cases.jsonl"
    kept, keep = cli._file(file)
    keep(Case("f", "f", ("seen",), True, 1))
    kept, keep = cli._file(file)
    cases = selfcheck.run(kept=kept, keep=keep)
    assert ran == [0, 2] and [c.turn for c in cases] == [0, 1, 2]
    assert sorted(c.turn for c in cli._file(file)[0]) == [0, 1, 2]


def test_a_server_that_cannot_be_measured_ends_one_run_and_not_all(monkeypatch):
    def refuse():
        raise LabError("no engine that the lab knows")

    def planned(full, seed, folder):
        yield selfcheck._Planned("clean", None, 0, (), refuse)
        yield selfcheck._Planned("an engine that nobody knows", "x", 0, (selfcheck.REFUSED,), refuse)
        yield selfcheck._Planned("another", "y", 0, ("drafting",), refuse)

    monkeypatch.setattr(selfcheck, "_plan", planned)
    assert [c.right for c in selfcheck.run()] == [False, True, False]


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n")
    with pytest.raises(BadInput, match="--keep"):
        cli._file(file)
    assert file.read_text() == "my notes\n"


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(BadInput, match="--keep.*none/cases"):
        cli._file(tmp_path / "none" / "cases")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_faults_and_all_rungs(own_runtime):
    got = selfcheck.summary(selfcheck.run())
    assert got["caught"] == got["faults"] and got["false_alarms"] <= 1, got
