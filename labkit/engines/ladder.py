"""The four rungs: the same four changes on every engine, each by that engine's own flags."""

from labkit.engines.config import EngineConfig, Speculative
from labkit.errors import BadInput

RUNGS = ("baseline", "kernels", "fp8-head", "mtp")
ALIASES = {"humming": "kernels", "jit": "kernels"}
TITLES = {
    "pocket": {
        "baseline": "run-time-shape kernels, BF16 head",
        "kernels": "JIT shape-specialised kernels (the CPU counterpart of Humming)",
        "fp8-head": "+ FP8 LM head",
        "mtp": "+ MTP, 3 draft steps",
    },
    "sglang": {
        "baseline": "FlashInfer MXFP4 experts, FP32-output head",
        "kernels": "Humming experts",
        "fp8-head": "+ FP8 LM head",
        "mtp": "+ MTP, 3 draft steps",
    },
}
_MOE = {
    "pocket": {"baseline": "generic", "tuned": "jit"},
    "sglang": {"baseline": "flashinfer_mxfp4", "tuned": "humming"},
}


def name(rung: str) -> str:
    """The rung's own name for a name or alias (humming -> kernels). Raises BadInput."""
    found = ALIASES.get(rung, rung)
    if found not in RUNGS:
        raise BadInput("rung", rung, "one of " + ", ".join(RUNGS))
    return found


def rung(config: EngineConfig, which: str) -> EngineConfig:
    """The configuration of one rung, each adding one change to the rung before.

    The MoE runner of a baseline or tuned rung follows the engine; draft settings come from `config.speculative` if it
    has them (3 steps, topk 1, 4 tokens otherwise). Raises BadInput for an attached server: its flags are not ours.
    """
    which = name(which)
    if config.engine not in _MOE:
        raise BadInput("engine", config.engine, "pocket or sglang: an attached server cannot be moved between rungs")
    at = RUNGS.index(which)
    return config.replace(
        moe_runner_backend=_MOE[config.engine]["tuned" if at >= 1 else "baseline"],
        fp8_lm_head=at >= 2,
        # The published baseline of SGLang computes its head with FP32 output; the FP8 head replaces it.
        enable_fp32_lm_head=config.engine == "sglang" and at < 2,
        speculative=(config.speculative or Speculative()) if at >= 3 else None,
        simulate_acc_len=config.simulate_acc_len if at >= 3 else None,
    )


def title(config: EngineConfig, which: str) -> str:
    """What the rung changes on this engine, in a few words."""
    return TITLES[config.engine][name(which)]
