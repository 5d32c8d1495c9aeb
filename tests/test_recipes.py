"""Published configurations: valid params files with address and date, whose start is checked before it is made."""

import re
from pathlib import Path

import pytest

from labkit import catalog
from labkit.engines.sglang import launch, preflight
from labkit.params import load_params
from labkit.roofline.quantization import quantization_of
from labkit.roofline.sizes import checkpoint_bytes

FOLDER = Path(__file__).parents[1] / "params" / "recipes"
RECIPES = sorted(FOLDER.glob("*.yaml"), key=lambda p: p.name)
GB10 = preflight.parse("NVIDIA GB10, 12.1, [N/A], [N/A], 580.95.05\n", 128e9)
LING = catalog.model("ling-3.0-flash").config


def test_the_published_configurations_are_here():
    assert {p.stem for p in RECIPES} == {
        "spark-author",
        "cookbook-sglang-mxfp4",
        "cookbook-sglang-int4",
        "cookbook-vllm-fp4",
        "cookbook-vllm-int4",
        "cookbook-llamacpp-q4",
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_it_is_valid_and_says_where_it_was_published(path):
    text = path.read_text()
    assert re.search(r"https://\S+", text) and re.search(r"read 2026-\d\d-\d\d", text)
    assert "$schema=../schema.json" in text.splitlines()[0]
    params = load_params(path)
    assert params.ladder() and "api-key" not in text


@pytest.mark.parametrize("path", [p for p in RECIPES if "engine: sglang" in p.read_text()], ids=lambda p: p.stem)
def test_its_start_is_checked_before_it_is_made(path, monkeypatch):
    monkeypatch.setattr(preflight, "gpu", lambda: GB10)
    for arm in load_params(path).ladder():
        argv = launch.command(arm.config, 30000).argv
        notices = " ".join(n.text for n in preflight.before_start(arm.config, GB10))
        assert argv[argv.index("--context-length") + 1] == "262144"
        assert argv.count("--json-model-override-args") == 1
        if arm.config.mem_fraction_static > preflight.UNIFIED_FRACTION:
            assert "0.68" in notices, "the fraction that hung a driver is spoken of"
        if arm.config.moe_runner_backend == "flashinfer_mxfp4":
            assert "97 targets" in notices


def test_the_authors_scripts_flag_by_flag(monkeypatch):
    monkeypatch.setattr(preflight, "gpu", lambda: GB10)
    base, fast = load_params(FOLDER / "spark-author.yaml").ladder()
    before, after = (launch.command(a.config, 30000) for a in (base, fast))
    for flag, value in {
        "--attention-backend": "flashinfer",
        "--page-size": "64",
        "--chunked-prefill-size": "8192",
        "--cuda-graph-backend-decode": "full",
        "--cuda-graph-backend-prefill": "disabled",
        "--mem-fraction-static": "0.68",
        "--fp8-gemm-backend": "cutlass",
        "--max-mamba-cache-size": "64",
        "--flashinfer-mxfp4-moe-precision": "default",
        "--random-seed": "308534008",
    }.items():
        assert all(c.argv[c.argv.index(flag) + 1] == value for c in (before, after)), flag
    assert "--disable-shared-experts-fusion" in before.argv and "yarn" in " ".join(after.argv)
    assert "--enable-fp32-lm-head" in before.argv and "--enable-fp32-lm-head" not in after.argv
    assert after.env["SGLANG_ENABLE_FP8_LM_HEAD"] == "1" and "SGLANG_ENABLE_FP8_LM_HEAD" not in before.env
    assert after.argv[after.argv.index("--speculative-num-draft-tokens") + 1] == "4"


@pytest.mark.parametrize(
    "experts, gigabytes",
    [("mxfp4", 70.4), ("int4-g32", 72.0)],
)
def test_its_checkpoint_fits_a_spark_with_the_context(experts, gigabytes, monkeypatch):
    quant = quantization_of(LING).with_formats(experts=experts)
    assert checkpoint_bytes(LING, quant) == pytest.approx(gigabytes * 1e9, rel=0.06)
    config = load_params(FOLDER / "spark-author.yaml").ladder()[-1].config
    room = preflight.capacity(LING, config, GB10)
    assert room.fits and room.context == 262144 and "0.68" in room.how
