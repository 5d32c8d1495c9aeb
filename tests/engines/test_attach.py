"""Attaching to a server that somebody else runs."""

import pytest

from labkit.engines import process
from labkit.engines.attach import attach
from labkit.engines.config import EngineConfig
from labkit.engines.http import Unreachable


def attached(url, **more):
    return EngineConfig.from_dict({"engine": "attach", "url": url, **more})


def test_attach_leaves_the_server_running(tmp_path, scripted, monkeypatch):
    monkeypatch.setenv("LAB_TEST_KEY", "sk-planted")
    with process.start(EngineConfig().replace(api_key_env="LAB_TEST_KEY"), tmp_path, launcher=scripted()) as engine:
        with process.start(attached(engine.url, api_key_env="LAB_TEST_KEY"), tmp_path) as other:
            assert other.server_info() == engine.server_info() and other.failure() is None
            assert "sk-planted" not in repr(other) + repr(other.launch_record())
        assert engine.alive and other.failure() is None
        with pytest.raises(Unreachable, match="HTTP 401.*api_key_env"):
            attach(attached(engine.url))
    assert "refused" in other.failure()


def test_nobody_there():
    with pytest.raises(Unreachable, match="http://127.0.0.1:9/server_info"):
        attach(attached("http://127.0.0.1:9"))
