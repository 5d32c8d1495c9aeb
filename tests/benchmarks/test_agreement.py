"""The scripts that hold the lab against other people's tools: their arithmetic, and what they say without the tool."""

import subprocess
import sys

import pytest

from benchmarks import common
from benchmarks.agreement import guidellm, lm_harness


def test_scores_are_paired_by_question():
    mine, theirs = [True, True, False, True], [True, False, True, True]
    found = lm_harness.score(mine, theirs)
    assert (found["only_ours"], found["only_theirs"], found["differ"]) == (1, 1, [1, 2]) and found["p"] == 1
    assert found["ours"]["accuracy"] == found["theirs"]["accuracy"] == 0.75
    assert lm_harness.score([True] * 8, [False] * 8)["p"] < 0.05


def test_times_are_compared_prompt_by_prompt():
    found = guidellm.compare([1.1, 2.2, 3.3], [1.0, 2.0, 3.0])
    assert found["ratio"] == pytest.approx(1.1) and found["ratio_low"] == pytest.approx(found["ratio_high"])


def test_one_disturbed_turn_of_a_prompt_says_nothing():
    turns = [[{"s": 1.0}, {"s": 2.0}], [{"s": 9.0}, {"s": 2.2}], [{"s": 1.1}, {"s": 2.1}]]
    assert guidellm.medians(turns, "s") == [1.1, 2.1]


@pytest.mark.parametrize("name, argv", [("lm_harness", []), ("guidellm", ["--requests", "4"])])
def test_a_tool_that_is_not_there_is_one_line(name, argv):
    out = subprocess.run(
        [sys.executable, "-m", f"benchmarks.agreement.{name}", "--tool", "/nowhere/tool", *argv],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert out.returncode == 2 and "/nowhere/tool" in out.stderr and len(out.stderr.strip().splitlines()) == 1


def test_a_tool_that_is_no_harness_is_named(tmp_path):
    tool = tmp_path / "bin" / "lm_eval"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(Exception, match="gsm8k.yaml"):
        lm_harness.gsm8k_of(tool)
    assert common.version_in(tool, "lm_eval") == "unknown"
