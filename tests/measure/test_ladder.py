"""The ladder's table from rows: ratios over pairs, c and a, the bytes beside it, and when it stops."""

import re
from dataclasses import replace

import pytest

from labkit import cli
from labkit.cli import ladder as command
from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.errors import LabError
from labkit.measure.ladder import table
from labkit.measure.pool import Pool
from labkit.measure.results import Arm
from labkit.measure.runner import Progress, Runner
from labkit.params import Params, load_params

ARMS = ladder.choose(ladder.arms(EngineConfig()))


def climbed(*measured, arms=ARMS):
    """The table of these arms' rows."""
    wanted = [Arm.of(a, Params(engine=a.config)) for a in arms]
    return table(wanted, {a.name: [r for r in sum(measured, []) if r["arm"] == a.name] for a in arms})


def rows(arm, tpot, *, a=None, count=4, tokens=101):
    out = []
    for repeat in range(3):
        for index in range(count):
            t = tpot * (1 + 0.5 * ((repeat + index) % 2))  # the machine is slower for every other pair
            out.append(
                {
                    "arm": arm,
                    "repeat": repeat,
                    "index": index,
                    "status": "ok",
                    "tpot_s": t,
                    "ttft_s": 0.05,
                    "latency_s": 0.05 + t * (tokens - 1),
                    "output_tokens": tokens,
                    "prompt_tokens": 100,
                    "error": None,
                    "accept_length": a,
                    "verify_ct": (tokens - 1) / a if a else None,
                    "fixed_length": True,
                }
            )
    return out


def test_table():
    base, kernels, head, mtp = climbed(
        rows("baseline", 4e-3), rows("kernels", 3e-3), rows("fp8-head", 2.4e-3), rows("mtp", 1.6e-3, a=3.0)
    )
    assert base["step"] is None and base["stop"] is None
    # What slowed a pair slowed both of its sides: the ratios are exact although the medians have wide intervals.
    assert kernels["step"]["low"] == pytest.approx(4 / 3) == kernels["step"]["high"]
    assert head["step"]["median"] == pytest.approx(1.25) and head["total"]["median"] == pytest.approx(4 / 2.4)
    assert kernels["tpot_s"]["low"] < kernels["tpot_s"]["high"]
    assert mtp["step"]["median"] == pytest.approx(1.5)
    assert mtp["c"]["median"] == pytest.approx(1.6 * 3 / 2.4) and mtp["S"] == mtp["step"]
    assert mtp["accept_length"]["median"] == pytest.approx(3.0)
    assert [r["above_stop"] for r in (base, kernels, head, mtp)] == [False] * 4
    # Bytes: the FP8 head saves half of the head's bytes; a draft round is not a plain step and has no account.
    saved = kernels["account"]["step_bytes"] - head["account"]["step_bytes"]
    assert saved == pytest.approx(6144 * 384, rel=0.02)
    assert base["account"]["step_bytes"] == kernels["account"]["step_bytes"] and mtp["account"] is None
    assert base["account"]["bytes_s"] == pytest.approx(base["account"]["step_bytes"] / base["tpot_s"]["median"])
    text = "\n".join(command.lines([base, kernels, head, mtp]))
    assert "x1.33 [1.33, 1.33]" in text and "stop" not in text


def test_the_ladder_stops_with_a_reason():
    base, kernels, head, mtp = climbed(
        rows("baseline", 3e-3), rows("kernels", 3.3e-3), rows("fp8-head", 2.4e-3), rows("mtp", 6e-3, a=1.0)
    )
    assert kernels["stop"].startswith("kernels makes TPOT worse than baseline: x0.91")
    assert (kernels["above_stop"], head["above_stop"], mtp["above_stop"]) == (False, True, True)
    assert "c = 2.50" in mtp["stop"] and "no draft is accepted" in mtp["stop"]
    assert "stop: kernels makes" in "\n".join(command.lines([base, kernels, head, mtp]))


def test_no_clear_difference_is_no_reason_to_stop():
    slower = [r | {"tpot_s": r["tpot_s"] * (1.05 if r["repeat"] else 0.9)} for r in rows("kernels", 3e-3)]
    _, kernels = climbed(rows("baseline", 3e-3), slower, arms=ARMS[:2])
    assert kernels["step"]["median"] < 1 < kernels["step"]["high"] and kernels["stop"] is None


def test_the_ladder_says_before_it_starts_how_long_it_will_take(tmp_path, monkeypatch, capsys):
    def run(self, blocks, writer):
        yield Progress(text="starting baseline")
        raise LabError("enough")

    monkeypatch.setattr(Runner, "run", run)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["ladder", "--count", "2", "--repeats", "3", "--output-tokens", "64"]) != 0
    said = capsys.readouterr().err.splitlines()
    forecast = [bool(re.match(r"about .* (s|min) for 24 requests on 4 arms \(", line)) for line in said]
    assert forecast.index(True) == said.index("starting baseline") - 1


def test_a_longer_ladder_is_predicted_longer_and_a_gpus_start_counts():
    def seconds(**changes):
        runner = Runner(Pool())
        return runner.forecast(runner.plan(command.arms_of(load_params({"repeats": 3, **changes}))))[0]

    assert seconds(output_tokens=512) > 1.5 * seconds(output_tokens=64)
    assert seconds(repeats=20, output_tokens=512) > 3 * seconds(repeats=4, output_tokens=512)
    gpu = {"engine": {"engine": "sglang", "model": "ling-3.0-flash"}, "prompt_tokens": 4096, "output_tokens": 64}
    assert seconds(**gpu) > 8 * 60  # four arms, visited twice


def test_a_branch_from_below_the_stop_is_not_above_it():
    beside = replace(ARMS[2], before="baseline")
    found = climbed(rows("baseline", 3e-3), rows("kernels", 3.3e-3), rows("fp8-head", 2.4e-3), arms=[*ARMS[:2], beside])
    assert [r["above_stop"] for r in found] == [False, False, False]


def test_an_arm_is_compared_with_the_one_that_it_changes_or_the_nearest_that_was_measured():
    chosen = ladder.choose(ladder.arms(EngineConfig()), ["fp8-head", "baseline"])
    _, head = climbed(rows("baseline", 4e-3), rows("fp8-head", 2.5e-3), arms=chosen)
    assert head["before"] == "baseline" and head["step"]["median"] == pytest.approx(1.6)


def test_a_run_that_goes_on_has_its_parameters(tmp_path, capsys):
    assert cli.main(["ladder", "--resume", str(tmp_path), "--count", "3"]) == 2
    assert "--resume alone" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["ladder"], ["load"], ["bench", "--url", "http://127.0.0.1:9"]])
def test_prompts_of_ones_own_are_read_before_an_engine_starts(tmp_path, capsys, monkeypatch, command):
    from labkit.cli import main
    from labkit.measure import pool

    monkeypatch.setattr(pool.Pool, "ensure", lambda *a, **k: pytest.fail("an engine was started"))
    (tmp_path / "own.jsonl").write_text("no JSON")
    assert main([*command, "--workload", f"file:{tmp_path}/own.jsonl", "--out", str(tmp_path)]) == 2
    assert "own.jsonl line 1" in capsys.readouterr().err
