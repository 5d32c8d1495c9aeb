"""Preflight on described cards; none is needed here."""

import pytest

from labkit.catalog import load_config
from labkit.engines.config import EngineConfig
from labkit.engines.sglang import launch, preflight
from labkit.errors import BadInput

H200 = preflight.parse("NVIDIA H200, 9.0, 143771, 3201, 580.159.04\n", 128e9)
GB10 = preflight.parse("NVIDIA GB10, 12.1, [N/A], [N/A], 580.95.05\n", 128e9)
LING = {"engine": "sglang", "model": "m", "context_length": 33000}


def test_cards_as_nvidia_smi_tells_them():
    assert (H200.capability, H200.unified, H200.memory_clock) == ((9, 0), False, True)
    assert H200.memory_bytes == 143771 * 2**20
    assert (GB10.capability, GB10.unified, GB10.memory_clock, GB10.memory_bytes) == ((12, 1), True, False, 128e9)
    assert preflight.parse("", 1.0) is None and preflight.parse("No devices were found\n", 1.0) is None


@pytest.mark.parametrize("flag", [["--fp8-gemm-backend", "cutlass"], ["--fp8-gemm-backend=cutlass"]])
def test_a_flag_that_hopper_refuses_is_left_out_with_a_notice(flag):
    config = EngineConfig.from_dict({**LING, "extra_args": ["--page-size", "64", *flag, "--enable-metrics"]})
    adapted, notices = preflight.adapt(config, H200)
    assert adapted.extra_args == ("--page-size", "64", "--enable-metrics")
    assert [n.level for n in notices] == ["changed"] and "cutlass" in notices[0].text
    assert preflight.adapt(config, GB10) == (config, [])
    assert preflight.adapt(config, None) == (config, [])


def test_the_launcher_says_what_it_left_out(monkeypatch, caplog):
    monkeypatch.setattr(preflight, "gpu", lambda: H200)
    config = EngineConfig.from_dict({**LING, "extra_args": ["--fp8-gemm-backend", "cutlass"]})
    assert "--fp8-gemm-backend" not in launch.command(config, 1).argv and "cutlass left out" in caplog.text
    elsewhere = config.replace(command_prefix=["ssh", "spark"])
    assert "--fp8-gemm-backend" in launch.command(elsewhere, 1).argv


def test_a_gb10_without_a_memory_clock_gets_its_bandwidth():
    humming = EngineConfig.from_dict({**LING, "moe_runner_backend": "humming"})
    adapted, notices = preflight.adapt(humming, GB10)
    assert dict(adapted.env)["HUMMING_GPU_BANDWIDTH_GBPS"] == "273" and len(notices) == 1
    own = humming.replace(env={"HUMMING_GPU_BANDWIDTH_GBPS": 250})
    assert preflight.adapt(own, GB10) == (own, [])
    assert preflight.adapt(humming, H200) == (humming, [])


def test_advice():
    baseline = EngineConfig.from_dict({**LING, "moe_runner_backend": "flashinfer_mxfp4"})
    cold = " ".join(n.text for n in preflight.advise(baseline, GB10, {}))
    assert "0.68" in cold and "no model loaded" in cold
    warm = preflight.advise(baseline.replace(mem_fraction_static=0.68), GB10, {"flashinfer": True})
    assert not any("unified" in n.text or "FlashInfer" in n.text for n in warm)
    assert preflight.advise(baseline, None, {})[0].level == "stop"


def test_capacity_of_ling_on_an_h200_and_on_a_small_card():
    model = load_config("ling-3.0-flash")
    config = EngineConfig.from_dict({**LING, "speculative": {"steps": 3, "topk": 1, "draft_tokens": 4}})
    got = preflight.capacity(model, config, H200)
    # The log of the real server: 64.53 GiB of weights and 3.38 GiB of draft, the draft's own copies of head and
    # embedding (1.5 GiB) dropped once shared; the published checkpoint is 70.4 GB.
    parts = dict(got.parts)
    assert parts["weights"] == pytest.approx(70.4e9, rel=0.01)
    assert parts["KV cache"] == pytest.approx(33000 * 8064) and got.fits
    without = dict(preflight.capacity(model, config.replace(speculative=None), H200).parts)
    assert without["weights"] < parts["weights"]
    assert without["linear-attention state"] < parts["linear-attention state"]
    half = dict(preflight.capacity(model, config.replace(kv_cache_dtype="fp8_e4m3"), H200).parts)
    assert half["KV cache"] == pytest.approx(parts["KV cache"] / 2)
    assert not preflight.capacity(model, config, preflight.Gpu("small", (9, 0), 80e9)).fits


def test_capacity_refuses_an_unknown_architecture():
    with pytest.raises(BadInput):
        preflight.capacity({"architectures": ["Novel"]}, EngineConfig.from_dict(LING), H200)


def test_kernel_caches_tell_cold_from_warm(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    assert not any(preflight.kernel_caches().values())
    (tmp_path / ".humming" / "cache" / "x").mkdir(parents=True)
    assert preflight.kernel_caches()["humming"] and not preflight.kernel_caches()["triton"]


def test_a_model_that_does_not_fit_is_not_started(monkeypatch):
    """Said before minutes of loading, with what would fit; a hub id, whose files lie elsewhere, starts untold."""
    config = EngineConfig.from_dict({**LING, "model": "ling-3.0-flash"})
    small = preflight.Gpu("RTX 4090", (8, 9), 24e9)
    levels = {n.level for n in preflight.before_start(config, small)}
    assert "stop" in levels
    monkeypatch.setattr(preflight, "gpu", lambda: small)
    with pytest.raises(BadInput, match="does not fit.*RTX 4090|weights alone"):
        launch.command(config, 1)
    assert launch.command(config.replace(model="org/on-the-hub"), 1).argv
    assert launch.command(config.replace(command_prefix=["ssh", "spark"]), 1).argv, "another machine's memory"
    big = [n.text for n in preflight.before_start(config, H200) if "fits:" in n.text]
    assert big and "mem_fraction_static" in big[0]


def test_an_architecture_that_the_account_does_not_know_is_said_and_started(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["Novel"]}')
    config = EngineConfig.from_dict({**LING, "model": str(tmp_path)})
    notices = preflight.before_start(config, H200)
    assert any("not known" in n.text and "Novel" in n.text for n in notices)
    assert "stop" not in {n.level for n in notices}
