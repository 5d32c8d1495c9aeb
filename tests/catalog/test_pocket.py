"""The account of the pocket model against its own files and its own engine's count."""

import json
import shutil
import struct
from pathlib import Path

import pytest

import labkit
from labkit.catalog import load_config
from labkit.roofline.account import draft_pass, per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.quantization import quantization_of
from labkit.roofline.sizes import checkpoint_bytes

WEIGHTS = Path(labkit.__file__).parent / "pocket" / "weights"
pytestmark = pytest.mark.skipif(not (WEIGHTS / "config.json").exists(), reason="no pocket weights in this checkout")


def headers() -> dict[str, dict]:
    """The tensors that the safetensors files declare."""
    found = {}
    for file in WEIGHTS.glob("*.safetensors"):
        with file.open("rb") as f:
            found |= json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    found.pop("__metadata__", None)
    return found


def test_every_byte_on_disk_is_accounted_for():
    stored = sum(t["data_offsets"][1] - t["data_offsets"][0] for t in headers().values())
    assert checkpoint_bytes(load_config("pocket")) == stored


def test_every_parameter_too():
    def values(name: str, shape: list[int]) -> int:
        if name.endswith(("_scale_inv", "_scales")):
            return 0
        size = 1
        for side in shape:
            size *= side
        return size * (2 if name.endswith("_codes") else 1)  # two 4-bit codes a byte

    shape = shape_of(load_config("pocket"))
    assert shape.total_parameters + shape.nextn_parameters == sum(values(n, t["shape"]) for n, t in headers().items())


def test_reached_by_its_path_it_is_the_same_model():
    assert load_config(WEIGHTS) == load_config("pocket") == load_config(WEIGHTS / "config.json")
    assert quantization_of(load_config("pocket")).absorbed.name == "fp8-block128"


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")), reason="no C compiler")
@pytest.mark.parametrize("fp8", [False, True])
def test_the_engine_counts_the_same_bytes(fp8):
    """Head and experts to the byte; the whole step within one percent, which is the engine's own packing."""
    from labkit.pocket.engine import Engine
    from labkit.pocket.options import Options

    speculative = {
        "speculative_algorithm": "NEXTN",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }
    engine = Engine(Options(model_path=str(WEIGHTS), fp8_lm_head=fp8, **speculative))
    try:
        counted = engine.describe()
    finally:
        engine.close()
    config, head = load_config("pocket"), "fp8" if fp8 else "bf16"
    account, draft = per_tensor(config, context=0, head=head), draft_pass(config, context=0, head=head)
    assert account.group("head").total_bytes == counted["head_bytes"]
    assert account.group("routed experts").total_bytes == pytest.approx(counted["expert_bytes_per_step"])
    rows = account.group("embedding row").total_bytes
    assert account.weight_bytes - rows == pytest.approx(counted["bytes_per_step"], rel=0.01)
    assert draft.weight_bytes - rows == pytest.approx(counted["draft_step_bytes"], rel=0.01)
