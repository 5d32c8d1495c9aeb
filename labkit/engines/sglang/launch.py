"""How the lab starts SGLang: one EngineConfig as command line and environment, start-up phases, known failures."""

import importlib.util
import logging
import re
import sys

from labkit.engines.adapter import Launch, Phase
from labkit.engines.config import EngineConfig
from labkit.engines.sglang import preflight

log = logging.getLogger("labkit")

PICKS_PORT = False

# In the order of SGLang 0.5.23's log. Times allow a real 70 GB checkpoint and FlashInfer's first compile of tens of
# minutes.
PHASES = [
    Phase("imports and arguments", r"server_args=|Init parallel begin", 300),
    Phase("engine processes", r"Init parallel ends|Load weight begin", 900),
    Phase("weights", r"Load weight end", 3600),
    Phase("memory pools", r"KV Cache is allocated|Memory pool end", 600),
    Phase("CUDA graphs", r"Engine startup timings|Capture target (decode|verify) CUDA graph end", 5400),
    Phase("HTTP server", r"Uvicorn running on", 600),
    Phase("warm-up request", r"The server is fired up and ready to roll!", 900),
]


def command(config: EngineConfig, port: int) -> Launch:
    """SGLang's command line for one configuration, batch size 1.

    Flags that depend on the card (attention backend, graph options) belong in `extra_args`, which comes last and so
    wins. `--trust-remote-code` is never added unasked. The FP8 head is an environment variable for labkit's plugin.
    Flags that this machine's card refuses are left out with a warning (preflight.py), unless a prefix leads elsewhere.
    """
    if not config.command_prefix:
        config, notices = preflight.adapt(config, preflight.gpu())
        for notice in notices:
            log.warning(notice.text)
    argv = [config.python or _python(), "-m", "sglang.launch_server", "--model-path", config.model]
    argv += ["--host", config.host, "--port", str(port), "--random-seed", str(config.seed)]
    argv += ["--max-running-requests", "1"]
    if config.load_format:
        argv += ["--load-format", config.load_format]
    if config.context_length:
        argv += ["--context-length", str(config.context_length)]
    if config.mem_fraction_static:
        argv += ["--mem-fraction-static", f"{config.mem_fraction_static:g}"]
    if config.moe_runner_backend:
        argv += ["--moe-runner-backend", config.moe_runner_backend]
    if config.enable_fp32_lm_head:
        argv.append("--enable-fp32-lm-head")
    if config.speculative:
        spec = config.speculative
        argv += ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", str(spec.steps)]
        argv += ["--speculative-eagle-topk", str(spec.topk), "--speculative-num-draft-tokens", str(spec.draft_tokens)]
        if "--speculative-draft-model-path" not in config.extra_args:
            # BailingMoeV3 is not among the models for which the release fills this in.
            argv += ["--speculative-draft-model-path", config.model]
    argv += config.extra_args
    return Launch(argv, _environment(config))


def explain(log: str) -> str | None:
    """The first known failure in a log as one line that says what to do; None when none is known."""
    for pattern, advice in _FAILURES:
        found = re.search(pattern, log, re.MULTILINE)
        if found:
            return advice.format(*found.groups())
    return None


def _environment(config: EngineConfig) -> dict[str, str]:
    env = {"PYTHONUNBUFFERED": "1"}
    if config.fp8_lm_head:
        env["SGLANG_ENABLE_FP8_LM_HEAD"] = "1"
    if config.simulate_acc_len is not None:
        env["SGLANG_SIMULATE_ACC_LEN"] = f"{config.simulate_acc_len:g}"
        # Accepted tokens are then the draft's own, so the next round computes on real states.
        env["SGLANG_SIMULATE_ACC_TOKEN_MODE"] = "real-draft-token"
    return {**env, **dict(config.env)}


def _python() -> str:
    """This Python where SGLang is installed in it, else the machine's python3 (also the one beyond ssh or docker)."""
    try:
        here = importlib.util.find_spec("sglang") is not None
    except (ImportError, ValueError):
        here = False
    return sys.executable if here else "python3"


# Most specific first. Groups of a pattern fill the braces of its advice.
_FAILURES = (
    (r"labkit plugin: ([^\n]*(?:exclude each other|is refused|ties its head)[^\n]*)", "{0}"),
    (
        r"--fp8-gemm-backend=cutlass is deprecated on this hardware",
        "this card's generation has no CUTLASS block-FP8 GEMM: leave out --fp8-gemm-backend cutlass",
    ),
    (
        r"No module named '?sglang'?",
        "SGLang is not installed in this Python: pip install 'labkit[sglang]' on the GPU machine, or set `python`",
    ),
    (
        r"No module named '(humming|flashinfer|sgl_kernel|deep_gemm|sgl_deep_gemm)[.\w]*'",
        "the kernel package {0} is missing: install the versions that sglang 0.5.23 pins (pip install sglang==0.5.23)",
    ),
    (
        r"undefined symbol: (\S+)",
        "a compiled package does not fit this PyTorch (undefined symbol {0}): reinstall sglang with its pins",
    ),
    (
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|cudaErrorInsufficientDriver",
        "the NVIDIA driver is older than this CUDA build needs: update the driver, or install builds for its CUDA",
    ),
    (
        r"Found no NVIDIA driver|No accelerator \(CUDA|No CUDA GPUs are available|nvidia-smi not found|"
        r"Torch not compiled with CUDA",
        "no usable GPU here: SGLang needs an NVIDIA GPU and driver (check nvidia-smi); "
        "without one, use the pocket engine",
    ),
    (
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "weights leave no room for the KV cache: raise mem_fraction_static, or lower context_length",
    ),
    (
        r"CUDA out of memory|torch\.OutOfMemoryError|CUDA error: out of memory|NVML_ERROR_NO_MEMORY",
        "the GPU ran out of memory: lower mem_fraction_static (the published Spark recipe uses 0.68), "
        "and check that nothing else holds the GPU",
    ),
    (
        r"contains custom code which must be executed|requires you to execute the configuration file|"
        r"trust_remote_code=True",
        "this checkpoint wants to run its own code; read it, then add --trust-remote-code to extra_args yourself",
    ),
    (
        r"does not appear to have a file named (\S+)|Can't load the configuration of '([^']+)'|"
        r"Repository Not Found|is not a valid model identifier|Incorrect path_or_model_id|Repo id must",
        "the model path holds no checkpoint: give a folder with config.json and safetensors, or a hub id you can reach",
    ),
    (r"address already in use", "the port is taken: use port 0 to have a free one picked"),
    (
        r"argument ([-\w/]+): invalid choice: ([^\n]+)",
        "this SGLang does not take that value for {0} ({1}): check the version, the lab knows 0.5.23",
    ),
    (r"unrecognized arguments: ([^\n]+)", "this SGLang does not know {0}: check the version, the lab knows 0.5.23"),
)
