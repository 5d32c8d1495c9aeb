"""The shipped folder: checksums, sizes, shapes by config, provenance, tokenizer."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

import labkit
from labkit.workloads import texts
from training import export, tokenizer
from training.config import Shape, config_json

WEIGHTS = Path(labkit.__file__).parent / "pocket/weights"


@pytest.fixture(scope="module")
def index():
    return json.loads((WEIGHTS / export.INDEX).read_text())


def test_index_names_every_shard_with_its_checksum(index):
    files = {p.name for p in WEIGHTS.glob("*.safetensors")}
    assert set(index["metadata"]["sha256"]) == files == set(index["weight_map"].values())
    for name, digest in index["metadata"]["sha256"].items():
        assert hashlib.sha256((WEIGHTS / name).read_bytes()).hexdigest() == digest
    assert index["metadata"]["provenance"] == "trained"


def test_sizes_stay_small(index):
    sizes = [p.stat().st_size for p in WEIGHTS.glob("*.safetensors")]
    assert max(sizes) <= 16 * 2**20 and sum(p.stat().st_size for p in WEIGHTS.iterdir()) <= 45e6
    assert index["metadata"]["total_size"] <= sum(sizes)


def test_config_and_tensors_agree():
    shape = Shape()
    assert json.loads((WEIGHTS / "config.json").read_text()) == config_json(shape, eos=0, pad=1)
    stored = export.load(WEIGHTS)
    expected = {name for name, *_ in export.tensors(shape)}
    names = {n.removesuffix("_scale_inv") for n in stored}
    names = {n.rsplit("_", 1)[0] if n.endswith(("_codes", "_scales")) else n for n in names}
    assert names == expected
    assert stored["lm_head.weight"].shape == stored["model.word_embeddings.weight"].shape == (6144, 384)
    assert stored["model.layers.2.mlp.experts.gate_up_codes"].shape == (24, 256, 192)
    assert stored["model.layers.5.attention.kv_b_proj.weight"].shape == (512, 128)
    state = export.decode(shape, stored)
    assert all(np.isfinite(w).all() for w in state.values())
    assert sum(w.size for w in state.values()) > 54e6


def test_encode_decode_is_stable():
    """Rounding what is already rounded changes nothing but FP8 scales' last bits."""
    shape = Shape()
    state = export.decode(shape, export.load(WEIGHTS))
    again = export.decode(shape, export.encode(shape, state))
    for name, w in state.items():
        assert np.allclose(again[name], w, rtol=0, atol=1e-6 * np.abs(w).max() + 1e-12), name


def test_tokenizer_is_whole_and_keeps_every_text():
    tok = Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))
    assert tok.get_vocab_size() == 6144
    assert tok.token_to_id(tokenizer.EOS) == 0 and tok.token_to_id(tokenizer.PAD) == 1
    for kind in ("repetitive", "code", "prose", "arithmetic"):
        t = texts.make(kind, 3, 1)
        assert tok.decode(tok.encode(t.prompt + t.answer).ids) == t.prompt + t.answer
        ends = tok.encode(t.prompt).ids + tok.encode(t.answer).ids
        assert tok.encode(t.prompt + t.answer).ids == ends  # an answer does not change its prompt's tokens
    digits = [tok.token_to_id(d) for d in "0123456789"]
    assert tok.encode("2026").ids == [digits[int(d)] for d in "2026"]


def test_chat_template_is_the_training_prompt():
    jinja2 = pytest.importorskip("jinja2")
    config = json.loads((WEIGHTS / "tokenizer_config.json").read_text())
    render = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(config["chat_template"]).render
    assert render(messages=[{"role": "user", "content": "What is 2 + 3?"}]) == texts.prompt_of("What is 2 + 3?")
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert render(messages=turns) == "Question: a\nAnswer: b<|eos|>Question: c\nAnswer:"


def test_damaged_header_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((100).to_bytes(8, "little") + b"{broken")
    with pytest.raises(ValueError):
        export.load_file(path)
