"""How the lab starts the pocket engine: its command line, what start-up goes through, known failures."""

import re
import sys

from labkit.engines.adapter import Launch, Phase
from labkit.engines.config import EngineConfig

PICKS_PORT = True
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


def command(config: EngineConfig, port: int) -> Launch:
    """The command line of one configuration; SGLang's flag names where they mean the same."""
    python = config.python or ("python3" if config.command_prefix else sys.executable)
    argv = [python, "-m", "labkit.pocket", "--host", config.host, "--port", str(port)]
    env: dict[str, str] = {}
    if config.model != "pocket":
        argv += ["--model-path", config.model]
    if config.moe_runner_backend is not None:
        argv += ["--moe-runner-backend", config.moe_runner_backend]
    if config.fp8_lm_head:
        env["SGLANG_ENABLE_FP8_LM_HEAD"] = "1"
    if config.enable_fp32_lm_head:
        argv.append("--enable-fp32-lm-head")
    if config.speculative is not None:
        draft = config.speculative
        argv += ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", str(draft.steps)]
        argv += ["--speculative-eagle-topk", str(draft.topk), "--speculative-num-draft-tokens", str(draft.draft_tokens)]
    if config.simulate_acc_len is not None:
        env["SGLANG_SIMULATE_ACC_LEN"] = f"{config.simulate_acc_len:g}"
    if config.context_length is not None:
        argv += ["--context-length", str(config.context_length)]
    argv += ["--threads", str(config.threads), "--random-seed", str(config.seed)]
    for fault in config.faults:
        argv += ["--fault", fault]
    argv += config.extra_args
    if config.api_key_env is None or config.command_prefix:
        return Launch(argv, env)  # behind a prefix the engine does not inherit our environment
    return Launch([*argv, "--api-key-env", config.api_key_env], env, key_flag=None)


def explain(log: str) -> str | None:
    """A known failure as one line, None for an unknown one."""
    said = re.findall(r"^(?:pocket|labkit serve|labkit)[^\n:]*: (.+)$", log, re.MULTILINE)
    if said:
        return said[-1]  # the engine's own one-line error already says what to do
    return next((advice for pattern, advice in _CAUSES if re.search(pattern, log, re.IGNORECASE)), None)
