"""The pocket engine's adapter: what it honours, its command line, what start-up goes through, known failures."""

import re
import sys
from typing import TYPE_CHECKING

from labkit.engines.adapter import Launch, Option, Phase, flags, one_head
from labkit.pocket import options as limits

if TYPE_CHECKING:
    from labkit.engines import memory
    from labkit.engines.config import EngineConfig

PICKS_PORT = True
SIDE_BY_SIDE = True  # an idle one costs no time, only memory

# Ranges and help come from the engine's own table; SGLang's flag names where they mean the same.
_FIELDS = {  # field of EngineConfig -> the engine's own option
    "model": "model_path",
    "moe_runner_backend": "moe_runner_backend",
    "dense_dtype": "dense_dtype",
    "fp8_lm_head": "fp8_lm_head",
    "enable_fp32_lm_head": "enable_fp32_lm_head",
    "speculative.algorithm": "speculative_algorithm",
    "speculative.steps": "speculative_num_steps",
    "speculative.topk": "speculative_eagle_topk",
    "speculative.draft_tokens": "speculative_num_draft_tokens",
    "speculative.token_map": "speculative_token_map",
    "simulate_acc_len": "simulate_acc_len",
    "context_length": "context_length",
    "kernel_variant": "kernel_variant",
    "kernel_cache": "kernel_cache",
    "threads": "threads",
    "seed": "random_seed",
    "faults": "faults",
}
_SILENT = ("model_path", "kernel_variant", "kernel_cache", "faults")  # shown otherwise than asked, or not at all


def _option(field: str, name: str) -> Option:
    own = limits.TABLE[name]
    return Option(
        field,
        own.sent,
        own.help,
        own.low,
        own.high,
        own.choices,
        seen=None if name in _SILENT else name,
        unsent="pocket" if field == "model" else None,
    )


OPTIONS = tuple(_option(field, name) for field, name in _FIELDS.items())
PHASES = [
    Phase(
        "compile kernels, load weights",
        r"pocket engine ready on (?P<url>https?://\S+)",
        300.0,
    ),
]
_CAUSES = [
    (r"no C compiler", "no C compiler: install gcc or clang, or `pip install ziglang`"),
    (r"address already in use|port in use|cannot bind", "the port is in use: set port 0 to let the engine pick one"),
    (r"checksum|sha256", "the weights are damaged: fetch the repository's weights again"),
    (r"weights?[^\n]*(missing|not found)|no such (file|model)", "the model folder is missing or incomplete"),
    (r"MemoryError|Cannot allocate memory", "not enough memory for the weights and their replicas"),
]


def check(config: "EngineConfig") -> None:
    """Rules between fields; the fault that rewrites draft tokens has to be asked for some that do not fit."""
    one_head(config)
    if config.speculative is not None and "rewrite-draft-tokens" not in config.faults:
        config.speculative.check()


def held(config: "EngineConfig") -> "memory.Held":
    """Two copies of the weights at least, which passes read in turns, and the cache. Raises BadInput."""
    from labkit import catalog
    from labkit.engines import memory
    from labkit.pocket.layout import LEAST_COPIES
    from labkit.roofline.sizes import checkpoint_bytes

    context = config.context_length or limits.TABLE["context_length"].default
    weights = checkpoint_bytes(catalog.load_config(config.model))
    return memory.Held(LEAST_COPIES * weights, memory.cache_bytes(config.model, config, context))


def command(config: "EngineConfig", port: int) -> Launch:
    """The command line of one configuration."""
    python = config.python or ("python3" if config.command_prefix else sys.executable)
    words, env = flags(config)
    argv = [python, "-m", "labkit.pocket", "--host", config.host, "--port", str(port), *words, *config.extra_args]
    if config.api_key_env is None or config.command_prefix:
        return Launch(argv, env)  # behind a prefix the engine does not inherit our environment
    return Launch([*argv, "--api-key-env", config.api_key_env], env, key_flag=None)


def explain(log: str) -> str | None:
    """A known failure as one line, None for an unknown one."""
    said = re.findall(r"^(?:pocket|labkit serve|labkit)[^\n:]*: (.+)$", log, re.MULTILINE)
    if said:
        return said[-1]  # the engine's own one-line error already says what to do
    return next((advice for pattern, advice in _CAUSES if re.search(pattern, log, re.IGNORECASE)), None)
