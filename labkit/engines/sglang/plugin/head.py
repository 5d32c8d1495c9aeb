"""The FP8 LM head: e4m3 weights with one scale per vocabulary row, made after load; activations to FP8 per token.

SGLang's logits processor uses a head's `quant_method` when its class is not one of the unquantised ones, ahead of every
flag, which is why `--enable-fp32-lm-head` would be ignored without a word and is refused here. The NEXTN draft must get
the target's head as a whole module: `EagleDraftWorker.init_lm_head` first hands over the bare weight tensor
(`set_embed_and_head`) and then looks for `set_lm_head_from_target`, which BailingMoeForCausalLMNextN lacks in 0.5.23.
"""

import logging

log = logging.getLogger("labkit.plugin")

TARGETS = ("BailingMoeV3ForCausalLM",)
DRAFTS = ("BailingMoeForCausalLMNextN",)
E4M3_MAX = 448.0
_ROWS_AT_ONCE = 16384


def contradiction(argv: list[str], *, tensor_only: bool) -> str | None:
    """Why this command line cannot go with the FP8 head, or None.

    In 0.5.23 a bare FP8 tensor runs silently only on the FP32 head path (every other one fails loudly), so the teaching
    switch keeps that flag.
    """
    if "--enable-fp32-lm-head" in argv and not tensor_only:
        return (
            "SGLANG_ENABLE_FP8_LM_HEAD=1 and --enable-fp32-lm-head exclude each other (the FP8 head would win "
            "silently); drop one of them"
        )
    return None


class Fp8RowHead:
    """Quant method for ParallelLMHead: weight e4m3 [rows, hidden], weight_scale FP32 [rows]; BF16 logits."""

    def apply(self, layer, x, bias=None):
        """Logits [tokens, rows] of x [tokens, hidden]: W8A8 on the GPU, scaled FP32 product elsewhere."""
        import torch

        if not x.is_cuda:
            logits = x.float() @ (layer.weight.float() * layer.weight_scale[:, None]).T
            logits = logits.to(x.dtype)
        else:
            import sgl_kernel

            x = x.contiguous()
            codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
            scales = torch.empty((x.shape[0], 1), dtype=torch.float32, device=x.device)
            sgl_kernel.sgl_per_token_quant_fp8(x, codes, scales)
            logits = sgl_kernel.fp8_scaled_mm(
                codes, layer.weight.T, scales, layer.weight_scale[:, None], torch.bfloat16
            )
        return logits if bias is None else logits + bias

    def process_weights_after_loading(self, layer) -> None:
        """Nothing left to do: quantise() has done it."""

    def embedding(self, layer, ids):
        raise RuntimeError("labkit plugin: an FP8 head cannot serve as an embedding (tied weights are not supported)")


def after_load(model, loader, *args, **kwargs):
    """Hook after a loader's load_model: quantise a target's head, teach a draft to take it. Raises on other models."""
    name = type(model).__name__
    if name in DRAFTS:
        _teach_draft(type(model))
        return model
    if name not in TARGETS:
        raise RuntimeError(
            f"labkit plugin: the FP8 head is made for {', '.join(TARGETS)}; {name} is refused, because how its head is "
            "shared with embeddings or a draft has not been checked. Unset SGLANG_ENABLE_FP8_LM_HEAD to run it"
        )
    from labkit.engines.sglang.plugin import variables

    fp32 = getattr(getattr(model, "logits_processor", None), "use_fp32_lm_head", False)
    argv = ["--enable-fp32-lm-head"] if fp32 else []
    why = contradiction(argv, tensor_only=variables.on(variables.TENSOR_ONLY))
    if why is None and getattr(model.config, "tie_word_embeddings", False):
        why = "this checkpoint ties its head to the embeddings, which an FP8 head cannot serve"
    if why:
        raise RuntimeError(f"labkit plugin: {why}")
    before = model.lm_head.weight.detach()
    quantise(model.lm_head)
    _log_head(model.lm_head, before, name)
    if before.is_cuda:
        import torch

        del before  # SGLang sizes its KV cache from free memory right after this
        torch.cuda.empty_cache()
    return model


def quantise(head) -> None:
    """Replace head.weight (floating [rows, hidden]) by e4m3 codes, add weight_scale [rows]: weight = code * scale."""
    import torch

    weight = head.weight.detach()
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn, device=weight.device)
    scale = torch.empty(weight.shape[0], dtype=torch.float32, device=weight.device)
    for start in range(0, weight.shape[0], _ROWS_AT_ONCE):  # the FP32 copy of a whole head would be 1.6 GB
        rows = slice(start, start + _ROWS_AT_ONCE)
        block = weight[rows].float()
        scale[rows] = block.abs().amax(1).clamp_(min=1e-12) / E4M3_MAX
        codes[rows] = (block / scale[rows, None]).to(torch.float8_e4m3fn)
    del head.weight
    head.weight = torch.nn.Parameter(codes, requires_grad=False)
    head.register_buffer("weight_scale", scale, persistent=False)
    head.quant_method = Fp8RowHead()


def accuracy(head, original, tokens: int = 64, seed: int = 0) -> dict:
    """The FP8 head against FP32 products of the original weight, on random hidden states of unit RMS.

    Returns relative_error (Frobenius), top1 (share of the same argmax) and same_tokens (M=1 and M=4 agree, share).
    """
    import torch

    device = original.device
    draws = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((tokens, original.shape[1]), generator=draws, device=device, dtype=torch.float32)
    x = x.to(original.dtype)
    got = head.quant_method.apply(head, x).float()
    error = norm = 0.0
    best = torch.full((tokens,), float("-inf"), device=device)
    choice = torch.zeros(tokens, dtype=torch.long, device=device)
    for start in range(0, original.shape[0], _ROWS_AT_ONCE):
        want = x.float() @ original[start : start + _ROWS_AT_ONCE].float().T
        error += float((got[:, start : start + want.shape[1]] - want).square().sum())
        norm += float(want.square().sum())
        top, where = want.max(1)
        choice = torch.where(top > best, where + start, choice)
        best = torch.maximum(best, top)
    alone = torch.cat([head.quant_method.apply(head, x[i : i + 1]) for i in range(tokens)]).argmax(1)
    fours = torch.cat([head.quant_method.apply(head, x[i : i + 4]) for i in range(0, tokens, 4)]).argmax(1)
    return {
        "relative_error": (error / norm) ** 0.5,
        "top1": float((got.argmax(1) == choice).float().mean()),
        "same_tokens": float((alone == fours).float().mean()),
        "tokens": tokens,
    }


def _log_head(head, before, name: str) -> None:
    mb = before.numel() / 1e6
    log.warning(
        "labkit plugin: FP8 lm_head on for %s: weight %s %s, scale %s, %.1f MB -> %.1f MB, method %s",
        name,
        tuple(head.weight.shape),
        head.weight.dtype,
        tuple(head.weight_scale.shape),
        mb * before.element_size(),
        mb,
        type(head.quant_method).__name__,
    )
    got = accuracy(head, before)
    log.warning(
        "labkit plugin: FP8 lm_head check: relative error %.4f, top-1 agreement %.4f, M=1 and M=4 same tokens %.4f "
        "(%d random hidden states, against FP32)",
        got["relative_error"],
        got["top1"],
        got["same_tokens"],
        got["tokens"],
    )


def _teach_draft(draft) -> None:
    """Give the draft class the method that the speculative worker looks for, unless this SGLang has it already."""
    if hasattr(draft, "set_lm_head_from_target"):
        log.warning("labkit plugin: %s can take the target's head by itself; left as it is", draft.__name__)
        return
    from labkit.engines.sglang.plugin import variables

    draft.set_lm_head_from_target = _keep_tensor if variables.on(variables.TENSOR_ONLY) else _take_module


def _take_module(self, target_head) -> None:
    self.lm_head = target_head
    log.warning(
        "labkit plugin: draft %s shares the target's lm_head module (method %s, dtype %s)",
        type(self).__name__,
        type(getattr(target_head, "quant_method", None)).__name__,
        target_head.weight.dtype,
    )


def _keep_tensor(self, target_head) -> None:
    log.warning(
        "labkit plugin: TEACHING SWITCH on: draft %s keeps the bare weight tensor (dtype %s, method %s, scale %s)",
        type(self).__name__,
        self.lm_head.weight.dtype,
        type(getattr(self.lm_head, "quant_method", None)).__name__,
        "present" if hasattr(self.lm_head, "weight_scale") else "absent",
    )
