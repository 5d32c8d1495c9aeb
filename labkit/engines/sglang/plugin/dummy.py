"""Dummy weights fit for measuring: seeded, the same in every configuration, with activations of a sane size.

As released, `--load-format dummy` leaves FP8 weights near zero, norms at 1e-3 and the packed MXFP4 bytes uninitialised.
Time does not depend on values, but NaN, experts that everyone picks, or garbage that differs between two arms would.
"""

import logging
import zlib

log = logging.getLogger("labkit.plugin")

MODELS = ("BailingMoeV3ForCausalLM", "BailingMoeForCausalLMNextN")
SEED = 1234
_ELEMENTS_AT_ONCE = 1 << 24


def after_initialize(result, model, *args, **kwargs):
    """Hook after SGLang's initialize_dummy_weights: fill the known models' tensors anew, leave others alone."""
    name = type(model).__name__
    if name not in MODELS:
        log.warning("labkit plugin: dummy weights of %s left as the release makes them", name)
        return result
    counts: dict[str, int] = {}
    for path, tensor in model.state_dict().items():
        kind = fill(path, tensor)
        counts[kind] = counts.get(kind, 0) + 1
    shown = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    log.warning("labkit plugin: dummy weights of %s drawn anew, seed %d: %s", name, SEED, shown)
    return result


def fill(path: str, tensor) -> str:
    """Fill one tensor in place by its name and dtype; returns what it was taken for.

    Each tensor has its own generator, seeded by SEED and its path, so no configuration shifts another's values.
    """
    import torch

    draws = torch.Generator(device=tensor.device).manual_seed(SEED ^ zlib.crc32(path.encode()))
    leaf = path.rsplit(".", 1)[-1]
    expert = "w13" in leaf or "w2" in leaf
    if expert and tensor.dtype in (torch.int8, torch.uint8):
        if "scale" in leaf:
            tensor.view(torch.uint8).fill_(127 - (7 if "w13" in leaf else 6))
            return "mxfp4 scales"
        # Any byte is two valid E2M1 codes.
        tensor.view(torch.uint8).random_(0, 256, generator=draws)
        return "mxfp4"
    if expert and "scale" in leaf:
        # mean |code| is about 3, so 2^-7 and 2^-6 bring a weight to about 1/sqrt(fan in) for hidden 2560 and 768
        tensor.fill_(2.0 ** (-7 if "w13" in leaf else -6))
        return "mxfp4 scales"
    if tensor.dtype == torch.float8_e4m3fn:
        for chunk in tensor.detach().chunk(max(1, tensor.numel() // _ELEMENTS_AT_ONCE), 0):
            values = torch.rand(chunk.shape, generator=draws, device=chunk.device, dtype=torch.float16)
            chunk.copy_(values.mul_(800).sub_(400).to(torch.float8_e4m3fn))
        return "fp8"
    if leaf in ("weight_scale_inv", "weight_scale"):
        tensor.fill_(0.03 / 400)  # uniform in +-0.03: a standard deviation of 0.017, about 1/sqrt(2560)
        return "fp8 scales"
    if "norm" in path and leaf == "weight":
        tensor.fill_(1.0)
        return "norms"
    if "expert_bias" in leaf:
        tensor.zero_()
        return "router biases"
    bound = _uniform_bound(path, leaf)
    if bound is None:
        return "left as they were"
    tensor.uniform_(-bound, bound, generator=draws)
    return "projections"


def _uniform_bound(path: str, leaf: str) -> float | None:
    if "word_embeddings" in path:
        return 1.0
    if "conv1d" in path:
        return 0.5
    if leaf == "weight" and any(part in path for part in ("lm_head", "gate.weight", "b_proj", "g_proj", "eh_proj")):
        return 0.03
    return None
