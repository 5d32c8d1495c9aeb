import pytest

from labkit.roofline.sensitivities import sensitivities


def test_every_prediction_in_every_input():
    found = {name: {i.name: i.elasticity for i in many} for name, many in sensitivities().items()}
    assert {n: {i: pytest.approx(e, abs=1e-3) for i, e in m.items()} for n, m in found.items()} == {
        "floor of a step": {"step_bytes": 1, "bandwidth": -1},
        "utilisation": {"step_bytes": 1, "tpot": -1, "bandwidth": -1},
        "next rung, FP8 head": {"tpot": 1, "bytes_before": -1, "bytes_after": 1},
        "counterfactual saving, FP8 head": {"tpot": 1, "step_bytes": -1, "bytes_saved": 1},
        "TPOT with speculation": {"tpot_plain": 1, "a": -1, "c": 1},
        "c from times": {"tpot_speculative": 1, "a": 1, "tpot_plain": -1},
        "silent fallback": {"tpot_plain": 1, "c": 1},
        "room beside 4-bit weights": {"memory": 1.9453, "parameters": -0.9453},
        "end-to-end latency, GSM8K": {"ttft": 0.0187, "tpot": 0.9813, "output_tokens": 0.9829},
    }


def test_the_values_at_the_swing():
    by_name = {n: {i.name: (i.low, i.high) for i in many} for n, many in sensitivities().items()}
    approx = {
        ("floor of a step", "bandwidth"): (0.021320, 0.017443),
        ("utilisation", "tpot"): (0.76940, 0.62951),
        ("next rung, FP8 head", "tpot"): (0.020081, 0.024543),
        ("counterfactual saving, FP8 head", "bytes_saved"): (2.9899e-3, 3.6543e-3),
        ("TPOT with speculation", "c"): (0.011870, 0.014508),
        ("c from times", "a"): (1.4990, 1.8321),
        ("silent fallback", "c"): (0.046294, 0.056581),
        ("room beside 4-bit weights", "memory"): (53.0e9, 78.6e9),
        ("end-to-end latency, GSM8K", "output_tokens"): (10.335, 12.588),
    }
    assert {k: by_name[k[0]][k[1]] for k in approx} == {k: pytest.approx(v, rel=2e-4) for k, v in approx.items()}
    wide = {i.name: i for i in sensitivities(0.5)["floor of a step"]}
    assert wide["step_bytes"].high == pytest.approx(1.5 * 5.2383e9 / 273e9, rel=1e-4)
