"""Models too large for memory are refused before a process starts, and engines that do not fit together take turns."""

import json
import re
import shutil
from pathlib import Path

import psutil
import pytest

from labkit.catalog import load_config
from labkit.cli import main as labkit
from labkit.engines import memory, process
from labkit.engines.adapter import ENGINES, options
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.measure.pool import together
from labkit.pocket.options import SHIPPED_WEIGHTS

CACHES = [(e, d) for e in ENGINES if "kv_cache_dtype" in options(e) for d in options(e)["kv_cache_dtype"].choices]
LARGER = 2 * psutil.virtual_memory().total


@pytest.fixture
def huge(tmp_path) -> dict[str, str]:
    """A model of each engine, twice as large as memory: a sparse file, and a config.json that says so."""
    gguf = tmp_path / "huge.gguf"
    with open(gguf, "wb") as file:
        file.write(b"GGUF")
        file.truncate(LARGER)
    folder = tmp_path / "pocket"
    shutil.copytree(SHIPPED_WEIGHTS, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.jsonl"))
    config = json.loads((folder / "config.json").read_text())
    one = memory.held(EngineConfig(engine="pocket")).weights
    config["num_experts"] = int(config["num_experts"] * 2 * LARGER / one)
    (folder / "config.json").write_text(json.dumps(config))
    return {"llamacpp": str(gguf), "pocket": str(folder)}


@pytest.mark.parametrize("engine", ["llamacpp", "pocket"])
def test_a_model_that_cannot_fit_is_refused_before_anything_starts(huge, engine, tmp_path):
    config = EngineConfig.from_dict({"engine": engine, "model": huge[engine]})
    with pytest.raises(BadInput, match="engine.model.*GB are available here; the weights alone do not fit"):
        process.start(config, tmp_path / "run")
    assert not (tmp_path / "run").exists() and process.owner() is None


def test_serve_refuses_it_too(huge, capsys):
    assert labkit(["serve", "--port", "0", "--model-path", huge["pocket"]]) == 2
    assert "model_path" in capsys.readouterr().err


def test_a_context_that_cannot_fit_is_named_as_such(monkeypatch):
    small = psutil.virtual_memory()._replace(available=200_000_000)
    monkeypatch.setattr(memory, "_memory", lambda: small)
    with pytest.raises(BadInput, match="a shorter context_length would fit"):
        memory.check(EngineConfig(engine="pocket", context_length=2**19))
    memory.check(EngineConfig(engine="pocket", context_length=1024))


def test_where_the_model_is_elsewhere_nothing_is_refused(huge):
    for config in (
        {"engine": "llamacpp", "model": huge["llamacpp"], "gpu_layers": 99},
        {"engine": "llamacpp", "model": huge["llamacpp"], "command_prefix": ["ssh", "gpu"]},
        {"engine": "attach", "url": "http://127.0.0.1:1", "model": huge["pocket"]},
    ):
        memory.check(EngineConfig.from_dict(config))


def test_engines_that_do_not_fit_together_take_turns(huge):
    fits = [EngineConfig(engine="pocket", threads=n) for n in (1, 2)]
    large = [EngineConfig.from_dict({"engine": "llamacpp", "model": huge["llamacpp"], "threads": n}) for n in (1, 2)]
    assert together(fits) and not together(large)


def test_a_split_model_counts_whole(tmp_path):
    for i in (1, 2, 3):
        Path(tmp_path / f"m-0000{i}-of-00003.gguf").write_bytes(b"GGUF" * 100)
    first = EngineConfig.from_dict({"engine": "llamacpp", "model": str(tmp_path / "m-00001-of-00003.gguf")})
    assert memory.held(first).weights == 1200


@pytest.mark.parametrize("engine, dtype", CACHES)
def test_every_cache_format_that_an_engine_takes_has_its_bytes(engine, dtype):
    config = EngineConfig.from_dict({"engine": engine, "model": "smollm2", "kv_cache_dtype": dtype})
    found = memory.quant(load_config("qwen3-30b-a3b"), config)
    assert dtype == "auto" if found is None else found.kv.bits == int(re.search(r"\d+", dtype)[0])
