"""A small model's config and rows as a measurement would leave them; no engine runs in these tests."""

import json
from types import SimpleNamespace

import pytest
from small import POCKET

from labkit.measure import probe
from labkit.measure.results import Result


@pytest.fixture(autouse=True)
def known_bandwidth(monkeypatch):
    """10 GB/s instead of some seconds of probing."""
    from labkit.evidence import measured
    from labkit.measure import machine

    ten = measured(10, "GB/s", "test bandwidth", 9.5, 10.5)
    monkeypatch.setattr(probe, "bandwidth", lambda threads=1, **_: ten)
    monkeypatch.setattr(probe, "probe", lambda threads=1, **_: SimpleNamespace(clock="wall", evidence=lambda: ten))
    machine.bandwidth.cache_clear()
    yield
    machine.bandwidth.cache_clear()


@pytest.fixture
def model(tmp_path):
    """A folder with the pocket model's config.json."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(POCKET))
    return str(folder)


@pytest.fixture
def parameters(model, tmp_path):
    """What a parameters cell gives to every experiment."""
    return dict(
        engine={"engine": "pocket", "model": model},
        workload="word-problems",
        count=2,
        repeats=3,
        warmup=1,
        output_tokens=64,
        seed=1,
        out_dir=str(tmp_path / "out"),
        machine="this",
        guess=2.0,
    )


def rows(arm, tpot_s, *, accept=None, steps=3, prompt_tokens=100, output=64, start=1000.0):
    """Six requests around a TPOT; accept: tokens a verify step yields."""
    out = []
    for repeat in range(3):
        for index in range(2):
            own = tpot_s * (1 + 0.01 * (repeat - 1) + 0.004 * index)
            row = {
                "arm": arm,
                "repeat": repeat,
                "index": index,
                "status": "ok",
                "error": None,
                "workload": "word-problems",
                "seed": 1,
                "prompt_tokens": prompt_tokens,
                "output_tokens": output,
                "cached_tokens": 0,
                "ttft_s": 0.02,
                "latency_s": 0.02 + own * (output - 1),
                "tpot_s": own,
                "accept_length": None,
                "verify_ct": None,
                "histogram": None,
                "started_unix": start + 3 * repeat + index,
                "fixed_length": True,
                "chunk_times": [0.02, 0.02 + own * (output - 1)],
                "chunk_tokens": [1, output],
            }
            if accept is not None:
                verify = round(output / accept)
                wrong = round(verify * (1 - (accept - 1) / steps))
                row |= {
                    "accept_length": output / verify,
                    "verify_ct": verify,
                    "histogram": [wrong, *[0] * (steps - 1), verify - wrong],
                }
            out.append(row)
    return out


def result(arm, tpot_s, *, accept=None, earlier=False, start=1000.0, **info):
    """A measured arm."""
    steps = arm.config.speculative.steps if arm.config.speculative else 3
    made = rows(
        arm.name, tpot_s, accept=accept, steps=steps, prompt_tokens=arm.params.prompt_tokens or 100, start=start
    )
    return Result(arm, made, {"engine": "pocket", "version": "test", **info}, 1.5, earlier)
