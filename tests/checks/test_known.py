"""The accept length to expect: from the pocket model's own log and from published results, nowhere else."""

import json
from pathlib import Path

import pytest

from labkit import pocket
from labkit.checks import benefit, judged, known
from labkit.checks.servers import DRAFTS

LING = {**DRAFTS, "model_path": "inclusionAI/Ling-3.0-flash-fp4", "version": "0.5.23"}
POCKET = {**DRAFTS, "engine": "pocket", "model_path": "pocket"}


def test_a_published_accept_length_counts_for_its_model_and_draft_numbers_alone():
    value, source = known.accept(LING, "gsm8k", True)
    assert 2.5 < value < 2.8 and source  # the lowest that was published; 1.00 is the broken draft's
    assert known.accept({**LING, "model_path": "ling-3.0-flash"}, "code", False)[0] == value
    for change in (
        {"speculative_num_steps": 2, "speculative_num_draft_tokens": 3},
        {"speculative_algorithm": "EAGLE3"},
        {"speculative_algorithm": None},
        {"speculative_draft_model_path": "somebody/draft"},
        {"model_path": "inclusionAI/Ling-3.0-tiny"},
        {"model_path": "made-up"},
        {"model_path": None},
    ):
        assert known.accept({**LING, **change}, "gsm8k", True) is None


@pytest.mark.parametrize(
    "load, sampled, text",
    [
        ("repetitive", False, "repetitive"),
        ("word-problems", False, "word problems, greedy"),
        ("word-problems-sampled", True, "word problems, sampled"),
        ("word-problems-unseen", True, "unseen word problems, sampled"),
    ],
)
def test_the_pocket_model_s_own_by_load_and_draft_length(load, sampled, text):
    log = json.loads((Path(pocket.__file__).parent / "weights" / "training_log.json").read_text())
    told = log["results_of_the_pocket_engine"][text]
    three = known.accept(POCKET, load, sampled)[0]
    assert three == pytest.approx(told["accept_length"], rel=0.01)  # two ways to the same number
    one = known.accept({**POCKET, "speculative_num_steps": 1}, load, sampled)[0]
    assert one == 1 + told["accept_by_position"][0] < three
    assert known.accept({**POCKET, "speculative_num_steps": 5}, load, sampled) is None


def test_nothing_is_known_of_other_loads():
    for load in ("synthetic", "file:x", "gsm8k", None):
        assert known.accept(POCKET, load, False) is None
    assert known.accept(POCKET, "code", True) is None
    assert known.accept({**POCKET, "model_path": "/mine/weights-2"}, "code", False) is None


def rows(tokens, rounds, **more):
    row = {
        "arm": "mtp",
        "status": "ok",
        "repeat": 0,
        "workload": "code",
        "temperature": 0.0,
        "tpot_s": 0.01,
        "output_tokens": tokens,
        "verify_ct": rounds,
        "prompt_tokens": 9,
        "histogram": None,
        **more,
    }
    return [row] * 3


@pytest.mark.parametrize("rounds, alarms", [(19, 0), (40, 1)])
def test_far_below_what_is_known_is_said_and_no_fault_is_claimed(rounds, alarms):
    mine = rows(64, rounds)
    side = benefit.Side("mtp", mine, POCKET, expected_accept=judged.known_accept(mine, POCKET))
    found = [c for c in benefit.alone(side) if c.name.endswith(benefit.KNOWN)]
    assert [c.verdict for c in found] == ["cannot tell" if alarms else "pass"]
    assert len([a for a in benefit.alarms(side) if "acceptance as known" in a]) == alarms


def test_requests_of_several_loads_have_no_one_known_value():
    assert judged.known_accept([*rows(64, 19), *rows(64, 19, workload="repetitive")], POCKET) is None
