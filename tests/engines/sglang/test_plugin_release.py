"""The plugin inside the released SGLang, on CPU tensors: needs `sglang` in this Python, no GPU. Not part of CI."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs the engine's own packages")
pytest.importorskip("sglang", reason="needs the released engine")
pytestmark = pytest.mark.gpu

CODE = """
import types, torch
from sglang.srt.plugins import load_plugins
load_plugins()
import sglang.srt.model_loader.loader as loader
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.layers.logits_processor import should_apply_lm_head_quant_method
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.speculative import spec_utils
assert hasattr(Scheduler.flush_cache, "__wrapped__") and hasattr(loader.initialize_dummy_weights, "__wrapped__")

class BailingMoeV3ForCausalLM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lm_head = torch.nn.Module()
        self.lm_head.weight = torch.nn.Parameter(torch.empty(256, 64, dtype=torch.bfloat16), requires_grad=False)
        self.config = types.SimpleNamespace(tie_word_embeddings=False)
        self.logits_processor = types.SimpleNamespace(use_fp32_lm_head=False)

class BailingMoeForCausalLMNextN(BailingMoeV3ForCausalLM):
    pass

loader._get_quantization_config = lambda *a, **k: None
loader.post_load_weights = lambda model: None
made = []
for cls in (BailingMoeV3ForCausalLM, BailingMoeForCausalLMNextN):
    loader._initialize_model = lambda *a, **k: cls()
    made.append(loader.DummyModelLoader(LoadConfig(load_format="dummy")).load_model(
        model_config=types.SimpleNamespace(dtype=torch.bfloat16), device_config=types.SimpleNamespace(device="cpu")))
target, draft = made
draft.set_lm_head_from_target(target.lm_head)
assert draft.lm_head is target.lm_head and target.lm_head.weight.dtype == torch.float8_e4m3fn
assert should_apply_lm_head_quant_method(draft.lm_head, draft.lm_head.quant_method)
from labkit.engines.sglang.plugin import switches
switches.after_flush(True, None)
drawn = [spec_utils.sample_simulated_acc_len(spec_utils.SIMULATE_ACC_LEN, spec_utils.SIMULATE_ACC_METHOD, 4)
         for _ in range(4000)]
assert abs(sum(drawn) / len(drawn) - 2.68) < 0.05
print("ALL HELD")
"""


def test_hooks_head_sharing_and_simulated_length_on_the_release(tmp_path):
    import os

    (tmp_path / "a").write_text("2.68")
    env = {**os.environ, "SGLANG_ENABLE_FP8_LM_HEAD": "1", "LABKIT_SIMULATE_ACC_LEN_FILE": str(tmp_path / "a")}
    out = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=280)
    assert out.stdout.strip().endswith("ALL HELD"), out.stderr[-3000:]
    assert "FP8 lm_head on for BailingMoeV3ForCausalLM" in out.stderr
