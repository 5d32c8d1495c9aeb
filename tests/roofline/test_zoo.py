"""Real config.json files: counted parameters equal what the makers publish, or the file is refused by name.

Each file of zoo/ holds the config (fields that say nothing about tensors left out, and of a list of modules the experts
after the first) and its sidecar, where and when it was read, and the maker's figures in 1e9 as printed. `counts:
embedding` marks an active figure that counts the whole table.
"""

import json
from pathlib import Path

import pytest

from labkit.catalog.config import ModelConfig, read_config
from labkit.catalog.read import last_place
from labkit.errors import BadInput
from labkit.roofline.account import per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.quantization import quantization_of, unmatched
from labkit.roofline.simple import simple
from labkit.roofline.sizes import checkpoint_bytes, held_cache_bytes

ZOO = {f.stem: json.loads(f.read_text()) for f in sorted((Path(__file__).parent / "zoo").glob("*.json"))}
COUNTED = [name for name, entry in ZOO.items() if "refused" not in entry]


def config_of(name) -> ModelConfig:
    entry = ZOO[name]
    beside = {k: v for k, v in entry.items() if k.endswith(".json")}
    return ModelConfig.made(entry["config"] | beside, name)


def agrees(mine: float, printed: str) -> bool:
    """Within 1%, or printed so when rounded or cut off."""
    published, unit = float(printed) * 1e9, last_place(printed) * 1e9
    return -max(0.01 * published, unit / 2) <= mine - published <= max(0.01 * published, unit)


def test_there_are_enough_and_each_says_where_it_is_from():
    assert len(COUNTED) >= 50
    assert all({"source", "read", "config"} <= set(entry) for entry in ZOO.values())


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_the_makers(name):
    shape, entry = shape_of(config_of(name)), ZOO[name]
    assert agrees(shape.total_parameters, entry["total"]), shape.total_parameters
    active = shape.active_with_embedding if entry.get("counts") == "embedding" else shape.active_parameters
    assert agrees(active, entry["active"]), active


@pytest.mark.parametrize("name", COUNTED)
def test_its_accounts_hold_together(name):
    config = config_of(name)
    shape, quant = shape_of(config), quantization_of(config)
    plain = per_tensor(config, context=32768, quant=quant)
    verify = per_tensor(config, context=32768, positions=4, quant=quant)
    held = checkpoint_bytes(config, quant)
    assert 0 < plain.weight_bytes <= verify.weight_bytes <= held * 1.3  # MLA's expanded kv_b may exceed what is stored
    assert simple(config).total_bytes > 0
    assert sum(g.parameters for g in plain.groups) == pytest.approx(shape.active_parameters)
    assert plain.kv_bytes <= held_cache_bytes(config, 32768, quant) * 1.01
    assert not unmatched(config)


@pytest.mark.parametrize("name", [n for n in ZOO if n not in COUNTED])
def test_what_is_not_known_is_refused_by_name(name):
    with pytest.raises(BadInput, match=ZOO[name]["refused"]):
        shape_of(config_of(name))


@pytest.mark.parametrize(
    "name, gigabytes",
    [
        # sizes of the published checkpoints' files, towers left out
        ("gpt-oss-20b", 13.76),
        ("gpt-oss-120b", 65.25),
        ("DeepSeek-V3", 688.6),
        ("Kimi-K2.5", 595.0),
        ("MiniMax-M2.5", 230.1),
        ("Mixtral-8x7B-v0.1", 93.4),
    ],
)
def test_a_checkpoint_has_the_published_size(name, gigabytes):
    assert checkpoint_bytes(config_of(name)) == pytest.approx(gigabytes * 1e9, rel=0.01)


@pytest.mark.parametrize(
    "name, roles",
    [
        ("Kimi-K2.6-NVFP4", {"experts": "nvfp4", "dense": "bf16", "head": "bf16"}),
        ("Qwen3.6-27B-NVFP4", {"dense": "nvfp4", "head": "nvfp4", "kv": "fp8-tensor"}),
        (
            "NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
            {"experts": "nvfp4", "dense": "fp8-tensor", "kv": "fp8-tensor"},
        ),
        ("Gemma-4-26B-A4B-NVFP4", {"experts": "nvfp4", "dense": "bf16", "embedding": "bf16"}),
        ("llama-4-scout-fp8-dynamic", {"experts": "fp8-row", "head": "bf16"}),
        ("DeepSeek-V3.2-NVFP4", {"experts": "nvfp4", "head": "bf16", "kv": "fp8-tensor"}),
        ("Llama-3.1-70B-Instruct-FP8", {"dense": "fp8-tensor", "head": "bf16", "kv": "fp8-tensor"}),
        ("Kimi-K3", {"experts": "mxfp4", "dense": "bf16"}),
    ],
)
def test_formats_told_in_any_dialect(name, roles):
    assert roles.items() <= quantization_of(config_of(name)).as_dict().items()


def test_a_folder_with_its_sidecar_is_read(tmp_path):
    entry = ZOO["NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"]
    (tmp_path / "config.json").write_text(json.dumps(entry["config"]))
    plain = per_tensor(read_config(tmp_path), context=0).total_bytes
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(entry["hf_quant_config.json"]))
    assert per_tensor(read_config(tmp_path), context=0).total_bytes < 0.5 * plain
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "W3A3_NEW"}}))
    with pytest.raises(BadInput, match="quant_algo.*W3A3_NEW"):
        per_tensor(read_config(tmp_path), context=0)


# Configs as the classes of transformers 5.24 save their defaults, and the parameters of the models that they make
# on torch's meta device, correction biases of routers included; counted once on 2026-11-30.
CLASSES = json.loads((Path(__file__).parent / "classes.json").read_text())


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_are_exactly_those_of_the_class(name):
    assert shape_of(ModelConfig.made(CLASSES[name]["config"], name)).total_parameters == CLASSES[name]["parameters"]
