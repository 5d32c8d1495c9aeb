"""Recorded logs and a scripted SGLang process for the launcher's tests."""

from pathlib import Path

import pytest

from labkit.engines.config import EngineConfig

HERE = Path(__file__).parent


@pytest.fixture
def recorded():
    """The text of a recorded log by name."""
    return lambda name: (HERE / "data" / f"{name}.log").read_text(encoding="utf-8")


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """A configuration whose `python -m sglang.launch_server` is the scripted child that prints a recorded log."""
    import sys

    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "runtime"))

    def make(log: str, **fields) -> EngineConfig:
        env = {"PYTHONPATH": str(HERE / "standin"), "SCRIPT_LOG": str(HERE / "data" / f"{log}.log")}
        given = {"engine": "sglang", "model": "MODELS/full", "python": sys.executable, **fields}
        return EngineConfig.from_dict({**given, "env": {**env, **fields.get("env", {})}})

    return make
