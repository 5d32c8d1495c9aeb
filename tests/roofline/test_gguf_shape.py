"""A GGUF file as a model: bytes as its header has them, caches and state as llama.cpp keeps them."""

import gguf_file
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.catalog.config import read_config
from labkit.errors import BadInput
from labkit.roofline.account import per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.gguf import TYPES, read_gguf
from labkit.roofline.predictions import batch_axis, context_crossover
from labkit.roofline.quantization import quantization_of
from labkit.roofline.simple import simple
from labkit.roofline.sizes import checkpoint_bytes, kv_bytes_per_token

D, V, LAYERS, EXPERTS = 256, 512, 4, 8
MOE = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": LAYERS,
    "qwen3moe.embedding_length": D,
    "qwen3moe.attention.head_count": 4,
    "qwen3moe.attention.head_count_kv": 2,
    "qwen3moe.attention.key_length": 128,
    "qwen3moe.attention.value_length": 128,
    "qwen3moe.expert_count": EXPERTS,
    "qwen3moe.expert_used_count": 2,
}


def tensors(layers=LAYERS, tied=False):
    found = {"token_embd.weight": ("Q6_K", (D, V)), "output_norm.weight": ("F32", (D,))}
    if not tied:
        found["output.weight"] = ("Q8_0", (D, V))
    for i in range(layers):
        found |= {
            f"blk.{i}.attn_norm.weight": ("F32", (D,)),
            f"blk.{i}.attn_q.weight": ("Q4_K", (D, 512)),
            f"blk.{i}.attn_k.weight": ("Q4_K", (D, 256)),
            f"blk.{i}.attn_v.weight": ("Q6_K", (D, 256)),
            f"blk.{i}.attn_output.weight": ("Q4_K", (512, D)),
            f"blk.{i}.ffn_gate_inp.weight": ("F32", (D, EXPERTS)),
            f"blk.{i}.ffn_gate_exps.weight": ("Q4_K", (D, 256, EXPERTS)),
            f"blk.{i}.ffn_up_exps.weight": ("Q4_K", (D, 256, EXPERTS)),
            f"blk.{i}.ffn_down_exps.weight": ("Q6_K", (256, D, EXPERTS)),
        }
    return found


@pytest.fixture
def model(tmp_path):
    return read_config(gguf_file.write(tmp_path / "moe.gguf", MOE, tensors()))


def test_every_byte_of_the_file_is_in_the_checkpoint(model):
    assert checkpoint_bytes(model) == read_gguf(model.gguf).tensor_bytes


def test_a_step_reads_the_chosen_experts_and_one_embedding_row(model):
    shape, account = shape_of(model), per_tensor(model, context=100)
    assert (shape.experts, shape.top_k, shape.tied, shape.layers) == (EXPERTS, 2, False, LAYERS)
    expert = (2 * 256 * 256 // 256 * 144) + 256 * 256 // 256 * 210
    assert account.group("routed experts").total_bytes == pytest.approx(LAYERS * 2 * expert)
    assert account.group("head").total_bytes == D * V // 32 * 34 and account.group("head").format == "Q8_0"
    assert account.group("embedding row").total_bytes == D // 256 * 210
    attention = (512 + 256 + 512) * D // 256 * 144 + 256 * D // 256 * 210
    assert account.group("attention projections").total_bytes == LAYERS * attention
    assert account.kv_bytes == 100 * LAYERS * 2 * 256 * 2 and kv_bytes_per_token(model) == LAYERS * 1024
    assert account.state_bytes == 0


def test_the_same_questions_can_be_asked_of_it(model):
    plain, four = (per_tensor(model, context=0, positions=m) for m in (1, 4))
    assert plain.total_bytes < four.total_bytes < 4 * plain.total_bytes
    assert simple(model, 16).weight_bits == 4 and context_crossover(model) > 0
    assert per_tensor(model, context=0, head="bf16").group("head").total_bytes == D * V * 2
    assert quantization_of(model).with_formats(experts="bf16").experts.name == "bf16"
    assert len(batch_axis(model, [1, 8], context=10, bandwidth=1e11)) == 2


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_mixture_of_types_is_counted_by_tensor(tmp_path, data):
    """Quantisers choose a type for each tensor. All bytes are the file's; a step reads them all, but the experts that
    its tokens do not choose, and of an embedding with a head of its own only their rows; c follows from that alone."""
    kinds = [n for n, block, *_ in TYPES.values() if 256 % block == 0]
    vectors = st.sampled_from([n for n, block, *_ in TYPES.values() if block == 1])  # ggml quantises no vector
    kind = st.lists(st.sampled_from(kinds), min_size=2, max_size=4)
    few, tied = data.draw(kind), data.draw(st.booleans())
    listed = {
        name: (few[i % len(few)] if len(shape) > 1 else data.draw(vectors), shape)
        for i, (name, (_, shape)) in enumerate(tensors(tied=tied).items())
    }
    meta = MOE | {"qwen3moe.expert_used_count": data.draw(st.integers(1, EXPERTS))}
    file = gguf_file.write(tmp_path / f"{data.draw(st.uuids())}.gguf", meta, listed)
    model, sizes = read_config(file), {t.name: t.bytes for t in read_gguf(file).tensors}
    assert checkpoint_bytes(model) == sum(sizes.values())
    chosen = {m: EXPERTS * (1 - (1 - meta["qwen3moe.expert_used_count"] / EXPERTS) ** m) for m in (1, 4)}

    def step(m):
        out = 0.0
        for name, size in sizes.items():
            if "_exps" in name:
                size *= chosen[m] / EXPERTS
            elif name == "token_embd.weight" and "output.weight" in sizes:
                size *= m / V
            elif name == "token_embd.weight":
                size *= 1 + m / V  # read as the head, and as rows
            out += size
        return out

    plain, four = (per_tensor(model, context=0, positions=m).total_bytes for m in (1, 4))
    assert plain == pytest.approx(step(1), rel=1e-9)
    assert four / plain == pytest.approx(step(4) / step(1), rel=1e-9)


def test_a_file_in_parts_is_the_same_model(tmp_path, model):
    """As llama.cpp splits it: metadata in the first part, and only counts in the others. Any part names the model."""
    names = list(tensors())
    for i, mine in enumerate((names[:1], names[1:20], names[20:]), 1):
        meta = (MOE if i == 1 else {}) | {"split.no": i - 1, "split.count": 3, "split.tensors.count": len(names)}
        gguf_file.write(tmp_path / f"s-{i:05d}-of-00003.gguf", meta, {n: tensors()[n] for n in mine})
    whole = per_tensor(model, context=64, positions=4)
    for i in (1, 3):
        parts = read_config(tmp_path / f"s-{i:05d}-of-00003.gguf")
        assert checkpoint_bytes(parts) == checkpoint_bytes(model)
        assert per_tensor(parts, context=64, positions=4).total_bytes == whole.total_bytes


def test_a_file_without_a_head_is_tied(tmp_path):
    model = read_config(gguf_file.write(tmp_path / "tied.gguf", MOE, tensors(tied=True)))
    account = per_tensor(model, context=0)
    assert shape_of(model).tied and account.group("head").total_bytes == D * V // 256 * 210


def test_a_folder_with_one_gguf_is_that_model(tmp_path):
    gguf_file.write(tmp_path / "a.gguf", MOE, tensors())
    gguf_file.write(tmp_path / "mmproj-a.gguf", MOE, {})
    assert read_config(tmp_path).gguf.name == "a.gguf"
    gguf_file.write(tmp_path / "b.gguf", MOE, tensors())
    with pytest.raises(BadInput, match="one GGUF file: a.gguf, b.gguf"):
        read_config(tmp_path)


def test_windows_come_from_the_file_or_from_the_architecture(tmp_path):
    def caches(**more):
        meta = {k.replace("qwen3moe", "gpt-oss"): v for k, v in MOE.items()} | {"general.architecture": "gpt-oss"}
        meta |= {"gpt-oss.attention.sliding_window": 128, **more}
        return shape_of(read_config(gguf_file.write(tmp_path / f"w{len(more)}.gguf", meta, tensors()))).caches

    assert {(c.layers, c.window) for c in caches()} == {(2, 128), (2, None)}
    listed = caches(**{"gpt-oss.attention.sliding_window_pattern": [1, 1, 1, 0]})
    assert {(c.layers, c.window) for c in listed} == {(3, 128), (1, None)}
    meta = MOE | {"qwen3moe.attention.sliding_window": 128}
    with pytest.raises(BadInput, match="sliding_window.*which layers"):
        shape_of(read_config(gguf_file.write(tmp_path / "no.gguf", meta, tensors())))


def test_latent_attention_keeps_one_latent_a_token(tmp_path):
    meta = {k.replace("qwen3moe", "deepseek2"): v for k, v in MOE.items()} | {
        "general.architecture": "deepseek2",
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.rope.dimension_count": 64,
    }
    listed = {k: v for k, v in tensors().items() if "attn_k." not in k and "attn_v." not in k}
    for i in range(LAYERS):
        listed[f"blk.{i}.attn_kv_a_mqa.weight"] = ("Q8_0", (D, 576))
        listed[f"blk.{i}.attn_k_b.weight"] = ("Q8_0", (128, 512, 4))
        listed[f"blk.{i}.attn_v_b.weight"] = ("Q8_0", (512, 128, 4))
    model = read_config(gguf_file.write(tmp_path / "mla.gguf", meta, listed))
    assert kv_bytes_per_token(model) == LAYERS * 576 * 2
    assert per_tensor(model, context=0).group("MLA").total_bytes == LAYERS * (D * 576 + 2 * 4 * 128 * 512) // 32 * 34


def test_recurrent_layers_keep_a_state_and_no_kv(tmp_path):
    meta = {k.replace("qwen3moe", "qwen3next"): v for k, v in MOE.items()} | {
        "general.architecture": "qwen3next",
        "qwen3next.ssm.conv_kernel": 4,
        "qwen3next.ssm.inner_size": 512,
        "qwen3next.ssm.state_size": 128,
        "qwen3next.ssm.group_count": 2,
    }
    listed = {k: v for k, v in tensors().items() if not any(k.startswith(f"blk.{i}.attn_") for i in range(3))}
    for i in range(3):
        listed[f"blk.{i}.attn_qkv.weight"] = ("Q4_K", (D, 1024))
        listed[f"blk.{i}.ssm_out.weight"] = ("Q4_K", (512, D))
        listed[f"blk.{i}.ssm_conv1d.weight"] = ("F32", (4, 1024))
    model = read_config(gguf_file.write(tmp_path / "gdn.gguf", meta, listed))
    account = per_tensor(model, context=10)
    assert [c.layers for c in shape_of(model).caches] == [1]
    assert account.state_bytes == 2 * 3 * 512 * 128 * 4
    assert account.convolution_bytes == 2 * 3 * 3 * (512 + 2 * 2 * 128) * 4


def test_what_the_lab_does_not_know_is_refused(tmp_path):
    def refused(match, meta=MOE, listed=None):
        with pytest.raises(BadInput, match=match):
            shape_of(read_config(gguf_file.write(tmp_path / "x.gguf", meta, listed or tensors())))

    refused("blk.0.strange_part", listed=tensors() | {"blk.0.strange_part.weight": ("F32", (4,))})
    refused("block_count", meta={k: v for k, v in MOE.items() if "block_count" not in k})
    refused("token_embd", listed={"output.weight": ("F32", (4, 4))})
    refused(
        "rwkv7", meta={k.replace("qwen3moe", "rwkv7"): v for k, v in MOE.items()} | {"general.architecture": "rwkv7"}
    )
