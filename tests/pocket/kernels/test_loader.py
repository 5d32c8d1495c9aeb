"""Weights on disk: damage and absence are one clear line."""

import json
import shutil

import numpy as np
import pytest

from labkit.errors import BadInput, LabError
from labkit.pocket import loader, tiles
from labkit.pocket.options import SHIPPED_WEIGHTS


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED_WEIGHTS, folder)
    return folder


def test_damaged_file_is_named(copy):
    path = copy / "model-00002-of-00003.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(LabError, match="model-00002-of-00003.safetensors: damaged") as caught:
        loader.load(copy)
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(copy):
    (copy / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(LabError, match="model-00003-of-00003.safetensors: missing"):
        loader.load(copy)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_not_a_model_folder(copy, name):
    (copy / name).unlink()
    with pytest.raises(BadInput) as caught:
        loader.load(copy)
    assert caught.value.field == "model_path" and name in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", ["LlamaForCausalLM"]),
        ("hidden_size", 100),
        ("q_lora_rank", 64),
        ("n_group", 4),
        ("qk_rope_head_dim", 16),
        ("kv_lora_rank", 64),
        ("vocab_size", 100),
        ("head_dim", 32),
    ],
)
def test_models_it_cannot_run(copy, key, value):
    raw = json.loads((copy / "config.json").read_text())
    raw[key] = value
    (copy / "config.json").write_text(json.dumps(raw))
    with pytest.raises(BadInput) as caught:
        loader.load(copy)
    assert caught.value.field == key


def test_missing_field_is_named(copy):
    raw = json.loads((copy / "config.json").read_text())
    del raw["kv_lora_rank"]
    (copy / "config.json").write_text(json.dumps(raw))
    with pytest.raises(BadInput, match="kv_lora_rank"):
        loader.load(copy)


def test_missing_tensor_is_named():
    with pytest.raises(LabError, match="no tensor called model.layers.99"):
        loader.load(SHIPPED_WEIGHTS).tensor("model.layers.99.x")


def test_mxfp4_packings_hold_the_same_weights():
    """Both packings read back, nibble by nibble."""
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 256, (32, 64), np.uint8), rng.integers(0, 256, (32, 4), np.uint8)
    values = np.stack([codes & 15, codes >> 4], -1).reshape(32, 128)
    rows = tiles.mxfp4_rows(codes, scales)
    body = rows[: 32 * 64].reshape(32, 4, 16)
    assert np.array_equal(np.concatenate([body & 15, body >> 4], -1).reshape(32, 128), values)
    assert np.array_equal(rows[32 * 64 :].reshape(32, 4), scales)
    tiled = tiles.mxfp4_tiles(codes, scales).reshape(2, 4 * 16 + 4 * 256)
    assert np.array_equal(tiled[:, :64].reshape(2, 4, 16).transpose(0, 2, 1).reshape(32, 4), scales)
    body = tiled[:, 64:].reshape(2, 16, 16, 4).transpose(0, 2, 1, 3)  # [tile, row, 8 k, byte]
    assert np.array_equal(np.stack([body & 15, body >> 4], -2).reshape(32, 128), values)


def test_head_rounding_matches_the_reference():
    from training.reference import quantise_head

    words = loader.load(SHIPPED_WEIGHTS).tensor("lm_head.weight")[:512]
    codes, scale = tiles.quantise_head(words.view(np.uint16))
    want_codes, want_scale = quantise_head(words.astype(np.float32))
    assert np.array_equal(codes, want_codes.view(np.uint8)) and np.array_equal(scale, want_scale)
