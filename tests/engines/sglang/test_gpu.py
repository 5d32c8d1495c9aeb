"""The GPU's memory: measured where there is one, and a word where there is none."""

import json
import subprocess

import pytest

from labkit import waits
from labkit.engines.sglang import gpu


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert gpu.sustained() == (None, "no NVIDIA GPU")


def test_without_torch_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(gpu, "smi", lambda: {"name": "H200"})
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    found, why = gpu.sustained()
    assert found is None and "PyTorch" in why


@pytest.mark.parametrize("said", ["", "{}", "no json"])
def test_a_probe_that_fails_is_a_word(monkeypatch, said):
    monkeypatch.setattr(gpu, "smi", lambda: {"name": "H200"})
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(waits, "run", lambda *a, **k: subprocess.CompletedProcess([], 1, said))
    found, why = gpu.sustained()
    assert found is None and why.startswith("not measured")


def test_what_the_probe_printed_is_evidence(monkeypatch):
    copy = {"device": "NVIDIA H200", "bytes": 8 << 30, "repeats": 20, "median": 4.3e12, "low": 4.2e12, "high": 4.31e12}
    monkeypatch.setattr(gpu, "smi", lambda: {"name": "H200"})
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(waits, "run", lambda *a, **k: subprocess.CompletedProcess([], 0, json.dumps({"copy": copy})))
    found, source = gpu.sustained()
    assert found.value == pytest.approx(4300) and found.low == pytest.approx(4200) and "NVIDIA H200" in source
