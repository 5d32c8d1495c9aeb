import numpy as np
import pytest
from small import POCKET

from benchmarks import gguf_random, gguf_shape
from labkit.errors import BadInput

CONFIG = POCKET | {
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "rope_theta": 600000,
    "kda_lower_bound": -5.0,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 32768,
}


def by_name():
    return {tensor.name: tensor for tensor in gguf_shape.tensors(CONFIG)}


def test_names_differ_and_layers_alternate():
    names = [tensor.name for tensor in gguf_shape.tensors(CONFIG)]
    assert len(set(names)) == len(names)
    latent = [layer for layer in range(12) if f"blk.{layer}.attn_kv_a_mqa.weight" in names]
    assert latent == [5, 11]
    assert [layer for layer in range(12) if f"blk.{layer}.ssm_f_a.weight" in names] == [
        layer for layer in range(12) if layer not in latent
    ]
    assert [layer for layer in range(12) if f"blk.{layer}.ffn_gate_exps.weight" in names] == list(range(2, 12))


def test_bytes_by_hand():
    tensors, step = by_name(), gguf_shape.step_bytes(CONFIG)
    assert tensors["output.weight"].bytes == step["head"] == 6144 * 384 * 2
    assert tensors["blk.0.attn_q.weight"].bytes == 256 * 384 * 34 / 32
    assert tensors["blk.2.ffn_down_exps.weight"].bytes == 24 * 384 * 128 * 17 / 32
    assert step["routed experts"] == 10 * 8 * 3 * 384 * 128 * 17 / 32
    assert step["total"] == sum(size for name, size in step.items() if name != "total")


def test_bytes_of_a_step_are_those_of_the_lab_account():
    account = pytest.importorskip("labkit.roofline.account").per_tensor(CONFIG, context=0, head="bf16")
    ours = {group.name: group.total_bytes for group in account.groups}
    theirs = gguf_shape.step_bytes(CONFIG)
    assert theirs["routed experts"] == pytest.approx(ours["routed experts"])
    assert theirs["head"] == pytest.approx(ours["head"])
    assert theirs["total"] == pytest.approx(account.weight_bytes, rel=0.03)


def test_every_tensor_gets_exactly_its_bytes():
    rng = np.random.default_rng(0)
    for tensor in gguf_shape.tensors(CONFIG):
        data = gguf_random.weights(tensor, rng)
        assert data.nbytes == tensor.bytes, tensor.name
        assert data.shape[:-1] == tensor.shape[:-1], tensor.name


def decoded(tensor, data):
    """Float values of random block-format weights, by the formats' definitions."""
    if tensor.kind == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if tensor.kind == "Q8_0":
        blocks = data.reshape(-1, 34)
        return blocks[:, :2].copy().view("<f2").astype(np.float32) * blocks[:, 2:].view(np.int8)
    blocks = data.reshape(-1, 17)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], 1)
    return values[codes] * np.exp2(blocks[:, :1].astype(np.float32) - 127)


@pytest.mark.parametrize("name", ["output.weight", "blk.0.attn_q.weight", "blk.3.ffn_up_exps.weight"])
def test_random_weights_keep_activations_their_size(name):
    tensor = by_name()[name]
    values = decoded(tensor, gguf_random.weights(tensor, np.random.default_rng(1)))
    assert np.isfinite(values).all()
    assert 0.6 < values.std() * np.sqrt(tensor.shape[-1]) < 1.6


def test_same_seed_same_bytes():
    tensor = by_name()["blk.1.ffn_up.weight"]
    first, second, other = (gguf_random.weights(tensor, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert (first == second).all() and (first != other).any()


def test_vocabulary_is_distinct_ascii_but_for_the_space_mark():
    pieces = gguf_random.vocabulary(6144)
    assert len(set(pieces)) == 6144
    assert all(piece.replace("Ġ", "").replace("Ċ", "").isascii() for piece in pieces)


@pytest.mark.parametrize("change, field", [({"q_lora_rank": 64}, "q_lora_rank"), ({"hidden_size": 100}, "attn_q")])
def test_shapes_it_cannot_write_are_named(change, field):
    with pytest.raises(BadInput) as error:
        gguf_shape.step_bytes(CONFIG | change)
    assert field in error.value.field


def test_missing_field_is_named():
    with pytest.raises(BadInput, match="kv_lora_rank"):
        gguf_shape.tensors({key: value for key, value in CONFIG.items() if key != "kv_lora_rank"})


def test_written_file_reads_back(tmp_path):
    gguf = pytest.importorskip("gguf")
    small = CONFIG | {"vocab_size": 256, "num_hidden_layers": 6}
    path = tmp_path / "random.gguf"
    gguf_random.write(path, small, 3)
    reader = gguf.GGUFReader(path)
    found = {tensor.name: tensor for tensor in reader.tensors}
    for tensor in gguf_shape.tensors(small):
        assert found[tensor.name].n_bytes == tensor.bytes
        assert found[tensor.name].tensor_type.name == tensor.kind
        assert tuple(found[tensor.name].shape) == tensor.shape[::-1]
    assert reader.get_field("general.architecture").contents() == "bailingmoe3"
