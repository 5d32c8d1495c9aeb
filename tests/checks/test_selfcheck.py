"""The verdicts on the real pocket engine: faults caught, sound arms left alone."""

import pytest

from labkit.checks import selfcheck
from labkit.checks.selfcheck import Case
from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.pocket.options import FAULTS


def test_every_fault_of_the_engine_has_its_check():
    assert set(selfcheck.CAUGHT_BY) == set(FAULTS)


def test_summary_counts_misses_and_false_alarms():
    cases = [
        Case("bare-head", "bare-head", ("draft shares the head",), True),
        Case("ignore-env", "ignore-env", ("accept length",), False),
        Case("sound mtp", None, (), True),
        Case("sound kernels", None, ("MoE kernels",), False),
    ]
    got = selfcheck.summary(cases)
    assert (got["faults"], got["caught"], got["clean"], got["false_alarms"]) == (2, 1, 2, 1)
    assert got["cases"][1]["right"] is False


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
    assert selfcheck._judge(arms[-1].config, expected, own_runtime) == ()


@pytest.mark.slow
def test_all_faults_and_all_arms(own_runtime):
    got = selfcheck.summary(selfcheck.run(rounds=2))
    assert got["caught"] == got["faults"] == 8 and got["false_alarms"] == 0, got
