"""The plugin without SGLang: a minimal stand-in for its hook registry, CPU tensors for its weights."""

import os
import subprocess
import sys
import threading
import time
import types
from enum import Enum
from pathlib import Path

import pytest

from labkit.engines.sglang import plugin
from labkit.engines.sglang.plugin import switches

REPO = Path(__file__).parents[3]


class HookType(Enum):
    AFTER = "after"


@pytest.fixture
def sglang(monkeypatch):
    """Stand-in for the modules that the plugin imports; `.hooks` is what got registered."""
    hooks = {}
    registry = types.SimpleNamespace(register=lambda target, hook, kind: hooks.setdefault(target, hook))
    names = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.plugins": {},
        "sglang.srt.speculative": {},
        "sglang.srt.plugins.hook_registry": {"HookRegistry": registry, "HookType": HookType},
        "sglang.srt.environ": {"envs": types.SimpleNamespace()},
        "sglang.srt.speculative.spec_utils": {"SIMULATE_ACC_LEN": -1.0, "SIMULATE_ACC_TOKEN_MODE": "fixed"},
    }
    for name, content in names.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["sglang.srt.speculative"].spec_utils = sys.modules["sglang.srt.speculative.spec_utils"]
    for name in (plugin.FP8_HEAD, plugin.TENSOR_ONLY, plugin.ACCEPT_FILE, plugin.HOLD_FILE, plugin.DUMMY):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["launch_server.py"])
    return types.SimpleNamespace(hooks=hooks, modules=sys.modules)


LOADERS = [f"sglang.srt.model_loader.loader.{n}.load_model" for n in ("DefaultModelLoader", "DummyModelLoader")]


def test_without_switches_only_dummy_weights_are_touched(sglang):
    plugin.register()
    assert list(sglang.hooks) == ["sglang.srt.model_loader.loader.initialize_dummy_weights"]


def test_the_head_switch_hooks_both_loaders(sglang, monkeypatch):
    monkeypatch.setenv(plugin.FP8_HEAD, "1")
    plugin.register()
    assert set(LOADERS) < set(sglang.hooks)


@pytest.mark.parametrize("value", ["0", "false", "", "off"])
def test_a_switch_set_to_no_is_off(sglang, monkeypatch, value):
    monkeypatch.setenv(plugin.FP8_HEAD, value)
    plugin.register()
    assert not set(LOADERS) & set(sglang.hooks)


def test_steps_aside_when_the_engine_knows_the_variable(sglang, monkeypatch, caplog):
    monkeypatch.setenv(plugin.FP8_HEAD, "1")
    setattr(sglang.modules["sglang.srt.environ"].envs, plugin.FP8_HEAD, True)
    plugin.register()
    assert not set(LOADERS) & set(sglang.hooks) and "steps aside" in caplog.text


def test_refuses_the_fp32_head_and_ends_the_process(sglang, monkeypatch):
    monkeypatch.setenv(plugin.FP8_HEAD, "1")
    monkeypatch.setattr(sys, "argv", ["launch_server.py", "--enable-fp32-lm-head"])
    with pytest.raises(SystemExit, match="exclude each other"):
        plugin.register()
    monkeypatch.setenv(plugin.TENSOR_ONLY, "1")
    plugin.register()  # the teaching switch needs that combination


def test_importing_the_plugin_imports_nothing_heavy():
    code = (
        "import sys, labkit.engines.sglang.plugin.head, labkit.engines.sglang.plugin.dummy; "
        "import labkit.engines.sglang.plugin.switches; "
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'torch', 'pandas', 'sglang', 'httpx')]); "
        "print(sorted(m for m in sys.modules if m.startswith('labkit')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPO).stdout
    heavy, ours = out.splitlines()
    assert heavy == "[]"
    assert all(n in ours for n in ("labkit.engines.sglang.plugin",)) and "labkit.engines.config" not in ours


def test_nothing_else_in_labkit_imports_sglang():
    found = []
    for path in (REPO / "labkit").rglob("*.py"):
        if path.parent.name == "plugin":
            continue
        found += [
            f"{path.name}: {line}"
            for line in path.read_text().splitlines()
            if line.strip().startswith(("import sglang", "from sglang"))
        ]
    assert found == []


def test_hold_waits_in_children_only(tmp_path, monkeypatch):
    gate = tmp_path / "go"
    assert switches.hold(str(gate)) == 0.0  # the main process never waits
    import multiprocessing

    monkeypatch.setattr(multiprocessing.current_process(), "_name", "scheduler")
    mark = tmp_path / f"go.held.{os.getpid()}"

    def open_once_somebody_waits():
        while not mark.exists():
            time.sleep(0.01)
        gate.touch()

    threading.Thread(target=open_once_somebody_waits, daemon=True).start()
    assert switches.hold(str(gate), poll_s=0.01) > 0


@pytest.mark.parametrize("text, value", [("2.68", 2.68), ("-1\n", -1.0), ("", None), ("x", None)])
def test_accept_length_file(tmp_path, text, value):
    (tmp_path / "a").write_text(text)
    assert switches.read_accept_length(str(tmp_path / "a")) == value
    assert switches.read_accept_length(str(tmp_path / "none")) is None


def test_a_flush_takes_the_new_accept_length(sglang, tmp_path, monkeypatch):
    monkeypatch.setenv(plugin.ACCEPT_FILE, str(tmp_path / "a"))
    plugin.register()
    hook = sglang.hooks["sglang.srt.managers.scheduler.Scheduler.flush_cache"]
    utils = sglang.modules["sglang.srt.speculative.spec_utils"]
    assert hook(True, object()) is True and utils.SIMULATE_ACC_LEN == -1.0
    (tmp_path / "a").write_text("3.9")
    assert hook(False, object()) is False and utils.SIMULATE_ACC_LEN == 3.9
    assert utils.SIMULATE_ACC_TOKEN_MODE == "real-draft-token"
    (tmp_path / "a").write_text("-1")
    hook(True, object())
    assert utils.SIMULATE_ACC_LEN == -1.0
