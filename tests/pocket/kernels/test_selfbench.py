"""selfbench: arms take turns on the same prompts, ratios have their keys, busy rounds are told from clean ones."""

import json

import numpy as np
import pytest

from labkit.cli import main
from labkit.cli import selfbench as command
from labkit.pocket import selfbench

KEYS = {
    "plain_over_stream",
    "jit_over_generic",
    "fp8_over_bf16_head",
    "mtp_over_plain",
    "all_over_baseline",
    "c4",
    "http_overhead",
    "prefill_over_decode",
}


def samples(wall, cpu=None, passes=1.0):
    wall, cpu = np.asarray(wall, float), np.asarray(wall if cpu is None else cpu, float)
    return selfbench.Samples(
        list(wall), list(cpu), list(wall * passes), list(cpu * passes), 40, 10, [100.0] * len(wall)
    )


def bench(**times):
    n = len(next(iter(times.values())))
    arms = {"generic": "b", "jit": "k", "fp8-head": "f", "mtp": "m"}
    facts = {name: {"bytes_per_step": 20e6} for name in arms}
    made = {name: samples(times[short], passes=4 if short == "m" else 1) for name, short in arms.items()}
    return selfbench.Bench(made, [16.0] * n, [20.0] * n, facts, "wall", n, np.ones(n, bool))


def test_ratios_from_known_times():
    b = bench(b=[2e-3] * 9, k=[1.6e-3] * 9, f=[1.4e-3] * 9, m=[0.8e-3] * 9)
    found = {k: v["median"] for k, v in selfbench.ratios(b).items()}
    assert found["jit_over_generic"] == pytest.approx(1.25)
    assert found["fp8_over_bf16_head"] == pytest.approx(1.6 / 1.4)
    assert found["mtp_over_plain"] == pytest.approx(1.75)
    assert found["all_over_baseline"] == pytest.approx(2.5)
    assert found["c4"] == pytest.approx(3.2 / 1.4)
    assert found["plain_over_stream"] == pytest.approx(20e6 / 1.6e-3 / 1e9 / 16)
    assert found["prefill_over_decode"] == pytest.approx(100 * 1.6e-3)
    assert b.accept_length("mtp") == 4


def test_interval_holds_the_median_and_narrows():
    rng = np.random.default_rng(0)
    few, many = rng.normal(1.2, 0.05, 10), rng.normal(1.2, 0.05, 400)
    a, b = selfbench.interval(few), selfbench.interval(many)
    assert a["low"] <= a["median"] <= a["high"] and b["high"] - b["low"] < a["high"] - a["low"]
    assert selfbench.interval(few) == a


def test_a_short_run(prompts):
    arms = {name: selfbench.ARMS[name] for name in ("generic", "jit", "fp8-head", "mtp")}
    b = selfbench.run(prompts[:8], tokens=9, arms=arms, budget_s=30)
    assert b.rounds == 8 and all(len(s.wall) == 8 for s in b.samples.values())
    assert all(0 < v["median"] < 50 for v in selfbench.ratios(b).values())
    assert b.clock in ("wall", "cpu") and b.samples["jit"].passes == 64


def test_every_key_has_a_target_and_is_printed():
    assert set(command.TARGETS) == KEYS
    ratios = {k: {"median": 1.0, "low": 0.9, "high": 1.1} for k in KEYS}
    text = command.table(
        {
            "intervals": ratios,
            "targets": command.TARGETS,
            "arms": {},
            "stream_gb_s": 17.0,
            "rounds_used": 8,
            "rounds": 10,
            "clock": "cpu",
            "workload": "w",
            "warnings": ["busy"],
        }
    )
    assert all(k in text for k in KEYS) and "NOT met" in text and "warning: busy" in text
    json.dumps(ratios)


def test_bad_rounds_are_bad_input(capsys):
    assert main(["selfbench", "--rounds", "3"]) == 2
    assert "rounds" in capsys.readouterr().err
