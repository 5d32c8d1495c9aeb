"""How the lab starts SGLang: one EngineConfig as command line and environment, start-up phases, known failures."""

import importlib.util
import logging
import re
import sys
from typing import TYPE_CHECKING

from labkit.engines.adapter import Launch, Option, Phase, flags, one_head
from labkit.engines.sglang import preflight
from labkit.errors import BadInput
from labkit.fields import refuse

if TYPE_CHECKING:
    from labkit.engines.config import EngineConfig

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


def _flag(name: str, help: str, low=None, high=None, *, choices: str = "", field: str = "", **more) -> Option:
    """A field whose flag and whose key in /server_info are both SGLang's own name for it."""
    flag = "--" + name.replace("_", "-")
    return Option(field or name, flag, help, low, high, tuple(choices.split()), seen=name, **more)


# Names and choices of the released 0.5.23.
_MOE = (
    "auto deep_gemm triton triton_kernel flashinfer_trtllm flashinfer_trtllm_routed flashinfer_cutlass "
    "flashinfer_mxfp4 flashinfer_cutedsl cutlass aiter marlin humming"
)
_KV = "auto fp8_e5m2 fp8_e4m3 bf16 bfloat16 fp4_e2m1"
_ALGORITHMS = "EAGLE EAGLE3 NEXTN STANDALONE NGRAM DFLASH"
_TOKENS = "tokens that one verify step checks, the root included"
OPTIONS = (
    _flag("model_path", "checkpoint folder or hub id", field="model"),
    _flag("random_seed", "seed of sampling", 0, 2**31 - 1, field="seed"),
    _flag("load_format", "how weights are read; dummy makes them up"),
    _flag("context_length", "tokens of context that a request may have", 64, 1 << 24),
    _flag("mem_fraction_static", "share of the memory for weights and KV cache", 0.05, 0.99),
    _flag("moe_runner_backend", "expert kernels", choices=_MOE),
    _flag("attention_backend", "attention kernels"),
    _flag("kv_cache_dtype", "number format of the KV cache", choices=_KV, shown_as={"bf16": "bfloat16"}),
    _flag("enable_fp32_lm_head", "logits in FP32"),
    # An environment variable for labkit's plugin: the release has no flag for it, and /server_info no field.
    Option("fp8_lm_head", "SGLANG_ENABLE_FP8_LM_HEAD", "LM head in FP8 (e4m3, a scale per row)"),
    _flag(
        "speculative_algorithm",
        "how drafts are made",
        choices=_ALGORITHMS,
        field="speculative.algorithm",
        shown_as={"NEXTN": "EAGLE"},
    ),
    _flag("speculative_num_steps", "draft steps in a round", 1, 16, field="speculative.steps"),
    _flag("speculative_eagle_topk", "branches kept at each draft step; 1 is a chain", 1, 8, field="speculative.topk"),
    _flag("speculative_num_draft_tokens", _TOKENS, 2, 64, field="speculative.draft_tokens"),
    _flag("speculative_draft_model_path", "the draft's own weights", field="speculative.draft_model_path"),
    _flag("speculative_token_map", "file of the tokens that a draft may propose", field="speculative.token_map"),
    Option("simulate_acc_len", "SGLANG_SIMULATE_ACC_LEN", "mean accept length to force", 1, 64),
)
# These draft with weights of their own; the others with the model's NEXTN layer or with none.
_OWN_DRAFT = ("EAGLE3", "STANDALONE", "DFLASH")


def check(config: "EngineConfig") -> None:
    """Rules between fields that SGLang would mend with only a warning, or find after minutes of loading."""
    if "LABKIT_TENSOR_ONLY_HEAD" not in config.env:  # the plugin's own fault needs both
        one_head(config)
    spec = config.speculative
    if spec is None:
        return
    spec.check()
    if spec.algorithm in _OWN_DRAFT and spec.draft_model_path is None:
        raise refuse(
            "a draft model's folder or hub id with " + spec.algorithm,
            at=("speculative", "draft_model_path"),
            value=None,
        )


def command(config: "EngineConfig", port: int) -> Launch:
    """SGLang's command line for one configuration, batch size 1.

    Flags without a field of their own (graph options) belong in `extra_args`, which comes last and so wins.
    `--trust-remote-code` is never added unasked. Flags that this machine's card refuses are left out with a warning
    (preflight.py), unless a prefix leads elsewhere. Raises BadInput where the model does not fit this card.
    """
    if not config.command_prefix:
        card = preflight.gpu()
        config, notices = preflight.adapt(config, card)
        for notice in [*notices, *preflight.before_start(config, card)]:
            if (
                notice.level == "stop"
            ):  # before minutes of loading, and before memory that is shared with the system ends
                raise BadInput("engine", config.model, notice.text)
            log.warning(notice.text)
    words, env = flags(config)
    argv = [config.python or _python(), "-m", "sglang.launch_server", *words[:2]]
    argv += ["--host", config.host, "--port", str(port), "--max-running-requests", "1", *words[2:]]
    spec = config.speculative
    if spec and spec.algorithm in ("NEXTN", "EAGLE") and spec.draft_model_path is None:
        # BailingMoeV3 is not among the models for which the release fills this in.
        argv += ["--speculative-draft-model-path", config.model]
    if config.simulate_acc_len is not None:
        # Accepted tokens are then the draft's own, so the next round computes on real states.
        env["SGLANG_SIMULATE_ACC_TOKEN_MODE"] = "real-draft-token"
    env = {"PYTHONUNBUFFERED": "1", **env, **config.env}
    return Launch([*argv, *config.extra_args], env, key_config="--config")  # it has no variable for the key


def at_once(config: "EngineConfig", n: int) -> "EngineConfig":
    """The same configuration for n requests at once; where CUDA graphs were asked for by batch size, those up to n."""
    more: list[str | int] = ["--max-running-requests", n]
    if "--cuda-graph-bs-decode" in config.extra_args:
        sizes = sorted({n, *(2**i for i in range(n.bit_length()) if 2**i <= n)})
        more += ["--cuda-graph-max-bs-decode", n, "--cuda-graph-bs-decode", *sizes]
    return config.replace(extra_args=[*config.extra_args, *more])


def explain(log: str) -> str | None:
    """The first known failure in a log as one line that says what to do; None when none is known."""
    for pattern, advice in _FAILURES:
        found = re.search(pattern, log, re.MULTILINE)
        if found:
            return advice.format(*found.groups())
    return None


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
