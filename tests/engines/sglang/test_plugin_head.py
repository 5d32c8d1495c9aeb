"""The FP8 head's numbers and its sharing with the draft, on CPU tensors."""

import logging
import types

import pytest

torch = pytest.importorskip("torch", reason="the plugin computes with PyTorch, which labkit does not need")

from labkit.engines.sglang import plugin  # noqa: E402
from labkit.engines.sglang.plugin import dummy, head  # noqa: E402


def _head(rows=96, hidden=64, seed=0):
    draws = torch.Generator().manual_seed(seed)
    module = torch.nn.Module()
    scale = torch.logspace(-3, 1, rows)[:, None]
    weight = (torch.randn(rows, hidden, generator=draws) * scale).bfloat16()
    module.weight = torch.nn.Parameter(weight, requires_grad=False)
    module.quant_method = types.SimpleNamespace(apply=None)
    return module


def _model(name, **more):
    made = type(name, (), {})()
    made.config = types.SimpleNamespace(tie_word_embeddings=False)
    made.logits_processor = types.SimpleNamespace(use_fp32_lm_head=False)
    made.lm_head = _head()
    for key, value in more.items():
        setattr(made, key, value)
    return made


@pytest.fixture(autouse=True)
def switches_off(monkeypatch):
    monkeypatch.setenv(plugin.TENSOR_ONLY, "0")


def test_quantised_rows_are_exact_at_their_largest_value_and_close_elsewhere():
    module = _head()
    before = module.weight.detach().float().clone()
    head.quantise(module)
    after = module.weight.float() * module.weight_scale[:, None]
    assert module.weight.dtype == torch.float8_e4m3fn and module.weight_scale.shape == (96,)
    largest = before.abs().amax(1)
    assert torch.allclose(after.abs().amax(1), largest, rtol=1e-6)
    # e4m3 has 3 mantissa bits: at most half of 1/8 off, or half of the smallest step of the row
    bound = torch.maximum(before.abs() / 16, largest[:, None] / 448 * 2**-10)
    assert ((after - before).abs() <= bound * 1.001).all()


def test_a_row_of_zeros_stays_zero():
    module = _head()
    module.weight.data[3] = 0
    head.quantise(module)
    assert (module.weight[3].float() == 0).all() and torch.isfinite(module.weight_scale).all()


def test_accuracy_against_fp32():
    module = _head()
    before = module.weight.detach().clone()
    head.quantise(module)
    got = head.accuracy(module, before, tokens=64)
    assert 0.0 < got["relative_error"] < 0.04 and got["top1"] > 0.9 and got["same_tokens"] == 1.0
    module.weight_scale.fill_(1.0)  # what a reader sees that takes the codes and not the scales
    broken = head.accuracy(module, before, tokens=64)
    assert broken["relative_error"] > 1 and broken["top1"] < got["top1"]


def test_a_target_is_quantised_and_logs_its_proof(caplog):
    with caplog.at_level(logging.WARNING):
        model = head.after_load(_model("BailingMoeV3ForCausalLM"), object())
    assert isinstance(model.lm_head.quant_method, head.Fp8RowHead)
    assert "FP8 lm_head on for BailingMoeV3ForCausalLM" in caplog.text
    assert "relative error 0.0" in caplog.text and "M=1 and M=4 same tokens 1.0000" in caplog.text


def test_another_model_is_refused_with_a_reason():
    with pytest.raises(RuntimeError, match="Qwen3MoeForCausalLM is refused"):
        head.after_load(_model("Qwen3MoeForCausalLM"), object())


def test_fp32_output_and_tied_weights_are_refused():
    fp32 = types.SimpleNamespace(use_fp32_lm_head=True)
    with pytest.raises(RuntimeError, match="exclude each other"):
        head.after_load(_model("BailingMoeV3ForCausalLM", logits_processor=fp32), object())
    tied = types.SimpleNamespace(tie_word_embeddings=True)
    with pytest.raises(RuntimeError, match="ties its head"):
        head.after_load(_model("BailingMoeV3ForCausalLM", config=tied), object())


def _share_as_sglang_does(draft, target):
    """The order of EagleDraftWorker.init_lm_head: the bare tensor first, then the module if the draft can take it."""
    draft.lm_head = torch.nn.Module()
    draft.lm_head.weight = target.lm_head.weight
    if hasattr(draft, "set_lm_head_from_target"):
        draft.set_lm_head_from_target(target.lm_head)


@pytest.mark.parametrize("tensor_only", [False, True])
def test_the_draft_gets_the_whole_module_unless_the_teaching_switch_is_on(monkeypatch, caplog, tensor_only):
    monkeypatch.setenv(plugin.TENSOR_ONLY, "1" if tensor_only else "0")
    target = head.after_load(_model("BailingMoeV3ForCausalLM"), object())
    draft = head.after_load(_model("BailingMoeForCausalLMNextN"), object())
    with caplog.at_level(logging.WARNING):
        _share_as_sglang_does(draft, target)
    shared = getattr(draft.lm_head, "weight_scale", None) is not None
    assert shared is not tensor_only
    assert ("TEACHING SWITCH" in caplog.text) is tensor_only
    assert (draft.lm_head is target.lm_head) is not tensor_only


def test_a_draft_that_can_share_by_itself_is_left_alone():
    draft = _model("BailingMoeForCausalLMNextN")
    own = lambda self, target_head: None  # noqa: E731
    type(draft).set_lm_head_from_target = own
    head.after_load(draft, object())
    assert type(draft).set_lm_head_from_target is own


def test_dummy_weights_are_seeded_finite_and_independent_of_order():
    def state():
        return {
            "model.layers.2.mlp.experts.w13_weight": torch.zeros(2, 8, 16, dtype=torch.int8),
            "model.layers.2.mlp.experts.w13_weight_scale_inv": torch.zeros(2, 8, 1),
            "model.layers.0.attention.q_proj.weight": torch.zeros(32, 64).to(torch.float8_e4m3fn),
            "model.layers.0.attention.q_proj.weight_scale_inv": torch.ones(1, 1),
            "model.layers.0.input_layernorm.weight": torch.full((64,), 1e-3),
            "model.layers.2.mlp.gate.expert_bias": torch.ones(8),
            "lm_head.weight": torch.zeros(96, 64).bfloat16(),
            "model.layers.0.attention.A_log": torch.zeros(4),
        }

    first, second = state(), state()
    kinds = {name: dummy.fill(name, tensor) for name, tensor in first.items()}
    for name in reversed(second):
        dummy.fill(name, second[name])
    for name in first:
        assert torch.equal(first[name].view(torch.uint8), second[name].view(torch.uint8)), name
        assert torch.isfinite(first[name].float()).all()
    assert kinds["model.layers.0.attention.A_log"] == "left as they were"
    assert len(first["model.layers.2.mlp.experts.w13_weight"].unique()) > 50
    assert first["model.layers.0.attention.q_proj.weight"].float().abs().max() > 300
    assert first["model.layers.2.mlp.experts.w13_weight_scale_inv"].unique().tolist() == [2.0**-7]


def test_packed_scales_are_exponents():
    scale = torch.zeros(4, dtype=torch.uint8)
    assert dummy.fill("m.experts.w2_weight_scale", scale) == "mxfp4 scales"
    assert (2.0 ** (scale.float() - 127)).tolist() == [2.0**-6] * 4


def test_other_models_keep_the_release_s_dummy_weights(caplog):
    model = torch.nn.Linear(2, 2)
    before = model.weight.detach().clone()
    assert dummy.after_initialize(None, model) is None
    assert torch.equal(model.weight, before) and "left as the release makes them" in caplog.text
