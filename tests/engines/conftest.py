import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from labkit.engines.adapter import Launch, Phase

SCRIPT = Path(__file__).with_name("scripted_engine.py")


@pytest.fixture(autouse=True)
def own_runtime(tmp_path, monkeypatch):
    """Locks of these tests meet no real lab's lock, nor each other's."""
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def scripted():
    """Makes an adapter module for the scripted child: scripted("--flag", ..., picks_port=True); ways: how
    it takes a key (Launch)."""

    def make(*flags: str, picks_port: bool = True, timeout_s: float = 120.0, env=None, **ways):
        def command(config, port):
            return Launch([sys.executable, str(SCRIPT), "--port", str(port), *flags], dict(env or {}), **ways)

        def explain(log):
            return "no such model: give an existing folder" if "ModelNotFound" in log else None

        phases = [
            Phase("load weights", "weights loaded", timeout_s),
            Phase("capture graphs", "captured", timeout_s),
            Phase("serve", r"ready on (?P<url>\S+)", timeout_s),
        ]
        return SimpleNamespace(PICKS_PORT=picks_port, PHASES=phases, command=command, explain=explain)

    return make


def gone(pid: int, within_s: float = 90.0) -> bool:
    """True once no live process has this pid."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def is_gone():
    return gone


@pytest.fixture
def script_path():
    assert os.path.exists(SCRIPT)
    return SCRIPT
